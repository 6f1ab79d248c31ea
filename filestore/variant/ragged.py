"""Arrays of byte strings and lists as flat NumPy arrays with offsets."""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.errors import CorruptDataError
from lsm.keys.words import IndexArray

Bytes: TypeAlias = NDArray[np.uint8]

_MOST_BYTES = 4  # of a number in a container


def malformed(reason: str) -> CorruptDataError:
    """The error for malformed stored values."""
    return CorruptDataError(f"a VARIANT is malformed: reason='{reason}'")


def starts_of(counts: IndexArray) -> IndexArray:
    """(n + 1,) where each of n lists begins, and where the last one ends."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def places_from(starts: IndexArray, counts: IndexArray, steps: IndexArray | int = 1) -> IndexArray:
    """For each of n lists the ``counts`` positions from its start on, ``steps`` apart, one list after the other."""
    begins = starts_of(counts)
    found: IndexArray = np.arange(begins[-1], dtype=np.int64) - np.repeat(begins[:-1], counts)
    found *= steps if isinstance(steps, int) else np.repeat(steps, counts)
    found += np.repeat(starts, counts)
    return found


def flat_bytes(values: pa.Array) -> tuple[Bytes, IndexArray]:
    """The bytes of an array of byte strings, and the n + 1 offsets in them; a null is an empty one."""
    if not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    large = values.cast(pa.large_binary())
    offsets: IndexArray = np.frombuffer(large.buffers()[1], np.int64, len(large) + 1, large.offset * 8)
    data = large.buffers()[2]
    return np.frombuffer(b"" if data is None else data, np.uint8), offsets


def byte_strings(data: Bytes, offsets: IndexArray) -> pa.Array:
    """(n,) byte strings of flat bytes and n + 1 offsets."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def cut_out(data: Bytes, starts: IndexArray, ends: IndexArray) -> pa.Array:
    """(n,) byte strings from anywhere in flat bytes. Raises: CorruptDataError: one is not inside."""
    if len(starts) and (starts.min() < 0 or ends.max() > len(data) or (ends < starts).any()):
        raise malformed("a part is outside of its value")
    lengths = ends - starts
    return byte_strings(data[places_from(starts, lengths)], starts_of(lengths))


def numbers_at(data: Bytes, places: IndexArray, widths: IndexArray) -> IndexArray:
    """(n,) unsigned numbers of 1 to 4 bytes, lowest byte first. Raises: CorruptDataError: one is not inside."""
    if len(places) and (places.min() < 0 or (places + widths).max() > len(data)):
        raise malformed("it ends too early")
    found = np.zeros(len(places), np.int64)
    for index in range(_MOST_BYTES):
        inside = widths > index
        found[inside] |= data[places[inside] + index].astype(np.int64) << (8 * index)
    return found


def number_bytes(numbers: IndexArray, widths: IndexArray) -> Bytes:
    """Flat: the lowest 1 to 8 bytes of each number, lowest byte first."""
    every = np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8).reshape(-1, 8)
    return every[np.arange(8) < widths[:, None]]


def width_of(numbers: IndexArray) -> IndexArray:
    """(n,) how many of 1 to 4 bytes hold each number."""
    return 1 + (numbers > 0xFF).astype(np.int64) + (numbers > 0xFFFF) + (numbers > 0xFFFFFF)
