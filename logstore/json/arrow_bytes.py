"""Conversions between Arrow columns and NumPy arrays: the bytes of strings and decimals, and masks."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray

ByteArray = NDArray[np.uint8]

_DECIMAL_BYTES: Final = 16


def flags(mask: pa.BooleanArray) -> BoolArray:
    """(n,) bool mask; null is false."""
    return np.asarray(mask.fill_null(False) if mask.null_count else mask, bool)


def as_binary(values: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """Strings and binaries of any layout as one binary array, without a copy if it already is one."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values.cast(pa.binary())


def gathered(batches: Sequence[pa.RecordBatch], order: IndexArray) -> pa.RecordBatch:
    """Rows of several batches of one schema, by their index in the concatenation."""
    indices = pa.array(order)
    columns = [pa.concat_arrays(columns).take(indices) for columns in zip(*(b.columns for b in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def rows_where(array: pa.Array, is_wanted: BoolArray) -> pa.Array:
    """The wanted rows, without a copy if these are all rows."""
    return array if is_wanted.all() else array.filter(pa.array(is_wanted))


def value_bytes(array: pa.Array) -> tuple[IndexArray, ByteArray]:
    """The offsets and bytes of a string or binary column.

    Returns:
        (n + 1,) offsets from 0, and exactly the bytes they cover (read-only); a null covers no bytes.
    """
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(b"" if pa.types.is_binary(array.type) else "", array.type))
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or offset_buffer is None:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    return offsets - first, data


def array_of_bytes(
    data_type: pa.DataType, offsets: IndexArray, data: ByteArray, *, nulls_of: pa.Array | None = None
) -> pa.Array:
    """Inverse of :func:`value_bytes`: a string or binary column, with the nulls of another column."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(data_type, len(offsets) - 1, buffers)
    if nulls_of is None or nulls_of.null_count == 0:
        return array
    return pc.if_else(nulls_of.is_valid(), array, pa.scalar(None, data_type))


def texts_between(data: ByteArray, starts: IndexArray, ends: IndexArray) -> pa.Array:
    """Binary column of the bytes from each start to its end; spans must ascend and not overlap."""
    boundaries = np.append(np.column_stack([starts, ends]).ravel(), data.size).astype(
        np.int32
    )  # every second value is a gap
    spans = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(boundaries), pa.py_buffer(data)])
    return pc.take(spans, pa.array(np.arange(0, 2 * len(starts), 2)))


def decimals_of_bytes(values: pa.Array, *, scale: int, data_type: pa.Decimal128Type) -> pa.Array:
    """Decimals from their unscaled values in minimal big-endian two's complement.

    Args:
        values: binary, at most 16 bytes each; nulls stay null.
        scale: scale of the unscaled values.
        data_type: type of the result; its scale may differ.

    Raises:
        InvalidInputError: a value is empty or longer than 16 bytes, or does not fit the type exactly.

    Source: Java ``BigInteger.toByteArray``, which Kafka Connect's Decimal uses.
    """
    offsets, data = value_bytes(values)
    lengths = np.diff(offsets)
    is_valid = flags(values.is_valid())
    if np.any(lengths > _DECIMAL_BYTES) or np.any(lengths[is_valid] == 0):
        raise InvalidInputError("an unscaled decimal has 1 to 16 bytes")
    little_endian = np.zeros((len(values), _DECIMAL_BYTES), np.uint8)
    is_negative = is_valid.copy()
    is_negative[is_valid] = data[offsets[:-1][is_valid]] >= 0x80
    little_endian[is_negative] = 0xFF
    rows = np.repeat(np.arange(len(values)), lengths)
    little_endian[rows, np.repeat(offsets[1:], lengths) - 1 - np.arange(data.size)] = data
    if scale == data_type.scale:
        return _decimals(little_endian, data_type, nulls_of=values)
    unscaled = _decimals(little_endian, pa.decimal128(38, 0), nulls_of=values)
    moved = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), unscaled.buffers(), offset=unscaled.offset)
    return narrowed_decimals(moved.cast(pa.decimal256(76, data_type.scale)), data_type)


def narrowed_decimals(decimals: pa.Array, data_type: pa.Decimal128Type) -> pa.Array:
    """Decimals of 256 bits as decimals of 128 bits.

    Raises:
        InvalidInputError: a value does not fit the type.
    """
    first_word = 4 * decimals.offset
    words = np.frombuffer(decimals.buffers()[1], np.int64)[first_word : first_word + 4 * len(decimals)].reshape(-1, 4)
    sign = words[:, 1] >> 63
    fits = (words[:, 2] == sign) & (words[:, 3] == sign)
    if not fits[flags(decimals.is_valid())].all():
        raise InvalidInputError(f"a decimal has more digits than its column: type={data_type}")
    return _decimals(np.ascontiguousarray(words[:, :2]), data_type, nulls_of=decimals)


def _decimals(little_endian: NDArray[Any], data_type: pa.Decimal128Type, *, nulls_of: pa.Array) -> pa.Array:
    decimals = pa.Array.from_buffers(data_type, len(nulls_of), [None, pa.py_buffer(little_endian)])
    if nulls_of.null_count:
        decimals = pc.if_else(nulls_of.is_valid(), decimals, pa.scalar(None, data_type))
    try:
        decimals.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a decimal has more digits than its column: type={data_type}") from error
    return decimals


def running_sum(counts: IndexArray) -> IndexArray:
    """(n + 1,) offsets of n adjacent spans of these sizes: each start, then the end of the last."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
