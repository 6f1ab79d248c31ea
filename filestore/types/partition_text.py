"""The text form of partition values in directory names."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import numpy as np

from filestore.options.table_options import TableOptions
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType
from lsm.errors import InvalidInputError


def partition_text(value: object, data_type: DataType, options: TableOptions, *, legacy: bool | None = None) -> str:
    """The unescaped text of a partition value; ``legacy`` overrides the table's date format."""
    is_legacy = options.partition_legacy_name if legacy is None else legacy
    try:
        text = "" if value is None else _text(value, data_type, legacy=is_legacy)
    except OverflowError as error:
        raise InvalidInputError(f"year is out of 1 to 9999: value={value!r} type={data_type}") from error
    return text if any(char not in _JAVA_WHITESPACE for char in text) else options.partition_default_name


# Character.isWhitespace: not the no-break spaces, which Python's isspace counts.
_JAVA_WHITESPACE: Final = frozenset(
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000"
    + "".join(map(chr, [*range(0x2000, 0x2007), *range(0x2008, 0x200B)]))
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _text(value: object, data_type: DataType, *, legacy: bool) -> str:
    root = data_type.root
    if root in TEXT_ROOTS:
        return str(value)
    if root == "BOOLEAN":
        return "true" if value else "false"
    if root in INTEGER_ROOTS and isinstance(value, int):
        return str(value)
    if root == "DECIMAL" and isinstance(value, Decimal):
        return f"{value:f}"
    if root in ("FLOAT", "DOUBLE") and isinstance(value, float | int):
        return _java_float(np.float32(value) if root == "FLOAT" else np.float64(value))
    if root == "DATE" and isinstance(value, int):
        return str(value) if legacy else _date_text(_EPOCH + timedelta(days=value))
    if root == "TIME" and isinstance(value, int):
        return str(value) if legacy else _time_text(value, data_type.precision or 0)
    if root in TIMESTAMP_ROOTS and isinstance(value, int):
        return _timestamp_text(value, data_type, legacy=legacy)
    raise InvalidInputError(f"value cannot be part of a partition directory: value={value!r} type={data_type}")


def _timestamp_text(value: int, data_type: DataType, *, legacy: bool) -> str:
    """Local date and time in UTC (Java uses the session time zone when legacy names are off)."""
    precision = data_type.precision or 0
    per_second = 10 ** (3 if precision <= 3 else 6 if precision <= 6 else 9)
    seconds, fraction = divmod(value, per_second)
    moment = _EPOCH + timedelta(seconds=seconds)
    nanos = f"{fraction * (10**9 // per_second):09d}"
    date = _date_text(moment)
    minutes = f"{moment.hour:02d}:{moment.minute:02d}"
    if not legacy:
        digits = nanos.rstrip("0").ljust(precision, "0")
        return f"{date} {minutes}:{moment.second:02d}" + (f".{digits}" if digits else "")
    if moment.second == 0 and int(nanos) == 0:
        return f"{date}T{minutes}"
    while nanos.endswith("000"):
        nanos = nanos.removesuffix("000")
    return f"{date}T{minutes}:{moment.second:02d}" + (f".{nanos}" if nanos else "")


def _date_text(moment: datetime) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"


def _time_text(millis: int, precision: int) -> str:
    seconds, fraction = divmod(millis, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if precision == 0:
        return text
    return f"{text}.{f'{fraction:03d}'[:precision].rstrip('0') or '0'}"


def _java_float(value: np.floating) -> str:
    """Java's Double.toString: plain notation from 10**-3 to below 10**7, else scientific."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    sign = "-" if np.signbit(value) else ""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return sign + np.format_float_positional(magnitude, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(magnitude, unique=True, trim="0").split("e")
    return f"{sign}{mantissa}E{int(exponent)}"
