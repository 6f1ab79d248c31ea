"""Avro records as columns: field by field, with a cursor in each record.

Every step reads one field of all records: the numbers at the cursors, then the cursors move on. Fields that are not
wanted only move them. Arrays and maps have as many steps as items, so records with them are read by fastavro, and
from its rows on they are the same columns.
"""

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logstore.format.avro_payloads import read_records, without_logical_types
from logstore.format.avro_schema import AvroType, parse_schema
from logstore.json.arrow_bytes import ByteArray, decimals_of_bytes, flags, texts_between
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.varints import read_varints, word_view

COLUMN_ROWS: Final = 8192  # columns of cursors stay in the CPU's cache

_PADDING: Final = 24  # a word can be read at every cursor, and two bytes behind it
_FIXED_BYTES: Final = {"boolean": 1, "float": 4, "double": 8}


class MismatchError(Exception):
    """A record does not match its schema."""

    def __init__(self, index: int, reason: str) -> None:
        """The record's index among those that were given."""
        super().__init__(index, reason)
        self.index, self.reason = index, reason


class Cursors:
    """The places in records up to which they are read."""

    def __init__(self, data: ByteArray, starts: IndexArray, ends: IndexArray) -> None:
        """Begin at the starts.

        Args:
            data: the bytes of all records.
            starts: (n,) first byte of each record's body, ascending.
            ends: (n,) behind it.
        """
        first, last = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
        self._data = np.zeros(last - first + _PADDING, np.uint8)
        self._data[: last - first] = data[first:last]
        self._words = word_view(self._data)
        self.places = starts - first
        self._ends = ends - first

    def check_end(self) -> None:
        """Raises: MismatchError: a record is longer than its schema."""
        self.refuse(self.places != self._ends, "longer than its Avro schema")

    def bytes_here(self) -> ByteArray:
        """The byte at each cursor."""
        found: ByteArray = self._data[self.places]
        return found

    def move(self, lengths: Any, present: BoolArray | None) -> None:
        """Move on in the records where something is present. Raises: MismatchError at the end of a record."""
        self.places = self.places + (lengths if present is None else lengths * present)
        self.refuse(self.places > self._ends, "shorter than its Avro schema")

    def branches(self, null_branch: int, present: BoolArray | None) -> BoolArray:
        """Read the branch of a union; which of the present are not null."""
        here = self.bytes_here()
        is_branch = (here | 2) == 2
        self.refuse(~is_branch if present is None else ~is_branch & present, "no such branch of a union")
        self.move(1, present)
        is_valid: BoolArray = here == 2 - 2 * null_branch
        return is_valid if present is None else is_valid & present

    def numbers(self, present: BoolArray | None) -> NDArray[np.int64]:
        """Read an int or long; what is not present is arbitrary."""
        numbers, lengths, too_long = read_varints(self._words, self.places)
        if too_long is not None:
            self.refuse(too_long if present is None else too_long & present, "a number of more than 64 bits")
        self.move(lengths, present)
        return numbers

    def fixed(self, kind: str, present: BoolArray | None) -> NDArray[Any]:
        """Read a boolean, float or double."""
        words = self._words[self.places]
        self.move(_FIXED_BYTES[kind], present)
        if kind == "boolean":
            truth: BoolArray = (words & np.uint64(0xFF)) != 0
            return truth
        found: NDArray[Any] = words.view("<f8") if kind == "double" else words.astype("<u4").view("<f4")
        return found

    def spans(self, present: BoolArray | None) -> tuple[IndexArray, IndexArray]:
        """Read a text or bytes: starts and ends; empty where nothing is present."""
        lengths = self.numbers(present)
        self.refuse(lengths < 0 if present is None else (lengths < 0) & present, "a negative length")
        starts = self.places
        # a length may be any number: one that ends behind the record must not overflow
        self.move(np.minimum(lengths, len(self._data)), present)
        return starts, self.places

    def binaries(self, spans: tuple[IndexArray, IndexArray]) -> pa.BinaryArray:
        """The bytes of spans."""
        return texts_between(self._data, *spans)

    def refuse(self, is_bad: BoolArray, reason: str) -> None:
        """Raises: MismatchError: with the first bad record."""
        if is_bad.any():
            raise MismatchError(int(np.argmax(is_bad)), reason)


