"""Arguments of procedures: numbers from programs, text from SQL and the shell."""

import re
from collections.abc import Collection

from filestore.options.parsing import duration_ms
from filestore.types.text_values import LiteralMismatchError, parse_moment
from lsm.errors import InvalidInputError

Duration = int | str
"""Milliseconds, or text such as "7 d"."""
MomentText = int | str
"""Epoch milliseconds, or text such as "2024-01-31 12:30:00", in UTC unless it names a zone."""


def parse_duration_ms(argument: str, value: Duration) -> int:
    """Milliseconds. Raises: InvalidInputError naming the argument."""
    try:
        return duration_ms(str(value))
    except ValueError as error:
        raise InvalidInputError(f"not a duration: argument={argument} value={value!r} {error}") from error


def moment_ms(argument: str, value: MomentText) -> int:
    """Epoch milliseconds. Raises: InvalidInputError naming the argument."""
    text = str(value).strip()
    if text.isascii() and text.isdigit() and len(text) > 8:  # 20240131 is a date without dashes
        return int(text)
    try:
        return parse_moment(text) // 1_000_000
    except LiteralMismatchError as error:
        raise InvalidInputError(
            f"not a time: argument={argument} value={value!r} fix='write 2024-01-31 12:30:00 or epoch milliseconds'"
        ) from error


def names_of(argument: str, text: str) -> list[str]:
    """Comma-separated names. Raises: InvalidInputError naming the argument."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise InvalidInputError(f"a name is empty: argument={argument} value={text!r}")
    return found


def existing_names(argument: str, text: str, existing: Collection[str]) -> list[str]:
    """One name that exists as it is given, commas included, else comma-separated ones.

    Raises: InvalidInputError naming the argument.
    """
    return [text] if text in existing else names_of(argument, text)


def pattern(argument: str, text: str) -> re.Pattern[str]:
    """A regular expression. Raises: InvalidInputError naming the argument."""
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidInputError(
            f"not a regular expression: argument={argument} value={text!r} error={error}"
        ) from error
