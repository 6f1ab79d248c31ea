"""Records the changes that a merge makes: for each key the row before and the row after.

A compaction reads two sorts of rows: *old* ones, which the changelog has already emitted, and *new* ones. A key has
changed if it has a new row. Its row before is the merge of its old rows, its row after the merge of all its rows. So no
file is read twice, and only one section of the merge is in memory. Source: Paimon
LookupChangelogMergeFunctionWrapper and FullChangelogMergeFunctionWrapper; this is their columnar form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.keys.key_groups import KeyGroups, one_chunk, row_kinds, take_rows, without_retracts
from lsm.keys.keys import key_order, newest_last
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge_function import RowMerge
from lsm.merge.row_diff import rows_differ
from lsm.row_kind import VALUE_KIND, VALUE_KIND_FIELD, RowKind

IS_OLD: Final = "_IS_OLD"
_IS_OLD_FIELD: Final = pa.field(IS_OLD, pa.bool_(), nullable=False)

_NO_ROWS: Final[IndexArray] = np.zeros(0, np.int64)

LookUp = Callable[[pa.Table], pa.Table | None]
"""From (k,) key columns, unique and in order, to the old rows of these keys that the merge itself does not read."""


def with_is_old(rows: pa.RecordBatch, *, is_old: bool) -> pa.RecordBatch:
    """The rows with the extra column that ``ChangeRecorder`` expects."""
    flags = pa.array(np.full(rows.num_rows, is_old, np.bool_))
    return pa.RecordBatch.from_arrays([*rows.columns, flags], schema=rows.schema.append(_IS_OLD_FIELD))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecorder:
    """A merge function that emits the changes it makes. Its input has the column of ``with_is_old``, its output not."""

    inner: RowMerge  # folds the rows
    key_names: Sequence[str]
    sequence_names: Sequence[str] = ()
    sequence_descending: bool = False
    drops_equal: bool  # drop pairs of equal -U and +U
    emit: Callable[[pa.Table], None]
    """Called with non-empty changes in key order, in the schema of the rows: -D, +I, or -U and then +U of a key."""
    look_up: LookUp | None = None  # None: the merge reads every old row of its keys

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The result of the inner merge function; emits the changes."""
        is_old, plain = _split_is_old(rows)
        merged = self.inner.merge(plain, order, starts, drop_deletes=False)
        self._record(plain, is_old, order, starts, merged)
        return without_retracts(self.inner.settled(merged)) if drop_deletes else merged

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The result of the inner merge function for unique keys; emits the changes."""
        is_old, plain = _split_is_old(rows)
        if not is_old.all():
            everything = np.arange(len(plain))
            self._record(plain, is_old, everything, np.ones(len(plain), np.bool_), plain)
        return self.inner.single(plain, drop_deletes=drop_deletes)

    def _record(
        self, rows: pa.Table, is_old: BoolArray, order: IndexArray, starts: BoolArray, merged: pa.Table
    ) -> None:
        """Emit the changes of the keys that have a new row."""
        groups = KeyGroups.of(rows, order, starts)
        is_changed = np.logical_or.reduceat(~is_old[order], groups.firsts)
        if not is_changed.any():
            return
        names = list(self.key_names)
        keys = take_rows(rows.select(names), order[groups.firsts])  # of all rows
        found = None if self.look_up is None else self.look_up(keys.filter(pa.array(is_changed)))
        places = _places(merged.select(names), keys)
        kept = is_changed[places]
        chosen = is_old[order] & is_changed[groups.keys]
        if found is None or found.num_rows == 0:
            after = _adds(self.inner.settled(merged), np.flatnonzero(kept), places[kept])
            before = _KeyRows(rows, _NO_ROWS, _NO_ROWS)
            if chosen.any():
                before = self._merged(rows, order[chosen], groups.starts_among(chosen), keys)
        else:
            after = self._joined(take_rows(merged, np.flatnonzero(kept)), found, keys)
            before = self._joined(take_rows(rows, order[chosen]), found, keys)
        changes = self._changes(before, after)
        if changes.num_rows:
            self.emit(changes)

    def _joined(self, rows: pa.Table, found: pa.Table, keys: pa.Table) -> "_KeyRows":
        """The merge of these rows with the looked-up rows."""
        both = pa.concat_tables([rows, found.select(rows.column_names).cast(rows.schema)])
        order, starts = key_order([one_chunk(both.column(name)) for name in self.key_names], presorted=True)
        order = newest_last(both, order, starts, self.sequence_names, descending=self.sequence_descending)
        return self._merged(both, order, starts, keys)

    def _merged(self, rows: pa.Table, order: IndexArray, starts: BoolArray, keys: pa.Table) -> "_KeyRows":
        """The merge of ordered rows, as readers see it."""
        if not starts.all():
            rows = self.inner.merge(rows, order, starts, drop_deletes=False)
            order = np.arange(len(rows))
        places = _places(take_rows(rows.select(keys.column_names), order), keys)
        return _adds(self.inner.settled(rows), order, places)

    def _changes(self, before: "_KeyRows", after: "_KeyRows") -> pa.Table:
        if len(before.keys) == 0:
            rows = after.rows if len(after.places) == len(after.rows) else take_rows(after.rows, after.places)
            return _with_kinds(rows, np.full(len(rows), RowKind.INSERT, np.int8))
        _, one, two = np.intersect1d(before.keys, after.keys, assume_unique=True, return_indices=True)
        rows = pa.concat_tables([before.rows, after.rows])
        places = np.concatenate([before.places, after.places + len(before.rows)])
        keys = np.concatenate([before.keys, after.keys])
        kinds = np.repeat(np.array([RowKind.DELETE, RowKind.INSERT], np.int8), [len(before.keys), len(after.keys)])
        later = two + len(before.keys)
        kinds[one] = RowKind.UPDATE_BEFORE
        kinds[later] = RowKind.UPDATE_AFTER
        kept = np.ones(len(keys), np.bool_)
        if self.drops_equal:
            kept[one] = kept[later] = rows_differ(rows, places[one], places[later], ignored=self.key_names)
        in_order = np.argsort(keys[kept], kind="stable")  # stable: rows before precede rows after
        return _with_kinds(take_rows(rows, places[kept][in_order]), kinds[kept][in_order])


@dataclass(frozen=True, slots=True)
class _KeyRows:
    """At most one row of each key, in key order."""

    rows: pa.Table
    places: IndexArray  # (k,) indices into rows
    keys: IndexArray  # (k,) key numbers, ascending


def _with_kinds(rows: pa.Table, kinds: NDArray[np.int8]) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND_FIELD, pa.array(kinds))


def _adds(rows: pa.Table, places: IndexArray, keys: IndexArray) -> _KeyRows:
    """The rows at `places` without retracts: a key with a retract has no row."""
    kinds: NDArray[np.int8] = row_kinds(rows)[places]
    kept = (kinds & 1) == 0
    return _KeyRows(rows, places[kept], keys[kept])


def _places(some: pa.Table, keys: pa.Table) -> IndexArray:
    """(m,) indices of `some` within `keys`; both are in key order without duplicates."""
    if len(some) == len(keys):
        return np.arange(len(keys))
    both = pa.concat_tables([keys, some])
    order, starts = key_order([one_chunk(column) for column in both.columns], presorted=True)
    places: IndexArray = (np.cumsum(starts) - 1)[order >= len(keys)]
    return places


def _split_is_old(rows: pa.Table) -> tuple[BoolArray, pa.Table]:
    """(n,) whether each row is old, and the rows without that column."""
    is_old: BoolArray = one_chunk(rows.column(IS_OLD)).to_numpy(zero_copy_only=False)
    return is_old, rows.drop_columns([IS_OLD])