def read_record(cursors: Cursors, schema: AvroType, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Read a record at every cursor.

    Args:
        cursors: where the records begin.
        schema: a record without arrays and maps.
        wanted: fields to return.

    Returns:
        The wanted fields that the schema has, as its own types.

    Raises:
        MismatchError: a record does not match the schema.
    """
    return _fields(cursors, schema, wanted, None)


def read_envelope(
    cursors: Cursors, schema: AvroType, wanted: Mapping[str, pa.DataType]
) -> tuple[dict[str, pa.Array], BoolArray]:
    """Read an envelope at every cursor: the row is in ``before`` or in ``after``.

    Args:
        cursors: where the envelopes begin.
        schema: a record without arrays and maps: ``before`` and ``after``, nullable and of one type, then others.
        wanted: fields of the row to return.

    Returns:
        See ``read_record``; and whether the row was in ``before``.

    Raises:
        MismatchError: a record does not match the schema, or has both sides or none.
    """
    (_, side), _, *others = schema.fields
    assert side.null_branch is not None
    is_before = cursors.branches(side.null_branch, None)
    is_after = cursors.branches(side.null_branch, ~is_before)
    cursors.refuse(is_before == is_after, "neither an insert nor a delete")
    columns = _fields(cursors, side, wanted, None)
    cursors.refuse(cursors.branches(side.null_branch, is_before), "neither an insert nor a delete")
    for _, field in others:
        _read(cursors, field, None, is_wanted=False)
    return columns, is_before


def read_with_blocks(records: pa.BinaryArray, text: str, wanted: Collection[str]) -> dict[str, pa.Array]:
    """The same of records with arrays and maps, one by one.

    Args:
        records: (n,) Avro, without schema ids.
        text: the schema.
        wanted: fields to return.

    Raises:
        MismatchError: a record does not match the schema.
    """
    schema = parse_schema(text)
    rows, unreadable = read_records(records.to_pylist(), *_fastavro_schemas(text))
    if unreadable:
        raise MismatchError(*min(unreadable.items()))
    found = {}
    for name, field in schema.fields:
        if name in wanted:
            stored = pa.array([row[name] for row in rows], _stored_type(field))
            found[name] = _of_stored(stored, field)
    return found


def fitted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column as another type that may hold its values; fields of records by name, null where there is none.

    Raises:
        InvalidInputError: a value does not fit.
    """
    types, given = pa.types, column.type
    if given == wanted:
        return column
    try:
        if types.is_struct(given) and types.is_struct(wanted):
            return _fitted_struct(column, wanted)
        if types.is_list(given) and types.is_list(wanted):
            items = fitted(column.flatten(), wanted.value_type)
            return pa.ListArray.from_arrays(_offsets(column), items, type=wanted)
        if types.is_map(given) and types.is_map(wanted):
            entries = column.cast(_entries_type(given)).flatten()
            keys, items = entries.flatten()
            offsets = _offsets(column.cast(_entries_type(given)))
            return pa.MapArray.from_arrays(
                offsets, fitted(keys, wanted.key_type), fitted(items, wanted.item_type), type=wanted
            )
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"value does not fit its column: type={given} column_type={wanted} {error}") from error


