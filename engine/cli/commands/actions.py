"""The actions: one command for each procedure, generated from its declaration.

``fluvial expire-snapshots --warehouse W --database D --table T --retain-max 5``; the table may also be given as
``database.table``, as an argument or to ``--table``.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click
import pyarrow as pa
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from engine.catalog import Catalog
from engine.cli.commands.compaction_watch import WATCHED, take_watch_options, watch, watch_options
from engine.cli.output import console, json_option, notes, print_json, print_table
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.procedures import PROCEDURES
from engine.procedures.registry import DRY_RUN, Parameter, ParameterKind, Procedure, bind, silent
from engine.procedures.registry import Progress as OnProgress
from engine.runtime.units import size_text
from engine.table import Table
from lsm.errors import InvalidInputError

EXIT_PROBLEMS: Final = 1
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
    options = [*_shorthands(name), *(_option(each) for each in procedure.parameters)]
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


def _option(parameter: Parameter) -> Callable[[Any], Any]:
    flag = _flag(parameter.name)
    if parameter.kind is ParameterKind.BOOLEAN:
        if parameter.default is False:
            return click.option(flag, parameter.name, is_flag=True, default=None, help=_sentence(parameter.doc))
        off = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(off, parameter.name, default=None, help=_sentence(parameter.doc))
    kind: Any = click.INT if parameter.kind is ParameterKind.INTEGER else click.STRING
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
    """A progress bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield silent
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=notes(), transient=True) as bars:
        task = bars.add_task(words, total=None, visible=shown)
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
