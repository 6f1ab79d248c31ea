"""A file system in memory and one that fails on purpose, with a clock and names that a test controls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

from filestore.io.file_io import FileIO, LocalFileIO
from filestore.io.memory_files import FileTree, MemoryObjects
from lsm.errors import OutcomeUnknownError, UnavailableError


class MemoryFileIO(MemoryObjects):
    """Files as a dictionary, which tests may change; directories exist as long as a file is below them."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_plain = name == "files" and not isinstance(value, FileTree)
        super().__setattr__(name, FileTree(value, keeps_directories=False) if is_plain else value)


class When(Enum):
    """How an operation fails."""

    BEFORE = "before"  # nothing happened
    AFTER = "after"  # it happened, and the answer got lost
    UNSURE = "unsure"  # nothing happened, but nobody can know


@dataclass
class FaultyFileIO:
    """Passes everything on to another file system, but fails one operation, counted from 1."""

    inner: FileIO
    fail_at: int = 0  # 0: never
    when: When = When.BEFORE
    calls: int = 0
    log: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self.inner, name)
        if name in _NO_ACCESS:
            return operation  # type: ignore[no-any-return]

        def call(*arguments: Any) -> Any:
            self.calls += 1
            self.log.append(f"{name} {arguments[0]}")
            if self.calls != self.fail_at:
                return operation(*arguments)
            if self.when is When.AFTER:
                operation(*arguments)
            raise self._error(name)(f"injected fault: operation={name} call={self.calls} path={arguments[0]}")

        return call

    def _error(self, name: str) -> type[Exception]:
        is_unsure = name == "create_exclusive" and self.when is not When.BEFORE
        return OutcomeUnknownError if is_unsure else UnavailableError


_NO_ACCESS = frozenset({"is_link"})
"""What no store is asked: there are links on disks only, where the process has them at hand."""
_CHANGING = frozenset({"create_exclusive", "delete", "delete_tree", "open_output", "replace", "write_new"})


def fail_points(clean: FaultyFileIO, when: When) -> list[int]:
    """Where to fail so that every state of the disk is met once, and every error: after a mere look is before the next.

    Args:
        clean: has run without a fault.
        when: before or after an operation takes effect.
    """
    names = (line.split(" ", 1)[0] for line in clean.log)
    return [call for call, name in enumerate(names, 1) if when is When.BEFORE or name in _CHANGING]


@dataclass
class ManualClock:
    """Time moves only when somebody sleeps, and by a millisecond with every look."""

    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def local_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


class CountedNames:
    """Names that are new within one test, and the same in every run."""

    def __init__(self) -> None:
        self._numbers = count()

    def uuid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._numbers):012d}"

    def __copy__(self) -> "CountedNames":
        other = CountedNames()
        other._numbers = copy(self._numbers)
        return other


class Disks:
    """Contents of disks in memory, each once.

    The calls behind a fault see nothing of it but the disk, and a fault at a mere look leaves the disk of the fault
    before it. So a sweep makes every operation fail, and goes on from every disk that this leaves.
    """

    def __init__(self) -> None:
        self._known: set[object] = set()

    def is_new(self, io: FileIO, *more: object) -> bool:
        """Whether no disk was like this one, where ``more`` was the same: what else is checked of the fault."""
        known = frozenset(io.files.items()), more  # type: ignore[attr-defined]
        is_new = known not in self._known
        self._known.add(known)
        return is_new


class WithoutMoves:
    """A disk that moves no directories, as object stores do not. It can be pickled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("move_directory", "make_inside", "move_into"):
            raise AttributeError(name)
        return getattr(LocalFileIO(), name)


@contextmanager
def paused_before(inner: FileIO, operation: str, action: Callable[[], None]) -> Iterator[FileIO]:
    """A file system that runs ``action`` once, right before the first ``operation``: a race with a known winner."""
    yield Nth(inner, 1, action, of=(operation,))  # type: ignore[misc]


class Nth:
    """A file system that runs an action right before the n-th operation of some kinds; None: of all."""

    def __init__(self, inner: object, nth: int, action: Callable[[], None], of: tuple[str, ...] | None = None) -> None:
        self.inner, self.left, self.action, self.of = inner, nth, action, of

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation: Callable[..., Any] = getattr(self.inner, name)
        if name in _NO_ACCESS:
            return operation

        def call(*arguments: Any) -> Any:
            if self.of is None or name in self.of:
                self.left -= 1
                if self.left == 0:
                    self.action()
            return operation(*arguments)

        return call
