"""The three-way merge of sorted rows: what a branch changed since a base, against what main changed since then.

Per key there are up to three rows, one of each side. A side changed a key if its row differs from that of the base, or
only one of both exists. Main keeps what the branch did not change, and what both changed alike; it gets what only the
branch changed. What both changed differently is a conflict. It is a merge of runs with a special merge function, so the
sides may be of any size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.keys.key_groups import one_chunk, row_kinds, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge import SECTION_BYTES, RunSource, merge_runs
from lsm.merge.row_diff import rows_differ
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND, VALUE_KIND_FIELD, RowKind

RowsOf = Callable[[], Iterator[pa.RecordBatch]]

SIDE_FIELD: Final = pa.field("_side", pa.int8(), nullable=False)
DECISION_FIELD: Final = pa.field("_decision", pa.int8(), nullable=False)


class MergeSide(IntEnum):
    """Where a row is from."""

    BASE = 0
    MAIN = 1
    BRANCH = 2


_BASE, _MAIN, _BRANCH = MergeSide


class KeyDecision(IntEnum):
    """The outcome of a three-way merge for one key."""

    KEEP = 0  # main's row
    APPLY = 1  # the branch's row, or its absence
    CONFLICT = 2  # both sides changed it differently


def merge_three(
    base: Sequence[RowsOf],
    main: Sequence[RowsOf],
    branch: Sequence[RowsOf],
    *,
    key_names: Sequence[str],
    keeps: bool = False,
    section_bytes: int = SECTION_BYTES,
) -> Iterator[pa.Table]:
    """The decided keys of three states.

    Args:
        base: sorted runs, each opened once; keys are unique across them. Batches have the value columns and
            ``_VALUE_KIND``; a retract says that the key is absent.
        main: runs with the same properties, as ``branch``.
        branch: see there.
        key_names: the key columns, most significant first; all batches share one schema, which includes them.
        keeps: also return the rows that main keeps.
        section_bytes: approximate size of the rows that are compared at a time.

    Yields:
        Non-empty tables of that schema with two more columns, in key order. A key that is applied has main's row, as
        -U, or as -D when the branch has none, and then the branch's as +I; a conflict has the base's as +I before
        these. Where main has a retract only and the branch has a row, that retract is there as +U. Rows that are kept
        are main's, as +I.
    """
    sides = [(_BASE, rows) for rows in base] + [(_MAIN, rows) for rows in main]
    sides += [(_BRANCH, rows) for rows in branch]
    yield from _merged(sides, _States(frozenset(key_names), keeps=keeps), key_names, section_bytes)


def merge_changed(
    main: Sequence[RowsOf], branch: Sequence[RowsOf], *, key_names: Sequence[str], section_bytes: int = SECTION_BYTES
) -> Iterator[pa.Table]:
    """The decided keys of the changes of two sides, when the base is not read.

    Args:
        main: sorted runs of changed keys with their newest rows: a retract is a removed key; as ``branch``.
        branch: see there.
        key_names: see ``merge_three``, as ``section_bytes``.
        section_bytes: see there.

    Yields:
        As ``merge_three``; a key that both have with other rows is a conflict, though one of both may be as the base.
        A key that only the branch removed has the branch's row, as -D.
    """
    sides = [(_MAIN, rows) for rows in main] + [(_BRANCH, rows) for rows in branch]
    yield from _merged(sides, _Changes(frozenset(key_names)), key_names, section_bytes)


def _merged(
    sides: Sequence[tuple[MergeSide, RowsOf]], merge: "_States | _Changes", key_names: Sequence[str], section_bytes: int
) -> Iterator[pa.Table]:
    runs = [RunSource(min_key=None, open=partial(_of_side, rows, side)) for side, rows in sides]
    found = merge_runs(runs, key_names=key_names, merge=merge, drop_deletes=False, section_bytes=section_bytes)
    yield from (table.drop_columns([SEQUENCE_NUMBER]) for table in found)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The rows of some keys by side."""

    rows: pa.Table
    at: NDArray[np.int64]  # (3, k) row of each side; -1: none
    is_there: NDArray[np.bool_]  # (3, k) whether that is a row and no retract
    key_names: frozenset[str]

    @classmethod
    def of(cls, rows: pa.Table, order: IndexArray, starts: BoolArray, key_names: frozenset[str]) -> "_Keys":
        keys = np.cumsum(starts) - 1
        at = np.full((len(MergeSide), int(keys[-1]) + 1 if len(keys) else 0), -1)
        at[_sides(rows)[order], keys] = order
        is_there = (at >= 0) & (row_kinds(rows)[at] & 1 == 0) if rows.num_rows else at >= 0
        return cls(rows, at, is_there, key_names)

    def same(self, one: MergeSide, other: MergeSide) -> BoolArray:
        """(k,) whether two sides are equal: both absent, or with the same values."""
        here, there = self.is_there[one], self.is_there[other]
        found: BoolArray = ~here & ~there
        both = np.flatnonzero(here & there)
        if len(both):
            differing = rows_differ(self.rows, self.at[one][both], self.at[other][both], ignored=self.key_names)
            found[both] = ~differing
        return found

    def chosen(self, decisions: NDArray[np.int8], *, keeps: bool) -> pa.Table:
        """The rows of decided keys, see ``merge_three``."""
        is_kept, is_conflict = decisions == KeyDecision.KEEP, decisions == KeyDecision.CONFLICT
        shown = np.empty(self.at.shape, np.bool_)
        shown[_BASE] = is_conflict & self.is_there[_BASE]
        has_retract = ~self.is_there[_MAIN] & self.is_there[_BRANCH]
        shown[_MAIN] = ~is_kept & (self.at[_MAIN] >= 0) & (self.is_there[_MAIN] | has_retract)
        shown[_BRANCH] = ~is_kept & (self.at[_BRANCH] >= 0)
        if keeps:
            shown[_MAIN] |= is_kept & self.is_there[_MAIN]
        kinds = np.full(self.at.shape, RowKind.INSERT, np.int8)
        gone = np.where(self.is_there[_BRANCH], RowKind.UPDATE_BEFORE, RowKind.DELETE)
        kinds[_MAIN] = np.where(is_kept, RowKind.INSERT, gone)
        kinds[_MAIN][~self.is_there[_MAIN]] = RowKind.UPDATE_AFTER
        kinds[_BRANCH] = np.where(self.is_there[_BRANCH], RowKind.INSERT, RowKind.DELETE)
        sides = np.broadcast_to(np.arange(len(MergeSide), dtype=np.int8)[:, None], self.at.shape)
        by_key = shown.T
        rows = take_rows(self.rows, self.at.T[by_key])
        rows = rows.set_column(rows.schema.get_field_index(VALUE_KIND), VALUE_KIND_FIELD, pa.array(kinds.T[by_key]))
        rows = rows.append_column(SIDE_FIELD, pa.array(sides.T[by_key]))
        own = np.broadcast_to(decisions[:, None], by_key.shape)
        return rows.append_column(DECISION_FIELD, pa.array(own[by_key]))


