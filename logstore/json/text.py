"""JSON text of Arrow columns, with one kernel call per column and literal, no Python object per value.

An object is the element-wise join of literals (``{"id":``) and column texts. Quotes needed by every value of a column
are part of the surrounding literals, so that a string column without nulls is copied only once.

Scalars are written as by Flink's JSON format: decimals are exact numbers (such as ``1E-12``), NaN and
the infinities are quoted Java names, binary is base64, ``2020-01-02``, ``03:04:05.678``, ``2020-01-02 03:04:05.678901``
with all digits of the column's unit, and ``Z`` after an instant. Years outside 0000..9999 are written as in Java:
``+10000-01-01``, ``-0001-12-31``.

Source: Flink ``RowDataToJsonConverters``, ``TimeFormats``; RFC 8259.
"""

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.json.arrow_bytes import value_bytes
from logstore.json.base64_text import base64_texts
from lsm.errors import InvalidInputError

_ESCAPES: Final = {ord(special): json.dumps(special)[1:-1] for special in (*map(chr, range(32)), '"', "\\")}
_SECONDS_OF_YEAR_0: Final = -62167219200
_SECONDS_OF_YEAR_10000: Final = 253402300800
_SECONDS_PER_DAY: Final = 86400
_DAYS_BEFORE_1970: Final = 719162  # since 0001-01-01
_DAYS_PER_CYCLE: Final = 146097  # 400 years, after which the calendar repeats
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def json_texts(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """JSON text of every value of a column.

    Args:
        array: any type but durations, intervals, unions and list views; map keys must be scalars, written as strings.

    Returns:
        string array of the same length; null stays null: the caller chooses between ``null`` and no value.

    Raises:
        InvalidInputError: the type has no JSON form, or the text of the column would not fit into 2 GiB.
    """
    try:
        text = _text_of(_plain(array))
        return _quoted(text.values) if text.needs_quotes else text.values
    except pa.ArrowCapacityError as error:
        raise InvalidInputError(
            f"the JSON text of one batch exceeds 2 GiB, write smaller batches: rows={len(array)}"
        ) from error


def object_texts(
    names: Sequence[str],
    columns: Sequence[pa.Array | pa.ChunkedArray],
    *,
    prefix: str | pa.Array = "",
    suffix: str | pa.Array = "",
) -> pa.Array:
    """One JSON object per row, with a prefix and a suffix.

    Args:
        names: member names in output order; at least one.
        columns: (n,) each; a null value becomes the member ``null``, as Flink writes it.
        prefix: text before every object, or (n,) string array of texts.
        suffix: text after every object, or (n,) string array of texts.

    Returns:
        (n,) string array without nulls.

    Raises:
        InvalidInputError: see :func:`json_texts`.
    """
    try:
        return _object_texts(names, [_plain(column) for column in columns], prefix, suffix)
    except pa.ArrowCapacityError as error:
        raise InvalidInputError(
            f"the JSON text of one batch exceeds 2 GiB, write smaller batches: rows={len(columns[0])}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Text:
    """Texts of one column, null for null; either all still need quotes, or none."""

    values: pa.Array
    needs_quotes: bool = False


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one chunk without storage encodings (dictionaries excepted)."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps several chunks if they do not fit into one
        raise InvalidInputError(f"one batch exceeds 2 GiB, write smaller batches: rows={len(array)}")
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    plain_type = _PLAIN_TYPES.get(array.type.id)
    return array if plain_type is None else array.cast(plain_type(array.type))


_PLAIN_TYPES: Final[dict[int, Callable[[pa.DataType], pa.DataType]]] = {
    pa.string_view().id: lambda _: pa.string(),
    pa.large_string().id: lambda _: pa.string(),
    pa.binary_view().id: lambda _: pa.binary(),
    pa.large_binary().id: lambda _: pa.binary(),
    pa.binary(1).id: lambda _: pa.binary(),
    pa.float16().id: lambda _: pa.float32(),
    pa.date64().id: lambda _: pa.date32(),
    pa.list_(pa.null(), 1).id: lambda t: pa.list_(t.value_field),
    pa.large_list(pa.null()).id: lambda t: pa.list_(t.value_field),
}


def _text_of(array: pa.Array) -> _Text:
    data_type = array.type
    if pa.types.is_string(data_type):
        return _Text(_escaped(array), needs_quotes=True)
    if pa.types.is_dictionary(data_type):
        return _dictionary_text(array)
    for applies, text in _WRITERS:
        if applies(data_type):
            return text(array)
    raise InvalidInputError(f"this type has no JSON form: type={data_type}")


def _dictionary_text(array: pa.Array) -> _Text:
    if len(array.dictionary) > len(array):  # a slice of a larger array: it has fewer values than the dictionary
        return _text_of(_plain(array.dictionary_decode()))
    text = _text_of(_plain(array.dictionary))
    return _Text(text.values.take(array.indices), text.needs_quotes)


def _unchanged_text(array: pa.Array) -> _Text:
    return _Text(array.cast(pa.string()))


def _float_text(array: pa.Array) -> _Text:
    text = array.cast(pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:  # None: no value at all
        return _Text(text)
    infinity = pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"')
    return _Text(pc.if_else(finite, text, pc.if_else(pc.is_nan(array), '"NaN"', infinity)))


def _binary_text(array: pa.Array) -> _Text:
    return _Text(base64_texts(array), needs_quotes=True)


def _date_text(array: pa.Array) -> _Text:
    return _Text(_calendar_texts(array, array.cast(pa.int32()), "D"), needs_quotes=True)


def _timestamp_text(array: pa.Array) -> _Text:
    unit = array.type.unit
    naive = (
        array if array.type.tz is None else array.view(pa.timestamp(unit))
    )  # an instant is stored, and written, in UTC
    texts = _calendar_texts(naive, naive.view(pa.int64()), unit)
    return _Text(texts if array.type.tz is None else _joined([texts, "Z"]), needs_quotes=True)


def _calendar_texts(array: pa.Array, numbers: pa.Array, unit: str) -> pa.Array:
    """Dates or timestamps as text; Arrow's own cast is right only for years of four digits."""
    first, last = _SECONDS_OF_YEAR_0, _SECONDS_OF_YEAR_10000
    if unit == "D":
        first, last = first // _SECONDS_PER_DAY, last // _SECONDS_PER_DAY
    else:
        first, last = first * _UNITS_PER_SECOND[unit], last * _UNITS_PER_SECOND[unit]
    texts = array.cast(pa.string())
    limits = pc.min_max(numbers)
    lowest, highest = limits["min"].as_py(), limits["max"].as_py()
    if lowest is None or (lowest >= first and highest < last):
        return texts
    is_far = np.array([not first <= (number or 0) < last for number in numbers.to_pylist()])
    far = [_far_text(number, unit) for number in numbers.filter(pa.array(is_far)).to_pylist()]
    return pc.replace_with_mask(texts, pa.array(is_far), pa.array(far, pa.string()))


def _far_text(number: int, unit: str) -> str:
    """Text of a date or timestamp with a year of other than four digits (rare sentinel values)."""
    per_day = 1 if unit == "D" else _SECONDS_PER_DAY * _UNITS_PER_SECOND[unit]
    days, in_day = divmod(number, per_day)
    cycle, day_of_cycle = divmod(days + _DAYS_BEFORE_1970, _DAYS_PER_CYCLE)
    date = datetime.date.fromordinal(day_of_cycle + 1)
    year = date.year + 400 * cycle
    text = f"{year:+05d}-{date:%m-%d}" if year > 9999 else f"{year:05d}-{date:%m-%d}"
    if unit == "D":
        return text
    seconds, fraction = divmod(in_day, _UNITS_PER_SECOND[unit])
    digits = "" if unit == "s" else "." + str(_UNITS_PER_SECOND[unit] + fraction)[1:]
    return f"{text} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def _time_text(array: pa.Array) -> _Text:
    limits = pc.min_max(array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64()))
    lowest, highest = limits["min"].as_py(), limits["max"].as_py()
    if lowest is not None and not (lowest >= 0 and highest < _SECONDS_PER_DAY * _UNITS_PER_SECOND[array.type.unit]):
        raise InvalidInputError(
            f"a time lies outside of the day: lowest={lowest} highest={highest} unit={array.type.unit}"
        )
    return _Text(array.cast(pa.string()), needs_quotes=True)


def _struct_text(array: pa.Array) -> _Text:
    names = [field.name for field in array.type]
    texts = (
        _object_texts(names, [_plain(child) for child in array.flatten()], "", "")
        if names
        else pa.repeat("{}", len(array))
    )
    return _Text(_null_where_null(texts, array))


def _list_text(array: pa.Array) -> _Text:
    text = _text_of(_plain(array.flatten()))
    elements = pc.fill_null(_quoted(text.values) if text.needs_quotes else text.values, "null")
    return _Text(_collection_texts(array, pc.list_value_length(array), elements, "[", "]"))


def _map_text(array: pa.Array) -> _Text:
    key_type, item_type = array.type.key_type, array.type.item_type
    entries = array.cast(
        pa.list_(pa.struct([pa.field("key", key_type), pa.field("value", item_type)]))
    )  # a list cast respects slicing
    keys, items = (_plain(child) for child in entries.flatten().flatten())
    members = _joined([_member_names(keys), ":", pc.fill_null(_all_texts(items), "null")])
    return _Text(_collection_texts(array, pc.list_value_length(entries), members, "{", "}"))


def _member_names(keys: pa.Array) -> pa.Array:
    if pa.types.is_nested(keys.type):
        raise InvalidInputError(f"a map key must be a scalar in JSON: type={keys.type}")
    text = _text_of(keys)
    is_quoted_already = pa.types.is_floating(keys.type)
    return _quoted(pc.replace_substring(text.values, '"', "") if is_quoted_already else text.values)


def _all_texts(array: pa.Array) -> pa.Array:
    text = _text_of(array)
    return _quoted(text.values) if text.needs_quotes else text.values


def _collection_texts(array: pa.Array, lengths: pa.Array, elements: pa.Array, opening: str, closing: str) -> pa.Array:
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), elements), ",")
    return _null_where_null(_joined([opening, joined, closing]), array)


