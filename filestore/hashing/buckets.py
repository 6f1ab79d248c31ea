"""The bucket of every row, computed on columns.

The hash is Murmur3 over the little-endian words of the row's BinaryRow bytes. These bytes are never built: each field
gives the words of its slot, and the variable-length part is mixed field by field, so that all rows advance together.
All NaNs are one key, so they have one hash; Java takes their bits as they are.
Source: Paimon DefaultBucketFunction, MurmurHashUtils; for ``mod``, ModBucketFunction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.hashing.murmur import SEED, Longs, Murmur, Words, mix_bytes
from filestore.types.binary_row import INLINE_LIMIT, SLOT_BYTES, bitmap_bytes, variable_bytes
from filestore.types.data_types import BYTES_ROOTS, INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, arrow_type
from lsm.errors import InvalidInputError

Ints = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Rows hashed together: their words fit the L2 cache.
_CHUNK_ROWS: Final = 32_768
# Below this many rows with long texts left, the scalar loop is faster than NumPy calls.
_FEW_ROWS: Final = 12


def bucket_ids(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    bucket_count: int,
    *,
    function: str = "default",
) -> Ints:
    """Bucket of every row.

    Args:
        columns: the bucket key, in the order of the key; equally long, nulls allowed.
        types: types of the columns; INT and BIGINT hash differently.
        bucket_count: 1 or more; fixed for a partition until it is rewritten.
        function: ``default``, or ``mod`` for one INT or BIGINT column without nulls.

    Returns:
        (n,) int32 from 0 to below bucket_count.

    Raises:
        InvalidInputError: invalid count, function or column type.
    """
    if bucket_count < 1:
        raise InvalidInputError(f"bucket count must be 1 or more: bucket={bucket_count}")
    if function == "mod":
        return _modulo(columns, types, bucket_count)
    if function != "default":
        raise InvalidInputError(f"bucket function is not supported: bucket-function.type={function}")
    hashes = key_hashes(columns, types)
    # In place and while cached: allocating memory for every step costs more than the arithmetic.
    for start in range(0, len(hashes), _CHUNK_ROWS):
        part = hashes[start : start + _CHUNK_ROWS]
        # abs(hash % n) with Java's remainder is abs(hash) % n. The least int stays itself: 2**31 when unsigned.
        magnitudes = np.abs(part, out=part).view(np.uint32)
        magnitudes -= magnitudes // np.uint32(bucket_count) * np.uint32(bucket_count)
    return hashes


def key_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> Ints:
    """Signed hash of every row's BinaryRow bytes without the arity prefix: (n,) int32.

    Raises: InvalidInputError for no columns, columns of different lengths, or an unhashable type.
    """
    if not columns or len(columns) != len(types):
        raise InvalidInputError(f"hashing needs a type for each column: columns={len(columns)} types={len(types)}")
    arrays = [_plain(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    row_count = len(arrays[0])
    if any(len(array) != row_count for array in arrays):
        raise InvalidInputError(f"columns differ in length: lengths={[len(array) for array in arrays]}")
    hashes = np.empty(row_count, np.uint32)
    for start in range(0, row_count, _CHUNK_ROWS):
        parts = [array.slice(start, _CHUNK_ROWS) for array in arrays]
        hashes[start : start + _CHUNK_ROWS] = _hash_chunk(parts, types)
    return hashes.view(np.int32)


def one_nan(column: pa.Array) -> pa.Array:
    """A column in which every NaN has the bits of Java's ``Double.NaN``; columns of other types as they are."""
    if not pa.types.is_floating(column.type):
        return column
    found = pc.is_nan(column)
    return pc.if_else(found, pa.scalar(np.nan, column.type), column) if pc.any(found).as_py() else column


