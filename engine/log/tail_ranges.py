"""The ranges of a log after a snapshot, and whether retention has removed any of them."""

import time
from collections.abc import Mapping
from typing import Final

from filestore.io.file_io import Clock
from logstore.kafka.topics import LogTopics
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError

_POLL_S: Final = 0.05


class TailLostError(CorruptDataError):
    """Records after a snapshot are no longer in the log, or their start is unknown."""


def tail_ranges(
    topics: LogTopics,
    topic: str,
    *,
    start: LogOffsets,
    ends: Mapping[int, int],
    stable_ends: Mapping[int, int] | None = None,
) -> tuple[LogRange, ...]:
    """The records after a position: one non-empty range per bucket, by bucket.

    Args:
        topics: connection to the log's brokers.
        topic: topic of the log.
        start: next offsets at the snapshot; 0 for a missing bucket.
        ends: exclusive end by bucket; one before the start is an empty range.
        stable_ends: the committed ends where known: there is the marker of the last commit.

    Raises:
        TailLostError: retention has removed a part of a range. Names bucket, wanted and earliest offset.
    """
    ranges = tuple(
        LogRange(bucket=bucket, start_offset=start.get(bucket, 0), end_offset=end)
        for bucket, end in sorted(ends.items())
        if end > start.get(bucket, 0) and not _is_marker(start.get(bucket, 0), end, (stable_ends or {}).get(bucket))
    )
    if ranges:
        earliest = topics.earliest_offsets(topic, [each.bucket for each in ranges])
        for each in ranges:
            if earliest[each.bucket] > each.start_offset:
                raise TailLostError(
                    f"records of the log are lost: topic={topic} bucket={each.bucket} "
                    f"wanted_offset={each.start_offset} earliest_offset={earliest[each.bucket]} "
                    "cause=retention removed them fix=read the files (scan.log.union=false, or "
                    "log.on-offset-lost=resnapshot), and raise log.retention above the time between commits"
                )
    return ranges


def _is_marker(start: int, end: int, stable_end: int | None) -> bool:
    """True for a range of one offset at the end of the log: a transaction with a row has at least two."""
    return end == stable_end == start + 1


def missing_after_wait(
    topics: LogTopics, topic: str, wanted: Mapping[int, int], clock: Clock, *, patience_s: float
) -> str | None:
    """Wait until the log is at least this long: readers see a commit with a short delay.

    Args:
        topics: connection to the log's brokers.
        topic: topic of the log.
        wanted: next offsets by bucket.
        clock: for waiting.
        patience_s: maximum wait.

    Returns:
        Facts about a bucket that is still too short, for a message; None when there is none.

    Raises:
        CorruptDataError: the topic is gone.
    """
    deadline = time.monotonic() + patience_s
    while True:
        ends = topics.end_offsets(topic, sorted(wanted))
        short = [bucket for bucket, offset in wanted.items() if ends[bucket] < offset]
        if not short:
            return None
        if time.monotonic() > deadline:
            bucket = short[0]
            return f"topic={topic} bucket={bucket} wanted_offset={wanted[bucket]} end_offset={ends[bucket]}"
        clock.sleep(_POLL_S)
