"""Aggregate functions: each reduces one column's values of a key, oldest first, to a single value.

A function sees the operands of all keys at once. A *retract* operand undoes an earlier one; functions that do not
support retraction raise. Source: Paimon FieldAggregator and its subclasses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lsm.aggregate.collection_aggregates import collect, listagg, merge_map
from lsm.aggregate.nested_aggregates import merge_map_with_keytime, nested_partial_update, nested_update
from lsm.aggregate.number_aggregates import product, total, truth_of_all, truth_of_any
from lsm.aggregate.operand_types import check_type, is_stored_as_integer
from lsm.aggregate.operands import OperandKeys, Operands
from lsm.aggregate.sketch_aggregates import bitmaps32, bitmaps64, hll_sketches, theta_sketches
from lsm.errors import InvalidInputError
from lsm.keys.words import IndexArray, NumberPart, number_parts_of, stable_order


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldAggregate:
    """How one column is aggregated."""

    function: str = "last_non_null_value"  # a name of AGGREGATE_FUNCTIONS
    ignore_retract: bool = False  # drop retract operands before aggregating
    distinct: bool = False  # collect, listagg: drop duplicates
    delimiter: str = ","  # listagg
    nested_key: tuple[str, ...] = ()  # nested_update, nested_partial_update: columns that identify a nested row
    count_limit: int | None = None  # nested_update: maximum array length; further rows are dropped
    time_field: str | None = None  # merge_map_with_keytime: STRING column of the nested rows; None: their last column

    def __post_init__(self) -> None:
        if self.function not in AGGREGATE_FUNCTIONS:
            raise InvalidInputError(
                f"unknown aggregate function: function={self.function} allowed={sorted(AGGREGATE_FUNCTIONS)}"
            )

    @property
    def supports_retracts(self) -> bool:
        """Whether retract operands are either undone or ignored, rather than refused."""
        return self.ignore_retract or AGGREGATE_FUNCTIONS[self.function].supports_retracts

    @property
    def prepends_older(self) -> bool:
        """Whether a row older by its group's sequence is folded in before the current value (else after it)."""
        return AGGREGATE_FUNCTIONS[self.function].prepends_older

    @property
    def depends_on_step_order(self) -> bool:
        """Whether a retract between two prepended values changes the result, so that they cannot be folded at once."""
        function = AGGREGATE_FUNCTIONS[self.function]
        return function.supports_retracts and function.prepends_older and not (function.is_sum or self.ignore_retract)

    def check_type(self, name: str, kind: pa.DataType) -> None:
        """Raises: InvalidInputError naming the column and the types that the function accepts."""
        try:
            check_type(self.function, kind, nested_key=self.nested_key, time_field=self.time_field)
        except InvalidInputError as error:
            raise self._refusal(name, kind, error) from error

    def fold(self, name: str, operands: Operands) -> pa.Array | IndexArray:
        """(k,) the aggregate of every key, null for keys without operands.

        The result is either values of the operands' type or row indices into the operands' column, -1 for null.

        Args:
            name: the column, for messages.
            operands: the column's values by key.

        Raises:
            InvalidInputError: the function does not support the type or a retract, or a sum overflows its
                type.
        """
        function = AGGREGATE_FUNCTIONS[self.function]
        if self.ignore_retract:
            operands = operands.where(~operands.retracts)
        elif not function.supports_retracts and operands.retracts.any():
            raise InvalidInputError(
                f"aggregate function does not support retracts: column={name} aggregate_function={self.function} "
                f"retract_count={int(operands.retracts.sum())} fix=set fields.{name}.ignore-retract=true"
            )
        if function.skips_nulls:
            operands = operands.valid()
        if not len(operands.rows):
            return np.full(operands.key_count, -1)
        self.check_type(name, operands.column.type)
        try:
            folded = function.apply(operands.dense(), self)
        except (InvalidInputError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._refusal(name, operands.column.type, error) from error
        return operands.spread_rows(folded) if isinstance(folded, np.ndarray) else operands.spread(folded)

    def _refusal(self, name: str, kind: pa.DataType, error: Exception) -> InvalidInputError:
        return InvalidInputError(
            f"cannot aggregate: column={name} type={kind} aggregate_function={self.function}: {error}"
        )


@dataclass(frozen=True, slots=True)
class _Function:
    apply: Callable[[Operands, FieldAggregate], pa.Array | IndexArray]
    """(k,) values, or operand indices with -1 for null; every key has at least one operand."""
    supports_retracts: bool = False
    skips_nulls: bool = True
    is_sum: bool = False  # commutative: retracts and inserts may come in any order
    prepends_older: bool = True  # rows older than the current value of their sequence group


def _last(operands: Operands, _: FieldAggregate) -> IndexArray:
    """The newest operand; null when it is a retract."""
    lasts = operands.keys.lasts
    return np.where(operands.retracts[lasts], -1, lasts)


def _first(operands: Operands, _: FieldAggregate) -> IndexArray:
    return operands.keys.firsts


def _greatest(operands: Operands, _: FieldAggregate) -> pa.Array | IndexArray:
    if is_stored_as_integer(operands.column.type):
        return _integer_extremes(operands, np.maximum)
    return _greatest_at(operands, descending=False)


def _smallest(operands: Operands, _: FieldAggregate) -> pa.Array | IndexArray:
    if is_stored_as_integer(operands.column.type):
        return _integer_extremes(operands, np.minimum)
    return _greatest_at(operands, descending=True)


def _integer_extremes(operands: Operands, function: np.ufunc) -> pa.Array:
    kind = operands.column.type
    numbers = operands.values.view(f"int{kind.bit_width}").to_numpy()
    return pa.array(function.reduceat(numbers, operands.keys.firsts)).view(kind)


def _greatest_at(operands: Operands, *, descending: bool) -> IndexArray:
    """(k,) operand index of each key's greatest operand; the smallest with `descending`."""
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
    "last_value": _Function(_last, supports_retracts=True, skips_nulls=False),
    "last_non_null_value": _Function(_last, supports_retracts=True),
    "first_value": _Function(_first, skips_nulls=False),
    "first_non_null_value": _Function(_first),
    "first_not_null_value": _Function(_first),
    "max": _Function(_greatest),
    "min": _Function(_smallest),
    "sum": _Function(lambda operands, _: total(operands), supports_retracts=True, is_sum=True),
    "count": _Function(lambda operands, _: total(operands), supports_retracts=True, is_sum=True),
    "product": _Function(lambda operands, _: product(operands), supports_retracts=True),
    "bool_and": _Function(lambda operands, _: truth_of_all(operands)),
    "bool_or": _Function(lambda operands, _: truth_of_any(operands)),
    "listagg": _Function(lambda operands, spec: listagg(operands, delimiter=spec.delimiter, distinct=spec.distinct)),
    "collect": _Function(
        lambda operands, spec: collect(operands, distinct=spec.distinct), supports_retracts=True, prepends_older=False
    ),
    "merge_map": _Function(lambda operands, _: merge_map(operands), supports_retracts=True),
    "merge_map_with_keytime": _Function(
        lambda operands, spec: merge_map_with_keytime(operands, time_field=spec.time_field)
    ),
    "nested_update": _Function(
        lambda operands, spec: nested_update(operands, nested_key=spec.nested_key, count_limit=spec.count_limit),
        supports_retracts=True,
    ),
    "nested_partial_update": _Function(
        lambda operands, spec: nested_partial_update(operands, nested_key=spec.nested_key)
    ),
    "rbm32": _Function(lambda operands, _: bitmaps32(operands)),
    "rbm64": _Function(lambda operands, _: bitmaps64(operands)),
    "theta_sketch": _Function(lambda operands, _: theta_sketches(operands)),
    "hll_sketch": _Function(lambda operands, _: hll_sketches(operands)),
}
