"""The command ``fluvial metrics``: the current state of tables for Prometheus, and what shows it and warns."""

import sys
from collections.abc import Callable
from typing import Any

import click

from engine.cli.output import waiting
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.monitor.dashboards import alert_rules, dashboard
from engine.monitor.table_metrics import table_metrics_text


def _prints(flag: str, text: Callable[[], str], help_text: str) -> Callable[[Any], Any]:
    """An option that prints a text, for which no table is needed."""

    def show(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
        if is_wanted:
            click.echo(text(), nl=False)
            context.exit()

    return click.option(flag, is_flag=True, is_eager=True, expose_value=False, callback=show, help=help_text)


@click.command()
@click.argument("tables", type=TABLE_NAME, metavar="TABLE...", nargs=-1, required=True)
@_prints("--dashboard", dashboard, "Print a dashboard for Grafana (JSON), and stop.")
@_prints("--alerts", alert_rules, "Print alert rules for Prometheus (YAML), and stop.")
@with_place
def metrics(place: WarehousePlace, tables: tuple[str, ...]) -> None:
    """Print one scrape of tables as Prometheus text, from files.

    Sizes, files, sorted runs and compaction debt by bucket and level, age of the newest commit, overdue expiry, lag of
    the log and of consumers. A running job serves the same and its own activity: see engine.serve_metrics.
    """
    with waiting("measuring tables"):
        text = table_metrics_text([place.table(name) for name in tables])
    sys.stdout.write(text)
