"""What has to hold for a picture, measured in the SVG itself and with a font: Pillow's own, which draws the PNG."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any
from xml.etree import ElementTree as ET

from PIL import ImageFont

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


def labels_of(root: ET.Element) -> list[Box]:
    """The places of all words, by the metrics of the font."""
    found = []
    for each in root.iter(f"{SVG}text"):
        words, size = each.text or "", float(each.get("font-size", ""))
        font: Any = ImageFont.load_default(100)
        width = font.getlength(words) * size / 100
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
    labels, boxes = labels_of(root), boxes_of(root, *kinds)
    assert labels
    for label in labels:
        assert page.holds(label), label
        around = [box for box in boxes if box.meets(label)]
        assert all(box.holds(label) for box in around), (label, around)
    for one, other in combinations(labels, 2):
        assert not one.meets(other), (one, other)
    for one, other in combinations(boxes, 2):
        assert not one.meets(other), (one, other)
