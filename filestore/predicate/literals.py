"""Comparison of a column with a SQL literal as Spark compares them, by converting the literal to the column's domain.

Most types count units (integers, cents, days, microseconds), so the literal is a fraction of units, and a comparison
with a fraction is a comparison with an adjacent value: ``quantity > 1.5`` is ``quantity > 1`` for an INT.
Where Spark rounds both sides to a floating point number first, a comparison is one with the first or the last unit that
is rounded to the literal: ``amount = 9.99D`` is ``amount = 9.99`` for a DECIMAL(10, 2).
Where time zones matter (strings for TIMESTAMP_LTZ, LTZ with TIMESTAMP) the zone is UTC: a filter gives the same rows
everywhere.
"""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

import numpy as np

from filestore.predicate.predicate import And, Compare, CompareOp, Constant, In, Not, Or, Predicate
from filestore.types.data_types import BYTES_ROOTS, INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, timestamp_unit
from filestore.types.text_values import (
    NANOS_PER_DAY,
    NANOS_PER_UNIT,
    LiteralMismatchError,
    Moment,
    parse_float,
    parse_moment,
    parse_time,
)

INTEGER_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "DATE": 32}
_EXACT: Final = Context(prec=80)
_DEFAULT_DECIMAL: Final = (10, 0)
"""Precision and scale of ``DECIMAL`` without them, in Spark."""
_MOST_DIGITS: Final = 400
"""Of a number in a filter, before and behind the point: more than a double has."""


Literal = bool | int | float | np.float32 | Decimal | str | bytes | Moment | None
"""A constant by its SQL type: ``int`` is of an integer type, ``float`` a DOUBLE, ``np.float32`` a FLOAT."""


def compare(column: str, path: tuple[str, ...], data_type: DataType, op: CompareOp, literal: Literal) -> Predicate:
    """The comparison in the column's domain. Raises: LiteralMismatchError."""
    if literal is None:
        return Constant(outcome=None)
    return _compare(column, path, data_type, op, literal, is_rounded=_is_rounded(data_type, [literal]))


def is_in(column: str, path: tuple[str, ...], data_type: DataType, literals: Sequence[Literal]) -> Predicate:
    """``column IN (literals)``, without literals that the column can never equal. Raises: LiteralMismatchError."""
    given = [each for each in literals if each is not None]
    is_rounded = _is_rounded(data_type, given)
    equal = [_compare(column, path, data_type, CompareOp.EQ, each, is_rounded=is_rounded) for each in given]
    values = tuple(each.value for each in equal if isinstance(each, Compare))
    found = In(column=column, path=path, values=values, has_null=len(given) < len(literals))
    ranges = [each for each in equal if isinstance(each, And)]
    return Or(parts=(found, *ranges)) if ranges else found


def _compare(
    column: str, path: tuple[str, ...], data_type: DataType, op: CompareOp, literal: Literal, *, is_rounded: bool
) -> Predicate:
    root = data_type.root
    if root in ("FLOAT", "DOUBLE"):
        number = _number(literal, data_type)
        value = number if isinstance(number, float) else _double(number)
        return Compare(column=column, path=path, op=op, value=value)
    if root in INTEGER_ROOTS or root == "DECIMAL":
        number = _number(literal, data_type)
        if isinstance(number, float):
            return _compare_counted(column, path, data_type, op, number)
        if is_rounded:
            return _compare_rounded(column, path, data_type, op, _double(number))
        return _compare_counted(column, path, data_type, op, number * Fraction(10) ** (data_type.scale or 0))
    if root in TIMESTAMP_ROOTS or root in ("DATE", "TIME"):
        return _compare_counted(column, path, data_type, op, _time_units(literal, data_type))
    return Compare(column=column, path=path, op=op, value=_plain_value(literal, data_type))


def _is_rounded(data_type: DataType, literals: Sequence[Literal]) -> bool:
    """Whether numbers of these types are compared as doubles.

    Source: Spark's AnsiTypeCoercion: a DOUBLE beside any number, a FLOAT beside another type and a text beside a
    fraction make all of them DOUBLE. Two FLOATs have the same order as doubles.
    """
    kinds = {type(each) for each in literals}
    if data_type.root in ("FLOAT", "DOUBLE") or float in kinds or np.float32 in kinds:
        return True
    return str in kinds and (data_type.root == "DECIMAL" or Decimal in kinds)


