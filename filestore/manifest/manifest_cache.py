"""Decoded manifests by name, up to a number of bytes; the one used longest ago goes first. Manifests never change."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, Protocol, TypeVar


class Sized(Protocol):
    """Something decoded."""

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""


T = TypeVar("T", bound=Sized)

DEFAULT_BYTES: Final = 128 << 20


class ManifestCache:
    """May be used by several threads."""

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def get(self, name: Hashable, read: Callable[[], T]) -> T:
        """What is known by a name; else it is read, and kept unless it alone is too large."""
        with self._lock:
            known: T | None = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
                return known
        found = read()
        if found.size_bytes <= self._most_bytes:
            with self._lock:
                before = self._known.pop(name, None)
                self._known[name] = found
                self.size_bytes += found.size_bytes - (0 if before is None else before.size_bytes)
                while self.size_bytes > self._most_bytes:
                    self.size_bytes -= self._known.popitem(last=False)[1].size_bytes
        return found
