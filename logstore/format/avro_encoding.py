"""Rows as Avro records, a column at a time.

A record is a row of pieces. Narrow pieces (numbers, lengths, branches of unions) of neighbouring columns lie in one
matrix of bytes with a mask of those that count; wide ones (texts, bytes, items) are binary columns. A matrix becomes a
binary column by one masked copy, and Arrow joins the columns, row by row, in one pass.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logstore.format.avro_schema import AvroType
from logstore.json.arrow_bytes import ByteArray, array_of_bytes, flags, running_sum, value_bytes
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray
from lsm.varints import bit_lengths, varint_bytes

_CHUNK_ROWS: Final = 8192  # pieces stay in the CPU's cache
_CHUNK_BYTES: Final = 64 << 20
_DECIMAL_BYTES: Final = 16


class Narrow(NamedTuple):
    """A few bytes in every row."""

    data: ByteArray  # (n, w)
    kept: BoolArray  # (n, w) which count
    lengths: NDArray[Any]  # (n,) how many

    def slice(self, start: int, end: int) -> "Narrow":
        """Some rows."""
        return Narrow(self.data[start:end], self.kept[start:end], self.lengths[start:end])


_Piece = Any  # Narrow, or a binary column


def encode_records(
    rows: pa.RecordBatch, schema: AvroType, *, heads: Sequence[Narrow], tails: Sequence[Narrow] = ()
) -> pa.BinaryArray:
    """Encode rows.

    Args:
        rows: (n,) columns with the names of the schema's fields; a column that is missing is null.
        schema: a record.
        heads: pieces before each record.
        tails: pieces behind it.

    Raises:
        InvalidInputError: null in a field that is never null. Names the column.
    """
    count = rows.num_rows
    step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * max(count, 1) // max(rows.nbytes, 1)))
    chunks = []
    for start in range(0, count, step):
        piece = rows.slice(start, step)
        end = start + piece.num_rows
        before, behind = ([each.slice(start, end) for each in parts] for parts in (heads, tails))
        chunks.append(_joined([*before, *_fields(piece, schema, None), *behind], piece.num_rows))
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary())


def repeated_bytes(data: bytes, count: int) -> Narrow:
    """A piece of the same bytes in every row."""
    row = np.frombuffer(data, np.uint8)
    shape = (count, len(row))
    return Narrow(np.broadcast_to(row, shape), np.broadcast_to(np.True_, shape), np.broadcast_to(len(row), count))


def _fields(rows: pa.RecordBatch, schema: AvroType, present: BoolArray | None) -> Iterator[_Piece]:
    for name, field in schema.fields:
        index = rows.schema.get_field_index(name)
        column = rows.column(index) if index >= 0 else pa.nulls(rows.num_rows, field.arrow)
        yield from _pieces(column, field, present, name)


def _pieces(column: pa.Array, kind: AvroType, present: BoolArray | None, name: str) -> Iterator[_Piece]:
    """The pieces of a column; a row that is not present has no bytes."""
    valid = None
    if column.null_count:
        valid = flags(column.is_valid())
        if kind.null_branch is None and not (valid if present is None else valid | ~present).all():
            raise InvalidInputError(f"null in a column that is never null: column={name}")
        valid = valid if present is None else valid & present
    else:
        valid = present
    if kind.null_branch is not None:
        is_null = np.zeros(len(column), bool) if valid is None else ~valid
        branches = np.where(is_null, np.uint8(2 * kind.null_branch), np.uint8(2 - 2 * kind.null_branch))
        yield _fixed(branches[:, None], present)
    yield from _values(column, kind, valid, name)


def _values(column: pa.Array, kind: AvroType, valid: BoolArray | None, name: str) -> Iterator[_Piece]:
    if kind.kind == "record":
        children = pa.RecordBatch.from_arrays(column.flatten(), names=[each.name for each in column.type])
        yield from _fields(children, kind, valid)
    elif kind.kind in ("array", "map"):
        yield from _blocks(column, kind, valid, name)
    elif pa.types.is_decimal(kind.arrow):
        yield from _decimals(column.cast(kind.arrow), valid)
    elif kind.kind in ("string", "bytes"):
        yield from _texts(column.cast(pa.binary()), valid)
    elif kind.kind == "boolean":
        yield _fixed(flags(column).astype(np.uint8)[:, None], valid)
    elif kind.kind in ("int", "long"):
        yield _varints(_integers(column, kind), valid)
    else:
        values = np.asarray(column.fill_null(0) if column.null_count else column)
        little = np.ascontiguousarray(values, "<f8" if kind.kind == "double" else "<f4")
        yield _fixed(little.view(np.uint8).reshape(len(column), little.itemsize), valid)


def _blocks(column: pa.Array, kind: AvroType, valid: BoolArray | None, name: str) -> Iterator[_Piece]:
    """An array or a map: one block of all items, and a block of none at the end."""
    assert kind.item is not None
    count = len(column)
    kept = column if valid is None else column.filter(pa.array(valid))
    counts = np.zeros(count, np.int64)
    counts[slice(None) if valid is None else valid] = np.asarray(pc.list_value_length(_entries(kept)), np.int64)
    if counts.any():
        items = _entries(kept).flatten()
        inner = []
        if kind.kind == "map":
            keys, items = items.flatten()
            inner = [*_texts(keys.cast(pa.binary()), None)]
        offsets, data = value_bytes(_joined([*inner, *_pieces(items, kind.item, None, name)], len(items)))
        yield _varints(counts, counts > 0)
        yield array_of_bytes(pa.binary(), offsets[running_sum(counts)], data)
    yield _fixed(np.zeros((count, 1), np.uint8), valid)


def _entries(column: pa.Array) -> pa.ListArray:
    """A list; a map as the list of its keys and values."""
    if pa.types.is_list(column.type):
        return column
    return column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))


def _texts(column: pa.BinaryArray, valid: BoolArray | None) -> Iterator[_Piece]:
    if valid is not None:
        column = pc.if_else(pa.array(valid), column, pa.scalar(b"", pa.binary()))
    yield _varints(np.asarray(pc.binary_length(column), np.int64), valid)
    yield column


def _decimals(column: pa.Array, valid: BoolArray | None) -> Iterator[_Piece]:
    """The unscaled values in minimal big-endian two's complement."""
    count = len(column)
    low_high = np.frombuffer(column.buffers()[1], "<i8")[2 * column.offset : 2 * (column.offset + count)]
    low, high = low_high.reshape(-1, 2).T
    sign = high >> 63
    in_high, in_low = bit_lengths((high ^ sign).view(np.uint64)), bit_lengths((low ^ sign).view(np.uint64))
    lengths = np.where(in_high > 0, in_high + 64, in_low) // 8 + 1
    data = np.ascontiguousarray(low_high).view(np.uint8).reshape(count, _DECIMAL_BYTES)[:, ::-1]
    yield _varints(lengths, valid)
    lengths = lengths if valid is None else lengths * valid
    yield Narrow(data, np.arange(_DECIMAL_BYTES) >= _DECIMAL_BYTES - lengths[:, None], lengths)