def _compare_counted(
    column: str, path: tuple[str, ...], data_type: DataType, op: CompareOp, units: Fraction | float
) -> Predicate:
    """Compare a column of whole units with any number of units, including infinity and NaN (the greatest)."""
    never = In(column=column, path=path, values=())
    always = Not(part=never)
    if op is CompareOp.NE:
        equal = _compare_counted(column, path, data_type, CompareOp.EQ, units)
        return Not(part=equal)
    if isinstance(units, float):
        is_below = units != -math.inf
        return always if (op in (CompareOp.LT, CompareOp.LE)) == is_below and op is not CompareOp.EQ else never
    lowest, highest = _domain(data_type)
    if op is CompareOp.EQ:
        if units.denominator != 1 or not lowest <= units <= highest:
            return never
        return Compare(column=column, path=path, op=op, value=_internal(int(units), data_type))
    bound = math.ceil(units) if op in (CompareOp.LT, CompareOp.GE) else math.floor(units)
    if op in (CompareOp.LT, CompareOp.GE) and not lowest < bound <= highest:
        is_true = (bound > highest) == (op is CompareOp.LT)
        return always if is_true else never
    if op in (CompareOp.LE, CompareOp.GT) and not lowest <= bound < highest:
        is_true = (bound >= highest) == (op is CompareOp.LE)
        return always if is_true else never
    return Compare(column=column, path=path, op=op, value=_internal(bound, data_type))


def _compare_rounded(column: str, path: tuple[str, ...], data_type: DataType, op: CompareOp, bound: float) -> Predicate:
    """Compare the values of a column of whole units, rounded to doubles, with a double."""
    if not math.isfinite(bound):
        return _compare_counted(column, path, data_type, op, bound)
    one = 10 ** (data_type.scale or 0)
    near = math.floor(Fraction(bound) * one)

    def first_unit(reaches: Callable[[float], bool]) -> Fraction:
        return Fraction(_first_where(lambda unit: reaches(unit / one), near, *_domain(data_type)))

    first = first_unit(lambda value: value >= bound)
    behind = first_unit(lambda value: value > bound)
    if op in (CompareOp.LT, CompareOp.GE):
        return _compare_counted(column, path, data_type, op, first)
    if op in (CompareOp.LE, CompareOp.GT):
        return _compare_counted(column, path, data_type, op, behind - 1)
    if behind - first <= 1:
        # one unit, or none: then the fraction between two units, which equals none
        return _compare_counted(column, path, data_type, op, first if behind > first else first - Fraction(1, 2))
    bounds = [(CompareOp.GE, first), (CompareOp.LE, behind - 1)]
    equal = And(parts=tuple(_compare_counted(column, path, data_type, each, unit) for each, unit in bounds))
    return Not(part=equal) if op is CompareOp.NE else equal


def _first_where(reaches: Callable[[int], bool], near: int, lowest: int, highest: int) -> int:
    """The least number that reaches something, as all greater ones do; ``highest`` + 1: none does.

    Args:
        reaches: of a number from ``lowest`` to ``highest``.
        near: where to begin.
        lowest: of the numbers.
        highest: of the numbers.
    """
    near = min(max(near, lowest), highest)
    below, above, step = near, near, 1
    while below >= lowest and reaches(below):
        below, step = max(lowest - 1, below - step), 2 * step
    while above <= highest and not reaches(above):
        above, step = min(highest + 1, above + step), 2 * step
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if reaches(middle) else (middle, above)
    return above


def _domain(data_type: DataType) -> tuple[int, int]:
    root = data_type.root
    if root == "DECIMAL":
        limit = 10 ** (data_type.precision or 0) - 1
        return -limit, limit
    if root == "TIME":
        return 0, 86_400_000 - 1
    bits = INTEGER_BITS.get(root, 64)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _internal(units: int, data_type: DataType) -> int | Decimal:
    if data_type.root == "DECIMAL":
        return Decimal(units).scaleb(-(data_type.scale or 0), _EXACT)
    return units


def _time_units(literal: Literal, data_type: DataType) -> Fraction:
    """The literal in units of the column: days, or time units."""
    root = data_type.root
    nanos = _nanos(literal, data_type)
    if root == "DATE":
        return Fraction(nanos, NANOS_PER_DAY)
    unit = "ms" if root == "TIME" else timestamp_unit(data_type)
    return Fraction(nanos, NANOS_PER_UNIT[unit])


def _number(literal: Literal, data_type: DataType) -> Fraction | float:
    """The literal as a number; a float if it is infinite or NaN."""
    if isinstance(literal, str):
        is_float = data_type.root in ("FLOAT", "DOUBLE")
        literal = parse_float(literal) if is_float else _parse_number(literal, data_type)
    if isinstance(literal, bool) or not isinstance(literal, int | float | np.float32 | Decimal):
        raise LiteralMismatchError(f"a number is compared with something else: type={data_type} fix='write a number'")
    if isinstance(literal, float | np.float32):
        return Fraction(float(literal)) if math.isfinite(literal) else float(literal)
    return Fraction(literal)


def check_length(number: str) -> None:
    """Refuse numbers that no column holds, and that would be expensive. Raises: LiteralMismatchError."""
    if len(number) > 2 * _MOST_DIGITS:
        raise LiteralMismatchError(f"number is too long: characters={len(number)} most={2 * _MOST_DIGITS}")


