"""The merge function of counted (multiset) tables: sums the multiplicities of equal rows."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.keys.key_groups import one_chunk, row_kinds, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import VALUE_KIND, VALUE_KIND_FIELD, RowKind, repeated_kind

ROW_COUNT: Final = "_row_count"
"""The count column: BIGINT NOT NULL. Counts of retracts, which other engines may write, are subtracted."""


@dataclass(frozen=True, slots=True)
class RowCountSum:
    """The newest row of every key with the sum of all counts; with a sum of 0 the key is deleted and may be dropped."""

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """One row per key; see MergeFunction."""
        firsts = np.flatnonzero(starts)
        if len(firsts) == 0:
            return rows.slice(0, 0)
        newest = order[np.append(firsts[1:], len(order)) - 1]
        sums = np.add.reduceat(_signed_counts(rows)[order], firsts)
        if drop_deletes:
            kept = sums != 0
            newest, sums = newest[kept], sums[kept]
        return _with_counts(take_rows(rows, newest), sums)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The result for rows with unique keys."""
        counts = _signed_counts(rows)
        if drop_deletes and not counts.all():
            kept = counts != 0
            rows, counts = rows.filter(pa.array(kept)), counts[kept]
        return _with_counts(rows, counts) if row_kinds(rows).any() else rows

    def settled(self, rows: pa.Table) -> pa.Table:
        """The rows; counts of 0 are rows too."""
        return self.single(rows, drop_deletes=False)


def _signed_counts(rows: pa.Table) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = one_chunk(rows.column(ROW_COUNT)).to_numpy()
    retracts = row_kinds(rows) & 1
    return np.where(retracts, -counts, counts) if retracts.any() else counts


def _with_counts(rows: pa.Table, counts: NDArray[np.int64]) -> pa.Table:
    """The rows as inserts with these counts."""
    index = rows.schema.get_field_index(ROW_COUNT)
    rows = rows.set_column(index, rows.schema.field(index), pa.array(counts))
    kinds = repeated_kind(RowKind.INSERT, len(rows))
    return rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND_FIELD, kinds)
