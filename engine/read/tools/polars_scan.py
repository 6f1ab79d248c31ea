"""Rows as a lazy Polars frame.

Polars hands over the columns, the condition and the number of rows that a query wants. The condition leaves out files
and rows as far as it is understood, and Polars applies it to the rows that come, so it means what it means there.
"""

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl
from polars.io.plugins import register_io_source

from engine.read.tools.scanned_rows import ScannedRows
from filestore.predicate.conditions import FunctionCall, Ref, ToolCondition, Value

_OPS: Final = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": "and_kleene",
    "LogicalAnd": "and_kleene",
    "Or": "or_kleene",
    "LogicalOr": "or_kleene",
}
_TESTS: Final = {"IsNull": "is_null", "IsNotNull": "is_valid", "Not": "invert"}
_FINDS_NO_NULL: Final = 2  # of null_matching_behavior


def polars_scan(rows: ScannedRows) -> pl.LazyFrame:
    """See ``ArrowRows.to_polars``."""

    def scan(
        columns: list[str] | None, condition: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names, wanted = rows.schema.names, columns
        filter = None
        if condition is not None:
            read = {*condition.meta.root_names()}
            wanted = None if columns is None else [*columns, *(each for each in names if each in read - {*columns})]
            filter = condition_of_polars(condition) if limit is None else None  # the limit is of rows before the filter
        left = limit
        for batch in rows.to_batches(wanted, filter):
            found = pl.DataFrame(batch)
            if left is not None:
                found, left = found.head(left), left - min(left, found.height)
            if condition is not None:
                found = found.filter(condition)
            yield found if columns is None else found.select(columns)
            if left == 0:
                return

    schema = pl.DataFrame(rows.schema.empty_table()).schema
    return register_io_source(scan, schema=schema, is_pure=True)


def condition_of_polars(expression: pl.Expr) -> ToolCondition:
    """The tree of an expression; parts that are not understood are calls that no predicate knows."""
    return _tree(json.loads(expression.meta.serialize(format="json")))


def _tree(node: Any) -> ToolCondition:
    match node:
        case {"Column": str(name)}:
            return Ref((name,))
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}}:
            return FunctionCall(_OPS.get(op, op), (_tree(left), _tree(right)))
        case {"Function": {"input": list(inputs), "function": {"Boolean": what}}}:
            return _boolean(inputs, what)
        case {"Function": {"input": [inner, prefix], "function": {"StringExpr": "StartsWith"}}}:
            return FunctionCall("starts_with", (_tree(inner),), {"pattern": _value(prefix)})
        case {"Function": {"input": [inner], "function": {"StructExpr": {"FieldByName": str(name)}}}}:
            outer = _tree(inner)
            return Ref((*outer.path, name)) if isinstance(outer, Ref) else FunctionCall("field", (outer,))
        case {"Literal": _}:
            return _constant(node)
    return FunctionCall("unknown", ())


def _boolean(inputs: list[Any], what: Any) -> ToolCondition:
    match what:
        case str(name) if name in _TESTS:
            return FunctionCall(_TESTS[name], (_tree(inputs[0]),))
        case {"IsIn": {"nulls_equal": False}}:
            found = _constant(inputs[1])
            if isinstance(found, Value):
                values = list(found.scalar.values) if hasattr(found.scalar, "values") else []
                options: Mapping[str, Any] = {"value_set": values, "null_matching_behavior": _FINDS_NO_NULL}
                return FunctionCall("is_in", (_tree(inputs[0]),), options)
        case {"IsBetween": {"closed": str(closed)}}:
            column, low, high = (_tree(each) for each in inputs)
            above = "greater_equal" if closed in ("Both", "Left") else "greater"
            below = "less_equal" if closed in ("Both", "Right") else "less"
            return FunctionCall("and_kleene", (FunctionCall(above, (column, low)), FunctionCall(below, (column, high))))
    return FunctionCall("unknown", ())


def _constant(node: Any) -> ToolCondition:
    """A literal, as Polars itself computes it."""
    try:
        expression = pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")
        return Value(pl.select(expression).to_series().to_arrow()[0])
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        return FunctionCall("unknown", ())


def _value(node: Any) -> Any:
    found = _constant(node)
    return found.scalar.as_py() if isinstance(found, Value) else None
