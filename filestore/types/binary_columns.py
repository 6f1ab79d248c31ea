"""Decodes many BinaryRows of the same types to columns at once, for statistics and keys of a whole table.

``binary_row.decode_row`` decodes a single row, and serves as the reference in tests.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.types.binary_row import ARITY_BYTES, SLOT_BYTES, WIDE_TIMESTAMP_BYTES, bitmap_bytes, is_wide
from filestore.types.data_types import BYTES_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, arrow_type
from lsm.errors import CorruptDataError
from lsm.keys.keys import comparable

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]
_NUMBERS: Final = {
    "TINYINT": "<i1",
    "SMALLINT": "<i2",
    "INT": "<i4",
    "DATE": "<i4",
    "TIME": "<i4",
    "BIGINT": "<i8",
    "FLOAT": "<f4",
    "DOUBLE": "<f8",
}
_NANOS_PER_MILLI: Final = 1_000_000


def decode_columns(rows: Sequence[bytes] | pa.LargeBinaryArray, types: Sequence[DataType]) -> list[pa.Array]:
    """Decode rows with arity prefix to columns.

    Args:
        rows: n rows without nulls, with as many fields as types.
        types: types of the fields; nested types are not supported and decode to nulls.

    Returns:
        One (n,) array per type, of its Arrow type.

    Raises:
        CorruptDataError: a row has another number of fields, or an offset is out of bounds.
    """
    packed = _Rows(rows, len(types))
    return [packed.column(index, data_type) for index, data_type in enumerate(types)]


class _Rows:
    """Concatenated rows with their offsets."""

    def __init__(self, rows: Sequence[bytes] | pa.LargeBinaryArray, arity: int) -> None:
        if isinstance(rows, pa.LargeBinaryArray):
            _, offsets, data = rows.buffers()
            ends = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
            self._data: _Bytes = np.frombuffer(data or b"", np.uint8)
            sizes, self._ends = np.diff(ends), ends[1:]
        else:
            self._data = np.frombuffer(b"".join(rows), dtype=np.uint8)
            sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
            self._ends = np.cumsum(sizes)
        self._starts: _Places = self._ends - sizes + ARITY_BYTES  # after the prefix: the origin of offsets
        self._slots_start = bitmap_bytes(arity)
        least = ARITY_BYTES + self._slots_start + SLOT_BYTES * arity
        is_short = bool((sizes < least).any())
        if is_short or bool((self._fixed(self._starts - ARITY_BYTES, ARITY_BYTES).view(">i4")[:, 0] != arity).any()):
            raise CorruptDataError(f"binary rows do not match their types: expected_arity={arity} rows={len(rows)}")

    def column(self, index: int, data_type: DataType) -> pa.Array:
        """The values of one field."""
        header = self._data[self._starts + (index + 8) // 8]
        is_null: npt.NDArray[np.bool_] = (header >> ((index + 8) % 8) & 1).astype(bool)
        slots = self._fixed(self._starts + self._slots_start + SLOT_BYTES * index, SLOT_BYTES)
        arrow = arrow_type(data_type)
        root = data_type.root
        if root in _NUMBERS:
            return _numbers(slots.view(_NUMBERS[root])[:, 0], is_null, arrow)
        if root == "BOOLEAN":
            return pa.array(slots[:, 0] != 0, mask=is_null)
        if root in TEXT_ROOTS or root in BYTES_ROOTS:
            return self._variable(slots, is_null, index, arrow)
        if root in TIMESTAMP_ROOTS:
            return self._timestamps(slots, is_null, data_type, arrow)
        if root == "DECIMAL":
            return self._decimals(slots, is_null, data_type, arrow)
        return pa.nulls(len(self._starts), arrow)

    def _fixed(self, places: _Places, size: int) -> _Bytes:
        if len(places) and int(places.max()) + size > len(self._data):
            raise CorruptDataError(f"offset out of bounds in a binary row: size_bytes={len(self._data)}")
        taken: _Bytes = self._data[places[:, None] + np.arange(size)]
        return np.ascontiguousarray(taken)

    def _pointed(self, slots: _Bytes, wanted: npt.NDArray[np.bool_], sizes: _Places) -> _Places:
        """Start offsets of variable-length values; 0 for rows that are not wanted."""
        places = np.where(wanted, self._starts + slots.view("<u4")[:, 1].astype(np.int64), 0)
        if bool((wanted & (places + sizes > self._ends)).any()):
            raise CorruptDataError(f"offset out of bounds in a binary row: size_bytes={len(self._data)}")
        return places

    def _variable(self, slots: _Bytes, is_null: npt.NDArray[np.bool_], index: int, arrow: pa.DataType) -> pa.Array:
        is_inline = (slots[:, 7] & 0x80) != 0
        sizes = np.where(is_inline, slots[:, 7] & 0x7F, slots.view("<u4")[:, 0]).astype(np.int64)
        sizes[is_null] = 0
        inside = self._starts + self._slots_start + SLOT_BYTES * index
        places = np.where(is_inline, inside, self._pointed(slots, ~is_inline & ~is_null, sizes))
        offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=offsets[1:])
        source = np.repeat(places - offsets[:-1], sizes) + np.arange(int(offsets[-1]))
        buffers = [_validity(is_null), pa.py_buffer(offsets), pa.py_buffer(self._data[source].tobytes())]
        large = pa.large_string() if pa.types.is_string(arrow) else pa.large_binary()
        made = pa.Array.from_buffers(large, len(sizes), buffers)
        try:
            made.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptDataError(f"text in a binary row is not UTF-8: field={index}") from error
        return made.cast(arrow)

    def _timestamps(
        self, slots: _Bytes, is_null: npt.NDArray[np.bool_], data_type: DataType, arrow: pa.DataType
    ) -> pa.Array:
        if not is_wide(data_type):
            return pa.array(slots.view("<i8")[:, 0], mask=is_null).cast(arrow)
        places = self._pointed(slots, ~is_null, np.full(len(slots), WIDE_TIMESTAMP_BYTES))
        millis = self._fixed(places, WIDE_TIMESTAMP_BYTES).view("<i8")[:, 0]
        nanos = slots.view("<u4")[:, 0].astype(np.int64)
        per_milli = 1_000 if arrow.unit == "us" else _NANOS_PER_MILLI
        values = np.where(is_null, 0, millis) * per_milli + nanos // (_NANOS_PER_MILLI // per_milli)
        return pa.array(values, mask=is_null).cast(arrow)

    def _decimals(
        self, slots: _Bytes, is_null: npt.NDArray[np.bool_], data_type: DataType, arrow: pa.DataType
    ) -> pa.Array:
        if not is_wide(data_type):
            low = slots.view("<i8")[:, 0]
            words = np.stack([low, low >> 63], axis=1)  # 128 bits, sign-extended
        else:
            words = self._wide_words(slots, is_null)
        buffers = [_validity(is_null), pa.py_buffer(np.ascontiguousarray(words))]
        return pa.Array.from_buffers(arrow, len(slots), buffers)

    def _wide_words(self, slots: _Bytes, is_null: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Big-endian numbers of up to 16 bytes as two little-endian words each."""
        sizes = np.where(is_null, 0, slots.view("<u4")[:, 0]).astype(np.int64)
        places = self._pointed(slots, ~is_null, sizes)
        if bool((sizes > 16).any()):
            raise CorruptDataError("decimal in a binary row has more than 16 bytes")
        at = places[:, None] + sizes[:, None] - 1 - np.arange(16)  # least significant byte first
        inside = np.arange(16) < sizes[:, None]
        first = self._data[np.where(is_null, 0, places)]
        fill = np.where((first & 0x80) != 0, 0xFF, 0).astype(np.uint8)
        taken = np.where(inside, self._data[np.where(inside, at, 0)], fill[:, None])
        return np.ascontiguousarray(taken).view("<i8")


def _numbers(values: Any, is_null: npt.NDArray[np.bool_], arrow: pa.DataType) -> pa.Array:
    return pa.array(np.ascontiguousarray(values), mask=is_null).cast(arrow)


def _validity(is_null: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return pc.invert(pa.array(is_null)).buffers()[1] if bool(is_null.any()) else None


def ordered_codes(column: pa.Array) -> npt.NDArray[np.int64]:
    """(n,) numbers in the order of the values, which have no nulls."""
    if pa.types.is_floating(column.type):  # by their bits, which Arrow does not compare
        column = pa.array(comparables(column), pa.uint64())
    encoded = column.dictionary_encode()
    codes = np.empty(len(encoded.dictionary), np.int64)
    codes[pc.sort_indices(encoded.dictionary)] = np.arange(len(codes))
    ordered: npt.NDArray[np.int64] = codes[np.asarray(encoded.indices)]
    return ordered


def comparables(column: pa.Array) -> list[Any]:
    """The values as ``comparable`` gives them, of a column without nulls."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: list[Any] = column.to_pylist() if not pa.types.is_integer(column.type) else column.to_numpy().tolist()
    return list(map(comparable, values)) if pa.types.is_floating(kind) else values
