"""The bytes under string and binary columns, as NumPy arrays and back: for what Arrow has no kernel for."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.errors import InvalidInputError

_DECIMAL_BYTES: Final = 16


def value_bytes(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """What a string or binary column stores.

    Returns:
        (n + 1,) int64 offsets from 0, and exactly the uint8 bytes they cover; a null covers no bytes. The bytes are not to be written.
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
    data_type: pa.DataType, offsets: np.ndarray, data: np.ndarray, *, nulls_of: pa.Array | None = None
) -> pa.Array:
    """String or binary column over the given bytes: the inverse of :func:`value_bytes`, with the nulls of another column."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(data_type, len(offsets) - 1, buffers)
    if nulls_of is None or nulls_of.null_count == 0:
        return array
    return pc.if_else(nulls_of.is_valid(), array, pa.scalar(None, data_type))


def texts_between(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Binary column of the bytes from each start to its end; spans ascend and do not overlap."""
    boundaries = np.append(np.column_stack([starts, ends]).ravel(), data.size).astype(
        np.int32
    )  # every second value is a gap
    spans = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(boundaries), pa.py_buffer(data)])
    return pc.take(spans, pa.array(np.arange(0, 2 * len(starts), 2)))


def decimals_of_bytes(values: pa.Array, scale: int) -> pa.Array:
    """Decimals from their unscaled numbers in two's complement, big-endian, as short as each number allows (Java's BigInteger).

    Args:
        values: binary, at most 16 bytes each, nulls stay null.
        scale: digits after the point.

    Returns:
        decimal128(38, scale) array.

    Raises:
        InvalidInputError: a value is empty, or longer than 16 bytes.
    """
    offsets, data = value_bytes(values)
    lengths = np.diff(offsets)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    if np.any(lengths > _DECIMAL_BYTES) or np.any(lengths[is_valid] == 0):
        raise InvalidInputError(
            f"an unscaled decimal has 1 to 16 bytes: longest={lengths.max()} shortest={lengths[is_valid].min()}"
        )
    little_endian = np.zeros((len(values), _DECIMAL_BYTES), np.uint8)
    is_negative = is_valid.copy()
    is_negative[is_valid] = data[offsets[:-1][is_valid]] >= 0x80
    little_endian[is_negative] = 0xFF
    rows = np.repeat(np.arange(len(values)), lengths)
    little_endian[rows, np.repeat(offsets[1:], lengths) - 1 - np.arange(data.size)] = data
    buffers = [None, pa.py_buffer(little_endian)]
    decimals = pa.Array.from_buffers(pa.decimal128(38, scale), len(values), buffers)
    decimals.validate(full=True)
    return (
        decimals if values.null_count == 0 else pc.if_else(values.is_valid(), decimals, pa.scalar(None, decimals.type))
    )


def running_sum(counts: np.ndarray) -> np.ndarray:
    """(n + 1,) int64: where each of n neighbours of these sizes starts, and where the last one ends."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
