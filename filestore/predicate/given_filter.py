"""Filters as callers give them: SQL text, an expression of PyArrow, or a predicate that was parsed before.

PyArrow has no API for the parts of an expression, but pickles it: an Arrow file with the constants as columns and the
tree as metadata of the schema, in prefix order with repeated keys. PyArrow's own dict of the metadata drops the
repetitions, so they are read from Arrow's C data interface. An expression that cannot be translated becomes None: then
no file is skipped for it, and Arrow applies it to every row.
"""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import pyarrow as pa
import pyarrow.compute as pc

from filestore.predicate.conditions import (
    FunctionCall,
    Ref,
    ToolCondition,
    Value,
    columns_of_condition,
    exact_predicate,
    wider_predicate,
)
from filestore.predicate.predicate import Predicate
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

_INT32: Final = ctypes.sizeof(ctypes.c_int32)


class _ArrowSchema(ctypes.Structure):
    """The first members of struct ArrowSchema of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def is_expression(given: object) -> bool:
    """Whether a filter is one of PyArrow's."""
    return isinstance(given, pc.Expression)


def condition_of(expression: pc.Expression) -> ToolCondition | None:
    """The tree of an expression; None: it cannot be read."""
    try:
        _, (buffer,) = expression.__reduce__()
        constants = pa.ipc.open_file(buffer).get_batch(0)
        return _parsed(list(_metadata(constants.schema)), constants)
    except (pa.ArrowException, ValueError, LookupError, TypeError, AttributeError):
        return None  # another form of a later PyArrow, or a function without one


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Keys and values in their order: int32 count, then for each the length and bytes of key and value."""
    capsule = schema.__arrow_c_schema__()
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found = _ArrowSchema.from_address(address(capsule, b"arrow_schema")).metadata
    place = found or 0

    def number() -> int:
        nonlocal place
        value = ctypes.c_int32.from_address(place).value
        place += _INT32
        return value

    def text() -> str:
        nonlocal place
        length = number()
        value = ctypes.string_at(place, length)
        place += length
        return value.decode("utf-8")

    for _ in range(number() if place else 0):
        yield text(), text()


def _parsed(entries: list[tuple[str, str]], constants: pa.RecordBatch) -> ToolCondition:
    """Raises: ValueError, LookupError: entries that no expression has."""
    stack: list[tuple[str, list[ToolCondition], dict[str, Any]]] = [("", [], {})]
    at = 0
    while at < len(entries):
        key, value = entries[at]
        at += 1
        _, args, options = stack[-1]
        if key == "call":
            stack.append((value, [], {}))
        elif key == "end":
            name, inner, given = stack.pop()
            stack[-1][1].append(FunctionCall(name, tuple(inner), given))
        elif key == "literal":
            args.append(Value(constants.column(int(value))[0]))
        elif key == "options":
            options.update(_options(constants.column(int(value))[0]))
        elif key == "field_ref":
            args.append(Ref((value,)))
        elif key == "nested_field_ref":
            names = entries[at : at + int(value)]
            at += int(value)
            args.append(Ref(tuple(name for _, name in names)))
        else:
            raise ValueError(key)
    (_, [tree], _) = stack.pop()
    if stack:
        raise ValueError("a call has no end")
    return tree


def _options(scalar: pa.Scalar) -> dict[str, Any]:
    """Options of a call; a set of values as scalars, because Python's values have lost their type."""
    return {
        name: list(value.values) if pa.types.is_list(value.type) else value.as_py() for name, value in scalar.items()
    }


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
