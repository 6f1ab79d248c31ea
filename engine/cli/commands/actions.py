"""The actions: one command for each procedure, generated from its declaration.

``fluvial expire-snapshots --warehouse W --database D --table T --retain-max 5``; the table may also be given as
``database.table``, as an argument or to ``--table``.
"""

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click
import pyarrow as pa
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine.catalog import Catalog
from engine.cli.output import console, json_option, notes, print_json, print_table, waiting
from engine.cli.place import BRANCH_NAME, TABLE_NAME, TAG_NAME, VERSION_NAME, WarehousePlace, with_place
from engine.cli.signals import stop_on_signals
from engine.deploy.compaction_job import CompactionJob, JobEvent, JobPolicy, every_bucket
from engine.procedures import PROCEDURES
from engine.procedures.maintenance.compaction import chosen_buckets, matching_tables
from engine.procedures.registry import DRY_RUN, Parameter, ParameterKind, Procedure, bind, silent
from engine.procedures.registry import Progress as OnProgress
from engine.procedures.values import parse_duration_ms
from engine.runtime.units import size_text
from engine.table import Table
from lsm.errors import InvalidInputError

# ---- ``fluvial compact --watch`` and ``fluvial compact-database --watch``: compaction as a separate job

logger = logging.getLogger("fluvial.compaction")

WATCHED: Final = frozenset({"compact", "compact_database"})
_ORDER_ARGUMENTS: Final = ("order_strategy", "order_by")
_POLICY_ARGUMENTS: Final = ("compact_strategy", "most_buckets", "time_limit", *_ORDER_ARGUMENTS)
_OPTIONS: Final = ("watch", "interval", "max_interval", "parallelism")


def watch_options() -> list[Callable[[Any], Any]]:
    """The options of a watching command, besides the arguments of its procedure."""
    policy = JobPolicy()
    seconds = click.FloatRange(0.05)
    return [
        click.option("--watch", is_flag=True, help="Run until SIGINT or SIGTERM; running merges are completed."),
        click.option(
            "--interval",
            type=seconds,
            default=policy.interval_s,
            show_default=True,
            help="With --watch: seconds between two checks of a changing table.",
        ),
        click.option(
            "--max-interval",
            type=seconds,
            default=policy.most_wait_s,
            show_default=True,
            help="With --watch: maximum seconds between checks of an idle or failing table.",
        ),
        click.option(
            "--parallelism",
            type=click.IntRange(1),
            default=policy.parallelism,
            show_default=True,
            help="With --watch: buckets to merge concurrently.",
        ),
    ]


def take_watch_options(given: dict[str, Any]) -> Mapping[str, Any] | None:
    """Remove the options of ``watch_options`` from the given ones; None: --watch is not set."""
    taken = {name: given.pop(name) for name in _OPTIONS}
    return taken if taken["watch"] else None


