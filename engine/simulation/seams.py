"""The environment of a simulated process: files, a clock and names that report to the scheduler."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from engine.simulation.scheduler import Actor, Fault
from filestore.io.file_io import FileIO, LinksFiles, MovesDirectories
from filestore.io.memory_files import OutputBuffer
from lsm.errors import OutcomeUnknownError, UnavailableError

T = TypeVar("T")

WAS_REFUSED: Final = "was refused"
"""Note of a change of a file that another one had made before."""


class ActorFiles:
    """Files as one actor accesses them: each operation is a seam."""

    def __init__(self, inner: FileIO, actor: Actor, *, pages_listings: bool = False) -> None:
        """Wrap a file system.

        Args:
            inner: the files.
            actor: the process that uses them.
            pages_listings: a listing takes two requests, between which others may change the directory.
        """
        self._inner = inner
        self._actor = actor
        self._pages_listings = pages_listings

    def read_bytes(self, path: str) -> bytes:
        """Implements ``FileIO.read_bytes``."""
        return self._look("read_bytes", path, lambda: self._inner.read_bytes(path))

    def exists(self, path: str) -> bool:
        """Implements ``FileIO.exists``."""
        return self._look("exists", path, lambda: self._inner.exists(path))

    def is_directory(self, path: str) -> bool:
        """Implements ``FileIO.is_directory``."""
        return self._look("is_directory", path, lambda: self._inner.is_directory(path))

    def is_link(self, path: str) -> bool:
        """Implements ``FileIO.is_link``."""
        return self._inner.is_link(path)

    def size_bytes(self, path: str) -> int:
        """Implements ``FileIO.size_bytes``."""
        return self._look("size_bytes", path, lambda: self._inner.size_bytes(path))

    def modified_ms(self, path: str) -> int:
        """Implements ``FileIO.modified_ms``."""
        return self._look("modified_ms", path, lambda: self._inner.modified_ms(path))

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """Implements ``FileIO.stamp``."""
        return self._look("stamp", path, lambda: self._inner.stamp(path))

    def list_names(self, directory: str) -> list[str]:
        """Implements ``FileIO.list_names``."""
        names = self._look("list_names", directory, lambda: self._inner.list_names(directory))
        if not self._pages_listings or len(names) < 2:
            return names
        first = names[: len(names) // 2]
        rest = self._look("list_names", directory, lambda: self._inner.list_names(directory))
        return [*first, *(name for name in rest if name > first[-1])]

    def make_directory(self, path: str) -> None:
        """Implements ``FileIO.make_directory``."""
        self._change("make_directory", path, lambda: self._inner.make_directory(path))

    def write_new(self, path: str, body: bytes) -> None:
        """Implements ``FileIO.write_new``."""
        self._change("write_new", path, lambda: self._inner.write_new(path, body))

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Implements ``FileIO.create_exclusive``."""

        def create() -> bool:
            won: bool = self._inner.create_exclusive(path, body)
            if won:
                self._actor.created.append((self._actor.scheduler.step, path, body))
            return won

        return self._change("create_exclusive", path, create, unknown=OutcomeUnknownError)

    def replace(self, path: str, body: bytes) -> None:
        """Implements ``FileIO.replace``."""
        self._change("replace", path, lambda: self._inner.replace(path, body))

    def sync(self, path: str) -> None:
        """Implements ``FileIO.sync``."""
        self._look("sync", path, lambda: self._inner.sync(path))

    def delete(self, path: str) -> None:
        """Implements ``FileIO.delete``."""
        self._change("delete", path, lambda: self._inner.delete(path))

    def delete_tree(self, path: str) -> None:
        """Delete a tree, one entry after the other."""
        for name in self.list_names(path):
            inner = f"{path}/{name}"
            if self._inner.is_directory(inner):
                self.delete_tree(inner)
            else:
                self.delete(inner)
        self._change("delete_empty_directory", path, lambda: self._inner.delete_empty_directory(path))

    def delete_empty_directory(self, path: str) -> bool:
        """Implements ``FileIO.delete_empty_directory``."""
        return self._change("delete_empty_directory", path, lambda: self._inner.delete_empty_directory(path))

    def open_input(self, path: str) -> pa.NativeFile:
        """Implements ``FileIO.open_input``."""
        return self._look("open_input", path, lambda: self._inner.open_input(path))

    def open_output(self, path: str) -> pa.NativeFile:
        """A writer that changes files when it is closed."""
        return pa.PythonFile(OutputBuffer(lambda body: self._put(path, body)), mode="w")

    def _put(self, path: str, body: bytes) -> None:
        def write() -> None:
            with self._inner.open_output(path) as file:
                file.write(body)

        self._change("open_output", path, write)

    def _look(self, operation: str, path: str, look: Callable[[], T]) -> T:
        if self._actor.reach(operation, path, changes=False) is not None:
            raise self._failed(operation, path, UnavailableError)
        return look()

    def _change(
        self, operation: str, path: str, change: Callable[[], T], *, unknown: type[Exception] = UnavailableError
    ) -> T:
        fault = self._actor.reach(operation, path, changes=True)
        if fault is None:
            self._actor.note(operation, path)
            done = change()
            if done is False:
                self._actor.note(WAS_REFUSED, path)
            return done
        if fault is Fault.REFUSED:
            raise self._failed(operation, path, UnavailableError)
        if fault is Fault.LOST_ANSWER:
            self._actor.note(operation, path)
            change()
        if fault is Fault.LATE:
            self._actor.has_late_requests = True
            self._actor.scheduler.send_late(lambda: self._arrive(operation, path, change))
        raise self._failed(operation, path, unknown)

    def _arrive(self, operation: str, path: str, change: Callable[[], object]) -> None:
        self._actor.note("arrives late", path, operation)
        if change() is False:
            self._actor.note(WAS_REFUSED, path)

    def _failed(self, operation: str, path: str, error: type[Exception]) -> Exception:
        self._actor.note("fails at", path, operation)
        return error(f"injected fault: operation={operation} path={path}")


