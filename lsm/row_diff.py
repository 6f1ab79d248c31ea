"""The difference of two states of a table, as a merge of two sorted runs, and what it takes to be the same row."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.key_groups import one_chunk, take_rows
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from lsm.words import BoolArray, IndexArray

BEFORE: Final = 0
"""Sequence number of every row of the older state."""
AFTER: Final = 1
"""Sequence number of every row of the newer state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDiff:
    """A merge function over two runs: ``+I`` for new keys, ``-D`` for gone ones, ``-U`` and ``+U`` for other rows.

    Keys whose rows are the same on both sides are left out; a changed key gives two rows.
    """

    columns: tuple[str, ...]  # that are compared

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The differing rows in key order, with their kinds.

        Args:
            rows: value columns, ``_SEQUENCE_NUMBER`` (the side) and ``_VALUE_KIND``, which is replaced.
            order: (n,) indices of rows by key, older side first.
            starts: (n,) whether an ordered row starts a new key.
            drop_deletes: has no meaning here.
        """
        del drop_deletes
        ends = np.append(starts[1:], True)
        is_single = starts & ends
        first = np.flatnonzero(starts & ~ends)
        changed = first[~rows_equal(rows.select(list(self.columns)), order[first], order[first + 1])]
        is_shown = is_single.copy()
        is_shown[changed] = is_shown[changed + 1] = True
        kinds = _kinds_of_side(rows)[order]
        kinds[changed], kinds[changed + 1] = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
        return _with_kinds(take_rows(rows, order[is_shown]), kinds[is_shown])

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """Rows of one side only."""
        del drop_deletes
        return _with_kinds(rows, _kinds_of_side(rows))


def rows_equal(rows: pa.Table, left: IndexArray, right: IndexArray) -> BoolArray:
    """Whether pairs of rows are the same in every column: null is null, NaN is NaN, 0.0 is not -0.0.

    Args:
        rows: (n,) rows.
        left: (m,) indices of rows.
        right: (m,) indices of rows.

    Returns:
        (m,) booleans.
    """
    same = np.ones(len(left), np.bool_)
    if len(left) == 0:
        return same
    for column in rows.columns:
        whole = one_chunk(column)
        same &= _equal(whole.take(pa.array(left)), whole.take(pa.array(right)))
    return same


def _equal(left: pa.Array, right: pa.Array) -> BoolArray:
    """Element by element, at any depth."""
    kind = left.type
    both_null: BoolArray = np.asarray(left.is_null()) & np.asarray(right.is_null())
    both_valid: BoolArray = np.asarray(left.is_valid()) & np.asarray(right.is_valid())
    same: BoolArray
    if pa.types.is_struct(kind):
        same = np.ones(len(left), np.bool_)
        for index in range(kind.num_fields):
            same &= _equal(left.field(index), right.field(index))
    elif pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_large_list(kind):
        same = _equal_lists(left, right, both_valid)
    elif pa.types.is_floating(kind):
        words = {16: np.uint16, 32: np.uint32, 64: np.uint64}[kind.bit_width]
        values = [np.asarray(each.fill_null(0)).view(words) for each in (left, right)]
        nan = np.asarray(pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
        same = (values[0] == values[1]) | nan
    elif pa.types.is_null(kind):
        same = both_null
    else:
        same = np.asarray(pc.fill_null(pc.equal(left, right), False))
    return both_null | (both_valid & same)


def _equal_lists(left: pa.Array, right: pa.Array, both_valid: BoolArray) -> BoolArray:
    """Lists are equal when they are as long and no element differs; a map is the list of its entries, in order."""
    if pa.types.is_map(left.type):
        as_list = pa.list_(pa.struct([left.type.key_field, left.type.item_field]))
        left, right = left.cast(as_list), right.cast(as_list)
    lengths = [np.asarray(pc.fill_null(pc.list_value_length(each), -1)) for each in (left, right)]
    same: BoolArray = both_valid & (lengths[0] == lengths[1])
    chosen = np.flatnonzero(same)
    taken = [each.take(pa.array(chosen)) for each in (left, right)]
    elements = [each.flatten() for each in taken]
    owner = np.repeat(chosen, lengths[0][chosen])
    differs = ~_equal(elements[0], elements[1])
    same[owner[differs]] = False
    return same


def _kinds_of_side(rows: pa.Table) -> NDArray[np.int8]:
    sides = np.asarray(one_chunk(rows.column(SEQUENCE_NUMBER)))
    return np.where(sides == BEFORE, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))


def _with_kinds(rows: pa.Table, kinds: NDArray[np.int8]) -> pa.Table:
    index = rows.schema.get_field_index(VALUE_KIND)
    return rows.set_column(index, rows.schema.field(index), pa.array(kinds, pa.int8()))
