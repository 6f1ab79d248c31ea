"""The oracle against literals: it must be right where the product may be wrong."""

from collections import Counter
from typing import Any

import pytest

from tests.crossings.oracle import Column, Content, MismatchError, Values, canonical
from tests.crossings.space import BEGAN_MS, SIMPLEST, shape_of


def content(**cell: str) -> Content:
    shape = shape_of({**SIMPLEST, **{name.replace("_", " "): value for name, value in cell.items()}})
    return Content(shape, tuple(Column(name, name, kind) for name, kind in shape.types.items()))


def row(k: int, **values: Any) -> dict[str, Any]:
    return {**dict.fromkeys("abcdgh"), "k": k, **values}


def shown(found: Content, *names: str, now_s: int = 0) -> list[tuple[Any, ...]]:
    values = found.values(now_ms=BEGAN_MS + now_s * 1000)
    return sorted(tuple(each[name] for name in names) for each, count in values for _ in range(count))


def test_the_newest_row_of_a_key_counts_and_a_delete_removes_it() -> None:
    found = content().written([("+I", row(1, a=1)), ("+I", row(2, a=1)), ("+U", row(1, a=2)), ("-D", row(2))], now_ms=0)
    assert shown(found, "k", "a") == [(1, 2)]


def shown_row(found: Content, values: Values) -> tuple[Any, ...]:
    row = found.shown(values)
    assert row is not None
    return row


@pytest.mark.parametrize(("sequence", "wins"), [("none", 5), ("g", 4), ("g descending", 5)])
def test_a_sequence_orders_rows_and_null_is_oldest(sequence: str, wins: int) -> None:
    news = [("+I", row(1, a=3, g=None)), ("+I", row(1, a=4, g=2)), ("+I", row(1, a=5, g=1))]
    assert shown(content(sequence=sequence).written(news, now_ms=0), "a") == [(wins,)]


def test_partial_updates_keep_what_is_null() -> None:
    news = [("+I", row(1, a=1, c="x")), ("+I", row(1, a=None, c="y"))]
    assert shown(content(engine="partial-update").written(news, now_ms=0), "a", "c") == [(1, "y")]


def test_nothing_is_known_of_a_row_that_is_older_than_a_merged_one_by_a_sequence_that_it_lacks() -> None:
    """Which of the two wins depends on what was merged before: (3, null) follows (1, 2), but not (3, 2)."""
    old = [("+I", row(1, b=0, g=1, h=2)), ("+I", row(1, b=1, g=3))]
    found = content(engine="partial-update", sequence="g,h").written(old, now_ms=0)
    assert found.loose == frozenset()
    assert len(found.written([("+I", row(1, b=0, g=3))], now_ms=0).loose) == 1
    assert found.written([("+I", row(1, b=0, g=4))], now_ms=0).loose == frozenset()


def test_the_first_row_stays() -> None:
    found = content(engine="first-row").written([("+I", row(1, a=1)), ("+I", row(1, a=2))], now_ms=0).all_seen()
    assert shown(found, "a") == [(1,)]


def test_a_sum_takes_back_also_what_came_too_early() -> None:
    news = [("-U", row(1, a=5)), ("+I", row(1, a=9))]
    found = content(engine="aggregation", functions="sum")
    assert shown(found.written(news[:1], now_ms=0), "a") == [(-5,)]
    assert shown(found.written(news, now_ms=0), "a") == [(4,)]


def test_rows_are_counted() -> None:
    found = content(rows="counted").written([("+I", row(1)), ("+I", row(1)), ("+I", row(2)), ("-D", row(2))], now_ms=0)
    assert shown(found, "k") == [(1,), (1,)]
    assert shown(found.written([("-D", row(3)), ("+I", row(3))], now_ms=0), "k") == [(1,), (1,)]


def test_rows_expire_and_may_then_be_forgotten() -> None:
    found = content(engine="partial-update", expiry="BIGINT").written(
        [("+I", row(1, a=1, t=BEGAN_MS))], now_ms=BEGAN_MS
    )
    assert shown(found, "a", now_s=50) == [(1,)]
    assert shown(found, "a", now_s=102) == []
    later = found.passed(BEGAN_MS + 102_000).written(
        [("+I", row(1, c="x", t=BEGAN_MS + 10**9))], now_ms=BEGAN_MS + 102_000
    )
    assert {(each["a"], each["c"]) for each, _ in later.possible((1,)) if each} == {(1, "x"), (None, "x")}


def test_a_first_read_says_which_of_several_stories_is_true() -> None:
    found = content(sequence="g").written([("+I", row(1, g=1)), ("-D", row(1, g=5))], now_ms=0)
    found = found.written([("+I", row(1, g=3, a=7))], now_ms=0)
    assert {None if each is None else each["a"] for each, _ in found.possible((1,))} == {None, 7}
    one = next(each for each, _ in found.possible((1,)) if each)
    read = Counter([shown_row(found, one)])
    assert [each["a"] for each, _ in found.narrowed(read, 0).possible((1,)) if each] == [7]
    assert found.narrowed(Counter(), 0).values() == []
    with pytest.raises(MismatchError):
        found.narrowed(Counter([shown_row(found, {**one, "a": 8})]), 0)


def test_values_are_equal_that_are_the_same_to_users() -> None:
    assert canonical(float("nan")) == canonical(-float("nan"))
    assert canonical(0.0) != canonical(-0.0)
    assert canonical(1) != canonical(True)
    assert canonical({"x": [1.0]}) == canonical({"x": (1.0,)})
