"""Writers of a log that stay open between the batches of one process.

A writer that has committed a batch knows the end of its bucket: no other one can have written there without fencing
it, and a fenced writer cannot write. So the next batch needs neither another producer nor a look at the log's end. That
it was fenced meanwhile is shown by a newer end in the table's snapshot, else by Kafka, at the latest when the
transaction ends: then the batch is tried again, as after any other lost race.
"""

import threading
from typing import Final

from logstore.log.log_writer import BucketLogWriter, LogTarget

_MOST: Final = 16  # each has threads and connections
_LONGEST_S: Final = 60.0  # without a batch


class KeptWriters:
    """The open writers of one log. Safe for threads; a copy in another process is empty."""

    def __init__(self) -> None:
        """None is kept yet."""
        self._lock = threading.Lock()
        self._writers: dict[int, tuple[BucketLogWriter, float]] = {}  # by bucket: since when

    def __reduce__(self) -> tuple[type["KeptWriters"], tuple[()]]:
        return KeptWriters, ()

    def take(self, target: LogTarget, end_offset: int) -> BucketLogWriter | None:
        """The writer of a bucket, ready for a batch; None: open and fence a new one.

        Args:
            target: the bucket.
            end_offset: its next offset, as the newest snapshot has it.
        """
        with self._lock:
            found = self._writers.pop(target.bucket, None)
        if found is None:
            return None
        writer, since_s = found
        is_fresh = _now_s(target) - since_s <= _LONGEST_S
        if is_fresh and writer.target == target and writer.renew() and writer.tail.end_offset == end_offset:
            return writer
        writer.close()
        return None

    def put(self, writer: BucketLogWriter) -> None:
        """Keep a writer that has ended its batch, or close it; those that were not used for long are closed."""
        now_s = _now_s(writer.target)
        with self._lock:
            old = [bucket for bucket, (_, since_s) in self._writers.items() if now_s - since_s > _LONGEST_S]
            closing = [self._writers.pop(bucket)[0] for bucket in old]
            if writer.is_renewable and len(self._writers) < _MOST:
                self._writers[writer.target.bucket] = writer, now_s
            else:
                closing.append(writer)
        for each in closing:
            each.close()

    def close(self) -> None:
        """Close all; others may be kept afterwards."""
        with self._lock:
            found, self._writers = list(self._writers.values()), {}
        for writer, _ in found:
            writer.close()


def _now_s(target: LogTarget) -> float:
    return target.properties.environment.monotonic()
