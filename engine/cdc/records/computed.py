"""Columns that a job computes from others of a row: ``dt: date(created_at)``. Expressions of Spark's SQL, on Arrow.

There are casts, texts (``||``, concat, upper, lower, trim, substring, length), parts of dates and moments (year, month,
day, hour, minute; date), + - * and coalesce. What is not there is refused when the job file is read. Moments are in
UTC. As in SQL, a null in an operand gives null; a value that cannot be cast, or overflows, parks its table.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from engine.dialect.grammar.type_grammar import parse_type
from filestore.types.casts import cast_array
from filestore.types.data_types import DataType, arrow_type, data_type_of
from lsm.errors import InvalidInputError

ArrowValues = Any
"""An array, or a scalar of a literal."""

_PARTS: Final[Mapping[type[exp.Expr], Callable[[ArrowValues], ArrowValues]]] = {
    exp.Year: pc.year,
    exp.Month: pc.month,
    exp.Day: pc.day,
    exp.DayOfMonth: pc.day,
    exp.Hour: pc.hour,
    exp.Minute: pc.minute,
}
_TEXTS: Final[Mapping[type[exp.Expr], Callable[[ArrowValues], ArrowValues]]] = {
    exp.Upper: pc.utf8_upper,
    exp.Lower: pc.utf8_lower,
    exp.Trim: pc.utf8_trim_whitespace,
    exp.Length: pc.utf8_length,
}
_NUMBERS: Final[Mapping[type[exp.Expr], Callable[[ArrowValues, ArrowValues], ArrowValues]]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_OTHERS: Final = (
    exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.DPipe, exp.Concat, exp.Substring, exp.Coalesce, exp.TsOrDsToDate,
)  # fmt: skip
_KNOWN: Final = (*_PARTS, *_TEXTS, *_NUMBERS, *_OTHERS)
_PLAIN: Final = frozenset({"CHAR", "VARCHAR", "TINYINT", "SMALLINT", "INT", "BIGINT", "BOOLEAN", "DATE"})


@lru_cache(maxsize=256)
def parsed_expression(text: str) -> exp.Expr:
    """The tree of an expression. Raises: InvalidInputError: it is none, or has something that is not supported."""
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except SqlglotError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInputError(
            f"not an expression: columns.compute={text} reason={reason} fix='as: date(at)'"
        ) from error
    for each in tree.walk():
        if not isinstance(each, _KNOWN):
            raise InvalidInputError(
                f"not supported in a computed column: columns.compute={text} found={each.sql('spark')} "
                "fix='use casts, ||, concat, upper, lower, trim, substring, length, coalesce, date and parts, + - *'"
            )
    if not inputs(text, tree):
        raise InvalidInputError(f"a computed column has no column in it: columns.compute={text} fix='name one'")
    return tree


def inputs(text: str, tree: exp.Expr | None = None) -> frozenset[str]:
    """The columns that an expression needs."""
    return frozenset(each.name for each in (tree or parsed_expression(text)).find_all(exp.Column))


def computed_names(rules: Mapping[str, str], columns: Collection[str], used: Collection[str]) -> frozenset[str]:
    """The columns of a table that are computed.

    Args:
        rules: expressions by name.
        columns: of the table.
        used: those in which a column of the source is.
    """
    known = {*columns}
    return frozenset(name for name, text in rules.items() if name in known - {*used} and inputs(text) <= known)


def computed_type(text: str, columns: Mapping[str, DataType]) -> DataType:
    """The type of an expression over columns. Raises: InvalidInputError: it does not fit their types."""
    empty = {name: pa.array([], arrow_type(columns[name])) for name in inputs(text)}
    return data_type_of(_computed(text, empty).type)


def computed_column(text: str, arrays: Mapping[str, pa.Array], target: DataType) -> pa.Array:
    """The values of an expression.

    Args:
        text: the expression.
        arrays: (n,) by column, at least its inputs.
        target: type of the column that is computed.

    Raises:
        InvalidInputError: a value cannot be cast, or overflows.
    """
    found = _computed(text, arrays)
    source = data_type_of(found.type)
    return found if arrow_type(target) == found.type else cast_array(found, source, target)


def _computed(text: str, arrays: Mapping[str, pa.Array]) -> pa.Array:
    try:
        return _value(parsed_expression(text), arrays)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidInputError) as error:
        raise InvalidInputError(f"a column cannot be computed: columns.compute={text} reason={error}") from error


def _value(tree: exp.Expr, arrays: Mapping[str, pa.Array]) -> ArrowValues:
    if isinstance(tree, exp.Column):
        return arrays[tree.name]
    if isinstance(tree, exp.Literal):
        return pa.scalar(tree.name) if tree.is_string else _number(tree.name)
    if isinstance(tree, exp.Concat):
        return _joined([_value(each, arrays) for each in tree.expressions])
    return _of_first(tree, _value(tree.this, arrays), arrays)


def _of_first(tree: exp.Expr, first: ArrowValues, arrays: Mapping[str, pa.Array]) -> ArrowValues:
    kind = type(tree)
    if isinstance(tree, exp.Cast):
        return _cast(first, parse_type(tree.to.sql("spark")))
    if kind in _PARTS:
        return _PARTS[kind](first).cast(pa.int32())
    if kind in _TEXTS:
        return _TEXTS[kind](first)
    if kind in _NUMBERS:
        return _NUMBERS[kind](first, _value(tree.expression, arrays))
    if isinstance(tree, exp.DPipe):
        return _joined([first, _value(tree.expression, arrays)])
    if isinstance(tree, exp.Coalesce):
        return pc.coalesce(first, *(_value(each, arrays) for each in tree.expressions))
    if isinstance(tree, exp.Substring):
        start, length = int(tree.args["start"].name), tree.args.get("length")
        if start < 1:
            raise InvalidInputError(f"substring counts from 1: start={start}")
        return pc.utf8_slice_codeunits(first, start - 1, None if length is None else start - 1 + int(length.name))
    return first  # parentheses; a part of a moment is that of its day


def _number(text: str) -> pa.Scalar:
    if not text.isdigit():
        return pa.scalar(text).cast(pa.float64())
    return pa.scalar(int(text), pa.int32() if int(text) < 2**31 else pa.int64())


def _cast(values: ArrowValues, target: DataType) -> ArrowValues:
    source = data_type_of(values.type)
    if arrow_type(source) == arrow_type(target):
        return values
    if isinstance(values, pa.Scalar):
        return values.cast(arrow_type(target))
    return cast_array(values, source, target)


def _joined(parts: list[ArrowValues]) -> ArrowValues:
    for each in parts:
        if data_type_of(each.type).root not in _PLAIN:
            raise InvalidInputError(f"no text: type={data_type_of(each.type)} fix='cast it to STRING'")
    texts = [each.cast(pa.string()) for each in parts]
    return pc.binary_join_element_wise(*texts, "")
