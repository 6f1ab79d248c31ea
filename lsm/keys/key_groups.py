"""Ordered rows as groups of equal keys, with their row kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import VALUE_KIND

_STEPS_BACK: Final = 6


@dataclass(frozen=True)
class KeyGroups:
    """Rows grouped by key, oldest first. A *position* indexes ordered rows, a *row* indexes table rows."""

    order: IndexArray  # (n,) table row at each position
    starts: BoolArray  # (n,) whether a position starts a key
    firsts: IndexArray  # (k,) first position of every key
    lasts: IndexArray  # (k,) last position of every key
    kinds: NDArray[np.int8]  # (n,) row kind of every position

    @classmethod
    def of(cls, rows: pa.Table, order: IndexArray, starts: BoolArray) -> Self:
        """Groups of the ordered rows of a table."""
        firsts = np.flatnonzero(starts)
        lasts = np.empty_like(firsts)
        lasts[:-1] = firsts[1:] - 1
        lasts[-1:] = len(order) - 1
        return cls(order, starts, firsts, lasts, row_kinds(rows)[order])

    @classmethod
    def single(cls, rows: pa.Table) -> Self:
        """Each row of a table as the only one of its key."""
        return cls.of(rows, np.arange(len(rows)), np.ones(len(rows), np.bool_))

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.firsts)

    @property
    def singles(self) -> BoolArray:
        """(k,) whether the key has exactly one row."""
        is_single: BoolArray = self.firsts == self.lasts
        return is_single

    @cached_property
    def keys(self) -> IndexArray:
        """(n,) key number at each position."""
        return np.cumsum(self.starts) - 1

    @cached_property
    def retracts(self) -> BoolArray:
        """(n,) whether each position holds a -U or -D."""
        return (self.kinds & 1).astype(np.bool_)

    @property
    def has_retracts(self) -> bool:
        """Whether any position holds a -U or -D."""
        return bool(self.retracts.any())

    def last_position(self, chosen: BoolArray) -> IndexArray:
        """(k,) the last chosen position of each key, -1 if none is chosen."""
        found = np.where(chosen[self.lasts], self.lasts, -1)
        open_keys = np.flatnonzero(found < 0)
        for step in range(1, _STEPS_BACK):
            # It is mostly one of the last rows: a few probes of ever fewer keys are cheaper than a scan of all rows.
            positions = self.lasts[open_keys] - step
            inside = positions >= self.firsts[open_keys]
            open_keys, positions = open_keys[inside], positions[inside]
            hits = chosen[positions]
            found[open_keys[hits]] = positions[hits]
            open_keys = open_keys[~hits]
        if len(open_keys):
            last = np.maximum.reduceat(np.where(chosen, np.arange(len(chosen)), -1), self.firsts)
            found[open_keys] = last[open_keys]
        return found

    def last_rows(self, chosen: BoolArray) -> IndexArray:
        """(k,) the last chosen table row of each key, -1 if none is chosen; `chosen` is indexed by table row."""
        found = self._rows_back[0].copy()
        open_keys = np.flatnonzero(~chosen[found])
        for step in range(1, _STEPS_BACK):
            open_keys = open_keys[self._sizes[open_keys] > step]
            rows = self._rows_back[step][open_keys]
            hits = chosen[rows]
            found[open_keys[hits]] = rows[hits]
            open_keys = open_keys[~hits]
        open_keys = open_keys[self._sizes[open_keys] > _STEPS_BACK]
        if len(open_keys):
            last = self.last_position(chosen[self.order])[open_keys]
            found[open_keys] = np.where(last < 0, found[open_keys], self.order[last])
        found[~chosen[found]] = -1
        return found

    @cached_property
    def _sizes(self) -> IndexArray:
        """(k,) number of rows of each key."""
        return self.lasts - self.firsts + 1

    @cached_property
    def _rows_back(self) -> list[IndexArray]:
        """(k,) table rows at the last position of each key, the one before, and so on; clamped to row 0."""
        return [self.order[np.maximum(self.lasts - step, 0)] for step in range(_STEPS_BACK)]

    def starts_among(self, kept: BoolArray) -> BoolArray:
        """Key starts among only the kept positions."""
        groups = self.keys[kept]
        starts = np.ones(len(groups), np.bool_)
        starts[1:] = groups[1:] != groups[:-1]
        return starts


class Fold(Protocol):
    """The merge result of keys with several rows, column by column."""

    @property
    def kinds(self) -> NDArray[np.int8]:
        """(k,) row kinds of the merged rows."""

    def column(self, name: str, values: pa.Array) -> IndexArray | pa.Array:
        """(k,) a merged column: table rows that hold the values, -1 for null; or the values themselves."""


def fold_keys(
    rows: pa.Table, groups: KeyGroups, fold: Callable[[KeyGroups], Fold], *, settles: bool, drop_deletes: bool
) -> pa.Table:
    """One row per key: the row itself if the key has only one, else the result of `fold`.

    Works column by column: each is made contiguous once and gathered once where `fold` returns row indices.

    Args:
        rows: the table of the groups.
        groups: all keys.
        fold: called with the keys that have several rows.
        settles: no older rows are left, so a single retract is folded too: it is the row that it makes of nothing.
        drop_deletes: drop keys that merge to a retract.

    Source: Paimon ReducerMergeFunctionWrapper, where a single record is never merged.
    """
    is_folded = groups.firsts != groups.lasts
    if settles:
        is_folded |= groups.retracts[groups.firsts]
    places = groups.order[groups.firsts]
    kinds = groups.kinds[groups.firsts]
    if not is_folded.any():
        return take_rows(rows, places[(kinds & 1) == 0] if drop_deletes else places)
    folded_rows = is_folded[groups.keys]
    folded = fold(KeyGroups.of(rows, groups.order[folded_rows], groups.starts[folded_rows]))
    folded_at = np.flatnonzero(is_folded)
    kinds[folded_at] = folded.kinds
    removed = (kinds & 1).view(np.bool_)
    kept = ~removed if drop_deletes and removed.any() else None
    columns = []
    for field, chunks in zip(rows.schema, rows.columns, strict=True):
        if field.name == VALUE_KIND:
            columns.append(pa.array(kinds if kept is None else kinds[kept]))
            continue
        values = one_chunk(chunks)
        found = folded.column(field.name, values)
        if not field.nullable:
            found = _required(found, values, groups.order[groups.lasts[is_folded]])
        if isinstance(found, np.ndarray):
            chosen = places.copy()
            chosen[folded_at] = found
            columns.append(take_or_null(values, chosen if kept is None else chosen[kept]))
        else:
            replaced = _replaced(values, places, folded_at, found)
            columns.append(replaced if kept is None else replaced.filter(pa.array(kept)))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _required(found: IndexArray | pa.Array, values: pa.Array, newest: IndexArray) -> IndexArray | pa.Array:
    """A merged column that may not be null: where a retract leaves nothing, the value that it has, or nothing in it.

    A decimal that is null has overflowed, and stays so.
    """
    if isinstance(found, np.ndarray):
        return np.where(found < 0, newest, found)
    if not found.null_count or pa.types.is_decimal(found.type):
        return found
    instead = values.take(pa.array(newest))
    if pa.types.is_nested(found.type):
        instead = pa.array([[]] * len(found), found.type)
    absent = found.is_null().to_numpy(zero_copy_only=False)
    places = np.arange(len(found)) + np.where(absent, len(found), 0)
    return pa.concat_arrays([found, instead]).take(pa.array(places))


def take_or_null(values: pa.Array, chosen: IndexArray) -> pa.Array:
    """The chosen values, null where the index is negative."""
    absent = chosen < 0
    return values.take(pa.array(chosen, mask=absent) if absent.any() else pa.array(chosen))


def _replaced(values: pa.Array, places: IndexArray, folded_at: IndexArray, folded: pa.Array) -> pa.Array:
    """The values at `places`, with those at `folded_at` replaced by `folded`."""
    if len(folded) == len(places):
        return folded
    if pa.types.is_nested(values.type):
        chosen = places.copy()
        chosen[folded_at] = len(values) + np.arange(len(folded))
        return pa.concat_arrays([values, folded]).take(pa.array(chosen))
    is_folded = np.zeros(len(places), np.bool_)
    is_folded[folded_at] = True
    return pc.replace_with_mask(values.take(pa.array(places)), pa.array(is_folded), folded)


def row_kinds(rows: pa.Table) -> NDArray[np.int8]:
    """(n,) the row kinds of a table."""
    kinds: NDArray[np.int8] = one_chunk(rows.column(VALUE_KIND)).to_numpy()
    return kinds


def is_retract(rows: pa.Table) -> BoolArray | None:
    """(n,) whether a row is -U or -D; None when no row is."""
    # +I -U +U -D are 0..3: the lowest bit marks a retract.
    retracts = (row_kinds(rows) & np.int8(1)).view(np.bool_)
    return retracts if retracts.any() else None


def without_retracts(rows: pa.Table) -> pa.Table:
    """The rows without -U and -D."""
    retracts = is_retract(rows)
    return rows if retracts is None else rows.filter(pa.array(~retracts))


def take_rows(rows: pa.Table, indices: IndexArray) -> pa.Table:
    """The chosen rows, in the order of the indices.

    Works column by column, so that each column's contiguous copy is freed, and its memory reused, before the
    next is made.
    """
    chosen = pa.array(indices)
    if rows.num_rows <= rows.num_columns:  # few rows: there is more to do for a column than for its values
        return rows.combine_chunks().take(chosen)
    return pa.Table.from_arrays([one_chunk(column).take(chosen) for column in rows.columns], schema=rows.schema)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without copying if it has a single chunk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
