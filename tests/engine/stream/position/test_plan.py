"""Laws of the walk through a table's history: whatever the limits, every change is delivered once and in order."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.stream.position.plan import (
    ChangeStep,
    Limits,
    LogStep,
    PlanStep,
    ReadTarget,
    SnapshotFacts,
    SnapshotStep,
    SplitPlan,
    SplitSize,
    advance,
    counted,
    steps,
)
from engine.stream.position.position import UNSTARTED, Phase, Position
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError

law = settings(max_examples=300, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Commit:
    """One snapshot of the oracle: rows that it put into the log, or splits that only its files hold."""

    logged: dict[int, int] = field(default_factory=dict)  # bucket -> records
    changed: tuple[int, ...] = ()  # rows of each split
    content: tuple[int, ...] = (5,)  # rows of each split of the whole snapshot


class OracleHistory:
    """Snapshots 1 to n, written down beforehand."""

    def __init__(self, commits: Sequence[Commit], *, is_eventual: bool = False, expired: int = 0) -> None:
        self.is_eventual = is_eventual
        self.expired = expired
        self.commits = list(commits)

    def offsets(self, snapshot_id: int) -> LogOffsets:
        found: dict[int, int] = {}
        for commit in self.commits[:snapshot_id]:
            for bucket, count in commit.logged.items():
                found[bucket] = found.get(bucket, 0) + count
        return LogOffsets(found)

    def facts(self, snapshot_id: int) -> SnapshotFacts:
        self._check(snapshot_id)
        return SnapshotFacts(id=snapshot_id, offsets=self.offsets(snapshot_id), schema_id=0, time_ms=0)

    def next_from_files(self, after_id: int, until_id: int) -> int | None:
        for snapshot_id in range(after_id + 1, until_id + 1):
            self._check(snapshot_id)
            if self.commits[snapshot_id - 1].changed:
                return snapshot_id
        return None

    def splits(self, here: Position) -> SplitPlan:
        self._check(here.newest_id)
        commit = self.commits[here.newest_id - 1]
        rows = commit.content if here.phase is Phase.SNAPSHOT else commit.changed
        return SplitPlan(sizes=[SplitSize(rows=each, size_bytes=each * 10, files=1) for each in rows], digest=str(rows))

    def _check(self, snapshot_id: int) -> None:
        if not self.expired < snapshot_id <= len(self.commits):
            raise SnapshotExpiredError(f"wanted_snapshot={snapshot_id}")


logged = st.builds(Commit, logged=st.dictionaries(st.integers(0, 2), st.integers(1, 40)))
from_files = st.builds(Commit, changed=st.lists(st.integers(1, 30), min_size=1, max_size=4).map(tuple))
silent = st.just(Commit())
histories = st.lists(st.one_of(logged, logged, from_files, silent), min_size=1, max_size=12)
limits = st.builds(
    Limits, rows=st.integers(1, 60), size_bytes=st.integers(1, 2000), files=st.integers(1, 5), record_bytes=st.just(10)
)


def begin_at(history: OracleHistory, snapshot_id: int) -> Position:
    here = Position.in_log(snapshot_id, history.offsets(snapshot_id), schema_id=0, topic_id="t")
    found = here.before_splits(Phase.SNAPSHOT, snapshot_id, here.offsets)
    return counted(found, history) if snapshot_id and history.commits[snapshot_id - 1].content else here


def units(walked: Sequence[PlanStep]) -> list[tuple[object, ...]]:
    """The smallest pieces of what was delivered, in order."""
    found: list[tuple[object, ...]] = []
    for step in walked:
        match step:
            case SnapshotStep():
                found += [("snapshot", step.snapshot_id, each) for each in range(step.first, step.until)]
            case ChangeStep():
                found += [("files", step.after_id, each) for each in range(step.first, step.until)]
            case LogStep():
                for piece in step.ranges:
                    found += [("log", piece.bucket, offset) for offset in range(piece.start_offset, piece.end_offset)]
    return found


def expected_units(history: OracleHistory, start_id: int, until_id: int) -> list[tuple[object, ...]]:
    """What a reader of snapshot ``start_id`` and then of every later one must get, commit after commit."""
    content = history.commits[start_id - 1].content if start_id else ()
    found: list[tuple[object, ...]] = [("snapshot", start_id, each) for each in range(len(content))]
    for snapshot_id in range(start_id + 1, until_id + 1):
        before, commit = history.offsets(snapshot_id - 1), history.commits[snapshot_id - 1]
        for bucket, count in commit.logged.items():
            first = before.get(bucket, 0)
            found += [("log", bucket, offset) for offset in range(first, first + count)]
        found += [("files", snapshot_id, each) for each in range(len(commit.changed))]
    return found


def in_buckets(found: Sequence[tuple[object, ...]], bucket: int) -> list[tuple[object, ...]]:
    """What a reader of one bucket sees: its log, and files, which may concern it."""
    return [each for each in found if each[0] != "log" or each[1] == bucket]


@pytest.mark.sweep
@law
@given(histories, limits, st.data())
def test_every_change_is_delivered_once_and_in_the_order_of_the_snapshots(
    commits: list[Commit], limits: Limits, data: st.DataObject
) -> None:
    """FL-71, FL-72: the snapshot, then the log from exactly its offsets, for every start, limit and growing table."""
    history = OracleHistory(commits)
    start_id = data.draw(st.integers(0, len(commits)))
    here = begin_at(history, start_id)
    delivered: list[tuple[object, ...]] = []
    newest = max(1, start_id)
    for _ in range(10_000):
        newest = min(len(commits), newest + data.draw(st.integers(0, 2)))
        end = advance(here, ReadTarget(snapshot_id=newest), history, limits)
        if end == here:
            if newest == len(commits):
                break
            newest += 1
            continue
        stored = Position.from_json(json.loads(json.dumps(end.to_json())))
        assert stored == end
        delivered += units(list(steps(here, stored, history)))
        here = stored
    assert here.phase is Phase.LOG
    assert here.snapshot_id == len(commits)
    wanted = expected_units(history, start_id, len(commits))
    assert sorted(map(str, delivered)) == sorted(map(str, wanted))
    for bucket in range(3):
        assert in_buckets(delivered, bucket) == in_buckets(wanted, bucket)


@pytest.mark.sweep
@law
@given(histories, limits, limits, st.data())
def test_what_lies_between_two_positions_never_changes(
    commits: list[Commit], first: Limits, second: Limits, data: st.DataObject
) -> None:
    """A batch that is run again after a restart covers the same rows, however far the table went meanwhile."""
    history = OracleHistory(commits)
    early = data.draw(st.integers(1, len(commits)))
    here = begin_at(history, data.draw(st.integers(0, early)))
    end = advance(here, ReadTarget(snapshot_id=early), history, first)
    planned = list(steps(here, end, OracleHistory(commits[:early])))
    assert list(steps(here, end, history)) == planned
    after = advance(end.place, ReadTarget(snapshot_id=len(commits)), history, second)
    again = list(steps(here, end, history)) + list(steps(end, after, history))
    assert len(set(units(again))) == len(units(again))


@pytest.mark.sweep
@law
@given(histories, limits, st.data())
def test_a_range_of_the_log_asks_no_snapshot_again(commits: list[Commit], limits: Limits, data: st.DataObject) -> None:
    """Its steps are the same when every snapshot has expired; every batch of the log alone is one."""
    history, gone = OracleHistory(commits), OracleHistory(commits, expired=len(commits))
    here = begin_at(history, data.draw(st.integers(0, len(commits))))
    for _ in range(10_000):
        end = Position.from_json(advance(here, ReadTarget(snapshot_id=len(commits)), history, limits).to_json())
        if end == here:
            return
        walked = units(list(steps(here, replace(end, is_range=False), history)))
        if end.is_range:
            assert units(list(steps(here, end, gone))) == walked
        assert end.is_range == (here.phase is Phase.LOG and end.phase is Phase.LOG and _is_of_log(walked))
        here = end
    raise AssertionError("the stream does not get to the end")


def _is_of_log(walked: list[tuple[object, ...]]) -> bool:
    return all(unit[0] == "log" for unit in walked)


@pytest.mark.sweep
@law
@given(histories, limits)
def test_a_batch_keeps_its_limits_or_is_one_unit(commits: list[Commit], limits: Limits) -> None:
    history = OracleHistory(commits)
    here = begin_at(history, 1)
    for _ in range(10_000):
        end = advance(here, ReadTarget(snapshot_id=len(commits)), history, limits)
        if end == here:
            return
        found = units(list(steps(here, end, history)))
        rows = 0
        for kind, one, other in found:
            if kind == "log":
                rows += 1
            else:
                commit = history.commits[int(str(one)) - 1]
                rows += (commit.content if kind == "snapshot" else commit.changed)[int(str(other))]
        assert rows <= limits.rows or len(found) == 1
        here = end
    raise AssertionError("the stream does not get to the end")


@pytest.mark.parametrize(
    ("limit", "taken"),
    [(1, {0: 1}), (2, {0: 1, 2: 1}), (3, {0: 1, 1: 1, 2: 1}), (15, {0: 12, 1: 1, 2: 1}), (104, {0: 100, 1: 1, 2: 3})],
)
def test_a_limit_holds_for_the_log_and_no_bucket_starves(limit: int, taken: dict[int, int]) -> None:
    history = OracleHistory([Commit(logged={0: 100, 1: 1, 2: 3})])
    end = advance(begin_at(history, 0), ReadTarget(snapshot_id=1), history, Limits(rows=limit))
    assert sum(end.offsets.values()) <= limit
    assert dict(end.offsets) == taken


@pytest.mark.sweep
@law
@given(histories, st.data())
def test_eventual_reads_to_the_end_of_the_log_and_repeats_only_after_file_changes(
    commits: list[Commit], data: st.DataObject
) -> None:
    """FL-107, FL-108: the last delivery of a bucket's log follows every file change that is older."""
    history = OracleHistory(commits, is_eventual=True)
    here = begin_at(history, 1)
    delivered: list[tuple[object, ...]] = []
    newest = 1
    while True:
        ahead = history.offsets(data.draw(st.integers(newest, len(commits))))
        end = advance(here, ReadTarget(snapshot_id=newest, log_end=ahead), history, Limits())
        assert here.phase is Phase.SNAPSHOT or end.offsets.is_at_or_after(ahead)
        delivered += units(list(steps(here, end, history)))
        if newest == len(commits) and end == here:
            break
        here = end
        newest = min(newest + 1, len(commits))
    last = {unit: index for index, unit in enumerate(delivered)}
    assert set(last) == set(expected_units(history, 1, len(commits)))
    for snapshot_id, commit in enumerate(commits, 1):
        for split in range(len(commit.changed) if snapshot_id > 1 else 0):
            then = history.offsets(snapshot_id)
            for unit, index in last.items():
                if unit[0] == "log" and int(str(unit[2])) >= then.get(int(str(unit[1])), 0):
                    assert index > last["files", snapshot_id, split]


