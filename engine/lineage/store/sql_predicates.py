"""Predicates as conditions of a SQL database. Columns of lineage are never null."""

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from filestore.predicate.predicate import And, Compare, CompareOp, Constant, In, IsNull, Not, Or, Predicate, StartsWith

_OPERATORS: Final[Mapping[CompareOp, Callable[[Any, Any], Any]]] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
# Comparing whole seconds with a time between two of them, replaced by the second before.
_BETWEEN_SECONDS: Final = {
    CompareOp.GT: CompareOp.GT,
    CompareOp.GE: CompareOp.GT,
    CompareOp.LT: CompareOp.LE,
    CompareOp.LE: CompareOp.LE,
}
_LAST_SECOND: Final = 253_402_300_799
_FIRST_SECOND: Final = -62_135_596_800

Condition = sa.ColumnElement[bool]


def where(predicate: Predicate | None, columns: Mapping[str, Any], dialect: str) -> Condition:
    """The condition that is true for the matching rows.

    Args:
        predicate: on names of ``columns``; times are epoch milliseconds. None matches all.
        columns: SQLAlchemy columns by name.
        dialect: of the database.
    """
    if predicate is None:
        return sa.true()
    if isinstance(predicate, Constant):
        return _always(predicate.outcome)
    if isinstance(predicate, And):
        return sa.and_(*(where(part, columns, dialect) for part in predicate.parts))
    if isinstance(predicate, Or):
        return sa.or_(*(where(part, columns, dialect) for part in predicate.parts))
    if isinstance(predicate, Not):
        return sa.not_(where(predicate.part, columns, dialect))
    column = columns[predicate.column]
    if isinstance(predicate, IsNull):
        return _always(False)
    if isinstance(predicate, Compare):
        return _compare(column, predicate.op, predicate.value)
    if isinstance(predicate, In):
        found = (_compare(column, CompareOp.EQ, each) for each in predicate.values)
        return sa.or_(_always(None if predicate.has_null else False), *found)
    if isinstance(predicate, StartsWith):
        return _like(column, re.sub(r"([\\%_])", r"\\\1", predicate.prefix) + "%", dialect)
    return _like(column, predicate.pattern, dialect)


def _always(outcome: bool | None) -> Condition:
    return sa.literal(1) == sa.literal(None if outcome is None else int(outcome), sa.Integer)


def _compare(column: Any, op: CompareOp, value: Any) -> Condition:
    if isinstance(column.type, sa.DateTime) and isinstance(value, int):
        seconds, rest_ms = divmod(value, 1000)
        if rest_ms and op in (CompareOp.EQ, CompareOp.NE):
            return _always(op is CompareOp.NE)
        op = _BETWEEN_SECONDS[op] if rest_ms else op
        held = min(max(seconds, _FIRST_SECOND), _LAST_SECOND)
        value = datetime.fromtimestamp(held, UTC).replace(tzinfo=None)
    found: Condition = _OPERATORS[op](column, value)
    return found


def _like(column: Any, pattern: str, dialect: str) -> Condition:
    if dialect == "sqlite":  # its LIKE ignores case
        found: Condition = column.op("GLOB", is_comparison=True)(_glob(pattern))
        return found
    escaped: Condition = column.like(pattern, escape="\\")
    return escaped


def _glob(pattern: str) -> str:
    r"""A LIKE pattern as SQLite's GLOB: ``%`` is ``*``, ``_`` is ``?``, ``\`` escapes the next character."""
    made = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            made.append("*" if character == "%" else "?")
            continue
        plain = next(characters, "\\") if character == "\\" else character
        made.append(f"[{plain}]" if plain in "*?[" else plain)
    return "".join(made)
