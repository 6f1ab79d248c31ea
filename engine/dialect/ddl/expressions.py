"""Expressions in a table's options, when the columns they refer to change."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from engine.dialect.ddl.table_parts import WATERMARK_EXPRESSION, TableParts, quoted_where_needed
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import parse_expression, tokens_of
from engine.dialect.grammar.places import SourceText
from filestore.evolution.schema_change import ChangeType, DropColumn, RenameColumn, SchemaChange, SetOption
from filestore.options.rules import CHECK_PREFIX, COMPUTED_PREFIX
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError


def followed(schema: TableSchema, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """Changes, completed with those of computed columns and the watermark: renamed columns are renamed in them.

    Raises:
        InvalidInputError: an expression needs a dropped column.
    """
    expressions = dict(_expressions(schema))
    found: list[SchemaChange] = []
    for change in changes:
        found.append(change)
        if not isinstance(change, (DropColumn, RenameColumn, ChangeType)) or len(change.path) > 1:
            continue
        column = change.path[0]
        for key, (title, prefix, expression) in list(expressions.items()):
            places = _places(expression, column)
            if places and isinstance(change, DropColumn):
                raise InvalidInputError(f"column is in use and cannot be dropped: column={column} used_by={title!r}")
            if places and isinstance(change, RenameColumn):
                renamed = _spliced(expression, places, quoted_where_needed(change.name))
                expressions[key] = (title, prefix, renamed)
                found.append(SetOption(key, prefix + renamed))
    return found


def _expressions(schema: TableSchema) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """For each option its kind, the text before the expression, and the expression."""
    parts = TableParts.of(schema.options)
    for column in parts.computed:
        prefix = f"{quoted_where_needed(column.name)} AS "
        for key, text in schema.options.items():
            if key.startswith(COMPUTED_PREFIX) and text == prefix + column.expression:
                yield key, (f"computed column {column.name}", prefix, column.expression)
    for key, condition in schema.options.items():
        if key.startswith(CHECK_PREFIX):
            yield key, (f"constraint {key.removeprefix(CHECK_PREFIX)}", "", condition)
    if parts.watermark is not None:
        yield WATERMARK_EXPRESSION, ("watermark", "", parts.watermark.expression)


def _places(expression: str, column: str) -> list[tuple[int, int]]:
    """Positions where a column of the table is named, from last to first."""
    source = SourceText.of(expression)
    tree = parse_expression(Cursor(source, tokens_of(source)))
    heads = [each.parts[0] for each in tree.find_all(exp.Column)]
    found = {(head.meta["start"], head.meta["end"] + 1) for head in heads if head.name.lower() == column.lower()}
    return sorted(found, reverse=True)


def _spliced(expression: str, places: Sequence[tuple[int, int]], name: str) -> str:
    for start, stop in places:
        expression = expression[:start] + name + expression[stop:]
    return expression
