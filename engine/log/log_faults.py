"""Checks a table's topic: its id, that table and log end at the same record, and that no other program wrote to it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.log.bucket_log import check_not_ahead
from engine.log.retention import OffsetLostError, kept_ranges
from engine.log.table_log import TableLog
from filestore.changelog.log_gap import is_sync_user
from filestore.table_store import TableStore
from logstore.log.batch_rows import OffsetRun, decided_by, is_copy, own_marker
from logstore.log.control_record import claimant_of
from logstore.log.log_reader import MARKER, read_range
from logstore.log.marker import CommitMarker, LogTail
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFault:
    """One problem of a topic, or of a bucket of it."""

    subject: str
    problem: str  # with a fix where there is one
    refuses_writers: bool


def log_faults(store: TableStore, log: TableLog) -> Iterator[LogFault]:
    """Compare topic and table, changing nothing. Needs the right to read the topic.

    Yields:
        The topic is missing, is another one, or has partitions that are not the table's; then, by bucket: the last
        record is not the table's, or the log ends before the table, begins after it, or holds one batch more.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: this user may not read the topic.
    """
    try:
        topics = log.checked_topics()
        earliest = topics.earliest_offsets(log.topic, range(log.bucket_count))
    except CorruptDataError as error:
        yield LogFault(subject=log.topic, problem=str(error), refuses_writers=True)
        return
    known = log.position(store.log_offsets_at(store.snapshots.latest()) or {})
    for bucket in range(log.bucket_count):
        subject = f"{log.topic} bucket {bucket}"
        try:
            tail = log.tail(bucket)
            check_not_ahead(log, tail, known.get(bucket, 0))
        except CorruptDataError as error:
            yield LogFault(subject=subject, problem=str(error), refuses_writers=True)
        else:
            yield from _faults_of_end(store, log, tail, known.get(bucket, 0), earliest)


def strange_records(store: TableStore, log: TableLog) -> Iterator[LogFault]:
    """Read the log: records that are no rows of the table's batches, one fault for each bucket.

    Fluvial's readers leave them out, and its writers commit nothing behind them: so they are of a time before, or at
    the end of the log.

    Raises: as ``read_range``.
    """
    known = log.position(store.log_offsets_at(store.snapshots.latest()) or {})
    topics = log.checked_topics()
    earliest = topics.earliest_offsets(log.topic, range(log.bucket_count))
    for bucket, end in topics.end_offsets(log.topic, range(log.bucket_count)).items():
        first = min(max(log.first_offset, earliest.get(bucket, 0)), end)
        wanted = LogRange(bucket=bucket, start_offset=first, end_offset=end)
        records = read_range(log.properties, topic=log.topic, log_range=wanted, columns=_OF_RECORDS)
        runs = strange_runs(records, log, bucket, known_end=known.get(bucket, 0))
        if runs:
            count = sum(stop - start for start, stop in runs)
            yield LogFault(
                subject=f"{log.topic} bucket {bucket}",
                problem=f"records of other programs are among the table's, and other readers of the topic take them for"
                f" rows: records={count} first_offset={runs[0][0]} last_offset={runs[-1][1] - 1} "
                "cause=a stranger, or a job of Flink that has not committed "
                "fix='let only writers of the table write to the topic; CALL sys.reset_log'",
                refuses_writers=False,
            )


_OF_RECORDS: Final = ("offset", "key", "value", MARKER.name)


def strange_runs(records: Iterable[pa.RecordBatch], log: TableLog, bucket: int, *, known_end: int) -> list[OffsetRun]:
    """The records that are no rows of the table, see ``batch_rows``, as runs of offsets, in order.

    Control records are none. Of a time before the table had a key nothing is known: none is either.

    Args:
        records: of the bucket.
        log: of the table.
        bucket: of the log.
        known_end: the newest snapshot's offset: what is before it, and behind the last marker, is another engine's.
    """
    found: list[OffsetRun] = []
    pending: list[OffsetRun] = []  # behind the last marker
    last: CommitMarker | None = None
    for batch in records:
        offsets = batch["offset"].to_numpy()
        begun = 0
        for place in np.flatnonzero(batch[MARKER.name].is_valid()).tolist():
            header, offset = batch[MARKER.name][place].as_py(), int(offsets[place])
            if claimant_of(header) is not None and batch["key"][place].as_py() is None:
                if not batch["value"][place].as_py():
                    pending += _runs(offsets[begun:place])
                    begun = place + 1
                continue
            marker = own_marker(header, offset, bucket=bucket, table_id=log.table_id, key=log.key)
            if marker is None or is_copy(marker, last):
                continue
            pending += _runs(offsets[begun : place + 1])
            begun = place + 1
            found += _within(pending, decided_by(marker, last).strangers)
            pending, last = [], marker
        pending += _runs(offsets[begun:])
    return _joined([*found, *_within(pending, (known_end, _NO_END))])


_NO_END: Final = 1 << 63


def _within(runs: Iterable[OffsetRun], wanted: OffsetRun) -> Iterator[OffsetRun]:
    cut = ((max(start, wanted[0]), min(stop, wanted[1])) for start, stop in runs)
    return ((start, stop) for start, stop in cut if start < stop)


def _runs(offsets: NDArray[np.int64]) -> Iterator[OffsetRun]:
    for each in np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1):
        if len(each):
            yield int(each[0]), int(each[-1]) + 1


def _joined(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    found: list[OffsetRun] = []
    for start, stop in runs:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return found


def _faults_of_end(
    store: TableStore, log: TableLog, tail: LogTail, offset: int, earliest: LogOffsets
) -> Iterator[LogFault]:
    subject = f"{log.topic} bucket {tail.bucket}"
    if tail.end_offset < offset:
        yield LogFault(subject=subject, problem=f"ends={tail.end_offset} table={offset}", refuses_writers=True)
        return
    try:
        # up to its end: a stream that starts from the newest snapshot needs all that comes behind it
        behind = LogRange(bucket=tail.bucket, start_offset=offset, end_offset=tail.end_offset)
        kept_ranges(store, log, [behind], earliest=earliest)
    except OffsetLostError as error:
        begins = earliest.get(tail.bucket, 0)
        problem = f"begins={begins} table={offset}: streams that start from files have a gap: {error}"
        yield LogFault(subject=subject, problem=problem, refuses_writers=False)
        return
    if tail.marker is not None and tail.marker.is_final and tail.marker.end_offset > offset:
        marker = tail.marker
        is_sync = is_sync_user(marker.query)
        what = "what an overwrite changed is not known to a snapshot" if is_sync else "a batch is not in the table"
        fix = "'CALL sys.sync_log, or write to the table'" if is_sync else "restart that query"
        problem = (
            f"{what}: query={marker.query} batch={marker.batch} log_end={marker.end_offset} table={offset} fix={fix}"
        )
        yield LogFault(subject=subject, problem=problem, refuses_writers=False)
    if tail.marker is not None and tail.has_unended_batch(offset):
        problem = (
            f"rows of a batch that has not ended: query={tail.marker.query} batch={tail.marker.batch} "
            f"log_end={tail.end_offset} table={offset} "
            "fix='wait for its writer; if that is dead: CALL sys.sync_log, or write to the table'"
        )
        yield LogFault(subject=subject, problem=problem, refuses_writers=False)
