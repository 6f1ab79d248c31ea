"""A lock around the publication of a snapshot, for storage without exclusive file creation.

A local directory does not need it, since exclusive creation is safe there. On an object store without it, or a file
system without hard links, publishers must exclude each other. Source: FLIP-188, "Catalog lock"; Paimon CatalogLock.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from filestore.io.file_io import Clock
from lsm.errors import InvalidInputError, UnavailableError
from lsm.retry import pauses
from lsm.undo import undoing

LOCK_FILE_NAME: Final = ".commit.lock"
# Source: Paimon's lock-acquire-timeout and lock-check-max-sleep.
ACQUIRE_TIMEOUT_MS: Final = 480_000
_FIRST_POLL_S: Final = 0.001
_MAX_POLL_S: Final = 0.1

T = TypeVar("T")


class CatalogLock(Protocol):
    """Mutual exclusion of the publishers of a table."""

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock of this table, and return or raise its result.

        Raises: UnavailableError when the lock cannot be acquired; then the action did not run.
        """

    def close(self) -> None:
        """Release the lock's resources. It must not be used afterwards."""


class CatalogLockFactory(Protocol):
    """Creates locks where they are used. Must be picklable, since it is sent with the table."""

    def create(self) -> CatalogLock:
        """A new lock, to be closed by the caller."""


@runtime_checkable
class LocksDirectories(Protocol):
    """A factory whose locks are those of directories, whatever name a table was opened under."""

    def of_directory(self, path: str) -> CatalogLockFactory:
        """The factory for the table in a directory. Its locks are those that Java takes for the name of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLock:
    """The lock of one table, created for each use."""

    factory: CatalogLockFactory
    table: str  # "db.table"

    def run(self, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock. Raises: UnavailableError when the action did not run."""
        database, _, table = self.table.rpartition(".")
        with closing(self.factory.create()) as lock:
            return lock.run_with_lock(database, table, action)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLockFactory:
    """``commit.lock=file``: locks a file in the table's directory, whatever name the table was opened under."""

    directory: str
    clock: Clock
    timeout_ms: int = ACQUIRE_TIMEOUT_MS

    def create(self) -> "FileLock":
        """A new lock; opens no file yet."""
        return FileLock(f"{self.directory}/{LOCK_FILE_NAME}", self.clock, timeout_ms=self.timeout_ms)


class FileLock:
    """``flock(2)``: held by one open file at a time, across processes; released by the system when its holder dies.

    The file is never removed: otherwise two holders could lock different files of the same name.
    """

    def __init__(self, path: str, clock: Clock, *, timeout_ms: int = ACQUIRE_TIMEOUT_MS) -> None:
        """The directory of ``path`` must exist."""
        self._path = path
        self._clock = clock
        self._timeout_ms = timeout_ms

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock. Raises: UnavailableError when it did not run."""
        descriptor = self._acquire(f"{database}.{table}")
        try:
            return action()
        finally:
            # Unlock explicitly: a process forked in the meantime may have the file open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def close(self) -> None:
        """Nothing to release between runs."""

    def _acquire(self, table: str) -> int:
        deadline_ms, waits_s = self._clock.now_ms() + self._timeout_ms, pauses(_FIRST_POLL_S, _MAX_POLL_S)
        while True:
            try:
                descriptor = self._try_acquire()
            except OSError as error:
                raise UnavailableError(
                    f"lock cannot be acquired, nothing was published: table={table} file={self._path} error={error}"
                ) from error
            if descriptor is not None:
                return descriptor
            if self._clock.now_ms() > deadline_ms:
                raise UnavailableError(
                    f"lock is held by another writer, nothing was published: table={table} file={self._path} "
                    f"waited_ms={self._timeout_ms} fix='look for a writer that hangs'"
                )
            self._clock.sleep(next(waits_s))

    def _try_acquire(self) -> int | None:
        """The locked file; None when another holder has it, or it was deleted with its table before it was locked."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise InvalidInputError(
                f"the lock of a table is a link, which no writer makes: file={self._path} "
                "option=commit.lock value=file fix='look who made it, and delete it'"
            ) from error
        with undoing(lambda: os.close(descriptor)), suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                return descriptor
        os.close(descriptor)
        return None


def table_lock(
    commit_lock: str, *, given: CatalogLockFactory | None, table: str, root: str, clock: Clock
) -> TableLock | None:
    """The lock that guards the snapshots of a table; None when exclusive file creation suffices.

    Args:
        commit_lock: value of the option ``commit.lock``.
        given: factory of the catalog, used by ``auto`` and ``jdbc``.
        table: ``db.table``.
        root: directory of the table.
        clock: clock for waiting.
    """
    if commit_lock == "file":
        return TableLock(factory=FileLockFactory(directory=root, clock=clock), table=table)
    if given is None or commit_lock not in ("auto", "jdbc"):
        return None
    return TableLock(factory=given.of_directory(root) if isinstance(given, LocksDirectories) else given, table=table)


def check_commit_lock(
    commit_lock: str, *, given: CatalogLockFactory | None, in_object_store: bool, is_remote: bool = False
) -> None:
    """Refuse a commit lock that the storage of the table does not support.

    Raises: InvalidInputError listing the supported ones.
    """
    place = "an object store" if in_object_store else "HDFS" if is_remote else "a local directory"
    ways = ["auto", "conditional-put"] if in_object_store else ["auto", "rename", *([] if is_remote else ["file"])]
    if commit_lock not in (ways if given is None else [*ways, "jdbc"]):
        raise InvalidInputError(
            f"commit lock is not supported in {place}: commit.lock={commit_lock} "
            f"fix='use {', '.join(ways[:-1])} or {ways[-1]}'"
            + (" (jdbc is for catalogs with metastore=jdbc)" if commit_lock == "jdbc" else "")
        )
