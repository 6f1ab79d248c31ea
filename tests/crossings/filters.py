"""Conditions on rows: as SQL, and what they mean of a row, said in plain Python.

``["=", "a", 1]``, ``["null", "a"]``, ``["in", "a", [1, 2]]``, ``["not", x]``, ``["and", x, y]``, ``["or", x, y]``.
"""

from collections.abc import Mapping
from typing import Any, Final

_COMPARED: Final = {
    "=": lambda one, two: one == two,
    "<>": lambda one, two: one != two,
    "<": lambda one, two: one < two,
    "<=": lambda one, two: one <= two,
    ">": lambda one, two: one > two,
    ">=": lambda one, two: one >= two,
}


def text_of(filter: Any, slots: Mapping[str, str]) -> str:
    """The condition in SQL, with the names that columns have today. A column that is gone: KeyError."""
    names = {slot: name for name, slot in slots.items()}
    operator, *given = filter
    if operator in ("and", "or"):
        return f"({text_of(given[0], slots)} {operator.upper()} {text_of(given[1], slots)})"
    if operator == "not":
        return f"NOT ({text_of(given[0], slots)})"
    name = f"`{names[given[0]]}`"
    if operator == "null":
        return f"{name} IS NULL"
    if operator == "in":
        return f"{name} IN ({', '.join(map(_literal, given[1]))})"
    return f"{name} {operator} {_literal(given[1])}"


def columns_of(filter: Any) -> set[str]:
    """The slots that a condition is about."""
    operator, *given = filter
    if operator in ("and", "or", "not"):
        return set().union(*(columns_of(each) for each in given))
    return {given[0]}


def matches(filter: Any, values: Mapping[str, Any]) -> bool:
    """Whether a row is one that the condition is true of."""
    return _outcome(filter, values) is True


def _outcome(filter: Any, values: Mapping[str, Any]) -> bool | None:
    operator, *given = filter
    if operator in ("and", "or"):
        both = [_outcome(each, values) for each in given]
        decisive = operator == "or"
        return decisive if decisive in both else None if None in both else not decisive
    if operator == "not":
        inner = _outcome(given[0], values)
        return None if inner is None else not inner
    value = values.get(given[0])
    if operator == "null":
        return value is None
    if value is None:
        return None
    if operator == "in":
        return True if value in [each for each in given[1] if each is not None] else None if None in given[1] else False
    return bool(_COMPARED[operator](value, given[1]))


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
