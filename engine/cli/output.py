"""Output of commands: tables for people on a terminal, JSON for scripts, and progress.

Results go to standard output, everything else to standard error, so that pipes receive results only.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
import pyarrow as pa
from pyarrow import csv

from engine.runtime.times import time_text
from engine.runtime.units import many_text, size_text
from logstore.json.text import json_texts, object_texts
from lsm.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

    from engine.monitor.inspection import BucketTree, TableState

_PIPED_WIDTH: Final = 160
_LONGEST_CELL: Final = 40
_QUIET_S: Final = 1.0  # without progress
_IDENTIFIERS: Final = frozenset({"id", "identifier", "snapshot", "schema", "barrier", "batch", "bucket", "offset"})
_ESCAPES: Final = str.maketrans({"\n": r"\n", "\t": r"\t", "\u2028": r"\u2028", "\u2029": r"\u2029"})
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def console() -> "Console":
    """Console for results. A pipe has no width; 160 columns fit most tables."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH)


def notes() -> "Console":
    """Console for everything that is not a result: standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """One JSON document, indented."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()
) -> None:
    """Print a table for people: in columns, or where these are too wide to be read, a block of lines for each row.

    Args:
        title: shown above the table.
        columns: headings.
        rows: one cell per column; None is shown empty.
        numbers: headings of right-aligned columns.
    """
    cells = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
    out = console()
    if _width(columns, cells) <= out.width:
        out.print(_grid(title, columns, cells, numbers))
        return
    if title:
        out.print(title, style="bold", markup=False)
    longest = max(map(len, columns))
    for count, row in enumerate(cells, 1):
        out.print(f"── {count} of {len(cells)} ──", style="dim", markup=False)
        for name, value in zip(columns, row, strict=True):
            out.print(f"{name.ljust(longest)}  {value}".rstrip(), markup=False, soft_wrap=True)


def grid(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()
) -> "Grid":
    """The columns of ``print_table``, to be drawn with other things, in whatever width is left for them."""
    cells = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
    return _grid(title, columns, cells, numbers)


def _grid(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[str]) -> "Grid":
    from rich.table import Table as Grid

    made = Grid(title=title or None, title_justify="left", title_style="bold", show_header=any(columns))
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in cells:
        made.add_row(*(value.replace("[", r"\[") for value in row))  # rich parses [x] as a style
    return made


def _width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """How wide the columns are, with their borders, where no cell but a long text is broken."""
    from rich.cells import cell_len

    longest = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    return sum(min(each, _LONGEST_CELL) + 3 for each in longest) + 1


def _cell(column: str, value: object) -> str:
    """Counts have separators; what identifies something has none, so that it can be copied into a command."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and not _IDENTIFIERS & {*column.split(" ")}:
        return f"{value:,}"
    return str(value)


def print_rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, form: str) -> None:
    """Print rows as a table, as JSON lines or as CSV. JSON and CSV are written batch by batch."""
    if form == "csv":
        _print_csv(batches, schema)
    elif form == "json":
        for rows in batches:
            lines = object_texts(schema.names, rows.columns, suffix="\n")
            sys.stdout.write("".join(lines.to_pylist()))
    else:
        shown = pa.Table.from_batches([rows.cast(schema) for rows in batches], schema)
        cells = [_shown(column) for column in shown.columns]
        numbers = [field.name for field in schema if _is_number(field.type)]
        print_table("", schema.names, zip(*cells, strict=True), numbers=numbers)


def print_lines(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Print rows in columns as they come: the width of a column is that of its first values."""
    widths: list[int] = []
    for rows in batches:
        cells = [_shown(pa.chunked_array([column])) for column in rows.columns]
        if not widths:
            widths = [
                max(len(name), *(min(len(each or ""), _LONGEST_CELL) for each in column))
                for name, column in zip(schema.names, cells, strict=True)
            ]
            sys.stdout.write(_line(schema.names, widths))
        sys.stdout.writelines(_line(row, widths) for row in zip(*cells, strict=True))