_WRITERS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], _Text]]]] = [
    (pa.types.is_integer, _unchanged_text),
    (pa.types.is_boolean, _unchanged_text),
    (pa.types.is_decimal, _unchanged_text),
    (pa.types.is_null, _unchanged_text),
    (pa.types.is_floating, _float_text),
    (pa.types.is_timestamp, _timestamp_text),
    (pa.types.is_date, _date_text),
    (pa.types.is_time, _time_text),
    (pa.types.is_binary, _binary_text),
    (pa.types.is_struct, _struct_text),
    (pa.types.is_list, _list_text),
    (pa.types.is_map, _map_text),
]


def _object_texts(
    names: Sequence[str], columns: Sequence[pa.Array], prefix: str | pa.Array, suffix: str | pa.Array
) -> pa.Array:
    parts: list[pa.Array | str] = [prefix]
    literal = "{"
    for name, column in zip(names, columns, strict=True):
        text = _text_of(column)
        member = literal + json.dumps(name, ensure_ascii=False) + ":"
        if not text.needs_quotes:
            parts += [member, text.values]
            literal = ","
        elif text.values.null_count:
            parts += [member, _quoted(text.values)]
            literal = ","
        else:
            parts += [member + '"', text.values]
            literal = '",'
    parts += [literal.rstrip(",") + "}", suffix]
    return _joined(parts, null_text="null")


