"""How JSON values become column values: a tree of readings parallel to the type, and the conversion of single values.

The conversion here is the slow path: value by value, with a reason for every refusal. ``json.decoding`` reads
whole batches by the same rules and comes here only for records that it cannot read in bulk.
"""

import base64
import datetime
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm.errors import InvalidInputError

MILLIS_PER_DAY: Final = 86_400_000
UNITS_PER_DAY: Final = {
    "D": 1,
    "s": 86_400,
    "ms": MILLIS_PER_DAY,
    "us": MILLIS_PER_DAY * 10**3,
    "ns": MILLIS_PER_DAY * 10**6,
}
GUESSED_DAYS: Final = 366
"""A number counts coarser units than it is taken for when it gives a moment so near to 1970."""
NON_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_TIME_OF_DAY: Final = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?"
_DATE_TEXT: Final = re.compile(r"([+-]\d{4,12}|\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME_TEXT: Final = re.compile(_TIME_OF_DAY + "Z?", re.ASCII)
_TIMESTAMP_TEXT: Final = re.compile(
    _DATE_TEXT.pattern + "(?:[ T]" + _TIME_OF_DAY + r"(?:Z|([+-])(\d\d)(?::?(\d\d))?)?)?", re.ASCII
)
_DECIMAL_TEXT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_LAST: Final = (1 << 63) - 1
_EXACT: Final = Context(prec=80, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The accepted JSON forms of one column, and its type. What all batches ask of it is found once."""

    type: pa.DataType
    lenient: bool = False  # also accept numbers for dates, times, timestamps and booleans, as CDC connectors write
    epoch_unit: str | None = None  # unit of such numbers: D s ms us ns; None: the column's own unit
    unscaled_scale: int | None = None  # decimals are base64 of their unscaled big-endian bytes, with this scale
    is_unit_guessed: bool = False  # nothing says what a timestamp's number counts: near 1970 the guess is wrong
    takes_infinity: bool = False  # a timestamp may be the text infinity, which becomes the last number, or -infinity
    children: tuple["Reading", ...] = ()  # struct: its fields; list: the element; map: key and value

    @property
    def number_unit(self) -> str | None:
        """Unit of numbers in a date, time or timestamp column; None: numbers are refused."""
        if not self.lenient:
            return None
        return self.epoch_unit or ("D" if pa.types.is_date(self.type) else str(self.type.unit))

    @cached_property
    def leaves(self) -> tuple[tuple[str, "Reading"], ...]:
        """Every scalar and map below this struct, also in lists, with the name of the member that holds it."""
        named = zip((field.name for field in self.type), self.children, strict=True)
        return tuple(leaf for name, child in named for leaf in _leaves_of(name, child))

    @cached_property
    def has_decimals(self) -> bool:
        """Whether there are decimals below this struct, but for those in maps."""
        return any(pa.types.is_decimal(leaf.type) for _, leaf in self.leaves)

    @cached_property
    def number_names(self) -> frozenset[str]:
        """Members below this struct that may hold numbers although their columns do not."""
        return frozenset(name for name, leaf in self.leaves if leaf.may_be_number)

    @property
    def may_be_number(self) -> bool:
        """Whether the column may be written as numbers although it does not hold any."""
        return self.lenient and bool(pa.types.is_boolean(self.type) or pa.types.is_temporal(self.type))

    @cached_property
    def has_maps(self) -> bool:
        """Whether this is a map, or holds one."""
        return pa.types.is_map(self.type) or any(child.has_maps for child in self.children)

    @cached_property
    def is_read_one_by_one(self) -> bool:
        """True for maps inside lists, and map keys other than strings, integers or dates: too rare for a fast path."""
        if pa.types.is_map(self.type):
            key_type = self.type.key_type
            has_plain_keys = pa.types.is_string(key_type) or pa.types.is_integer(key_type) or pa.types.is_date(key_type)
            return not has_plain_keys or self.children[1].is_read_one_by_one
        if pa.types.is_list(self.type):
            return self.has_maps
        return any(child.is_read_one_by_one for child in self.children)


def _leaves_of(name: str, reading: Reading) -> tuple[tuple[str, Reading], ...]:
    if pa.types.is_struct(reading.type):
        return reading.leaves
    return _leaves_of(name, reading.children[0]) if pa.types.is_list(reading.type) else ((name, reading),)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that cannot be read, for the dead letters or an error message."""

    index: int
    reason: str


class UnreadableError(ValueError):
    """A JSON value does not match its reading; caught where the index of the record is known."""


def reading_of(data_type: pa.DataType, *, lenient: bool = False) -> Reading:
    """The default reading of a type.

    Raises:
        InvalidInputError: the type is not a column type of tables.
    """
    if pa.types.is_struct(data_type):
        child_types = [field.type for field in data_type]
    elif pa.types.is_map(data_type):
        child_types = [data_type.key_type, data_type.item_type]
        if pa.types.is_nested(data_type.key_type):
            raise InvalidInputError(f"a map key must be a scalar in JSON: type={data_type}")
    elif pa.types.is_list(data_type):
        child_types = [data_type.value_type]
    elif data_type.id in _CONVERTERS and data_type != pa.time32("s"):
        child_types = []
    else:
        raise InvalidInputError(f"this type cannot be read from JSON: type={data_type}")
    return Reading(
        type=data_type, lenient=lenient, children=tuple(reading_of(child, lenient=lenient) for child in child_types)
    )


def row_reading(schema: pa.Schema, *, lenient: bool = False) -> Reading:
    """Reading of a row as a JSON object."""
    children = tuple(reading_of(field.type, lenient=lenient) for field in schema)
    return Reading(type=pa.struct(list(schema)), lenient=lenient, children=children)


def parsed(text: str) -> Any:
    """One JSON document, numbers exact: int or Decimal.

    Raises:
        UnreadableError: the text is not exactly one JSON document.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_int=_exact_integer)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not one JSON document: {error}") from error


def value_of(value: Any, reading: Reading) -> Any:
    """Column value of a parsed JSON value, as ``pa.array`` accepts it for ``reading.type``.

    Raises:
        UnreadableError: the value does not match the reading; the message says where and why.
    """
    return None if value is None else _CONVERTERS[reading.type.id](value, reading)


def _exact_integer(text: str) -> int | Decimal:
    return Decimal(text) if text == "-0" else int(text)  # only a Decimal keeps the sign that a float column needs


def _refusal(value: Any, reading: Reading, detail: str = "") -> UnreadableError:
    found = repr(value) if not isinstance(value, Decimal) else str(value)
    shown = found if len(found) <= 60 else found[:57] + "..."
    return UnreadableError(f"expected={reading.type} found={shown}" + (f" ({detail})" if detail else ""))


def _boolean(value: Any, reading: Reading) -> bool:
    if isinstance(value, bool):
        return value
    if reading.lenient and _whole(value) in (0, 1):
        return bool(value)
    raise _refusal(value, reading)


def _integer(value: Any, reading: Reading) -> int:
    number = _whole(value)
    if number is None:
        raise _refusal(value, reading)
    limit = 1 << (reading.type.bit_width - 1)
    if not -limit <= number < limit:
        raise _refusal(value, reading, "out of range")
    return number


def _whole(value: Any) -> int | None:
    """The number, if it is written as an integer."""
    if isinstance(value, Decimal):
        return 0 if value.is_zero() and value.as_tuple().exponent == 0 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: Any, reading: Reading) -> float:
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _refusal(value, reading)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isinstance(value, float) and not np.isfinite(number):
        raise _refusal(value, reading, "out of range")
    return number


def _text(value: Any, reading: Reading) -> str:
    if not isinstance(value, str):
        raise _refusal(value, reading)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(value, reading, "half of a surrogate pair") from None
    return value


def _bytes(value: Any, reading: Reading) -> bytes:
    try:
        return base64.b64decode(_text(value, reading), validate=True)
    except ValueError as error:
        raise _refusal(value, reading, f"not base64: {error}") from error


def _decimal(value: Any, reading: Reading) -> Decimal:
    if reading.lenient and isinstance(value, dict) and isinstance(value.get("scale"), int) and "value" in value:
        return _decimal(
            value["value"], replace(reading, unscaled_scale=value["scale"])
        )  # io.debezium.data.VariableScaleDecimal
    if reading.unscaled_scale is not None:
        unscaled = int.from_bytes(_bytes(value, reading), "big", signed=True)
        return _fitted(Decimal(unscaled).scaleb(-reading.unscaled_scale, _EXACT), reading)
    if isinstance(value, str):
        if not _DECIMAL_TEXT.fullmatch(value):
            raise _refusal(value, reading, "not a number")
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        raise _refusal(value, reading)
    return _fitted(Decimal(value), reading)


def _fitted(value: Decimal, reading: Reading) -> Decimal:
    data_type = reading.type
    try:
        with localcontext(_EXACT):
            fitted = value.quantize(Decimal((0, (1,), -data_type.scale)))
    except (Inexact, InvalidOperation):
        raise _refusal(value, reading, "more digits than the column has") from None
    if len(fitted.as_tuple().digits) > data_type.precision:
        raise _refusal(value, reading, "more digits than the column has")
    return fitted


def _date(value: Any, reading: Reading) -> int:
    unit, number = reading.number_unit, _whole(value)
    if unit is not None and number is not None:
        days, rest = divmod(number, UNITS_PER_DAY[unit])
        if rest or not -(1 << 31) <= days < 1 << 31:
            raise _refusal(value, reading, f"not a whole day: unit={unit}" if rest else "out of range")
        return days
    match = _DATE_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refusal(value, reading)
    return _epoch_day(match, reading)


def _time(value: Any, reading: Reading) -> int:
    unit, number = reading.number_unit, _whole(value)
    if unit is not None and number is not None:
        if not 0 <= number < UNITS_PER_DAY[unit]:
            raise _refusal(value, reading, f"outside of the day: unit={unit}")
        return _whole_millis(number * MILLIS_PER_DAY, UNITS_PER_DAY[unit], value, reading)
    match = _TIME_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refusal(value, reading)
    return _whole_millis(_nanos_of_day(match.groups(), value, reading), 10**6, value, reading)


def _whole_millis(number: int, per_milli: int, value: Any, reading: Reading) -> int:
    """Of a log, finer digits are cut off as Flink does; a source refuses them."""
    millis, rest = divmod(number, per_milli)
    if rest and reading.lenient:
        raise _refusal(value, reading, "finer than a millisecond, TIME holds no more")
    return millis


def _timestamp(value: Any, reading: Reading) -> int:
    if reading.takes_infinity and value in ("infinity", "-infinity"):
        return _LAST if value == "infinity" else -_LAST
    unit, number = reading.number_unit, _whole(value)
    if unit is not None and number is not None:
        nanos = number * (UNITS_PER_DAY["ns"] // UNITS_PER_DAY[unit])
        if reading.is_unit_guessed and 0 < abs(nanos) < GUESSED_DAYS * UNITS_PER_DAY["ns"]:
            raise _refusal(value, reading, f"without a schema part {unit} is a wrong guess: set epoch-units")
    else:
        match = _TIMESTAMP_TEXT.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise _refusal(value, reading)
        hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()[3:]
        seconds_east = (int(zone_hours or 0) * 60 + int(zone_minutes or 0)) * (-60 if sign == "-" else 60)
        nanos = _epoch_day(match, reading) * UNITS_PER_DAY["ns"] - seconds_east * 10**9
        nanos += _nanos_of_day((hour, minute, second, fraction), value, reading)
    units, rest = divmod(nanos, UNITS_PER_DAY["ns"] // UNITS_PER_DAY[reading.type.unit])
    if rest:
        raise _refusal(value, reading, "finer than the column's unit")
    if not -(1 << 63) <= units < 1 << 63:
        raise _refusal(value, reading, "out of range")
    return units


def _epoch_day(match: re.Match[str], reading: Reading) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    cycle = (year - 1) // 400  # the calendar repeats after 400 years of 146097 days
    try:
        within_cycle = datetime.date(year - cycle * 400, month, day).toordinal()
    except ValueError as error:
        raise _refusal(match.string, reading, str(error)) from error
    return within_cycle + cycle * 146097 - datetime.date(1970, 1, 1).toordinal()


def _nanos_of_day(groups: tuple[str | Any, ...], text: str, reading: Reading) -> int:
    hour, minute, second = (int(group or 0) for group in groups[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise _refusal(text, reading, "no such time of day")
    return (hour * 3600 + minute * 60 + second) * 10**9 + int((groups[3] or "").ljust(9, "0"))


def _struct(value: Any, reading: Reading) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refusal(value, reading, "not an object")
    row = {}
    for field, child in zip(reading.type, reading.children, strict=True):
        try:
            row[field.name] = value_of(value.get(field.name), child)
        except UnreadableError as error:
            raise UnreadableError(f"{field.name}: {error}") from error
    return row


def _list(value: Any, reading: Reading) -> list[Any]:
    if not isinstance(value, list):
        raise _refusal(value, reading, "not an array")
    return [value_of(element, reading.children[0]) for element in value]


def _map(value: Any, reading: Reading) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise _refusal(value, reading, "not an object")
    key_reading, item_reading = reading.children
    return [(_key(key, key_reading), value_of(item, item_reading)) for key, item in value.items()]


def _key(text: str, reading: Reading) -> Any:
    """Map keys are always JSON strings that contain the JSON text of the key."""
    if pa.types.is_boolean(reading.type) and text in ("true", "false"):
        return text == "true"
    if pa.types.is_integer(reading.type) or pa.types.is_floating(reading.type):
        return value_of(text if text in NON_FINITE else _number_in(text, reading), reading)
    return value_of(text, reading)


def _number_in(text: str, reading: Reading) -> Any:
    try:
        return parsed(text)
    except UnreadableError:
        raise _refusal(text, reading, "not a number") from None


_CONVERTERS: Final[dict[int, Callable[[Any, Reading], Any]]] = {
    pa.bool_().id: _boolean,
    **{integer.id: _integer for integer in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float32().id: _float,
    pa.float64().id: _float,
    pa.string().id: _text,
    pa.binary().id: _bytes,
    pa.decimal128(1).id: _decimal,
    pa.date32().id: _date,
    pa.time32("ms").id: _time,
    pa.timestamp("us").id: _timestamp,
    pa.struct([]).id: _struct,
    pa.list_(pa.null()).id: _list,
    pa.map_(pa.string(), pa.null()).id: _map,
}
