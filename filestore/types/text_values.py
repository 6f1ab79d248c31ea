"""Parsing of numbers, dates, times and timestamps from text."""

import math
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final

NANOS_PER_UNIT: Final = {"ms": 1_000_000, "us": 1_000, "ns": 1}
NANOS_PER_SECOND: Final = 1_000_000_000
NANOS_PER_DAY: Final = 86_400 * NANOS_PER_SECOND

_DAY: Final = r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE: Final = r"(?P<zone>Z|UTC|[+-]\d{1,2}(?::?\d{2})?)"
_MOMENT: Final = re.compile(rf"{_DAY}(?:[ T]{_CLOCK}\s*{_ZONE}?)?", re.IGNORECASE)
_TIME: Final = re.compile(_CLOCK)
_DAYS_TO_EPOCH: Final = date(1970, 1, 1).toordinal()
_FLOAT_WORDS: Final = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Moment:
    """A DATE, TIMESTAMP or TIME literal: nanoseconds since the epoch, or of the day."""

    nanos: int


class LiteralMismatchError(ValueError):
    """A literal cannot be compared with a column; the message gives the reason and a fix. Internal to the parser."""


def parse_float(text: str) -> float:
    """A floating point number, ``NaN`` and ``Infinity`` included. Raises: LiteralMismatchError."""
    word = text.strip().lower().replace("infinity", "inf")
    if word in _FLOAT_WORDS:
        return _FLOAT_WORDS[word]
    try:
        return float(Decimal(word))
    except InvalidOperation:
        raise LiteralMismatchError(f"text is not a number: text={text!r}") from None


def parse_moment(text: str) -> int:
    """Epoch nanoseconds of ``2024-01-31``, ``2024-01-31 12:30:00.5`` or the like. Raises: LiteralMismatchError."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise LiteralMismatchError(f"text is not a date or timestamp: text={text!r} expected='2024-01-31 12:30:00.123'")
    try:
        days = _days(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError as error:
        raise LiteralMismatchError(f"no such day: text={text!r}") from error
    nanos = days * NANOS_PER_DAY
    if match["hour"]:
        nanos += _clock_nanos(match, text) - _zone_nanos(match["zone"])
    return nanos


def _days(year: int, month: int, day: int) -> int:
    """Epoch day, also beyond year 9999 where Python's calendar ends: it repeats every 400 years."""
    cycles, year_in_cycle = divmod(year - 1, 400)
    return date(year_in_cycle + 1, month, day).toordinal() + cycles * 146_097 - _DAYS_TO_EPOCH


def parse_time(text: str) -> int:
    """Nanoseconds of the day of ``12:30:00.5``. Raises: LiteralMismatchError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise LiteralMismatchError(f"text is not a time of day: text={text!r} expected='12:30:00.123'")
    return _clock_nanos(match, text)


def _clock_nanos(match: re.Match[str], text: str) -> int:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise LiteralMismatchError(f"no such time of day: text={text!r}")
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    return (hour * 3_600 + minute * 60 + second) * NANOS_PER_SECOND + fraction


def _zone_nanos(zone: str | None) -> int:
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    seconds = (hours * 3_600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    return seconds * NANOS_PER_SECOND
