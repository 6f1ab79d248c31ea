"""Bytes that several threads may hold together."""

import threading
from collections.abc import Iterator

import pyarrow as pa


class ByteBudget:
    """Memory limit for the rows of a batch, in bytes, shared by threads; when it is exceeded, all threads stop."""

    def __init__(self, most_bytes: int) -> None:
        """Nothing is held."""
        self._left = most_bytes
        self._lock = threading.Lock()
        self.is_over = False

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes may come; if not, all threads end."""
        with self._lock:
            self.is_over |= size_bytes > self._left
        return not self.is_over

    def within(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, until those of all threads are too large."""
        for batch in batches:
            with self._lock:
                self._left -= batch.nbytes
                self.is_over |= self._left < 0
            if self.is_over:
                return
            yield batch
