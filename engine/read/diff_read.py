"""``incremental-between``: the difference of two states as the rows of a batch read.

Without ``read.changelog`` these are the rows that are new or changed, as they are in the later state; with it all
changes, with their kinds. Source: Paimon's incremental reads with scan mode diff.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.types.rows import ROW_KIND_COLUMN
from filestore.changelog.snapshot_changes import ChangeSplit
from filestore.diff.table_diff import TableDiff, open_diff
from filestore.options.tag_schedule import TagSchedule
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate
from filestore.table import FileTable
from filestore.tag.tags import previous_tag
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind

_NEW: Final = pa.array([RowKind.INSERT, RowKind.UPDATE_AFTER], pa.int8())


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSplit:
    """Changes that one task reads. Picklable."""

    diff: TableDiff
    split: ChangeSplit

    @property
    def row_count(self) -> int:
        """Rows that have to be read."""
        return self.split.row_count


def find_diff(table: FileTable, words: tuple[str, str]) -> TableDiff:
    """The two states. Raises: InvalidInputError when there is none like it."""
    before, after = words
    return open_diff(table, before or _tag_before(table, after), after)


def read_diff_split(
    piece: DiffSplit, *, names: Sequence[str], filter: Predicate | None, constants: Mapping[str, pa.Scalar]
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece.

    Args:
        piece: to read.
        names: columns, ``_row_kind`` and constants, to return in this order; with ``_row_kind`` all changes are read.
        filter: rows for which it is not true are left out.
        constants: other columns with one value.
    """
    with_kinds = ROW_KIND_COLUMN in names
    for rows, kinds in piece.diff.read(piece.split):
        is_new = pc.is_in(kinds, _NEW).to_numpy(zero_copy_only=False)
        chosen = np.ones(rows.num_rows, np.bool_) if with_kinds else is_new
        if filter is not None:
            chosen = chosen & filter_mask(filter, rows).fill_null(False).to_numpy(zero_copy_only=False)
        kept, its_kinds = rows.filter(pa.array(chosen)), kinds.filter(pa.array(chosen))
        if not kept.num_rows:
            continue
        arrays, fields = [], []
        for name in names:
            if name == ROW_KIND_COLUMN:
                arrays.append(ROW_KIND_SYMBOLS.take(its_kinds))
                fields.append(pa.field(name, pa.string(), nullable=False))
            elif name in constants:
                arrays.append(pa.repeat(constants[name], kept.num_rows))
                fields.append(pa.field(name, constants[name].type))
            else:
                arrays.append(kept.column(name))
                fields.append(kept.schema.field(name))
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)) if names else kept.select([])


def _tag_before(table: FileTable, name: str) -> str:
    """The automatic tag before one; ``0`` when it is the first."""
    schedule = TagSchedule.of(table.options)
    table.store.snapshots.tag(name)
    end = None if schedule is None else schedule.end_of(name)
    if schedule is None or end is None:
        return previous_tag(table.store, name) or "0"
    ends = {
        their_end: each
        for each in table.store.snapshots.tag_names()
        if (their_end := schedule.end_of(each)) is not None
    }
    return ends[max(earlier)] if (earlier := [each for each in ends if each < end]) else "0"