@dataclass(frozen=True, slots=True)
class _States:
    """Decides keys by three states."""

    key_names: frozenset[str]
    keeps: bool = False

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The rows of the decided keys."""
        keys = _Keys.of(rows, order, starts, self.key_names)
        decisions = np.full(keys.at.shape[1], KeyDecision.CONFLICT, np.int8)
        decisions[keys.same(_BASE, _MAIN)] = KeyDecision.APPLY
        decisions[keys.same(_BASE, _BRANCH) | keys.same(_MAIN, _BRANCH)] = KeyDecision.KEEP
        return keys.chosen(decisions, keeps=self.keeps)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows of the decided keys, when each has one row."""
        every = np.arange(rows.num_rows)
        return self.merge(rows, every, np.ones(rows.num_rows, np.bool_), drop_deletes=drop_deletes)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Decides keys by the changes of two sides."""

    key_names: frozenset[str]

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The rows of the decided keys."""
        keys = _Keys.of(rows, order, starts, self.key_names)
        decisions = np.full(keys.at.shape[1], KeyDecision.CONFLICT, np.int8)
        by_main, by_branch = keys.at[_MAIN] >= 0, keys.at[_BRANCH] >= 0
        decisions[~by_main] = KeyDecision.APPLY
        decisions[~by_branch | (by_main & keys.same(_MAIN, _BRANCH))] = KeyDecision.KEEP
        return keys.chosen(decisions, keeps=False)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows of the decided keys, when each has one row."""
        every = np.arange(rows.num_rows)
        return self.merge(rows, every, np.ones(rows.num_rows, np.bool_), drop_deletes=drop_deletes)


def _sides(rows: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = one_chunk(rows.column(SEQUENCE_NUMBER)).to_numpy()
    return found


def _of_side(rows: RowsOf, side: MergeSide) -> Iterator[pa.RecordBatch]:
    """The rows of a side with its number, by which a merge orders the rows of a key."""
    for batch in rows():
        numbers = pa.array(np.full(batch.num_rows, side, np.int64))
        kinds = batch.column(VALUE_KIND)
        plain = batch.drop_columns([VALUE_KIND])
        schema = plain.schema.append(SEQUENCE_NUMBER_FIELD).append(VALUE_KIND_FIELD)
        yield pa.RecordBatch.from_arrays([*plain.columns, numbers, kinds], schema=schema)
