"""Plans the micro-batches of a stream: pure decisions over a table's history.

``advance`` finds the end of the next batch within limits; ``steps`` lists the reads between two positions. Spark stores
ends only, so ``steps`` must return the same after a restart: both follow the same walk, which depends on snapshots
alone, and these never change. But snapshots expire. So the end of a batch that is a range of the log says so, and its
steps need no snapshot.

The walk, from a position after snapshot s: the log is read up to the offsets of the next snapshot with changes that are
not in the log, then that snapshot's changes are read from files, and so on up to the newest snapshot. So log and files
are in one order, that of the snapshots. In eventual mode the log is read to its end at once; rows that came before a
snapshot's file changes are read again after them, because the log's are newer: readers merge by key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from engine.stream.position.position import Phase, Position
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSize:
    """Estimated cost of reading a split."""

    rows: int
    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The splits of a snapshot, or of the changes between two: positions count them."""

    sizes: Sequence[SplitSize]  # in a stable order
    digest: str  # of which files and keys are in which split


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """The facts of a snapshot that a plan needs."""

    id: int
    offsets: LogOffsets  # its own, or those of the newest snapshot before it
    schema_id: int
    time_ms: int
    changed_rows: int = 0  # approximately, by its commit
    log_before: LogOffsets | None = None  # where its own log records begin, replaced by its files; None: none


class History(Protocol):
    """The existing snapshots of a table."""

    is_eventual: bool

    def facts(self, snapshot_id: int) -> SnapshotFacts:
        """Facts of one snapshot. Raises: SnapshotExpiredError."""

    def next_from_files(self, after_id: int, until_id: int) -> int | None:
        """The first snapshot after ``after_id``, up to ``until_id``, with changes that must be read from its files.

        Raises: SnapshotExpiredError when a needed snapshot has expired.
        """

    def splits(self, here: Position) -> SplitPlan:
        """The splits that a position in phase SNAPSHOT or FILES counts. Raises: SnapshotExpiredError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """The end up to which a stream may read; fixed before planning, because the table changes while it is planned."""

    snapshot_id: int
    log_end: LogOffsets = field(default_factory=LogOffsets)  # eventual mode: the end of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The maximum of a batch. One unit is always taken, so that a stream makes progress."""

    rows: int = _UNLIMITED
    size_bytes: int = _UNLIMITED
    files: int = _UNLIMITED
    record_bytes: int = 256  # approximate size of a log record


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStep:
    """Splits [``first``, ``until``) of a whole snapshot."""

    snapshot_id: int
    first: int
    until: int
    plan: str  # digest
    moment_ms: int | None  # see ``Position``


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStep:
    """Non-empty ranges of the log, one per bucket."""

    ranges: tuple[LogRange, ...]
    base_id: int  # every change up to this snapshot is already delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """Splits [``first``, ``until``) of the changes between two snapshots."""

    before_id: int
    after_id: int
    first: int
    until: int
    plan: str  # digest


PlanStep = SnapshotStep | LogStep | ChangeStep


def end_of_log(target: ReadTarget, history: History) -> LogOffsets:
    """The readable end of the log. Raises: SnapshotExpiredError."""
    then = history.facts(target.snapshot_id).offsets if target.snapshot_id else LogOffsets()
    return then.joined(target.log_end)


def advance(start: Position, target: ReadTarget, history: History, limits: Limits) -> Position:
    """The end of the next batch: ``start`` itself when there is nothing to deliver.

    A snapshot's last split ends a batch: its splits are read in parallel, and later changes must follow them.

    Raises:
        SnapshotExpiredError: a needed snapshot has expired.
        CorruptDataError: the splits differ from those of an earlier plan.
    """
    budget = _Budget(limits)
    here, is_range = start, start.phase is Phase.LOG
    if start.phase is Phase.SNAPSHOT:
        here = _through_splits(start, history.splits(start), budget)
        if here.done < here.of or budget.is_touched:
            return _behind_snapshot(here, history) if here.done == here.of else here
        here = _behind_snapshot(here, history)
    while True:
        if here.phase is Phase.FILES:
            here = _through_splits(here, history.splits(here), budget)
            if here.done < here.of:
                return here
            here = _behind_files(here, history)
        if budget.is_spent:
            return here
        stop_id = history.next_from_files(here.snapshot_id, target.snapshot_id)
        goal_id = target.snapshot_id if stop_id is None else stop_id
        goal = _goal(here, goal_id, target if stop_id is None else None, history)
        taken = budget.take_log(here.offsets.ranges_until(goal))
        reached = here.offsets.advanced({each.bucket: each.end_offset for each in taken})
        if any(reached.get(bucket, 0) < offset for bucket, offset in goal.items()):
            return replace(here.behind(here.snapshot_id, reached), is_range=is_range)
        if stop_id is None:
            end = here.behind(max(here.snapshot_id, goal_id), reached)
            return start if end == start.place else replace(end, is_range=is_range)
        here, is_range = _at_files(here, stop_id, reached, history), False


