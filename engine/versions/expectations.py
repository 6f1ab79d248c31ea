"""What rows must be like before they are published: conditions in SQL, or functions of the table.

A condition without an aggregate, ``amount >= 0``, must be true for every row; null is not true. One with aggregates,
``count(*) > 0``, must be true once. A function of the table must neither return False nor raise AssertionError. All
conditions are found out in one pass over the columns that they name.
"""

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.predicate.evaluation import filter_mask
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import Predicate, columns_of
from filestore.predicate.row_rules import EXAMPLES
from filestore.predicate.sql_problems import problem_of
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Check = Callable[[Any], object]
"""A function of the opened table: False or an AssertionError is a failure."""


class Checked(Protocol):
    """What conditions need of a table."""

    @property
    def name(self) -> str:
        """Name of the table in messages."""

    @property
    def schema(self) -> TableSchema:
        """Columns of the table."""

    def read(self, *, snapshot_id: int | None = None) -> Any:
        """One state of it."""

    def dataframe(self, spark: "SparkSession", *, snapshot_id: int | None = None) -> "DataFrame":
        """One state of it as a frame."""


class ExpectationError(InvalidInputError):
    """Rows violate an expectation; the message has each violated condition, with counts and examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one expectation."""

    expectation: str
    passed: bool
    row_count: int | None = None  # rows that were checked; None: the condition is not about single rows
    failed_count: int | None = None  # rows that fail the condition
    examples: tuple[Mapping[str, Any], ...] = ()  # rows that fail: key columns and columns of the condition
    facts: str = ""  # values of the aggregates, or the text that a function returned

    def __str__(self) -> str:
        if self.passed:
            return f"{self.expectation}: passed"
        if self.failed_count is None:
            return f"{self.expectation}: is not true{f', {self.facts}' if self.facts else ''}"
        rows = ", ".join(str(dict(each)) for each in self.examples)
        return f"{self.expectation}: {self.failed_count} of {self.row_count} rows fail, such as {rows}"


@dataclass(frozen=True)
class _Condition:
    """A condition in SQL."""

    text: str

    @cached_property
    def tree(self) -> exp.Expr:
        """Raises: InvalidInputError when it cannot be read."""
        try:
            return exp.maybe_parse(self.text, dialect="spark")
        except SqlglotError as error:
            reason = problem_of(error, self.text).reason
            raise InvalidInputError(f"not a condition: expect={self.text!r} reason={reason}") from error
        except RecursionError:
            raise InvalidInputError("not a condition: it is nested too deeply: fix='leave out brackets'") from None

    @cached_property
    def is_aggregate(self) -> bool:
        return self.tree.find(exp.AggFunc) is not None

    @cached_property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(each.parts[0].name for each in self.tree.find_all(exp.Column)))


@dataclass
class _RowCount:
    """How many rows a condition holds for."""

    predicate: Predicate
    shown: Sequence[str]
    rows: int = 0
    failed: int = 0
    examples: list[Mapping[str, Any]] = field(default_factory=list)

    def feed(self, rows: pa.RecordBatch) -> None:
        holds = filter_mask(self.predicate, rows).fill_null(False)
        self.rows += rows.num_rows
        self.failed += rows.num_rows - holds.true_count
        if len(self.examples) < EXAMPLES and holds.true_count < rows.num_rows:
            failing = rows.filter(pa.compute.invert(holds)).select(list(self.shown))
            self.examples += failing.slice(0, EXAMPLES - len(self.examples)).to_pylist()


def check_expectations(
    table: Checked,
    expect: Sequence[str | Check],
    *,
    snapshot_id: int | None = None,
    spark: "SparkSession | None" = None,
) -> list[Outcome]:
    """Check expectations of a table.

    Args:
        table: the table, opened.
        expect: conditions in SQL, and functions that take the table.
        snapshot_id: the snapshot whose rows the conditions see; None: the newest. Functions choose what they read.
        spark: computes the conditions, with every function of Spark; None: they are computed in this process, which
            can compare columns with literals, and has the aggregates count, sum, avg, min and max of columns.

    Returns:
        One outcome for each expectation, in their order.

    Raises:
        InvalidInputError: a condition cannot be parsed, or needs Spark.
    """
    conditions = {index: _Condition(each) for index, each in enumerate(expect) if isinstance(each, str)}
    run = _by_arrow if spark is None else _by_spark
    found = run(table, conditions, snapshot_id, spark) if conditions else {}
    return [found[index] if isinstance(each, str) else _of_function(table, each) for index, each in enumerate(expect)]


def condition_query(text: str, table: str) -> str:
    """The query that is true if a table meets a condition in SQL. Raises: InvalidInputError when it cannot be read."""
    return f"SELECT {text if _Condition(text).is_aggregate else f'bool_and({text})'} FROM {table}"


def check_row_condition(text: str) -> None:
    """Refuse what is no condition on a single row that says the same tomorrow.

    Raises: InvalidInputError: it cannot be read, has aggregates or queries, or depends on more than the row.
    """
    condition = _Condition(text)
    if condition.is_aggregate or condition.tree.find(exp.Query, exp.Window):
        raise InvalidInputError(f"a rule is about each row: expect={text!r} fix='leave out aggregates and queries'")
    names = {type(each).__name__ for each in condition.tree.find_all(*_CHANGING)}
    names |= {str(each.this) for each in condition.tree.find_all(exp.Anonymous) if str(each.this).lower() in _MOMENTARY}
    if names:
        raise InvalidInputError(
            f"a batch that is repeated would be decided otherwise: expect={text!r} function={sorted(names)[0]} "
            "fix='compare with a column or a constant'"
        )
    if not condition.columns:
        raise InvalidInputError(f"a rule on rows names a column: expect={text!r}")