def _integers(column: pa.Array, kind: AvroType) -> NDArray[np.int64]:
    types = pa.types
    if column.type != kind.arrow and types.is_temporal(kind.arrow):
        column = column.cast(kind.arrow)
    if types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return np.asarray(column.fill_null(0) if column.null_count else column).astype(np.int64, copy=False)


def _varints(numbers: NDArray[np.int64], valid: BoolArray | None) -> Narrow:
    data, lengths = varint_bytes(numbers)
    if valid is not None:
        lengths = lengths * valid
    width = int(lengths.max(initial=0))
    return Narrow(data[:, :width], np.arange(width) < lengths[:, None], lengths)


def _fixed(data: ByteArray, valid: BoolArray | None) -> Narrow:
    """All bytes of the valid rows."""
    count, width = data.shape
    if valid is None:
        return Narrow(data, np.broadcast_to(np.True_, data.shape), np.broadcast_to(width, count))
    return Narrow(data, np.broadcast_to(valid[:, None], data.shape), width * valid)


def _joined(pieces: Iterable[_Piece], count: int) -> pa.BinaryArray:
    """The pieces of each row, one behind the other."""
    columns: list[pa.BinaryArray] = []
    narrow: list[Narrow] = []
    for piece in pieces:
        if isinstance(piece, Narrow):
            narrow.append(piece)
        else:
            columns += [_compressed(narrow, count), piece] if narrow else [piece]
            narrow = []
    if narrow or not columns:
        columns.append(_compressed(narrow, count))
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, b"")


def _compressed(pieces: Sequence[Narrow], count: int) -> pa.BinaryArray:
    """Neighbouring narrow pieces as one binary column."""
    width = sum(piece.data.shape[1] for piece in pieces)
    block, kept, lengths = np.empty((count, width), np.uint8), np.empty((count, width), bool), np.zeros(count, np.int64)
    place = 0
    for piece in pieces:
        end = place + piece.data.shape[1]
        block[:, place:end], kept[:, place:end] = piece.data, piece.kept
        lengths += piece.lengths
        place = end
    return array_of_bytes(pa.binary(), running_sum(lengths), block[kept])
