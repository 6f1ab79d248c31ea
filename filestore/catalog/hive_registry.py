"""A table's entry in a Hive metastore, kept up to date by the writers that change its schema or commit to it; its lock.

What the metastore has is a copy for Hive and other engines that ask only the metastore: where it cannot be reached,
that is logged, and the next change makes up for it.
"""

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Final, TypeVar

from filestore.catalog.hive_metastore import HiveMetastore
from filestore.catalog.hive_names import HiveNames
from filestore.catalog.hive_tables import registers_partitions
from filestore.io.file_io import Clock
from filestore.layout.branch_names import split_branch
from filestore.manifest.entries import EntryKind
from filestore.scan.snapshot_files import delta_entries, live_files_of_partitions
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from filestore.types.partition_text import partition_text
from lsm.errors import FluvialError, UnavailableError
from lsm.undo import undoing

# ---- The catalog's lock as an exclusive lock of a table in a Hive metastore, which Paimon's Hive catalog takes, too
#
# A holder that dies is forgotten by the metastore after its ``hive.txn.timeout`` (five minutes by default). So the
# lock bounds the life of its holder as well: a commit that is held up for longer may meet another one, and then only
# a store with conditional writes keeps them apart. Source: Paimon HiveCatalogLock.


T = TypeVar("T")
_FIRST_SLEEP_MS: Final = 50
_GROWTH: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveLockFactory:
    """Locks of one metastore."""

    metastore: HiveMetastore
    user: str
    clock: Clock
    timeout_ms: int
    longest_sleep_ms: int

    def create(self) -> "HiveLock":
        """A new lock; nothing is asked yet."""
        return HiveLock(self)


class HiveLock:
    """An exclusive lock on a table's name."""

    def __init__(self, settings: HiveLockFactory) -> None:
        """See the settings."""
        self._settings = settings

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock, and return its result. Raises: UnavailableError: it did not run."""
        lock_id = self._acquired(database, table)
        try:
            return action()
        finally:
            self._release(lock_id)

    def close(self) -> None:
        """Nothing is held between two runs."""

    def _acquired(self, database: str, table: str) -> int:
        from hive_metastore.ttypes import (
            CheckLockRequest,
            LockComponent,
            LockLevel,
            LockRequest,
            LockState,
            LockType,
            NoSuchLockException,
        )

        settings, metastore = self._settings, self._settings.metastore
        component = LockComponent(
            type=LockType.EXCLUSIVE,
            level=LockLevel.TABLE,
            dbname=database,
            tablename=table,
            operationType=None,  # as from Java: a metastore refuses locks of an operation that is said to be unknown
        )
        request = LockRequest(component=[component], user=settings.user, hostname=socket.gethostname())
        deadline_ms = settings.clock.now_ms() + settings.timeout_ms
        answer = metastore.run("take the lock", lambda client: client.lock(request))
        lock_id, sleep_ms = int(answer.lockid), _FIRST_SLEEP_MS
        with undoing(lambda: self._release(lock_id)):
            while answer.state == LockState.WAITING and settings.clock.now_ms() < deadline_ms:
                sleep_ms = min(_GROWTH * sleep_ms, settings.longest_sleep_ms)
                settings.clock.sleep(sleep_ms / 1000)
                check = CheckLockRequest(lockid=lock_id)
                try:
                    answer = metastore.run("wait for the lock", methodcaller("check_lock", check))
                except UnavailableError as error:
                    if not isinstance(error.__cause__, NoSuchLockException):
                        raise
                    # this process was paused for so long that the metastore has forgotten that it waits
                    answer = metastore.run("take the lock", lambda client: client.lock(request))
                    lock_id = int(answer.lockid)
            if answer.state != LockState.ACQUIRED:
                raise UnavailableError(
                    f"lock is held by another writer, nothing was published: table={database}.{table} "
                    f"waited_ms={settings.timeout_ms} uri={metastore.shown} fix='SHOW LOCKS in Hive names the holder; "
                    "a dead one goes after hive.txn.timeout if the metastore looks for such (housekeeping); or raise "
                    "lock-acquire-timeout'"
                )
        return lock_id

    def _release(self, lock_id: int) -> None:
        """Give the lock back. Failing is logged, not raised: the action is done, and others only wait longer."""
        from hive_metastore.ttypes import UnlockRequest

        unlock = UnlockRequest(lockid=lock_id)
        try:
            self._settings.metastore.run("release the lock", lambda client: client.unlock(unlock))
        except FluvialError as error:
            logger.warning("lock not released, it ends by itself: lock=%d error=%s", lock_id, error)


# ---- A table's entry in a Hive metastore, kept up to date by the writers that change its schema or commit to it


logger = logging.getLogger("fluvial.hive")


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveRegistry:
    """The entries of one metastore. It can be pickled."""

    names: HiveNames

    def schema_changed(self, store: TableStore, before: TableSchema, after: TableSchema) -> None:
        """Copy columns and properties of a table's main branch. Never raises."""
        if store.paths.branch == store.main_branch:
            _logged(store, lambda: self._follow_schema(store, before, after))

    def committed(self, store: TableStore, snapshot: Snapshot) -> None:
        """List partitions that a commit to the main branch made; those that it emptied no more. Never raises."""
        if registers_partitions(store.schema) and store.paths.branch == store.main_branch:
            _logged(store, lambda: self._follow_partitions(store, snapshot))

    def _follow_schema(self, store: TableStore, before: TableSchema, after: TableSchema) -> None:
        database, table = split_branch(store.name)[0].split(".")
        if self._is_entry_of(store, database, table):
            self.names.note_schema(database, table, after, before=before)

    def _is_entry_of(self, store: TableStore, database: str, table: str) -> bool:
        """Whether the name is still that of the table: it may have got another one, and another table this one."""
        return self.names.place(database, table).path == store.paths.root

    def _follow_partitions(self, store: TableStore, snapshot: Snapshot) -> None:
        database, table = split_branch(store.name)[0].split(".")
        if not self._is_entry_of(store, database, table):
            return
        entries = delta_entries(store, snapshot)
        added = {entry.partition for entry in entries if entry.kind is EntryKind.ADD}
        if added:
            listed = [
                (_texts(store, each), store.paths.partition_dir(store.partition_values(each))) for each in sorted(added)
            ]
            self.names.add_partitions(database, table, listed)
        emptied = {entry.partition for entry in entries} - added
        if emptied and snapshot.commit_kind is CommitKind.OVERWRITE:
            emptied -= {entry.partition for entry in live_files_of_partitions(store, snapshot, emptied)}
            self.names.remove_partitions(database, table, [_texts(store, each) for each in sorted(emptied)])


def _texts(store: TableStore, partition: bytes) -> list[str]:
    """The values of a partition, as they stand in the names of its directories."""
    values = store.partition_values(partition)
    fields = store.schema.partition_fields
    return [partition_text(value, field.type, store.options) for value, field in zip(values, fields, strict=True)]


def _logged(store: TableStore, follow: Callable[[], None]) -> None:
    try:
        follow()
    except (FluvialError, OSError) as error:
        logger.warning(
            "Hive metastore is behind: table=%s error=%s fix='the next change of the table makes up for it'",
            store.name,
            error,
        )
