"""The partial-update merge engine: null columns of an update keep their previous values.

Columns may form *sequence groups*: a group has its own sequence columns, and its other columns come from the row
with the greatest sequence, nulls included. Source: Paimon PartialUpdateMergeFunction (1.4.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.operands import OperandKeys, Operands
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import KeyGroups, fold_keys, is_retract, one_chunk, take_or_null, without_retracts
from lsm.keys.words import BoolArray, IndexArray, number_parts_of, stable_order
from lsm.row_kind import SEQUENCE_NUMBER, RowKind

_INDEX_BITS: Final = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """Columns that are updated together, unless the sequence columns are smaller than before."""

    sequence_names: tuple[str, ...]  # most significant first; a row with all of them null does not update the group
    field_names: tuple[str, ...]  # without the sequence columns

    @property
    def names(self) -> tuple[str, ...]:
        """Every column of the group."""
        return (*self.sequence_names, *self.field_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialUpdate:
    """The newest non-null value of each column, except in sequence groups.

    A retract is, in this order: skipped (``ignore_delete``); applied to every sequence group, if there are any: it
    nulls the columns, or is retracted by their aggregates; a removal of the row (``remove_record_on_delete``, a -D
    only); an error.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False
    remove_record_on_delete: bool = False
    sequence_groups: tuple[SequenceGroup, ...] = ()
    remove_on_sequence_groups: tuple[
        str, ...
    ] = ()  # sequence columns: a -D that is the newest of their group removes the row
    aggregates: Mapping[str, FieldAggregate] = field(default_factory=dict)  # for columns of sequence groups
    counts_retracts: bool = False  # some aggregates take values back: a key with retracts only is a row too

    def __post_init__(self) -> None:
        grouped = [name for group in self.sequence_groups for name in group.names]
        sequences = {name for group in self.sequence_groups for name in group.sequence_names}
        _refuse("a column is in two sequence groups", {name for name in grouped if grouped.count(name) > 1})
        _refuse("a key column is in a sequence group", set(grouped) & set(self.key_names))
        _refuse("not a sequence column of any sequence group", set(self.remove_on_sequence_groups) - sequences)
        _refuse("a sequence column cannot be aggregated", sequences & set(self.aggregates))
        free = {name for name, spec in self.aggregates.items() if spec.function != "last_non_null_value"} - set(grouped)
        _refuse("an aggregate function of partial-update needs a sequence group", free)
        if self.ignore_delete and self.remove_on_sequence_groups:
            raise InvalidInputError(
                "a delete cannot both remove the row and be ignored: ignore-delete=true "
                "partial-update.remove-record-on-sequence-group fix=remove one of them"
            )
        if self.remove_record_on_delete and (self.sequence_groups or self.ignore_delete):
            raise InvalidInputError(
                "partial-update.remove-record-on-delete conflicts with ignore-delete and with sequence groups: "
                "fix=use partial-update.remove-record-on-sequence-group"
            )

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """One row per key; see MergeFunction.

        Raises:
            InvalidInputError: a key with several rows has a retract, and no option defines how to handle it.
        """
        return self._folded(rows, KeyGroups.of(rows, order, starts), settles=drop_deletes, drop_deletes=drop_deletes)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows; if retracts are to be dropped, as what they are without older rows."""
        return without_retracts(self.settled(rows)) if drop_deletes else rows

    def settled(self, rows: pa.Table) -> pa.Table:
        """The rows; a retract is what the aggregates of its groups make of nothing, if these count retracts."""
        if is_retract(rows) is None:
            return rows
        return self._folded(rows, KeyGroups.single(rows), settles=True, drop_deletes=False)

    def _folded(self, rows: pa.Table, groups: KeyGroups, *, settles: bool, drop_deletes: bool) -> pa.Table:
        settles = settles and self.counts_retracts and not self.ignore_delete

        def fold(keys: KeyGroups) -> _Fold:
            return self._fold(rows, keys, settles=settles)

        return fold_keys(rows, groups, fold, settles=settles, drop_deletes=drop_deletes)

    def _fold(self, rows: pa.Table, groups: KeyGroups, *, settles: bool) -> "_Fold":
        ranks = [_ranks(rows, groups, group) for group in self.sequence_groups]
        effects = self._effects_on(groups, ranks, settles=settles)
        updates = (effects.processed & ~groups.retracts) | effects.is_base
        members = {
            name: each
            for group, rank in zip(self.sequence_groups, ranks, strict=True)
            for each in [_Winners.of(groups, effects, group, rank)]
            for name in group.names
        }
        return _Fold(
            groups, effects, updates, bool(updates.all()), groups.last_position(updates), members, self.aggregates
        )

    def _effects_on(self, groups: KeyGroups, ranks: list[IndexArray], *, settles: bool) -> "_Effects":
        """How the rows affect each key, as far as it is the same for all columns."""
        retracts = groups.retracts
        positions = np.arange(len(groups.order))
        # If the oldest row of a key is a retract, its values are the initial ones, even when the retract itself is
        # skipped; but aggregates start with nothing.
        base = np.where(retracts[groups.firsts], groups.firsts, -1)
        processed = np.ones(len(positions), np.bool_)
        newest = groups.lasts
        removed_at = np.full(groups.key_count, -1)
        if groups.has_retracts and self.ignore_delete:
            processed = ~retracts
            newest = np.maximum(groups.last_position(processed), groups.firsts)
        elif groups.has_retracts and self.sequence_groups:
            if self.remove_on_sequence_groups:
                removing = [
                    bool(set(group.sequence_names) & set(self.remove_on_sequence_groups))
                    for group in self.sequence_groups
                ]
                removed_at = _removals(groups, ranks, removing)
            processed = positions > removed_at[groups.keys]
        elif groups.has_retracts and self.remove_record_on_delete:
            removed_at = groups.last_position(groups.kinds == RowKind.DELETE)
            processed = ~retracts & (positions > removed_at[groups.keys])
        elif groups.has_retracts:
            raise InvalidInputError(
                "partial-update does not support retracts: merge-engine=partial-update "
                f"retract_count={int(retracts.sum())} "
                "fix=set ignore-delete=true, or partial-update.remove-record-on-delete=true, or define sequence groups"
            )
        base = np.where(removed_at >= 0, removed_at, base)
        is_base = np.zeros(len(positions), np.bool_)
        is_base[base[base >= 0]] = True
        only_retracts = groups.last_position(~retracts) < 0
        is_removed, taken_back = removed_at == groups.lasts, retracts
        if settles:
            touched = np.logical_or.reduce([rank > 0 for rank in ranks])
            only_retracts &= groups.last_position(touched) < 0
        else:
            taken_back = retracts & ~only_retracts[groups.keys]
        return _Effects(base, is_base, processed, newest, is_removed | only_retracts, removed_at, taken_back)


@dataclass(frozen=True, slots=True)
class _Effects:
    base: IndexArray  # (k,) position of the row with the initial values, nulls included; -1: none
    is_base: BoolArray  # (n,)
    processed: BoolArray  # (n,) rows that update the initial values
    newest: IndexArray  # (k,) position of the row that gives the result its sequence number
    is_removed: BoolArray  # (k,)
    removed_at: IndexArray  # (k,) position of the row with the initial values of aggregates; -1: none
    taken_back: BoolArray  # (n,) by aggregates; what a key of retracts only takes back is added up, if it stays one


@dataclass(frozen=True, slots=True)
class _Winners:
    """Per key, the row that provides the columns of a sequence group."""

    group: SequenceGroup
    ranks: IndexArray  # (n,) rank of each row's sequence; 0: all null
    positions: IndexArray  # (k,) the greatest sequence, on ties the newest; -1: none
    is_retracted: BoolArray  # (k,) whether that row is a retract, which keeps only the sequence columns

    @classmethod
    def of(cls, groups: KeyGroups, effects: _Effects, group: SequenceGroup, ranks: IndexArray) -> Self:
        row_count = len(groups.order)
        counts = np.where(effects.processed | effects.is_base, ranks, 0)
        best = np.maximum.reduceat(counts * row_count + np.arange(row_count), groups.firsts)
        is_decided = best >= row_count
        positions = np.where(is_decided, best % row_count, effects.base)
        is_retracted = is_decided & (effects.processed & groups.retracts)[positions]
        return cls(group, counts, positions, is_retracted)


@dataclass(frozen=True, slots=True)
class _Fold:
    """See ``Fold``."""

    groups: KeyGroups
    effects: _Effects
    updates: BoolArray  # (n,) positions that contribute their non-null values
    updates_all: bool
    last_updates: IndexArray  # (k,) the last of them
    members: Mapping[str, _Winners]  # by column name
    aggregates: Mapping[str, FieldAggregate]

    @property
    def kinds(self) -> NDArray[np.int8]:
        return np.where(self.effects.is_removed, RowKind.DELETE, RowKind.INSERT).astype(np.int8)

    def column(self, name: str, values: pa.Array) -> IndexArray | pa.Array:
        order = self.groups.order
        if name == SEQUENCE_NUMBER:
            return order[self.effects.newest]
        winners = self.members.get(name)
        if winners is None:
            return self._last_valid(values)
        if name in self.aggregates:
            effects = self.effects
            is_step = effects.processed & (winners.ranks > 0)
            steps = GroupSteps(self.groups, effects.removed_at, is_step, winners.ranks, effects.taken_back)
            return steps.fold(name, values, self.aggregates[name])
        if name in winners.group.sequence_names:
            return self._rows(winners.positions)
        return self._rows(np.where(winners.is_retracted, -1, winners.positions))

    def _rows(self, positions: IndexArray) -> IndexArray:
        rows = self.groups.order[positions]
        rows[positions < 0] = -1
        return rows

    def _last_valid(self, values: pa.Array) -> IndexArray:
        """Table rows with the last non-null update of each key."""
        if values.null_count == 0:
            return self._rows(self.last_updates)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        if self.updates_all:
            return self.groups.last_rows(valid)
        return self._rows(self.groups.last_position(self.updates & valid[self.groups.order]))


def _refuse(fact: str, names: set[str]) -> None:
    if names:
        raise InvalidInputError(f"{fact}: merge-engine=partial-update columns={sorted(names)}")


def _ranks(rows: pa.Table, groups: KeyGroups, group: SequenceGroup) -> IndexArray:
    """(n,) ranks from 1 that compare like the sequences of a group; 0 where every sequence column is null.

    Multiplied by n they stay below 2**63, so that a position can be added.
    """
    row_count = len(groups.order)
    chosen = pa.array(groups.order)
    columns = [one_chunk(rows.column(name)).take(chosen) for name in group.sequence_names]
    absent = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
    parts = [part for column in columns for part in number_parts_of(column)]
    lead = parts[-1].lead()
    is_one_number = len(columns) == 1 and len(parts) == 1 + bool(columns[0].null_count)
    if is_one_number and lead.bits + row_count.bit_length() < _INDEX_BITS:
        ranks = lead.values.view(np.int64) + 1  # values in a small range serve as ranks directly
    else:
        order, starts = stable_order(parts, row_count, presorted=False)
        ranks = np.empty(row_count, np.int64)
        ranks[order] = np.cumsum(starts)
    ranks[absent] = 0
    return ranks


def _removals(groups: KeyGroups, ranks: Sequence[IndexArray], removing: Sequence[bool]) -> IndexArray:
    """(k,) position of the last -D that removed the row, -1 if none did.

    Row by row, for keys with a -D only: a removal resets the sequences of all groups, so each depends on the one
    before.
    """
    removed_at = np.full(groups.key_count, -1)
    has_delete = groups.last_position(groups.kinds == RowKind.DELETE) >= 0
    for key in np.flatnonzero(has_delete).tolist():
        first, last = int(groups.firsts[key]), int(groups.lasts[key])
        kinds = groups.kinds[first : last + 1].tolist()
        rows = np.stack([rank[first : last + 1] for rank in ranks], axis=1).tolist()
        current = rows[0] if kinds[0] & 1 else [0] * len(ranks)
        for step, (kind, row) in enumerate(zip(kinds, rows, strict=True)):
            is_newer = [rank > 0 and rank >= old for rank, old in zip(row, current, strict=True)]
            if kind == RowKind.DELETE and any(
                newer and removes for newer, removes in zip(is_newer, removing, strict=True)
            ):
                removed_at[key] = first + step
                current = row
            else:
                current = [rank if newer else old for rank, old, newer in zip(row, current, is_newer, strict=True)]
    return removed_at


# ---- Aggregated columns of sequence groups: a row with an older sequence is folded in before the current value
#
# Source: Paimon PartialUpdateMergeFunction and FieldAggregator.aggReversed.


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """The steps by which rows, in arrival order, update the columns of one sequence group."""

    groups: KeyGroups
    base: IndexArray  # (k,) position of the row that gives the initial value, even if it is a retract; -1: nothing
    is_step: BoolArray  # (n,) whether the row updates the group
    ranks: IndexArray  # (n,) rank of the row's sequence
    retracts: BoolArray  # (n,) whether the row's value is taken back

    def fold(self, name: str, values: pa.Array, spec: FieldAggregate) -> pa.Array | IndexArray:
        """(k,) a column's aggregate, or the table rows that hold it; see ``FieldAggregate.fold``."""
        groups, ranks = self.groups, self.ranks
        offsets = groups.keys * (int(ranks.max()) + 1)
        is_older = ranks + offsets < np.maximum.accumulate(ranks + offsets)
        is_prepended = self.is_step & is_older & ~self.retracts & spec.prepends_older
        folded = spec.fold(name, self._operands(values, is_prepended))
        if not (spec.depends_on_step_order and self.retracts.any() and is_prepended.any()):
            return folded
        retracted = np.where(self.is_step & self.retracts, np.arange(len(ranks)), len(ranks))
        interleaved = np.flatnonzero(groups.last_position(is_prepended) > np.minimum.reduceat(retracted, groups.firsts))
        if not len(interleaved):
            return folded
        whole = take_or_null(values, folded) if isinstance(folded, np.ndarray) else folded
        chosen = np.arange(len(whole))
        chosen[interleaved] = len(whole) + np.arange(len(interleaved))
        stepwise = self._step_by_step(name, values, spec, interleaved, is_prepended)
        return pa.concat_arrays([whole, stepwise]).take(pa.array(chosen))

    def _operands(self, values: pa.Array, is_prepended: BoolArray) -> Operands:
        """All operands in fold order: prepended ones (newest first), then the base, then the rest."""
        positions, is_base = self._positions()
        ages = np.where(is_prepended[positions], -1 - positions, 1 + positions)
        sorted_steps = np.lexsort((np.where(is_base, 0, ages), self.groups.keys[positions]))
        positions, is_base = positions[sorted_steps], is_base[sorted_steps]
        return Operands(
            column=values,
            rows=self.groups.order[positions],
            keys=OperandKeys(self.groups.keys[positions], self.groups.key_count),
            retracts=self.retracts[positions] & ~is_base,
        )

    def _step_by_step(
        self, name: str, values: pa.Array, spec: FieldAggregate, interleaved: IndexArray, is_prepended: BoolArray
    ) -> pa.Array:
        """The aggregate of keys with a retract between prepended values: folds one step of all these keys at a time."""
        numbers = np.full(self.groups.key_count, -1)
        numbers[interleaved] = np.arange(len(interleaved))
        positions, is_base = self._positions()
        owners = numbers[self.groups.keys[positions]]
        positions, is_base, owners = positions[owners >= 0], is_base[owners >= 0], owners[owners >= 0]
        order = np.lexsort((positions, ~is_base, owners))
        positions, is_base, owners = positions[order], is_base[order], owners[order]
        step_numbers = np.arange(len(owners)) - np.searchsorted(owners, owners)
        stepped = values.take(pa.array(self.groups.order[positions]))
        retracts = self.retracts[positions] & ~is_base
        places = np.where(is_prepended[positions] & ~is_base, -1, 1)  # before or after the current value
        all_keys = np.arange(len(interleaved))
        found = pa.nulls(len(interleaved), values.type)
        for step in range(int(step_numbers.max()) + 1):
            now = np.flatnonzero(step_numbers == step)
            keys = np.concatenate([all_keys, owners[now]])
            operand_order = np.lexsort((np.concatenate([np.zeros(len(interleaved), np.int64), places[now]]), keys))
            operands = Operands(
                column=pa.concat_arrays([found, stepped]),
                rows=np.concatenate([all_keys, len(interleaved) + now])[operand_order],
                keys=OperandKeys(keys[operand_order], len(interleaved)),
                retracts=np.concatenate([np.zeros(len(interleaved), np.bool_), retracts[now]])[operand_order],
            )
            folded = spec.fold(name, operands)
            found = take_or_null(operands.column, folded) if isinstance(folded, np.ndarray) else folded
        return found

    def _positions(self) -> tuple[IndexArray, BoolArray]:
        """(m,) positions of bases and steps, and which are bases; one row may be both."""
        bases, steps = self.base[self.base >= 0], np.flatnonzero(self.is_step)
        is_base = np.zeros(len(bases) + len(steps), np.bool_)
        is_base[: len(bases)] = True
        return np.concatenate([bases, steps]), is_base
