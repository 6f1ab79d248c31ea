"""The definition of a system table: a name, columns, and a function from an opened table to rows."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from filestore.predicate.evaluation import filter_mask
from filestore.predicate.given_filter import predicate_of
from filestore.predicate.predicate import Predicate
from filestore.schema.schema_store import new_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

TableRows = Callable[[TableStore, Snapshot | None], pa.Table]
"""The rows for a table at a snapshot; None: nothing was committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """A table of metadata about a table, computed on read, not stored."""

    name: str  # after the dollar sign
    doc: str  # one line
    schema: pa.Schema
    rows: TableRows
    is_of_snapshot: bool = False  # else it shows all of the table's history, or its present state

    def read(
        self, store: TableStore, filter: Predicate | str | None = None, snapshot: Snapshot | None = None
    ) -> pa.Table:
        """Compute the rows.

        Args:
            store: the opened table, on the wanted branch.
            filter: filter on the columns of the system table, as SQL text or parsed.
            snapshot: snapshot for tables of files; None is the newest. Tables of the history show all snapshots.

        Raises:
            InvalidInputError: an invalid filter.
            CorruptDataError: metadata of the table is corrupt.
        """
        predicate = self.parsed(filter)
        rows = self.rows(store, snapshot or store.snapshots.latest()).cast(self.schema)
        return rows if predicate is None else matching(rows, predicate)

    def parsed(self, filter: Predicate | str | None) -> Predicate | None:
        """Parse a filter on the columns. Raises: InvalidInputError showing the position of an error."""
        return predicate_of(filter, new_schema(self.schema, time_ms=0))


def matching(rows: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows that satisfy a predicate."""
    kept = [batch.filter(filter_mask(predicate, batch)) for batch in rows.to_batches()]
    return pa.Table.from_batches(kept, rows.schema)


INSTANT = pa.timestamp("ms", tz="UTC")
"""An instant. Spark shows it in the session's time zone."""
LOCAL_TIME = pa.timestamp("ms")
"""Local wall clock time of the writer, which Paimon stores as creation time of files."""
