"""A whole picture: heading, history, trees and legend."""

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from typing import Final

from engine.drawing.commits import draw_commits
from engine.drawing.key_axis import SCALE_WORDS
from engine.drawing.letters import balanced, shortened, text_width
from engine.drawing.model import BucketBoxes, FileBox, RunBoxes, TablePicture
from engine.drawing.script import DETAILS, DETAILS_STYLE
from engine.drawing.svg import Canvas
from engine.drawing.theme import PAGE_STYLE, heat_class, level_class
from engine.runtime.units import count_text, many_text, size_text

# ---- The LSM trees of a picture: a panel per bucket, a lane per sorted run, a box per file


_GAP: Final = 12.0
_LEAST: Final = 3.0  # width and height of a box


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Sizes of panels: one bucket may fill the page, many share it."""

    most: int  # maximum number of buckets
    columns: int
    lane: float  # height of a run
    font: float
    labels: bool  # level and size beside each run, keys below


DENSITIES: Final = (
    Density(most=1, columns=1, lane=30, font=12, labels=True),
    Density(most=4, columns=2, lane=22, font=11, labels=True),
    Density(most=12, columns=3, lane=15, font=10, labels=True),
    Density(most=32, columns=4, lane=10, font=9.5, labels=False),
    Density(most=72, columns=6, lane=7, font=9, labels=False),
    Density(most=10**9, columns=10, lane=5, font=9, labels=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Position and sizes of a panel."""

    x: float
    y: float
    width: float
    density: Density
    largest: int  # bytes of the largest file of the table
    top_level: int

    @property
    def left(self) -> float:
        """Left end of the lanes."""
        return self.x + (34 if self.density.labels else 8)

    @property
    def right(self) -> float:
        """Right end of the lanes."""
        return self.x + self.width - (104 if self.density.labels else 8)

    @property
    def lane_gap(self) -> float:
        """Distance between lanes."""
        return max(1.5, self.density.lane * 0.2)

    def places(self, run: RunBoxes) -> list[tuple[float, float]]:
        """Left and right sides of a run's boxes."""
        return box_sides([(file.first, file.last) for file in run.files], self.left, self.right)


def box_sides(spans: Sequence[tuple[float, float]], left: float, right: float) -> list[tuple[float, float]]:
    """Disjoint parts of an axis from 0 to 1, in their order, in pixels: disjoint again, each wide enough to be seen.

    What is too narrow takes room to its right; what that pushes beyond the end is moved back.
    """
    whole = right - left
    least = min(_LEAST, whole / max(len(spans), 1))
    sides: list[tuple[float, float]] = []
    end = left
    for first, last in spans:
        start = max(left + first * whole, end)
        end = max(left + last * whole, start + least)
        sides.append((start, end))
    edge = right
    for at in range(len(sides) - 1, -1, -1):
        start, end = sides[at]
        if end <= edge:
            break
        sides[at] = (min(start, edge - least), edge)
        edge = sides[at][0]
    return sides


