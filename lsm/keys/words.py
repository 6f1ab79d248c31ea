"""Columns as unsigned 64-bit words that compare like the values: the sort machinery of ``keys``.

Sorting uint64 is the fastest sort available, so every column is split into *parts*, each giving one word per row, most
significant first. As many bits as fit go into one uint64 with the row number in its low bits: one sort of plain
integers then gives a stable order. Rows that tie on these bits are compared on the rest, and only groups that
differ there are sorted once more.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.errors import InvalidInputError

IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
WordArray: TypeAlias = NDArray[np.uint64]

_WORD_BITS: Final = 64
_WORD_BYTES: Final = 8
_SIGN: Final = np.uint64(1 << 63)
_NAN: Final = np.uint64(0x7FF8_0000_0000_0000)
# _LEADING_BYTES[k] keeps the first k bytes of a big-endian word.
_LEADING_BYTES: Final = np.array([(1 << 64) - (1 << (64 - 8 * count)) for count in range(9)], dtype=np.uint64)
_MAX_PREFIX_BYTES: Final = 64  # longer values are left to the full comparison
_MAX_ROUNDS: Final = 3  # then Arrow's comparison sort resolves the remaining ties


@dataclass(frozen=True, slots=True)
class Lead:
    """The most significant word of a part."""

    values: WordArray  # (n,) all below 2**bits
    bits: int
    rest: "tuple[Part, ...]"  # what the word does not cover; empty: the word is exact


class Part(Protocol):
    """A piece of a sort key, comparable row by row."""

    def lead(self) -> Lead:
        """The most significant word of every row."""

    def take(self, rows: IndexArray) -> "Part":
        """The part of the chosen rows."""

    def changes(self) -> BoolArray:
        """(n-1,) whether a row differs from the row before it."""

    def to_arrow(self) -> pa.Array:
        """An array that Arrow sorts the same way."""


@dataclass(frozen=True, slots=True)
class NumberPart:
    """Values that fit in one word."""

    values: WordArray

    def lead(self) -> Lead:
        """Offsets from the smallest value: fewer bits, same order."""
        low = self.values.min()
        return Lead(self.values - low if low else self.values, int(self.values.max() - low).bit_length(), ())

    def take(self, rows: IndexArray) -> "NumberPart":
        """The part of the chosen rows."""
        return NumberPart(self.values[rows])

    def changes(self) -> BoolArray:
        """(n-1,) whether a row differs from the row before it."""
        changed: BoolArray = self.values[1:] != self.values[:-1]
        return changed

    def to_arrow(self) -> pa.Array:
        """The words themselves."""
        return pa.array(self.values)


@dataclass(frozen=True, slots=True)
class BytesPart:
    """Strings or binaries in unsigned byte order, from byte ``depth`` on: compared rows are equal before it."""

    source: pa.Array
    rows: IndexArray | None  # (n,) rows of the source; None: all
    data: NDArray[np.uint8]  # the bytes of all source rows, and eight bytes of padding
    begin: IndexArray  # (n,) offset of each row's first byte in data
    end: IndexArray
    depth: int = 0

    def lead(self) -> Lead:
        """Eight bytes, padded with zeros; lengths distinguish padding from zero bytes."""
        words, remaining = self.words()
        longest, shortest = int(remaining.max()), int(remaining.min())
        rest: tuple[Part, ...] = ()
        if longest > _WORD_BYTES:
            rest = (replace(self, depth=self.depth + _WORD_BYTES),)
        elif longest != shortest:
            rest = (NumberPart((remaining + self.depth).view(np.uint64)),)
        lead = NumberPart(words).lead()
        return Lead(lead.values, lead.bits, rest)

    def words(self) -> tuple[WordArray, IndexArray]:
        """(n,) eight bytes from the depth on, padded with zeros, and (n,) how many bytes there are from there on."""
        begin = self.begin + self.depth
        remaining = self.end - begin
        every = np.ndarray((len(self.data) - _WORD_BYTES + 1,), ">u8", self.data, strides=(1,))
        words: WordArray = every[np.minimum(begin, len(every) - 1)].astype(np.uint64)
        if int(remaining.min()) < _WORD_BYTES:
            words &= _LEADING_BYTES[np.clip(remaining, 0, _WORD_BYTES)]
        return words, remaining

    def take(self, rows: IndexArray) -> "BytesPart":
        """The part of the chosen rows; no bytes are copied."""
        of_source = rows if self.rows is None else self.rows[rows]
        return replace(self, rows=of_source, begin=self.begin[rows], end=self.end[rows])

    def changes(self) -> BoolArray:
        """(n-1,) whether a row differs from the row before it."""
        rows = self.to_arrow()
        changed: BoolArray = pc.not_equal(rows[1:], rows[:-1]).to_numpy(zero_copy_only=False)
        return changed

    def to_arrow(self) -> pa.Array:
        """(n,) values of this part's rows, in its order."""
        return self.source if self.rows is None else self.source.take(pa.array(self.rows))