class ActorDisk(ActorFiles):
    """``ActorFiles`` of a file system with renames and links."""

    def move_directory(self, source: str, target: str) -> None:
        """Implements ``MovesDirectories.move_directory``."""
        moves: Any = self._inner
        self._change("move_directory", source, lambda: moves.move_directory(source, target))

    def make_inside(self, path: str) -> bool:
        """Implements ``MovesDirectories.make_inside``."""
        moves: Any = self._inner
        return bool(self._change("make_inside", path, lambda: moves.make_inside(path)))

    def move_into(self, source: str, directory: str) -> bool:
        """Implements ``MovesDirectories.move_into``."""
        moves: Any = self._inner
        return bool(self._change("move_into", source, lambda: moves.move_into(source, directory)))

    def link_file(self, source: str, target: str) -> bool:
        """Implements ``LinksFiles.link_file``."""
        links: Any = self._inner
        return bool(self._change("link_file", target, lambda: links.link_file(source, target)))


def files_of(inner: FileIO, actor: Actor) -> FileIO:
    """The files of an actor, which can do what the wrapped ones can; those of object stores list in pages."""
    if isinstance(inner, MovesDirectories) and isinstance(inner, LinksFiles):
        return ActorDisk(inner, actor)
    return ActorFiles(inner, actor, pages_listings=True)


@dataclass
class SimulatedTime:
    """The time of a history: it moves when an actor reads it, and when one sleeps."""

    ms: int

    def now_ms(self) -> int:
        """Epoch milliseconds, without moving."""
        return self.ms

    def local_ms(self) -> int:
        """As ``now_ms``: the zone is UTC."""
        return self.ms

    def sleep(self, seconds: float) -> None:
        """Move the time."""
        self.ms += max(round(seconds * 1000), 1)


@dataclass(frozen=True, slots=True)
class ActorClock:
    """The clock of an actor; while it sleeps others continue."""

    time: SimulatedTime
    actor: Actor

    def now_ms(self) -> int:
        """Epoch milliseconds; a millisecond later at every call."""
        self.time.ms += 1
        return self.time.ms

    def local_ms(self) -> int:
        """As ``now_ms``: the zone is UTC."""
        return self.now_ms()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.time.sleep(seconds)
        self.actor.rest()


@dataclass(slots=True)
class ActorNames:
    """Names of an actor: the same in each run, and different from those of all other actors."""

    actor: int
    given: int = field(default=0)

    def uuid(self) -> str:
        """36 characters, lower case, with dashes."""
        self.given += 1
        return f"{self.actor:08d}-0000-4000-8000-{self.given:012d}"


def is_name_of(actor: int, uuid: str) -> bool:
    """Whether an actor gave this name, in its present process or an earlier one."""
    return uuid.startswith(f"{actor:08d}-")
