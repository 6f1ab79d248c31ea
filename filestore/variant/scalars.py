"""Columns of one type as VARIANT values, in the shortest form, as Spark and Paimon build them.

A value begins with a byte: two bits say of which kind it is, six which type, or the length of a short text.
Source: parquet-format VariantEncoding, "Value encoding"; VariantShredding, "Shredded Value Types".
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.variant.ragged import Bytes, byte_strings, number_bytes, starts_of
from lsm.errors import InvalidInputError
from lsm.keys.words import IndexArray

NULL_VALUE: Final = b"\x00"

_TRUE, _FALSE, _INTEGERS = 1, 2, {1: 3, 2: 4, 4: 5, 8: 6}
_DOUBLE, _DECIMALS, _DATE, _FLOAT, _BINARY, _TEXT, _UUID = 7, {4: 8, 8: 9, 16: 10}, 11, 14, 15, 16, 20
_MOST_SHORT: Final = 63  # bytes of a text whose length is in the first byte
_DIGITS: Final = {4: 9, 8: 18}  # of a decimal by the bytes that hold it
_UUID_BYTES: Final = 16
_TIMES: Final = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}
_TIME: Final = 17


def encoded(values: pa.Array) -> pa.Array:
    """The values of a column, as byte strings; null where it is null.

    Raises:
        InvalidInputError: a type that no shredded value has.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return encoded(values.storage)
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.large_binary())
    if pa.types.is_boolean(kind):
        made = pc.if_else(values, bytes([_TRUE << 2]), bytes([_FALSE << 2])).cast(pa.large_binary())
    elif pa.types.is_integer(kind):
        made = _integers(pc.fill_null(values.cast(pa.int64()), 0).to_numpy())
    elif pa.types.is_decimal(kind) and kind.bit_width <= 128:
        made = _decimals(values)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        made = _texts(pc.fill_null(values, "").cast(pa.large_binary()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        made = _sized(_BINARY, pc.fill_null(values.cast(pa.large_binary()), b""))
    else:
        made = _fixed(values)
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.large_binary())) if values.null_count else made


def _integers(values: NDArray[np.int64]) -> pa.Array:
    widths = np.full(len(values), 8, np.int64)
    for width, kind in ((4, np.int32), (2, np.int16), (1, np.int8)):
        widths[(values >= np.iinfo(kind).min) & (values <= np.iinfo(kind).max)] = width
    heads = np.zeros(9, np.uint8)
    heads[[*_INTEGERS]] = [each << 2 for each in _INTEGERS.values()]
    return _behind(heads[widths], number_bytes(values, widths), widths)


def _decimals(values: pa.Array) -> pa.Array:
    """Scale in a byte, then the digits as a number of 4, 8 or 16 bytes."""
    scale = values.type.scale
    wide = pc.fill_null(values.cast(pa.decimal128(38, scale)), 0)
    words = np.frombuffer(wide.buffers()[1], np.int64, 2 * len(wide), wide.offset * 16).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    is_long = high == (low >> 63)  # the upper half repeats the sign
    widths = np.full(len(wide), 16, np.int64)
    for width, digits in sorted(_DIGITS.items(), reverse=True):
        widths[is_long & (low < 10**digits) & (low > -(10**digits))] = width
    heads = np.zeros(17, np.uint8)
    heads[[*_DECIMALS]] = [each << 2 for each in _DECIMALS.values()]
    every = np.empty((len(wide), 17), np.uint8)
    every[:, 0] = scale
    every[:, 1:] = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)
    return _behind(heads[widths], every[np.arange(17) <= widths[:, None]], widths + 1)


def _texts(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values)
    is_short = pc.less_equal(lengths, _MOST_SHORT)
    sizes = pc.if_else(is_short, lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    heads = byte_strings((sizes << 2 | 1).astype(np.uint8), np.arange(len(values) + 1))
    return pc.if_else(is_short, end_to_end(heads, values), _sized(_TEXT, values))


def _sized(kind: int, values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    every = np.empty((len(values), 5), np.uint8)
    every[:, 0] = kind << 2
    every[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return end_to_end(byte_strings(every.ravel(), np.arange(len(values) + 1) * 5), values)


def _fixed(values: pa.Array) -> pa.Array:
    """Types whose values have one length, as they lie in memory. Raises: InvalidInputError: another type."""
    kind = values.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        head, plain = (_FLOAT if pa.types.is_float32(kind) else _DOUBLE), values
    elif pa.types.is_date(kind):
        head, plain = _DATE, values.cast(pa.date32())
    elif pa.types.is_time(kind):
        head, plain = _TIME, values.cast(pa.time64("us"))
    elif pa.types.is_timestamp(kind):
        unit = "ns" if kind.unit == "ns" else "us"
        head, plain = _TIMES[unit, kind.tz is not None], values.cast(pa.timestamp(unit, kind.tz))
    elif pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        head, plain = _UUID, values
    else:
        raise InvalidInputError(f"no shredded VARIANT has parts of this type: type={kind}")
    width = plain.type.byte_width
    every = np.empty((len(plain), 1 + width), np.uint8)
    every[:, 0] = head << 2
    every[:, 1:] = np.frombuffer(plain.buffers()[1], np.uint8, width * len(plain), width * plain.offset).reshape(
        -1, width
    )
    return byte_strings(every.ravel(), np.arange(len(plain) + 1) * (1 + width))


def _behind(heads: Bytes, data: Bytes, widths: IndexArray) -> pa.Array:
    """Byte strings of one byte each, and of what is behind it."""
    return end_to_end(byte_strings(heads, np.arange(len(heads) + 1)), byte_strings(data, starts_of(widths)))


def end_to_end(*parts: pa.Array) -> pa.Array:
    """Byte strings, one behind the other."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
