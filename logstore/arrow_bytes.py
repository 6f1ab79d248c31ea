"""The bytes under string and binary columns, as NumPy arrays and back: for what Arrow has no kernel for."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


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


def array_of_bytes(data_type: pa.DataType, offsets: np.ndarray, data: np.ndarray, *, nulls_of: pa.Array | None = None) -> pa.Array:
    """String or binary column over the given bytes: the inverse of :func:`value_bytes`, with the nulls of another column."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(data_type, len(offsets) - 1, buffers)
    if nulls_of is None or nulls_of.null_count == 0:
        return array
    return pc.if_else(nulls_of.is_valid(), array, pa.scalar(None, data_type))


def running_sum(counts: np.ndarray) -> np.ndarray:
    """(n + 1,) int64: where each of n neighbours of these sizes starts, and where the last one ends."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums
