"""Conditions on aggregates, as ``count(*) > 0`` or ``sum(amount) < 100``, over batches of rows without Spark.

Batches are folded by Arrow, one value for each; these few values are put together and compared as Python's, exactly.
None is unknown, as in SQL.
"""

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, localcontext
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsm.errors import InvalidInputError

_PARTS: Final[Mapping[type, str]] = {exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg", exp.Count: "count"}
_MERGES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"sum": operator.add, "min": min, "max": max}
_DIGITS: Final = 100  # more than a sum of decimals can have


class Aggregate:
    """One aggregate of one column, or of the rows; fed with batches, in any order."""

    def __init__(self, node: exp.Expr, schema: pa.Schema) -> None:
        """Nothing is counted yet.

        Args:
            node: the call of the aggregate.
            schema: of the rows.

        Raises:
            InvalidInputError: it needs Spark.
        """
        self.text = node.sql(dialect="spark")
        self._part = _PARTS.get(type(node), "")
        inner = node.this
        self._is_distinct = isinstance(inner, exp.Distinct)
        if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
            inner = inner.expressions[0]
        is_column = isinstance(inner, exp.Column) and inner.name in schema.names
        self.column: str | None = inner.name if is_column else None  # None: rows are counted
        is_known = is_column or (isinstance(inner, exp.Star) and self._part == "count")
        if not self._part or not is_known or (self._is_distinct and self._part != "count"):
            raise needs_spark(node)
        self._count = 0
        self._value: Any = None
        self._distinct: pa.Array | None = None

    def feed(self, rows: pa.RecordBatch) -> None:
        """Take the rows of a batch in."""
        if self.column is None:
            self._count += rows.num_rows
            return
        values = rows.column(self.column)
        self._count += len(values) - values.null_count
        if self._is_distinct:
            found = pc.unique(values.drop_null())
            self._distinct = found if self._distinct is None else pc.unique(pa.concat_arrays([self._distinct, found]))
        elif self._part != "count":
            kind = "sum" if self._part == "avg" else self._part
            part = (pc.sum(values) if kind == "sum" else pc.min_max(values)[kind]).as_py()
            if part is not None:
                self._value = part if self._value is None else _MERGES[kind](self._value, part)

    @property
    def result(self) -> Any:
        """Value of the aggregate over all rows so far; None: no row has a value."""
        if self._is_distinct:
            return 0 if self._distinct is None else len(self._distinct)
        if self._part == "count":
            return self._count
        return _divided(self._value, self._count) if self._part == "avg" else self._value


def needs_spark(node: exp.Expr) -> InvalidInputError:
    """The error for what only Spark can compute."""
    return InvalidInputError(
        f"this can be checked by Spark only: expression={node.sql(dialect='spark')} fix=give spark"
    )


def aggregates_of(tree: exp.Expr, schema: pa.Schema) -> dict[int, Aggregate]:
    """The aggregates of a condition by the identity of their nodes. Raises: InvalidInputError for what needs Spark."""
    return {id(node): Aggregate(node, schema) for node in tree.find_all(exp.AggFunc)}


def feed_all(aggregates: Iterable[Aggregate], rows: pa.RecordBatch) -> None:
    """Take the rows of a batch into all of them."""
    with localcontext(prec=_DIGITS):
        for each in aggregates:
            each.feed(rows)


def condition_value(tree: exp.Expr, aggregates: Mapping[int, Aggregate]) -> Any:
    """The value of a condition; None: not known.

    Args:
        tree: of the condition.
        aggregates: of ``aggregates_of``, fed with all rows.

    Raises:
        InvalidInputError: it needs Spark.
    """
    with localcontext(prec=_DIGITS):
        try:
            return _value(tree, aggregates)
        except (TypeError, ValueError) as error:
            raise needs_spark(tree) from error


def _value(node: exp.Expr, aggregates: Mapping[int, Aggregate]) -> Any:
    if id(node) in aggregates:
        return aggregates[id(node)].result
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):  # DATE '2024-02-29'
        return node.this.name
    if isinstance(node, exp.Literal):
        return node.name if node.is_string else Decimal(node.name)
    if isinstance(node, exp.Boolean | exp.Null):
        return node.this
    how = _OPERATIONS.get(type(node))
    if how is None:
        raise needs_spark(node)
    return how(*(_value(each, aggregates) for each in node.iter_expressions()))


def _divided(left: Any, right: Any) -> Any:
    """As SQL divides: fractions, and null by zero."""
    return None if left is None or not right else _both(operator.truediv)(left, right)


def _both(how: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation on two known values; texts become what they meet, exact numbers meet floats as floats."""

    def run(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return None
        return how(_like(left, right), _like(right, left))

    return run


def _like(value: Any, other: Any) -> Any:
    if isinstance(other, float) and isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str) and isinstance(other, dt.datetime):
        return dt.datetime.fromisoformat(value).replace(tzinfo=other.tzinfo)
    return dt.date.fromisoformat(value) if isinstance(value, str) and isinstance(other, dt.date) else value


def _and(left: Any, right: Any) -> Any:
    return False if left is False or right is False else None if left is None or right is None else True


def _not(value: Any) -> Any:
    return None if value is None else not value


def _between(value: Any, low: Any, high: Any) -> Any:
    return _and(_both(operator.ge)(value, low), _both(operator.le)(value, high))


_OPERATIONS: Final[Mapping[type, Callable[..., Any]]] = {
    exp.EQ: _both(operator.eq),
    exp.NEQ: _both(operator.ne),
    exp.LT: _both(operator.lt),
    exp.LTE: _both(operator.le),
    exp.GT: _both(operator.gt),
    exp.GTE: _both(operator.ge),
    exp.Add: _both(operator.add),
    exp.Sub: _both(operator.sub),
    exp.Mul: _both(operator.mul),
    exp.Div: _divided,
    exp.Neg: lambda value: None if value is None else -value,
    exp.And: _and,
    exp.Or: lambda left, right: _not(_and(_not(left), _not(right))),
    exp.Not: _not,
    exp.Is: lambda value, _: value is None,
    exp.Paren: lambda value: value,
    exp.Between: _between,
}
"""What is computed of the values of a node's parts."""
