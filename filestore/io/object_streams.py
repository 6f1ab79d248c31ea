"""Objects of a store as files for Arrow, in bounded memory.

Readers of columnar files seek between the pages of a few columns, 64 KiB at a time. A request to a store costs as much
as the transfer of a megabyte, so bytes are fetched in blocks of that size, and the most recent few are cached.
"""

import io
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BLOCK_BYTES: Final = 1024 * 1024
CACHED_BLOCKS: Final = 8
PART_BYTES: Final = 8 * 1024 * 1024  # of multipart uploads: S3 requires at least 5 MiB, and at most 10,000 parts
PARALLEL_PARTS: Final = 2

Guard = Callable[[], AbstractContextManager[None]]
"""Translates the store's errors to Fluvial's."""


class ObjectReader(io.RawIOBase):
    """Random access to one object with a small block cache."""

    def __init__(self, store: "ObjectStore", key: str, guard: Guard) -> None:
        """Requests the first block, and with it the size of the object. Raises: FileNotFoundError."""
        super().__init__()
        self._store, self._key, self._guard = store, key, guard
        self._position = 0
        with guard():
            self._size, first = _first_block(store, key)
        self._blocks: OrderedDict[int, memoryview] = OrderedDict({0: first})

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def size(self) -> int:
        """Size of the object, called by Arrow."""
        return self._size

    def tell(self) -> int:
        """Position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes; negative or None: all remaining ones."""
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        start, end = self._position, self._position + wanted
        self._position = end
        if not wanted:
            return b""
        numbers = range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
        if len(numbers) > CACHED_BLOCKS:  # a read of that size would evict all other blocks
            return self._fetched([(start, end)])[0].tobytes()
        self._load(numbers)
        pieces = []
        for number in numbers:
            first = number * BLOCK_BYTES
            pieces.append(self._blocks[number][max(0, start - first) : end - first])
        return b"".join(pieces)

    def _load(self, numbers: range) -> None:
        missing = [number for number in numbers if number not in self._blocks]
        bounds = [(number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, self._size)) for number in missing]
        self._blocks.update(zip(missing, self._fetched(bounds), strict=True))
        for number in numbers:
            self._blocks.move_to_end(number)
        while len(self._blocks) > CACHED_BLOCKS:
            self._blocks.popitem(last=False)

    def _fetched(self, bounds: list[tuple[int, int]]) -> list[memoryview]:
        """Bytes of each [start, end), in one batch of requests."""
        import obstore

        if not bounds:
            return []
        starts, ends = zip(*bounds, strict=True)
        with self._guard():
            return [memoryview(part) for part in obstore.get_ranges(self._store, self._key, starts=starts, ends=ends)]


def _first_block(store: "ObjectStore", key: str) -> tuple[int, memoryview]:
    """The size of an object and its first block: all of a small one, for the price of asking for its size."""
    import obstore
    from obstore.exceptions import BaseError

    try:
        found = obstore.get(store, key, options={"range": (0, BLOCK_BYTES)})
        return int(found.meta["size"]), memoryview(found.bytes())
    except BaseError:
        if obstore.head(store, key)["size"]:
            raise
        return 0, memoryview(b"")  # stores refuse a range of nothing


class ObjectWriter(io.RawIOBase):
    """A new object, uploaded in parts while it is written; becomes visible as a whole on close."""

    def __init__(self, store: "ObjectStore", key: str, guard: Guard) -> None:
        """Starts an upload; nothing is sent before the first part is full."""
        import obstore

        super().__init__()
        self._guard = guard
        self._position = 0
        self._upload = obstore.open_writer(store, key, buffer_size=PART_BYTES, max_concurrency=PARALLEL_PARTS)

    def writable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, body: Any, /) -> int:
        """Append bytes. Raises: UnavailableError."""
        view = memoryview(body).cast("B")
        with self._guard():
            self._upload.write(view)
        self._position += len(view)
        return len(view)

    def flush(self) -> None:
        """No effect: only full parts are sent; smaller ones would be refused."""

    def close(self) -> None:
        """Complete the upload, which makes the object visible. Raises: UnavailableError."""
        if not self.closed:
            try:
                with self._guard():
                    self._upload.close()
            finally:
                super().close()
