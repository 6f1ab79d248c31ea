"""The names that an error about an unknown one shows: all of a few, the nearest of many."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Final

_MOST: Final = 5


def names_text(kind: str, wanted: str, names: Iterable[str]) -> str:
    """``tags=['a', 'b']``, or ``nearest_tags=['eod-1', ...] tag_count=1000``.

    Args:
        kind: the plural, as ``tags`` or ``branches``.
        wanted: the unknown name.
        names: those that there are.
    """
    known = list(names)
    if len(known) <= _MOST:
        return f"{kind}={known}"
    matcher = SequenceMatcher(b=wanted.lower(), autojunk=False)

    def likeness(name: str) -> float:
        matcher.set_seq1(name.lower())
        return matcher.ratio()

    return f"nearest_{kind}={nlargest(_MOST, known, key=likeness)} count={len(known)}"


def some_text(kind: str, names: Iterable[object]) -> str:
    """``branches=['a', 'b']``, or the first of many and how many there are: for errors that none of them answers."""
    known = list(names)
    more = f" count={len(known)}" if len(known) > _MOST else ""
    return f"{kind}={known[:_MOST]}{more}"
