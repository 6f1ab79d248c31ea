"""A 128-bit hash of every row, computed on columns, which identifies rows without a primary key.

A row's hash consists of two sums modulo 2**64 of mixed words: each value gives words, and each word is mixed with
its location (field id, position in a list, position in a string). Null gives none, so adding a column does not change
the hash of existing rows. Equal rows have equal hashes: null equals null, all NaNs are
equal, -0.0 is not 0.0, and maps are equal when their entries are equal in order. Different rows among n collide with a
probability of about n**2 / 2**129: 10**-18 among 10**10 rows. The hash is not cryptographic: collisions can be
constructed. It is part of the format and must never change; see FORMAT.md.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.types.data_types import DataField, DataType

HashWords = npt.NDArray[np.uint64]
Lanes = tuple[HashWords, HashWords]
"""Two times 64 bits for each of (n,) values; null values have zeros."""

_CHUNK_ROWS: Final = 32_768  # their words fit the L2 cache
_BITS: Final = (1 << 64) - 1
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_LANE: Final = 0xD1B54A32D192ED03
_LENGTH: Final = 1  # locations other than field ids
_ELEMENTS: Final = 2
_KEYS: Final = 3
_PRESENT: Final = 4
_FIRST_FIELD: Final = 16
_WORD_BYTES: Final = 8
# _LEADING[k] keeps the first k bytes of a little-endian word.
_LEADING: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD_BYTES + 1)], np.uint64)
_NAN: Final = np.uint64(0x7FF8_0000_0000_0000)


def row_hashes(columns: Sequence[pa.Array], fields: Sequence[DataField]) -> tuple[pa.Array, pa.Array]:
    """The two 64-bit halves of the hash of every row.

    Args:
        columns: (n,) each, of the Arrow types of the fields.
        fields: fields of the columns, hashed by id; their order does not matter.

    Returns:
        Two arrays of (n,) int64 without nulls.
    """
    count = len(columns[0])
    found = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for start in range(0, count, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, count)
        sums = np.zeros(stop - start, np.uint64), np.zeros(stop - start, np.uint64)
        for column, field in zip(columns, fields, strict=True):
            lanes = _hashed(column.slice(start, stop - start), field.type, _inside(0, _FIRST_FIELD + field.id))
            for total, lane in zip(sums, lanes, strict=True):
                total += lane
        for half, total, mix in zip(found, sums, _MIXES, strict=True):
            half[start:stop] = mix(total)
    return pa.array(found[0].view(np.int64)), pa.array(found[1].view(np.int64))


def _hashed(array: pa.Array, data_type: DataType | None, place: int) -> Lanes:
    kind = array.type
    if len(array) == 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    if pa.types.is_struct(kind):
        found = _struct(array, data_type, place)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        found = _list(array, data_type, place)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _text(array, place)
    elif pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        found = _text(array.cast(pa.binary()), place)
    elif pa.types.is_decimal(kind):
        halves = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 2)[array.offset : array.offset + len(array)]
        found = _added(_at(halves[:, 0].copy(), place, 0), _at(halves[:, 1].copy(), place, 1))
    else:
        found = _at(_word(array), place, 0)
    if array.null_count:
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        for lane in found:
            lane[is_null] = 0
    return found


def _word(array: pa.Array) -> HashWords:
    """(n,) fixed-width values as one word each; undefined for nulls."""
    kind = array.type
    if pa.types.is_boolean(kind):
        truths: HashWords = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
        return truths
    if pa.types.is_floating(kind):
        doubles = _numbers(array, np.float32 if kind.bit_width == 32 else np.float64).astype(np.float64)
        bits = doubles.view(np.uint64)
        bits[np.isnan(doubles)] = _NAN
        return bits
    numbers: HashWords = _numbers(array, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64).view(np.uint64)
    return numbers


def _numbers(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _text(array: pa.Array, place: int) -> Lanes:
    """Strings and binaries, eight bytes per word."""
    count = len(array)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    sizes = np.diff(offsets)
    lengths = sizes.view(np.uint64)
    found = _at(lengths.copy(), _inside(place, _LENGTH), 0)
    word_counts = (sizes + _WORD_BYTES - 1) // _WORD_BYTES
    owners = np.repeat(np.arange(count), word_counts)
    if len(owners) == 0:
        return found
    index = _counted_up(word_counts)
    first, span = int(offsets[0]), int(offsets[-1] - offsets[0])
    padded = np.zeros(span + _WORD_BYTES, np.uint8)
    padded[:span] = np.frombuffer(data, np.uint8)[first : first + span]
    anywhere: HashWords = np.ndarray((span + 1,), np.uint64, padded.data, 0, (1,))  # a word at any byte offset
    words = anywhere[offsets[:-1][owners] - first + _WORD_BYTES * index]
    words &= _LEADING[np.minimum(sizes[owners] - _WORD_BYTES * index, _WORD_BYTES)]
    return _added(found, _summed(_at(words, place, index), word_counts))


def _list(array: pa.Array, data_type: DataType | None, place: int) -> Lanes:
    """Lists and maps: elements mixed with their positions."""
    lengths = _lengths(array)
    found = _at(lengths.view(np.uint64).copy(), _inside(place, _LENGTH), 0)
    if pa.types.is_map(array.type):
        plain = _present(array)
        parts = (
            _hashed(plain.keys, data_type and (data_type.key or data_type.element), _inside(place, _KEYS)),
            _hashed(plain.items, data_type and data_type.value, _inside(place, _ELEMENTS)),
        )
        elements = _added(*parts)
    else:
        elements = _hashed(array.flatten(), data_type and data_type.element, _inside(place, _ELEMENTS))
    if len(elements[0]) == 0:
        return found
    return _added(found, _summed(_mixed(elements, place, _counted_up(lengths)), lengths))


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """(n,) lengths of lists or maps; 0 for null."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _present(maps: pa.Array) -> pa.Array:
    """Compacted maps: keys and items start at the first map, and none belongs to a null."""
    return maps.take(pa.array(np.arange(len(maps))))


