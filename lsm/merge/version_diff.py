"""What keys went through: the rows that versions wrote, merged once, as the changes from each version to the next.

The rows of all versions and those before them are one merge, whose rows carry their version. A key has a *state* before
the first version and after each one that wrote it: its rows up to that version, folded by the table's merge function.
Neighbouring states make the changes. So each row is read once, however many versions there are. Versions are counted
here: the *age* of a row is the place of its version among all.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.keys.key_groups import is_retract, one_chunk, row_kinds, take_or_null, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge_function import Deduplicate, FirstRow, MergeFunction, RowMerge
from lsm.merge.partial_update import PartialUpdate
from lsm.merge.row_diff import cells_differ, equality_words
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, RowKind

# ---- What a key is after some of its rows, where that needs no folding: its cells are cells of these rows
# A *cell* is a value of one column. In most tables newer rows only replace cells of older ones; then all states of a
# key with n rows are found in one pass over n rows, not from 1, 2, ... and n of them.


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


# ---- What keys went through: the rows that versions wrote, merged once, as the changes from each version to the next


ROW_AGE: Final = "_AGE"
BEFORE_ALL: Final = 0  # the age of the rows before the first version

_AGE_FIELD: Final = pa.field(ROW_AGE, pa.int16(), nullable=False)
_WINDOW: Final = 8  # states of a key that are folded from the same row before
_FOLDED_ROWS: Final = 1 << 20  # rows of states that are folded at a time: a row is in every later state of its window

AgeArray: TypeAlias = NDArray[np.int16]
_Folded: TypeAlias = "tuple[pa.Table, _States]"


def with_age(rows: pa.RecordBatch, age: int) -> pa.RecordBatch:
    """The rows with the extra column that ``VersionDiff`` expects: a place in its ``versions``, or ``BEFORE_ALL``."""
    ages = pa.array(np.full(rows.num_rows, age, np.int16))
    return pa.RecordBatch.from_arrays([*rows.columns, ages], schema=rows.schema.append(_AGE_FIELD))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """A merge function that gives the changes of each version instead of rows.

    Its input has the column of ``with_age``, its output not: -D with the row that was removed, +I, -U and then +U, in
    the order of the versions; nothing for rows that are equal, see ``rows_differ``. ``_SEQUENCE_NUMBER`` is the
    version of a change. ``drop_deletes`` means nothing.
    """

    inner: RowMerge  # folds the rows
    key_names: Collection[str]
    versions: Sequence[int]  # by age, at most 32,767; the first stands for what was before all
    composes: bool  # whether the oldest rows of a key may be folded first, and their result with the others

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The changes of these keys."""
        ages = _ages(rows)[order]
        rows = rows.drop_columns([ROW_AGE])
        states = _States.of(starts, ages)
        cells = None
        if states.is_in_order or isinstance(self.inner, Deduplicate):
            cells = running_cells(self.inner, rows, order, starts, states.ends)
        if cells is None:
            folded, states = self._folded(rows.combine_chunks(), order, starts, ages)
            return self._differences(_StateRows.each(folded), states, rows.schema)
        contiguous = rows.drop_columns([SEQUENCE_NUMBER]).combine_chunks()  # columns are looked at several times
        return self._differences(_StateRows(contiguous, cells), states, rows.schema)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The changes of keys with one row: what versions added."""
        ages, plain = _ages(rows), self.inner.settled(rows.drop_columns([ROW_AGE]))
        new = np.flatnonzero((row_kinds(plain) & 1 == 0) & (ages != BEFORE_ALL))
        kinds = np.full(len(new), RowKind.INSERT, np.int8)
        return self._labelled(_StateRows.each(plain), new, self._versions_of(ages[new]), kinds, plain.schema)

    # ---- states

    def _folded(self, rows: pa.Table, order: IndexArray, starts: BoolArray, ages: AgeArray) -> _Folded:
        """The states of keys that versions wrote, a row each; a retract where there is none."""
        is_written = np.logical_or.reduceat(ages != BEFORE_ALL, np.flatnonzero(starts))
        kept = is_written[np.cumsum(starts) - 1]
        order, states = order[kept], _States.of(starts[kept], ages[kept])
        if len(order) == 0:
            return rows.slice(0, 0), states
        by_windows = self.composes and states.is_in_order and states.row_count > _WINDOW // 2 * len(order)
        return (self._folded_by_windows if by_windows else self._folded_at_once)(rows, order, states), states

    def _folded_by_windows(self, rows: pa.Table, order: IndexArray, states: "_States") -> pa.Table:
        """Each window of a key's states from its last state before, so that no row is in more states than that."""
        windows = states.ranks // _WINDOW
        of_row = np.cumsum(states.begins) - 1  # the state that a position first is in
        parts: list[pa.Table] = []
        places: list[IndexArray] = []
        before, before_keys = rows.slice(0, 0), states.keys[:0]
        for window in range(int(windows.max()) + 1):
            chosen = np.flatnonzero(windows == window)
            written = np.flatnonzero(windows[of_row] == window)
            goes_on = np.isin(before_keys, states.keys[chosen])
            found = pa.concat_tables([take_rows(before, np.flatnonzero(goes_on)), take_rows(rows, order[written])])
            keys = np.concatenate([before_keys[goes_on], states.keys[of_row[written]]])
            ages = np.concatenate([np.full(int(goes_on.sum()), BEFORE_ALL, np.int16), states.ages[of_row[written]]])
            in_order = np.argsort(keys, kind="stable")
            part = _States.of(_begins(keys[in_order]), ages[in_order])
            folded = self._folded_at_once(found, in_order, part)
            new = np.flatnonzero(part.ages != BEFORE_ALL) if window else np.arange(len(part.ages))
            folded = take_rows(folded, new)
            parts.append(folded)
            places.append(chosen)
            lasts = np.flatnonzero(states.ranks[chosen] % _WINDOW == _WINDOW - 1)
            before, before_keys = take_rows(folded, lasts), states.keys[chosen[lasts]]
        return take_rows(pa.concat_tables(parts), np.argsort(np.concatenate(places)))

    def _folded_at_once(self, rows: pa.Table, order: IndexArray, states: "_States") -> pa.Table:
        """Each state from all of its rows."""
        blocks = states.positions(_FOLDED_ROWS)
        return pa.concat_tables(self._fold(rows, order[positions], owners) for positions, owners in blocks)

    def _fold(self, rows: pa.Table, order: IndexArray, owners: IndexArray) -> pa.Table:
        starts = _begins(owners)
        folded = self.inner.settled(self.inner.merge(rows, order, starts, drop_deletes=False))
        firsts = np.flatnonzero(starts)
        if folded.num_rows == len(firsts):
            return folded
        # Several retracts that are all ignored are no row: take one of them, which is none either.
        retracts = (row_kinds(rows)[order] & 1).astype(np.bool_)
        sizes = np.diff(np.append(firsts, len(order)))
        is_gone = np.logical_and.reduceat(retracts, firsts) & (sizes > 1)
        places = np.where(is_gone, folded.num_rows + np.cumsum(is_gone) - 1, np.cumsum(~is_gone) - 1)
        return take_rows(pa.concat_tables([folded, take_rows(rows, order[firsts[is_gone]])]), places)

    # ---- changes

    def _differences(self, found: "_StateRows", states: "_States", schema: pa.Schema) -> pa.Table:
        """The changes between neighbouring states of keys."""
        adds = found.adds(len(states.ages))
        was_there = ~states.starts
        was_there[1:] &= adds[:-1]
        is_updated = found.differ_from_before(was_there & adds, ignored=self.key_names)
        is_inserted = adds & ~was_there & (states.ages != BEFORE_ALL)
        is_removed = was_there & ~adds
        ends = np.flatnonzero(is_updated | is_inserted | is_removed)  # (c,) the states that make the changes
        updated = is_updated[ends]
        kinds = np.empty((len(ends), 2), np.int8)  # of the state before and of the state
        kinds[:, 0] = np.where(updated, RowKind.UPDATE_BEFORE, RowKind.DELETE)
        kinds[:, 1] = np.where(updated, RowKind.UPDATE_AFTER, RowKind.INSERT)
        shown = np.stack([ends - 1, ends], axis=1)
        versions = self._versions_of(states.ages[ends])
        if updated.all():
            return self._labelled(found, shown.ravel(), np.repeat(versions, 2), kinds.ravel(), schema)
        kept = np.stack([was_there[ends], adds[ends]], axis=1)
        return self._labelled(found, shown[kept], np.repeat(versions, kept.sum(axis=1)), kinds[kept], schema)

    def _versions_of(self, ages: AgeArray) -> IndexArray:
        return np.array(self.versions, np.int64)[ages]

    @staticmethod
    def _labelled(
        found: "_StateRows", shown: IndexArray, versions: IndexArray, kinds: NDArray[np.int8], schema: pa.Schema
    ) -> pa.Table:
        """(n,) changes: the states that they show, the versions that made them, and row kinds."""
        given = {SEQUENCE_NUMBER: pa.array(versions), VALUE_KIND: pa.array(kinds)}
        columns = found.columns(shown, [field.name for field in schema if field.name not in given]) | given
        return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class _StateRows:
    """Where the cells of (s,) states are."""

    rows: pa.Table
    cells: Cells

    @classmethod
    def each(cls, rows: pa.Table) -> Self:
        """A row is a state."""
        every = np.arange(rows.num_rows)
        return cls(rows, lambda column: every)

    def adds(self, count: int) -> BoolArray:
        """(s,) whether the key is there."""
        retracts = is_retract(self.rows)
        if retracts is None:
            return np.ones(count, np.bool_)
        added: BoolArray = ~retracts[self.cells(one_chunk(self.rows.column(VALUE_KIND)))]
        return added

    def differ_from_before(self, chosen: BoolArray, *, ignored: Collection[str]) -> BoolArray:
        """(s,) whether a chosen state differs from the one before it in a column that is not ignored."""
        found = np.zeros(len(chosen), np.bool_)
        equal: IndexArray | None = None  # the chosen ones that are equal in all columns so far
        for name in self.rows.column_names:
            if name in ignored or name in (SEQUENCE_NUMBER, VALUE_KIND):
                continue
            column = one_chunk(self.rows.column(name))
            places = self.cells(column)
            words = equality_words(column) if equal is None else None
            if words is not None:  # of most states, usually: each cell is looked up once
                ordered = words[places]
                np.logical_and(chosen[1:], ordered[1:] != ordered[:-1], out=found[1:])
                equal = np.flatnonzero(chosen & ~found)
                continue
            equal = np.flatnonzero(chosen) if equal is None else equal
            is_other = cells_differ(column, places[equal - 1], places[equal])
            found[equal] = is_other
            equal = equal[~is_other]
        return found

    def columns(self, shown: IndexArray, names: Sequence[str]) -> dict[str, pa.Array]:
        """The (n,) cells of some states."""
        found, before, chosen = {}, None, shown
        for name in names:
            column = one_chunk(self.rows.column(name))
            places = self.cells(column)
            if places is not before:
                before, chosen = places, places[shown]
            found[name] = take_or_null(column, chosen)
        return found


