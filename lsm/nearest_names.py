"""The names that an error about an unknown one shows: the one that was meant, all of a few, the nearest of many."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from heapq import nlargest
from typing import Final

_MOST: Final = 5
_LIKENESS: Final = 0.6  # of two names, from 0 to 1, with which one may be meant by the other


def close_names(name: str, known: Iterable[str], most: int = 1, *, likeness: float = _LIKENESS) -> list[str]:
    """The known names that may be meant by an unknown one, the nearest first; one that differs by case alone is meant.

    Args:
        name: the unknown one.
        known: those that there are.
        most: how many are given at most.
        likeness: how like a name is at least, from 0 to 1.
    """
    names = list(known)
    alike = [each for each in names if each.lower() == name.lower()]
    return alike[:most] or get_close_matches(name, names, most, likeness)


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = _LIKENESS) -> str:
    """`` did_you_mean=...`` with the name that may be meant, see ``close_names``, else nothing."""
    close = close_names(name, known, likeness=likeness)
    return f" did_you_mean={close[0]}" if close else ""


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
