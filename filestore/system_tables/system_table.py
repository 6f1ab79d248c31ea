"""What a system table is: a name, columns, and a function from an opened table to rows."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from filestore.predicate.evaluation import filter_mask
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import Predicate
from filestore.schema.schema_store import new_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

TableRows = Callable[[TableStore, Snapshot | None], pa.Table]
"""The rows of a table at a snapshot; None: nothing was committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """A table about a table. It is computed when it is read, and nothing is stored for it."""

    name: str  # behind the dollar sign
    doc: str  # one line
    schema: pa.Schema
    rows: TableRows

    def read(
        self, store: TableStore, filter: Predicate | str | None = None, snapshot: Snapshot | None = None
    ) -> pa.Table:
        """The rows now.

        Args:
            store: the opened table, of the branch that is meant.
            filter: on the columns of the system table, as SQL text or parsed.
            snapshot: what the tables of files speak of; None is the newest. Tables of the history show all of it.

        Raises:
            InvalidInputError: a filter that cannot be read.
            CorruptDataError: metadata of the table is broken.
        """
        predicate = self.parsed(filter)
        rows = self.rows(store, snapshot or store.snapshots.latest()).cast(self.schema)
        return rows if predicate is None else matching(rows, predicate)

    def parsed(self, filter: Predicate | str | None) -> Predicate | None:
        """A filter on the columns. Raises: InvalidInputError pointing at the place that cannot be read."""
        return parse_filter(filter, new_schema(self.schema, time_ms=0)) if isinstance(filter, str) else filter


def matching(rows: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows for which a filter is true."""
    kept = [batch.filter(filter_mask(predicate, batch)) for batch in rows.to_batches()]
    return pa.Table.from_batches(kept, rows.schema)


def instants(times_ms: list[int | None]) -> pa.Array:
    """Epoch milliseconds as points in time."""
    return pa.array(times_ms, INSTANT)


INSTANT = pa.timestamp("ms", tz="UTC")
"""A point in time. Spark shows it in the session's time zone."""
LOCAL_TIME = pa.timestamp("ms")
"""What a writer's clock on the wall showed: how Paimon keeps the creation times of files."""