def _fitted_struct(column: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    parts = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
    children = [
        fitted(parts[each.name], each.type) if each.name in parts else pa.nulls(len(column), each.type)
        for each in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())


def _fields(
    cursors: Cursors, schema: AvroType, wanted: Mapping[str, pa.DataType] | None, present: BoolArray | None
) -> dict[str, pa.Array]:
    found = {}
    for name, field in schema.fields:
        column = _read(cursors, field, present, is_wanted=wanted is None or name in wanted)
        if column is not None:
            found[name] = column
    return found


def _read(cursors: Cursors, kind: AvroType, present: BoolArray | None, *, is_wanted: bool) -> pa.Array | None:
    """Read a field; None if it is not wanted."""
    if kind.null_branch is not None:
        present = cursors.branches(kind.null_branch, present)
        if present.all():
            present = None
    if kind.kind == "record":
        children = _fields(cursors, kind, None if is_wanted else {}, present)
        if not is_wanted:
            return None
        mask = None if present is None else pa.array(~present)
        return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=mask)
    if kind.kind in ("string", "bytes"):
        spans = cursors.spans(present)
        return _texts(cursors, spans, kind, present) if is_wanted else None
    values = cursors.numbers(present) if kind.kind in ("int", "long") else cursors.fixed(kind.kind, present)
    if not is_wanted:
        return None
    if kind.kind == "boolean":
        return pa.array(values, mask=None if present is None else ~present)
    if kind.arrow.bit_width == 32 and kind.kind == "int":
        narrow = values.astype(np.int32)
        is_large = narrow != values
        cursors.refuse(is_large if present is None else is_large & present, "an int of more than 32 bits")
        values = narrow
    bitmap = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind.arrow, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def _texts(
    cursors: Cursors, spans: tuple[IndexArray, IndexArray], kind: AvroType, present: BoolArray | None
) -> pa.Array:
    found = cursors.binaries(spans)
    if present is not None:
        buffers = found.buffers()
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
        found = pa.Array.from_buffers(pa.binary(), len(found), [bitmap, *buffers[1:]], offset=found.offset)
    return _of_stored(found, kind)


def _of_stored(stored: pa.Array, kind: AvroType) -> pa.Array:
    """A column of numbers and bytes, as they are stored, as its own type. Raises: MismatchError."""
    if kind.kind == "record":
        children = [
            _of_stored(part, each) for part, (_, each) in zip(stored.flatten(), kind.fields, strict=True)
        ]  # fmt: skip
        return pa.StructArray.from_arrays(children, names=list(kind.names), mask=stored.is_null())
    if kind.kind == "array":
        assert kind.item is not None
        return pa.ListArray.from_arrays(_offsets(stored), _of_stored(stored.flatten(), kind.item), type=kind.arrow)
    if kind.kind == "map":
        assert kind.item is not None
        entries = stored.cast(_entries_type(stored.type))
        keys, items = entries.flatten().flatten()
        return pa.MapArray.from_arrays(_offsets(entries), keys, _of_stored(items, kind.item), type=kind.arrow)
    try:
        if pa.types.is_decimal(kind.arrow):
            return decimals_of_bytes(stored, scale=kind.arrow.scale, data_type=kind.arrow)
        return stored.view(kind.arrow) if pa.types.is_temporal(kind.arrow) else stored.cast(kind.arrow)
    except (pa.ArrowInvalid, InvalidInputError) as error:
        raise MismatchError(0, str(error)) from error


def _stored_type(kind: AvroType) -> pa.DataType:
    if kind.kind == "record":
        return pa.struct([pa.field(name, _stored_type(each)) for name, each in kind.fields])
    if kind.item is not None:
        item = _stored_type(kind.item)
        return pa.list_(item) if kind.kind == "array" else pa.map_(pa.string(), item)
    if pa.types.is_decimal(kind.arrow):
        return pa.binary()
    if pa.types.is_temporal(kind.arrow):
        return pa.int32() if kind.arrow.bit_width == 32 else pa.int64()
    return kind.arrow


def _entries_type(map_type: pa.MapType) -> pa.ListType:
    return pa.list_(pa.struct([map_type.key_field, map_type.item_field]))


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Offsets into ``lists.flatten()``, null for a list that is null."""
    counts = np.asarray(lists.value_lengths().fill_null(0), np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    is_null = np.append(~flags(lists.is_valid()), False)
    return pa.array(offsets.astype(np.int32), mask=is_null)


@lru_cache(maxsize=256)
def _fastavro_schemas(text: str) -> tuple[Any, Any]:
    plain = without_logical_types(json.loads(text))
    return fastavro.parse_schema(plain), fastavro.parse_schema({"type": "array", "items": plain})
