"""Errors about unknown names: all of a few, the nearest of many."""

import pytest

from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names, did_you_mean, names_text, some_text
from tests.support.tables import key_table, rows


def test_few_names_are_shown_in_their_order() -> None:
    assert names_text("tags", "x", ["b", "a"]) == "tags=['b', 'a']"


def test_the_nearest_of_many_are_shown() -> None:
    names = [f"batch-write-2026-11-{day:02}" for day in range(1, 31)] + ["eod", "eod-1"]
    assert names_text("tags", "Eod-2", names).startswith("nearest_tags=['eod-1', 'eod', ")
    assert names_text("tags", "Eod-2", names).endswith("] count=32")


def test_errors_stay_short_with_a_thousand_tags() -> None:
    """TAG-61: whatever is asked for by a wrong name."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    body = table.store.io.read_bytes(table.store.paths.snapshot(1))
    for at in range(1000):
        table.store.io.write_new(table.store.paths.tag(f"daily-{at:04}"), body)
    for asked in ({"tag": "daily-1000"}, {"version": "daily-1000"}, {"version": "dev.daily-1000"}, {"snapshot_id": 9}):
        with pytest.raises(InvalidInputError) as caught:
            table.read(**asked)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 400
        assert "nearest_tags=['daily-" in str(caught.value)


def test_the_first_of_many_are_shown_where_none_is_looked_for() -> None:
    assert some_text("branches", ["b", "a"]) == "branches=['b', 'a']"
    assert some_text("savepoints", range(1, 100)) == "savepoints=[1, 2, 3, 4, 5] count=99"


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("odrers", ["items", "orders"], " did_you_mean=orders"),
        ("ORDER_ID", ["order_ids", "order_id"], " did_you_mean=order_id"),
        ("x", ["orders"], ""),
        ("x", [], ""),
    ],
)
def test_the_name_that_was_meant_is_one_of_another_case_or_a_like_one(name: str, known: list[str], near: str) -> None:
    assert did_you_mean(name, known) == near


def test_names_that_may_be_meant_are_as_many_and_as_like_as_asked_for() -> None:
    assert close_names("bucket", ["buckets", "bucketed", "racket", "x"], 2) == ["buckets", "bucketed"]
    assert close_names("bucket", ["racket"], likeness=0.9) == []
