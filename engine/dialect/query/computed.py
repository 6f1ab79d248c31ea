"""Computed columns: a table option ``computed-column.<n>`` = ``name AS expression`` adds a column to what SQL reads."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import TokenType

from engine.dialect.grammar.dialect import tokens_of
from engine.dialect.grammar.places import SourceText
from filestore.options.parsing import not_valid
from filestore.options.rules import COMPUTED_PREFIX
from filestore.options.stored_expressions import check_expression
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedField:
    """A column that no file holds."""

    key: str  # the option
    name: str
    expression: str  # of Spark, over the table's columns
    words: frozenset[str]  # of the expression, in lower case: the names of its columns are among them


def computed_columns(options: TableOptions) -> list[ComputedField]:
    """The computed columns that a table's options describe, by their numbers.

    Raises:
        InvalidInputError: a text that is not ``name AS expression``.
    """
    texts = {f"{COMPUTED_PREFIX}{rest}": text for rest, text in options.behind(COMPUTED_PREFIX).items()}
    return [_parsed(key, texts[key]) for key in sorted(texts, key=_number)]


def needed_names(names: Collection[str], columns: Sequence[ComputedField]) -> frozenset[str]:
    """Names in lower case, and those that the computed columns among them are made of."""
    needed = frozenset(names)
    for each in reversed(columns):  # each may use the ones before it
        if each.name.lower() in needed:
            needed |= each.words
    return needed


def with_computed(frame: DataFrame, columns: Sequence[ComputedField]) -> DataFrame:
    """The frame with these columns behind its own; each may use the ones before it.

    Raises: InvalidInputError: an expression calls what a table's files may not call, see ``check_expression``.
    """
    for each in columns:
        try:
            check_expression(each.expression)
        except ValueError as error:
            raise not_valid(each.key, each.expression, error) from error
        frame = frame.withColumn(each.name, F.expr(each.expression))
    return frame


def _number(key: str) -> tuple[int, str]:
    number = key.removeprefix(COMPUTED_PREFIX)
    return (int(number) if number.isdecimal() else -1, number)


def _parsed(key: str, text: str) -> ComputedField:
    tokens = tokens_of(SourceText.of(text))
    if len(tokens) < 3 or tokens[1].token_type is not TokenType.ALIAS:
        raise InvalidInputError(f"not a computed column: {key}={text} fix=write: name AS expression")
    rest = tokens[2:]
    return ComputedField(
        key=key,
        name=tokens[0].text,
        expression=text[rest[0].start : rest[-1].end + 1],
        words=frozenset(token.text.lower() for token in rest),
    )
