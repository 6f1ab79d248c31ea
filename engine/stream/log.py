"""The log that a stream follows, in its brokers' current state."""

import time
from collections.abc import Mapping
from typing import Final

from engine.log.retention import end_of_batches, kept_ranges
from engine.log.table_log import TableLog
from filestore.table_store import TableStore
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import FluvialError

_TOPIC_CHECK_S: Final = 30.0
_SAMPLE_RECORDS: Final = 100
_RECORD_BYTES: Final = 256  # until a sample is read


class StreamLog:
    """Keeps a connection; not picklable."""

    def __init__(self, log: TableLog) -> None:
        self._log = log
        self._topics = LogTopics(log.properties)
        self._checked_s = float("-inf")
        self._record_bytes: int | None = None
        self._looked_at: dict[int, int] = {}  # the end of each bucket at the last look
        self._batches_end: dict[int, int] = {}

    @property
    def topic_id(self) -> str | None:
        """Id of the table's original topic."""
        return self._log.topic_id

    def check_topic(self) -> None:
        """Check periodically that the topic is still the table's. Raises: CorruptDataError."""
        if time.monotonic() - self._checked_s < _TOPIC_CHECK_S:
            return
        self._topics.describe_topic(self._log.topic, topic_id=self._log.topic_id, bucket_count=self._log.bucket_count)
        self._checked_s = time.monotonic()

    def ends(self, known: Mapping[int, int]) -> LogOffsets:
        """The end of the last batch, or chunk of one, of every bucket; later records are of another program.

        That program may be an engine that is about to commit: then a snapshot will name the records as the table's.

        Args:
            known: offsets of the newest snapshot.

        Raises: CorruptDataError: another table has the topic.
        """
        ends = self._topics.end_offsets(self._log.topic, self._buckets)
        moved = {bucket: end for bucket, end in ends.items() if self._looked_at.get(bucket) != end}
        if moved:
            self._log.check_owner(known, ends)
        for bucket, end in moved.items():
            start = max(known.get(bucket, 0), self._batches_end.get(bucket, 0))
            self._batches_end[bucket] = end_of_batches(self._log, bucket, min(start, end), end)
            self._looked_at[bucket] = end
        return LogOffsets(self._batches_end)

    def earliest(self) -> LogOffsets:
        """The first available offset of every bucket."""
        return self._topics.earliest_offsets(self._log.topic, self._buckets)

    def offsets_at(self, time_ms: int) -> LogOffsets:
        """The first offset at a time or later, of every bucket; the end where there is none."""
        return self._topics.offsets_at(self._log.topic, self._buckets, time_ms)

    def check_kept(self, store: TableStore, here: Mapping[int, int], goal: Mapping[int, int]) -> None:
        """Check that no row of the table between here and the goal has left the log.

        Raises:
            OffsetLostError: names bucket, wanted and earliest offset; no fix.
            CorruptDataError: the topic is no longer the table's.
        """
        self.check_topic()
        needed = self._log.position(here)
        wanted = [
            LogRange(bucket=bucket, start_offset=needed.get(bucket, 0), end_offset=offset)
            for bucket, offset in sorted(goal.items())
            if offset > needed.get(bucket, 0)
        ]
        if wanted:
            self._log.check_owner(needed, goal)
            kept_ranges(store, self._log, wanted, earliest=self.earliest())

    def record_bytes(self, here: Mapping[int, int], goal: Mapping[int, int]) -> int:
        """Average size of a record in bytes, from one sample that is taken at the first call."""
        if self._record_bytes is None:
            for bucket, end in goal.items():
                start = max(here.get(bucket, 0), end - _SAMPLE_RECORDS)
                if start < end:
                    self._record_bytes = self._sampled(LogRange(bucket=bucket, start_offset=start, end_offset=end))
                    break
        return self._record_bytes or _RECORD_BYTES

    @property
    def _buckets(self) -> range:
        return range(self._log.bucket_count)

    def _sampled(self, log_range: LogRange) -> int | None:
        try:
            for records in read_range(self._log.properties, topic=self._log.topic, log_range=log_range):
                return max(1, int(records.nbytes) // len(records))
        except FluvialError:
            return None  # the actual read of the range reports the error
        return None
