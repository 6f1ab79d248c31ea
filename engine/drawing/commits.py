"""The history of a picture: a bar for each snapshot, with the row count of the table and the log offsets."""

from math import sqrt
from typing import Final

from engine.drawing.model import DrawnCommit, TablePicture
from engine.drawing.svg import Canvas
from engine.runtime.times import time_text
from engine.runtime.units import count_text

_UP: Final = 96.0
_DOWN: Final = 34.0
_WIDEST: Final = 40.0


def draw_commits(canvas: Canvas, picture: TablePicture, x: float, y: float, width: float) -> float:
    """Draw the newest snapshots below ``y``; return the lower end of the drawing."""
    commits = picture.commits
    height = _UP + _DOWN + 44
    canvas.rect(x, y, width, height, kind="panel", radius=6)
    if not commits:
        canvas.label(x + 12, y + 24, "nothing was committed yet", size=12, kind="soft")
        return y + height
    inner_x, inner = x + 16, width - 32
    step = inner / len(commits)
    zero = y + 18 + _UP
    most_up = max(1, *(_rows(each) for each in commits))
    most_down = max(1, *(-_rows(each) for each in commits))
    centres = [inner_x + step * (at + 0.5) for at in range(len(commits))]
    totals = _points([each.snapshot.total_record_count for each in commits], centres, zero)
    ends = [sum(each.snapshot.log_offsets.values()) if each.snapshot.log_offsets else None for each in commits]
    if totals:
        canvas.area([(totals[0][0], zero), *totals, (totals[-1][0], zero)], kind="under")
    canvas.line(inner_x, zero, inner_x + inner, zero, kind="axis")
    bar = max(0.5, min(step * 0.72, _WIDEST))
    for commit, centre in zip(commits, centres, strict=True):
        rows = _rows(commit)
        tall = max(2.0, _UP * sqrt(rows / most_up) if rows >= 0 else _DOWN * sqrt(-rows / most_down))
        top = zero - tall if rows >= 0 else zero
        kind = f"k{commit.snapshot.commit_kind.value}"
        canvas.rect(centre - bar / 2, top, bar, tall, kind=f"f {kind}", radius=min(2, bar / 4), tip=_tip(commit))
        if commit.tags:
            canvas.rect(centre - 3, y + 8, 6, 6, kind="tag", radius=3, tip="tag " + ", ".join(commit.tags))
            canvas.line(centre, y + 14, centre, zero, kind="axis")
    for points, kind in ((totals, "total"), (_points(ends, centres, zero), "log")):
        if points:
            canvas.path(points, kind=kind)
    _draw_times(canvas, commits, centres, y + height - 12)
    return y + height


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


def _draw_times(canvas: Canvas, commits: tuple[DrawnCommit, ...], centres: list[float], y: float) -> None:
    first, last = commits[0].snapshot, commits[-1].snapshot
    canvas.label(centres[0], y, f"{first.id} · {time_text(first.time_ms)}", size=10, kind="soft", anchor="start")
    if len(commits) > 1:
        words = f"{last.id} · {time_text(last.time_ms)}"
        canvas.label(centres[-1], y, words, size=10, kind="soft", anchor="end")


def _rows(commit: DrawnCommit) -> int:
    return commit.snapshot.delta_record_count or 0


def _tip(commit: DrawnCommit) -> str:
    snapshot = commit.snapshot
    lines = [
        f"snapshot {snapshot.id}: {snapshot.commit_kind.value}, {time_text(snapshot.time_ms)}",
        f"{_rows(commit):+,} rows, {count_text(snapshot.total_record_count or 0)} in all",
        f"user {snapshot.commit_user}, identifier {snapshot.commit_identifier}",
    ]
    if commit.log_rows is not None:
        lines.append(f"{count_text(commit.log_rows)} offsets of the log")
    return "\n".join(lines)
