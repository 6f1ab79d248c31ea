"""The LSM trees of a table in a terminal: a line per sorted run, blocks for its files."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from rich.text import Text

from engine.drawing.key_axis import SCALE_WORDS, Stretch
from engine.drawing.model import BucketBoxes, RunBoxes, TablePicture
from engine.drawing.theme import heat_class
from engine.runtime.units import count_text, many_text, size_text

_SHADES: Final = ("█", "▓")  # alternate, to show where a file ends
_COLOURS: Final = ("dark_orange", "yellow3", "chartreuse3", "medium_spring_green", "deep_sky_blue2", "royal_blue1")
_HEATS: Final = ("green", "yellow3", "dark_orange", "red", "bold red")
_CELLS: Final = 48
_NEARLY: Final = 1e-9


def tree_lines(picture: TablePicture, *, most: int, cells: int = _CELLS) -> Iterator[Text]:
    """Lines for the buckets with the most runs.

    Args:
        picture: the table.
        most: maximum number of buckets.
        cells: characters for the whole key range.
    """
    chosen = sorted(picture.buckets, key=lambda each: (-len(each.runs), -each.size_bytes))[:most]
    for bucket in chosen:
        yield Text(f"{bucket.title}  ", style="bold").append(_keys(bucket), style="dim")
        for run in bucket.runs:
            yield _run_line(run, cells)
        if len(bucket.runs) > 1:
            yield _heat_line(bucket, picture, cells)
    if len(chosen) < picture.bucket_count:
        yield Text(f"{len(chosen)} of {picture.bucket_count} buckets, those with the most runs", style="dim")


def run_cells(run: RunBoxes, cells: int) -> str:
    """A run as a line of ``cells`` characters: blocks for files, dots elsewhere."""
    line = ["·"] * cells
    for at, file in enumerate(run.files):
        first, last = _cells_of(file.first, file.last, cells)
        for cell in range(first, last):
            line[cell] = _SHADES[at % 2]
    return "".join(line)


def heat_cells(overlap: Sequence[Stretch], cells: int) -> list[int]:
    """The maximum number of runs that a read merges, in each cell."""
    found = [0] * cells
    for each in overlap:
        for cell in range(*_cells_of(each.start, each.end, cells)):
            found[cell] = max(found[cell], each.runs)
    return found


def _cells_of(start: float, end: float, cells: int) -> tuple[int, int]:
    """The cells that a part of the axis touches, at least one: from the first to behind the last."""
    first = min(int(start * cells + _NEARLY), cells - 1)
    return first, max(first + 1, min(ceil(end * cells - _NEARLY), cells))


def _heat_line(bucket: BucketBoxes, picture: TablePicture, cells: int) -> Text:
    line = Text("  all ")
    for count in heat_cells(bucket.overlap, cells):
        heat = int(heat_class(count, picture.compaction_trigger, picture.stop_trigger)[1:]) if count else 0
        line.append(str(count) if 0 < count < 10 else "+" if count else " ", style=_HEATS[heat] if count else "")
    return line.append(f" a read merges {bucket.mean_overlap:.1f} on average", style="dim")


def _run_line(run: RunBoxes, cells: int) -> Text:
    colour = _COLOURS[min(run.level, len(_COLOURS) - 1)]
    line = Text(f"  L{run.level:<2} ").append(run_cells(run, cells), style=colour)
    deletes = sum(file.delete_count for file in run.files)
    files = f"{count_text(len(run.files)):>5} {'file ' if len(run.files) == 1 else 'files'}"
    rows = f"{count_text(run.row_count):>11} {'row ' if run.row_count == 1 else 'rows'}"
    facts = f" {files} {rows} {size_text(run.size_bytes):>10}"
    return line.append(facts + (f"  {many_text(deletes, 'delete')}" if deletes else ""), style="dim")


def _keys(bucket: BucketBoxes) -> str:
    files = bucket.files
    if not files or files[0].min_key is None:
        return ""
    first = min(files, key=lambda file: file.first).min_key
    last = max(files, key=lambda file: file.last).max_key
    return f"{first} to {last}  {SCALE_WORDS[bucket.scale]}" if bucket.scale else f"{first} to {last}"