def parts_of(column: pa.Array) -> Sequence[Part]:
    """The parts of a key column, most significant first.

    Args:
        column: (n,) of any type that a key may have, no nulls.

    Raises:
        InvalidInputError: the type is not orderable.
    """
    return [_bytes_part(column)] if _is_bytes(column.type) else number_parts_of(column)


def leading_words(column: pa.Array, depth: int = 0) -> WordArray:
    """One word for each value that never orders two values otherwise than they are; unequal ones may share one.

    Args:
        column: (n,) of any type that a key may have, no nulls. Words of different columns of a type compare too.
        depth: bytes of strings and binaries that are skipped, because all have them in common.

    Raises:
        InvalidInputError: the type is not orderable.
    """
    if not len(column):
        return np.empty(0, np.uint64)
    if _is_bytes(column.type):
        return replace(_bytes_part(column), depth=depth).words()[0]
    if pa.types.is_decimal(column.type):  # the number of its words depends on the values
        column = column.cast(pa.float64())
    return next(iter(_number_words(column)))


def number_parts_of(column: pa.Array, *, descending: bool = False) -> list[NumberPart]:
    """The parts of a column as numbers only; strings are ranked, which sorts them.

    Args:
        column: (n,) of any type that a key may have; a null is smaller than every value, in both directions.
        descending: greater values first.

    Raises:
        InvalidInputError: the type is not orderable.
    """
    parts: list[NumberPart] = []
    if column.null_count:
        valid = column.is_valid()
        parts.append(NumberPart(valid.cast(pa.uint8()).to_numpy().astype(np.uint64)))
        column = _without_nulls(column, valid)
    if _is_bytes(column.type):
        words: Iterable[WordArray] = [pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy()]
    else:
        words = _number_words(column)
    return parts + [NumberPart(~word if descending else word) for word in words]


def stable_order(parts: Sequence[Part], row_count: int, *, presorted: bool) -> tuple[IndexArray, BoolArray]:
    """The stable order of rows by their parts, and which ordered rows differ from the one before.

    Args:
        parts: at least one, each (n,), most significant first.
        row_count: n.
        presorted: the rows are a few concatenated sorted runs; affects only speed.
    """
    return _ordered(parts, row_count, presorted=presorted, rounds_left=_MAX_ROUNDS)


def _ordered(
    parts: Sequence[Part], row_count: int, *, presorted: bool, rounds_left: int
) -> tuple[IndexArray, BoolArray]:
    if row_count == 0:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    if rounds_left == 0:
        return _arrow_order(parts, row_count)
    row_bits = (row_count - 1).bit_length()
    packed, rest = _packed(parts, row_count, _WORD_BITS - row_bits)
    packed <<= np.uint64(row_bits)
    packed |= np.arange(row_count, dtype=np.uint64)
    packed.sort(kind="stable" if presorted else None)  # "stable" is timsort, which finds the runs
    order = (packed & np.uint64((1 << row_bits) - 1)).view(np.int64)
    packed >>= np.uint64(row_bits)
    starts = _with_first(packed[1:] != packed[:-1])
    if rest:
        _repair_ties(order, starts, rest, presorted=presorted, rounds_left=rounds_left)
    return order, starts


def _packed(parts: Sequence[Part], row_count: int, capacity: int) -> tuple[WordArray, list[Part]]:
    """The leading `capacity` bits of the parts, and parts for the remainder."""
    word: WordArray | None = None
    queue = deque(parts)
    while queue and capacity:
        part = queue[0]
        if isinstance(part, BytesPart) and part.depth > _MAX_PREFIX_BYTES:
            break
        queue.popleft()
        lead = part.lead()
        queue.extendleft(reversed(lead.rest))
        cut = max(lead.bits - capacity, 0)
        values = lead.values >> np.uint64(cut) if cut else lead.values
        # With all 64 bits to fill there is no earlier word, so the shift below is less than 64.
        word = values.copy() if word is None else (word << np.uint64(lead.bits - cut)) | values
        capacity -= lead.bits - cut
        if cut:
            queue.appendleft(NumberPart(lead.values & np.uint64((1 << cut) - 1)))
    return np.zeros(row_count, np.uint64) if word is None else word, list(queue)


