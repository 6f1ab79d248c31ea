"""Aggregated columns of sequence groups: a row with an older sequence is folded in before the current value.

Source: Paimon PartialUpdateMergeFunction and FieldAggregator.aggReversed.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.operands import OperandKeys, Operands
from lsm.keys.key_groups import KeyGroups, take_or_null
from lsm.keys.words import BoolArray, IndexArray


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
