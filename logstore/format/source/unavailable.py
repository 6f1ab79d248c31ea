"""Placeholders that a connector writes where a value was not available to it.

PostgreSQL does not log a large (TOAST) value that an update left alone. Debezium then writes its placeholder in the
type of the column: as text, as its bytes, as an array of the one text, as an array of the numbers of its bytes, as an
array of the one UUID that Java makes of its bytes (version 3), as a map of the text to itself, or as the text of that
map (``hstore.handling.mode=json``). For other columns it writes null, see ``has_placeholder``.

PostgreSQL logs only the key of a row that is deleted, unless the table has REPLICA IDENTITY FULL. Debezium then writes
null for the other columns, and for NOT NULL columns their default or the zero of their type, see ``is_blank``.

A placeholder is bytes: those of the setting's text, or the ones that it has behind ``hex:``. As text they are decoded
as UTF-8, and what is no character becomes U+FFFD; the numbers of bytes are signed.

Source: Debezium PostgreSQL connector, ``unavailable.value.placeholder``; measured with Debezium 3.4.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.source.old_keys import is_old_key
from logstore.json.arrow_bytes import flags
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""The placeholder, unless the connector has another."""
_IN_HEX: Final = "hex:"
_TEXTS: Final = frozenset({"_TEXT", "_VARCHAR", "_BPCHAR"})
_MARKED_ELEMENTS: Final[Mapping[tuple[str, str | None], frozenset[str]]] = {
    ("string", None): _TEXTS,
    ("string", "io.debezium.data.Uuid"): frozenset({"_UUID"}),
    ("string", "io.debezium.data.Json"): frozenset({"_JSON", "_JSONB"}),
    ("string", "io.debezium.data.Xml"): frozenset({"_XML"}),
    ("int32", None): frozenset({"_INT4"}),
    ("int32", "io.debezium.time.Date"): frozenset({"_DATE"}),
    ("int64", None): frozenset({"_INT8"}),
    ("bytes", None): frozenset({"_BYTEA"}),
}
"""Arrays that have a placeholder, as the source calls them, by type and meaning of their elements."""
_MOST_SMALL_BITS: Final = 152
"""No more are ever stored apart: PostgreSQL leaves values of 24 bytes where they are, however long their row is."""


def bytes_of(placeholder: str) -> bytes:
    """The bytes of a placeholder, from the connector's setting.

    Raises: InvalidInputError: it is empty, or there are no hexadecimal digits behind ``hex:``.
    """
    content = placeholder.encode()
    if placeholder.startswith(_IN_HEX):
        digits = placeholder.removeprefix(_IN_HEX)
        content = bytes.fromhex(digits) if _HEX.fullmatch(digits) else b""
    if not content:
        raise InvalidInputError(
            f"no such placeholder: unavailable.value.placeholder={placeholder} "
            "fix='write the text that the connector has, or hex: and two hexadecimal digits for each byte'"
        )
    return content


def has_placeholder(part: Mapping[str, Any], source: str = "") -> bool | None:
    """Whether a column of a schema part has a placeholder; where it has none, a value that is left out is null.

    Args:
        part: of the column.
        source: the column's type as the source calls it; "": the connector does not say it.

    Returns: None: it depends on the source's type, which is not known.
    """
    if part.get("name") == "io.debezium.data.Bits":
        length = str((part.get("parameters") or {}).get("length", ""))
        return length.isdigit() and int(length) <= _MOST_SMALL_BITS and source != "_BIT"
    if source == "_BIT":  # the connector publishes no array of it
        return False
    if part.get("type") != "array":
        return True
    items = part.get("items") or {}
    marked = _MARKED_ELEMENTS.get((str(items.get("type")), items.get("name")), frozenset())
    if source:
        return source in marked
    return None if marked is _TEXTS else bool(marked)


def placeholders(values: pa.Array, placeholder: str) -> BoolArray:
    """(n,) whether each value is the placeholder in the type of the column, or a struct that holds one.

    Args:
        values: of a column.
        placeholder: the connector's setting.
    """
    content = bytes_of(placeholder)
    return _found(values, content, content.decode(errors="replace"))


