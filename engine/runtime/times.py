"""Times as text. Every time is epoch milliseconds, every text is in UTC."""

import datetime as dt
from typing import Final

_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


def time_text(time_ms: int) -> str:
    """``2024-02-29 12:30:00Z``: to the second, for terminals and drawings."""
    return _utc(time_ms).strftime("%Y-%m-%d %H:%M:%SZ")


def sql_time_text(time_ms: int) -> str:
    """``2024-02-29 12:30:00.000``: a SQL timestamp without a zone, in the results of procedures."""
    return _utc(time_ms).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def iso_time_text(time_ms: int) -> str:
    """``2024-02-29T12:30:00.000Z``: ISO 8601, which the option ``scan.timestamp`` accepts."""
    return _utc(time_ms).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _utc(time_ms: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=time_ms)
