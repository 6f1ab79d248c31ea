"""The catalog's lock as a row of a SQL database, held by the process that inserts it. The table is Paimon's.

A holder that dies leaves its row; after ``lock-acquire-timeout`` others remove it. So the lock bounds the life of its
holder too: a commit that is held up for longer may meet another one, and then only a store with conditional writes
keeps them apart.
Source: Paimon JdbcCatalogLock.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from filestore.catalog.sql_database import LOCKS, SqlDatabase
from filestore.io.file_io import Clock
from lsm.errors import UnavailableError

logger = logging.getLogger("fluvial.sql_lock")

T = TypeVar("T")
_FIRST_SLEEP_MS: Final = 10
_GROWTH: Final = 1.5
# By the database's own clock, in seconds.
_AGE: Final = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "EXTRACT(EPOCH FROM (LOCALTIMESTAMP - acquired_at))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLockFactory:
    """``commit.lock=jdbc``."""

    database: SqlDatabase
    catalog_key: str
    clock: Clock
    timeout_ms: int
    longest_sleep_ms: int
    directory: str | None = None  # name of the table's; None: it has the table's name

    def of_directory(self, path: str) -> "SqlLockFactory":
        """The lock of the table in a directory: writers that know it by different names exclude each other."""
        return replace(self, directory=path.rpartition("/")[2])

    def create(self) -> "SqlLock":
        """A new lock; nothing is asked yet."""
        return SqlLock(self)


class SqlLock:
    """A row of ``paimon_distributed_locks``."""

    def __init__(self, settings: SqlLockFactory) -> None:
        """See the settings."""
        self._settings = settings

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock, and return its result. Raises: UnavailableError: it did not run."""
        lock_id = f"{self._settings.catalog_key}.{database}.{self._settings.directory or table}"
        acquired_at = self._acquired(lock_id)
        try:
            return action()
        finally:
            self._release(lock_id, acquired_at)

    def close(self) -> None:
        """Nothing is held between two runs."""

    def _release(self, lock_id: str, acquired_at: str) -> None:
        """Give the row back. Failing is logged, not raised: the action is done, and others only wait longer."""
        # By its time too: after the timeout the row may be another holder's.
        held_here = sa.and_(LOCKS.c.lock_id == lock_id, _time_text() == acquired_at)
        try:
            with self._settings.database.transaction("release the lock") as connection:
                connection.execute(sa.delete(LOCKS).where(held_here))
        except UnavailableError as error:
            logger.warning("lock not released, it ends by itself: lock=%s error=%s", lock_id, error)

    def _acquired(self, lock_id: str) -> str:
        clock, sleep_ms = self._settings.clock, float(_FIRST_SLEEP_MS)
        deadline_ms = clock.now_ms() + self._settings.timeout_ms
        while True:
            acquired_at = self._tried(lock_id)
            if acquired_at is not None:
                return acquired_at
            if clock.now_ms() > deadline_ms:
                raise UnavailableError(
                    f"lock is held by another writer, nothing was published: lock={lock_id} "
                    f"waited_ms={self._settings.timeout_ms} database={self._settings.database.shown} "
                    "fix='look for a writer that hangs, or raise lock-acquire-timeout'"
                )
            clock.sleep(min(sleep_ms, self._settings.longest_sleep_ms) / 1000)
            sleep_ms *= _GROWTH

    def _tried(self, lock_id: str) -> str | None:
        """When the lock was taken; None when another process has it."""
        settings = self._settings
        is_old = sa.text(f"{_AGE[settings.database.dialect]} > expire_time_seconds")
        row = {"lock_id": lock_id, "expire_time_seconds": settings.timeout_ms // 1000}
        with settings.database.transaction("take the lock") as connection:
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.lock_id == lock_id, is_old))
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(LOCKS), row)
            except IntegrityError:
                return None
            return str(connection.execute(sa.select(_time_text()).where(LOCKS.c.lock_id == lock_id)).scalar_one())


def _time_text() -> sa.ColumnElement[str]:
    """When the lock was taken, as the database writes it: nothing is rounded."""
    return sa.cast(LOCKS.c.acquired_at, sa.String)
