"""A table's entry in a Hive metastore, kept up to date by the writers that change its schema or commit to it.

What the metastore has is a copy for Hive and other engines that ask only the metastore: where it cannot be reached,
that is logged, and the next change makes up for it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from filestore.catalog.hive_names import HiveNames
from filestore.catalog.hive_tables import registers_partitions
from filestore.layout.branch_names import split_branch
from filestore.manifest.entries import EntryKind
from filestore.scan.snapshot_files import delta_entries, live_files_of_partitions
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from filestore.types.partition_text import partition_text
from lsm.errors import FluvialError

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
