"""The LSM trees of a table in a terminal: a line per sorted run, blocks for its files."""

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from engine.drawing.model import BucketBoxes, RunBoxes, TablePicture
from engine.runtime.units import count_text, size_text

_SHADES: Final = ("█", "▓")  # alternate, to show where a file ends
_COLOURS: Final = ("dark_orange", "yellow3", "chartreuse3", "medium_spring_green", "deep_sky_blue2", "royal_blue1")
_CELLS: Final = 48


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
            yield _run_line(run, bucket, cells)
    if len(chosen) < picture.bucket_count:
        yield Text(f"{len(chosen)} of {picture.bucket_count} buckets, those with the most runs", style="dim")


def run_cells(run: RunBoxes, width: int, cells: int) -> str:
    """A run as a line of ``cells`` characters: blocks for files, dots elsewhere."""
    line = ["·"] * cells
    for at, file in enumerate(run.files):
        first = file.first * cells // width
        last = max(first, ((file.last + 1) * cells - 1) // width)
        for cell in range(first, min(last + 1, cells)):
            line[cell] = _SHADES[at % 2]
    return "".join(line)


def _run_line(run: RunBoxes, bucket: BucketBoxes, cells: int) -> Text:
    colour = _COLOURS[min(run.level, len(_COLOURS) - 1)]
    line = Text(f"  L{run.level:<2} ").append(run_cells(run, bucket.width, cells), style=colour)
    deletes = sum(file.delete_count for file in run.files)
    files = f"{count_text(len(run.files)):>5} {'file ' if len(run.files) == 1 else 'files'}"
    facts = f" {files} {count_text(run.row_count):>11} rows {size_text(run.size_bytes):>10}"
    return line.append(facts + (f"  {count_text(deletes)} deletes" if deletes else ""), style="dim")


def _keys(bucket: BucketBoxes) -> str:
    files = bucket.files
    if not files or files[0].min_key is None:
        return ""
    first = min(files, key=lambda file: file.first).min_key
    last = max(files, key=lambda file: file.last).max_key
    return f"{first} to {last}"
