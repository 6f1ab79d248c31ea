"""Colours: words can be read on everything that they are written on, by day and by night."""

import re

import pytest

from engine.drawing.theme import STYLE, heat_class

GROUNDS = ("page", "panel", "table", "job")
WORDS = ("ink", "strong", "soft", "late")


def colours(*, dark: bool) -> dict[str, str]:
    day, _, night = STYLE.partition("@media (prefers-color-scheme: dark)")
    found: dict[str, str] = {}
    for sheet in (day, night) if dark else (day,):
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet):
            fill = re.search(r"fill:(#\w{6})", body)
            if fill:
                found.update((each.strip().lstrip("."), fill[1]) for each in selectors.split(","))
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True])
def test_words_have_the_contrast_of_wcag_aa(dark: bool) -> None:
    found = colours(dark=dark)
    for ground in GROUNDS:
        for words in WORDS:
            low, high = sorted((luminance(found[ground]), luminance(found[words])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, words)


@pytest.mark.parametrize(
    ("runs", "expected"), [(1, "h0"), (2, "h1"), (3, "h2"), (5, "h3"), (7, "h3"), (8, "h4"), (99, "h4")]
)
def test_heat_rises_to_the_triggers(runs: int, expected: str) -> None:
    assert heat_class(runs, 5, 8) == expected


@pytest.mark.parametrize("dark", [False, True])
def test_arrows_have_the_contrast_of_graphics(dark: bool) -> None:
    found = colours(dark=dark)
    for arrow in ("head", "late"):
        low, high = sorted((luminance(found["page"]), luminance(found[arrow])))
        assert (high + 0.05) / (low + 0.05) >= 3
