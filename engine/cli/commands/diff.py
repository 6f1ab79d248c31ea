"""The command ``fluvial diff``: the differences between two states of a table."""

from typing import Final

import click
import pyarrow as pa

from engine.cli.output import console, first_rows, json_option, notes, print_json, print_rows, print_table, waiting
from engine.cli.place import TABLE_NAME, VERSION_NAME, WarehousePlace, with_place
from engine.types.rows import ROW_KIND_COLUMN

_SHOWN_ROWS: Final = 20


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.argument("before", type=VERSION_NAME)
@click.argument("after", type=VERSION_NAME, default="latest")
@click.option("--columns", "by_column", is_flag=True, help="Only count differences, by rows and by columns.")
@click.option("--limit", type=click.IntRange(0), help=f"Maximum number of rows. [default: {_SHOWN_ROWS}, as JSON all]")
@json_option
@with_place
def diff(
    place: WarehousePlace, table: str, before: str, after: str, by_column: bool, limit: int | None, as_json: bool
) -> None:
    """Show what differs between two states of a table: rows, or counts.

    A state is a snapshot (5), a tag (eod), savepoint.3, timestamp.2026-01-31T12:00:00, watermark.N, latest, or any of
    these prefixed with a branch and a dot (dev.eod); 0 is the empty table. JSON is one object per row.
    """
    found = place.table(table).diff(before, after)
    column_changes = [str(each) for each in found.columns]
    if by_column:
        with waiting(f"comparing the rows of {table}"):
            summary = found.summary()
        counts = {"inserted": summary.inserted, "deleted": summary.deleted, "updated": summary.updated}
        if as_json:
            print_json(
                {
                    "table": table,
                    "rows": counts,
                    "changed_values": dict(summary.changed_values),
                    "columns": column_changes,
                }
            )
            return
        print_table("rows", list(counts), [list(counts.values())], numbers=list(counts))
        values = sorted(summary.changed_values.items())
        print_table("columns", ("column", "changed values"), values, numbers=("changed values",))
        for line in column_changes:
            console().print(f"column {line}")
        return
    for line in column_changes:
        notes().print(f"column {line}", soft_wrap=True)
    shown = limit if limit is not None else None if as_json else _SHOWN_ROWS
    names = [ROW_KIND_COLUMN, *(name for name in found.schema.names if name != ROW_KIND_COLUMN)]
    rows = (batch.select(names) for batch in found.to_batches())
    schema = pa.schema([found.schema.field(name) for name in names])
    print_rows(first_rows(rows, shown), schema, form="json" if as_json else "table")
