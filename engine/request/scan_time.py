"""The time that a reader asks for, as text or as a number."""

import datetime as dt

from lsm.errors import InvalidInputError


def scan_time_ms(text: str | None, number: int | None) -> int | None:
    """Epoch milliseconds of ``scan.timestamp`` or of ``log.scan.timestamp-mills``; None when neither is given.

    Args:
        text: ISO 8601, in UTC when it names no zone; digits alone are epoch milliseconds.
        number: epoch milliseconds.

    Raises:
        InvalidInputError: both are given, or the text is not a time.
    """
    if text is None:
        return number
    if number is not None:
        raise InvalidInputError(
            f"the time is given twice: scan.timestamp={text} log.scan.timestamp-mills={number} fix=remove one"
        )
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"not a time: scan.timestamp={text} example='2024-02-29 12:30:00' (UTC), '2024-02-29T12:30:00+01:00' "
            "or epoch milliseconds"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