def steps(start: Position, end: Position, history: History) -> Iterator[PlanStep]:
    """The steps between two positions, in the order in which they must be delivered.

    Raises:
        SnapshotExpiredError: a needed snapshot has expired.
        CorruptDataError: ``end`` does not follow ``start``, or the splits differ from those when ``end`` was planned.
    """
    if end.is_range:
        yield from _log_step(start, end.offsets)
    elif not end.is_jump:
        yield from _walked(start, end, history)


def _log_step(here: Position, goal: LogOffsets) -> Iterator[LogStep]:
    ranges = here.offsets.ranges_until(goal)
    if ranges:
        yield LogStep(ranges=ranges, base_id=here.snapshot_id)


def _walked(start: Position, end: Position, history: History) -> Iterator[PlanStep]:
    here = start
    if here.phase is Phase.SNAPSHOT:
        until = end.done if _is_same_reading(here, end) else here.of
        _check_plan(here, history.splits(here))
        if until > here.done:
            yield _snapshot_step(here, until, history)
        if _is_same_reading(here, end):
            return
        here = _behind_snapshot(here, history)
    while True:
        if here.phase is Phase.FILES:
            until = end.done if _is_same_reading(here, end) else here.of
            _check_plan(here, history.splits(here))
            if until > here.done:
                yield _change_step(here, until, history)
            if _is_same_reading(here, end):
                return
            here = _behind_files(here, history)
        last_id = _next_of(end) if end.phase is Phase.FILES else end.snapshot_id
        stop_id = history.next_from_files(here.snapshot_id, last_id)
        goal = end.offsets if stop_id is None else _goal(here, stop_id, None, history)
        yield from _log_step(here, goal)
        if stop_id is None:
            if end.phase is not Phase.LOG:
                raise CorruptDataError(f"end of a batch does not follow its start: start={start} end={end}")
            return
        here = _at_files(here, stop_id, goal, history)


def whole_reading(here: Position, history: History) -> tuple[PlanStep | None, Position]:
    """The remaining splits of the snapshot or changes that a position is in, and the position after them.

    Raises: SnapshotExpiredError when that snapshot has expired.
    """
    if here.phase is Phase.SNAPSHOT:
        return _snapshot_step(here, here.of, history), _behind_snapshot(here, history)
    if here.phase is Phase.FILES:
        return _change_step(here, here.of, history), _behind_files(here, history)
    return None, here.place


def counted(here: Position, history: History) -> Position:
    """A position at the first split, which knows how many there are, and which. Raises: SnapshotExpiredError."""
    plan = history.splits(here)
    return replace(here, of=len(plan.sizes), plan=plan.digest)