def watch(
    target: Table | Catalog,
    catalog: Catalog,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Compact until a signal arrives, and print one line per commit."""
    given = [name for name in _ORDER_ARGUMENTS if arguments.get(name, "none") != "none"]
    if given:
        raise InvalidInputError(
            f"a job that watches compacts without an order: {given[0]}={arguments[given[0]]} "
            "fix='run fluvial cluster from time to time'"
        )
    policy = JobPolicy(
        is_full=arguments.get("compact_strategy") == "full",
        interval_s=options["interval"],
        most_wait_s=options["max_interval"],
        parallelism=options["parallelism"],
        buckets_per_commit=arguments.get("most_buckets") or JobPolicy().buckets_per_commit,
    )
    chosen = {key: value for key, value in arguments.items() if key not in _POLICY_ARGUMENTS}
    stop = threading.Event()
    time_limit = arguments.get("time_limit")
    if time_limit is not None:
        end = threading.Timer(parse_duration_ms("time_limit", time_limit) / 1000, stop.set)
        end.daemon = True
        end.start()
    print_event = _print_json if as_json else _print_line
    if isinstance(target, Table):
        name = target.name
        choice = (lambda store: chosen_buckets(store, **chosen)) if chosen else every_bucket
        job = CompactionJob(
            catalog, lambda: [name], policy=policy, on_event=print_event, choice=choice, must_exist=True
        )
    else:
        job = CompactionJob(catalog, lambda: _matching(catalog, chosen), policy=policy, on_event=print_event)
    with stop_on_signals(stop, (signal.SIGINT, signal.SIGTERM)):
        job.run(stop)


def _matching(catalog: Catalog, chosen: Mapping[str, Any]) -> list[str]:
    """The tables of a round; a database that cannot be listed is logged, and is none of them."""
    problems: dict[str, str] = {}
    names = matching_tables(catalog, problems, **chosen)
    for database, problem in problems.items():
        logger.warning("tables of a database are not compacted: database=%s error=%s", database, problem)
    return names


def _print_json(event: JobEvent) -> None:
    sys.stdout.write(json.dumps(event.as_json(), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _print_line(event: JobEvent) -> None:
    if event.event == "compacted":
        facts = (
            f"snapshot {event.snapshot_id}: {event.buckets} buckets, {event.files_before} files became "
            f"{event.files_after}, {size_text(event.size_before_bytes)} became {size_text(event.size_after_bytes)}, "
            f"{event.seconds:.1f} s"
        )
        facts += f", {event.tasks_left} merges left" if event.tasks_left else ""
    else:
        facts = f"{event.event}, next try in {event.retry_s:.0f} s: {event.error}"
    console().print(f"{event.table}: {facts}", soft_wrap=True, markup=False)
    sys.stdout.flush()


# ---- The actions: one command for each procedure, generated from its declaration


EXIT_PROBLEMS: Final = 1
_NAMED: Final[Mapping[str, click.ParamType[str]]] = {
    "tag": TAG_NAME,
    "branch": BRANCH_NAME,
    "from_branch": BRANCH_NAME,
    "version": VERSION_NAME,
}
"""What shells complete, by the name of the parameter."""
_BYTES: Final = "_bytes"
_ALL: Final = "all_tables"
# short options for common arguments: command, option, argument, value, help
_SHORTHANDS: Final = (("compact", "--full", "compact_strategy", "full", "Short for --compact-strategy full."),)


def action_commands() -> Iterator[click.Command]:
    """A command for each procedure."""
    for procedure in PROCEDURES.values():
        yield _command(procedure)


def table_name(database: str | None, table: str | None, positional: str | None) -> str:
    """The table's full name, ``database.table``.

    Args:
        database: value of ``--database``.
        table: value of ``--table``; may include the database.
        positional: the table given as an argument.

    Raises:
        InvalidInputError: no table is given, two are, or the database is missing.
    """
    if (table is None) == (positional is None):
        raise InvalidInputError(f"name one table: table={table} argument={positional} fix=give --database D --table T")
    name = str(table if positional is None else positional)
    if "." in name:
        if database is not None and name.split(".")[0] != database:
            raise InvalidInputError(f"two databases are named: database={database} table={name}")
        return name
    if database is None:
        raise InvalidInputError(f"no database: table={name} fix=give --database D, or --table D.{name}")
    return f"{database}.{name}"


def _command(procedure: Procedure[Any]) -> click.Command:
    name = procedure.name.replace("_", "-")

    def run(place: WarehousePlace, as_json: bool, **given: Any) -> int:
        watched = take_watch_options(given) if procedure.name in WATCHED else None
        catalog = place.catalog
        target: Table | Catalog = catalog
        if procedure.is_of_table:
            name_parts = (given.pop("database"), given.pop("table"), given.pop("table_name"))
            if given.pop(_ALL, False) and procedure.for_all is not None:
                if any(name_parts):
                    raise InvalidInputError(f"a table and all of them are named: table={name_parts} fix=leave out one")
                arguments = _bound(procedure, given)
                result = procedure.for_all(catalog, **arguments)
                _print(procedure, catalog, result, dry_run=bool(arguments.get(DRY_RUN)), as_json=as_json)
                return 0
            target = catalog.table(table_name(*name_parts))
        arguments = _bound(procedure, given)
        if watched is not None:
            watch(target, catalog, arguments, watched, as_json=as_json)
            return 0
        with _progress(name, shown=procedure.reports_progress) as progress:
            result = procedure.run(target, arguments, progress)
        _print(procedure, target, result, dry_run=bool(arguments.get(DRY_RUN)), as_json=as_json)
        return EXIT_PROBLEMS if procedure.fails_with_rows and result.num_rows else 0

    run.__name__, run.__doc__ = procedure.name, procedure.description
    command: Callable[..., Any] = json_option(run)
    options = [*_shorthands(name), *(_option(each, procedure.name) for each in procedure.parameters)]
    for option in reversed([*options, *(watch_options() if procedure.name in WATCHED else ())]):
        command = option(command)
    if procedure.for_all is not None:
        command = click.option("--all", _ALL, is_flag=True, help="All tables of the catalog.")(command)
    if procedure.is_of_table:
        command = click.option("--table", metavar="T", help="Table name, or D.T.")(command)
        command = click.option("--database", metavar="D", help="Database of the table.")(command)
        command = click.argument("table_name", type=TABLE_NAME, metavar="[D.T]", required=False)(command)
    return click.command(name, help=procedure.description, short_help=procedure.summary)(with_place(command))


def _bound(procedure: Procedure[Any], given: Mapping[str, Any]) -> dict[str, object]:
    return bind(procedure, (), {key: value for key, value in given.items() if value is not None})


def _option(parameter: Parameter, procedure: str) -> Callable[[Any], Any]:
    flag = _flag(parameter.name)
    is_new = procedure.startswith(f"create_{parameter.name}")  # a name that is not there yet
    if parameter.kind is ParameterKind.BOOLEAN:
        if parameter.default is False:
            return click.option(flag, parameter.name, is_flag=True, default=None, help=_sentence(parameter.doc))
        off = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(off, parameter.name, default=None, help=_sentence(parameter.doc))
    kind: Any = click.STRING if is_new else _NAMED.get(parameter.name, click.STRING)
    if parameter.kind is ParameterKind.INTEGER:
        kind = click.INT
    if parameter.choices:
        kind = click.Choice(parameter.choices)
    shown = "" if parameter.default is None else f" [default: {parameter.default}]"
    flags = [flag, *map(_flag, parameter.aliases)]
    text = f"{_sentence(parameter.doc)}{shown}"
    return click.option(*flags, parameter.name, type=kind, required=parameter.is_required, help=text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shorthands(command: str) -> list[Callable[[Any], Any]]:
    return [
        click.option(option, argument, flag_value=value, help=text)
        for name, option, argument, value, text in _SHORTHANDS
        if name == command
    ]


@contextmanager
def _progress(words: str, *, shown: bool) -> Iterator[OnProgress]:
    """A progress bar on a terminal, or a spinner where the procedure reports none; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield silent
        return
    if not shown:
        with waiting(words):
            yield silent
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True) as bars:
        task = bars.add_task(words, total=None)
        yield lambda done, of: bars.update(task, completed=done, total=of)


def _print(
    procedure: Procedure[Any], target: Table | Catalog, result: pa.Table, *, dry_run: bool, as_json: bool
) -> None:
    rows = result.to_pylist()
    if as_json:
        place = {"table": target.name} if isinstance(target, Table) else {"warehouse": target.warehouse}
        print_json({"action": procedure.name, **place, "dry_run": dry_run, "rows": rows})
        return
    if not rows:
        console().print("no problem found" if procedure.fails_with_rows else "nothing to do")
        return
    names = result.column_names
    numbers = [each.name for each in result.schema if pa.types.is_integer(each.type)]
    title = f"{procedure.name.replace('_', '-')}{' (dry run: nothing was done)' if dry_run else ''}"
    print_table(title, [*map(_heading, names)], map(_cells, rows), numbers=[*map(_heading, numbers)])


def _heading(column: str) -> str:
    return column.removesuffix(_BYTES).replace("_", " ")


def _cells(row: Mapping[str, Any]) -> list[object]:
    return [size_text(value) if name.endswith(_BYTES) and value is not None else value for name, value in row.items()]
