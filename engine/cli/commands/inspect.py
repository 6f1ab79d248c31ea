"""The command ``fluvial inspect``: the structure of a table, as text, as JSON and as a picture."""

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from engine.cli.output import console, json_option, notes, print_json, print_state, waiting
from engine.cli.place import TABLE_NAME, WarehousePlace, at_option, with_place
from engine.drawing.key_axis import SCALE_WORDS, Stretch
from engine.drawing.model import BucketBoxes, RunBoxes, TablePicture, picture_of
from engine.drawing.page import html_page, svg_page
from engine.drawing.png import png_picture
from engine.drawing.theme import heat_class
from engine.monitor.inspection import inspect_table
from engine.runtime.units import count_text, many_text, size_text
from lsm.errors import UnavailableError

_DRAWN_SNAPSHOTS: Final = 200
_LISTED_SNAPSHOTS: Final = 10
_DRAWN_BUCKETS: Final = 400
_LISTED_BUCKETS: Final = 4


@click.command()
@click.argument("table", type=TABLE_NAME)
@at_option
@click.option(
    "--snapshots",
    type=click.IntRange(1),
    help=f"Number of newest snapshots. [default: {_LISTED_SNAPSHOTS}, in a picture {_DRAWN_SNAPSHOTS}]",
)
@click.option(
    "--buckets",
    type=click.IntRange(0),
    help=f"Number of trees to draw, worst first. [default: {_LISTED_BUCKETS}, in a picture {_DRAWN_BUCKETS}]",
)
@click.option("--svg", metavar="FILE", help="Draw the trees and the history as an SVG picture.")
@click.option("--html", metavar="FILE", help="Draw the same as a web page.")
@click.option("--png", metavar="FILE", help="Draw the same as PNG; needs Pillow, the extra fluvial[png].")
@json_option
@with_place
def inspect(
    place: WarehousePlace,
    table: str,
    at: str | None,
    snapshots: int | None,
    buckets: int | None,
    svg: str | None,
    html: str | None,
    png: str | None,
    as_json: bool,
) -> None:
    """Show snapshots, and the sorted runs, key ranges and bytes of each bucket, newest or as of a version."""
    opened, until = place.table(table), None
    store = opened.store
    if at is not None:
        state_at = opened.read(version=at)
        store, until = state_at.table.store, state_at.snapshot
    if not (svg is html is png is None):
        with waiting(f"reading the files of {table}"):
            picture = picture_of(
                store, snapshot_limit=snapshots or _DRAWN_SNAPSHOTS, bucket_limit=buckets or _DRAWN_BUCKETS, until=until
            )
        for path, draw in ((svg, _svg), (html, _html), (png, _png)):
            if path is not None:
                write_picture(Path(path), draw(picture))
        if not as_json:
            return
    with waiting(f"reading the files of {table}"):
        state = inspect_table(store, snapshot_limit=snapshots or _LISTED_SNAPSHOTS, until=until)
    if as_json:
        print_json(state.as_json())
        return
    print_state(state)
    most = _LISTED_BUCKETS if buckets is None else buckets
    if most and store.has_key:
        for line in tree_lines(picture_of(store, snapshot_limit=1, until=until), most=most):
            console().print(line, soft_wrap=True)


def _svg(picture: TablePicture) -> bytes:
    return svg_page(picture).encode()


def _html(picture: TablePicture) -> bytes:
    return html_page(picture).encode()


def _png(picture: TablePicture) -> bytes:
    return png_picture(svg_page(picture))


def write_picture(path: Path, body: bytes) -> None:
    """Write a picture to a file. Raises: UnavailableError."""
    try:
        path.write_bytes(body)
    except OSError as error:
        raise UnavailableError(f"picture cannot be written: file={path} reason={error.strerror}") from error
    notes().print(f"wrote {path}", soft_wrap=True)


# ---- The LSM trees of a table in a terminal: a line per sorted run, blocks for its files


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
