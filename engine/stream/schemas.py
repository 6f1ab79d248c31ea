"""Schema changes while a stream runs: the stream keeps its own columns where they can still represent the rows.

Spark fixes the columns of a frame when the query starts. Before a batch is planned, this module decides whether newer
rows can be shown with them (``filestore.evolution.crossing``). Tasks handle the rest: files name the schema version
they were written with, and records of the log name their columns.
"""

import logging

from engine.stream.options import StreamOptions
from filestore.evolution.crossing import Crossing, crossing
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.stream")


class SchemaWatch:
    """Checks every version of a schema once."""

    def __init__(self, options: StreamOptions) -> None:
        self._table = options.table
        self._columns = options.columns
        self._drops_as_null = options.drops_as_null
        self._newest = options.table.store.schema  # the newest version that the stream can cross to

    @property
    def newest(self) -> TableSchema:
        """The newest version at the last check."""
        return self._newest

    def check(self) -> TableSchema:
        """Check the newest schema version, and return it. A new one is read once, and its changes are logged.

        Raises:
            InvalidInputError: the stream's columns can no longer represent the rows. Names them and the fix.
        """
        ids = self._table.store.schemas.ids()
        if not ids or ids[-1] == self._newest.id:
            return self._newest
        stored = self._table.store.schemas.read(ids[-1])
        newest = seen_schema(stored)
        found = crossing(self._table.schema, newest, self._columns)
        known_id = self._table.schema.id
        dropped = () if self._drops_as_null else found.dropped
        if found.refused or dropped:
            reasons = [*found.refused, *(f"column={name} reason='it was dropped'" for name in dropped)]
            fix = "restart the query, it continues from here with the new columns"
            if dropped and not found.refused:
                fix += "; or set read.stream.on-dropped-column=null: null from now on"
            raise InvalidInputError(
                f"the table's schema changed: table={self._table.name} {'; '.join(reasons)} schema={newest.id} "
                f"stream_schema={known_id} fix={fix}"
            )
        self._newest = stored
        facts = _facts(found)
        if facts:
            logger.warning(
                "the table's schema changed, the stream continues with its own columns: table=%s schema=%d "
                "stream_schema=%d %s",
                self._table.name, newest.id, known_id, facts,
            )  # fmt: skip
        return stored


def _facts(found: Crossing) -> str:
    """The changes for the log message, '' when there are none."""
    parts = {
        "not_delivered_until_restart": found.added,
        "renamed": found.renamed,
        "widened_and_checked": found.widened,
        "dropped_and_null": found.dropped,
    }
    return " ".join(f"{name}=[{', '.join(texts)}]" for name, texts in parts.items() if texts)
