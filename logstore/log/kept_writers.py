"""Writers of a log that stay open between the batches of one process.

A writer that has committed a batch knows the end of its bucket: no other one can have written there without fencing it,
and a fenced writer cannot write. So the next batch needs neither another producer nor a look at the log's end (14 to
23 ms). That it was fenced meanwhile is shown by a newer end in the table's snapshot, else by Kafka, at the latest when
the transaction ends: then the batch is tried again, as after any other lost race.
"""

import threading
import time
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
        is_fresh = time.monotonic() - since_s <= _LONGEST_S
        if is_fresh and writer.target == target and writer.renew() and writer.tail.end_offset == end_offset:
            return writer
        writer.close()
        return None

    def put(self, writer: BucketLogWriter) -> None:
        """Keep a writer that has ended its batch, or close it."""
        with self._lock:
            is_kept = writer.is_renewable and len(self._writers) < _MOST
            if is_kept:
                self._writers[writer.target.bucket] = writer, time.monotonic()
        if not is_kept:
            writer.close()

    def close(self) -> None:
        """Close all; others may be kept afterwards."""
        with self._lock:
            found, self._writers = list(self._writers.values()), {}
        for writer, _ in found:
            writer.close()