class _Budget:
    """The remaining limits of a batch."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows = limits.rows
        self._bytes = limits.size_bytes
        self._files = limits.files
        self.is_touched = False

    @property
    def is_spent(self) -> bool:
        """True when nothing more may be taken."""
        return self.is_touched and min(self._rows, self._bytes, self._files) <= 0

    def take_splits(self, sizes: Sequence[SplitSize]) -> int:
        """How many of these splits fit, in order."""
        for count, size in enumerate(sizes):
            fits = size.rows <= self._rows and size.size_bytes <= self._bytes and size.files <= self._files
            if self.is_touched and not fits:
                return count
            self._rows -= size.rows
            self._bytes -= size.size_bytes
            self._files -= size.files
            self.is_touched = True
        return len(sizes)

    def take_log(self, ranges: Sequence[LogRange]) -> list[LogRange]:
        """The start of each range that fits, in proportion to the ranges' lengths; one offset of each at least.

        With a limit below the number of ranges the longest get one each, so the limit holds for the log.
        """
        wanted = sum(map(_length, ranges))
        if wanted == 0:
            return []
        allowed = min(self._rows, self._bytes // max(1, self._limits.record_bytes))
        if allowed <= 0 and self.is_touched:
            return []
        self.is_touched = True
        if wanted > allowed:
            ranges = _starts_of(ranges, max(1, allowed))
        taken = sum(map(_length, ranges))
        self._rows -= taken
        self._bytes -= taken * self._limits.record_bytes
        return list(ranges)


def _starts_of(ranges: Sequence[LogRange], allowed: int) -> Sequence[LogRange]:
    """The start of each non-empty range, together at most ``allowed`` > 0 offsets."""
    if allowed < len(ranges):
        return [_start_of(each, 1) for each in sorted(ranges, key=_length, reverse=True)[:allowed]]
    more, left = sum(map(_length, ranges)) - len(ranges), allowed - len(ranges)
    return [_start_of(each, 1 + (_length(each) - 1) * left // max(1, more)) for each in ranges]


def _length(log_range: LogRange) -> int:
    return log_range.end_offset - log_range.start_offset


def _start_of(log_range: LogRange, count: int) -> LogRange:
    end = min(log_range.end_offset, log_range.start_offset + count)
    return LogRange(bucket=log_range.bucket, start_offset=log_range.start_offset, end_offset=end)


def _through_splits(here: Position, plan: SplitPlan, budget: _Budget) -> Position:
    _check_plan(here, plan)
    return replace(here.at_split(here.done + budget.take_splits(plan.sizes[here.done :])), plan=plan.digest)


def _check_plan(here: Position, plan: SplitPlan) -> None:
    if len(plan.sizes) != here.of or here.plan not in (None, plan.digest):
        raise CorruptDataError(
            f"the splits of a snapshot differ from an earlier plan: snapshot={here.next_id or here.snapshot_id} "
            f"splits={len(plan.sizes)} before={here.of} plan={plan.digest} plan_before={here.plan} "
            "fix=read with the same source.split.* options and filter, or start with a new checkpoint"
        )


def _snapshot_step(here: Position, until: int, history: History) -> SnapshotStep:
    plan = history.splits(here).digest
    return SnapshotStep(snapshot_id=here.snapshot_id, first=here.done, until=until, plan=plan, moment_ms=here.moment_ms)


def _change_step(here: Position, until: int, history: History) -> ChangeStep:
    plan = history.splits(here).digest
    return ChangeStep(before_id=here.snapshot_id, after_id=_next_of(here), first=here.done, until=until, plan=plan)


def _behind_snapshot(here: Position, history: History) -> Position:
    return here.behind(here.snapshot_id, history.facts(here.snapshot_id).offsets)


def _behind_files(here: Position, history: History) -> Position:
    after_id, offsets = _next_of(here), here.offsets
    then = history.facts(after_id)
    if then.log_before is not None:
        offsets = offsets.joined(then.offsets)  # skip its log records
    if history.is_eventual:
        offsets = LogOffsets({bucket: min(offset, then.offsets.get(bucket, 0)) for bucket, offset in offsets.items()})
    return here.behind(after_id, offsets)


def _at_files(here: Position, after_id: int, offsets: Mapping[int, int], history: History) -> Position:
    return counted(here.before_splits(Phase.FILES, after_id - 1, offsets), history)


def _goal(here: Position, snapshot_id: int, target: ReadTarget | None, history: History) -> LogOffsets:
    """The log's end before a snapshot's changes, or before the end of the batch; never before ``here``."""
    then: Mapping[int, int] = {}
    if snapshot_id > here.snapshot_id:
        facts = history.facts(snapshot_id)
        then = facts.offsets if target is not None or facts.log_before is None else facts.log_before
    ends: Mapping[int, int] = target.log_end if target is not None and history.is_eventual else {}
    return here.offsets.joined(then).joined(ends)


def _is_same_reading(here: Position, end: Position) -> bool:
    return (here.phase, here.snapshot_id, here.next_id) == (end.phase, end.snapshot_id, end.next_id)


def _next_of(here: Position) -> int:
    if here.next_id is None:
        raise CorruptDataError(f"the position of a stream has no next snapshot: position={here}")
    return here.next_id
