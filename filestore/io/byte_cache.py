"""A cache of immutable values, up to a number of bytes; the least recently used value is evicted first."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, Generic, TypeVar

_V = TypeVar("_V")

DEFAULT_BYTES: Final = 128 << 20


class ByteCache(Generic[_V]):
    """May be used by several threads."""

    def __init__(
        self,
        most_bytes: int = DEFAULT_BYTES,
        *,
        size_of: Callable[[Any], int],
        keeps_newest: bool = False,
        idle_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: of all values together.
            size_of: bytes of a value in memory, an estimate.
            keeps_newest: whether a value that is larger than all may be is kept, alone, until the next one comes.
            idle_s: what has not been used for so long goes when another value comes.
            clock: seconds.
        """
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._keeps_newest = keeps_newest
        self._idle_s = idle_s
        self._clock = clock
        self._known: OrderedDict[Hashable, tuple[_V, int, float]] = OrderedDict()  # value, bytes, last use
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
            self._known[key] = known[0], known[1], self._clock()
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
            now_s = self._clock()
            self._known[key] = value, size_bytes, now_s
            self.size_bytes += size_bytes
            while len(self._known) > 1 and (self.size_bytes > self._most_bytes or self._is_idle(now_s)):
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

    def _is_idle(self, now_s: float) -> bool:
        return now_s - next(iter(self._known.values()))[2] > self._idle_s

    def _drop(self, key: Hashable) -> None:
        self.size_bytes -= self._known.pop(key, (None, 0, 0.0))[1]
