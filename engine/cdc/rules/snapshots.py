"""Finds the offset at which a connector begins to publish all rows of a source table: pure.

A connector that ends before it has noted a position begins with a new snapshot, also in the middle of one, and so does
one whose ``snapshot.mode`` says it. What it published of the table before is then part of the snapshot, or gone.

Source: Debezium 3.4, ``RelationalSnapshotChangeEventSource``: the first and the last row of a table are marked, and a
single row as the last one; all rows of a snapshot have the place in the database's log at which it looks.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logstore.json.arrow_bytes import flags

NOT_IN_SNAPSHOT: Final = ""
"""The place of a change, and of what follows the last row of a snapshot."""
AWAITED: Final = "awaited"
"""The place where a snapshot follows that has replaced all rows of the table already."""
_NO_ROWS: Final = pa.array(["false", "incremental", None], pa.string())
_FIRST: Final = pa.array(["first", "first_in_data_collection"])
_LAST: Final = pa.array(["last", "last_in_data_collection"])


@dataclass(slots=True)
class RowsOfSnapshots:
    """The snapshots' rows of a source table in a range, which grow with its records."""

    begins: list[int] = field(default_factory=list)  # offsets of first rows, whatever preceded the range
    opening: tuple[int, str] | None = None  # offset and place of the range's first record, if it may be a first row
    place: str | None = None  # behind the last record; None: there are no records

    def add(self, meta: pa.StructArray, offsets: NDArray[np.int64]) -> None:
        """Add records behind those that are known, (n,) of ``META`` and their offsets."""
        source = pc.struct_field(meta, "source")
        marks = pc.struct_field(source, "snapshot")
        is_row = ~flags(pc.is_in(marks, _NO_ROWS))
        if not is_row.any():
            self.place = NOT_IN_SNAPSHOT
            return
        is_first, is_last = (flags(pc.is_in(marks, value_set=each)) for each in (_FIRST, _LAST))
        places = pc.if_else(pa.array(is_row), _places(source), NOT_IN_SNAPSHOT)
        after = pc.if_else(pa.array(is_last), NOT_IN_SNAPSHOT, places)
        before = pa.concat_arrays([pa.array([self.place], pa.string()), after[:-1]])
        begins = is_row & (is_first | flags(pc.fill_null(pc.not_equal(places, before), False)))
        if self.place is None and is_row[0] and not begins[0]:
            self.opening = int(offsets[0]), places[0].as_py()
        self.begins += offsets[begins].tolist()
        self.place = after[-1].as_py()

    def begin(self, before: str | None) -> int | None:
        """The offset of the newest first row; None: the rows belong to a snapshot that began before, or are none.

        Args:
            before: the place behind the record that precedes the range; None: it is not known.
        """
        begins = self.begins[1:] if before == AWAITED and self.opening is None else self.begins
        if begins:
            return begins[-1]
        if self.opening is None or before in (None, AWAITED, self.opening[1]):
            return None
        return self.opening[0]


def _places(source: pa.StructArray) -> pa.Array:
    """(n,) string: PostgreSQL's ``lsn``, or file and position of a binary log; ``?`` for other connectors."""
    numbers = pc.struct_field(source, "lsn").cast(pa.string())
    positions = pc.struct_field(source, "pos").cast(pa.string())
    return pc.coalesce(numbers, pc.binary_join_element_wise(pc.struct_field(source, "file"), positions, ":"), "?")
