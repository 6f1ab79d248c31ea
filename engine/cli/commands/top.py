"""The command ``fluvial top``: a live view of tables."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from engine.cli.output import console, grid, json_option, print_json
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.lineage.origins import CommitOrigin
from engine.monitor.table_probe import BucketHealth, TableHealth, TableProbe
from engine.runtime.times import time_text
from engine.runtime.units import count_text, many_text, size_text
from engine.stream.position.place import BASE_SUFFIX
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.snapshot.snapshot import CommitKind
from lsm.errors import FluvialError

_BUCKETS: Final = 12
_COMMITS: Final = 8
_BAR: Final = 24
_WINDOW_S: Final = 300.0


@click.command()
@click.argument("tables", type=TABLE_NAME, metavar="[TABLE]...", nargs=-1)
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between refreshes."
)
@click.option("--once", is_flag=True, help="Print once and exit; default without a TTY.")
@json_option
@with_place
def top(place: WarehousePlace, tables: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Watch tables: rates, lag, sorted runs, debt, newest snapshots.

    Without names, all tables of the warehouse are shown; those without writes in one line. Rates cover the last five
    minutes. A refresh reads only new metadata. "streams behind" counts snapshots for each consumer-id.
    """
    unopened: dict[str, str] = {}
    opened = [place.table(name) for name in tables] if tables else list(_all(place, unopened))
    watched = [(table, TableProbe(table)) for table in opened]

    def look() -> tuple[list[tuple[TableHealth, Table]], dict[str, str]]:
        problems = dict(unopened)
        return list(seen(watched, None if tables else problems)), problems

    if as_json:
        found, problems = look()
        print_json([health.as_json() for health, _ in found])
        for name, problem in problems.items():
            click.echo(f"warning: a table cannot be read: {name}: {problem}", err=True)
        return
    out = console()
    if once or not out.is_terminal:
        out.print(screen(*look()))
        return
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen(*look()), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return


def _all(place: WarehousePlace, problems: dict[str, str]) -> Iterator[Table]:
    """All tables of the warehouse that can be opened; names of others, and why they cannot, go to ``problems``."""
    catalog = place.catalog
    place.check_exists()
    for database, name in all_tables(catalog, problems):
        try:
            yield catalog.table(f"{database}.{name}")
        except (FluvialError, OSError) as error:
            problems[f"{database}.{name}"] = str(error)


def seen(
    watched: Sequence[tuple[Table, TableProbe]], problems: dict[str, str] | None
) -> Iterator[tuple[TableHealth, Table]]:
    """How the tables are.

    Args:
        watched: the tables.
        problems: gets the names of tables that cannot be read, and why; those that were dropped are left out. None:
            the first of either ends the look.
    """
    for table, probe in watched:
        try:
            yield probe.look(), table
        except (FluvialError, OSError) as error:
            if problems is None:
                raise
            if table.store.is_as_opened():
                problems[table.name] = str(error)


def screen(found: Sequence[tuple[TableHealth, Table]], problems: Mapping[str, str]) -> RenderableType:
    """The whole screen: a line per table; for a single table also its worst buckets and newest commits.

    Args:
        found: the tables and how they are.
        problems: the tables that cannot be read, and databases that cannot be listed, and why.
    """
    parts: list[RenderableType] = [_overview(found)]
    if len(found) == 1:
        [(health, table)] = found
        parts += [_buckets(health, table), _commits(health)]
    parts += [Text(f"{each.table}: {each.log_problem}", style="red") for each, _ in found if each.log_problem]
    parts += [Text(f"{name}: {problem}", style="red") for name, problem in problems.items()]
    return Group(*parts)


def _overview(found: Sequence[tuple[TableHealth, Table]]) -> RenderableType:
    """A line for each table that is written, that stands out, or that was named alone; the others in one sentence."""
    columns = (
        "table",
        "snapshot",
        "age",
        "commits/min",
        "rows/s",
        "size/s",
        "files",
        "size",
        "runs",
        "debt",
        "log lag",
        "written by",
        "streams behind",
    )
    made = Grid()
    for name in columns:
        made.add_column(name, justify="left" if name in ("table", "written by") else "right", overflow="fold")
    idle: list[str] = []
    for health, table in found:
        cells = _cells(health, table)
        if len(found) > 1 and not health.rates(_WINDOW_S).commits_per_minute and not any(map(_hurts, cells)):
            idle.append(health.table)
        else:
            made.add_row(*cells)
    words = Text(f"{many_text(len(idle), 'table')} without writes in five minutes: ", style="dim")
    parts: list[RenderableType] = [made] if len(idle) < len(found) or not found else []
    return Group(*parts, words.append(", ".join(idle))) if idle else Group(*parts)


