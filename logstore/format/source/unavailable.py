"""Placeholders that a connector writes where a value was not available to it.

PostgreSQL does not log a large (TOAST) value that an update left alone. Debezium then writes its placeholder in the
type of the column: as text, as its bytes, as an array of the one text, as an array of the numbers of its bytes, as an
array of the one UUID that Java makes of its bytes (version 3), as a map of the text to itself, or as the text of that
map (``hstore.handling.mode=json``). For other arrays it writes null, see ``has_placeholder``.

Source: Debezium PostgreSQL connector, ``unavailable.value.placeholder``.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.source.old_keys import is_old_key
from logstore.json.arrow_bytes import flags
from lsm.keys.words import BoolArray

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""The placeholder, unless the connector has another."""
_MARKED_ELEMENTS: Final[Mapping[str, frozenset[str | None]]] = {
    "string": frozenset({None, "io.debezium.data.Uuid", "io.debezium.data.Json", "io.debezium.data.Xml"}),
    "int32": frozenset({None, "io.debezium.time.Date"}),
    "int64": frozenset({None}),
    "bytes": frozenset({None}),
}
"""Elements of arrays that have a placeholder, by type and meaning."""
_MOST_SMALL_BITS: Final = 8 * 2000


def has_placeholder(part: Mapping[str, Any]) -> bool:
    """Whether a column of a schema part has a placeholder; where it has none, a value that is left out is null."""
    if part.get("name") == "io.debezium.data.Bits":
        length = str((part.get("parameters") or {}).get("length", ""))
        return length.isdigit() and int(length) <= _MOST_SMALL_BITS  # never stored apart
    if part.get("type") != "array":
        return True
    items = part.get("items") or {}
    return items.get("name") in _MARKED_ELEMENTS.get(str(items.get("type")), ())


def placeholders(values: pa.Array, placeholder: str) -> BoolArray:
    """(n,) whether each value is the placeholder in the type of the column, or a struct that holds one."""
    kind = values.type
    if pa.types.is_string(kind):
        as_map = pa.scalar(json.dumps({placeholder: placeholder}, separators=(",", ":")))
        return flags(pc.or_(pc.equal(values, placeholder), pc.equal(values, as_map)))
    if pa.types.is_binary(kind):
        return flags(pc.equal(values, pa.scalar(placeholder.encode())))
    if pa.types.is_list(kind):
        return _lists(values, placeholder)
    if pa.types.is_map(kind):
        return _maps(values, placeholder)
    found = np.zeros(len(values), bool)
    if pa.types.is_struct(kind):
        for column in values.flatten():
            found |= placeholders(column, placeholder)
    return found


def mask_column(masks: Mapping[str, BoolArray], count: int) -> pa.Array | None:
    """(count,) list<string>: the columns whose mask is true in each row, null where there are none; None: nowhere."""
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return None
    matrix = np.column_stack(list(masks.values()))
    counts = matrix.sum(axis=1)
    _, columns = np.nonzero(matrix)
    names = pa.array(list(masks), pa.string()).take(pa.array(columns))
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    return pa.ListArray.from_arrays(offsets, names, mask=pa.array(counts == 0))


def columns_of_masks(marks: pa.Array | pa.ChunkedArray) -> dict[str, BoolArray]:
    """The inverse of ``mask_column``: (n,) by column the rows that lack it; entries of old keys are no columns."""
    marks = marks.combine_chunks() if isinstance(marks, pa.ChunkedArray) else marks
    rows, names = np.asarray(pc.list_parent_indices(marks)), pc.list_flatten(marks).cast(pa.string())
    is_column = ~is_old_key(names)
    codes = names.filter(pa.array(is_column)).dictionary_encode()
    rows, numbers = rows[is_column], np.asarray(codes.indices.fill_null(-1))
    masks = {}
    for number, name in enumerate(codes.dictionary.to_pylist()):
        masks[name] = np.zeros(len(marks), bool)
        masks[name][rows[numbers == number]] = True
    return masks


def without(values: pa.Array, mask: BoolArray) -> pa.Array:
    """The values, null where the mask is true."""
    return values.take(pa.array(np.arange(len(values)), mask=mask)) if mask.any() else values


def _lists(values: pa.ListArray, placeholder: str) -> BoolArray:
    found = np.zeros(len(values), bool)
    lengths = np.asarray(pc.list_value_length(values).fill_null(0))
    element = values.type.value_type
    if pa.types.is_integer(element) or pa.types.is_temporal(element):
        pattern = np.frombuffer(placeholder.encode(), np.uint8).astype(np.int64)
        rows = np.flatnonzero(lengths == pattern.size)
        if rows.size:
            inner = values.take(pa.array(rows)).flatten()
            numbers = inner if pa.types.is_integer(element) else inner.view(_NUMBERS[inner.type.bit_width])
            matrix = np.asarray(numbers.cast(pa.int64()).fill_null(-1)).reshape(-1, pattern.size)
            found[rows] = (matrix == pattern).all(axis=1)
        return found
    rows = np.flatnonzero(lengths == 1)
    if rows.size:
        inner = values.take(pa.array(rows)).flatten()
        found[rows] = placeholders(inner, placeholder)
        if pa.types.is_string(element):
            found[rows] |= flags(pc.equal(inner, _uuid_of(placeholder)))
    return found


def _uuid_of(placeholder: str) -> str:
    """Source: Java's ``UUID.nameUUIDFromBytes``."""
    return str(uuid.UUID(bytes=hashlib.md5(placeholder.encode(), usedforsecurity=False).digest(), version=3))


def _maps(values: pa.MapArray, placeholder: str) -> BoolArray:
    found = np.zeros(len(values), bool)
    if not pa.types.is_string(values.type.key_type):
        return found
    rows = np.flatnonzero((np.diff(np.asarray(values.offsets)) == 1) & flags(values.is_valid()))
    if rows.size:
        found[rows] = placeholders(values.take(pa.array(rows)).keys, placeholder)
    return found


_NUMBERS: Final = {32: pa.int32(), 64: pa.int64()}