def _joined(parts: Sequence[pa.Array | str], *, null_text: str | None = None) -> pa.Array:
    """Element-wise concatenation of the parts; adjacent literals are joined once beforehand."""
    merged: list[pa.Array | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    operands = [
        pa.scalar(part) if isinstance(part, str) else part
        for part in merged
        if not (isinstance(part, str) and part == "")
    ]
    separator = pa.scalar("")
    if null_text is None:
        return pc.binary_join_element_wise(*operands, separator)
    return pc.binary_join_element_wise(*operands, separator, null_handling="replace", null_replacement=null_text)


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined(['"', texts, '"'])


def _null_where_null(texts: pa.Array, array: pa.Array) -> pa.Array:
    return texts if array.null_count == 0 else pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts escaped for a JSON string; only rows that need escaping are copied."""
    offsets, data = value_bytes(texts)
    specials = np.flatnonzero((data < ord(" ")) | (data == ord('"')) | (data == ord("\\")))
    if specials.size == 0:
        return texts
    needs_escape = np.zeros(len(texts), bool)
    needs_escape[np.searchsorted(offsets, specials, side="right") - 1] = True
    mask = pa.array(needs_escape)
    found = np.unique(data[specials]).tolist()
    escaped = texts.filter(mask)
    for special in sorted(
        found, key=lambda byte: byte != ord("\\")
    ):  # the backslash first: other escapes contain backslashes
        escaped = pc.replace_substring(escaped, chr(special), _ESCAPES[special])
    return pc.replace_with_mask(texts, mask, escaped)
