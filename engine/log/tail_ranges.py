"""The ranges of a log after a snapshot."""

from collections.abc import Mapping
from typing import Final

from engine.log.retention import OffsetLostError, kept_ranges, only_commit_marker
from engine.log.table_log import TableLog
from filestore.table_store import TableStore
from logstore.kafka.topics import LogTopics
from logstore.offsets import LogOffsets, LogRange

READ_FILES: Final = (
    "fix=read the files (scan.log.union=false, or log.on-offset-lost=resnapshot), and raise log.retention above the "
    "time between commits"
)

_POLL_S: Final = 0.05


def tail_ranges(
    store: TableStore,
    log: TableLog,
    topics: LogTopics,
    *,
    start: LogOffsets,
    ends: Mapping[int, int],
    fix: str = READ_FILES,
) -> tuple[LogRange, ...]:
    """The records after a snapshot: one non-empty range per bucket, by bucket.

    Args:
        store: the table.
        log: its log.
        topics: connection to the log's brokers.
        start: next offsets at the snapshot; 0 for a missing bucket.
        ends: exclusive end by bucket; one before the start is an empty range.
        fix: of the error.

    Raises:
        OffsetLostError: retention has removed rows of a range. Names bucket, wanted and earliest offset.
    """
    ranges = [
        LogRange(bucket=bucket, start_offset=start.get(bucket, 0), end_offset=end)
        for bucket, end in sorted(ends.items())
        if end > start.get(bucket, 0) and not only_commit_marker(start.get(bucket, 0), end)
    ]
    if not ranges:
        return ()
    earliest = topics.earliest_offsets(log.topic, [each.bucket for each in ranges])
    try:
        kept = kept_ranges(store, log, ranges, earliest=earliest)
    except OffsetLostError as error:
        raise OffsetLostError(f"{error} {fix}") from error
    return tuple(each for each in kept if not each.is_empty)


def missing_after_wait(topics: LogTopics, log: TableLog, wanted: Mapping[int, int], *, patience_s: float) -> str | None:
    """Wait until the log is at least this long: readers see a commit with a short delay.

    Args:
        topics: connection to the log's brokers.
        log: the table's log.
        wanted: next offsets by bucket.
        patience_s: maximum wait.

    Returns:
        Facts about a bucket that is still too short, for a message; None when there is none.

    Raises:
        CorruptDataError: the topic was deleted.
    """
    clock = log.properties.environment
    deadline = clock.monotonic() + patience_s
    while True:
        ends = topics.end_offsets(log.topic, sorted(wanted))
        short = [bucket for bucket, offset in wanted.items() if ends[bucket] < offset]
        if not short:
            return None
        if clock.monotonic() > deadline:
            bucket = short[0]
            return f"topic={log.topic} bucket={bucket} wanted_offset={wanted[bucket]} end_offset={ends[bucket]}"
        clock.sleep(_POLL_S)
