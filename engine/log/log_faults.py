"""What is wrong with a table's topic: whether it is the table's, and whether table and log end at the same record."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.log.bucket_log import check_not_ahead
from engine.log.retention import OffsetLostError, kept_ranges
from engine.log.table_log import TableLog
from filestore.changelog.log_gap import is_sync_user
from filestore.table_store import TableStore
from logstore.log.marker import LogTail
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

    Args:
        store: the table.
        log: its log.

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
