"""The zone of wall clocks: when a day begins, and what a period is called."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::([0-5]\d))?")
_MOST_HOURS: Final = 18  # as in Java


@dataclass(frozen=True, slots=True)
class TimeZone:
    """A zone by the name that users gave."""

    name: str
    rules: tzinfo

    def local_ms(self, epoch_ms: int) -> int:
        """The wall clock at a moment, read as if it were UTC."""
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
        offset = moment.astimezone(self.rules).utcoffset() or timedelta()
        return epoch_ms + offset // timedelta(milliseconds=1)

    def epoch_ms(self, local_ms: int) -> int:
        """The moment of a wall clock; of two the first, and of a skipped one the moment of its former offset."""
        wall = (_EPOCH + timedelta(milliseconds=local_ms)).replace(tzinfo=self.rules)
        return local_ms - (wall.utcoffset() or timedelta()) // timedelta(milliseconds=1)

    def __str__(self) -> str:
        return self.name


UTC_ZONE: Final = TimeZone("UTC", UTC)


def parse_time_zone(text: str) -> TimeZone:
    """The zone of a name, as ``Europe/Berlin``, ``UTC`` or ``+02:00``. Raises: ValueError with what is expected."""
    name = text.strip()
    if name.upper() in ("UTC", "GMT", "Z"):
        return TimeZone(name, UTC)
    match = _OFFSET.fullmatch(name)
    if match is not None and int(match[2]) <= _MOST_HOURS:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return TimeZone(name, timezone(-offset if match[1] == "-" else offset))
    try:
        return TimeZone(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected='a time zone, as Europe/Berlin, UTC or +02:00'") from error
