"""The command ``fluvial``.

Exit codes: 0 done, 1 it failed, 2 the request is wrong (change it), 130 interrupted;
``run`` and ``plan`` have others, too.
"""

import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Final

import click
import pyarrow as pa

from engine.cli.broker import broker
from engine.cli.deploy import init, package, plan, run, spark_conf, validate
from engine.cli.lag import lag
from engine.cli.output import (
    console,
    grid,
    json_option,
    print_json,
    print_rows,
    print_state,
    waiting,
    without_secrets,
)
from engine.cli.place import Place, with_place
from engine.deploy.log_output import set_up_logging
from engine.deploy.operation_config import LoggingConfig
from engine.inspection import inspect_table
from filestore.datatypes import arrow_schema
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
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
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
@click.version_option(package_name="fluvial")
def cli(debug: bool) -> None:
    """Streaming ingestion for PySpark: tables that are a Kafka log and an LSM tree of columnar files."""
    set_up_logging(LoggingConfig(), is_debug=debug)


for _command in (broker, init, lag, package, plan, run, spark_conf, validate):
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
@click.option(
    "--snapshots", type=click.IntRange(1), default=10, show_default=True, help="How many of the newest to show."
)
@json_option
@with_place
def inspect(place: Place, table: str, snapshots: int, as_json: bool) -> None:
    """Show snapshots, and the runs and bytes of each bucket, of a table."""
    state = inspect_table(place.table(table).store, snapshot_limit=snapshots)
    if as_json:
        print_json(state.as_json())
    else:
        print_state(state)


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
@with_place
def read(place: Place, table: str, columns: str | None, filter_text: str | None, limit: int | None, form: str) -> None:
    """Print rows of the newest snapshot of a table. JSON is one object per line."""
    found = place.table(table)
    names = [name.strip() for name in columns.split(",")] if columns else list(found.schema.column_names)
    fields = found.schema.fields_of(names)
    shown = limit if limit is not None else _SHOWN_ROWS if form == "table" else None
    rows = found.read().to_batches(columns=names, filter=filter_text)
    print_rows(_first(rows, shown), arrow_schema(fields), form=form)


@cli.command()
@click.argument("table")
@click.option("--full", is_flag=True, help="Merge every bucket into one run, whatever it costs.")
@json_option
@with_place
def compact(place: Place, table: str, full: bool, as_json: bool) -> None:
    """Merge the sorted runs of a table's buckets, where it pays or everywhere."""
    found = place.table(table)
    before = inspect_table(found.store, snapshot_limit=1)
    with waiting(f"compacting {found.name}"):
        found.compact(full=full)
    after = inspect_table(found.store, snapshot_limit=1)
    facts = {
        name: {"max_run_count": state.max_run_count, "size_bytes": state.size_bytes}
        for name, state in (("before", before), ("after", after))
    }
    if as_json:
        print_json({"table": found.name, **facts})
    else:
        rows = [(name, each["max_run_count"], each["size_bytes"]) for name, each in facts.items()]
        columns = ("", "most runs in a bucket", "bytes")
        console().print(grid(found.name, columns, rows, numbers=columns[1:]))


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
