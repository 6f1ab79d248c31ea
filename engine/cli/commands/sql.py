"""``fluvial sql``: statements from the command line, a file, a pipe or a prompt.

Spark starts with the first statement that needs it.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from engine.cli.output import first_rows, notes, print_rows, waiting
from engine.cli.place import WarehousePlace, table_names, with_place
from engine.dialect.grammar.parser import ends_statement, parse_statements
from engine.dialect.grammar.places import SqlSyntaxError
from engine.dialect.grammar.statements import Statement
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlResult, SqlSession
from engine.runtime.scratch import private_path
from engine.runtime.spark_messages import fluvial_error
from filestore.catalog.catalog import DEFAULT_DATABASE
from lsm.errors import FluvialError, InvalidInputError
from lsm.secret_names import shown_pairs

_SHOWN_ROWS: Final = 1000


@click.command()
@click.argument("text", required=False)
@click.option("-e", "--execute", "executed", metavar="TEXT", help="The same as TEXT.")
@click.option("-f", "--file", "path", metavar="FILE", help="Statements to run, separated by ;")
@click.option("--database", default=DEFAULT_DATABASE, show_default=True, help="Initial current database.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--limit", type=click.IntRange(0), help=f"Maximum rows per result. [default: {_SHOWN_ROWS} for a table, else all]"
)
@click.option("--spark-log", metavar="FILE", help="File for Spark's log messages. [default: a temporary file]")
@with_place
def sql(
    place: WarehousePlace,
    text: str | None,
    executed: str | None,
    path: str | None,
    database: str,
    form: str,
    limit: int | None,
    spark_log: str | None,
) -> None:
    """Run SQL statements on the tables of a warehouse.

    Without TEXT and --file, statements are read from standard input; on a terminal, one by one from a prompt. Spark
    starts when a statement needs it: queries and changes of rows do, most others do not.
    """
    shown = limit if limit is not None else _SHOWN_ROWS if form == "table" else None
    _run(place, _given(text, executed, path), database, shown, form, spark_log)


@click.command()
@click.option("--database", default=DEFAULT_DATABASE, show_default=True, help="Initial current database.")
@click.option("--spark-log", metavar="FILE", help="File for Spark's log messages. [default: a temporary file]")
@with_place
def shell(place: WarehousePlace, database: str, spark_log: str | None) -> None:
    """Run SQL statements at a prompt, which has a history and completes names.

    As fluvial sql without statements.
    """
    _run(place, _given(None, None, None), database, _SHOWN_ROWS, "table", spark_log)


def _run(
    place: WarehousePlace, given: str | None, database: str, shown: int | None, form: str, spark_log: str | None
) -> None:
    """Run statements, or with None those that are typed at a prompt."""
    with ExitStack() as open_things:
        context = SqlContext(
            catalog=place.catalog, open_spark=lambda: _start_spark(open_things, spark_log), database=database
        )
        session = SqlSession(context)

        def run(statement: Statement) -> None:
            _print(_result(session, statement), shown, form)

        if given is None:
            _converse(run, partial(table_names, place.catalog))
        else:
            for statement in parse_statements(given):
                run(statement)


def _given(text: str | None, executed: str | None, path: str | None) -> str | None:
    """The statements; None: read them from a prompt."""
    if sum(each is not None for each in (text, executed, path)) > 1:
        raise InvalidInputError(f"statements are given twice: file={path} fix='give TEXT, -e or --file'")
    text = executed if text is None else text
    if path is not None:
        try:
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"file of statements cannot be read: file={path} error={error}") from error
    if text is not None:
        return text
    return None if sys.stdin.isatty() else sys.stdin.read()


def _converse(run: Callable[[Statement], None], tables: Callable[[str], list[str]]) -> None:
    """Run statements as they are typed; an error is printed, and the prompt continues."""
    for typed in statements_typed(tables):
        try:
            for statement in parse_statements(typed):
                run(statement)
        except FluvialError as error:
            notes().print(f"error: {error}", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            notes().print("interrupted")


def _result(session: SqlSession, statement: Statement) -> SqlResult:
    try:
        return session.run(statement)
    except PySparkException as error:
        raise _as_fluvial_error(error) from None  # Spark repeats the statement, with its secrets


def _print(result: SqlResult, shown: int | None, form: str) -> None:
    rows = result.table
    if result.frame is not None:
        frame = result.frame if shown is None else result.frame.limit(shown + 1)
        try:
            rows = frame.toArrow()
        except PySparkException as error:
            raise _as_fluvial_error(error) from None  # Spark repeats the statement, with its secrets
    if rows is None or not rows.num_columns:
        return
    printable = _printable(rows)
    print_rows(first_rows(iter(printable.to_batches()), shown), printable.schema, form=form)
    if shown is not None and rows.num_rows > shown:
        notes().print(f"only {shown} rows are shown: see --limit")


def _as_fluvial_error(error: PySparkException) -> FluvialError:
    """Spark's error; for a mistake in the statement, without the query plan that Spark appends."""
    if isinstance(error, ParseException | AnalysisException):
        return SqlSyntaxError(shown_pairs(str(error).split("\n\nJVM stacktrace")[0].split(";\n'")[0].strip()))
    return fluvial_error(error, "statement failed:")


