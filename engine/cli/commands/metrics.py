"""The command ``fluvial metrics``: the current state of tables, for Prometheus."""

import sys

import click

from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.monitor.table_metrics import table_metrics_text


@click.command()
@click.argument("tables", type=TABLE_NAME, metavar="TABLE...", nargs=-1, required=True)
@with_place
def metrics(place: WarehousePlace, tables: tuple[str, ...]) -> None:
    """Print one scrape of tables as Prometheus text, from files.

    Sizes, files, sorted runs and compaction debt by bucket and level, age of the newest commit, lag of the log and of
    consumers. A running job serves the same and its own activity: see engine.serve_metrics.
    """
    sys.stdout.write(table_metrics_text([place.table(name) for name in tables]))
