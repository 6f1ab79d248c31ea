"""A lock around the publication of a snapshot, for places where a file cannot be created exclusively.

Source: FLIP-188, "Catalog lock" (FL-93 to FL-95); Paimon CatalogLock. On a local directory nothing needs it: creating a
file exclusively is safe there. On an object store, or a file system without hard links, whoever publishes must be
alone.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from filestore.io.file_io import Clock
from lsm.errors import InvalidInputError, UnavailableError
from lsm.undo import undoing

LOCK_FILE_NAME: Final = ".commit.lock"
# Source: Paimon's lock-acquire-timeout and lock-check-max-sleep.
ACQUIRE_TIMEOUT_MS: Final = 480_000
_LONGEST_LOOK_S: Final = 0.1

T = TypeVar("T")


class CatalogLock(Protocol):
    """Lets one process at a time publish for a table."""

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """What ``action`` returns or raises, run while nobody else holds the lock of this table.

        Raises: UnavailableError when the lock cannot be had; then the action did not run.
        """

    def close(self) -> None:
        """Give back what the lock holds open; it is not used after that."""


class CatalogLockFactory(Protocol):
    """Makes locks where they are used. It must be picklable: it travels with the table."""

    def create(self) -> CatalogLock:
        """A new lock. Close it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLock:
    """The lock of one table, made anew for each use."""

    factory: CatalogLockFactory
    table: str  # "db.table"

    def run(self, action: Callable[[], T]) -> T:
        """What ``action`` returns, run under the lock. Raises: UnavailableError when the action did not run."""
        database, _, table = self.table.rpartition(".")
        with closing(self.factory.create()) as lock:
            return lock.run_with_lock(database, table, action)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLockFactory:
    """``commit.lock=file``: locks on a file inside the table's directory, whatever name the table was opened under."""

    directory: str
    clock: Clock
    timeout_ms: int = ACQUIRE_TIMEOUT_MS

    def create(self) -> "FileLock":
        """A new lock; nothing is opened yet."""
        return FileLock(f"{self.directory}/{LOCK_FILE_NAME}", self.clock, timeout_ms=self.timeout_ms)


class FileLock:
    """``flock(2)``: held by one open file at a time, in one process or many; the system frees it when its holder dies.

    The file stays when the lock is free: removing it would let two holders lock two files of one name.
    """

    def __init__(self, path: str, clock: Clock, *, timeout_ms: int = ACQUIRE_TIMEOUT_MS) -> None:
        """The directory of ``path`` must be there."""
        self._path = path
        self._clock = clock
        self._timeout_ms = timeout_ms

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """What ``action`` returns or raises. Raises: UnavailableError when it did not run."""
        descriptor = self._acquired(f"{database}.{table}")
        try:
            return action()
        finally:
            # Not only closed: a process that was forked meanwhile may have it open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is held between two runs."""

    def _acquired(self, table: str) -> int:
        deadline_ms, wait_s = self._clock.now_ms() + self._timeout_ms, 0.001
        while True:
            try:
                descriptor = self._tried()
            except OSError as error:
                raise UnavailableError(
                    f"lock cannot be had, nothing was published: table={table} file={self._path} error={error}"
                ) from error
            if descriptor is not None:
                return descriptor
            if self._clock.now_ms() > deadline_ms:
                raise UnavailableError(
                    f"lock is held by another writer, nothing was published: table={table} file={self._path} "
                    f"waited_ms={self._timeout_ms} fix='look for a writer that hangs'"
                )
            self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_LOOK_S)

    def _tried(self) -> int | None:
        """The locked file; None when somebody else has it, or removed it with its table before it was locked."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with undoing(lambda: os.close(descriptor)), suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                return descriptor
        os.close(descriptor)
        return None


def table_lock(
    commit_lock: str, *, given: CatalogLockFactory | None, table: str, root: str, clock: Clock
) -> TableLock | None:
    """What guards the snapshots of a table; None when creating a file exclusively is enough.

    Args:
        commit_lock: value of the option ``commit.lock``.
        given: the catalog's factory; ``auto`` and ``jdbc`` use it.
        table: ``db.table``.
        root: directory of the table.
        clock: to wait by.
    """
    if commit_lock == "file":
        return TableLock(factory=FileLockFactory(directory=root, clock=clock), table=table)
    return TableLock(factory=given, table=table) if given is not None and commit_lock in ("auto", "jdbc") else None


def check_commit_lock(commit_lock: str, *, given: CatalogLockFactory | None, in_object_store: bool) -> None:
    """Refuse a way of claiming snapshots that the place of the table does not have.

    Raises: InvalidInputError with the ways there are.
    """
    place = "an object store" if in_object_store else "a local directory"
    ways = ["auto", "conditional-put"] if in_object_store else ["auto", "rename", "file"]
    if commit_lock not in (ways if given is None else [*ways, "jdbc"]):
        raise InvalidInputError(
            f"snapshots in {place} cannot be claimed this way: commit.lock={commit_lock} "
            f"fix='use {', '.join(ways[:-1])} or {ways[-1]}'"
            + (" (jdbc is for catalogs with metastore=jdbc)" if commit_lock == "jdbc" else "")
        )