def _line(cells: Iterable[str | None], widths: Sequence[int]) -> str:
    padded = [(cell or "").ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip() + "\n"


class RowCount:
    """Batches that are counted while they pass."""

    def __init__(self, given: Iterator[pa.RecordBatch]) -> None:
        """Wrap batches that were not read yet."""
        self._given = given
        self.rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same batches; all of them are asked for, even if only the first rows are used."""
        for batch in self._given:
            self.rows += batch.num_rows
            yield batch


def first_rows(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    """The first rows of some batches; None: all."""
    left = count
    if left == 0:
        return
    for rows in batches:
        yield rows if left is None else rows.slice(0, left)
        if left is not None:
            left -= min(left, rows.num_rows)
            if left == 0:
                return  # the next batch may be long in coming


def _shown(column: pa.ChunkedArray) -> list[str | None]:
    """Values on one line each, with control characters as escapes: a terminal would obey them."""
    if pa.types.is_string(column.type):
        return [None if value is None else _escaped(value) for value in column.to_pylist()]
    return [None if value is None else _escaped(value.strip('"')) for value in json_texts(column).to_pylist()]


def _escaped(text: str) -> str:
    return text if text.isprintable() else printable(text).translate(_ESCAPES)


def _print_csv(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    flat = pa.schema([pa.field(field.name, pa.string()) if _is_json_in_csv(field.type) else field for field in schema])
    sys.stdout.flush()
    with csv.CSVWriter(pa.PythonFile(sys.stdout.buffer, mode="w"), flat) as writer:
        for rows in batches:
            columns = [
                json_texts(column) if _is_json_in_csv(field.type) else column
                for field, column in zip(schema, rows.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
    sys.stdout.flush()


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow))


def _is_json_in_csv(arrow: pa.DataType) -> bool:
    """CSV cannot represent the type: its values are written as JSON."""
    return bool(pa.types.is_nested(arrow) or pa.types.is_binary(arrow))


def print_state(state: "TableState") -> None:
    """Print snapshots and buckets of a table."""
    from engine.drawing.commits import identifier_text

    console().print(
        f"{state.table}: {size_text(state.size_bytes)} in {many_text(len(state.buckets), 'bucket')}, "
        f"{many_text(state.snapshot_count, 'snapshot')}, at most {many_text(state.max_run_count, 'run')} in a bucket"
    )
    snapshots = [
        (each.id, time_text(each.time_ms), each.commit_kind.value, each.total_record_count, identifier_text(each))
        for each in state.snapshots
    ]
    headings: Sequence[str] = ("id", "time", "kind", "records in files", "identifier")
    print_table("newest snapshots", headings, snapshots, numbers=("id", "records in files"))
    rows = [
        (each.partition, each.bucket, _runs_text(each), each.file_count, each.row_count, size_text(each.size_bytes))
        for each in state.buckets
    ]
    headings = ("partition", "bucket", "runs, newest first (level:files)", "files", "rows in files", "size")
    print_table("buckets", headings, rows, numbers=("bucket", "files", "rows in files", "size"))


def _runs_text(bucket: "BucketTree") -> str:
    return " ".join(f"{run.level}:{run.file_count}" for run in bucket.runs)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show a spinner with the time on a terminal while the block runs, if that takes longer than a second.

    Results are printed behind the block.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    spinner = Progress(*columns, console=notes(), transient=True, redirect_stdout=False)
    spinner.add_task(text.replace("[", r"\["), total=None)
    start = threading.Timer(_QUIET_S, spinner.start)
    start.daemon = True
    start.start()
    try:
        yield
    finally:
        start.cancel()
        start.join()  # a start that has begun ends before the stop
        if spinner.live.is_started:
            spinner.stop()


watch_option = click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(0.2),
    metavar="SECONDS",
    help="Again every so many seconds, until Ctrl-C.",
)


def shown_again(watch_s: float | None, show: Callable[[], None]) -> None:
    """Show something once, or every so many seconds until Ctrl-C: a terminal is cleared before each time."""
    if watch_s is None:
        show()
        return
    try:
        while True:
            if sys.stdout.isatty():
                click.clear()
            show()
            sys.stdout.flush()
            time.sleep(watch_s)
    except KeyboardInterrupt:
        return
