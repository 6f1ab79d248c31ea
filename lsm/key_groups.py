"""Ordered rows seen as groups of equal keys, and the row kinds among them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.row_kind import VALUE_KIND
from lsm.words import BoolArray, IndexArray


@dataclass(frozen=True)
class KeyGroups:
    """Rows by key, oldest first. Positions count ordered rows, rows count table rows."""

    order: IndexArray  # (n,) table row of every position
    starts: BoolArray  # (n,) whether a position starts a key
    firsts: IndexArray  # (k,) first position of every key
    lasts: IndexArray  # (k,) last position of every key
    kinds: NDArray[np.int8]  # (n,) row kind of every position

    @classmethod
    def of(cls, rows: pa.Table, order: IndexArray, starts: BoolArray) -> Self:
        """The groups of ordered rows of a table."""
        firsts = np.flatnonzero(starts)
        lasts = np.empty_like(firsts)
        lasts[:-1] = firsts[1:] - 1
        lasts[-1:] = len(order) - 1
        return cls(order, starts, firsts, lasts, row_kinds(rows)[order])

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.firsts)

    @property
    def singles(self) -> BoolArray:
        """(k,) whether the key has one row only."""
        is_single: BoolArray = self.firsts == self.lasts
        return is_single

    @cached_property
    def keys(self) -> IndexArray:
        """(n,) the number of the key at every position."""
        return np.cumsum(self.starts) - 1

    @cached_property
    def retracts(self) -> BoolArray:
        """(n,) whether a position holds a -U or -D."""
        return (self.kinds & 1).astype(np.bool_)

    @property
    def has_retracts(self) -> bool:
        """Whether any position holds a -U or -D."""
        return bool(self.retracts.any())

    def last_position(self, chosen: BoolArray) -> IndexArray:
        """(k,) the last of the chosen positions of every key, -1 if none of its positions is chosen."""
        return np.maximum.reduceat(np.where(chosen, np.arange(len(chosen)), -1), self.firsts)

    def starts_among(self, kept: BoolArray) -> BoolArray:
        """Where keys start when only some positions are kept."""
        groups = self.keys[kept]
        starts = np.ones(len(groups), np.bool_)
        starts[1:] = groups[1:] != groups[:-1]
        return starts


def fold_keys(
    rows: pa.Table, groups: KeyGroups, fold: Callable[[KeyGroups], pa.Table], *, drop_deletes: bool
) -> pa.Table:
    """One row per key: the row itself where a key has one only, else what `fold` makes of it.

    Args:
        rows: the table that the groups are of.
        groups: all keys.
        fold: gets the keys with several rows and gives one row for each, of the schema of `rows`.
        drop_deletes: leave out keys whose result is a retract.

    Source: Paimon format notes 6.4.4, a single record is never merged.
    """
    is_repeated = groups.firsts != groups.lasts
    places = groups.order[groups.firsts]
    kinds = groups.kinds[groups.firsts]
    folded = rows.slice(0, 0)
    if is_repeated.any():
        repeated = is_repeated[groups.keys]
        folded = fold(KeyGroups.of(rows, groups.order[repeated], groups.starts[repeated]))
        # Folded rows stand behind the rows that they are made of: one take puts both in key order.
        places[is_repeated] = len(rows) + np.arange(len(folded))
        kinds[is_repeated] = row_kinds(folded)
    if drop_deletes:
        places = places[(kinds & 1) == 0]
    return take_rows(pa.concat_tables([rows, folded]), places)


def row_kinds(rows: pa.Table) -> NDArray[np.int8]:
    """(n,) the row kinds of a table whose columns have one chunk."""
    kinds: NDArray[np.int8] = one_chunk(rows.column(VALUE_KIND)).to_numpy()
    return kinds


def is_retract(rows: pa.Table) -> BoolArray | None:
    """(n,) whether a row is -U or -D; None when no row is."""
    # +I -U +U -D are 0..3: the lowest bit says it.
    retracts = (row_kinds(rows) & np.int8(1)).view(np.bool_)
    return retracts if retracts.any() else None


def without_retracts(rows: pa.Table) -> pa.Table:
    """The rows that are -U or -D left out."""
    retracts = is_retract(rows)
    return rows if retracts is None else rows.filter(pa.array(~retracts))


def take_rows(rows: pa.Table, indices: IndexArray) -> pa.Table:
    """The chosen rows, in the order of the indices.

    Column by column, so that the copy which makes one chunk of many is freed, and its memory used again, before the
    next is made.
    """
    chosen = pa.array(indices)
    return pa.Table.from_arrays([one_chunk(column).take(chosen) for column in rows.columns], schema=rows.schema)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without copying when it is one."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
