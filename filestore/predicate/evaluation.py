"""Evaluation of predicates: on Arrow rows, and on statistics to skip files.

Predicates are defined in ``predicate.predicate``, and parsed from SQL in ``predicate.parser``.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.format.statistics import UNKNOWN, ColumnRange
from filestore.predicate.predicate import (
    And,
    Compare,
    CompareOp,
    Constant,
    In,
    IsNull,
    Leaf,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    columns_of,
)
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import arrow_type

Operand = tuple[Any, pa.DataType]  # an array or an expression, and its type

_KERNELS = {
    CompareOp.EQ: pc.equal,
    CompareOp.NE: pc.not_equal,
    CompareOp.LT: pc.less,
    CompareOp.LE: pc.less_equal,
    CompareOp.GT: pc.greater,
    CompareOp.GE: pc.greater_equal,
}
_ABOVE = (CompareOp.GT, CompareOp.GE)
_MIRRORED = {CompareOp.NE: CompareOp.EQ, CompareOp.GT: CompareOp.LE, CompareOp.GE: CompareOp.LT}


# ---- rows


def to_arrow(predicate: Predicate, schema: TableSchema) -> pc.Expression:
    """The predicate as an Arrow expression over columns of ``schema``: true, false or null per row, as in Spark."""
    arrow = {name: arrow_type(schema.field(name).type) for name in columns_of(predicate)}

    def operand(leaf: Leaf) -> Operand:
        inner = arrow[leaf.column]
        for name in leaf.path:
            inner = inner.field(name).type
        return pc.field(leaf.column, *leaf.path), inner

    built = _build(predicate, operand)
    return pc.scalar(built) if isinstance(built, pa.Scalar) else built


def filter_mask(predicate: Predicate, rows: pa.RecordBatch) -> pa.BooleanArray:
    """(n,) true, false or null per row, for rows with the column types of the predicate's schema."""

    def operand(leaf: Leaf) -> Operand:
        column = rows.column(leaf.column)
        for name in leaf.path:
            column = pc.struct_field(column, name)  # null where the ROW itself is null
        return column, column.type

    mask = _build(predicate, operand)
    return pa.repeat(mask, rows.num_rows) if isinstance(mask, pa.Scalar) else mask


def _build(predicate: Predicate, operand: Callable[[Leaf], Operand]) -> Any:
    """Arrays give an array, expressions an expression; Constants are scalars."""
    if isinstance(predicate, Constant):
        return pa.scalar(predicate.outcome, pa.bool_())
    if isinstance(predicate, Not):
        return _call(pc.invert, _build(predicate.part, operand))
    if isinstance(predicate, And | Or):
        combine = pc.and_kleene if isinstance(predicate, And) else pc.or_kleene
        result = _build(predicate.parts[0], operand)
        for part in predicate.parts[1:]:
            result = _call(combine, result, _build(part, operand))
        return result
    column, arrow = operand(predicate)
    if isinstance(predicate, IsNull):
        return pc.is_null(column)
    if isinstance(predicate, StartsWith):
        return pc.starts_with(column, pattern=predicate.prefix)
    if isinstance(predicate, Like):
        return pc.match_like(column, pattern=predicate.pattern)
    if isinstance(predicate, In):
        return _build_in(predicate, column, arrow)
    return _build_compare(predicate, column, arrow)


