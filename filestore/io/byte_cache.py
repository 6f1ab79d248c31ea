"""What was made once and never changes, kept up to a number of bytes; what was used longest ago goes first."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, Generic, TypeVar

_V = TypeVar("_V")

DEFAULT_BYTES: Final = 128 << 20


class ByteCache(Generic[_V]):
    """May be used by several threads."""

    def __init__(
        self, most_bytes: int = DEFAULT_BYTES, *, size_of: Callable[[Any], int], keeps_newest: bool = False
    ) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: of all values together.
            size_of: bytes of a value in memory, an estimate.
            keeps_newest: whether a value that is larger than all may be is kept, alone, until the next one comes.
        """
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._keeps_newest = keeps_newest
        self._known: OrderedDict[Hashable, tuple[_V, int]] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._known)

    def find(self, key: Hashable) -> _V | None:
        """What is kept by a key; it counts as used."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                return None
            self._known.move_to_end(key)
            return known[0]

    def get(self, key: Hashable, make: Callable[[], _V]) -> _V:
        """What is kept by a key; else it is made, outside of any lock, and kept unless it is None."""
        known = self.find(key)
        if known is not None:
            return known
        made = make()
        return made if made is None else self.keep(key, made)

    def keep(self, key: Hashable, value: _V) -> _V:
        """Keep a value, in the place of one by that key, and return it."""
        size_bytes = self._size_of(value)
        if size_bytes > self._most_bytes and not self._keeps_newest:
            return value
        with self._lock:
            self._drop(key)
            self._known[key] = value, size_bytes
            self.size_bytes += size_bytes
            while self.size_bytes > self._most_bytes and len(self._known) > 1:
                self.size_bytes -= self._known.popitem(last=False)[1][1]
        return value

    def drop(self, key: Hashable) -> None:
        """Keep no value by this key."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._known.clear()
            self.size_bytes = 0

    def _drop(self, key: Hashable) -> None:
        self.size_bytes -= self._known.pop(key, (None, 0))[1]
