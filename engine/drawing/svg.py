"""SVG elements: drawings need few kinds, and the standard library writes the XML."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from xml.etree import ElementTree as ET

from engine.drawing.letters import shortened
from engine.drawing.theme import STYLE

SVG: Final = "http://www.w3.org/2000/svg"
# Characters that XML 1.0 cannot represent.
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Canvas:
    """Collects elements; later ones are drawn on top."""

    def __init__(self, width: float) -> None:
        self.width = width
        self._root = ET.Element("svg", {"xmlns": SVG, "font-family": "Inter, 'Segoe UI', Helvetica, Arial, sans-serif"})
        ET.SubElement(self._root, "style").text = STYLE
        self._parent = self._root
        self._back = self.rect(0, 0, width, 0, kind="page")

    @contextmanager
    def link(self, address: str) -> Iterator[None]:
        """Elements drawn inside the block become a link to an address."""
        outer = self._parent
        self._parent = ET.SubElement(outer, "a", {"href": writable(address)})
        try:
            yield
        finally:
            self._parent = outer

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        kind: str,
        radius: float = 0,
        tip: str = "",
        **more: str,
    ) -> ET.Element:
        """A rectangle.

        Args:
            x: left side, pixels.
            y: upper side.
            width: >= 0.
            height: >= 0.
            kind: class of the style.
            radius: corner radius.
            tip: tooltip.
            more: further attributes, with ``_`` for ``-``; empty ones are left out.
        """
        body = {"x": _text(x), "y": _text(y), "width": _text(width), "height": _text(height), "class": kind}
        if radius:
            body["rx"] = _text(radius)
        return self._add("rect", body | {key.replace("_", "-"): value for key, value in more.items() if value}, tip)

    def label(
        self, x: float, y: float, words: str, *, size: float, kind: str = "ink", anchor: str = "start", room: float = 0
    ) -> None:
        """Text on a base line; with ``room``, shortened to that many pixels with the whole text as tooltip."""
        shown = shortened(words, room, size, strong="strong" in kind.split()) if room else words
        body = {"x": _text(x), "y": _text(y), "class": kind, "font-size": _text(size)}
        if anchor != "start":
            body["text-anchor"] = anchor
        element = self._add("text", body, words if shown != words else "")
        element.text = writable(shown)

    def path(self, points: list[tuple[float, float]], *, kind: str, tip: str = "") -> None:
        """A line through points."""
        places = " ".join(f"{_text(x)},{_text(y)}" for x, y in points)
        self._add("polyline", {"points": places, "class": kind}, tip)

    def area(self, points: list[tuple[float, float]], *, kind: str) -> None:
        """A filled shape."""
        places = " ".join(f"{_text(x)},{_text(y)}" for x, y in points)
        self._add("polygon", {"points": places, "class": kind})

    def line(self, x1: float, y1: float, x2: float, y2: float, *, kind: str) -> None:
        """A straight line."""
        self._add("line", {"x1": _text(x1), "y1": _text(y1), "x2": _text(x2), "y2": _text(y2), "class": kind})

    def finished(self, height: float, title: str) -> str:
        """The text of the document."""
        whole = {
            "width": _text(self.width),
            "height": _text(height),
            "viewBox": f"0 0 {_text(self.width)} {_text(height)}",
        }
        self._root.attrib.update(whole)
        self._back.set("height", _text(height))
        name = ET.Element("title")
        name.text = writable(title)
        self._root.insert(0, name)
        ET.indent(self._root, " ")
        return ET.tostring(self._root, encoding="unicode") + "\n"

    def _add(self, tag: str, body: dict[str, str], tip: str = "") -> ET.Element:
        element = ET.SubElement(self._parent, tag, {key: writable(value) for key, value in body.items()})
        if tip:
            ET.SubElement(element, "title").text = writable(tip)
        return element


def without_style(drawing: str) -> str:
    """A finished drawing for a page that has the style in a sheet of its own, for each ``svg``."""
    return re.sub(r"<style>.*?</style>\s*", "", drawing, count=1, flags=re.DOTALL)


def writable(words: str) -> str:
    """The same text with characters replaced that XML cannot represent."""
    return _UNWRITABLE.sub("\ufffd", words)


def _text(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