def test_a_jump_delivers_nothing() -> None:
    history = OracleHistory([Commit(logged={0: 4}), Commit(logged={0: 4})])
    here = begin_at(history, 0)
    end = Position.from_json(begin_at(history, 2).to_json() | {"jump": True})
    assert list(steps(here, end, history)) == []


def test_a_snapshot_that_expired_is_told() -> None:
    history = OracleHistory([Commit(changed=(1,)), Commit(changed=(1,)), Commit(changed=(1,))], expired=2)
    here = Position.in_log(1, {}, schema_id=0, topic_id=None)
    with pytest.raises(SnapshotExpiredError, match="wanted_snapshot=2"):
        advance(here, ReadTarget(snapshot_id=3), history, Limits())


def test_other_splits_than_before_are_refused() -> None:
    history = OracleHistory([Commit(content=(1, 2, 3))])
    here = begin_at(history, 1)
    moved = Position.from_json(here.to_json() | {"of": 4, "done": 1})
    with pytest.raises(CorruptDataError, match="splits=3 before=4"):
        advance(moved, ReadTarget(snapshot_id=1), history, Limits())


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ({"version": 2, "phase": "log"}, "newer Fluvial: version=2"),
        ({"phase": "log"}, "cannot be read"),
        ({"version": 1, "phase": "nonsense", "snapshot": 1, "schema": 0, "offsets": {}}, "cannot be read"),
        ({"version": 1, "phase": "log", "snapshot": 1, "schema": 0, "offsets": {"a": 1}}, "cannot be read"),
        (UNSTARTED, "cannot be read"),
    ],
)
def test_what_is_no_position_is_refused(body: dict[str, object], reported: str) -> None:
    with pytest.raises(CorruptDataError, match=reported):
        Position.from_json(body)
