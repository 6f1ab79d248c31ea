"""Widths of text, before any font is known: an upper bound over the fonts that browsers and Pillow choose for it.

A box that is as wide as this says holds its text in Inter, Segoe UI, Helvetica, Arial, DejaVu Sans and Pillow's own.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

_PLAIN: Final[Mapping[float, str]] = {
    0.3: "'Iijl",
    0.35: " ,./:;\\|·",
    0.4: "()-[]ft",
    0.45: "!r",
    0.5: '"_`–',
    0.55: "?Jcsz",
    0.6: "*FLkvxy",
    0.65: "$0123456789EPSTYabdeghnopqu{}",
    0.7: "ABCKRVXZ",
    0.75: "NU",
    0.8: "&DGHOQ",
    0.85: "#+<=>^w~×→✓",
    0.9: "M",
    1.0: "%@Wm…",
}
_STRONG: Final[Mapping[float, str]] = {
    0.35: " 'ijl",
    0.4: ",./:;I\\|·",
    0.45: "-f",
    0.5: "!()[]`rt",
    0.55: '"',
    0.6: "?_csz–",
    0.65: "*JLx",
    0.7: "$0123456789EFTaekovy",
    0.75: "PSYZbdghnpqu{}",
    0.8: "ABCKRVX",
    0.85: "#+<=>DGHNU^~×→✓",
    0.9: "&OQ",
    0.95: "w",
    1.0: "@M…",
    1.05: "%m",
    1.15: "W",
}
_BREAKS: Final = frozenset(" ._-/$#@,")  # a line may end behind one


def _by_letter(groups: Mapping[float, str]) -> dict[str, float]:
    return {letter: width for width, letters in groups.items() for letter in letters}


_WIDTHS: Final = (_by_letter(_PLAIN), _by_letter(_STRONG))  # plain, strong; in font sizes
_OTHER: Final = 1.1  # of a letter that is not listed: as wide as a square


def text_width(words: str, size: float, *, strong: bool = False) -> float:
    """An upper bound of a text's width.

    Args:
        words: one line.
        size: of the font, in pixels.
        strong: font weight 600.
    """
    return round(size * sum(_letter_widths(words, strong=strong)), 6)  # in whichever order letters are added up


def shortened(words: str, room: float, size: float, *, strong: bool = False) -> str:
    """As much of a text as fits into ``room`` pixels, with an ellipsis in the middle; nothing if not even that fits."""
    if text_width(words, size, strong=strong) <= room:
        return words
    widths = [size * each for each in _letter_widths(words, strong=strong)]
    left = room - text_width("…", size, strong=strong)
    if left < 0:
        return ""
    head, tail = 0, len(words)
    while True:  # a letter of the head and one of the tail in turn
        at_head = head <= len(words) - tail
        left -= widths[head if at_head else tail - 1]
        if left < 0:
            return f"{words[:head]}…{words[tail:]}"
        head, tail = (head + 1, tail) if at_head else (head, tail - 1)


def wrapped(words: str, room: float, size: float, *, strong: bool = False) -> list[str]:
    """The lines of a text, none wider than ``room`` pixels: broken behind signs and spaces, else between letters."""
    return _lines(words, _ends(words, room / size, strong=strong))


def balanced(words: str, room: float, size: float, *, strong: bool = False) -> list[str]:
    """As many lines as ``wrapped`` gives, about equally wide, where no name has to be broken between letters for it."""
    widths = list(_letter_widths(words, strong=strong))
    ends = _ends(words, room / size, strong=strong)
    narrower = sum(widths) / len(ends)
    while narrower * size < room:
        found = _ends(words, narrower, strong=strong)
        if len(found) == len(ends) and all(words[at - 1] in _BREAKS for at in found[:-1]):
            return _lines(words, found)
        narrower += 0.5
    return _lines(words, ends)


def widest(lines: Iterable[str], size: float, *, strong: bool = False) -> float:
    """Width of the widest line; 0 for none."""
    return max((text_width(each, size, strong=strong) for each in lines), default=0.0)


def _ends(words: str, room: float, *, strong: bool) -> list[int]:
    """Where the lines of a text end; at least one."""
    ends = [0]
    while ends[-1] < len(words):
        end = _fitting(words, ends[-1], room, strong=strong)
        if end < len(words):
            end = next((at for at in range(end, ends[-1] + 1, -1) if words[at - 1] in _BREAKS), end)
        ends.append(end)
    return ends[1:] or [0]


def _lines(words: str, ends: Sequence[int]) -> list[str]:
    return [words[start:end].strip(" ") for start, end in pairwise([0, *ends])]


def _fitting(words: str, start: int, room: float, *, strong: bool) -> int:
    """End of the longest part from ``start`` that fits; at least one letter."""
    for at, width in enumerate(_letter_widths(words[start:], strong=strong), start=start):
        room -= width
        if room < 0 and at > start:
            return at
    return len(words)


def _letter_widths(words: str, *, strong: bool) -> Iterator[float]:
    known = _WIDTHS[strong]
    for letter in words:
        width = known.get(letter)
        if width is None:
            width = 0.0 if unicodedata.combining(letter) else _base_width(letter, known)
        yield width


def _base_width(letter: str, known: Mapping[str, float]) -> float:
    """Width of a letter without its accents."""
    return known.get(unicodedata.normalize("NFD", letter)[0], _OTHER)