def _struct(array: pa.Array, data_type: DataType | None, place: int) -> Lanes:
    """Nested rows: fields are located by id; one word encodes that the row is not null."""
    found = _at(np.zeros(len(array), np.uint64), _inside(place, _PRESENT), 0)
    for number, child in enumerate(array.flatten()):
        field = data_type.fields[number] if data_type is not None and data_type.fields else None
        inner = _inside(place, _FIRST_FIELD + (number if field is None else field.id))
        found = _added(found, _hashed(child, None if field is None else field.type, inner))
    return found


def _summed(lanes: Lanes, counts: npt.NDArray[np.int64]) -> Lanes:
    """Sums of consecutive words: (k,) for k counts."""
    some = counts > 0
    firsts = (np.cumsum(counts) - counts)[some]
    found = np.zeros(len(counts), np.uint64), np.zeros(len(counts), np.uint64)
    for total, lane in zip(found, lanes, strict=True):
        total[some] = np.add.reduceat(lane, firsts)
    return found


def _counted_up(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, ... for each count, concatenated."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _added(one: Lanes, other: Lanes) -> Lanes:
    for total, lane in zip(one, other, strict=True):
        total += lane
    return one


def _at(words: HashWords, place: int, index: int | npt.NDArray[np.int64]) -> Lanes:
    """Words mixed with their location. Consumes the array."""
    return _mixed((words, words.copy()), place, index)


def _mixed(lanes: Lanes, place: int, index: int | npt.NDArray[np.int64]) -> Lanes:
    """Lanes mixed with their location. Consumes the lanes."""
    first, second = lanes
    first ^= _key(place, index)
    second += _key(place ^ _LANE, index)
    return _mix_first(first), _mix_second(second)


def _key(place: int, index: int | npt.NDArray[np.int64]) -> HashWords | np.uint64:
    if isinstance(index, int):
        return np.uint64(_inside(place, index))
    return _mix_first(index.astype(np.uint64) * _STEP + np.uint64(place))


def _inside(place: int, number: int) -> int:
    """The location of item `number` within a location."""
    mixed = (place + (number + 1) * int(_STEP)) & _BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
    return mixed ^ (mixed >> 31)


def _mix_first(words: HashWords) -> HashWords:
    """In place. Source: SplitMix64 (Stafford's Mix13)."""
    return _mix(words, (30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31))


def _mix_second(words: HashWords) -> HashWords:
    """In place. Source: MurmurHash3's 64-bit finalizer."""
    return _mix(words, (33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33))


def _mix(words: HashWords, steps: tuple[int, int, int, int, int]) -> HashWords:
    shift, factor, shift_again, factor_again, last = steps
    words ^= words >> np.uint64(shift)
    words *= np.uint64(factor)
    words ^= words >> np.uint64(shift_again)
    words *= np.uint64(factor_again)
    words ^= words >> np.uint64(last)
    return words


_MIXES: Final = (_mix_first, _mix_second)