@dataclass(frozen=True, kw_only=True)
class _States:
    """What keys were, by key and then by version. A *position* is an ordered row of a merge."""

    ages: AgeArray  # (s,) of the versions
    ends: IndexArray | slice  # (s,) the newest of its positions; a slice of all if each is
    begins: BoolArray  # (n,) whether a state begins, of the positions by key and then by version
    key_begins: BoolArray  # (n,) whether a key begins
    is_in_order: bool  # later versions come later: a state is its key's positions up to its newest one
    of_positions: AgeArray  # (n,)

    @classmethod
    def of(cls, key_begins: BoolArray, ages: AgeArray) -> Self:
        """The states of keys whose rows have these ages; (n,) each, by key and then as the rows are folded."""
        is_in_order = bool((key_begins[1:] | (ages[1:] >= ages[:-1])).all())
        at = None if is_in_order else np.lexsort((ages, np.cumsum(key_begins)))
        by_age = ages if at is None else ages[at]
        begins = key_begins.copy()
        begins[1:] |= by_age[1:] != by_age[:-1]
        ends: IndexArray | slice = slice(None) if begins.all() else np.flatnonzero(np.append(begins[1:], True))
        return cls(
            ages=by_age[ends],
            ends=ends if at is None else np.maximum.accumulate(at)[ends],  # a later key has later positions
            begins=begins,
            key_begins=key_begins,
            is_in_order=is_in_order,
            of_positions=ages,
        )

    @cached_property
    def keys(self) -> IndexArray:
        """(s,) numbers from 0."""
        return np.cumsum(self.starts) - 1

    @cached_property
    def starts(self) -> BoolArray:
        """(s,) whether it is the first of its key."""
        return self.key_begins[self.begins]

    @cached_property
    def ranks(self) -> IndexArray:
        """(s,) from 0 in each key."""
        ranks: IndexArray = np.arange(len(self.ages)) - np.flatnonzero(self.starts)[self.keys]
        return ranks

    @property
    def row_count(self) -> int:
        """Of all states together, at most."""
        return int((self.lasts - self.firsts + 1).sum())

    @cached_property
    def firsts(self) -> IndexArray:
        """(s,) the first position of its key."""
        firsts: IndexArray = np.flatnonzero(self.key_begins)[self.keys]
        return firsts

    @cached_property
    def lasts(self) -> IndexArray:
        """(s,) the last position that it may have: all behind are of later versions."""
        if self.is_in_order:
            return np.arange(len(self.begins))[self.ends]
        lasts: IndexArray = np.flatnonzero(np.append(self.key_begins[1:], True))[self.keys]
        return lasts

    def positions(self, most: int) -> Iterator[tuple[IndexArray, IndexArray]]:
        """The positions of some states at a time, about ``most`` of them, each with the number of its state."""
        sizes = self.lasts - self.firsts + 1
        ends = np.cumsum(sizes)
        at = 0
        while at < len(sizes):
            stop = max(int(np.searchsorted(ends, ends[at] - sizes[at] + most, "right")), at + 1)
            owners = np.repeat(np.arange(at, stop), sizes[at:stop])
            begin = ends[at:stop] - sizes[at:stop] - (ends[at] - sizes[at])
            found = np.arange(len(owners)) + np.repeat(self.firsts[at:stop] - begin, sizes[at:stop])
            if not self.is_in_order:
                kept = self.of_positions[found] <= self.ages[owners]
                found, owners = found[kept], owners[kept]
            yield found, owners
            at = stop


def _begins(keys: IndexArray) -> BoolArray:
    """(n,) whether a key of these, which are in order, is the first of its kind."""
    begins = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return begins


def _ages(rows: pa.Table) -> AgeArray:
    ages: AgeArray = one_chunk(rows.column(ROW_AGE)).to_numpy()
    return ages