def _cells(health: TableHealth, table: Table) -> list[Text]:
    rates, options = health.rates(_WINDOW_S), table.options
    lag = None if health.log_lag is None else sum(health.log_lag.values())
    behind = _streams_behind(health, table)
    runs = health.max_runs
    worry = "red" if runs >= options.run_count_stop_trigger else "yellow" if runs >= options.run_count_trigger else ""
    return [
        Text(health.table),
        Text("" if health.snapshot is None else f"{health.snapshot.id:,}"),
        Text("" if health.age_ms is None else _age(health.age_ms)),
        Text(f"{rates.commits_per_minute:.1f}"),
        Text(f"{rates.rows_per_s:,.0f}"),
        Text(size_text(round(rates.bytes_per_s))),
        Text(count_text(health.sum("file_count"))),
        Text(size_text(health.sum("size_bytes"))),
        Text(count_text(runs), style=worry if table.store.has_key else ""),
        Text(size_text(health.compaction_debt), style="yellow" if health.compaction_debt else ""),
        Text("" if lag is None else count_text(lag), style="yellow" if lag else ""),
        Text(_job(health)),
        Text(behind, style="yellow" if behind.strip("0 ,") else ""),
    ]


def _hurts(cell: Text) -> bool:
    return bool(cell.style)


def _job(health: TableHealth) -> str:
    """The job of the newest write that names one."""
    for each in health.commits:
        if each.snapshot.commit_kind is not CommitKind.COMPACT:
            origin = CommitOrigin.of(each.snapshot)
            return "" if origin is None else origin.job
    return ""


def _streams_behind(health: TableHealth, table: Table) -> str:
    """For each stream with a consumer-id, the snapshots that it has not read: ``0, 12``; empty without streams."""
    newest_id = 0 if health.snapshot is None else health.snapshot.id
    places = table.store.consumers.next_snapshots()
    return ", ".join(
        count_text(max(0, newest_id + 1 - next_id))
        for consumer, next_id in sorted(places.items())
        if not consumer.endswith(BASE_SUFFIX)
    )


def _buckets(health: TableHealth, table: Table) -> Grid:
    worst = sorted(health.buckets, key=lambda each: (-each.sorted_runs, -each.size_bytes))[:_BUCKETS]
    trigger, stop = table.options.run_count_trigger, table.options.run_count_stop_trigger
    made = Grid(title=f"{len(worst)} of {len(health.buckets)} buckets, most runs first", title_justify="left")
    for name, justify in (("partition", "left"), ("bucket", "right"), ("runs", "left"), ("files", "right")):
        made.add_column(name, justify="right" if justify == "right" else "left")
    for name in ("rows in files", "deletes", "size", "debt"):
        made.add_column(name, justify="right")
    for each in worst:
        made.add_row(
            Text(each.partition or ""),
            str(each.bucket),
            _bar(each, trigger, stop),
            count_text(each.file_count),
            count_text(each.row_count),
            count_text(each.delete_count),
            size_text(each.size_bytes),
            size_text(each.compaction_debt) if each.compaction_debt else "",
        )
    return made


def _bar(bucket: BucketHealth, trigger: int, stop: int) -> Text:
    """Runs up to the stop trigger: green, yellow from the compaction trigger on, red from the stop trigger on."""
    runs = bucket.sorted_runs
    colour = "red" if runs >= stop else "yellow" if runs >= trigger else "green"
    filled = min(_BAR, round(_BAR * runs / max(stop, 1)))
    return Text(f"{runs:>4} ").append("█" * filled, style=colour).append("░" * (_BAR - filled), style="dim")


def _commits(health: TableHealth) -> Grid:
    rows = [
        (
            each.snapshot.id,
            time_text(each.snapshot.time_ms),
            each.snapshot.commit_kind.value,
            each.snapshot.delta_record_count,
            size_text(each.added_bytes) if each.added_bytes else "",
            each.snapshot.commit_user[:13],
        )
        for each in health.commits[:_COMMITS]
    ]
    columns = ("snapshot", "time", "kind", "rows", "new files", "user")
    return grid("newest snapshots", columns, rows, numbers=("snapshot", "rows", "new files"))


def _age(age_ms: int) -> str:
    seconds = age_ms // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