def _printable(rows: pa.Table) -> pa.Table:
    """Columns of types that tables do not have, such as intervals, as text."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_null(field.type) or pa.types.is_interval(field.type) or pa.types.is_duration(field.type):
            texts = pa.array([None if value is None else str(value) for value in rows[index].to_pylist()], pa.string())
            rows = rows.set_column(index, pa.field(field.name, pa.string()), texts)
    return rows


def _start_spark(open_things: ExitStack, spark_log: str | None) -> SparkSession:
    from engine.runtime.spark_log import spark_output
    from engine.spark.session import session  # loads the data sources

    log_file = spark_log or private_path("sql.log")
    open_things.enter_context(spark_output(log_file))
    with waiting(f"starting Spark, its messages go to {log_file}"):
        spark = session("fluvial sql", conf={"spark.ui.enabled": "false"})
    open_things.callback(spark.stop)
    return spark


try:
    import readline
except ImportError:  # Python was built without it: no history
    readline = None  # type: ignore[assignment]

# ---- Interactive statements: multi-line input with a persistent history


_FIRST: Final = "fluvial> "
_NEXT: Final = "      -> "
_LEAVE: Final = frozenset({"quit", "exit", "quit;", "exit;"})
_HELP: Final = frozenset({"help", "help;", "?"})
_HELP_TEXT: Final = "SHOW TABLES;  DESCRIBE db.t;  SELECT ...;  CALL sys.compact('db.t');  Tab completes, exit leaves."
_HISTORY_LINES: Final = 2000


_SQL: Final = (
    "ALTER AND AS BRANCH BY CALL COLUMN COMPACT COUNT CREATE DATABASE DATABASES DELETE DESCRIBE DISTINCT "
    "DROP EXPLAIN FROM GROUP HAVING IF EXISTS IN INSERT INTO IS JOIN LEFT LIKE LIMIT MATCHED MERGE NOT "
    "NULL ON OPTIONS OR ORDER OVERWRITE PARTITION PRIMARY KEY SELECT SET SHOW TABLE TABLES TAG TIMESTAMP "
    "OF UNION UPDATE USE USING VALUES VERSION WHEN WHERE WITH "
)
_WORDS: Final = tuple(_SQL.split())
"""Of statements, for completion."""
_DELIMITERS: Final = " \t\n,()=<>;"


def completions(text: str, tables: Callable[[str], Iterable[str]]) -> list[str]:
    """What a word may become: names of tables, else words of SQL in the case in which it was begun.

    Args:
        text: the word, as far as it is typed.
        tables: names of tables that begin with a text.
    """
    with suppress(FluvialError):
        found = sorted(tables(text))
        if found and "." in text:
            return found
        words = [each for each in _WORDS if text and each.startswith(text.upper())]
        return [*found, *(each if text.isupper() else each.lower() for each in words)]
    return []


def _complete_with(tables: Callable[[str], Iterable[str]]) -> None:
    """Completion by the tab key, if Python has readline."""
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = completions(text, tables)
        return found[state] if state < len(found) else None

    if readline is not None:
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")


def statements_typed(tables: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Texts that end with ``;``, until end of input or exit. Ctrl-C discards the current input.

    Args:
        tables: names of tables that begin with a text, for completion.
    """
    _complete_with(tables)
    history = Path(os.environ.get("FLUVIAL_SQL_HISTORY", Path.home() / ".cache" / "fluvial" / "sql_history"))
    _load(history)
    notes().print("End statements with ;  Leave with exit or Ctrl-D.")
    try:
        lines: list[str] = []
        while True:
            try:
                lines.append(input(_NEXT if lines else _FIRST))
            except KeyboardInterrupt:
                notes().print()
                lines = []
                continue
            except EOFError:
                notes().print()
                return
            if len(lines) == 1 and lines[0].strip().lower() in _LEAVE:
                return
            if len(lines) == 1 and lines[0].strip().lower() in _HELP:
                notes().print(_HELP_TEXT)
                lines = []
                continue
            text = "\n".join(lines)
            if ends_statement(text):
                lines = []
                if text.strip():
                    yield text
    finally:
        _save(history)


def _load(history: Path) -> None:
    if readline is not None:
        with suppress(OSError):
            readline.read_history_file(history)


def _save(history: Path) -> None:
    if readline is not None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(_HISTORY_LINES)
            readline.write_history_file(history)