@dataclass(frozen=True, slots=True)
class _Texts:
    """Strings or byte strings of a chunk."""

    words: Longs  # all values concatenated, and two words of zeros
    starts: Indices  # in bytes
    lengths: Indices  # in bytes; 0 where null

    def longs(self, rows: Indices | slice, counts: Iterable[int]) -> Iterator[Longs]:
        """The first eight bytes of some rows, then the next eight, and so on; bytes past a value's end are undefined.

        Each yielded array is overwritten by the next.

        Args:
            rows: row indices.
            counts: for each step the number of leading rows still wanted; non-increasing.
        """
        places = self.starts[rows]
        word, shift = places >> 3, (places & 7).view(np.uint64) << np.uint64(3)
        back = np.uint64(63) - shift
        low = self.words.take(word, mode="clip")
        high, long = np.empty_like(low), np.empty_like(low)
        for count in counts:
            word, shift, back, low = word[:count], shift[:count], back[:count], low[:count]
            high, long = high[:count], long[:count]
            # The value starts inside a word: combine its upper bytes with the lower bytes of the next word.
            np.right_shift(low, shift, out=long)
            np.add(word, 1, out=word)
            self.words.take(word, mode="clip", out=high)
            np.left_shift(high, np.uint64(1), out=low)
            np.left_shift(low, back, out=low)
            np.bitwise_or(long, low, out=long)
            yield long
            low, high = high, low


# Keeps the lowest n bytes.
_KEEP_BYTES: Final = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)


def _hash_chunk(arrays: Sequence[pa.Array], types: Sequence[DataType]) -> Words:
    row_count = len(arrays[0])
    nulls = [_nulls(array) for array in arrays]
    bitmap_size = bitmap_bytes(len(types))
    if all(null is None for null in nulls):
        murmur = Murmur(row_count, mix_bytes(SEED, bytes(bitmap_size)))
    else:
        murmur = Murmur(row_count)
        for word in _bitmap(nulls):
            murmur.mix(word)
    fixed_bytes = bitmap_size + SLOT_BYTES * len(types)
    offset: npt.NDArray[np.uint64] | np.uint64 = np.uint64(fixed_bytes)
    variable: list[tuple[Longs, ...] | _Texts] = []
    for array, data_type, null in zip(arrays, types, nulls, strict=True):
        root = data_type.root
        if root in TEXT_ROOTS or root in BYTES_ROOTS:
            texts = _texts(array, null)
            slot, taken = _text_slots(texts, null, offset)
            murmur.mix(slot)
            if taken is not None:
                variable.append(texts)
                offset = offset + taken
        elif variable_bytes(data_type):
            low, longs = _wide_decimals(array, null) if root == "DECIMAL" else _wide_timestamps(array, data_type, null)
            murmur.mix(low | offset << np.uint64(32))
            variable.append(longs)
            offset = offset + np.uint64(variable_bytes(data_type))
        else:
            murmur.mix(_slots(array, data_type, null))
    for body in variable:
        if isinstance(body, _Texts):
            _mix_texts(murmur, body)
        else:
            for long in body:
                murmur.mix(long)
    return murmur.finish(offset)


def _mix_texts(murmur: Murmur, texts: _Texts) -> None:
    """Mix in the variable-length part: values of more than seven bytes, padded to words of eight."""
    rows, steps, rest = _longest_first(texts.lengths)
    states, lengths = murmur.states[rows], texts.lengths[rows]
    for index, (long, still) in enumerate(zip(texts.longs(rows, steps), [*steps, rest][1:], strict=True)):
        long[still:] &= _KEEP_BYTES.take(lengths[still : len(long)] - index * SLOT_BYTES)
        murmur.mix_into(states[: len(long)], long)
    starts, data = texts.starts[rows], texts.words.view(np.uint8)
    for place in range(rest):
        start, length = int(starts[place]), int(lengths[place])
        body = data[start + len(steps) * SLOT_BYTES : start + length].tobytes() + bytes(-length % SLOT_BYTES)
        states[place] = mix_bytes(int(states[place]), body)
    murmur.states[rows] = states


