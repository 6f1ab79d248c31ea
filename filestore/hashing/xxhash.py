"""The 64-bit hashes of bloom filters in file indexes, for whole columns at once.

Strings and bytes are hashed by XXH64 with seed 0, numbers and times by Thomas Wang's 64-bit integer hash.
Source: Paimon specification, "File index", BloomFilter; github.com/Cyan4973/xxHash, xxhash_spec.md.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.types.data_types import BYTES_ROOTS, INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType

Hashes = npt.NDArray[np.uint64]

_FLOATS: Final = {"FLOAT": (np.float32, np.int32), "DOUBLE": (np.float64, np.int64)}
_NUMBERS: Final = INTEGER_ROOTS | TIMESTAMP_ROOTS | {"DATE", "TIME"} | _FLOATS.keys()

_PRIME1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3: Final = np.uint64(0x165667B19E3779F9)
_PRIME4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5: Final = np.uint64(0x27D4EB2F165667C5)
_STRIPE: Final = 32
_SEEDS: Final = (  # of the four lanes, for seed 0
    np.uint64((int(_PRIME1) + int(_PRIME2)) % 2**64),
    _PRIME2,
    np.uint64(0),
    np.uint64(-int(_PRIME1) % 2**64),
)


def has_hash(data_type: DataType) -> bool:
    """Whether values of a type can be in a bloom filter."""
    return data_type.root in _NUMBERS or data_type.root in TEXT_ROOTS or data_type.root in BYTES_ROOTS


def column_hashes(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> Hashes:
    """The hash of every non-null value of a column, in row order.

    Args:
        column: (n,) values of the type's Arrow type.
        data_type: a type that satisfies ``has_hash``.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    hashes = [_hashes(chunk.drop_null(), data_type) for chunk in chunks]
    return np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)


def _hashes(values: pa.Array, data_type: DataType) -> Hashes:
    if data_type.root in _NUMBERS:
        return wang(_numbers(values, data_type))
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.large_binary())
    return xxh64(values.cast(pa.large_binary()))


def _numbers(values: pa.Array, data_type: DataType) -> npt.NDArray[np.int64]:
    """Values as 64-bit integers for hashing: times in milli- or microseconds, floats by their bits."""
    if data_type.root in _FLOATS:
        floats, bits = _FLOATS[data_type.root]
        numbers = np.array(values.to_numpy(zero_copy_only=False), dtype=floats)
        numbers[np.isnan(numbers)] = np.nan  # canonical NaN
        return numbers.view(bits).astype(np.int64)
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        nanos: npt.NDArray[np.int64] = values.view(pa.int64()).to_numpy(zero_copy_only=False)
        return nanos // np.int64(1000)
    width = 64 if values.type.bit_width == 64 else 32
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int64() if width == 64 else pa.int32())
    return np.asarray(pc.cast(values, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def wang(numbers: npt.NDArray[np.int64]) -> Hashes:
    """Thomas Wang's hash of (n,) numbers; overflow wraps, shifts to the right keep the sign."""
    key = ~numbers + (numbers << 21)
    key ^= key >> 24
    key = key + (key << 3) + (key << 8)
    key ^= key >> 14
    key = key + (key << 2) + (key << 4)
    key ^= key >> 28
    key = key + (key << 31)
    hashes: Hashes = key.view(np.uint64)
    return hashes


def xxh64(values: pa.LargeBinaryArray) -> Hashes:
    """XXH64 with seed 0 of (n,) byte strings without nulls: loops over the length, all rows at once."""
    count = len(values)
    if not count:
        return np.zeros(0, np.uint64)
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1, values.offset * 8)
    start, lengths = offsets[:-1].copy(), np.diff(offsets)
    data = b"" if data_buffer is None else data_buffer
    hashes = _stripes(data, start, lengths) + lengths.astype(np.uint64)
    place = start + lengths // _STRIPE * _STRIPE
    left = lengths % _STRIPE
    while (rows := np.flatnonzero(left >= 8)).size:
        words = _words(data, "<u8", place[rows])
        hashes[rows] = _rotated(hashes[rows] ^ _round(np.zeros_like(words), words), 27) * _PRIME1 + _PRIME4
        place[rows] += 8
        left[rows] -= 8
    rows = np.flatnonzero(left >= 4)
    words = _words(data, "<u4", place[rows])
    hashes[rows] = _rotated(hashes[rows] ^ (words * _PRIME1), 23) * _PRIME2 + _PRIME3
    place[rows] += 4
    left[rows] -= 4
    while (rows := np.flatnonzero(left)).size:
        words = _words(data, "u1", place[rows])
        hashes[rows] = _rotated(hashes[rows] ^ (words * _PRIME5), 11) * _PRIME1
        place[rows] += 1
        left[rows] -= 1
    hashes ^= hashes >> np.uint64(33)
    hashes *= _PRIME2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _PRIME3
    return hashes ^ (hashes >> np.uint64(32))


def _stripes(data: pa.Buffer | bytes, start: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    """The state after the full 32-byte stripes of every value; a constant for values without any."""
    mixed = np.full(len(lengths), _PRIME5)
    long = np.flatnonzero(lengths >= _STRIPE)
    long = long[np.argsort(-lengths[long], kind="stable")]  # most stripes first: each step processes a prefix
    counts, place = lengths[long] // _STRIPE, start[long].copy()
    lanes = [np.full(len(long), seed) for seed in _SEEDS]
    for step in range(int(counts[0]) if len(long) else 0):
        active = int(np.searchsorted(-counts, -step, side="left"))
        for index, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], _words(data, "<u8", place[:active] + 8 * index))
        place[:active] += _STRIPE
    joined = np.zeros(len(long), np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        joined += _rotated(lane, bits)
    for lane in lanes:
        joined = (joined ^ _round(np.zeros_like(lane), lane)) * _PRIME1 + _PRIME4
    mixed[long] = joined
    return mixed


def _round(lane: Hashes, words: Hashes) -> Hashes:
    return _rotated(lane + words * _PRIME2, 31) * _PRIME1


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _words(data: pa.Buffer | bytes, kind: str, places: npt.NDArray[np.int64]) -> Hashes:
    """The little-endian numbers at arbitrary offsets of a buffer, which must contain them."""
    size = np.dtype(kind).itemsize
    if not places.size:
        return np.zeros(0, np.uint64)
    windows: npt.NDArray[Any] = np.ndarray((len(memoryview(data)) - size + 1,), kind, data, strides=(1,))
    return windows[places].astype(np.uint64)
