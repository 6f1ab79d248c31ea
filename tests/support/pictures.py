"""What has to hold for a picture, measured in the SVG itself, without a browser.

Twice: with Pillow's own font, which draws the PNG, and with the widest letters of the fonts that browsers choose.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from xml.etree import ElementTree as ET

from PIL import ImageFont

from engine.drawing.letters import text_width

SVG = "{http://www.w3.org/2000/svg}"
_NEARLY = 0.5


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture, and what it is."""

    left: float
    top: float
    right: float
    bottom: float
    what: str

    def holds(self, other: "Box") -> bool:
        return (
            self.left <= other.left + _NEARLY
            and self.top <= other.top + _NEARLY
            and self.right >= other.right - _NEARLY
            and self.bottom >= other.bottom - _NEARLY
        )

    def meets(self, other: "Box") -> bool:
        return (
            self.left < other.right - _NEARLY
            and other.left < self.right - _NEARLY
            and self.top < other.bottom - _NEARLY
            and other.top < self.bottom - _NEARLY
        )


def drawn_width(words: str, size: float, *, strong: bool) -> float:
    """With Pillow's font, which has one weight."""
    font: Any = ImageFont.load_default(100)
    return float(font.getlength(words)) * size / 100


def widest_width(words: str, size: float, *, strong: bool) -> float:
    """In any browser."""
    return text_width(words, size, strong=strong)


def labels_of(root: ET.Element, width_of: Callable[..., float] = drawn_width) -> list[Box]:
    """The places of all words, by the metrics of a font."""
    found = []
    for each in root.iter(f"{SVG}text"):
        words, size = each.text or "", float(each.get("font-size", ""))
        width = width_of(words, size, strong="strong" in each.get("class", "").split())
        x, y = float(each.get("x", "")), float(each.get("y", ""))
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[each.get("text-anchor", "start")]
        found.append(Box(left, y - 0.75 * size, left + width, y + 0.1 * size, words))
    return found


def boxes_of(root: ET.Element, *kinds: str) -> list[Box]:
    """The rectangles of which the first class is one of these."""
    found = []
    for each in root.iter(f"{SVG}rect"):
        kind = each.get("class", "").split()[0]
        if kind in kinds:
            x, y, width, height = (float(each.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append(Box(x, y, x + width, y + height, f"{kind} {each.findtext(f'{SVG}title') or ''}"))
    return found


def check_words(svg: str, *kinds: str) -> None:
    """Words are on the page, in the box that they begin in, and none are over others; nor are boxes of these kinds."""
    root = ET.fromstring(svg)
    [page] = boxes_of(root, "page")
    boxes = boxes_of(root, *kinds)
    for width_of in (drawn_width, widest_width):
        check_places(page, boxes, labels_of(root, width_of), width_of.__name__)


def check_places(page: Box, boxes: Sequence[Box], labels: Sequence[Box], who: str) -> None:
    """As ``check_words``, by the one that measured where they are."""
    assert labels
    for label in labels:
        assert page.holds(label), (who, label)
        around = [box for box in boxes if box.meets(label)]
        assert all(box.holds(label) for box in around), (who, label, around)
    for one, other in (*combinations(labels, 2), *combinations(boxes, 2)):
        assert not one.meets(other), (who, one, other)