def _longest_first(lengths: Indices) -> tuple[Indices | slice, list[int], int]:
    """Rows with a variable-length part, ordered so that those with a further word always come first.

    Returns:
        The rows; for each word the number of rows that have it, while there are many; the number of rows left.
    """
    rows: Indices | slice = slice(None)
    counts = lengths + (SLOT_BYTES - 1) >> 3
    if len(counts) and lengths.min() <= INLINE_LIMIT:
        rows = np.flatnonzero(lengths > INLINE_LIMIT)
        counts = counts[rows]
    longest = int(counts.max(initial=0))
    if longest != counts.min(initial=longest):
        # NumPy uses radix sort for small integers.
        falling = (longest - counts).astype(np.uint16 if longest <= 0xFFFF else np.int64)
        order = np.argsort(falling, kind="stable")
        rows, counts = order if isinstance(rows, slice) else rows[order], counts[order]
    rising = np.ascontiguousarray(counts[::-1])
    steps: list[int] = []
    while (count := len(rising) - int(np.searchsorted(rising, len(steps), side="right"))) > _FEW_ROWS:
        steps.append(count)
    return rows, steps, count


def _bitmap(nulls: Sequence[Mask | None]) -> Iterator[Longs | np.uint64]:
    """The words of the null bitmap; its first eight bits are the row kind, always 0."""
    for first in range(0, bitmap_bytes(len(nulls)) * 8, 64):
        word: Longs | np.uint64 = np.uint64(0)
        for index in range(max(first - 8, 0), min(first + 56, len(nulls))):
            null = nulls[index]
            if null is not None:
                word = word | null.astype(np.uint64) << np.uint64(index + 8 - first)
        yield word


def _slots(array: pa.Array, data_type: DataType, null: Mask | None) -> Longs:
    """Slots of a fixed-length type."""
    root = data_type.root
    if root == "BOOLEAN":
        bits = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        return np.asarray(bits, np.bool_).astype(np.uint64)
    if root == "DECIMAL":
        values = _buffer(array, np.dtype(np.uint64), per_row=2)[::2]
    elif root in _SLOT_DTYPES:
        # Unsigned of the same width: the rest of the slot is zero, also for negative numbers.
        values = _buffer(one_nan(array), _SLOT_DTYPES[root]).astype(np.uint64)
    elif root == "DOUBLE":
        values = _buffer(one_nan(array), np.dtype(np.uint64))
    else:
        values = _buffer(array, np.dtype(np.uint64))
    return values if null is None else np.where(null, np.uint64(0), values)


_SLOT_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "TINYINT": np.dtype(np.uint8),
    "SMALLINT": np.dtype(np.uint16),
    "INT": np.dtype(np.uint32),
    "DATE": np.dtype(np.uint32),
    "TIME": np.dtype(np.uint32),
    "FLOAT": np.dtype(np.uint32),
}


