"""What keys went through: the rows that versions wrote, merged once, as the changes from each version to the next.

The rows of all versions and those before them are one merge, whose rows carry their version. A key has a *state* before
the first version and after each one that wrote it: its rows up to that version, folded by the table's merge function.
Neighbouring states make the changes. So each row is read once, however many versions there are.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from lsm.keys.key_groups import one_chunk, row_kinds, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge_function import Deduplicate, MergeFunction
from lsm.merge.row_diff import rows_differ
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND, VALUE_KIND_FIELD, RowKind

ROW_VERSION: Final = "_VERSION"
BEFORE_ALL: Final = 0  # the version of the rows before the first version

_VERSION_FIELD: Final = pa.field(ROW_VERSION, pa.int64(), nullable=False)
_WINDOW: Final = 8  # states of a key that are folded from the same row before
_FOLDED_ROWS: Final = 1 << 20  # rows of states that are folded at a time: a row is in every later state of its window
_KINDS: Final = np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE], np.int8)


def with_version(rows: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """The rows with the extra column that ``VersionDiff`` expects: a positive number, or ``BEFORE_ALL``."""
    versions = pa.array(np.full(rows.num_rows, version, np.int64))
    return pa.RecordBatch.from_arrays([*rows.columns, versions], schema=rows.schema.append(_VERSION_FIELD))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """A merge function that gives the changes of each version instead of rows.

    Its input has the column of ``with_version``, its output not: -D with the row that was removed, +I, -U and then +U,
    in the order of the versions; nothing for rows that are equal, see ``rows_differ``. ``_SEQUENCE_NUMBER`` is the
    version of a change. ``drop_deletes`` means nothing.
    """

    inner: MergeFunction  # folds the rows
    key_names: Collection[str]
    composes: bool  # whether the oldest rows of a key may be folded first, and their result with the others

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The changes of these keys."""
        versions = _versions(rows)[order]
        keys = np.cumsum(starts) - 1
        is_written = np.maximum.reduceat(versions, np.flatnonzero(starts)) != BEFORE_ALL
        if not is_written.all():
            kept = is_written[keys]
            order, versions, keys = order[kept], versions[kept], keys[kept]
        plain = rows.drop_columns([ROW_VERSION]).combine_chunks()  # columns are looked at several times
        if len(order) == 0:
            return plain.slice(0, 0)
        states = _States.of(keys, versions)
        folded, places = self._folded(plain, order, states)
        return _differences(folded, places, states, frozenset(self.key_names))

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The changes of keys with one row: what versions added."""
        versions, plain = _versions(rows), rows.drop_columns([ROW_VERSION])
        new = np.flatnonzero((row_kinds(plain) & 1 == 0) & (versions != BEFORE_ALL))
        found = plain if len(new) == plain.num_rows else take_rows(plain, new)
        return _labelled(found, versions[new], np.full(len(new), RowKind.INSERT, np.int8))

    def _folded(self, rows: pa.Table, order: IndexArray, states: "_States") -> tuple[pa.Table, IndexArray]:
        """Rows, and (s,) which of them each state is; a retract where there is none."""
        if isinstance(self.inner, Deduplicate) and not self.inner.ignore_delete:
            return rows, order[states.newest]
        by_windows = self.composes and states.is_in_order and states.row_count > _WINDOW // 2 * len(order)
        folded = (self._folded_by_windows if by_windows else self._folded_at_once)(rows, order, states)
        return folded, np.arange(folded.num_rows)

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
            numbers = np.concatenate([np.full(int(goes_on.sum()), BEFORE_ALL), states.versions[of_row[written]]])
            in_order = np.argsort(keys, kind="stable")
            part = _States.of(keys[in_order], numbers[in_order])
            folded = self._folded_at_once(found, in_order, part)
            new = np.flatnonzero(part.versions != BEFORE_ALL) if window else np.arange(len(part.keys))
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
        starts = np.ones(len(owners), np.bool_)
        starts[1:] = owners[1:] != owners[:-1]
        folded = self.inner.merge(rows, order, starts, drop_deletes=False)
        firsts = np.flatnonzero(starts)
        if folded.num_rows == len(firsts):
            return folded
        # Several retracts that are all ignored are no row: take one of them, which is none either.
        retracts = (row_kinds(rows)[order] & 1).astype(np.bool_)
        sizes = np.diff(np.append(firsts, len(order)))
        is_gone = np.logical_and.reduceat(retracts, firsts) & (sizes > 1)
        places = np.where(is_gone, folded.num_rows + np.cumsum(is_gone) - 1, np.cumsum(~is_gone) - 1)
        return take_rows(pa.concat_tables([folded, take_rows(rows, order[firsts[is_gone]])]), places)


@dataclass(frozen=True, kw_only=True)
class _States:
    """What keys were, by key and then by version. A *position* is an ordered row of a merge."""

    keys: IndexArray  # (s,) numbers
    versions: IndexArray  # (s,)
    newest: IndexArray  # (s,) the last of its positions
    begins: BoolArray  # (n,) whether a state begins, of the positions by key and then by version
    key_begins: BoolArray  # (n,) whether a key begins
    is_in_order: bool  # later versions come later: a state is its key's positions up to its newest one
    of_positions: IndexArray  # (n,) versions

    @classmethod
    def of(cls, keys: IndexArray, versions: IndexArray) -> "_States":
        """The states of keys whose rows are of these versions; (n,) each, by key and then as the rows are folded."""
        key_begins = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=key_begins[1:])
        is_in_order = bool((key_begins[1:] | (versions[1:] >= versions[:-1])).all())
        at = np.arange(len(keys)) if is_in_order else np.lexsort((versions, keys))
        by_version = versions[at]
        begins = key_begins.copy()
        begins[1:] |= by_version[1:] != by_version[:-1]
        ends = np.flatnonzero(np.append(begins[1:], True))
        return cls(
            keys=keys[ends],
            versions=by_version[ends],
            newest=ends if is_in_order else np.maximum.accumulate(at)[ends],  # a later key has later positions
            begins=begins,
            key_begins=key_begins,
            is_in_order=is_in_order,
            of_positions=versions,
        )

    @cached_property
    def starts(self) -> BoolArray:
        """(s,) whether it is the first of its key."""
        return self.key_begins[self.begins]

    @cached_property
    def ranks(self) -> IndexArray:
        """(s,) from 0 in each key."""
        ranks: IndexArray = np.arange(len(self.keys)) - np.flatnonzero(self.starts)[self._key_numbers]
        return ranks

    @property
    def row_count(self) -> int:
        """Of all states together, at most."""
        return int((self.lasts - self.firsts + 1).sum())

    @cached_property
    def _key_numbers(self) -> IndexArray:
        """(s,) from 0."""
        return np.cumsum(self.starts) - 1

    @cached_property
    def firsts(self) -> IndexArray:
        """(s,) the first position of its key."""
        firsts: IndexArray = np.flatnonzero(self.key_begins)[self._key_numbers]
        return firsts

    @cached_property
    def lasts(self) -> IndexArray:
        """(s,) the last position that it may have: all behind are of later versions."""
        if self.is_in_order:
            return self.newest
        lasts: IndexArray = np.flatnonzero(np.append(self.key_begins[1:], True))[self._key_numbers]
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
                kept = self.of_positions[found] <= self.versions[owners]
                found, owners = found[kept], owners[kept]
            yield found, owners
            at = stop


def _differences(rows: pa.Table, places: IndexArray, states: _States, key_names: frozenset[str]) -> pa.Table:
    """The changes between neighbouring states of keys.

    Args:
        rows: of the states, and others.
        places: (s,) the row of each state.
        states: to compare.
        key_names: columns that do not differ.
    """
    adds = (row_kinds(rows)[places] & 1) == 0
    was_there = ~states.starts & np.roll(adds, 1)
    rewritten = np.flatnonzero(was_there & adds)
    updated = rewritten[rows_differ(rows, places[rewritten - 1], places[rewritten], ignored=key_names)]
    inserted = np.flatnonzero(adds & ~was_there & (states.versions != BEFORE_ALL))
    removed = np.flatnonzero(~adds & was_there)
    ends = np.concatenate([updated, updated, inserted, removed])  # the states that make the changes
    shown = np.concatenate([updated - 1, updated, inserted, removed - 1])
    kinds = np.repeat(_KINDS, [len(updated), len(updated), len(inserted), len(removed)])
    in_order = np.argsort(2 * ends + (kinds == RowKind.UPDATE_AFTER), kind="stable")
    return _labelled(take_rows(rows, places[shown[in_order]]), states.versions[ends[in_order]], kinds[in_order])


def _versions(rows: pa.Table) -> IndexArray:
    versions: IndexArray = one_chunk(rows.column(ROW_VERSION)).to_numpy()
    return versions


def _labelled(rows: pa.Table, versions: IndexArray, kinds: np.ndarray) -> pa.Table:
    at, of = (rows.schema.get_field_index(name) for name in (SEQUENCE_NUMBER, VALUE_KIND))
    return rows.set_column(at, SEQUENCE_NUMBER_FIELD, pa.array(versions)).set_column(
        of, VALUE_KIND_FIELD, pa.array(kinds)
    )
