"""PyArrow's expressions as trees that can be looked into.

PyArrow shows no part of an expression, but pickles it: an Arrow file with the constants as columns and the tree as
metadata of the schema, in prefix order with repeated keys. PyArrow's own dict of the metadata drops the repetitions, so
they are read from Arrow's C data interface. An expression that is not understood is None: then nothing is left out for
it, and Arrow applies it to every row.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.predicate.conditions import FunctionCall, Ref, ToolCondition, Value

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
