"""Options that a user misspelt."""

from collections.abc import Iterable

from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from filestore.options.option import similar
from lsm.errors import InvalidInputError


def unknown_option(key: str, known: Iterable[str], what: str) -> InvalidInputError:
    """The error for a key that is not known, with the nearest key that is."""
    names = sorted(known)
    close = similar(key, names, 1)
    hint = f"did_you_mean={close[0]}" if close else f"known={', '.join(names)}"
    return InvalidInputError(f"unknown {what}: {key} {hint}")


def unknown_write_option(key: str, value: str, known: Iterable[str], what: str = "write option") -> InvalidInputError:
    """The error for a key that no writer knows; an option of readers is called that, with what writers have instead."""
    if key not in (*BATCH_KEYS, *STREAM_KEYS):
        return unknown_option(key, known, what)
    instead = f"branch={value}" if key == "scan.branch" else "leave it out; what is written comes behind the newest one"
    return InvalidInputError(f"an option of reads, not a {what}: {key}={value} fix='{instead}'")
