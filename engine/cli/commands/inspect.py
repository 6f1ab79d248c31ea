"""The command ``fluvial inspect``: the structure of a table, as text, as JSON and as a picture."""

from pathlib import Path
from typing import Final

import click

from engine.cli.output import console, json_option, notes, print_json, print_state
from engine.cli.place import TABLE_NAME, WarehousePlace, at_option, with_place
from engine.drawing.model import TablePicture, picture_of
from engine.drawing.page import html_page, svg_page
from engine.drawing.png import png_picture
from engine.drawing.terminal import tree_lines
from engine.monitor.inspection import inspect_table
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
        picture = picture_of(
            store, snapshot_limit=snapshots or _DRAWN_SNAPSHOTS, bucket_limit=buckets or _DRAWN_BUCKETS, until=until
        )
        for path, draw in ((svg, _svg), (html, _html), (png, _png)):
            if path is not None:
                write_picture(Path(path), draw(picture))
        if not as_json:
            return
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
