"""Aggregated columns of sequence groups: a row that is older by the sequence takes part in front of what is there.

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
    """What the rows of keys do to the columns of one sequence group, in the order of the rows."""

    groups: KeyGroups
    base: IndexArray  # (k,) position of the row whose own value a key begins with, even if it is a retract; -1: nothing
    is_step: BoolArray  # (n,) whether the row takes part
    ranks: IndexArray  # (n,) of its sequence

    def fold(self, name: str, values: pa.Array, spec: FieldAggregate) -> pa.Array | IndexArray:
        """(k,) a column's aggregate, or rows of the table that hold it; see ``FieldAggregate.fold``."""
        groups, ranks = self.groups, self.ranks
        offsets = groups.keys * (int(ranks.max()) + 1)
        is_older = ranks + offsets < np.maximum.accumulate(ranks + offsets)
        in_front = self.is_step & is_older & ~groups.retracts & spec.goes_in_front
        folded = spec.fold(name, self._operands(values, in_front))
        if not (spec.needs_turns and groups.has_retracts and in_front.any()):
            return folded
        taken_back = np.where(self.is_step & groups.retracts, np.arange(len(ranks)), len(ranks))
        torn = np.flatnonzero(groups.last_position(in_front) > np.minimum.reduceat(taken_back, groups.firsts))
        if not len(torn):
            return folded
        whole = take_or_null(values, folded) if isinstance(folded, np.ndarray) else folded
        chosen = np.arange(len(whole))
        chosen[torn] = len(whole) + np.arange(len(torn))
        return pa.concat_arrays([whole, self._in_turns(name, values, spec, torn, in_front)]).take(pa.array(chosen))

    def _operands(self, values: pa.Array, in_front: BoolArray) -> Operands:
        """Everything at once: what goes in front, the newest of it first, then the base, then the rest."""
        positions, is_base = self._positions()
        ages = np.where(in_front[positions], -1 - positions, 1 + positions)
        sorted_steps = np.lexsort((np.where(is_base, 0, ages), self.groups.keys[positions]))
        positions, is_base = positions[sorted_steps], is_base[sorted_steps]
        return Operands(
            column=values,
            rows=self.groups.order[positions],
            keys=OperandKeys(self.groups.keys[positions], self.groups.key_count),
            retracts=self.groups.retracts[positions] & ~is_base,
        )

    def _in_turns(
        self, name: str, values: pa.Array, spec: FieldAggregate, torn: IndexArray, in_front: BoolArray
    ) -> pa.Array:
        """The aggregate of keys that take back between what they put in front: one step of all these keys at a time."""
        numbers = np.full(self.groups.key_count, -1)
        numbers[torn] = np.arange(len(torn))
        positions, is_base = self._positions()
        owners = numbers[self.groups.keys[positions]]
        positions, is_base, owners = positions[owners >= 0], is_base[owners >= 0], owners[owners >= 0]
        order = np.lexsort((positions, ~is_base, owners))
        positions, is_base, owners = positions[order], is_base[order], owners[order]
        turns = np.arange(len(owners)) - np.searchsorted(owners, owners)
        given = values.take(pa.array(self.groups.order[positions]))
        retracts = self.groups.retracts[positions] & ~is_base
        places = np.where(in_front[positions] & ~is_base, -1, 1)  # beside what is there
        everybody = np.arange(len(torn))
        found = pa.nulls(len(torn), values.type)
        for turn in range(int(turns.max()) + 1):
            now = np.flatnonzero(turns == turn)
            keys = np.concatenate([everybody, owners[now]])
            sides = np.lexsort((np.concatenate([np.zeros(len(torn), np.int64), places[now]]), keys))
            operands = Operands(
                column=pa.concat_arrays([found, given]),
                rows=np.concatenate([everybody, len(torn) + now])[sides],
                keys=OperandKeys(keys[sides], len(torn)),
                retracts=np.concatenate([np.zeros(len(torn), np.bool_), retracts[now]])[sides],
            )
            folded = spec.fold(name, operands)
            found = take_or_null(operands.column, folded) if isinstance(folded, np.ndarray) else folded
        return found

    def _positions(self) -> tuple[IndexArray, BoolArray]:
        """(m,) positions of bases and steps, and which are bases: such a row may be both."""
        bases, steps = self.base[self.base >= 0], np.flatnonzero(self.is_step)
        is_base = np.zeros(len(bases) + len(steps), np.bool_)
        is_base[: len(bases)] = True
        return np.concatenate([bases, steps]), is_base
