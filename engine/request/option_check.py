"""Options that a user misspelt."""

from collections.abc import Iterable

from filestore.options.option import similar
from lsm.errors import InvalidInputError


def unknown_option(key: str, known: Iterable[str], what: str) -> InvalidInputError:
    """The error for a key that is not known, with the nearest key that is."""
    names = sorted(known)
    close = similar(key, names, 1)
    hint = f"did_you_mean={close[0]}" if close else f"known={', '.join(names)}"
    return InvalidInputError(f"unknown {what}: {key} {hint}")
