"""Conditions of other tools (PyArrow, DuckDB, Polars) as predicates, for leaving out files and rows.

Such a condition is a tree of calls by Arrow's names. It keeps the meaning that it has in its own tool, so two
predicates can be made of it: an exact one, or one that is true at least wherever the condition is. Floats are never
exact: NaN is the greatest value here, and in Arrow it compares with nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from filestore.predicate.literals import Literal, compare, is_in
from filestore.predicate.predicate import (
    And,
    CompareOp,
    Constant,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    and_all,
)
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import BYTES_ROOTS, INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, arrow_type
from filestore.types.text_values import NANOS_PER_DAY, NANOS_PER_SECOND, NANOS_PER_UNIT, LiteralMismatchError, Moment

_OPS: Final[Mapping[str, CompareOp]] = {
    "equal": CompareOp.EQ,
    "not_equal": CompareOp.NE,
    "less": CompareOp.LT,
    "less_equal": CompareOp.LE,
    "greater": CompareOp.GT,
    "greater_equal": CompareOp.GE,
}
_FLIPPED: Final = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_FLOATS: Final = ("FLOAT", "DOUBLE")
_NANOS: Final = {"s": NANOS_PER_SECOND, **NANOS_PER_UNIT}
_MOST_EXACT: Final = {"FLOAT": 1 << 24, "DOUBLE": 1 << 53}
"""Integers up to these are floats without rounding."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A column, or a field inside one."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of Arrow."""

    name: str
    args: "tuple[ToolCondition, ...]"
    options: Mapping[str, Any] = field(default_factory=dict)


ToolCondition = Ref | Value | FunctionCall


def columns_of_condition(condition: ToolCondition) -> frozenset[str]:
    """The top-level columns that it reads."""
    if isinstance(condition, Ref):
        return frozenset(condition.path[:1])
    if isinstance(condition, Value):
        return frozenset()
    return frozenset[str]().union(*map(columns_of_condition, condition.args))


def exact_predicate(condition: ToolCondition, schema: TableSchema) -> Predicate | None:
    """A predicate with the outcome of the condition in every row; None: there is none that is known to be that."""
    if isinstance(condition, FunctionCall):
        if condition.name in ("and_kleene", "or_kleene"):
            parts = [exact_predicate(each, schema) for each in condition.args]
            known = tuple(each for each in parts if each is not None)
            make = And if condition.name == "and_kleene" else Or
            return make(parts=known) if len(known) == len(parts) else None
        if condition.name == "invert":
            part = exact_predicate(condition.args[0], schema)
            return None if part is None else Not(part=part)
    found = _leaf(condition, schema)
    return found[0] if found is not None and found[1] else None


def wider_predicate(condition: ToolCondition, schema: TableSchema) -> Predicate | None:
    """A predicate that is true at least where the condition is; None: nothing is known of it."""
    if isinstance(condition, FunctionCall):
        if condition.name == "and_kleene":
            parts = [wider_predicate(each, schema) for each in condition.args]
            return and_all([each for each in parts if each is not None])
        if condition.name == "or_kleene":
            parts = [wider_predicate(each, schema) for each in condition.args]
            known = tuple(each for each in parts if each is not None)
            return Or(parts=known) if len(known) == len(parts) else None
        if condition.name == "if_else":  # DuckDB: null where the column is
            test, yes, no = condition.args
            is_test = isinstance(test, FunctionCall) and test.name == "is_valid"
            is_null = isinstance(no, Value) and not no.scalar.is_valid
            return wider_predicate(yes, schema) if is_test and is_null else None
        if condition.name == "invert":
            return exact_predicate(condition, schema)
    found = _leaf(condition, schema)
    return None if found is None else found[0]


_Leaf = tuple[Predicate, bool]  # and whether it is exact


def _leaf(condition: ToolCondition, schema: TableSchema) -> _Leaf | None:
    """A test of one column."""
    try:
        if isinstance(condition, Value):
            value = condition.scalar.as_py()
            return (Constant(outcome=value), True) if value is None or isinstance(value, bool) else None
        if isinstance(condition, Ref):
            column = _Column.of(condition, schema)
            if column is None or column.type.root != "BOOLEAN":
                return None
            return compare(column.name, column.path, column.type, CompareOp.EQ, True), True
        return _call(condition, schema)
    except (LiteralMismatchError, _UnknownError):
        return None


def _call(call: FunctionCall, schema: TableSchema) -> _Leaf | None:
    if call.name in _OPS and len(call.args) == 2:
        left, right = call.args
        name = call.name
        if isinstance(left, Value):
            left, right, name = right, left, _FLIPPED.get(name, name)
        column = _Column.of(left, schema)
        if column is None or not isinstance(right, Value):
            return None
        literal = _literal(right.scalar, column.type)
        return compare(column.name, column.path, column.type, _OPS[name], literal), column.is_exact
    column = _Column.of(call.args[0], schema) if call.args else None
    if column is None:
        return None
    options = call.options
    if call.name in ("is_null", "is_valid"):
        is_null = IsNull(column=column.name, path=column.path)
        counts_nan = bool(options.get("nan_is_null")) and column.type.root in _FLOATS
        if counts_nan:
            return None
        return (is_null, True) if call.name == "is_null" else (Not(part=is_null), True)
    if call.name == "is_in" and len(call.args) == 1:
        return _is_in(column, options)
    if column.type.root not in TEXT_ROOTS or options.get("ignore_case"):
        return None
    pattern = options.get("pattern")
    if call.name == "starts_with" and isinstance(pattern, str):
        return StartsWith(column=column.name, path=column.path, prefix=pattern), True
    if call.name == "match_like" and isinstance(pattern, str) and "\\" not in pattern:
        return Like(column=column.name, path=column.path, pattern=pattern), True
    return None


def _is_in(column: "_Column", options: Mapping[str, Any]) -> _Leaf:
    """Arrow's is_in: null_matching_behavior 0 looks for nulls too, 1 finds none, 2 and 3 give null for null."""
    values: list[pa.Scalar] = options["value_set"]
    behaviour = int(options["null_matching_behavior"])
    given = [each for each in values if each.is_valid]
    found: Predicate = is_in(column.name, column.path, column.type, [_literal(each, column.type) for each in given])
    is_null = IsNull(column=column.name, path=column.path)
    if behaviour == 0 and len(given) < len(values):
        return Or(parts=(is_null, found)), column.is_exact
    if behaviour in (0, 1):
        return And(parts=(Not(part=is_null), found)), column.is_exact
    return found, column.is_exact and len(given) == len(values)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    path: tuple[str, ...]
    type: DataType

    @classmethod
    def of(cls, condition: ToolCondition, schema: TableSchema) -> "_Column | None":
        if not isinstance(condition, Ref) or condition.path[0] not in schema.column_names:
            return None
        name, *path = condition.path
        data_type = schema.field(name).type
        for part in path:
            inner = [each for each in data_type.fields if each.name == part] if data_type.root == "ROW" else []
            if not inner:
                return None
            data_type = inner[0].type
        return cls(name, tuple(path), data_type)

    @property
    def is_exact(self) -> bool:
        return self.type.root not in _FLOATS


