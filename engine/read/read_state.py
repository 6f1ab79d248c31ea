"""Which state of a table a batch read gets: a snapshot, and up to where the log behind it is replayed.

The base is the newest snapshot that lies wholly before the wanted end: whatever was committed without the log is in it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from engine.log.log_tail import refusal
from engine.log.table_log import TableLog
from engine.log.tail_ranges import TailLostError, missing_after_wait, tail_ranges
from engine.read.diff_read import find_diff
from engine.request.commit_handle import CommitHandle, wait_until_visible
from engine.request.read_request import ReadRequest
from engine.runtime.times import iso_time_text
from filestore.diff.table_diff import TableDiff
from filestore.refs.versions import Version, find_version
from filestore.scan.table_scan import TableScan
from filestore.snapshot.snapshot import CommitKind, Snapshot, carried_offsets
from filestore.table import Table as FileTable
from filestore.table_store import TableStore
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import InvalidInputError, UnavailableError

_WRITES: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})
_MOST_SNAPSHOTS_BACK: Final = 100
_LOST_KEY: Final = "log.on-offset-lost"
_PATIENCE_S: Final = 10.0  # for a commit's markers to be written: the end of the log may be a moment behind


class StateSource(StrEnum):
    """What the rows of a read are made of."""

    SNAPSHOT = "snapshot"
    SNAPSHOT_AND_LOG = "snapshot+log"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a read really gives; ``str`` is one line for people."""

    table: str
    source: StateSource
    snapshot_id: int | None  # None: the table has no snapshot
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # what is in it of the log: next offsets by bucket
    as_of_ms: int | None  # the time whose state this is, epoch milliseconds; None: of an empty table
    staleness_ms: int | None = None  # nothing older than this is missing; None: nobody asked
    reason: str  # why this source

    def __str__(self) -> str:
        facts = [f"{self.source}: table={self.table} snapshot={self.snapshot_id or 'none'}"]
        if self.log_offsets:
            facts.append("log_offsets=" + ",".join(f"{b}={at}" for b, at in sorted(self.log_offsets.items())))
        if self.as_of_ms is not None:
            facts.append(f"as_of={iso_time_text(self.as_of_ms)}")
        if self.staleness_ms is not None:
            facts.append(f"staleness_ms={self.staleness_ms}")
        return " ".join([*facts, f"reason='{self.reason}'"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """A state of a table, ready to be planned."""

    table: FileTable  # with the schema that the rows have
    snapshot: Snapshot | None
    log: TableLog | None = None  # when there are ranges
    ranges: tuple[LogRange, ...] = ()  # of the log, to be merged over the snapshot; one for each bucket that has any
    diff: TableDiff | None = None  # then its rows are read, and nothing else
    served: Served


def find_state(table: FileTable, request: ReadRequest) -> ReadState:
    """The state that a request means, now.

    Raises:
        InvalidInputError: there is no such snapshot, tag or log; the log cannot be merged over the files.
        UnavailableError: a commit to wait for did not come, or the brokers do not answer.
        CorruptDataError: records that are needed are gone from the log, and ``log.on-offset-lost`` is fail.
    """
    finder = _Finder(table)
    if request.at_least is not None:
        finder.wait_for(request.at_least, timeout_s=request.at_least_timeout_s, union=request.union)
    if request.between is not None:
        return _difference(find_diff(table, request.between))
    if request.log_offsets is not None:
        return finder.at_offsets(request.log_offsets)
    if request.time_ms is not None:
        return finder.at_time(request.time_ms, union=request.union)
    version = request.version_in(table)
    if version is not None:
        return finder.version(version)
    if request.union:
        return finder.newest_with_log("the log was asked for")
    if request.max_staleness_ms is not None:
        return finder.fresh(request.max_staleness_ms)
    return finder.files(table, table.snapshots.latest(), "the newest snapshot was asked for")


def _difference(diff: TableDiff) -> ReadState:
    then = diff.before
    before = "the empty table" if then is None else f"snapshot {then.id} of {diff.before_table.paths.branch}"
    served = Served(
        table=diff.table.name,
        source=StateSource.DIFFERENCE,
        snapshot_id=diff.after.id,
        as_of_ms=diff.after.time_ms,
        reason=" ".join([f"what differs from {before}", *map(str, diff.columns)]),
    )
    return ReadState(table=diff.table, snapshot=diff.after, diff=diff, served=served)


class _Finder:
    """The ways to a state of one table."""

    def __init__(self, table: FileTable) -> None:
        self._table = table
        self._log = TableLog.of(table, {"change-tracking": "true"})

    def wait_for(self, handle: CommitHandle, *, timeout_s: float, union: bool) -> None:
        """Return once a commit is visible, in the log too when that is read. Raises: UnavailableError."""
        deadline = time.monotonic() + timeout_s
        wait_until_visible(self._table, handle, timeout_s=timeout_s)
        if not union or not handle.log_offsets:
            return
        log = self._usable_log()
        self._check_buckets(log, handle.log_offsets, "scan.at-least")
        patience_s = deadline - time.monotonic()
        short = missing_after_wait(
            log.checked_topics(), log.topic, handle.log_offsets, self._table.clock, patience_s=patience_s
        )
        if short is not None:
            raise UnavailableError(
                f"a commit is not visible in the log yet: table={self._table.name} scan.at-least={handle} {short} "
                f"timeout_s={timeout_s:g} fix=look whether its writer still runs, or raise scan.at-least.timeout"
            )

    def files(
        self, table: FileTable, snapshot: Snapshot | None, reason: str, *, staleness_ms: int | None = None
    ) -> ReadState:
        """A snapshot alone."""
        served = Served(
            table=table.name,
            source=StateSource.SNAPSHOT,
            snapshot_id=None if snapshot is None else snapshot.id,
            log_offsets={} if snapshot is None else dict(snapshot.log_offsets),
            as_of_ms=None if snapshot is None else snapshot.time_ms,
            staleness_ms=staleness_ms,
            reason=reason,
        )
        return ReadState(table=table, snapshot=snapshot, served=served)

    def version(self, version: Version) -> ReadState:
        """The snapshot of a version."""
        found = find_version(self._table, version)
        read = self._table.read_found(found)
        return self.files(read.table, read.snapshot, found.how)

    def newest_with_log(self, reason: str) -> ReadState:
        """The newest snapshot, and the log behind it up to its end."""
        log, now_ms = self._usable_log(), self._table.clock.now_ms()
        # The end of the log first: whatever is committed between the two looks is then in the snapshot, also what the
        # log does not hold, as an overwrite.
        topics = log.checked_topics()
        stable_ends = topics.end_offsets(log.topic, range(log.bucket_count))
        snapshot = self._table.snapshots.latest()
        try:
            start = self._start(snapshot)
            ranges = tail_ranges(topics, log.topic, start=start, ends=stable_ends, stable_ends=stable_ends)
        except TailLostError as error:
            if self._table.options.value(_LOST_KEY) == "fail":
                raise
            return self.files(self._table, snapshot, str(error))
        return self._with_log(log, self._table, snapshot, ranges, as_of_ms=now_ms, staleness_ms=0, reason=reason)

    def fresh(self, limit_ms: int) -> ReadState:
        """Files if they are fresh enough, else with the log; files again where there is no log."""
        snapshot, now_ms = self._table.snapshots.latest(), self._table.clock.now_ms()
        written_ms = self._written_ms(snapshot)
        age_ms = None if written_ms is None else max(0, now_ms - written_ms)
        waits = TableScan(self._table).skips_level0  # files alone do not show what was written last
        if age_ms is not None and age_ms <= limit_ms and not waits:
            return self.files(self._table, snapshot, "the files are fresh enough", staleness_ms=age_ms)
        reason = refusal(self._table, self._log)
        if reason is not None:
            return self.files(self._table, snapshot, f"staler than asked for: {reason}", staleness_ms=age_ms)
        state = self.newest_with_log("the files are staler than asked for")
        if state.served.source is StateSource.SNAPSHOT:  # the tail is lost
            return self.files(state.table, state.snapshot, state.served.reason, staleness_ms=age_ms)
        if not state.ranges and not waits:
            return self.files(self._table, state.snapshot, "the log has nothing more", staleness_ms=0)
        return state

    def at_time(self, time_ms: int, *, union: bool) -> ReadState:
        """The last snapshot of a time, with the log's records up to that time while they are kept."""
        if not union:
            return self.version(Version(time_ms=time_ms))
        log = self._usable_log()
        topics = log.checked_topics()
        stable_ends = topics.end_offsets(log.topic, range(log.bucket_count))
        # the first record that is later ends the replay: what is before it is what the log held then
        later = topics.offsets_at(log.topic, range(log.bucket_count), time_ms + 1)
        ends = {bucket: min(offset, stable_ends[bucket]) for bucket, offset in later.items()}
        found = find_version(self._table, Version(time_ms=time_ms))
        read = self._table.read_found(found)
        if not self._table.snapshots.exists(found.snapshot.id):  # it is a tag's: what came after it may be gone
            return self.files(read.table, read.snapshot, found.how)
        try:
            start = self._start(read.snapshot)
            ranges = tail_ranges(topics, log.topic, start=start, ends=ends, stable_ends=stable_ends)
        except TailLostError as error:
            return self.files(read.table, read.snapshot, str(error))
        as_of_ms = min(time_ms, self._table.clock.now_ms())
        return self._with_log(
            log, read.table, read.snapshot, ranges, as_of_ms=as_of_ms, reason="the log was replayed up to that time"
        )

    def at_offsets(self, ends: Mapping[int, int]) -> ReadState:
        """The newest snapshot that holds nothing behind these offsets, and the log from there to them."""
        log = self._usable_log()
        self._check_buckets(log, ends, "scan.log.offsets")
        topics = log.checked_topics()
        short = missing_after_wait(topics, log.topic, ends, self._table.clock, patience_s=_PATIENCE_S)
        if short is not None:
            raise InvalidInputError(f"the log is not that long: {short} fix=ask for earlier offsets")
        found = self._before(ends)
        if found is None:
            earliest = self._table.snapshots.earliest_id()
            raise InvalidInputError(
                f"no snapshot is as old as these offsets: table={self._table.name} scan.log.offsets={dict(ends)} "
                f"earliest_snapshot={earliest} fix=ask for later offsets"
            )
        snapshot, start = found
        ranges = tail_ranges(topics, log.topic, start=start, ends={**start, **ends})
        table = self._table if snapshot is None else self._table.at_schema(snapshot.schema_id)
        return self._with_log(log, table, snapshot, ranges, as_of_ms=None, reason="offsets of the log were asked for")

    def _with_log(
        self,
        log: TableLog,
        table: FileTable,
        snapshot: Snapshot | None,
        ranges: tuple[LogRange, ...],
        *,
        as_of_ms: int | None,
        reason: str,
        staleness_ms: int | None = None,
    ) -> ReadState:
        start = log_position(self._table, snapshot) or LogOffsets()
        served = Served(
            table=table.name,
            source=StateSource.SNAPSHOT_AND_LOG,
            snapshot_id=None if snapshot is None else snapshot.id,
            log_offsets={**start, **{each.bucket: each.end_offset for each in ranges}},
            as_of_ms=as_of_ms,
            staleness_ms=staleness_ms,
            reason=reason,
        )
        return ReadState(table=table, snapshot=snapshot, log=log, ranges=ranges, served=served)

    def _check_buckets(self, log: TableLog, offsets: Mapping[int, int], option: str) -> None:
        unknown = [bucket for bucket in offsets if bucket >= log.bucket_count]
        if unknown:
            raise InvalidInputError(
                f"no such bucket: {option} bucket={unknown[0]} table={self._table.name} buckets={log.bucket_count}"
            )

    def _usable_log(self) -> TableLog:
        reason = refusal(self._table, self._log)
        if self._log is None or reason is not None:
            raise InvalidInputError(
                f"the log cannot be merged over the files: table={self._table.name} scan.log.union=true {reason} "
                "fix=remove scan.log.union"
            )
        return self._log

    def _start(self, snapshot: Snapshot | None) -> LogOffsets:
        """Where the log goes on behind a snapshot. Raises: TailLostError."""
        start = log_position(self._table, snapshot)
        if start is None:
            raise TailLostError(
                f"where the log goes on is not known: table={self._table.name} "
                f"snapshot={None if snapshot is None else snapshot.id} "
                "cause=other engines committed, and the last snapshot with offsets of the log has expired"
            )
        return start

    def _written_ms(self, snapshot: Snapshot | None) -> int | None:
        """When rows were last committed: a compaction makes no row fresher. None: never, or too long ago to tell."""
        for each in islice(self._table.snapshots.back_from(snapshot), _MOST_SNAPSHOTS_BACK):
            if each.commit_kind in _WRITES:
                return each.time_ms
        return None

    def _before(self, ends: Mapping[int, int]) -> tuple[Snapshot | None, LogOffsets] | None:
        """The newest snapshot whose offsets are not behind these, with its offsets; None: it expired."""
        oldest_id = 1
        for snapshot in self._table.snapshots.back_from(self._table.snapshots.latest()):
            start = log_position(self._table, snapshot)
            if start is None:
                return None
            if all(start.get(bucket, 0) <= offset for bucket, offset in ends.items()):
                return snapshot, start
            oldest_id = snapshot.id
        return (None, LogOffsets()) if oldest_id == 1 else None


def log_position(store: TableStore, snapshot: Snapshot | None) -> LogOffsets | None:
    """Next offsets of the log at a snapshot, its own or those of the newest before it that has some.

    Commits of other engines do not carry them on. None: the snapshot that had them expired.
    """
    offsets = carried_offsets(store.snapshots.back_from(snapshot))
    return None if offsets is None else LogOffsets(offsets)