def draw_trees(canvas: Canvas, picture: TablePicture, x: float, y: float, width: float) -> float:
    """Draw every bucket below ``y``; return the lower end of the drawing."""
    if not picture.buckets:
        canvas.label(x, y + 14, "no data files", size=12, kind="soft")
        return y + 24
    density = next(each for each in DENSITIES if len(picture.buckets) <= each.most)
    rows = _rows(picture.buckets, density)
    columns = max(cell.column for row in rows for cell in row) + 1
    panel = (width - _GAP * (columns - 1)) / columns
    largest = max(file.size_bytes for bucket in picture.buckets for file in bucket.files)
    for row in rows:
        headings = {cell.column: _heading(cell, panel, density.font) for cell in row if cell.heading}
        if headings:
            y += 2 * density.font + (max(map(len, headings.values())) - 1) * (density.font + 4)
        height = max(_height(cell.bucket, density) for cell in row)
        for cell in row:
            frame = _Frame(
                x=x + cell.column * (panel + _GAP),
                y=y,
                width=panel,
                density=density,
                largest=largest,
                top_level=picture.top_level,
            )
            for above, line in enumerate(reversed(headings.get(cell.column, ()))):
                base = y - 5 - above * (density.font + 4)
                canvas.label(frame.x, base, line, size=density.font + 1.5, kind="strong")
            _draw_bucket(canvas, cell, frame, height, picture)
        y += height + _GAP
    return y


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The position of a bucket in the grid."""

    bucket: BucketBoxes
    column: int
    heading: str | None = None  # above this cell and the following ones of its group
    span: int = 1  # cells below the heading


def _rows(buckets: Sequence[BucketBoxes], density: Density) -> list[list[_Cell]]:
    """Buckets in a grid; in dense pictures, the buckets of a partition are grouped below its name."""
    columns = min(density.columns, len(buckets))
    if density.labels or all(bucket.partition is None for bucket in buckets):
        cells = [_Cell(bucket=bucket, column=at % columns) for at, bucket in enumerate(buckets)]
        return [cells[start : start + columns] for start in range(0, len(cells), columns)]
    groups = [list(members) for _, members in groupby(buckets, key=lambda bucket: bucket.partition)]
    widest = min(max(map(len, groups)), columns)
    columns = max(widest, columns // widest * widest)
    rows: list[list[_Cell]] = []
    for group in groups:
        for start in range(0, len(group), columns):
            part = group[start : start + columns]
            if not rows or rows[-1][-1].column + 1 + len(part) > columns:
                rows.append([])
            first = rows[-1][-1].column + 1 if rows[-1] else 0
            rows[-1] += [
                _Cell(bucket=each, column=first + at, heading=None if at else each.partition, span=len(part))
                for at, each in enumerate(part)
            ]
    return rows


def _heading(cell: _Cell, panel: float, font: float) -> list[str]:
    """The name of a partition in one or two lines above its cells."""
    room, size = cell.span * (panel + _GAP) - _GAP, font + 1.5
    lines = balanced(cell.heading or "", room, size, strong=True)
    return [*lines[:1], *(shortened(each, room, size, strong=True) for each in ["".join(lines[1:])] if each)]


def _height(bucket: BucketBoxes, density: Density) -> float:
    lanes = len(bucket.runs) * (density.lane + max(1.5, density.lane * 0.2))
    heat = _heat_height(density) + 2 if bucket.overlap else 0
    return 2.6 * density.font + lanes + heat + (2.2 * density.font if density.labels else 6)


def _heat_height(density: Density) -> float:
    return max(3.0, density.lane * 0.35)


def _draw_bucket(canvas: Canvas, cell: _Cell, frame: _Frame, height: float, picture: TablePicture) -> None:
    bucket, density, font = cell.bucket, frame.density, frame.density.font
    canvas.rect(frame.x, frame.y, frame.width, height, kind="panel", radius=6, tip=bucket.title)
    count = len(bucket.runs)
    health = "bad" if count >= picture.stop_trigger else "warn" if count >= picture.compaction_trigger else "good"
    facts = f"{many_text(count, 'run')} · {size_text(bucket.size_bytes)}" if density.labels else str(count)
    base, dot = frame.y + 1.6 * font, font * 0.55
    right = frame.x + frame.width - 8
    title = bucket.title if density.labels else f"bucket {bucket.bucket}"
    if not density.labels and text_width(title, font, strong=True) > frame.width - 30 - text_width(facts, font):
        title = str(bucket.bucket)
    room = frame.width - 16 - text_width(facts, font) - dot - 10
    canvas.label(frame.x + 8, base, title, size=font, kind="strong", room=room)
    canvas.label(right - dot - 4, base, facts, size=font, kind="soft", anchor="end")
    canvas.rect(
        right - dot, base - dot * 1.15, dot, dot, kind=health, radius=dot / 2,
        tip=f"{count} sorted runs; compacted at {picture.compaction_trigger}, writers wait at {picture.stop_trigger}",
    )  # fmt: skip
    y = frame.y + 2.4 * font
    for run in bucket.runs:
        _draw_run(canvas, run, bucket, frame, y)
        y += density.lane + frame.lane_gap
    if bucket.overlap:
        _draw_heat(canvas, bucket, frame, y, picture)
        y += _heat_height(density) + 2
    if density.labels and bucket.files and picture.has_key:
        _draw_keys(canvas, bucket.files, frame, y + font)


def _draw_heat(canvas: Canvas, bucket: BucketBoxes, frame: _Frame, y: float, picture: TablePicture) -> None:
    """A strip below the lanes: the more runs a read merges there, the hotter."""
    height, span, font = _heat_height(frame.density), frame.right - frame.left, frame.density.font
    canvas.rect(frame.left, y, span, height, kind="lane")
    for each in bucket.overlap:
        if each.runs:
            kind = heat_class(each.runs, picture.compaction_trigger, picture.stop_trigger)
            tip = f"a read here merges {many_text(each.runs, 'run')}"
            canvas.rect(frame.left + span * each.start, y, span * (each.end - each.start), height, kind=kind, tip=tip)
    if frame.density.labels:
        words = f"merges {bucket.mean_overlap:.1f}"
        canvas.label(frame.right + 6, y + height / 2 + font * 0.35, words, size=font * 0.9, kind="soft", room=96)


def _draw_run(canvas: Canvas, run: RunBoxes, bucket: BucketBoxes, frame: _Frame, y: float) -> None:
    lane, font = frame.density.lane, frame.density.font
    span = frame.right - frame.left
    canvas.rect(frame.left, y, span, lane, kind="lane", radius=min(3, lane / 4))
    kind = level_class(run.level, frame.top_level)
    for file, (x1, x2) in zip(run.files, frame.places(run), strict=True):
        tall = max(min(_LEAST, lane), lane * sqrt(file.size_bytes / frame.largest)) if frame.largest else lane
        canvas.rect(
            x1, y + lane - tall, x2 - x1, tall,
            kind=f"f {kind}", radius=min(2, (x2 - x1) / 4, tall / 4), tip=_tip(file, bucket),
            data_bucket=bucket.title, data_first=str(file.ranks[0]), data_last=str(file.ranks[1]),
        )  # fmt: skip
        if file.delete_count and file.row_count:
            dead = min(tall, max(1.0, tall * file.delete_count / file.row_count))
            canvas.rect(x1, y + lane - dead, x2 - x1, dead, kind="dead", pointer_events="none", fill_opacity="0.55")
    if frame.density.labels:
        base = y + lane / 2 + font * 0.35
        canvas.label(frame.left - 6, base, f"L{run.level}", size=font, kind="soft", anchor="end")
        words = f"{count_text(len(run.files))} × {size_text(run.size_bytes // max(len(run.files), 1))}"
        canvas.label(frame.right + 6, base, words, size=font * 0.9, kind="soft", room=96)


def _draw_keys(canvas: Canvas, files: Sequence[FileBox], frame: _Frame, y: float) -> None:
    first = min(files, key=lambda file: file.first).min_key
    last = max(files, key=lambda file: file.last).max_key
    room = (frame.right - frame.left) / 2 - 8
    canvas.label(frame.left, y, _key_words(first), size=frame.density.font * 0.85, kind="soft", room=room)
    canvas.label(frame.right, y, _key_words(last), size=frame.density.font * 0.85, kind="soft", anchor="end", room=room)


def _key_words(key: str | None) -> str:
    """The values of a key, without the names of its columns."""
    return ", ".join(str(value) for value in json.loads(key or "{}").values())


def _tip(file: FileBox, bucket: BucketBoxes) -> str:
    facts = f"level {file.level}, {many_text(file.row_count, 'row')}, {size_text(file.size_bytes)}"
    lines = [file.name, f"{bucket.title}, {facts}"]
    if file.delete_count:
        lines.append(many_text(file.delete_count, "delete"))
    if file.min_key is not None:
        lines.append(f"{file.min_key} to {file.max_key}")
    return "\n".join(lines)


# ---- A whole picture: heading, history, trees and legend


_WIDTH: Final = 1200.0
_MARGIN: Final = 32.0
_WIDEST: Final = 1600  # in a browser


def svg_page(picture: TablePicture, address: Callable[[int], str] | None = None) -> str:
    """The picture as an SVG document; tooltips have the details of every file and snapshot.

    Args:
        picture: of a table.
        address: of a snapshot, by its id, for links of the bars; None: there are none.
    """
    canvas = Canvas(_WIDTH)
    inner = _WIDTH - 2 * _MARGIN
    canvas.label(_MARGIN, 46, picture.table, size=24, kind="strong", room=inner)
    canvas.label(_MARGIN, 68, _headline(picture), size=12.5, kind="soft", room=inner)
    y = _section(canvas, 104, "history", _history_facts(picture))
    _draw_kinds(canvas, picture, y - 14)
    y = draw_commits(canvas, picture, _MARGIN, y, inner, address) + 34
    y = _section(canvas, y, "trees" if picture.has_key else "files", _tree_facts(picture))
    _draw_levels(canvas, picture, y - 14)
    y = draw_trees(canvas, picture, _MARGIN, y, inner)
    for line in _explanation(picture):
        canvas.label(_MARGIN, y + 12, line, size=10.5, kind="soft", room=inner)
        y += 15
    return canvas.finished(y + 32, f"table {picture.table}")


def html_page(picture: TablePicture) -> str:
    """The picture as a web page."""
    title = html.escape(picture.table)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>\n'
        f"<style>{PAGE_STYLE}svg{{display:block;margin:0 auto;width:min(100%,{_WIDEST}px);height:auto}}"
        f"{DETAILS_STYLE}</style></head>\n"
        f"<body>\n{svg_page(picture)}{DETAILS}</body></html>\n"
    )


def _section(canvas: Canvas, y: float, name: str, facts: str) -> float:
    canvas.label(_MARGIN, y, name, size=14, kind="strong")
    canvas.label(_MARGIN + 64, y, facts, size=11, kind="soft")
    return y + 14


def _headline(picture: TablePicture) -> str:
    runs = max((len(bucket.runs) for bucket in picture.buckets), default=0)
    facts = [
        f"{size_text(picture.size_bytes)} in {many_text(picture.file_count, 'file')}",
        f"{count_text(picture.row_count)} rows, older versions included",
        many_text(picture.bucket_count, "bucket"),
        f"at most {many_text(runs, 'sorted run')} in a bucket" if picture.has_key else "no primary key",
    ]
    if picture.commits:
        facts.append(f"snapshot {picture.commits[-1].snapshot.id}")
    return " · ".join(facts)


def _history_facts(picture: TablePicture) -> str:
    shown = len(picture.commits)
    which = (
        f"the newest {shown} of {picture.snapshot_count} snapshots"
        if shown < picture.snapshot_count
        else many_text(shown, "snapshot")
    )
    rows = [commit.snapshot.delta_record_count or 0 for commit in picture.commits]
    most, least = max(rows, default=0), min(rows, default=0)
    dropped = f", at most {count_text(-least)} dropped" if least < 0 else ""
    return f"{which}; bars by square root: at most {many_text(max(most, 0), 'row')} added{dropped}"


def _tree_facts(picture: TablePicture) -> str:
    shown = len(picture.buckets)
    if shown < picture.bucket_count:
        return f"the {shown} of {picture.bucket_count} buckets with the most runs; newest run on top"
    return f"{many_text(shown, 'bucket')}; newest run on top"


def _draw_kinds(canvas: Canvas, picture: TablePicture, y: float) -> None:
    kinds = sorted({commit.snapshot.commit_kind.value for commit in picture.commits})
    entries = [(f"k{kind}", kind.lower()) for kind in kinds] + [("key-total", "rows in files")]
    if any(commit.snapshot.log_offsets for commit in picture.commits):
        entries.append(("key-log", "log offsets"))
    if any(commit.tags for commit in picture.commits):
        entries.append(("tag", "tag"))
    _draw_legend(canvas, entries, y)


def _draw_levels(canvas: Canvas, picture: TablePicture, y: float) -> None:
    levels = sorted({run.level for bucket in picture.buckets for run in bucket.runs})
    entries = [(level_class(level, picture.top_level), f"level {level}") for level in levels]
    counts = {each.runs for bucket in picture.buckets for each in bucket.overlap if each.runs}
    heats: dict[str, list[int]] = {}
    for count in sorted(counts):
        heats.setdefault(heat_class(count, picture.compaction_trigger, picture.stop_trigger), []).append(count)
    entries += [(kind, f"merges {_between(min(members), max(members))}") for kind, members in heats.items()]
    _draw_legend(canvas, entries, y)


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}–{most}"


def _explanation(picture: TablePicture) -> list[str]:
    if not picture.has_key:
        return ["Every box is a file, in the order of writing; its height is its bytes."]
    scales = sorted({SCALE_WORDS[bucket.scale] for bucket in picture.buckets if bucket.scale is not None})
    return [
        f"Every box is a file: its width is its range of keys, {' or '.join(scales) or 'by value'}; its height is its "
        "bytes. Red at its foot: the share of deletes.",
        "The strip below the runs: how many of them a read of a key there merges, and on average along the axis.",
    ]


def _draw_legend(canvas: Canvas, entries: list[tuple[str, str]], y: float) -> None:
    widths = [16 + text_width(words, 11) + 12 for _, words in entries]
    x = _WIDTH - _MARGIN - sum(widths) + 14
    for (kind, words), width in zip(entries, widths, strict=True):
        canvas.rect(x, y - 8.5, 9, 9, kind=kind, radius=2)
        canvas.label(x + 14, y, words, size=11, kind="soft")
        x += width
