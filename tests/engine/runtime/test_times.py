"""Times as text."""

from engine.runtime.times import iso_time_text, sql_time_text, time_text


def test_each_form_shows_the_same_time_in_utc() -> None:
    time_ms = 1_709_209_800_007
    assert time_text(time_ms) == "2024-02-29 12:30:00Z"
    assert sql_time_text(time_ms) == "2024-02-29 12:30:00.007"
    assert iso_time_text(time_ms) == "2024-02-29T12:30:00.007Z"


def test_a_time_before_the_epoch_is_shown_too() -> None:
    assert sql_time_text(-1) == "1969-12-31 23:59:59.999"