class _UnknownError(Exception):
    """A constant that Arrow compares with the column in a way that is not modelled here."""


def _literal(scalar: pa.Scalar, data_type: DataType) -> Literal:
    """A constant as a literal for the column, where Arrow compares both without rounding. Raises: _UnknownError."""
    value, given, root, types = scalar.as_py(), scalar.type, data_type.root, pa.types
    if value is None:
        return None
    if types.is_dictionary(given):
        given = given.value_type
    if root in INTEGER_ROOTS or root == "DECIMAL" or root in _FLOATS:
        return _number(value, given, root)
    if types.is_timestamp(given) and root in TIMESTAMP_ROOTS:
        if (given.tz is None) == (arrow_type(data_type).tz is None):
            return Moment(scalar.value * _NANOS[given.unit])
    elif types.is_date32(given) and root in ("DATE", "TIMESTAMP"):
        return Moment(scalar.value * NANOS_PER_DAY)
    elif types.is_time(given) and root == "TIME":
        return Moment(scalar.value * _NANOS[given.unit])
    elif (
        (isinstance(value, bool) and root == "BOOLEAN")
        or (isinstance(value, str) and root in TEXT_ROOTS)
        or (isinstance(value, bytes) and root in BYTES_ROOTS)
    ):
        return value
    raise _UnknownError


def _number(value: Any, given: pa.DataType, root: str) -> Literal:
    if isinstance(value, bool):
        raise _UnknownError
    if isinstance(value, int) and (root not in _FLOATS or abs(value) <= _MOST_EXACT[root]):
        return value
    if isinstance(value, Decimal) and root not in _FLOATS:
        return value
    is_number = isinstance(value, float) and pa.types.is_float64(given) and not math.isnan(value)
    if is_number and (root in _FLOATS or (root in INTEGER_ROOTS and abs(value) < _MOST_EXACT["DOUBLE"])):
        return float(value)
    raise _UnknownError
