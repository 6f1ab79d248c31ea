"""The command ``fluvial trace``: where the time of one micro-batch went."""

from pathlib import Path

import click

from engine.cli.commands.inspect import write_picture
from engine.cli.output import json_option, print_json, print_table
from engine.drawing.timeline import ms_text, timeline_svg, totals_of
from engine.runtime.batch_trace import batch_trace
from engine.runtime.step_file import read_steps
from engine.runtime.units import many_text


@click.command()
@click.argument("directory")
@click.option("--table", metavar="NAME", help="Its batches only. [default: the table of the newest batch]")
@click.option("--batch", type=int, metavar="ID", help="Number of the batch. [default: the newest that is done]")
@click.option("--svg", metavar="FILE", help="Draw it as an SVG picture.")
@json_option
def trace(directory: str, table: str | None, batch: int | None, svg: str | None, as_json: bool) -> None:
    """Show where the time of one micro-batch went, by the steps in a sink's trace.directory.

    Spans of threads and of Spark's own phases lie side by side, so they add up to more than the batch took.
    """
    found = batch_trace(read_steps(directory), table=table, batch=batch)
    if svg is not None:
        write_picture(Path(svg), timeline_svg(found).encode())
    if as_json:
        print_json(found.as_json())
        return
    if svg is not None:
        return
    rows = "" if found.rows is None else f"{many_text(found.rows, 'row')}, "
    title = f"{found.table}, batch {found.batch}: {rows}{ms_text(found.us)}"
    columns = ("lane", "step", "bucket", "begins", "takes")
    cells = [(each.lane, each.name, each.bucket, ms_text(each.start_us), ms_text(each.us)) for each in found.spans]
    print_table(title, columns, cells, numbers=columns[2:])
    longest = [(name, ms_text(us)) for name, us in totals_of(found.spans).items()]
    print_table("in all", ("step", "takes"), longest, numbers=("takes",))
