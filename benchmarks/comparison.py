"""One table and one chart of a line with the seconds of several systems for the same work (``compared``).

Of those that were ``stopped`` the seconds until then.
"""

from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table as Grid

from engine.drawing.svg import Canvas

WIDTH: Final = 720
LEFT: Final = 250  # pixels for names
_ROW, _BAR, _TOP, _SIZE = 34, 20, 60, 14
_RIGHT = 130  # for figures
OURS: Final = "fluvial"


def comparison_grid(line: Mapping[str, Any]) -> Grid:
    """Seconds of each system, and how many times those of the first one they are."""
    compared: Mapping[str, float] = line["compared"]
    first = next(iter(compared))
    grid = Grid(title=f"{line['benchmark']}: {line['rows']:,} rows, {line['machine']}")
    for name in ("system", "seconds", f"× {first}", "rows/s"):
        grid.add_column(name, justify="left" if name == "system" else "right")
    for name, seconds in sorted(compared.items(), key=lambda item: item[1]):
        ratio, more = seconds / compared[first], _more(line, name)
        rate = "" if more else f"{line['rows'] / seconds:,.0f}"
        grid.add_row(name, f"{more}{seconds:.1f}", f"{more}{ratio:.2f}", rate)
    return grid


def comparison_svg(line: Mapping[str, Any]) -> str:
    """A bar for each system, the quickest first; its length is its seconds."""
    compared: Mapping[str, float] = line["compared"]
    first = next(iter(compared))
    longest = max(compared.values())
    canvas = Canvas(WIDTH)
    title = f"{line['benchmark']}: seconds for {line['rows']:,} rows, less is better"
    canvas.label(16, 28, title, size=16, kind="strong")
    for number, (name, seconds) in enumerate(sorted(compared.items(), key=lambda item: item[1])):
        y = _TOP + number * _ROW
        canvas.label(16, y + 15, name, size=_SIZE, room=LEFT - 24)
        width = (WIDTH - LEFT - _RIGHT) * seconds / longest
        canvas.rect(LEFT, y, width, _BAR, kind="good" if name.startswith(OURS) else "head", radius=3)
        more = _more(line, name)
        words = f"{more}{seconds:.1f} s, {more}{seconds / compared[first]:.2f} ×"
        canvas.label(LEFT + width + 8, y + 15, words, size=_SIZE)
    bottom = _TOP + len(compared) * _ROW + 16
    canvas.label(16, bottom, f"{line['machine']}; commit {line['commit']}", size=11, kind="soft")
    return canvas.finished(bottom + 16, title)


def _more(line: Mapping[str, Any], name: str) -> str:
    """What stands before the figures of a system that was stopped: it would have needed more."""
    return "> " if name in line.get("stopped", ()) else ""
