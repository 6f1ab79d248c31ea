"""The difference of two sorted sets of rows as a changelog.

It is a merge of runs with a special merge function, so both sides may be of any size.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.keys.key_groups import one_chunk, take_or_null, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge import RunSource, merge_runs
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND, VALUE_KIND_FIELD, RowKind, repeated_kind

Rows = Callable[[], Iterator[pa.RecordBatch]]

_BEFORE: Final = 0  # the sequence number identifies the side of a row
_AFTER: Final = 1


def diff_runs(
    before: Sequence[Rows],
    after: Sequence[Rows],
    *,
    key_names: Sequence[str],
    ignored: Collection[str] = (),
    section_rows: int = 131072,
) -> Iterator[pa.Table]:
    """The changes that turn the rows before into the rows after.

    Args:
        before: sorted runs, each opened once; keys are unique across all of them.
        after: runs with the same properties.
        key_names: the key columns, most significant first; all batches share one schema, which includes them.
        ignored: other columns that are not compared.
        section_rows: approximate number of rows to compare at a time.

    Yields:
        Non-empty tables of that schema plus ``_VALUE_KIND``, in key order: -D of removed keys, +I of new
        keys, -U and then +U of changed rows, nothing for equal rows. Null equals null, NaN equals NaN, -0.0 is not 0.0,
        and maps are equal when their entries are equal in order.
    """
    sides = [(_BEFORE, rows) for rows in before] + [(_AFTER, rows) for rows in after]
    runs = [RunSource(min_key=None, open=partial(_numbered, rows, side)) for side, rows in sides]
    merge = _RowDiff(frozenset({*key_names, *ignored}))
    merged = merge_runs(runs, key_names=key_names, merge=merge, drop_deletes=False, section_rows=section_rows)
    for rows in merged:
        yield rows.drop_columns([SEQUENCE_NUMBER])


@dataclass(frozen=True, slots=True)
class _RowDiff:
    """Gets per key the row before, the row after, or both in this order; keeps up to two rows per key."""

    ignored: frozenset[str]

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The changes of these keys."""
        later = np.flatnonzero(~starts)  # where a key's second row is
        is_changed = rows_differ(rows, order[later - 1], order[later], ignored=self.ignored)
        kinds = _one_sided_kinds(rows)[order]
        kinds[later - 1] = RowKind.UPDATE_BEFORE
        kinds[later] = RowKind.UPDATE_AFTER
        kept = np.ones(len(order), np.bool_)
        kept[later] = is_changed
        kept[later - 1] = is_changed
        return _with_kinds(take_rows(rows, order[kept]), kinds[kept])

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The changes of keys that exist on one side only."""
        return _with_kinds(rows, _one_sided_kinds(rows))


def rows_differ(rows: pa.Table, left: IndexArray, right: IndexArray, *, ignored: Collection[str]) -> BoolArray:
    """(n,) whether pairs of rows differ in a column that is neither ignored nor one of the two system columns."""
    found = np.zeros(len(left), np.bool_)
    for field in rows.schema:
        if len(left) == 0:
            break
        if field.name in ignored or field.name in (SEQUENCE_NUMBER, VALUE_KIND):
            continue
        is_other = cells_differ(one_chunk(rows.column(field.name)), left, right)
        found[~found] = is_other
        left, right = left[~is_other], right[~is_other]  # equal in all columns so far
    return found


def cells_differ(column: pa.Array, left: IndexArray, right: IndexArray) -> BoolArray:
    """(n,) whether pairs of cells of a column differ, given by their rows; -1 is null, in a column with nulls only."""
    words = equality_words(column)
    if words is not None:
        found: BoolArray = words[left] != words[right]
        return found
    found = left != right
    apart = np.flatnonzero(found)
    found[apart] = differs(take_or_null(column, left[apart]), take_or_null(column, right[apart]))
    return found


def equality_words(column: pa.Array) -> NDArray[np.unsignedinteger] | None:
    """(n,) unsigned numbers that differ where the cells do; None: a column with nulls, or of a type without them."""
    kind = column.type
    if column.null_count or not pa.types.is_primitive(kind) or kind.bit_width < 8:
        return None
    stored = np.frombuffer(column.buffers()[1] or b"", f"u{kind.bit_width // 8}")
    words: NDArray[np.unsignedinteger] = stored[column.offset : column.offset + len(column)]
    if pa.types.is_floating(kind):
        is_nan = np.isnan(words.view(f"f{words.itemsize}"))
        return (
            np.where(is_nan, np.array(np.nan, f"f{words.itemsize}").view(words.dtype), words) if is_nan.any() else words
        )
    return words


def differs(left: pa.Array, right: pa.Array) -> BoolArray:
    """(n,) whether two columns of one type differ, row by row. Nested values are compared recursively."""
    left_null, right_null = _is_null(left), _is_null(right)
    found: BoolArray = left_null != right_null
    both = np.flatnonzero(~(left_null | right_null))
    if len(both) == 0:
        return found
    if pa.types.is_nested(left.type):
        compact = pa.array(both)
        found[both] = _nested_differs(left.take(compact), right.take(compact))
    elif pa.types.is_floating(left.type):
        found[both] = _floats_differ(left, right)[both]
    else:
        found |= pc.not_equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _is_null(array: pa.Array) -> BoolArray:
    if array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    is_null: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return is_null


def _floats_differ(left: pa.Array, right: pa.Array) -> BoolArray:
    """Compares bits, but all NaNs are equal; null counts as 0.0."""
    one, two = (each.fill_null(0.0).to_numpy(zero_copy_only=False) for each in (left, right))
    bits = np.dtype(f"u{one.dtype.itemsize}")
    is_other: BoolArray = (one.view(bits) != two.view(bits)) & ~(np.isnan(one) & np.isnan(two))
    return is_other


def _nested_differs(left: pa.Array, right: pa.Array) -> BoolArray:
    """`differs` for structs, lists and maps without nulls, fresh from `take`, so that offsets start at 0."""
    if pa.types.is_struct(left.type):
        found = np.zeros(len(left), np.bool_)
        for index in range(left.type.num_fields):
            found |= differs(left.field(index), right.field(index))
        return found
    if pa.types.is_map(left.type):
        left, right = _as_list(left), _as_list(right)
    lengths, others = (each.value_lengths().to_numpy(zero_copy_only=False) for each in (left, right))
    found = np.asarray(lengths != others)
    same = np.flatnonzero(~found)
    chosen = pa.array(same)
    is_other = differs(left.take(chosen).flatten(), right.take(chosen).flatten())
    owners = np.repeat(same, lengths[same])
    found[owners[is_other]] = True
    return found


def _as_list(maps: pa.Array) -> pa.Array:
    """Maps as lists of their entries."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], names=["key", "value"])
    return pa.ListArray.from_arrays(maps.offsets, entries)


def _numbered(rows: Rows, side: int) -> Iterator[pa.RecordBatch]:
    """The rows of a side with the two system columns that a merge requires."""
    for batch in rows():
        count = batch.num_rows
        numbers = pa.array(np.full(count, side, np.int64))
        kinds = repeated_kind(RowKind.INSERT, count)
        schema = batch.schema.append(SEQUENCE_NUMBER_FIELD).append(VALUE_KIND_FIELD)
        yield pa.RecordBatch.from_arrays([*batch.columns, numbers, kinds], schema=schema)


def _one_sided_kinds(rows: pa.Table) -> NDArray[np.int8]:
    """(n,) the row kinds of keys that exist on one side only: -D before, +I after."""
    sides = one_chunk(rows.column(SEQUENCE_NUMBER)).to_numpy()
    return np.where(sides == _BEFORE, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))


def _with_kinds(rows: pa.Table, kinds: NDArray[np.int8]) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND_FIELD, pa.array(kinds))