def condition_columns(text: str) -> list[str]:
    """The columns that a condition names. Raises: InvalidInputError when it cannot be read."""
    return _Condition(text).columns


_CHANGING: Final = (
    exp.Rand, exp.Randn, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.CurrentDatetime,
    exp.Localtimestamp, exp.Uuid,
)  # fmt: skip
_MOMENTARY: Final = frozenset(
    {"now", "uuid", "rand", "random", "randn", "current_timezone", "localtimestamp", "monotonically_increasing_id",
     "shuffle", "spark_partition_id", "input_file_name", "unix_timestamp"}
)  # fmt: skip


def refuse_failures(table: str, outcomes: Sequence[Outcome]) -> None:
    """Raises: ExpectationError naming each that failed."""
    failed = [each for each in outcomes if not each.passed]
    if failed:
        listed = "".join(f"\n  {each}" for each in failed)
        raise ExpectationError(
            f"expectations failed, nothing was published: table={table} failed={len(failed)} of={len(outcomes)}{listed}"
        )


def _of_function(table: Checked, check: Check) -> Outcome:
    name = getattr(check, "__name__", type(check).__name__)
    try:
        return Outcome(expectation=name, passed=check(table) is not False)
    except AssertionError as error:
        return Outcome(expectation=name, passed=False, facts=str(error))


def _by_arrow(
    table: Checked, conditions: Mapping[int, _Condition], snapshot_id: int | None, _: "SparkSession | None"
) -> dict[int, Outcome]:
    schema = table.schema
    counts: dict[int, _RowCount] = {}
    aggregates: dict[int, dict[int, Aggregate]] = {}
    for index, each in conditions.items():
        if each.is_aggregate:
            aggregates[index] = aggregates_of(each.tree, schema.arrow_schema)
        else:
            predicate = _predicate(each, schema)
            shown = [*dict.fromkeys([*schema.primary_keys, *sorted(columns_of(predicate))])]
            counts[index] = _RowCount(predicate, shown or schema.column_names[:1])
    parts = [one for some in aggregates.values() for one in some.values()]
    named = {name for each in counts.values() for name in each.shown} | {one.column for one in parts if one.column}
    columns = [name for name in schema.column_names if name in named] or list(schema.column_names[:1])
    for rows in table.read(snapshot_id=snapshot_id).to_batches(columns=columns):
        for count in counts.values():
            count.feed(rows)
        feed_all(parts, rows)
    found = {
        index: Outcome(
            expectation=conditions[index].text,
            passed=each.failed == 0,
            row_count=each.rows,
            failed_count=each.failed,
            examples=tuple(each.examples),
        )
        for index, each in counts.items()
    }
    for index, some in aggregates.items():
        value = condition_value(conditions[index].tree, some)
        if value is not None and not isinstance(value, bool):
            raise InvalidInputError(f"not a condition: expect={conditions[index].text!r} value={value}")
        facts = ", ".join(dict.fromkeys(f"{one.text} = {one.result}" for one in some.values()))
        found[index] = Outcome(expectation=conditions[index].text, passed=value is True, facts=facts)
    return found


def _predicate(condition: _Condition, schema: TableSchema) -> Predicate:
    try:
        return parse_filter(condition.text, schema)
    except InvalidInputError as error:
        unknown = [name for name in condition.columns if name not in schema.column_names]
        if unknown or not condition.columns:
            raise
        raise InvalidInputError(f"{needs_spark(condition.tree)} reason={error}") from error


def _by_spark(
    table: Checked, conditions: Mapping[int, _Condition], snapshot_id: int | None, spark: "SparkSession | None"
) -> dict[int, Outcome]:
    from pyspark.errors import PySparkException

    from engine.runtime.spark_messages import fluvial_error

    assert spark is not None
    frame = table.dataframe(spark, snapshot_id=snapshot_id)
    keys = list(table.schema.primary_keys)
    found: dict[int, Outcome] = {}
    asked = ["count(*) AS n"]
    calls: dict[int, list[str]] = {}
    for index, each in conditions.items():
        if each.is_aggregate:
            asked.append(f"({each.text}) AS c{index}")
            calls[index] = list(dict.fromkeys(call.sql(dialect="spark") for call in each.tree.find_all(exp.AggFunc)))
            asked += [f"CAST({call} AS STRING) AS c{index}_{number}" for number, call in enumerate(calls[index])]
        else:
            asked.append(f"count_if(NOT coalesce(({each.text}), false)) AS c{index}")
    try:
        row = frame.selectExpr(*asked).collect()[0].asDict()
        for index, each in conditions.items():
            value = row[f"c{index}"]
            if each.is_aggregate:
                values = (f"{call} = {row[f'c{index}_{number}']}" for number, call in enumerate(calls[index]))
                found[index] = Outcome(expectation=each.text, passed=value is True, facts=", ".join(values))
                continue
            examples: list[Mapping[str, Any]] = []
            if value:
                names = [name for name in frame.columns if name in {*keys, *each.columns}] or frame.columns[:1]
                failing = frame.filter(f"NOT coalesce(({each.text}), false)").select(*names).limit(EXAMPLES)
                examples = [one.asDict() for one in failing.collect()]
            found[index] = Outcome(
                expectation=each.text,
                passed=value == 0,
                row_count=row["n"],
                failed_count=value,
                examples=tuple(examples),
            )
    except PySparkException as error:
        raise fluvial_error(error, f"expectations cannot be checked: table={table.name}") from error
    return found


# ---- Conditions on aggregates, as ``count(*) > 0`` or ``sum(amount) < 100``, over batches of rows without Spark
#
# Batches are folded by Arrow, one value for each; these few values are put together and compared as Python's,
# exactly. None is unknown, as in SQL.


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
