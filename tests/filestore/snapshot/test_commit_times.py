"""What counts as the time of a commit when a clock was wrong. (FL-14)"""

import logging
import random

import pytest

from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.commit_times import AHEAD_MS, CLOCK_KEY, CommitTimes, commit_time, snapshot_as_of
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table import FileTable
from tests.support.faults import ManualClock
from tests.support.tables import content, key_table, rows

HOUR_MS = 3_600_000
YEARS_MS = 10 * 365 * 24 * HOUR_MS
RETENTION = Retention(min_count=1, max_count=10**6, age_ms=HOUR_MS, limit=10**6)


class History:
    """Snapshots that are committed by clocks of the test's choice, as a table would."""

    def __init__(self, *clocks_ms: int) -> None:
        self.kept: dict[int, Snapshot] = {}
        self.reads = 0
        for now_ms in clocks_ms:
            self.commit(now_ms)

    def commit(self, now_ms: int) -> None:
        time = commit_time(self.latest(), now_ms)
        number = len(self.kept) + 1
        self.kept[number] = Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list="base",
            delta_manifest_list="delta",
            commit_user="u",
            commit_identifier=number,
            commit_kind=CommitKind.APPEND,
            time_ms=time.time_ms,
            properties=time.properties,
        )

    def latest(self) -> Snapshot | None:
        return self.kept[max(self.kept)] if self.kept else None

    def find(self, snapshot_id: int) -> Snapshot | None:
        self.reads += 1
        return self.kept.get(snapshot_id)

    def ids(self) -> list[int]:
        return sorted(self.kept)

    def at(self, time_ms: int, now_ms: int) -> int | None:
        found = snapshot_as_of(self, time_ms, now_ms)
        return None if found is None else found.id

    def times(self, now_ms: int) -> list[int]:
        latest = self.latest()
        assert latest is not None
        times = CommitTimes(self, latest, now_ms)
        return [times.of(each) for each in self.kept.values()]


def test_times_rise_as_long_as_clocks_differ_by_little() -> None:
    history = History(100_000, 90_000, 120_000)
    assert history.times(10**9) == [100_000, 100_000, 120_000]
    assert all(CLOCK_KEY not in each.properties for each in history.kept.values())


def test_a_commit_after_one_by_a_clock_far_ahead_has_the_true_time() -> None:
    history = History(1000, 2000 + YEARS_MS, 3000, 4000)
    assert [each.time_ms for each in history.kept.values()] == [1000, 2000 + YEARS_MS, 3000, 4000]
    assert history.times(5000) == [1000, 3000, 3000, 4000]
    assert [history.at(each, 5000) for each in (999, 1000, 2999, 3000, 4000, 5000, 10**15)] == [
        None, 1, 1, 3, 4, 4, 4,
    ]  # fmt: skip


def test_now_is_the_newest_state_even_if_its_time_is_ahead() -> None:
    history = History(10**9, 10**9 + YEARS_MS)
    now_ms = 10**9 + HOUR_MS
    assert history.times(now_ms) == [10**9, now_ms]
    assert history.at(now_ms, now_ms) == 2
    assert history.at(now_ms - AHEAD_MS, now_ms) == 2
    assert history.at(now_ms - AHEAD_MS - 1, now_ms) == 1


@pytest.mark.parametrize("seed", range(50))
def test_searches_find_what_a_scan_of_all_finds(seed: int) -> None:
    """The last snapshot that is not later than a time, by clocks that jump to and fro; times that count never fall."""
    some = random.Random(seed)
    now_ms, clocks = 10**9, []
    for _ in range(some.randint(1, 60)):
        now_ms += some.randint(0, 2 * AHEAD_MS)
        clocks.append(now_ms + some.choice([0, 0, 0, 0, some.randint(-YEARS_MS, YEARS_MS), some.randint(-AHEAD_MS, 0)]))
    history = History(*clocks)
    for gone in range(1, some.randint(1, len(clocks))):
        del history.kept[gone]
    now_ms += 20 * YEARS_MS
    counted = history.times(now_ms)
    assert counted == sorted(counted)
    newest_first = sorted(history.kept.values(), key=lambda each: -each.id)
    for time_ms in [*clocks, *(each + 1 for each in clocks), 0]:
        scanned = next((each.id for each in newest_first if each.time_ms <= time_ms), None)
        assert history.at(time_ms, now_ms) == scanned


def test_a_table_with_good_clocks_reads_no_more_than_a_binary_search() -> None:
    history = History(*range(1000, 2_001_000, 1000))
    assert history.at(777_000, 10**9) == 777
    assert history.reads <= 11


def test_a_snapshot_counts_from_its_file_if_the_later_clock_may_be_the_wrong_one() -> None:
    """Ten snapshots, then one by a clock that stands in 1970: nothing becomes old by that."""
    history = History(*(10**12 + each for each in range(10)), 5)
    latest = history.latest()
    assert latest is not None
    times = CommitTimes(history, latest, 10**12 + 100)
    assert times.of(history.kept[3]) == 5
    assert times.age_time_of(history.kept[3], lambda: 10**12 + 2) == 10**12 + 2
    assert times.age_time_of(history.kept[3], lambda: 10**12 + 60) == 10**12 + 2, "never later than it says itself"
    assert times.age_time_of(history.kept[3], lambda: 10**13) == 5, "a file from the future says nothing"


@pytest.fixture
def jumped() -> tuple[FileTable, ManualClock]:
    """A table with one commit by a clock ten years ahead, and correct ones every twenty minutes after it."""
    table = key_table(bucket="1")
    clock = table.store.clock
    assert isinstance(clock, ManualClock)
    table.write(rows((1, 1)))
    clock.ms += YEARS_MS
    table.write(rows((2, 2)))
    clock.ms -= YEARS_MS
    return table, clock


def test_a_jump_ahead_stops_neither_expiry_nor_travel(jumped: tuple[FileTable, ManualClock]) -> None:
    table, clock = jumped
    assert content(table, timestamp_ms=clock.now_ms()) == {1: 1, 2: 2}
    for each in range(3, 15):
        clock.ms += HOUR_MS // 3
        table.write(rows((each, each)))
    gone = [step.snapshot.id for step in expire_snapshots(table.store, RETENTION)]
    assert gone == list(range(1, 11)), "those that were replaced more than an hour ago"
    assert content(table, timestamp_ms=clock.now_ms()) == {each: each for each in range(1, 15)}


def test_a_commit_warns_once_of_a_clock_that_is_far_ahead(
    jumped: tuple[FileTable, ManualClock], caplog: pytest.LogCaptureFixture
) -> None:
    from filestore.snapshot import commit_times

    commit_times._WARNED.clear()
    table, clock = jumped
    with caplog.at_level(logging.WARNING, logger="fluvial.clock"):
        table.write(rows((3, 3)))
        clock.ms -= YEARS_MS
        table.write(rows((4, 4)))
    (said,) = caplog.messages
    assert "ahead of this machine's clock: table=db.t snapshot=2 commit_user=" in said
    assert "ahead_seconds=3153" in said
