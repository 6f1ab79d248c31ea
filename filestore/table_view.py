"""The view of a stored table for users."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from filestore.options.table_options import TableOptions
from filestore.schema.row_counts import RowCounts, seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore


@dataclass(frozen=True)
class TableView:
    """The users' columns, key and options over a store; it can be pickled.

    They are the stored ones except of a table that counts its rows: its files have a hash as key and a count, which
    users do not see.
    """

    store: TableStore

    def __getstate__(self) -> Mapping[str, Any]:
        """The store only: what is cached is cheap to make again."""
        return {"store": self.store}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the store."""
        self.__dict__.update(state)

    @property
    def name(self) -> str:
        """``db.table`` or ``db.table$branch_b``, for messages."""
        return self.store.name

    @cached_property
    def schema(self) -> TableSchema:
        """The users' schema."""
        return seen_schema(self.store.schema)

    @cached_property
    def options(self) -> TableOptions:
        """The options in force, without those that a counted table is stored with."""
        return self.store.options if self.row_counts is None else self.schema.table_options

    @cached_property
    def row_counts(self) -> RowCounts | None:
        """How users' rows become stored rows; None: they are the same."""
        stored = self.store.schema
        return None if self.schema is stored else RowCounts(stored, self.schema)

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The same table with other options in force; nothing is stored."""
        return replace(self, store=self.store.with_options(options))

    def with_id_columns(self) -> Self:
        """The same table for reads that return row ids, see ``TableStore.with_id_columns``."""
        return replace(self, store=self.store.with_id_columns())

    def at_schema(self, schema_id: int) -> Self:
        """The same table with another version of its schema; today's options stay in force."""
        return replace(self, store=self.store.at_schema(schema_id))

    def at_version(self, schema_id: int) -> Self:
        """The same table opened at another version of its schema, see ``TableStore.at_version``."""
        return replace(self, store=self.store.at_version(schema_id))
