"""A leak is found, and what only looks like one is not."""

import math

import pytest

from tests.soak.samples import ALLOWED, ALLOWED_AT_FIRST, table_files
from tests.soak.slopes import Series, leaks, slope_of


def series(value: object, seconds: int = 300, start: int = 0) -> Series:
    assert callable(value)
    return [(float(start + second), float(value(second))) for second in range(0, seconds, 2)]


@pytest.mark.parametrize(
    ("value", "is_leak"),
    [
        (lambda s: 100 + s, True),  # one MB a second
        (lambda s: 100 + s + 50 * (s % 20) / 20, True),  # below a saw-tooth
        (lambda s: 100 + 50 * (s % 20) / 20, False),  # a saw-tooth
        (lambda s: 100 + 200 * (1 - math.exp(-s / 15)), False),  # a warm-up that levels off
        (lambda s: 100 + 0.05 * s, False),  # within what is allowed
        (lambda s: 100 + 40 * math.sin(s / 17), False),
        (lambda s: 100 if s < 200 else 160, False),  # one step, as behind a restart of queries
        (lambda s: 400 - s, False),
    ],
)
def test_floors_say_what_grows(value: object, is_leak: bool) -> None:
    assert slope_of([series(value)], allowed=30).is_leak is is_leak


def test_the_longest_life_counts_and_a_short_one_says_nothing() -> None:
    """A process that was killed after a minute had no time to leak."""
    short, long = series(lambda s: 100 + 9 * s, 50), series(lambda s: 100 + s, 300, start=50)
    assert slope_of([short], allowed=30).floors == ()
    assert slope_of([], allowed=30).floors == ()
    found = slope_of([short, long], allowed=30)
    assert (len(found.floors), found.is_leak) == (4, True)
    assert leaks({"rss": found, "fds": slope_of([series(lambda s: 7)], allowed=5)}) == [
        f"rss grows: floors={' → '.join(f'{floor:g}' for floor in found.floors)} allowed=30"
    ]


@pytest.mark.parametrize(("seconds", "is_leak"), [(1200, False), (1600, True)])
def test_a_life_that_is_warm_has_the_tighter_limit(seconds: int, is_leak: bool) -> None:
    """The driver of an hour's run had grown by 16 MB in its quiet half: with two bounded caches, and one leak."""
    found = slope_of([series(lambda s: 200 + s / 50, seconds)], allowed=12, at_first=40)
    assert (found.is_leak, found.allowed) == (is_leak, 12 if is_leak else 40)
    assert ALLOWED_AT_FIRST.keys() < ALLOWED.keys()


def test_files_are_counted_by_kind_for_each_snapshot() -> None:
    """A job that commits more often keeps more snapshots, and is no leak."""
    commit = ["snapshot-{}", "manifest-list-{}-0", "manifest-list-{}-1", "manifest-{}-0", "data-{}-0.parquet"]
    found = [table_files([name.format(each) for each in range(count) for name in commit]) for count in (3, 30)]
    per_snapshot = {name: value for name, value in found[0].items() if name.endswith("a snapshot")}
    assert per_snapshot == {"data files a snapshot": 1, "manifests a snapshot": 1, "manifest lists a snapshot": 2}
    assert found[1] == {**found[0], "table snapshots": 30}
    assert table_files(["EARLIEST", "schema-0", "owner.lock"])["other table files"] == 3
    assert found[0].keys() < ALLOWED.keys()
