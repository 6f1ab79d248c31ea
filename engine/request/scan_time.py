"""The time that a reader asks for, as text or as a number."""

from filestore.types.text_values import LiteralMismatchError, parse_moment
from lsm.errors import InvalidInputError


def scan_time_ms(text: str) -> int:
    """Epoch milliseconds of ``scan.timestamp``.

    Args:
        text: ISO 8601, in UTC when it names no zone; digits alone are epoch milliseconds.

    Raises:
        InvalidInputError: it is not a time.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return parse_moment(text) // 1_000_000
    except LiteralMismatchError:
        raise InvalidInputError(
            f"not a time: scan.timestamp={text} example='2024-02-29 12:30:00' (UTC), '2024-02-29T12:30:00+01:00' "
            "or epoch milliseconds"
        ) from None
