"""BinaryRow: the encoding of keys, partitions and statistics in manifests, and the input of the bucket hash.

Layout: ``int32 big-endian arity``, then the row: a null bitmap, a slot of 8 bytes per field, and a variable-length
part. All writers must agree on every byte: the bytes identify partitions and determine buckets.
Source: Paimon BinaryRow, AbstractBinaryWriter, SerializationUtils.
"""

import math
import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Final

from filestore.types.data_types import BYTES_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType
from lsm.errors import CorruptDataError, InvalidInputError

EMPTY_ROW: Final = bytes(12)
ARITY_BYTES: Final = 4
SLOT_BYTES: Final = 8
WIDE_DECIMAL_BYTES: Final = 16
WIDE_TIMESTAMP_BYTES: Final = 8
INLINE_LIMIT: Final = 7  # longest string or byte string stored in its slot

_NANOS_PER_MILLI: Final = 1_000_000
# Struct codes of the types that are one little-endian number at the start of their slot.
_NUMBER_CODES: Final = {
    "TINYINT": "<b",
    "SMALLINT": "<h",
    "INT": "<i",
    "DATE": "<i",
    "TIME": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
}
_EXACT: Final = Context(prec=80)


def encode_row(values: Sequence[object], types: Sequence[DataType]) -> bytes:
    """Encode internal values as in manifests, with the arity prefix.

    Raises: InvalidInputError for a type that cannot be a key, or a value that does not fit its type.
    """
    if len(values) != len(types):
        raise InvalidInputError(f"values and types differ in number: values={len(values)} types={len(types)}")
    slots_start = bitmap_bytes(len(types))
    fixed = bytearray(slots_start + SLOT_BYTES * len(types))
    variable = bytearray()
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        if value is None:
            fixed[(index + 8) // 8] |= 1 << ((index + 8) % 8)
        try:
            slot, body = _encode(value, data_type, len(fixed) + len(variable))
        except (struct.error, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InvalidInputError(f"value does not fit its type: value={value!r} type={data_type}") from error
        at = slots_start + SLOT_BYTES * index
        fixed[at : at + len(slot)] = slot
        variable += body
    return len(types).to_bytes(ARITY_BYTES, "big") + bytes(fixed) + bytes(variable)


def decode_row(data: bytes, types: Sequence[DataType]) -> tuple[object, ...]:
    """Decode the internal values of a row with arity prefix.

    Raises: CorruptDataError when the arity does not match ``types`` or an offset is out of bounds.
    """
    arity = int.from_bytes(data[:ARITY_BYTES], "big")
    row = memoryview(data)[ARITY_BYTES:]
    slots_start = bitmap_bytes(arity)
    if arity != len(types) or len(row) < slots_start + SLOT_BYTES * arity:
        raise CorruptDataError(
            f"binary row does not match its types: arity={arity} expected_arity={len(types)} size_bytes={len(data)}"
        )
    values: list[object] = []
    for index, data_type in enumerate(types):
        if row[(index + 8) // 8] >> ((index + 8) % 8) & 1:
            values.append(None)
            continue
        at = slots_start + SLOT_BYTES * index
        try:
            values.append(_decode(row, bytes(row[at : at + SLOT_BYTES]), data_type))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise CorruptDataError(
                f"binary row cannot be decoded: field={index} type={data_type} row={data.hex()}"
            ) from error
    return tuple(values)


def bitmap_bytes(arity: int) -> int:
    """Size of the block before the slots: one header byte and a null bit per field, padded to 8 bytes."""
    return (arity + 63 + 8) // 64 * 8


def variable_bytes(data_type: DataType) -> int:
    """Bytes that a type always reserves in the variable-length part, even for null; 0 except for wide numbers."""
    if data_type.root == "DECIMAL" and is_wide(data_type):
        return WIDE_DECIMAL_BYTES
    if data_type.root in TIMESTAMP_ROOTS and is_wide(data_type):
        return WIDE_TIMESTAMP_BYTES
    return 0


def is_wide(data_type: DataType) -> bool:
    """Whether a DECIMAL or TIMESTAMP is too precise for its slot."""
    precision = data_type.precision or 0
    return precision > (18 if data_type.root == "DECIMAL" else 3)


def _encode(value: object, data_type: DataType, variable_offset: int) -> tuple[bytes, bytes]:
    """The start of the slot and the variable-length bytes."""
    root, reserved = data_type.root, variable_bytes(data_type)
    if value is None:
        # Java reserves the space of wide values even for nulls; omitting it would change the hash.
        return (_pointer(variable_offset, 0) if reserved else b""), bytes(reserved)
    if root in _NUMBER_CODES:
        return struct.pack(_NUMBER_CODES[root], math.nan if value != value else value), b""
    if root == "BOOLEAN":
        return (b"\x01" if value else b"\x00"), b""
    if root in TEXT_ROOTS:
        return _encode_bytes(str(value).encode(), variable_offset)
    if root in BYTES_ROOTS:
        return _encode_bytes(bytes(value), variable_offset)  # type: ignore[call-overload]
    if root == "DECIMAL":
        unscaled = _unscaled(value, data_type)
        if not reserved:
            return struct.pack("<q", unscaled), b""
        body = _minimal_big_endian(unscaled)
        return _pointer(variable_offset, len(body)), body.ljust(reserved, b"\x00")
    if root in TIMESTAMP_ROOTS:
        millis, nanos = _split_timestamp(int(value), data_type)  # type: ignore[call-overload]
        if not reserved:
            return struct.pack("<q", millis), b""
        return _pointer(variable_offset, nanos), struct.pack("<q", millis)
    raise InvalidInputError(f"type cannot be part of a key, a partition or statistics: type={data_type}")


def _encode_bytes(body: bytes, variable_offset: int) -> tuple[bytes, bytes]:
    if len(body) <= INLINE_LIMIT:
        return body.ljust(INLINE_LIMIT, b"\x00") + bytes([0x80 | len(body)]), b""
    return _pointer(variable_offset, len(body)), body.ljust((len(body) + 7) // 8 * 8, b"\x00")


def _pointer(offset: int, low: int) -> bytes:
    return struct.pack("<II", low, offset)


def _unscaled(value: object, data_type: DataType) -> int:
    decimal = value if isinstance(value, Decimal) else Decimal(str(value))
    scaled = decimal.scaleb(data_type.scale or 0, _EXACT)
    unscaled = int(scaled)
    if unscaled != scaled or abs(unscaled) >= 10 ** (data_type.precision or 0):
        raise ValueError("decimal needs more digits than its type has")
    return unscaled


def _minimal_big_endian(number: int) -> bytes:
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _split_timestamp(value: int, data_type: DataType) -> tuple[int, int]:
    """Epoch milliseconds, rounded down, and the nanoseconds inside the millisecond."""
    precision = data_type.precision or 0
    if precision <= 3:
        return value, 0
    per_milli = 1_000 if precision <= 6 else _NANOS_PER_MILLI
    millis, rest = divmod(value, per_milli)
    return millis, rest * (_NANOS_PER_MILLI // per_milli)


def _decode(row: memoryview, slot: bytes, data_type: DataType) -> object:
    root = data_type.root
    if root in _NUMBER_CODES:
        number: object = struct.unpack_from(_NUMBER_CODES[root], slot)[0]
        return number
    if root == "BOOLEAN":
        return slot[0] != 0
    if root in TEXT_ROOTS:
        return _decode_bytes(row, slot).decode()
    if root in BYTES_ROOTS:
        return _decode_bytes(row, slot)
    low, offset = struct.unpack("<II", slot)
    if root == "DECIMAL":
        wide = is_wide(data_type)
        unscaled = int.from_bytes(_slice(row, offset, low), "big", signed=True) if wide else _int64(slot)
        return Decimal(unscaled).scaleb(-(data_type.scale or 0), _EXACT)
    if root in TIMESTAMP_ROOTS:
        if not is_wide(data_type):
            return _int64(slot)
        millis = _int64(_slice(row, offset, WIDE_TIMESTAMP_BYTES))
        if (data_type.precision or 0) <= 6:
            return millis * 1_000 + low // 1_000
        return millis * _NANOS_PER_MILLI + low
    raise InvalidInputError(f"type cannot be part of a key, a partition or statistics: type={data_type}")


def _decode_bytes(row: memoryview, slot: bytes) -> bytes:
    if slot[7] & 0x80:
        return slot[: slot[7] & 0x7F]
    length, offset = struct.unpack("<II", slot)
    return _slice(row, offset, length)


def _slice(row: memoryview, offset: int, length: int) -> bytes:
    if offset + length > len(row):
        raise IndexError("offset out of bounds")
    return bytes(row[offset : offset + length])


def _int64(data: bytes) -> int:
    number: int = struct.unpack("<q", data)[0]
    return number
