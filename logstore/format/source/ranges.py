"""Values that a column cannot hold: refused, null, or the nearest value of the column."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.json.arrow_bytes import flags
from lsm.keys.words import BoolArray

OutOfRange = Literal["fail", "null", "clamp"]

_WIDE: Final = Context(prec=200_000, rounding=ROUND_HALF_EVEN)  # more digits than PostgreSQL's numeric has
_FIRST_DAY: Final = -719_162  # 0001-01-01
_LAST_DAY: Final = 2_932_896  # 9999-12-31
_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_GREGORIAN_DAY: Final = -141_427  # 1582-10-15
_CENTURIES: Final = np.arange(16)
_BEHIND: Final = _CENTURIES - _CENTURIES // 4 - 2  # days of the Julian calendar behind the Gregorian one, by century
_MARCHES: Final = np.array([np.datetime64(f"{100 * each:04}-03-01", "D") for each in range(1, 16)]).astype(np.int64)
_BEGINS: Final = _MARCHES + _BEHIND[1:]  # where each century but the first begins in the Julian calendar


@dataclass(frozen=True, slots=True)
class Refusal:
    """Rows that cannot be converted, for one reason."""

    mask: BoolArray  # (n,)
    reason: str


@dataclass(frozen=True, slots=True)
class Converted:
    """Converted values, null where they were refused."""

    values: pa.Array  # (n,)
    refused: Sequence[Refusal] = ()


def of_julian_calendar(moments: pa.Array) -> pa.Array:
    """Timestamps whose days before 1582-10-15 were taken for those of the Julian calendar, as the days that they were.

    Java's older classes of time do so: 1500-03-01 comes as 1500-03-11. The ten days before 1582-10-15 come as those
    from it on, and stay so.

    Args:
        moments: (n,) of s, ms or us.
    """
    least = pc.min(moments.view(pa.int64())).as_py()
    per_day = _PER_DAY[moments.type.unit]
    if least is None or least >= _GREGORIAN_DAY * per_day:
        return moments
    numbers = moments.view(pa.int64()).fill_null(0).to_numpy()
    behind = _BEHIND[np.searchsorted(_BEGINS * per_day, numbers, side="right")]
    moved = np.where(numbers < _GREGORIAN_DAY * per_day, numbers - behind * per_day, numbers)
    return pa.array(moved, pa.int64(), mask=~flags(moments.is_valid())).view(moments.type)


def in_range(values: pa.Array, *, rule: OutOfRange, is_julian: bool = False) -> Converted:
    """Dates and timestamps within the years 1 to 9999; what lies outside is infinity, or no date of a calendar.

    Args:
        values: date32, or timestamps of s, ms or us.
        rule: ``clamp`` gives the first or the last moment of these years.
        is_julian: see ``of_julian_calendar``.
    """
    values = of_julian_calendar(values) if is_julian else values
    is_date = pa.types.is_date(values.type)
    numbers = values.view(pa.int32() if is_date else pa.int64())
    per_day = 1 if is_date else _PER_DAY[values.type.unit]
    low, high = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is None or (extremes["min"] >= low and extremes["max"] <= high):
        return Converted(values)
    outside = flags(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)))
    if rule == "clamp":
        clamped = pc.min_element_wise(pc.max_element_wise(numbers, low, skip_nulls=False), high, skip_nulls=False)
        return Converted(clamped.cast(numbers.type).view(values.type))
    kept = pc.if_else(pa.array(outside), pa.scalar(None, values.type), values)
    if rule == "null":
        return Converted(kept)
    reason = f"expected={values.type} found=a moment outside of the years 1 to 9999, as infinity (out of range)"
    return Converted(kept, (Refusal(outside, f"{reason} fix='set out-of-range to null or clamp'"),))


def numbers_of_texts(texts: pa.Array, target: pa.DataType, *, rule: OutOfRange) -> Converted:
    """Decimals or floats from their texts.

    Args:
        texts: numbers; nulls stay null.
        target: a decimal, which takes a value only with all its digits, or a float.
        rule: ``clamp`` rounds digits after the point half to even, and gives the largest or smallest value of the
            column for numbers beyond it; NaN has no nearest value and becomes null.
    """
    if pa.types.is_floating(target):
        return Converted(texts.cast(pa.float64()).cast(target))
    try:
        wide = texts.cast(pa.decimal256(76, target.scale))
        return Converted(wide.cast(target))
    except pa.ArrowInvalid:
        return _one_by_one(texts, target, rule)


def _one_by_one(texts: pa.Array, target: pa.Decimal128Type, rule: OutOfRange) -> Converted:
    found: list[Decimal | None] = []
    refused: dict[str, list[int]] = {}
    for row, text in enumerate(texts.to_pylist()):
        value = None if text is None else _fitted(text, target, rule)
        if isinstance(value, str):
            refused.setdefault(value, []).append(row)
        found.append(None if isinstance(value, str) else value)
    masks = ((reason, np.isin(np.arange(len(texts)), rows)) for reason, rows in refused.items())
    return Converted(pa.array(found, target), tuple(Refusal(mask, reason) for reason, mask in masks))


def _fitted(text: str, target: pa.Decimal128Type, rule: OutOfRange) -> Any:
    """The decimal, None, or the reason why there is none."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    reason = f"expected={target} found={shown} (more digits than the column has)"
    try:
        value = Decimal(text)
    except InvalidOperation:
        return f"expected={target} found={shown!r} (not a number)"
    if value.is_nan():
        return reason if rule == "fail" else None
    most = Decimal((0, (9,) * target.precision, -target.scale))
    is_exact = value.is_finite() and -most <= value <= most and _digits_after_point(value) <= target.scale
    if is_exact or rule == "clamp":
        bounded = max(-most, min(most, value))
        return _rounded(bounded, target.scale)
    return None if rule == "null" else reason


def _digits_after_point(value: Decimal) -> int:
    exponent = value.normalize(_WIDE).as_tuple().exponent
    assert isinstance(exponent, int)  # it is finite
    return max(0, -exponent)


def _rounded(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal((0, (1,), -scale)), context=_WIDE)
