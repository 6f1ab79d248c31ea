"""The same picture as a PNG: the elements of Fluvial's SVG, drawn by Pillow with its built-in font.

Only the elements of ``svg`` are supported: rectangles, labels, lines, polylines and polygons, in the classes of
``theme``. Pillow is an optional dependency (``fluvial[png]``), because most users view pictures in a browser.
"""

import io
import re
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as ET

from engine.drawing.svg import SVG
from engine.drawing.theme import STYLE
from lsm.errors import InvalidInputError

_SCALE: Final = 2  # pixels per unit of the picture
_FINER: Final = 2  # supersampling factor, for smooth edges
_MOST_PIXELS: Final = 30_000  # per side: viewers refuse more
_RULE: Final = re.compile(r"([^{}]+)\{([^{}]*)\}")
_LETTERS: Final = str.maketrans("×−–→", "x--›")  # characters missing in Pillow's font
_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}

Colour = tuple[int, int, int, int]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Look:
    """Style of a class on a light page; None: not drawn."""

    fill: Colour | None = None
    stroke: Colour | None = None
    width: float = 1.0
    dash: tuple[float, float] | None = None


def png_picture(svg: str) -> bytes:
    """A picture of ``svg_page`` as a PNG file, at twice the size.

    Raises:
        InvalidInputError: Pillow is not installed, or the picture is too high for viewers of PNG files.
    """
    root = ET.fromstring(svg)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    if max(width, height) * _SCALE > _MOST_PIXELS:
        raise InvalidInputError(
            f"picture is too large for a PNG: height={height:.0f} most={_MOST_PIXELS // _SCALE} "
            "fix='draw fewer buckets with --buckets, or write an SVG'"
        )
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidInputError(
            "a PNG needs the library Pillow: fix='pip install fluvial[png]', or write --svg or --html"
        ) from error
    sheet = _Sheet(width, height)
    for element in root.iter():  # links hold their elements
        sheet.draw(element)
    image = sheet.image.resize((round(width * _SCALE), round(height * _SCALE)), Image.Resampling.BOX)
    found = io.BytesIO()
    image.save(found, "PNG", optimize=True)
    return found.getvalue()


class _Sheet:
    """Draws elements on top of each other."""

    def __init__(self, width: float, height: float) -> None:
        from PIL import Image, ImageDraw

        self._scale = _SCALE * _FINER
        self.image = Image.new("RGB", (round(width * self._scale), round(height * self._scale)), "white")
        self._pen = ImageDraw.Draw(self.image, "RGBA")
        self._fonts: dict[float, Any] = {}

    def draw(self, element: ET.Element) -> None:
        """Draw one element; others (style, title) are ignored."""
        looks = [LOOKS[name] for name in element.get("class", "").split() if name in LOOKS]
        look = Look(
            fill=next((each.fill for each in looks if each.fill is not None), None),
            stroke=next((each.stroke for each in looks if each.stroke is not None), None),
            width=max((each.width for each in looks if each.stroke is not None), default=1.0),
            dash=next((each.dash for each in looks if each.dash is not None), None),
        )
        match element.tag.removeprefix(f"{{{SVG}}}"):
            case "rect":
                self._rect(element, look)
            case "text":
                self._text(element, look)
            case "line":
                x1, y1, x2, y2 = _numbers(element, "x1", "y1", "x2", "y2")
                self._line([(x1, y1), (x2, y2)], look)
            case "polyline":
                self._line(_points(element), look)
            case "polygon":
                self._pen.polygon(self._scaled(_points(element)), fill=look.fill)

    def _rect(self, element: ET.Element, look: Look) -> None:
        x, y, width, height = _numbers(element, "x", "y", "width", "height")
        if width <= 0 or height <= 0:
            return
        left, top, right, bottom = (each * self._scale for each in (x, y, x + width, y + height))
        box = (left, top, max(left, right - 1), max(top, bottom - 1))
        radius = min(float(element.get("rx", "0")), width / 2, height / 2) * self._scale
        fill = look.fill
        if fill is not None and element.get("fill-opacity"):
            fill = (*fill[:3], round(255 * float(element.get("fill-opacity", "1"))))
        width_of_line = max(1, round(look.width * self._scale))
        self._pen.rounded_rectangle(box, radius, fill=fill, outline=look.stroke, width=width_of_line)

    def _text(self, element: ET.Element, look: Look) -> None:
        from PIL import ImageFont

        x, y, size = _numbers(element, "x", "y", "font-size")
        font = self._fonts.setdefault(size, ImageFont.load_default(size * self._scale))
        anchor = _ANCHORS[element.get("text-anchor", "start")]
        is_strong = "strong" in element.get("class", "").split()
        place = (x * self._scale, y * self._scale)
        self._pen.text(
            place,
            (element.text or "").translate(_LETTERS),
            look.fill,
            font,
            anchor,
            stroke_width=0.03 * size * self._scale * is_strong,
        )

    def _line(self, points: Points, look: Look) -> None:
        width = max(1, round(look.width * self._scale))
        for piece in [points] if look.dash is None else dashes(points, *look.dash):
            self._pen.line(self._scaled(piece), fill=look.stroke, width=width, joint="curve")

    def _scaled(self, points: Points) -> Points:
        return [(x * self._scale, y * self._scale) for x, y in points]


def dashes(points: Points, drawn: float, gap: float) -> list[Points]:
    """The drawn pieces of a dashed line through points, with alternating lengths ``drawn`` and ``gap``."""
    pieces: list[Points] = []
    is_drawn, rest = True, drawn
    current: Points = points[:1]
    for end in points[1:]:
        start = current[-1]
        length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
        done = 0.0
        while length - done > rest:
            done += rest
            share = done / length
            turn = (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
            if is_drawn:
                pieces.append([*current, turn])
            current, is_drawn = [turn], not is_drawn
            rest = drawn if is_drawn else gap
        rest -= length - done
        current = [*current, end] if is_drawn else [end]
    if is_drawn and len(current) > 1:
        pieces.append(current)
    return pieces


def _looks(style: str) -> dict[str, Look]:
    """The classes of Fluvial's style sheet, on a light page and without hovering."""
    facts: dict[str, dict[str, str]] = {}
    for selectors, body in _RULE.findall(style.partition("@media")[0]):
        values = dict(each.split(":", 1) for each in body.split(";") if each)
        for selector in selectors.split(","):
            if ":" not in selector:
                facts.setdefault(selector.strip().removeprefix("."), {}).update(values)
    return {name: _look(values) for name, values in facts.items()}


def _look(values: dict[str, str]) -> Look:
    dash = [float(each) for each in values.get("stroke-dasharray", "").split()]
    return Look(
        fill=_colour(values.get("fill"), values.get("fill-opacity", "1")),
        stroke=_colour(values.get("stroke"), values.get("stroke-opacity", "1")),
        width=float(values.get("stroke-width", "1")),
        dash=(dash[0], dash[1]) if dash else None,
    )


def _colour(text: str | None, opacity: str) -> Colour | None:
    if text is None or text == "none":
        return None
    red, green, blue = (int(text[place : place + 2], 16) for place in (1, 3, 5))
    return red, green, blue, round(255 * float(opacity))


def _numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.get(name, "0")) for name in names]


def _points(element: ET.Element) -> Points:
    pairs = (pair.split(",") for pair in element.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


LOOKS: Final = _looks(STYLE)
"""Styles by class."""