def _repair_ties(
    order: IndexArray, starts: BoolArray, rest: Sequence[Part], *, presorted: bool, rounds_left: int
) -> None:
    """Order rows that tie so far by the remaining parts, in place."""
    tied = tied_positions(starts)
    if len(tied) == 0:
        return
    rows = order[tied]
    heads = starts[tied]
    changed = np.zeros(len(tied), np.bool_)
    taken = [part.take(rows) for part in rest]
    for part in taken:
        changed[1:] |= part.changes()
    changed &= ~heads
    if not changed.any():
        return
    groups = np.cumsum(heads) - 1
    affected = np.zeros(int(groups[-1]) + 1, np.bool_)
    affected[groups[changed]] = True
    chosen = np.flatnonzero(affected[groups])
    group_part = NumberPart(groups[chosen].view(np.uint64))
    resort_parts: list[Part] = [group_part, *(part.take(chosen) for part in taken)]
    new_order, new_starts = _ordered(resort_parts, len(chosen), presorted=presorted, rounds_left=rounds_left - 1)
    order[tied[chosen]] = rows[chosen][new_order]
    starts[tied[chosen]] = new_starts


def tied_positions(starts: BoolArray) -> IndexArray:
    """Positions of ordered rows in groups of more than one row."""
    tied = ~starts
    tied[:-1] |= tied[1:].copy()
    return np.flatnonzero(tied)


def _arrow_order(parts: Sequence[Part], row_count: int) -> tuple[IndexArray, BoolArray]:
    """`_ordered` by Arrow's comparison sort: slower, but independent of the length of common prefixes."""
    names = [str(index) for index in range(len(parts))]
    table = pa.table([part.to_arrow() for part in parts], names=names)
    order = pc.sort_indices(table, [(name, "ascending") for name in names]).to_numpy().astype(np.int64)
    changed = np.zeros(row_count - 1, np.bool_)
    for part in parts:
        changed |= part.take(order).changes()
    return order, _with_first(changed)


def _with_first(changed: BoolArray) -> BoolArray:
    starts = np.empty(len(changed) + 1, np.bool_)
    starts[0] = True
    starts[1:] = changed
    return starts


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _bytes_part(column: pa.Array) -> BytesPart:
    kind = column.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (is_large or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        column, is_large = column.cast(pa.large_binary()), True  # views, fixed size
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.zeros(len(column) + 1, np.int64)
    if len(column):
        stored = np.frombuffer(offset_buffer, np.int64 if is_large else np.int32)
        offsets[:] = stored[column.offset : column.offset + len(column) + 1]
    low, high = int(offsets[0]), int(offsets[-1])
    data = np.zeros(high - low + _WORD_BYTES, np.uint8)
    if high > low:
        data[: high - low] = np.frombuffer(data_buffer, np.uint8)[low:high]
    offsets -= low
    return BytesPart(column, None, data, offsets[:-1], offsets[1:])


def _number_words(column: pa.Array) -> Iterable[WordArray]:
    """The words of a column of numbers, most significant first."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimal_words(column)
    if pa.types.is_floating(kind):
        return [float_words(column.cast(pa.float64()).to_numpy(zero_copy_only=False))]
    if pa.types.is_boolean(kind):
        return [column.cast(pa.uint8()).to_numpy().astype(np.uint64)]
    return [_signed_numbers(column).view(np.uint64) ^ _SIGN]


def _signed_numbers(column: pa.Array) -> NDArray[np.int64]:
    """Signed integers, and the numbers behind dates, times, timestamps and durations."""
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_signed_integer(kind):
        raise InvalidInputError(
            f"the type is not orderable: type={kind} allowed=numbers, dates, times, strings, binaries"
        )
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _decimal_words(column: pa.Array) -> list[WordArray]:
    """As many words as the widest value needs."""
    width = column.type.bit_width // 8
    stored = np.frombuffer(column.buffers()[1] or b"", np.int32 if width == 4 else np.int64).astype(
        np.int64, copy=False
    )
    limbs = stored.reshape(-1, max(width // 8, 1))[column.offset : column.offset + len(column)]
    if bool((limbs[:, 1:] == (limbs[:, :1] >> 63)).all()):
        limbs = limbs[:, :1]
    words = [np.ascontiguousarray(limbs[:, index]).view(np.uint64) for index in reversed(range(limbs.shape[1]))]
    return [words[0] ^ _SIGN, *words[1:]]


def float_words(values: NDArray[np.float64]) -> WordArray:
    """Words in the order of Java's Double.compare: -0.0 before 0.0, all NaNs equal and last."""
    bits = values.view(np.uint64)
    nans = np.isnan(values)
    if nans.any():
        bits = np.where(nans, _NAN, bits)
    # Negative: flip every bit; positive: only the sign.
    flips = (bits.view(np.int64) >> 63).view(np.uint64) | _SIGN
    return bits ^ flips


def _without_nulls(column: pa.Array, valid: pa.Array) -> pa.Array:
    """The column with an arbitrary non-null value in place of every null."""
    rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    if len(rows) == 0:
        return pa.repeat(0, len(column)).cast(pa.int64())
    return column.fill_null(column[int(rows[0])])