def _found(values: pa.Array, content: bytes, text: str) -> BoolArray:
    kind = values.type
    if pa.types.is_string(kind):
        return flags(pc.or_(pc.equal(values, text), pc.equal(values, pa.scalar(_map_text(text)))))
    if pa.types.is_binary(kind):
        return flags(pc.equal(values, pa.scalar(content)))
    if pa.types.is_list(kind):
        return _lists(values, content, text)
    if pa.types.is_map(kind):
        return _maps(values, content, text)
    found = np.zeros(len(values), bool)
    if pa.types.is_struct(kind):
        for column in values.flatten():
            found |= _found(column, content, text)
    return found


def _map_text(text: str) -> str:
    """The map of a text to itself, as Jackson writes it: digits of escapes are capitals."""
    written = json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPE.sub(lambda found: f"\\u{found[1].upper()}", written)


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


def is_blank(values: pa.Array, default: pa.Array | None = None) -> BoolArray:
    """(n,) whether each value is null, or what stands in a NOT NULL column for a value that was not logged.

    Args:
        values: of a column, in its type.
        default: (1,) what the schema part says of the column; None: it has no default, which the zero of a type stands
            for: 0, false, no text, 1970-01-01, no elements.
    """
    kind, is_null = values.type, flags(values.is_null())
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        is_zero = np.diff(np.asarray(values.offsets)) == 0
    elif pa.types.is_struct(kind):
        is_zero = np.logical_and.reduce([is_blank(each) for each in values.flatten()], axis=0)
    elif pa.types.is_string(kind):
        is_zero = flags(pc.match_substring_regex(values, _ZERO_TEXT))
    elif pa.types.is_binary(kind):
        is_zero = flags(pc.match_substring_regex(values, _ZERO_BYTES))
    else:
        is_zero = flags(pc.equal(values, pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)))
    is_default = is_null
    if default is not None and default[0].is_valid and not pa.types.is_nested(kind):
        is_default = flags(pc.equal(values, default[0]))
    found: BoolArray = is_null | is_zero | is_default
    return found


def without(values: pa.Array, mask: BoolArray) -> pa.Array:
    """The values, null where the mask is true."""
    return values.take(pa.array(np.arange(len(values)), mask=mask)) if mask.any() else values


def _lists(values: pa.ListArray, content: bytes, text: str) -> BoolArray:
    found = np.zeros(len(values), bool)
    lengths = np.asarray(pc.list_value_length(values).fill_null(0))
    element = values.type.value_type
    if pa.types.is_integer(element) or pa.types.is_temporal(element):
        pattern = np.frombuffer(content, np.int8).astype(np.int64)
        rows = np.flatnonzero(lengths == pattern.size)
        if rows.size:
            inner = values.take(pa.array(rows)).flatten()
            numbers = inner if pa.types.is_integer(element) else inner.view(_NUMBERS[inner.type.bit_width])
            matrix = np.asarray(numbers.cast(pa.int64()).fill_null(_NO_BYTE)).reshape(-1, pattern.size)
            found[rows] = (matrix == pattern).all(axis=1)
        return found
    rows = np.flatnonzero(lengths == 1)
    if rows.size:
        inner = values.take(pa.array(rows)).flatten()
        found[rows] = _found(inner, content, text)
        if pa.types.is_string(element):
            found[rows] |= flags(pc.equal(inner, _uuid_of(content)))
    return found


def _uuid_of(content: bytes) -> str:
    """Source: Java's ``UUID.nameUUIDFromBytes``."""
    return str(uuid.UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3))


def _maps(values: pa.MapArray, content: bytes, text: str) -> BoolArray:
    found = np.zeros(len(values), bool)
    if not pa.types.is_string(values.type.key_type):
        return found
    rows = np.flatnonzero((np.diff(np.asarray(values.offsets)) == 1) & flags(values.is_valid()))
    if rows.size:
        found[rows] = _found(values.take(pa.array(rows)).keys, content, text)
    return found


_ZERO_TEXT: Final = r"^(1970-01-01)?[0:.,+\-TZPYMDHS{}\[\] ]*$"
"""Zeros of numbers, times and intervals, and what holds nothing, in what the connector writes as a text."""
_ZERO_BYTES: Final = r"^\x00*$"
_NO_BYTE: Final = 1 << 8
_HEX: Final = re.compile("([0-9a-fA-F]{2})+")
_ESCAPE: Final = re.compile(r"\\u([0-9a-f]{4})")
_NUMBERS: Final = {32: pa.int32(), 64: pa.int64()}
