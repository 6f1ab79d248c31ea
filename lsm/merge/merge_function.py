"""Merge functions: how rows with equal keys become one row.

A merge function works on whole columns: the rows, their order by key, and where keys start. It never sees a key in two
pieces.
Source: Paimon MergeFunction.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from lsm.errors import InvalidInputError
from lsm.keys.key_groups import KeyGroups, is_retract, one_chunk, take_rows, without_retracts
from lsm.keys.words import BoolArray, IndexArray


class MergeFunction(Protocol):
    """Folds the rows of each key."""

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """One row per key, in key order, with the schema of `rows`.

        Args:
            rows: value columns, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
            order: (n,) row indices, by key and then oldest first; it may omit keys, but no single rows of a key.
            starts: (n,) whether an ordered row starts a new key.
            drop_deletes: drop keys that merge to a retract.
        """

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The result for rows with unique keys, which need no merging."""


class RowMerge(MergeFunction, Protocol):
    """A merge function that gives rows of the table, rather than what becomes of them."""

    def settled(self, rows: pa.Table) -> pa.Table:
        """Rows as what they are when no older ones of their keys are left, each at its place.

        A retract that remains means that there is no row.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """The newest row wins; a retract as newest row removes the key."""

    ignore_delete: bool = False  # drop retracts before merging

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The newest row of every key; with ``ignore_delete`` the newest that is not a retract."""
        if self.ignore_delete:
            groups = KeyGroups.of(rows, order, starts)
            if groups.has_retracts:
                kept = ~groups.retracts | groups.singles[groups.keys]
                order, starts = order[kept], groups.starts_among(kept)
        if len(order) == 0:
            return rows.slice(0, 0)
        newest = np.empty(len(starts), np.bool_)
        newest[:-1] = starts[1:]
        newest[-1] = True
        return _winners(rows, order[newest], drop_deletes=drop_deletes)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows, without retracts if these are to be dropped."""
        return without_retracts(rows) if drop_deletes else rows

    def settled(self, rows: pa.Table) -> pa.Table:
        """The rows."""
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow:
    """The oldest row wins and is never updated."""

    ignore_delete: bool = False

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The oldest row of every key.

        Raises:
            InvalidInputError: a key with several rows has a retract, and retracts are not ignored.
        """
        if is_retract(rows) is not None:
            groups = KeyGroups.of(rows, order, starts)
            unwanted = groups.retracts & ~groups.singles[groups.keys]
            if unwanted.any() and not self.ignore_delete:
                raise InvalidInputError(
                    f"first-row does not support retracts: merge-engine=first-row retract_count={int(unwanted.sum())} "
                    "fix=set ignore-delete=true or use merge-engine=deduplicate"
                )
            kept = ~unwanted
            order, starts = order[kept], groups.starts_among(kept)
        return _winners(rows, order[starts], drop_deletes=drop_deletes)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows, without retracts if these are to be dropped."""
        return without_retracts(rows) if drop_deletes else rows

    def settled(self, rows: pa.Table) -> pa.Table:
        """The rows."""
        return rows


LEVEL: Final = "_LEVEL"
_LEVEL_FIELD: Final = pa.field(LEVEL, pa.int32(), nullable=False)


def with_level(rows: pa.RecordBatch, level: int) -> pa.RecordBatch:
    """The rows with the extra column that ``WholeRows`` expects."""
    levels = pa.array(np.full(rows.num_rows, level, np.int32))
    return pa.RecordBatch.from_arrays([*rows.columns, levels], schema=rows.schema.append(_LEVEL_FIELD))


def of_lowest_levels(rows: pa.Table, order: IndexArray, starts: BoolArray) -> tuple[pa.Table, IndexArray, BoolArray]:
    """The rows of level 0, and of each key that of the lowest level above: its rows on higher levels are in it.

    Args:
        rows: with the column of ``with_level``, which the result has not.
        order: see ``MergeFunction.merge``; at least one.
        starts: likewise.

    Returns:
        Rows, order and starts.
    """
    levels = one_chunk(rows.column(LEVEL)).to_numpy()[order]
    rows = rows.drop_columns([LEVEL])
    above = np.where(levels > 0, levels, np.iinfo(np.int32).max)
    lowest = np.minimum.reduceat(above, np.flatnonzero(starts))[np.cumsum(starts) - 1]
    kept: BoolArray = (levels <= 0) | (levels == lowest)
    if kept.all():
        return rows, order, starts
    is_wanted = np.zeros(len(rows), np.bool_)
    is_wanted[order[kept]] = True
    places = np.cumsum(is_wanted) - 1
    starts = KeyGroups.of(rows, order, starts).starts_among(kept)
    return rows.filter(pa.array(is_wanted)), places[order[kept]], starts


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRows:
    """Merges rows of which those above level 0 are whole: a compaction has merged them with the older ones above.

    Its input has the column of ``with_level``, its output not. Source: Paimon LookupMergeFunction.
    """

    inner: MergeFunction  # folds what counts

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The result of the inner merge function."""
        return self.inner.merge(*of_lowest_levels(rows, order, starts), drop_deletes=drop_deletes)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The result of the inner merge function."""
        return self.inner.single(rows.drop_columns([LEVEL]), drop_deletes=drop_deletes)


def _winners(rows: pa.Table, winners: IndexArray, *, drop_deletes: bool) -> pa.Table:
    """The winning rows, one per key."""
    retracts = is_retract(rows) if drop_deletes else None
    return take_rows(rows, winners if retracts is None else winners[~retracts[winners]])
