"""The command ``fluvial``.

Exit codes: 0 done, 1 it failed, 2 the request is wrong (change it), 130 interrupted;
``run`` and ``plan`` have others, too.
"""

import logging
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import click
import pyarrow as pa

from engine.batch_read import BatchRead
from engine.cli.actions import action_commands
from engine.cli.broker import broker
from engine.cli.config import config
from engine.cli.deploy import init, package, plan, run, spark_conf, validate
from engine.cli.doctor import doctor
from engine.cli.inspect import inspect
from engine.cli.lag import lag
from engine.cli.metrics import metrics
from engine.cli.output import (
    console,
    grid,
    json_option,
    print_json,
    print_rows,
)
from engine.cli.place import Place, with_place
from engine.cli.sql import sql
from engine.cli.top import top
from engine.logs import Form, configure_logging
from engine.sql.places import SqlSyntaxError
from engine.system_tables import SystemRead, is_system_name
from filestore.datatypes import arrow_schema
from filestore.secrets import without_secrets
from lsm.errors import FluvialError, InvalidInputError

EXIT_FAILED: Final = 1
EXIT_INVALID: Final = 2
EXIT_INTERRUPTED: Final = 130

_SHOWN_ROWS: Final = 20
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def main() -> None:
    """What the script ``fluvial`` calls."""
    # PySpark says so of every release of pandas that is newer than it; nothing here goes through pandas
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; errors are told on standard error, in one line."""
    is_debug = "--debug" in arguments
    try:
        code = cli.main(args=list(arguments), prog_name="fluvial", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_INVALID
    except click.ClickException as error:
        error.show()
        return EXIT_INVALID
    except click.Abort:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except FluvialError as error:
        if is_debug:
            traceback.print_exc()
        sys.stderr.write(f"error: {error if isinstance(error, SqlSyntaxError) else ' '.join(str(error).split())}\n")
        return EXIT_INVALID if isinstance(error, InvalidInputError) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001  (the edge of the process: what comes here is a mistake of ours)
        if is_debug:
            traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"error: unexpected: {reason} fix=run it with --debug and report what is printed\n")
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


@click.group(context_settings=_SETTINGS)
@click.option("--debug", is_flag=True, help="Show log messages, and tracebacks of errors.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Of log messages; json is one object per line, with table, snapshot and the like as fields. [default: text]",
)
@click.version_option(package_name="fluvial")
def cli(debug: bool, log_format: Form | None) -> None:
    """Streaming ingestion for PySpark: tables that are a Kafka log and an LSM tree of columnar files."""
    if log_format is not None or not logging.getLogger().handlers:  # else whoever calls us has chosen
        # what libraries have to say about an interrupted call, for one, is nothing to users
        configure_logging(logging.INFO if debug else logging.WARNING, log_format or "text", all_loggers=debug)


for _command in (
    broker,
    config,
    doctor,
    init,
    inspect,
    lag,
    metrics,
    package,
    plan,
    run,
    spark_conf,
    sql,
    top,
    validate,
):
    cli.add_command(_command)


@cli.command()
@click.argument("table")
@json_option
@with_place
def describe(place: Place, table: str, as_json: bool) -> None:
    """Show columns, keys and options of a table (named database.table)."""
    found = place.table(table)
    schema = found.schema
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "key": field.name in schema.primary_keys,
            "partition": field.name in schema.partition_keys,
            "comment": field.description,
        }
        for field in schema.fields
    ]
    if as_json:
        print_json(
            {"table": found.name, "comment": schema.comment, "columns": columns, "options": dict(schema.options)}
        )
        return
    rows = [
        (each["name"], each["type"], "key" if each["key"] else "", "yes" if each["partition"] else "", each["comment"])
        for each in columns
    ]
    title = f"{found.name}{': ' + schema.comment if schema.comment else ''}"
    console().print(grid(title, ("column", "type", "key", "partition", "comment"), rows))
    console().print(grid("options", ("option", "value"), without_secrets(schema.options).items()))


@cli.command()
@click.argument("table")
@click.option("--columns", metavar="A,B", help="[default: all]")
@click.option(
    "--filter", "filter_text", metavar="CONDITION", help="As in SQL's WHERE: \"amount > 10 AND dt = '2020-08-08'\"."
)
@click.option(
    "--limit", type=click.IntRange(0), help=f"Most rows to show. [default: {_SHOWN_ROWS} for a table, else all]"
)
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@json_option
@with_place
def read(
    place: Place,
    table: str,
    columns: str | None,
    filter_text: str | None,
    limit: int | None,
    form: str,
    as_json: bool,
) -> None:
    """Print rows of the newest snapshot of a table, or of a system table ('db.t$files', sys.tables).

    JSON is one object per line; --json is short for --format json.
    """
    read: BatchRead | SystemRead
    if is_system_name(table):
        read = place.catalog.system_table(table)
        schema = read.table_schema
    else:
        found = place.table(table)
        read, schema = found.read(), found.schema
    names = [name.strip() for name in columns.split(",")] if columns else list(schema.column_names)
    form = "json" if as_json else form
    shown = limit if limit is not None else _SHOWN_ROWS if form == "table" else None
    rows = read.to_batches(columns=names, filter=filter_text)
    print_rows(_first(rows, shown), arrow_schema(schema.fields_of(names)), form=form)


for _action in action_commands():
    cli.add_command(_action)


def _first(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    left = count
    for rows in batches:
        if left is None:
            yield rows
        elif left > 0:
            yield rows.slice(0, left)
            left -= min(left, rows.num_rows)
        else:
            return


if __name__ == "__main__":
    main()
