"""The difference of two states of a table as Python users get it: rows with their kinds, and counts by column."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from engine.read.tools.arrow_rows import ArrowStream
from engine.types.rows import ROW_KIND_COLUMN
from filestore.diff.columns import ColumnChange
from filestore.diff.table_diff import DiffSummary, TableDiff, summarized
from lsm.row_kind import ROW_KIND_SYMBOLS


class Difference(ArrowStream):
    """The changes that turn the rows of one state into the rows of another. Can be iterated several times."""

    def __init__(self, found: TableDiff) -> None:
        """Made by ``Table.diff``."""
        self._found = found

    def __repr__(self) -> str:
        found = self._found
        before = "the empty table" if found.before is None else f"snapshot {found.before.id}"
        return f"Difference({found.table.name!r}, {before} to snapshot {found.after.id})"

    @property
    def columns(self) -> tuple[ColumnChange, ...]:
        """The columns that differ between the states; ``str`` of a column change is a line of text."""
        return self._found.columns

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns of the later state, then ``_row_kind``."""
        return self._found.table.schema.arrow_schema.append(pa.field(ROW_KIND_COLUMN, pa.string(), nullable=False))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The changes (``+I -U +U -D``), bucket by bucket in key order, without the rows that are equal."""
        for rows, kinds in self._found.changes():
            texts = ROW_KIND_SYMBOLS.take(pa.array(np.asarray(kinds)))
            yield pa.RecordBatch.from_arrays([*rows.columns, texts], schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The changes, batch by batch, to be read once; nothing is compared before the first batch."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The changes, in memory; see ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def summary(self) -> DiffSummary:
        """Counts of inserted, deleted and updated rows, and of updated values by column. Reads all changes."""
        return summarized(self._found)
