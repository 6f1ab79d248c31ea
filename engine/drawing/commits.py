"""The history of a picture: a bar for each snapshot, with the row count of the table and the log offsets."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import sqrt
from typing import Final

from engine.drawing.letters import text_width, widest
from engine.drawing.model import DrawnCommit, TablePicture
from engine.drawing.svg import Canvas
from engine.runtime.times import time_text
from engine.runtime.units import count_text
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.snapshot.snapshot import Snapshot

_UP: Final = 96.0
_DOWN: Final = 34.0  # of bars below zero, where there are any
_ABOVE: Final = 18.0
_BELOW: Final = 38.0  # of the snapshots' numbers and times
_WIDEST: Final = 40.0
_FONT: Final = 10.0
_APART: Final = 14.0  # of labels


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    """Where bars and lines are."""

    left: float
    right: float
    zero: float
    most_up: int  # rows of the highest bar
    most_down: int  # 0: no bar goes down

    def top(self, rows: int) -> float:
        """Height of a bar's upper or lower end, by square root."""
        if rows >= 0:
            return self.zero - _UP * sqrt(rows / self.most_up)
        return self.zero + _DOWN * sqrt(-rows / self.most_down)


def draw_commits(
    canvas: Canvas,
    picture: TablePicture,
    x: float,
    y: float,
    width: float,
    address: Callable[[int], str] | None = None,
) -> float:
    """Draw the newest snapshots below ``y``; return the lower end of the drawing. ``address``: see ``svg_page``."""
    commits = picture.commits
    rows = [_rows(each) for each in commits]
    most_down = max(0, *(-each for each in rows), 0)
    height = _ABOVE + _UP + (_DOWN if most_down else 0) + _BELOW
    canvas.rect(x, y, width, height, kind="panel", radius=6)
    if not commits:
        canvas.label(x + 12, y + 24, "nothing was committed yet", size=12, kind="soft")
        return y + height
    totals = [each.snapshot.total_record_count for each in commits]
    plot = _plot(x, y, width, max(1, *rows, 1), most_down, max((each or 0 for each in totals), default=0))
    step = (plot.right - plot.left) / len(commits)
    centres = [plot.left + step * (at + 0.5) for at in range(len(commits))]
    lines = _points(totals, centres, plot.zero)
    ends = [sum(each.snapshot.log_offsets.values()) if each.snapshot.log_offsets else None for each in commits]
    if lines:
        canvas.area([(lines[0][0], plot.zero), *lines, (lines[-1][0], plot.zero)], kind="under")
    _draw_values(canvas, plot, max((each or 0 for each in totals), default=0))
    bar = max(0.5, min(step * 0.72, _WIDEST))
    for commit, centre in zip(commits, centres, strict=True):
        with nullcontext() if address is None else canvas.link(address(commit.snapshot.id)):
            _draw_bar(canvas, commit, plot, centre, bar)
        if commit.tags:
            canvas.rect(centre - 3, y + 6, 6, 6, kind="tag", radius=3, tip="tag " + ", ".join(commit.tags))
            canvas.line(centre, y + 12, centre, plot.zero, kind="axis")
    for points, kind in ((lines, "total"), (_points(ends, centres, plot.zero), "log")):
        if points:
            canvas.path(points, kind=kind)
    _draw_times(canvas, commits, centres, x + 8, x + width - 8, y + height - _BELOW + 16)
    return y + height


def identifier_text(snapshot: Snapshot) -> str:
    """The micro-batch of a snapshot; ``batch`` for commits of batch jobs, which all have the same identifier."""
    return "batch" if snapshot.commit_identifier == BATCH_IDENTIFIER else str(snapshot.commit_identifier)


def _plot(x: float, y: float, width: float, most_up: int, most_down: int, most_total: int) -> _Plot:
    """The room between the values on the left, of bars, and those on the right, of the table's rows."""
    bars = [f"+{count_text(most_up)}", f"−{count_text(most_down)}"]
    return _Plot(
        left=x + 16 + widest(bars, _FONT),
        right=x + width - 16 - text_width(count_text(most_total), _FONT),
        zero=y + _ABOVE + _UP,
        most_up=most_up,
        most_down=most_down,
    )


