"""How far a query is behind the topics that it reads: records that it has not delivered, and the age of the oldest."""

from dataclasses import dataclass

from engine.kafka.offsets import Offsets, TopicPosition, waiting_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """What is committed in the topics and not delivered yet."""

    records: int  # offsets: those of markers and aborted transactions count
    seconds: float  # since the oldest of them was written; 0 when there is none


def undelivered(delivered: Offsets, ends: Offsets) -> dict[TopicPosition, int]:
    """Where the records that wait begin, by partition; a partition that is new waits from its beginning."""
    return {position: start for position, end in ends.items() if (start := delivered.get(position, 0)) < end}


def lag_behind(delivered: Offsets, ends: Offsets, *, oldest_ms: int | None, now_ms: int) -> SourceLag:
    """The lag of a query.

    Args:
        delivered: the next offset of each partition that no finished batch has.
        ends: committed end offsets.
        oldest_ms: when the oldest waiting record was written; None: unknown, or none waits.
        now_ms: the time to compare with; a record of a clock that is ahead has the age 0.
    """
    count = waiting_count(delivered, ends)
    age_ms = 0 if oldest_ms is None or not count else max(0, now_ms - oldest_ms)
    return SourceLag(records=count, seconds=age_ms / 1000)