def _texts(array: pa.Array, null: Mask | None) -> _Texts:
    ends = np.frombuffer(array.buffers()[1] or bytes(4), np.int32)[array.offset : array.offset + len(array) + 1]
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    words = np.zeros(size // SLOT_BYTES + 2, np.uint64)
    if size:
        words.view(np.uint8)[:size] = np.frombuffer(array.buffers()[2], np.uint8, size, first)
    starts = ends[:-1].astype(np.int64) - first
    lengths = np.diff(ends).astype(np.int64)
    return _Texts(words, starts, lengths if null is None else np.where(null, np.int64(0), lengths))


def _text_slots(texts: _Texts, null: Mask | None, offset: Longs | np.uint64) -> tuple[Longs, Longs | None]:
    """Slots, and the size of each row's variable-length part (None if no row has one)."""
    lengths, long = texts.lengths.view(np.uint64), texts.lengths > INLINE_LIMIT
    pointers = lengths | offset << np.uint64(32)
    if long.all():
        slots = pointers
    else:
        (inline,) = texts.longs(slice(None), [len(lengths)])
        inline &= _KEEP_BYTES.take(texts.lengths, mode="clip")
        inline |= (lengths | np.uint64(0x80)) << np.uint64(56)
        slots = np.where(long, pointers, inline) if long.any() else inline
        if null is not None:
            slots = np.where(null, np.uint64(0), slots)
    if not long.any():
        return slots, None
    return slots, np.where(long, lengths + np.uint64(7) & ~np.uint64(7), np.uint64(0))


def _wide_timestamps(array: pa.Array, data_type: DataType, null: Mask | None) -> tuple[Longs, tuple[Longs, ...]]:
    """Nanoseconds of the millisecond for the slot, milliseconds for the variable-length part."""
    values = _buffer(array, np.dtype(np.int64))
    per_milli = 1_000 if (data_type.precision or 0) <= 6 else 1_000_000
    millis = values // per_milli
    nanos = (values - millis * per_milli) * (1_000_000 // per_milli)
    if null is not None:
        millis, nanos = np.where(null, 0, millis), np.where(null, 0, nanos)
    return nanos.view(np.uint64), (millis.view(np.uint64),)


def _wide_decimals(array: pa.Array, null: Mask | None) -> tuple[Longs, tuple[Longs, ...]]:
    """Number of significant bytes for the slot; the bytes, big-endian, left-aligned, for the variable-length part."""
    halves = _buffer(array, np.dtype(np.uint64), per_row=2)
    low, high = halves[::2], halves[1::2]
    sign = (high.view(np.int64) >> 63).view(np.uint64)
    low_size, high_size = low ^ sign, high ^ sign
    # One byte, and one more for every 2**(8j-1) that the magnitude reaches: the sign takes one bit.
    sizes = np.ones(len(low), np.uint8)
    for bits in range(7, 64, 8):
        sizes += ((high_size != 0) | (low_size >= np.uint64(1 << bits))).view(np.uint8)
    for bits in range(7, 56, 8):
        sizes += (high_size >= np.uint64(1 << bits)).view(np.uint8)
    counts = sizes.astype(np.uint64)
    shift = np.uint64(128) - counts * np.uint64(8)  # 0 to 120
    small, rest = shift & np.uint64(63), shift >= 64
    carried = np.where(small == 0, np.uint64(0), low >> (np.uint64(64) - small & np.uint64(63)))
    upper = np.where(rest, low << small, high << small | carried)
    lower = np.where(rest, np.uint64(0), low << small)
    if null is not None:
        counts, upper, lower = (np.where(null, np.uint64(0), each) for each in (counts, upper, lower))
    return counts, (upper.byteswap(), lower.byteswap())


def _modulo(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType], bucket_count: int) -> Ints:
    if len(columns) != 1 or types[0].root not in ("INT", "BIGINT"):
        raise InvalidInputError(
            f"bucket-function.type=mod needs one INT or BIGINT column: types={[str(each) for each in types]}"
        )
    array = _plain(columns[0], types[0])
    if array.null_count:
        raise InvalidInputError("bucket-function.type=mod needs a column without nulls")
    values = _buffer(array, np.dtype(np.int32 if types[0].root == "INT" else np.int64))
    return np.asarray(values % bucket_count, np.int32)


def _plain(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """One array of exactly the column's Arrow type. Raises: InvalidInputError when it cannot be cast losslessly."""
    if data_type.root not in _HASHABLE:
        raise InvalidInputError(f"type cannot be part of a bucket key: type={data_type}")
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    expected = arrow_type(data_type)
    if array.type == expected:
        return array
    try:
        return array.cast(expected)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"column does not have its declared type: type={data_type} arrow_type={array.type} error={error}"
        ) from error


_HASHABLE: Final = (
    INTEGER_ROOTS
    | TEXT_ROOTS
    | BYTES_ROOTS
    | TIMESTAMP_ROOTS
    | {"BOOLEAN", "FLOAT", "DOUBLE", "DATE", "TIME", "DECIMAL"}
)


def _nulls(array: pa.Array) -> Mask | None:
    if array.null_count == 0:
        return None
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _buffer(array: pa.Array, dtype: np.dtype[Any], *, per_row: int = 1) -> npt.NDArray[Any]:
    """The values of a fixed-width array without copying; undefined at nulls."""
    if len(array) == 0:
        return np.empty(0, dtype)
    data = array.buffers()[1]
    return np.frombuffer(data, dtype, len(array) * per_row, array.offset * per_row * dtype.itemsize)