def _call(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call a kernel; it accepts scalars with arrays, but with expressions they must be expressions too."""
    if any(isinstance(argument, pc.Expression) for argument in arguments):
        arguments = tuple(pc.scalar(a) if isinstance(a, pa.Scalar) else a for a in arguments)
    return kernel(*arguments)


def _build_compare(predicate: Compare, column: Any, arrow: pa.DataType) -> Any:
    if not pa.types.is_floating(arrow):
        return _KERNELS[predicate.op](column, pa.scalar(predicate.value, type=arrow))
    if arrow != pa.float64():
        column = column.cast(pa.float64())
    if math.isnan(predicate.value):
        return _compare_with_nan(predicate.op, column)
    result = _KERNELS[predicate.op](column, pa.scalar(predicate.value, pa.float64()))
    return pc.or_kleene(result, pc.is_nan(column)) if predicate.op in _ABOVE else result


def _compare_with_nan(op: CompareOp, column: Any) -> Any:
    is_nan = pc.is_nan(column)
    if op in (CompareOp.EQ, CompareOp.GE):
        return is_nan
    if op in (CompareOp.NE, CompareOp.LT):
        return pc.invert(is_nan)
    never = pc.and_kleene(is_nan, pc.invert(is_nan))  # null stays null
    return never if op is CompareOp.GT else pc.invert(never)


def _build_in(predicate: In, column: Any, arrow: pa.DataType) -> Any:
    if pa.types.is_floating(arrow):
        column, arrow = column if arrow == pa.float64() else column.cast(pa.float64()), pa.float64()
        values, has_nan = predicate.prepared("floats", _float_set)
        found = pc.is_in(column, value_set=values)
        found = pc.or_kleene(found, pc.is_nan(column)) if has_nan else found
    else:
        values = predicate.prepared(f"set of {arrow}", lambda values: pa.array(values, type=arrow))
        rising = _in_rising(predicate, column, values)
        if rising is not None:
            return rising
        found = pc.is_in(column, value_set=values)
    null = pa.scalar(None, pa.bool_())
    if predicate.has_null:
        return _call(pc.if_else, pc.coalesce(found, _like(found, False)), pa.scalar(True), null)
    return _call(pc.if_else, pc.is_valid(column), found, null)


def _in_rising(predicate: In, column: Any, values: pa.Array) -> pa.BooleanArray | None:
    """The outcome for integers that rise, as those of a key do in its files: found by bisection; None: they do not."""
    if not isinstance(column, pa.Array) or not pa.types.is_integer(column.type) or not len(column):
        return None
    if predicate.has_null or column.null_count:
        return None
    numbers = column.to_numpy()
    if numbers[0] > numbers[-1] or (numbers[1:] < numbers[:-1]).any():
        return None
    wanted = predicate.prepared(f"rising {column.type}", lambda _: np.unique(values.to_numpy()))
    low, high = np.searchsorted(wanted, numbers[0], "left"), np.searchsorted(wanted, numbers[-1], "right")
    starts, stops = (np.searchsorted(numbers, wanted[low:high], side) for side in ("left", "right"))
    is_there = starts < stops
    steps = np.zeros(len(numbers) + 1, np.int8)
    steps[starts[is_there]] += 1
    steps[stops[is_there]] -= 1
    return pa.array(np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_))


def _float_set(values: Sequence[float]) -> tuple[pa.DoubleArray, bool]:
    """The numbers among some values, with both zeros where there is one; whether NaN is among them."""
    numbers = [value for value in values if not math.isnan(value)]
    zeros = [0.0, -0.0] if 0.0 in numbers else []
    return pa.array([*numbers, *zeros], pa.float64()), len(numbers) < len(values)


def _like(value: Any, outcome: bool) -> Any:
    return pc.scalar(outcome) if isinstance(value, pc.Expression) else pa.scalar(outcome)


# ---- statistics


class _Outcomes(NamedTuple):
    """Possible outcomes of a predicate among the rows of a file; a superset is allowed, a subset is not."""

    true: bool
    false: bool
    null: bool


_NAN = (True, 0.0)  # in the order of values the greatest
_ANY = _Outcomes(True, True, True)


def may_match(predicate: Predicate, ranges: Mapping[str, ColumnRange], row_count: int) -> bool:
    """False only if no row can satisfy the predicate. Columns without a range count as unknown.

    Args:
        predicate: the predicate.
        ranges: ranges by column name, in the types of the predicate's schema; possibly truncated.
        row_count: number of rows covered by the ranges.
    """
    return row_count > 0 and _outcomes(predicate, ranges, row_count).true


def _outcomes(predicate: Predicate, ranges: Mapping[str, ColumnRange], row_count: int) -> _Outcomes:
    if isinstance(predicate, Constant):
        return _Outcomes(predicate.outcome is True, predicate.outcome is False, predicate.outcome is None)
    if isinstance(predicate, Not):
        inner = _outcomes(predicate.part, ranges, row_count)
        return _Outcomes(inner.false, inner.true, inner.null)
    if isinstance(predicate, And | Or):
        return _combined(predicate, [_outcomes(part, ranges, row_count) for part in predicate.parts])
    part = UNKNOWN if predicate.path else ranges.get(predicate.column, UNKNOWN)
    has_null = part.null_count != 0
    has_value = part.null_count is None or part.null_count < row_count
    if isinstance(predicate, IsNull):
        # A field of a ROW may be null where the ROW is not, and its null count is unknown.
        return _ANY if predicate.path else _Outcomes(has_null, has_value, False)
    if not has_value:
        return _Outcomes(False, False, True)
    can_be_true, can_be_false = _value_outcomes(predicate, part)
    if isinstance(predicate, In) and predicate.has_null:
        return _Outcomes(can_be_true, False, True)
    return _Outcomes(can_be_true, can_be_false, has_null)


def _combined(predicate: And | Or, parts: Sequence[_Outcomes]) -> _Outcomes:
    if isinstance(predicate, And):
        true, false = all(part.true for part in parts), any(part.false for part in parts)
        null = any(part.null for part in parts) and all(part.true or part.null for part in parts)
    else:
        true, false = any(part.true for part in parts), all(part.false for part in parts)
        null = any(part.null for part in parts) and all(part.false or part.null for part in parts)
    return _Outcomes(true, false, null)


def _value_outcomes(predicate: Compare | In | StartsWith | Like, part: ColumnRange) -> tuple[bool, bool]:
    """Whether the test may be true, and may be false, for a value within the bounds."""
    if isinstance(predicate, Like):
        return _prefix_outcomes(like_prefix(predicate.pattern), part)[0], True
    if isinstance(predicate, StartsWith):
        return _prefix_outcomes(predicate.prefix, part)
    if isinstance(predicate, In):
        return _in_outcomes(predicate, part)
    if predicate.op in _MIRRORED:
        true, false = _compare_outcomes(_MIRRORED[predicate.op], predicate.value, part)
        return false, true
    return _compare_outcomes(predicate.op, predicate.value, part)


def _compare_outcomes(op: CompareOp, value: Any, part: ColumnRange) -> tuple[bool, bool]:
    """Outcomes of ``=``, ``<`` or ``<=``; a missing bound is infinity."""
    value_order = _order(value)
    low = None if part.min is None else _order(part.min)
    high = None if part.max is None else _order(part.max)
    reaches_below = low is None or low < value_order
    reaches_above = high is None or high > value_order
    touches = (low is None or low <= value_order) and (high is None or high >= value_order)
    if op is CompareOp.EQ:
        true, false = touches, reaches_below or reaches_above
    elif op is CompareOp.LT:
        true, false = reaches_below, reaches_above or touches
    else:
        true, false = reaches_below or touches, reaches_above
    if part.may_hold_nan:
        is_nan = isinstance(value, float) and math.isnan(value)
        true, false = true or is_nan, True
    return true, false


def _in_outcomes(predicate: In, part: ColumnRange) -> tuple[bool, bool]:
    """Those of ``=`` for any of the values, found by bisection: a list may be long, and files many."""
    ordered = predicate.prepared("ordered", lambda values: sorted(map(_order, values)))
    low = None if part.min is None else _order(part.min)
    high = None if part.max is None else _order(part.max)
    first = 0 if low is None else bisect_left(ordered, low)
    true = first < len(ordered) and (high is None or ordered[first] <= high)
    # a value that is all that the bounds allow
    is_single = low is not None and high is not None and low >= high
    only = bisect_left(ordered, high) if is_single else len(ordered)
    false = only == len(ordered) or ordered[only] > low
    if part.may_hold_nan:
        return true or (_NAN in ordered[-1:]), True
    return true, false


def _order(value: Any) -> Any:
    """A sort key that orders values as Spark does; differs from the value only for floats."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else (False, value)
    return value


def _prefix_outcomes(prefix: str, part: ColumnRange) -> tuple[bool, bool]:
    low, high = part.min, part.max
    below = low is None or low[: len(prefix)] <= prefix
    above = high is None or high >= prefix
    always_all = low is not None and high is not None and low.startswith(prefix) and high.startswith(prefix)
    return below and above, not always_all


def like_prefix(pattern: str) -> str:
    """The literal prefix of a LIKE pattern, common to all matching strings."""
    prefix = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            break
        prefix.append(next(characters, "") if character == "\\" else character)
    return "".join(prefix)
