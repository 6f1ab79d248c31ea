"""The command ``fluvial``.

Exit codes: 0 done, 1 it failed, 2 the request is wrong (change it), 130 interrupted.
"""

import logging
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa

from engine.cli.broker import broker
from engine.cli.lag import lag
from engine.cli.output import (
    console,
    grid,
    job_progress,
    json_option,
    print_json,
    print_results,
    print_rows,
    print_state,
    waiting,
    without_secrets,
)
from engine.cli.place import Place, with_place
from engine.cli.sql import sql
from engine.deploy.job import run_job
from engine.deploy.job_config import JobConfig, load_job
from engine.deploy.shipping import write_shipment
from engine.inspection import inspect_table
from engine.spark_output import spark_output
from engine.sql.places import SqlSyntaxError
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
@click.version_option(package_name="fluvial")
def cli(debug: bool) -> None:
    """Streaming ingestion for PySpark: tables that are a Kafka log and an LSM tree of columnar files."""
    level = logging.INFO if debug else logging.WARNING
    handler = _StandardError()
    if not debug:
        # what libraries have to say about an interrupted call, for one, is nothing to users
        handler.addFilter(logging.Filter("fluvial"))
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


class _StandardError(logging.Handler):
    """Log messages to what standard error is at the time: progress bars and Spark's log file change that."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        sys.stderr.write(self.format(record) + "\n")


_set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Replace a value of the job file; repeatable."
)


@cli.command()
@click.argument("config")
@_set_option
@click.option("--spark-log", metavar="FILE", help="Where Spark's own messages go. [default: a temporary file]")
@click.option("--quiet", is_flag=True, help="No progress.")
@json_option
def run(config: str, overrides: tuple[str, ...], spark_log: str | None, quiet: bool, as_json: bool) -> None:
    """Run the pipelines of a job file until they end.

    Pipelines with a processing-time trigger run until they are interrupted. What was committed stays, and the next
    run goes on from there.
    """
    job = load_job(config, overrides=overrides, environment=os.environ)
    log_file = spark_log or str(Path(tempfile.gettempdir()) / f"fluvial-{job.name}-{os.getuid()}.log")
    _import_from_here()
    signal.signal(signal.SIGTERM, _interrupt)
    with spark_output(log_file), job_progress([each.name for each in job.pipelines], quiet=quiet) as on_progress:
        try:
            results = run_job(job, on_progress=on_progress)
        except FluvialError as error:
            raise type(error)(f"{error} spark_log={log_file}") from error
    if as_json:
        print_json([asdict(each) for each in results])
    else:
        print_results(results)


@cli.command()
@click.argument("config")
@_set_option
@json_option
def validate(config: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check a job file without running it."""
    job: JobConfig = load_job(config, overrides=overrides, environment=os.environ)
    if as_json:
        print_json(_without_secrets(job.model_dump(by_alias=True)))
    else:
        console().print(f"{config}: {len(job.tables)} tables, {len(job.pipelines)} pipelines: no problem found")


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {key: each for key, each in value.items() if isinstance(each, str)}
        return {key: _without_secrets(each) for key, each in value.items()} | without_secrets(plain)
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


cli.add_command(broker)
cli.add_command(lag)
cli.add_command(sql)


@cli.command()
@click.argument("directory")
@json_option
def package(directory: str, as_json: bool) -> None:
    """Write what spark-submit ships to a cluster that has no Fluvial: an archive, and the script to submit.

    Then: PYTHONPATH=DIRECTORY/fluvial.zip spark-submit --master ... --py-files DIRECTORY/fluvial.zip
    DIRECTORY/fluvial_job.py JOB.yaml
    """
    archive, script = write_shipment(Path(directory))
    if as_json:
        print_json({"archive": str(archive), "script": str(script)})
    else:
        console().print(f"PYTHONPATH={archive} spark-submit --py-files {archive} {script} JOB.yaml", soft_wrap=True)


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


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM ends a job as Ctrl-C does: queries are stopped, nothing is half-written."""
    raise KeyboardInterrupt


def _import_from_here() -> None:
    """Functions of a job file are found in the directory where the command is run, here and in Spark's workers."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])


if __name__ == "__main__":
    main()
