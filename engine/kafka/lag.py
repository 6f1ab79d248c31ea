"""How far a query is behind the topics that it reads: records that it has not delivered, and the age of the oldest."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.kafka.offsets import Offsets, TopicPosition
from logstore.log.record_times import FirstRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """What is committed in the topics and not delivered yet."""

    records: int  # offsets: those of markers and aborted transactions count
    seconds: float  # since the oldest of them was written; 0 when there is none
    size_bytes: int  # estimated: each record of a partition is as large as the first that waits there

    def to_json(self) -> dict[str, float]:
        """Under the names of gauges."""
        return {"lag_records": self.records, "lag_seconds": round(self.seconds, 1), "lag_bytes": self.size_bytes}


def undelivered(delivered: Offsets, ends: Offsets) -> dict[TopicPosition, int]:
    """Where the records that wait begin, by partition; a partition that is new waits from its beginning."""
    return {position: start for position, end in ends.items() if (start := delivered.get(position, 0)) < end}


def lag_behind(
    delivered: Offsets, ends: Offsets, *, first: Mapping[TopicPosition, FirstRecord], now_ms: int
) -> SourceLag:
    """The lag of a query.

    Args:
        delivered: the next offset of each partition that no finished batch has.
        ends: committed end offsets.
        first: the first record that waits in each partition, as far as they are known.
        now_ms: the time to compare with; a record of a clock that is ahead has the age 0.
    """
    waiting = {position: ends[position] - start for position, start in undelivered(delivered, ends).items()}
    known = {position: record for position, record in first.items() if position in waiting}
    times = [record.time_ms for record in known.values() if record.time_ms is not None]
    return SourceLag(
        records=sum(waiting.values()),
        seconds=max(0, now_ms - min(times, default=now_ms)) / 1000,
        size_bytes=sum(waiting[position] * record.size_bytes for position, record in known.items()),
    )
