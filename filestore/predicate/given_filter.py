"""Filters as callers give them: SQL text, an expression of PyArrow, or a predicate that was parsed before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pyarrow as pa

from filestore.predicate.arrow_expression import condition_of, is_expression
from filestore.predicate.conditions import ToolCondition, columns_of_condition, exact_predicate, wider_predicate
from filestore.predicate.predicate import Predicate
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class GivenFilter:
    """A filter in two parts: a row is wanted if both are true."""

    predicate: Predicate | None  # for files and rows; None: true
    rest: Any = None  # an expression of PyArrow for the rows that are left; None: true
    columns: tuple[str, ...] = ()  # that the rest reads

    def of(self, batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows for which the rest is true, in these columns; none if there is no such row."""
        if self.rest is None:
            yield batch
            return
        try:
            kept = batch.filter(self.rest)
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(f"filter fails: reason={reason!r} filter={str(self.rest)!r}") from error
        if kept.num_rows:
            yield kept.select(list(names))


def given_filter(given: Any, schema: TableSchema, rows: pa.Schema) -> GivenFilter:
    """The two parts of a filter, as narrow as can be; an expression means what it means in PyArrow.

    Args:
        given: text, predicate or expression; None is true. A ``ToolCondition`` only leaves out rows: its tool applies
            it to those that come.
        schema: columns that the table has.
        rows: columns that the rows have; more than the table's, as ``_row_kind``.

    Raises: InvalidInputError: the expression does not fit the columns, or see ``predicate_of``.
    """
    if isinstance(given, get_args(ToolCondition)):
        return GivenFilter(wider_predicate(given, schema))
    if not is_expression(given):
        return GivenFilter(predicate_of(given, schema))
    try:
        rows.empty_table().filter(given)
    except (pa.ArrowException, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(
            f"filter does not fit the columns: reason={reason!r} columns={rows.names} filter={str(given)!r}"
        ) from error
    condition = condition_of(given)
    if condition is None:
        return GivenFilter(None, given, tuple(rows.names))
    exact = exact_predicate(condition, schema)
    if exact is not None:
        return GivenFilter(exact)
    read = columns_of_condition(condition)
    return GivenFilter(wider_predicate(condition, schema), given, tuple(name for name in rows.names if name in read))


def predicate_of(given: Any, schema: TableSchema) -> Predicate | None:
    """The predicate of a filter; None: none was given.

    Raises: InvalidInputError: a text that cannot be read, see ``parse_filter``; an expression of PyArrow that no
        predicate equals; another kind of value.
    """
    if isinstance(given, str):
        from filestore.predicate.parser import parse_filter  # sqlglot is slow to import

        return parse_filter(given, schema)
    if given is None or isinstance(given, get_args(Predicate)):
        return given
    if is_expression(given):
        condition = condition_of(given)
        exact = None if condition is None else exact_predicate(condition, schema)
        if exact is not None:
            return exact
        raise InvalidInputError(f"this expression is not supported here: filter={str(given)!r} fix='write it as SQL'")
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    raise InvalidInputError(
        f"a filter is SQL text or an expression of PyArrow: given={kind} fix='write it as a WHERE clause, as in id > 3'"
    )
