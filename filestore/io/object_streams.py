"""Objects of a store as the files that Arrow reads and writes, in bounded memory.

Readers of columnar files jump between the pages of a few columns, 64 KiB at a time. A request to a store costs what
the transfer of a megabyte costs, so bytes are fetched in blocks of that size, and the newest few are kept.
"""

import io
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BLOCK_BYTES: Final = 1024 * 1024
KEPT_BLOCKS: Final = 8
PART_BYTES: Final = 8 * 1024 * 1024  # of a multipart upload: S3 wants 5 MiB or more, and at most 10,000 parts
PARTS_AT_ONCE: Final = 2

Guard = Callable[[], AbstractContextManager[None]]
"""Turns the store's errors into ours."""


class ObjectReader(io.RawIOBase):
    """Random access to one object; a few blocks of it are in memory."""

    def __init__(self, store: "ObjectStore", key: str, guard: Guard) -> None:
        """Look how long the object is. Raises: FileNotFoundError."""
        import obstore

        super().__init__()
        self._store, self._key, self._guard = store, key, guard
        with guard():
            self._size = int(obstore.head(store, key)["size"])
        self._position = 0
        self._blocks: OrderedDict[int, memoryview] = OrderedDict()

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def size(self) -> int:
        """Length of the object; Arrow asks for it."""
        return self._size

    def tell(self) -> int:
        """Where the next read starts."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move there, and say where that is."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes; negative or None: all that are left."""
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        start, end = self._position, self._position + wanted
        self._position = end
        if not wanted:
            return b""
        numbers = range(start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES + 1)
        if len(numbers) > KEPT_BLOCKS:  # a read of that size would only push everything else out
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
        while len(self._blocks) > KEPT_BLOCKS:
            self._blocks.popitem(last=False)

    def _fetched(self, bounds: list[tuple[int, int]]) -> list[memoryview]:
        """Bytes of each [start, end), asked for at once."""
        import obstore

        if not bounds:
            return []
        starts, ends = zip(*bounds, strict=True)
        with self._guard():
            return [memoryview(part) for part in obstore.get_ranges(self._store, self._key, starts=starts, ends=ends)]


class ObjectWriter(io.RawIOBase):
    """A new object, uploaded in parts while it is written; it appears whole, when it is closed."""

    def __init__(self, store: "ObjectStore", key: str, guard: Guard) -> None:
        """Nothing is sent before the first part is full."""
        import obstore

        super().__init__()
        self._guard = guard
        self._position = 0
        self._upload = obstore.open_writer(store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def writable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, body: Any, /) -> int:
        """Take bytes over. Raises: UnavailableError."""
        view = memoryview(body).cast("B")
        with self._guard():
            self._upload.write(view)
        self._position += len(view)
        return len(view)

    def flush(self) -> None:
        """Parts leave when they are full; a smaller one would be refused."""

    def close(self) -> None:
        """Finish the upload: then the object is there. Raises: UnavailableError."""
        if not self.closed:
            try:
                with self._guard():
                    self._upload.close()
            finally:
                super().close()
