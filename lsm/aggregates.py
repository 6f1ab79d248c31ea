"""Aggregate functions of single columns: the values of a key, oldest first, become one value.

A function sees the operands of all keys at once. A *retract* operand takes back what an earlier one gave; functions
that cannot do that refuse it. Source: Paimon format notes 6.5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lsm.collection_aggregates import collect, listagg, merge_map
from lsm.errors import InvalidInputError
from lsm.number_aggregates import product, total, truth_of_all, truth_of_any
from lsm.operands import OperandKeys, Operands
from lsm.words import IndexArray, NumberPart, number_parts_of, stable_order


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldAggregate:
    """How one column is aggregated."""

    function: str = "last_non_null_value"  # a name of AGGREGATE_FUNCTIONS
    ignore_retract: bool = False  # aggregate as if retracts were not there
    distinct: bool = False  # collect, listagg: leave out what is there already
    delimiter: str = ","  # listagg

    def __post_init__(self) -> None:
        if self.function not in AGGREGATE_FUNCTIONS:
            raise InvalidInputError(
                f"there is no such aggregate function: function={self.function} allowed={sorted(AGGREGATE_FUNCTIONS)}"
            )

    def fold(self, name: str, operands: Operands) -> pa.Array:
        """(k,) the aggregate of every key, of the type of the operands; null for keys without operands.

        Args:
            name: the column, for messages.
            operands: the column's values by key.

        Raises:
            InvalidInputError: the type does not fit the function, a retract cannot be taken back, or a sum leaves its
                type.
        """
        function = AGGREGATE_FUNCTIONS[self.function]
        if self.ignore_retract:
            operands = operands.where(~operands.retracts)
        elif not function.takes_retracts and operands.retracts.any():
            raise InvalidInputError(
                f"a value cannot be taken back: column={name} aggregate_function={self.function} "
                f"retract_count={int(operands.retracts.sum())} fix=set fields.{name}.ignore-retract=true"
            )
        if function.skips_nulls and operands.values.null_count:
            operands = operands.where(operands.values.is_valid().to_numpy(zero_copy_only=False))
        if not len(operands.values):
            return pa.nulls(operands.key_count, operands.values.type)
        try:
            folded = function.apply(operands.dense(), self)
        except (InvalidInputError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"cannot aggregate: column={name} type={operands.values.type} "
                f"aggregate_function={self.function}: {error}"
            ) from error
        return operands.spread(folded)


@dataclass(frozen=True, slots=True)
class _Function:
    apply: Callable[[Operands, FieldAggregate], pa.Array]  # every key has at least one operand
    takes_retracts: bool = False
    skips_nulls: bool = True


def _last(operands: Operands, _: FieldAggregate) -> pa.Array:
    """The newest operand; null when it is a retract."""
    return operands.values.take(pa.array(operands.keys.lasts, mask=operands.retracts[operands.keys.lasts]))


def _first(operands: Operands, _: FieldAggregate) -> pa.Array:
    return operands.values.take(pa.array(operands.keys.firsts))


def _greatest(operands: Operands, _: FieldAggregate) -> pa.Array:
    return operands.values.take(pa.array(_greatest_at(operands, descending=False)))


def _smallest(operands: Operands, _: FieldAggregate) -> pa.Array:
    return operands.values.take(pa.array(_greatest_at(operands, descending=True)))


def _greatest_at(operands: Operands, *, descending: bool) -> IndexArray:
    """(k,) where the greatest operand of each key is; `descending` turns the order round."""
    keys = operands.keys
    parts = number_parts_of(operands.values, descending=descending)
    if len(parts) > 1:
        order, _ = stable_order([NumberPart(keys.numbers.view(np.uint64)), *parts], len(keys.numbers), presorted=False)
        return order[keys.lasts]
    words = parts[0].values
    greatest = np.maximum.reduceat(words, keys.firsts)
    at = np.flatnonzero(words == greatest[keys.numbers])
    return at[OperandKeys(keys.numbers[at], keys.key_count).firsts]


AGGREGATE_FUNCTIONS: Final = {
    "last_value": _Function(_last, takes_retracts=True, skips_nulls=False),
    "last_non_null_value": _Function(_last, takes_retracts=True),
    "first_value": _Function(_first, skips_nulls=False),
    "first_non_null_value": _Function(_first),
    "first_not_null_value": _Function(_first),
    "max": _Function(_greatest),
    "min": _Function(_smallest),
    "sum": _Function(lambda operands, _: total(operands), takes_retracts=True),
    "product": _Function(lambda operands, _: product(operands), takes_retracts=True),
    "bool_and": _Function(lambda operands, _: truth_of_all(operands)),
    "bool_or": _Function(lambda operands, _: truth_of_any(operands)),
    "listagg": _Function(lambda operands, spec: listagg(operands, delimiter=spec.delimiter, distinct=spec.distinct)),
    "collect": _Function(lambda operands, spec: collect(operands, distinct=spec.distinct), takes_retracts=True),
    "merge_map": _Function(lambda operands, _: merge_map(operands), takes_retracts=True),
}
