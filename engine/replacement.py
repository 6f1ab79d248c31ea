"""A table that takes the place of another one: made and filled beside it, then the names change.

Where two names change at once, there is always one of the two tables, also for a process that dies between two steps:
readers see the old one or the new one. Elsewhere the old one is dropped first. The history, the tags and the branches
of the old one go with it.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.catalog import Catalog
from engine.log.table_log import default_topic
from engine.write.repeating import StaleReadError, check_not_stale
from filestore.options.log_place import TOPIC_KEY
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField
from lsm.errors import FluvialError, InvalidInputError
from lsm.undo import undoing


@dataclass(frozen=True, slots=True, kw_only=True)
class OldState:
    """The state of a table from which rows were computed that replace it."""

    table_id: str  # of any table that has had the name
    snapshot_id: int  # 0: it was empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A name beside the table that is replaced."""

    catalog: Catalog
    name: str  # of the old table
    beside: str  # of the new one, until it is filled
    topic: str  # of the new one's log, unless it is given

    @classmethod
    def of(cls, catalog: Catalog, name: str) -> "Replacement":
        """A free name. Raises: InvalidInputError: the names of two tables cannot change in one step."""
        if not catalog.can_rename_tables:
            raise InvalidInputError(
                f"tables on this storage cannot be replaced in one step: table={name} "
                "fix=TRUNCATE TABLE and INSERT INTO, or DROP TABLE and CREATE TABLE"
            )
        suffix = uuid.uuid4().hex[:8]
        return cls(catalog=catalog, name=name, beside=f"{name}__{suffix}", topic=f"{default_topic(name)}.{suffix}")

    def own_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """What the new table needs beside the options that it is given: a topic that is not the old one's."""
        return {TOPIC_KEY: self.topic} if TOPIC_KEY not in options and self.catalog.has_log(options) else {}

    def finish(self, read: OldState | None = None) -> None:
        """Give the name to the new table, and drop the old one.

        Args:
            read: the state of the old table that the new rows were computed from; None: they were not.

        Raises:
            StaleReadError: others have changed the old table since; it stays, and the new one is dropped.
        """
        with undoing(lambda: self.catalog.drop_table(self.beside)):
            self._check_unchanged(read, self.name)
        if self._is_swapped(read):
            return
        try:
            self.catalog.drop_table(self.name)
        except FluvialError:
            self.catalog.drop_table(self.beside)
            raise
        self.catalog.rename_table(self.beside, self.name)

    def _check_unchanged(self, read: OldState | None, name: str) -> None:
        """Raises: StaleReadError: the old table, under its name of now, is not what the new rows were computed from."""
        if read is None:
            return
        store = self.catalog.table(name).store
        if store.table_id() != read.table_id:
            raise StaleReadError(f"the table was replaced while its rows were read: table={self.name} fix=run it again")
        check_not_stale(store, store.snapshots.latest(), read.snapshot_id)

    def _is_swapped(self, read: OldState | None) -> bool:
        """Swap the two names where that is one step, and drop the old table.

        Returns: False where it is not; nothing is done. Where nothing could be dropped, the names are as they were.
        """
        catalog = self.catalog
        new_id = catalog.table(self.beside).schema.table_uuid

        def drop_new() -> None:
            if catalog.table(self.beside).schema.table_uuid == new_id:  # an answer that got lost may have been a yes
                catalog.drop_table(self.beside)

        with undoing(drop_new):
            if not catalog.swap_tables(self.name, self.beside):
                return False
        try:
            self._check_unchanged(read, self.beside)
            catalog.drop_table(self.beside)
        except FluvialError:
            if catalog.table_exists(self.beside):
                catalog.swap_tables(self.name, self.beside)
                drop_new()
            raise
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTable:
    """The table that a frame is written to."""

    fields: Sequence[DataField]
    primary_key: Sequence[str]
    partition_by: Sequence[str]
    comment: str | None
    options: Mapping[str, str] = field(repr=False)  # may hold a secret

    def is_shape_of(self, schema: TableSchema) -> bool:
        """Whether a table of the same columns, keys and options is wanted: only its rows are replaced then."""
        columns = [(each.name, replace(each.type, nullable=True)) for each in self.fields]
        return (
            columns == [(each.name, replace(each.type, nullable=True)) for each in schema.fields]
            and (*self.primary_key,) == schema.primary_keys
            and (*self.partition_by,) == schema.partition_keys
            and all(schema.options.get(key) == value for key, value in self.options.items())
        )
