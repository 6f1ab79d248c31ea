"""Amounts and times as people say them."""

import datetime as dt
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """A number of bytes."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def count_text(count: int) -> str:
    """A whole number, with separators."""
    return f"{count:,}"


def time_text(time_ms: int) -> str:
    """A time of the past, to the second, in UTC."""
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