def _parse_number(text: str, data_type: DataType) -> Decimal:
    check_length(text)
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise LiteralMismatchError(f"text is not a number: text={text!r} type={data_type}")
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise LiteralMismatchError(f"number is out of range: text={text!r} digits={abs(number.adjusted())}")
    return number


def _nanos(literal: Literal, data_type: DataType) -> int:
    if isinstance(literal, Moment):
        return literal.nanos
    if isinstance(literal, str):
        return parse_time(literal) if data_type.root == "TIME" else parse_moment(literal)
    raise LiteralMismatchError(
        f"a point in time is compared with something else: type={data_type} fix=\"write it as text: '2024-01-31'\""
    )


def _plain_value(literal: Literal, data_type: DataType) -> Any:
    root = data_type.root
    if root == "BOOLEAN":
        if isinstance(literal, str) and literal.strip().lower() in ("true", "false"):
            return literal.strip().lower() == "true"
        if isinstance(literal, bool):
            return literal
        raise LiteralMismatchError(f"a boolean is compared with something else: type={data_type} fix='TRUE or FALSE'")
    if root in TEXT_ROOTS:
        if isinstance(literal, str):
            return literal
        raise LiteralMismatchError(f"a text is compared with something else: type={data_type} fix='quote the literal'")
    if root in BYTES_ROOTS:
        if isinstance(literal, bytes | str):
            return literal if isinstance(literal, bytes) else literal.encode()
        raise LiteralMismatchError(f"bytes are compared with something else: type={data_type} fix=\"X'1F'\"")
    raise LiteralMismatchError(f"the type is not orderable: type={data_type} fix='use IS NULL, or a field of it'")


# ---- casts


def cast_literal(literal: Literal, root: str, parameters: Sequence[int]) -> Literal:
    """``CAST(literal AS type)`` to a type of numbers, as Spark computes it.

    Args:
        literal: to cast.
        root: of the type.
        parameters: precision and scale of a DECIMAL, as far as they are given.

    Raises:
        LiteralMismatchError: it is no number, or does not fit.
    """
    precision, scale = (*parameters, *_DEFAULT_DECIMAL[len(parameters) :]) if root == "DECIMAL" else (None, None)
    data_type = DataType(root=root, precision=precision, scale=scale)
    if literal is None:
        return None
    if isinstance(literal, str) and root in ("FLOAT", "DOUBLE") and not math.isfinite(parse_float(literal)):
        return np.float32(parse_float(literal)) if root == "FLOAT" else parse_float(literal)
    number: Literal = _parse_number(literal, data_type) if isinstance(literal, str) else literal
    if isinstance(number, bool) or not isinstance(number, int | float | np.float32 | Decimal):
        raise LiteralMismatchError(f"literal cannot be cast in a filter: type={data_type} fix='write a number'")
    if not math.isfinite(number):
        if root in ("FLOAT", "DOUBLE"):
            return np.float32(number) if root == "FLOAT" else float(number)
        raise LiteralMismatchError(f"literal is not a number: literal={number} type={data_type}")
    if root == "DOUBLE":
        return _double(Fraction(float(number)) if isinstance(number, np.float32) else Fraction(number))
    if root == "FLOAT":
        return single(Fraction(float(number)) if isinstance(number, np.float32) else Fraction(number))
    if root == "DECIMAL":
        return _cast_to_decimal(number, data_type)
    whole = int(number)
    lowest, highest = _domain(data_type)
    if (isinstance(literal, str) and whole != number) or not lowest <= whole <= highest:
        raise LiteralMismatchError(f"literal does not fit the type it is cast to: literal={literal!r} type={data_type}")
    return whole


def _cast_to_decimal(number: int | float | np.float32 | Decimal, data_type: DataType) -> Decimal:
    exact = Decimal(repr(float(number))) if isinstance(number, float | np.float32) else Decimal(number)
    cast = exact.quantize(Decimal(1).scaleb(-(data_type.scale or 0)), ROUND_HALF_UP, _EXACT)
    lowest, highest = (_internal(each, data_type) for each in _domain(data_type))
    if not lowest <= cast <= highest:
        raise LiteralMismatchError(f"literal does not fit the type it is cast to: literal={number} type={data_type}")
    return cast


def _double(number: Fraction) -> float:
    """The nearest double; infinite where there is none."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def single(number: Fraction) -> np.float32:
    """The nearest FLOAT of a number, of two the one with an even last bit; infinite where there is none."""
    with np.errstate(over="ignore"):
        near = np.float32(_double(number))
        if not np.isfinite(near):
            return near
        # the double was rounded before: where it lies in the middle of two, a neighbour may be nearer
        candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    finite = [each for each in candidates if np.isfinite(each)]
    return min(finite, key=lambda each: (abs(Fraction(float(each)) - number), int(each.view(np.uint32)) & 1))
