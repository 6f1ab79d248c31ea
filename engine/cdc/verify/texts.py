"""One text for every value, the same that SQL of the database makes (``expressions``): what is hashed and compared.

A value's text is exact: decimals are their digits without the point, floats the bits of a double, moments have all six
digits. A row is the texts behind their lengths, so that no two rows have one text; null is a dash without a length.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.errors import InvalidInputError

NULL: Final = "-"
_NOTHING, _COLON, _BRACKET, _NULL = (pa.scalar(text, pa.large_string()) for text in ("", ":", "[", NULL))
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(256, 2)


def value_texts(column: pa.Array) -> pa.Array:
    """The text of each value.

    Args:
        column: (n,) of a type for which `has_text`; nulls stay null.

    Returns:
        (n,) large_string.

    Raises:
        InvalidInputError: the type has no text.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _float_texts(column)
    if pa.types.is_decimal(kind):
        return _digits(column).cast(pa.large_string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")).cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hex_texts(column.cast(pa.large_binary()))
    if pa.types.is_list(kind):
        return _list_texts(column)
    raise InvalidInputError(f"values of this type are not compared: type={kind}")


def has_text(kind: pa.DataType) -> bool:
    """Whether values of a type can be compared: not those of maps and rows."""
    if pa.types.is_list(kind):
        return has_text(kind.value_type) and not pa.types.is_list(kind.value_type)
    return not pa.types.is_nested(kind)


def row_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """The text of each row, from the texts of its values.

    Args:
        columns: at least one, each (n,) large_string.

    Returns:
        (n,) large_string without nulls.
    """
    return pc.binary_join_element_wise(*[_measured(each) for each in columns], _NOTHING)


def _measured(texts: pa.Array) -> pa.Array:
    lengths = pc.binary_length(texts).cast(pa.large_string())
    return pc.fill_null(pc.binary_join_element_wise(lengths, texts, _COLON), _NULL)


def _list_texts(column: pa.Array) -> pa.Array:
    """``2[`` and the elements as in a row."""
    counts = pc.list_value_length(column).cast(pa.large_string())
    elements = _measured(value_texts(column.flatten()))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    joined = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets), elements), _NOTHING)
    return pc.binary_join_element_wise(counts, joined, _BRACKET)


def _digits(column: pa.Array) -> pa.Array:
    """The unscaled numbers."""
    kind = pa.decimal128(38, 0) if pa.types.is_decimal128(column.type) else pa.decimal256(76, 0)
    return pa.Array.from_buffers(kind, len(column), column.buffers(), offset=column.offset)


def _float_texts(column: pa.Array) -> pa.Array:
    """The bits of the double, the highest first; NaN has one form."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(values), np.nan, values).astype(">f8").tobytes()
    fixed = pa.Array.from_buffers(pa.binary(8), len(column), [None, pa.py_buffer(bits)])
    texts = _hex_texts(fixed.cast(pa.large_binary()))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _hex_texts(column: pa.Array) -> pa.Array:
    filled = pc.fill_null(column, b"")
    _, offsets, data = filled.buffers()
    places = np.frombuffer(offsets, np.int64)[filled.offset : filled.offset + len(filled) + 1]
    content = np.frombuffer(data, np.uint8)[places[0] : places[-1]] if data is not None else np.zeros(0, np.uint8)
    shifted = pa.py_buffer((places - places[0]) * 2)
    texts = pa.Array.from_buffers(pa.large_string(), len(filled), [None, shifted, pa.py_buffer(_HEX[content])])
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))
