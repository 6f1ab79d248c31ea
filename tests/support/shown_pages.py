"""What has to hold for a page of pictures as a browser shows it: words in their boxes, legible, links that lead on."""

from dataclasses import dataclass
from typing import Any, Final

from tests.stores.chromium import Chromium
from tests.support.pictures import Box, check_places

SMALLEST_PX: Final = 8.5
CONTRAST: Final = 4.5  # of WCAG AA
# Of each picture that is shown: its place, its boxes, its words, with what is painted under the middle of each. Places
# are those of the window; of a word what its letters cover, without the room for accents and descenders.
_MEASURE: Final = """[...document.querySelectorAll("svg")].filter(svg => svg.getClientRects().length).map(svg => {
  const place = element => {
    const {left, top, right, bottom} = element.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const rects = [...svg.querySelectorAll("rect")], shapes = [...svg.querySelectorAll("rect, text")];
  const paint = element => {
    const style = getComputedStyle(element);
    return [style.fill, Number(style.fillOpacity) * Number(style.opacity)];
  };
  const boxes = rects.map(rect => ({kind: rect.classList[0], place: place(rect)}));
  const words = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim()).map(text => {
    const [left, , right] = place(text), to = text.getScreenCTM(), style = getComputedStyle(text);
    const size = parseFloat(style.fontSize) * to.d, base = to.f + Number(text.getAttribute("y")) * to.d;
    const x = (left + right) / 2, y = base - 0.3 * size;
    const under = shapes.slice(0, shapes.indexOf(text)).filter(shape => shape.tagName === "rect").filter(rect => {
      const [l, t, r, b] = place(rect);
      return l <= x && x <= r && t <= y && y <= b;
    });
    return {words: text.textContent, place: [left, base - 0.75 * size, right, base + 0.1 * size], size,
            fill: style.fill, under: under.map(paint)};
  });
  return {place: place(svg), boxes, words};
})"""
_BODY: Final = "getComputedStyle(document.body).backgroundColor"
_LOST_LINKS: Final = """[...document.querySelectorAll("a")].map(link => link.getAttribute("href"))
  .filter(href => !href || !href.startsWith("#") || document.getElementById(href.slice(1)) === null)"""


@dataclass(frozen=True)
class ShownPicture:
    """One picture of a page."""

    place: Box
    boxes: tuple[tuple[str, Box], ...]  # with their kinds
    words: tuple[Box, ...]


def check_page(browser: Chromium, *kinds: str, is_dark: bool) -> list[ShownPicture]:
    """Every shown picture: words in boxes of these kinds, apart, not small, with contrast; and all links lead on."""
    assert browser.complaints() == []
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    assert browser.ask(_LOST_LINKS) == []
    body = _colour(browser.ask(_BODY))
    assert (_luminance(body) < 0.1) is is_dark
    pictures = []
    for each in browser.ask(_MEASURE):
        place = Box(*each["place"], "picture")
        boxes = tuple((box["kind"], Box(*box["place"], box["kind"])) for box in each["boxes"])
        words = tuple(Box(*word["place"], word["words"]) for word in each["words"])
        check_places(place, [box for kind, box in boxes if kind in kinds], words, "browser")
        for word in each["words"]:
            assert word["place"][2] - word["place"][0] > 0.2 * word["size"] * len(word["words"]), "letters have a font"
            assert word["size"] >= SMALLEST_PX, word
            ground = body
            for fill, opacity in word["under"]:
                ground = _painted(_colour(fill), opacity, ground)
            assert _contrast(_colour(word["fill"]), ground) >= CONTRAST, (word, ground)
        pictures.append(ShownPicture(place, boxes, words))
    assert pictures
    return pictures


_Colour = tuple[float, float, float]


def _colour(text: str) -> _Colour:
    """Of ``rgb(1, 2, 3)``; what is none is transparent white, which no picture paints."""
    red, green, blue = (float(each) for each in text.removeprefix("rgb(").removesuffix(")").split(","))
    return red, green, blue


def _painted(over: _Colour, opacity: float, under: _Colour) -> _Colour:
    red, green, blue = (opacity * one + (1 - opacity) * two for one, two in zip(over, under, strict=True))
    return red, green, blue


def _luminance(colour: _Colour) -> float:
    """Relative luminance of sRGB, as WCAG defines it."""
    parts = [each / 255 for each in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: _Colour, other: _Colour) -> float:
    lower, higher = sorted((_luminance(one), _luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def middle(browser: Chromium, selector: str) -> tuple[float, float]:
    """The middle of the part of an element that the window shows; it is scrolled into view if it is not."""
    found: Any = browser.ask(
        f"""(() => {{
          const element = document.querySelector({selector!r});
          element.scrollIntoView({{block: "center", inline: "center"}});
          const {{left, top, right, bottom}} = element.getBoundingClientRect();
          return [(left + right) / 2, (top + bottom) / 2];
        }})()"""
    )
    return float(found[0]), float(found[1])
