"""The page of a soak: each series over time, the strikes on it, and what the floors say."""

import html
from collections.abc import Mapping, Sequence
from typing import Final

from engine.drawing.svg import Canvas
from engine.drawing.theme import PAGE_STYLE
from tests.soak.slopes import Series, Slope, seconds_of
from tests.soak.strikes import Struck

_WIDTH: Final = 1200.0
_MARGIN: Final = 28.0
_COLUMNS: Final = 3
_HEIGHT: Final = 120.0
_GAP: Final = 26.0
_POINTS: Final = 240  # of a series: more are not seen in the width of a column


def soak_page(
    facts: Mapping[str, object],
    series: Mapping[str, Sequence[Series]],
    slopes: Mapping[str, Slope],
    strikes: Sequence[Struck],
) -> str:
    """An HTML page; ``series`` are the lives of each by name."""
    end_s = max((life[-1][0] for lives in series.values() for life in lives if life), default=1.0)
    canvas = Canvas(_WIDTH)
    canvas.label(_MARGIN, 40, "soak", size=22, kind="strong")
    canvas.label(_MARGIN, 60, "  ".join(f"{key} {value}" for key, value in facts.items()), size=12, kind="soft")
    width = (_WIDTH - (_COLUMNS + 1) * _MARGIN) / _COLUMNS
    y = 84.0
    for number, (name, lives) in enumerate(series.items()):
        x = _MARGIN + (number % _COLUMNS) * (width + _MARGIN)
        if number and number % _COLUMNS == 0:
            y += _HEIGHT + _GAP + 18
        _draw(canvas, name, lives, slopes.get(name), strikes, (x, y, width), end_s)
    y += _HEIGHT + _GAP + 30
    for each in strikes:
        canvas.label(_MARGIN, y, f"{each.at_s:6.0f} s  {each.what}: back after {each.back_s:g} s", size=11, kind="soft")
        y += 15
    title = html.escape("soak")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>\n'
        f"<style>{PAGE_STYLE}svg{{display:block;margin:0 auto;max-width:100%;height:auto}}</style></head>\n"
        f"<body>\n{canvas.finished(y + 20, 'soak')}</body></html>\n"
    )


def thinned(life: Series, most: int) -> Series:
    """At most so many samples: of each group that lies side by side the lowest and the highest, in their order."""
    if len(life) <= most:
        return life
    size = -(-2 * len(life) // most)
    groups = [sorted(life[start : start + size], key=lambda each: each[1]) for start in range(0, len(life), size)]
    return [each for group in groups for each in sorted({group[0], group[-1]})]


def _draw(
    canvas: Canvas,
    name: str,
    lives: Sequence[Series],
    slope: Slope | None,
    strikes: Sequence[Struck],
    place: tuple[float, float, float],
    end_s: float,
) -> None:
    x, y, width = place
    highest = max((value for life in lives for _, value in life), default=0.0) or 1.0
    kind = "late" if slope is not None and slope.is_leak else "soft"
    canvas.label(x, y + 12, name, size=12, kind="strong")
    last = lives[-1][-1][1] if lives and lives[-1] else 0.0
    growth = "too short" if slope is None or not slope.floors else f"floor {slope.growth:+.4g}"
    canvas.label(x + width, y + 12, f"{last:.4g}, most {highest:.4g}, {growth}", size=11, kind=kind, anchor="end")
    top = y + 18
    canvas.rect(x, top, width, _HEIGHT, kind="panel")
    for each in strikes:
        at = x + width * each.at_s / end_s
        canvas.path([(at, top), (at, top + _HEIGHT)], kind="lateness beside", tip=each.what)
    for life in lives:
        shown = thinned(life, max(4, round(_POINTS * seconds_of(life) / end_s)))
        points = [(x + width * at_s / end_s, top + _HEIGHT * (1 - 0.95 * value / highest)) for at_s, value in shown]
        if len(points) > 1:
            canvas.path(points, kind="total")
