"""Numbers of records as text: decimals of any size with all their digits, and times of day.

Source: Java ``BigInteger.toByteArray``; Debezium "Decimal types", "Temporal types".
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.json.arrow_bytes import decimals_of_bytes, flags, value_bytes
from lsm.errors import InvalidInputError

_SURE_BYTES: Final = 15  # of an unscaled value: fewer than 38 digits
_SECOND: Final = 10**6  # in microseconds
_MOST_SCALE: Final = 1 << 16  # PostgreSQL's numeric has up to 16383 digits after the point


def decimal_texts(values: pa.Array, scales: pa.Array) -> pa.Array:
    """Decimals written out, with as many digits after the point as their scale: ``-0.10``, ``100``.

    Args:
        values: (n,) binary, the unscaled values in big-endian two's complement; nulls stay null.
        scales: (n,) int32; below zero, zeros are appended.

    Raises:
        InvalidInputError: a value is empty, or a scale has no database.
    """
    is_valid = flags(values.is_valid())
    lengths = np.diff(value_bytes(values)[0])
    if np.any(lengths[is_valid] == 0):
        raise InvalidInputError("an unscaled decimal has at least one byte")
    is_long = is_valid & (lengths > _SURE_BYTES)
    short = pc.if_else(pa.array(~is_long), values, pa.scalar(None, values.type))
    digits = decimals_of_bytes(short, scale=0, data_type=pa.decimal128(38, 0)).cast(pa.string())
    if is_long.any():  # more than 36 digits: Python's integers have no limit, and such values are rare
        long = [str(int.from_bytes(each, "big", signed=True)) for each in values.filter(pa.array(is_long)).to_pylist()]
        digits = pc.replace_with_mask(digits, pa.array(is_long), pa.array(long, pa.string()))
    found = np.asarray(scales.fill_null(0))
    if np.any(np.abs(found[is_valid]) > _MOST_SCALE):
        raise InvalidInputError(f"a decimal has more digits than any database: scale={np.abs(found).max()}")
    result = pa.nulls(len(values), pa.string())
    for scale in np.unique(found[is_valid]).tolist():
        here = is_valid & (found == scale)
        texts = _with_point(digits.filter(pa.array(here)), scale)
        result = pc.replace_with_mask(result, pa.array(here), texts)
    return result


def time_texts(numbers: pa.Array, unit: str) -> pa.Array:
    """Times of day as ``HH:MM:SS.ffffff``, with three more digits where nanoseconds have them.

    Args:
        numbers: (n,) int64 since midnight; nulls stay null. A day's end is ``24:00:00.000000``; MySQL's times may be
            negative and longer than a day, as ``-838:59:59.000000``.
        unit: ms, us or ns.
    """
    nanos = pc.multiply(numbers, {"ms": 10**6, "us": 1000, "ns": 1}[unit])
    size = pc.abs(nanos)
    micros, rest = pc.divide(size, 1000), pc.subtract(size, pc.multiply(pc.divide(size, 1000), 1000))
    seconds = pc.divide(micros, _SECOND)
    minutes = pc.divide(seconds, 60)
    parts = [
        (pc.divide(minutes, 60), 2, ":"),
        (_modulo(minutes, 60), 2, ":"),
        (_modulo(seconds, 60), 2, "."),
        (_modulo(micros, _SECOND), 6, ""),
    ]
    padded = [
        pc.binary_join_element_wise(pc.utf8_lpad(part.cast(pa.string()), width, "0"), separator, "")
        for part, width, separator in parts
    ]
    sign = pc.if_else(pc.less(nanos, 0), "-", "")
    finer = pc.if_else(pc.equal(rest, 0), "", pc.utf8_lpad(rest.cast(pa.string()), 3, "0"))
    return pc.binary_join_element_wise(sign, *padded, finer, "")


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def _with_point(digits: pa.Array, scale: int) -> pa.Array:
    if scale == 0:
        return digits
    is_negative = pc.starts_with(digits, "-")
    sign, bare = pc.if_else(is_negative, "-", ""), pc.utf8_ltrim(digits, "-")
    if scale < 0:
        appended = pc.if_else(pc.equal(bare, "0"), bare, pc.binary_join_element_wise(bare, "0" * -scale, ""))
        return pc.binary_join_element_wise(sign, appended, "")
    padded = pc.utf8_lpad(bare, scale + 1, "0")
    whole, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", fraction, "")
