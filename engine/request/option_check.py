"""Options that a user misspelt."""

import difflib
from collections.abc import Iterable

from lsm.errors import InvalidInputError


def unknown_option(key: str, known: Iterable[str], what: str) -> InvalidInputError:
    """The error for a key that nobody knows, with the nearest key that somebody does."""
    names = sorted(known)
    close = difflib.get_close_matches(key, names, 1)
    hint = f"did_you_mean={close[0]}" if close else f"known={', '.join(names)}"
    return InvalidInputError(f"unknown {what}: {key} {hint}")
