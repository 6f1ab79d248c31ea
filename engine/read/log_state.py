"""States with the tail of the log: a snapshot, and up to where the log behind it is replayed.

The base is the newest snapshot that lies wholly before the wanted end: what was committed without the log is in it.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from engine.log.log_tail import refusal
from engine.log.retention import OffsetLostError
from engine.log.table_log import TableLog
from engine.log.tail_ranges import READ_FILES, missing_after_wait, tail_ranges
from engine.read.read_state import ReadState, Served, StateSource
from engine.request.commit_handle import CommitHandle, wait_until_visible
from engine.request.writer_options import EVEN_UNTRACKED
from filestore.changelog.log_gap import is_sync, is_sync_user, location, log_gap
from filestore.refs.versions import Version, find_version
from filestore.scan.table_scan import TableScan
from filestore.snapshot.change_tracking import ChangeSource, offsets_before
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from logstore.kafka.clients import OPERATION_TIMEOUT_S
from logstore.kafka.topics import LogTopics
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

# ---- The tail of a log without the records of what bypassed it, which the files have: see ``log.overwrite``
# Such records are the last of their bucket until a snapshot knows them, because no batch is written before.


_MOST_SNAPSHOTS: Final = 100


def without_bypassed(
    store: TableStore, log: TableLog, snapshot: Snapshot | None, ranges: Sequence[LogRange]
) -> tuple[LogRange, ...]:
    """Ranges of a log behind a snapshot that have only batches.

    Args:
        store: the table.
        log: its log.
        snapshot: the ranges begin at its offsets.
        ranges: non-empty, one per bucket.

    Returns:
        Non-empty ranges, by bucket.

    Raises:
        InvalidInputError: a range of a table without a key has such records between batches.
        CorruptDataError: another producer writes to the topic.
        UnavailableError: the brokers do not answer.
    """
    if snapshot is None or not ranges or log_gap(store, snapshot) is None:
        return tuple(ranges)
    known = _known(store, snapshot)
    found = []
    for each in ranges:
        start, end = _pending(log, each) if known is None else known.get(each.bucket, (each.end_offset, 0))
        if start >= each.end_offset or end <= each.start_offset:
            found.append(each)
        elif each.end_offset <= end:
            if start > each.start_offset:
                found.append(LogRange(bucket=each.bucket, start_offset=each.start_offset, end_offset=start))
        elif log.key_names:
            found.append(each)  # rows that the files have replace themselves
        else:
            raise InvalidInputError(
                f"the log has changes of an overwrite between these offsets: table={store.name} bucket={each.bucket} "
                f"range={each.start_offset}..{each.end_offset} changes={start}..{end} "
                "fix='ask for offsets of one snapshot, or for a snapshot'"
            )
    return tuple(found)


def _known(store: TableStore, snapshot: Snapshot) -> Mapping[int, tuple[int, int]] | None:
    """The records by bucket, if a later snapshot has them; None: there is none."""
    latest_id = store.snapshots.latest_id() or 0
    for snapshot_id in range(snapshot.id + 1, min(latest_id, snapshot.id + _MOST_SNAPSHOTS) + 1):
        found = store.snapshots.find(snapshot_id)
        if found is not None and is_sync(found):
            starts = offsets_before(found, found.log_offsets)
            return {bucket: (start, found.log_offsets[bucket]) for bucket, start in starts.items()}
    return None


def _pending(log: TableLog, log_range: LogRange) -> tuple[int, int]:
    """The records at the end of a bucket that no snapshot has yet; empty if that is a batch."""
    marker = log.tail(log_range.bucket).marker
    if marker is None or not is_sync_user(marker.query):
        return log_range.end_offset, 0
    # the range may end behind the commit marker
    return marker.start_offset, max(marker.end_offset, log_range.end_offset)


# ---- States with the tail of the log: a snapshot, and up to where the log behind it is replayed


_WRITES: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})
_MOST_SNAPSHOTS_BACK: Final = 100
_LONGER: Final = "fix=raise log.retention above the age of such reads"
_PATIENCE_S: Final = 10.0  # for a commit's markers to be written: the end of the log may be a moment behind


def wait_for_commit(table: FileTable, handle: CommitHandle, *, timeout_s: float, in_log: bool) -> None:
    """Return once a commit is visible, with ``in_log`` in the log too. Raises: UnavailableError."""
    deadline = time.monotonic() + timeout_s
    wait_until_visible(table.store, handle, timeout_s=timeout_s)
    if not in_log or not handle.log_offsets:
        return
    log = _usable_log(table)
    _check_buckets(table, log, handle.log_offsets, "scan.at-least")
    topics = _checked_topics(table, log, deadline - time.monotonic())
    short = missing_after_wait(topics, log, handle.log_offsets, patience_s=deadline - time.monotonic())
    if short is not None:
        raise UnavailableError(
            f"a commit is not visible in the log yet: table={table.name} scan.at-least={handle} {short} "
            f"timeout_s={timeout_s:g} fix=look whether its writer still runs, or raise scan.at-least.timeout"
        )


def newest_with_log(table: FileTable, *, fails_on_loss: bool, reason: str = "the log was asked for") -> ReadState:
    """The newest snapshot, and the log behind it up to its end.

    Args:
        table: to read.
        fails_on_loss: False: return the snapshot alone, when records of the log have expired.
        reason: why the log is read.

    Raises:
        InvalidInputError: the log cannot be merged over the files.
        CorruptDataError: needed records have expired.
        UnavailableError: the brokers do not answer.
    """
    log, now_ms = _usable_log(table), table.store.clock.now_ms()
    # The end of the log first: what is committed between the two looks is then in the snapshot, also what the log does
    # not hold, as an overwrite.
    topics = _checked_topics(table, log)
    stable_ends = topics.end_offsets(log.topic, range(log.bucket_count))
    snapshot = table.store.snapshots.latest()
    try:
        start = log.position(_position_after(table, log, snapshot, stable_ends))
        log.check_owner(start, stable_ends)
        ranges = tail_ranges(table.store, log, topics, start=start, ends=stable_ends)
    except OffsetLostError as error:
        if fails_on_loss:
            raise
        return ReadState.of_files(table, snapshot, str(error))
    return _with_log(table, log, snapshot, ranges, as_of_ms=now_ms, staleness_ms=0, reason=reason)


def newest_fresh(table: FileTable, limit_ms: int, *, fails_on_loss: bool) -> ReadState:
    """Files if they are fresh enough, else with the log; files again where there is no log.

    Args:
        table: to read.
        limit_ms: the oldest acceptable age of the newest rows.
        fails_on_loss: see ``newest_with_log``.

    Raises:
        CorruptDataError: records of the log have expired.
        UnavailableError: the brokers do not answer.
    """
    snapshot, now_ms = table.store.snapshots.latest(), table.store.clock.now_ms()
    written_ms = _written_ms(table, snapshot)
    age_ms = None if written_ms is None else max(0, now_ms - written_ms)
    waits = TableScan(table.store).skips_level0  # files alone do not show what was written last
    if age_ms is not None and age_ms <= limit_ms and not waits:
        return ReadState.of_files(table, snapshot, "the files are fresh enough", staleness_ms=age_ms)
    reason = refusal(table, _log_of(table))
    if reason is not None:
        return ReadState.of_files(table, snapshot, f"staler than asked for: {reason}", staleness_ms=age_ms)
    state = newest_with_log(table, fails_on_loss=fails_on_loss, reason="the files are staler than asked for")
    if state.served.source is StateSource.SNAPSHOT:  # the tail is lost
        return ReadState.of_files(state.table, state.snapshot, state.served.reason, staleness_ms=age_ms)
    if not state.ranges and not waits:
        return ReadState.of_files(table, state.snapshot, "the log has nothing more", staleness_ms=0)
    return state


def at_time_with_log(table: FileTable, time_ms: int) -> ReadState:
    """The last snapshot of a time, with the log's records up to that time while they are kept.

    Raises:
        InvalidInputError: nothing is that old, or the log cannot be merged over the files.
        UnavailableError: the brokers do not answer.
    """
    log = _usable_log(table)
    topics = _checked_topics(table, log)
    stable_ends = topics.end_offsets(log.topic, range(log.bucket_count))
    # the first record that is later ends the replay: what is before it is what the log held then
    later = topics.offsets_at(log.topic, range(log.bucket_count), time_ms + 1)
    ends = {bucket: min(offset, stable_ends[bucket]) for bucket, offset in later.items()}
    found = find_version(table.store, Version(time_ms=time_ms))
    read = table.read_found(found)
    if not table.store.snapshots.exists(found.snapshot.id):  # a tag has it: what was committed after it may be gone
        return ReadState.of_files(read.table, read.snapshot, found.how)
    try:
        start = log.position(_position_after(table, log, read.snapshot, stable_ends))
        log.check_owner(start, stable_ends)
        ranges = tail_ranges(table.store, log, topics, start=start, ends=ends, fix=_LONGER)
    except OffsetLostError as error:
        return ReadState.of_files(read.table, read.snapshot, str(error))
    as_of_ms = min(time_ms, table.store.clock.now_ms())
    return _with_log(
        read.table, log, read.snapshot, ranges, as_of_ms=as_of_ms, reason="the log was replayed up to that time"
    )


def at_offsets(table: FileTable, ends: Mapping[int, int]) -> ReadState:
    """The newest snapshot that holds nothing behind these offsets, and the log from there to them.

    Args:
        table: to read.
        ends: next offsets by bucket.

    Raises:
        InvalidInputError: the log is not that long, no snapshot is that old, or the log cannot be merged.
        CorruptDataError: needed records have expired.
        UnavailableError: the brokers do not answer.
    """
    log = _usable_log(table)
    _check_buckets(table, log, ends, "scan.log.offsets")
    topics = _checked_topics(table, log)
    short = missing_after_wait(topics, log, ends, patience_s=_PATIENCE_S)
    if short is not None:
        raise InvalidInputError(f"the log is not that long: {short} fix=ask for earlier offsets")
    found = _snapshot_before(table, ends)
    if found is None:
        raise InvalidInputError(
            f"no snapshot is as old as these offsets: table={table.name} scan.log.offsets={dict(ends)} "
            f"earliest_snapshot={table.store.snapshots.earliest_id()} fix=ask for later offsets"
        )
    snapshot, start = found[0], log.position(found[1])
    log.check_owner(start, ends)
    fix = f"{_LONGER}, or ask for later offsets or a snapshot"
    ranges = tail_ranges(table.store, log, topics, start=start, ends={**start, **ends}, fix=fix)
    then = table if snapshot is None else table.at_schema(snapshot.schema_id)
    return _with_log(then, log, snapshot, ranges, as_of_ms=None, reason="offsets of the log were asked for")


def log_position(store: TableStore, snapshot: Snapshot | None) -> LogOffsets | None:
    """Next offsets of the log at a snapshot, its own or those of the newest before it that has some.

    Commits of other engines do not carry them on. None: the snapshot that had them expired.
    """
    offsets = store.log_offsets_at(snapshot)
    return None if offsets is None else LogOffsets(offsets)


def _with_log(
    table: FileTable,
    log: TableLog,
    snapshot: Snapshot | None,
    ranges: tuple[LogRange, ...],
    *,
    as_of_ms: int | None,
    reason: str,
    staleness_ms: int | None = None,
) -> ReadState:
    start = log_position(table.store, snapshot) or LogOffsets()
    ranges = without_bypassed(table.store, log, snapshot, ranges)
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


def _log_of(table: FileTable) -> TableLog | None:
    return TableLog.of(table, EVEN_UNTRACKED)


def _usable_log(table: FileTable) -> TableLog:
    log = _log_of(table)
    reason = refusal(table, log)
    if log is None or reason is not None:
        raise InvalidInputError(
            f"the log cannot be merged over the files: table={table.name} scan.log.union=true {reason} "
            "fix=remove scan.log.union"
        )
    return log


def _checked_topics(table: FileTable, log: TableLog, within_s: float = OPERATION_TIMEOUT_S) -> LogTopics:
    """See ``TableLog.checked_topics``. Raises: InvalidInputError: the topic was dropped with its table."""
    try:
        return log.checked_topics(within_s)
    except CorruptDataError:
        table.store.check_is_there()
        raise


def _check_buckets(table: FileTable, log: TableLog, offsets: Mapping[int, int], option: str) -> None:
    unknown = [bucket for bucket in offsets if bucket >= log.bucket_count]
    if unknown:
        raise InvalidInputError(
            f"no such bucket: {option} bucket={unknown[0]} table={table.name} buckets={log.bucket_count}"
        )


def _position_after(table: FileTable, log: TableLog, snapshot: Snapshot | None, ends: Mapping[int, int]) -> LogOffsets:
    """Where the log continues behind a snapshot; ``ends``: the committed ones now. Raises: OffsetLostError."""
    start = log_position(table.store, snapshot)
    if start is None and max(ends.values()) <= log.first_offset:
        return LogOffsets()  # nothing was ever in it, whatever was committed beside it and has expired
    if start is None:
        raise OffsetLostError(
            f"where the log continues is not known: table={table.name} "
            f"snapshot={None if snapshot is None else snapshot.id} "
            f"cause=other engines committed, and the last snapshot with offsets of the log has expired {READ_FILES}"
        )
    return start


def _written_ms(table: FileTable, snapshot: Snapshot | None) -> int | None:
    """When the files last had all rows: of a table with a log only a commit of log records proves that.

    Others say nothing of the rows that a dead or slow writer has in the log. A compaction makes no row fresher.
    None: never, or too long ago to know.
    """
    has_log = table.store.has_log
    for each in islice(table.store.snapshots.back_from(snapshot), _MOST_SNAPSHOTS_BACK):
        is_proof = not has_log or location(table.store, each) is ChangeSource.LOG
        if each.commit_kind in _WRITES and is_proof:
            return each.time_ms
    return None


def _snapshot_before(table: FileTable, ends: Mapping[int, int]) -> tuple[Snapshot | None, LogOffsets] | None:
    """The newest snapshot that ends before these offsets, with its own; None: it expired."""
    oldest_id = 1
    for snapshot in table.store.snapshots.back_from(table.store.snapshots.latest()):
        start = log_position(table.store, snapshot)
        if start is None:
            return None
        if all(start.get(bucket, 0) <= offset for bucket, offset in ends.items()):
            return snapshot, start
        oldest_id = snapshot.id
    return (None, LogOffsets()) if oldest_id == 1 else None