def _draw_values(canvas: Canvas, plot: _Plot, most_total: int) -> None:
    for value in (plot.most_up, 0, *([-plot.most_down] if plot.most_down else [])):
        level, sign = plot.top(value), "+" if value > 0 else "−" if value < 0 else ""
        words = f"{sign}{count_text(abs(value))}"
        canvas.line(plot.left, level, plot.right, level, kind="axis grid" if value else "axis")
        canvas.label(plot.left - 6, level + 3.5, words, size=_FONT, kind="soft", anchor="end")
    if most_total:
        canvas.label(plot.right + 6, plot.zero - _UP + 3.5, count_text(most_total), size=_FONT, kind="ink")
        canvas.label(plot.right + 6, plot.zero + 3.5, "0", size=_FONT, kind="ink")


def _draw_bar(canvas: Canvas, commit: DrawnCommit, plot: _Plot, centre: float, width: float) -> None:
    rows = _rows(commit)
    top, bottom = sorted((plot.zero, plot.top(rows)))
    if bottom - top < 2:
        top, bottom = (plot.zero - 2, plot.zero) if rows >= 0 else (plot.zero, plot.zero + 2)
    kind = f"f k{commit.snapshot.commit_kind.value}"
    canvas.rect(
        centre - width / 2, top, width, bottom - top, kind=kind, radius=min(2, width / 4), tip=_tip(commit),
    )  # fmt: skip


def _points(values: list[int | None], centres: list[float], zero: float) -> list[tuple[float, float]]:
    """A line through the known values, scaled to the maximum; empty when none is positive."""
    known = [(centre, value) for centre, value in zip(centres, values, strict=True) if value is not None]
    most = max((value for _, value in known), default=0)
    if most <= 0:
        return []
    points = [(centre, zero - _UP * value / most) for centre, value in known]
    if len(points) == 1:
        [(x, y)] = points
        return [(x - 12, y), (x + 12, y)]
    return points


def _draw_times(
    canvas: Canvas, commits: tuple[DrawnCommit, ...], centres: list[float], left: float, right: float, y: float
) -> None:
    """Numbers and times of as many snapshots as fit, the first and the last among them."""
    half = max(text_width(time_text(each.snapshot.time_ms), _FONT) for each in commits) / 2
    middles = [min(max(centre, left + half), right - half) for centre in centres]
    most = max(1, int((middles[-1] - middles[0]) / (2 * half + _APART)))
    chosen = sorted({round(at * (len(commits) - 1) / most) for at in range(most + 1)})
    free = -1e9
    for at in chosen:
        if middles[at] - half < free or (at != chosen[-1] and middles[at] + half + _APART > middles[-1] - half):
            continue
        free = middles[at] + half + _APART
        snapshot = commits[at].snapshot
        canvas.label(middles[at], y, str(snapshot.id), size=_FONT, kind="ink", anchor="middle")
        canvas.label(middles[at], y + 13, time_text(snapshot.time_ms), size=_FONT, kind="soft", anchor="middle")


def _rows(commit: DrawnCommit) -> int:
    return commit.snapshot.delta_record_count or 0


def _tip(commit: DrawnCommit) -> str:
    snapshot = commit.snapshot
    lines = [
        f"snapshot {snapshot.id}: {snapshot.commit_kind.value}, {time_text(snapshot.time_ms)}",
        f"{_rows(commit):+,} rows, {count_text(snapshot.total_record_count or 0)} in all",
        f"user {snapshot.commit_user}, identifier {identifier_text(snapshot)}",
    ]
    if commit.log_rows is not None:
        lines.append(f"{count_text(commit.log_rows)} offsets of the log")
    if commit.tags:
        lines.append("tag " + ", ".join(commit.tags))
    return "\n".join(lines)
