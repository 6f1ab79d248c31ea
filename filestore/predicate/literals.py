"""Exact comparison of a column with a SQL literal, by converting the literal to the column's domain.

Most types count units (integers, cents, days, microseconds), so the literal is a fraction of units, and a comparison
with a fraction is a comparison with an adjacent value: ``quantity > 1.5`` is ``quantity > 1`` for an INT.
Where time zones matter (strings for TIMESTAMP_LTZ, LTZ with TIMESTAMP) the zone is UTC: a filter gives the same rows
everywhere.
"""

import math
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final

from filestore.predicate.predicate import Compare, CompareOp, Constant, In, Not, Predicate
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
_MOST_DIGITS: Final = 400
"""Of a number in a filter, before and behind the point: more than a double has."""


Literal = bool | int | float | Decimal | str | bytes | Moment | None


def compare(column: str, path: tuple[str, ...], data_type: DataType, op: CompareOp, literal: Literal) -> Predicate:
    """The comparison in the column's domain. Raises: LiteralMismatchError."""
    if literal is None:
        return Constant(outcome=None)
    root = data_type.root
    if root in INTEGER_ROOTS or root == "DECIMAL" or root in TIMESTAMP_ROOTS or root in ("DATE", "TIME"):
        return _compare_counted(column, path, data_type, op, _units(literal, data_type))
    return Compare(column=column, path=path, op=op, value=_plain_value(literal, data_type))


def is_in(column: str, path: tuple[str, ...], data_type: DataType, literals: list[Literal]) -> Predicate:
    """``column IN (literals)``, without literals that the column can never equal. Raises: LiteralMismatchError."""
    values: list[Any] = []
    for literal in literals:
        equal = compare(column, path, data_type, CompareOp.EQ, literal)
        if isinstance(equal, Compare):
            values.append(equal.value)
    return In(column=column, path=path, values=tuple(values), has_null=None in literals)


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


def _units(literal: Literal, data_type: DataType) -> Fraction | float:
    """The literal in units of the column: ones, units of the last digit, days, or time units."""
    root = data_type.root
    if root in INTEGER_ROOTS or root == "DECIMAL":
        number = _number(literal, data_type)
        if isinstance(number, float):
            return number
        return number * Fraction(10) ** (data_type.scale or 0)
    nanos = _nanos(literal, data_type)
    if root == "DATE":
        return Fraction(nanos, NANOS_PER_DAY)
    unit = "ms" if root == "TIME" else timestamp_unit(data_type)
    return Fraction(nanos, NANOS_PER_UNIT[unit])


def _number(literal: Literal, data_type: DataType) -> Fraction | float:
    if isinstance(literal, str):
        literal = _parse_number(literal, data_type)
    if isinstance(literal, bool) or not isinstance(literal, int | float | Decimal):
        raise LiteralMismatchError(f"a number is compared with something else: type={data_type} fix='write a number'")
    if isinstance(literal, float) and not math.isfinite(literal):
        return literal
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
    if root in ("FLOAT", "DOUBLE"):
        return _float(literal, data_type)
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


def _float(literal: Literal, data_type: DataType) -> float:
    if isinstance(literal, str):
        return parse_float(literal)
    if isinstance(literal, bool) or not isinstance(literal, int | float | Decimal):
        raise LiteralMismatchError(f"a number is compared with something else: type={data_type} fix='write a number'")
    try:
        return float(literal)
    except OverflowError:
        return math.inf if literal > 0 else -math.inf
