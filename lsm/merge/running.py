"""What a key is after some of its rows, where that needs no folding: its cells are cells of these rows.

A *cell* is a value of one column. In most tables newer rows only replace cells of older ones; then all states of a key
with n rows are found in one pass over n rows, not from 1, 2, ... and n of them.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lsm.keys.key_groups import is_retract
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge_function import Deduplicate, FirstRow, MergeFunction
from lsm.merge.partial_update import PartialUpdate

Cells: TypeAlias = Callable[[pa.Array], IndexArray]
"""From a column to the (s,) rows of its table that hold the cells, -1 for null; where it can, the array of the last."""


def running_cells(
    merge: MergeFunction, rows: pa.Table, order: IndexArray, starts: BoolArray, ends: IndexArray | slice
) -> Cells | None:
    """Where the cells of keys are after some of their rows.

    Args:
        merge: folds the rows.
        rows: value columns and ``_VALUE_KIND``.
        order: (n,) row indices, by key and then oldest first.
        starts: (n,) whether an ordered row starts a new key.
        ends: (s,) ordered rows: each stands for its key's rows up to it. A slice of all is every row.

    Returns:
        The cells; those of a retract where the key is removed. None: the rows have to be folded.
    """
    newest = order[ends]
    match merge:
        case Deduplicate(ignore_delete=False):
            return lambda column: newest
        case _ if is_retract(rows) is not None:
            return None
        case Deduplicate():
            return lambda column: newest
        case FirstRow():
            oldest = order[_key_begins(starts)[ends]]
            return lambda column: oldest
        case PartialUpdate(sequence_groups=()):
            return lambda column: newest if column.null_count == 0 else _newest_valid(column, order, starts)[ends]
    return None


def _key_begins(starts: BoolArray) -> IndexArray:
    """(n,) where the key of each ordered row begins."""
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))


def _newest_valid(column: pa.Array, order: IndexArray, starts: BoolArray) -> IndexArray:
    """(n,) the newest row of the key that is not null, up to each ordered row; -1: none."""
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)[order]
    newest = np.maximum.accumulate(np.where(is_valid | starts, np.arange(len(order)), 0))
    found: IndexArray = np.where(is_valid[newest], order[newest], -1)
    return found
