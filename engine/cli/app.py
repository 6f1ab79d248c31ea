"""The command ``fluvial``.

Exit codes: 0 success, 1 failure, 2 invalid request (change it), 130 interrupted; ``run`` and ``plan`` have more.
"""

import logging
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Final

import click

from engine.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID
from engine.dialect.grammar.places import SqlSyntaxError
from engine.runtime.logs import Form, configure_logging
from lsm.errors import FluvialError, InvalidInputError, printable
from lsm.secret_names import shown_line

_HELP_WIDTH: Final = 200
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def main() -> None:
    """Entry point of the script ``fluvial``."""
    # PySpark warns about every release of pandas newer than itself; nothing here uses pandas
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; errors are reported on standard error, in one line."""
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
            sys.stderr.write(shown_line(printable(traceback.format_exc())))
        if _is_caused_by_interrupt(error):
            sys.stderr.write("interrupted\n")
            return EXIT_INTERRUPTED
        sys.stderr.write(f"error: {error if isinstance(error, SqlSyntaxError) else ' '.join(str(error).split())}\n")
        return EXIT_INVALID if isinstance(error, InvalidInputError) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001  (the edge of the process: an unexpected error is a bug)
        if is_debug:
            sys.stderr.write(shown_line(printable(traceback.format_exc())))
        if _is_caused_by_interrupt(error):
            sys.stderr.write("interrupted\n")
            return EXIT_INTERRUPTED
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))
        sys.stderr.write(f"error: unexpected: {reason} fix=run it with --debug and report the output\n")
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


def _is_caused_by_interrupt(error: BaseException) -> bool:
    """Whether an error was raised while handling Ctrl-C: interrupted work often cannot be closed cleanly."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    return seen is not None


_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "broker": (
        "engine.cli.commands.broker",
        "A real Kafka broker on this machine, for demos and single-machine use.",
    ),
    "cdc": ("engine.cli.cdc", "Keep all tables of a database equal, from the topics of its changes."),
    "config": (
        "engine.cli.commands.config",
        "Show the options of the catalog, and of a table or of new tables, with the origin of each value.",
    ),
    "describe": (
        "engine.cli.reading",
        "Show columns, keys and options of a table (named database.table), newest or as of a version.",
    ),
    "diff": (
        "engine.cli.commands.diff",
        "Show the differences between two states of a table: rows with their kinds, or counts.",
    ),
    "doctor": (
        "engine.cli.commands.doctor",
        "Explain what costs a table time, space or safety, with the option or command to change it.",
    ),
    "init": (
        "engine.cli.commands.deploy",
        "Create a directory with a working job file, and a script that sends it changes.",
    ),
    "inspect": (
        "engine.cli.commands.inspect",
        "Show snapshots, and the sorted runs, key ranges and bytes of each bucket, newest or as of a version.",
    ),
    "lag": ("engine.cli.commands.lag", "Show the lag of streams behind a table, and of the table behind its log."),
    "lineage": (
        "engine.cli.commands.lineage",
        "Show the tables and jobs upstream and downstream of a table; without one, all of the catalog.",
    ),
    "metrics": (
        "engine.cli.commands.metrics",
        "Print one scrape of some tables as Prometheus text, from their files.",
    ),
    "package": (
        "engine.cli.commands.deploy",
        "Write what spark-submit needs on a cluster without Fluvial: an archive, and the script to submit.",
    ),
    "plan": (
        "engine.cli.commands.deploy",
        "Show what a run of a job file would create, start and resume, without doing it.",
    ),
    "read": (
        "engine.cli.reading",
        "Print rows of a table, newest or as of a version, or of a system table ('db.t$files', sys.tables).",
    ),
    "recover": (
        "engine.cli.recover",
        "Correct a table after a snapshot, and compute everything downstream again by the pipelines of job files.",
    ),
    "run": ("engine.cli.commands.deploy", "Run the pipelines of a job file until they finish."),
    "simulate": (
        "engine.cli.commands.simulate",
        "Interleave, crash and fail real operations on small tables, and check what is left.",
    ),
    "spark-conf": (
        "engine.cli.commands.deploy",
        "Print the Spark settings of Fluvial's sessions, for sessions created elsewhere.",
    ),
    "sql": ("engine.cli.commands.sql", "Run SQL statements on the tables of a warehouse."),
    "top": (
        "engine.cli.commands.top",
        "Watch tables: rates, lag, sorted runs, compaction debt, newest snapshots. Ctrl-C quits.",
    ),
    "trace": (
        "engine.cli.trace",
        "Show where the time of one micro-batch went, by the steps in a sink's trace.directory.",
    ),
    "validate": ("engine.cli.commands.deploy", "Check job files without running them."),
}
"""Commands that are imported when they are called: module and short help."""


class _Commands(click.Group):
    """Imports a command on first use, so that short commands do not wait for Spark or for job files."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names: those of ``_COMMANDS`` and the actions."""
        return sorted({*_COMMANDS, *self._actions})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One command; None when the name is unknown."""
        if name not in _COMMANDS:
            return self._actions.get(name)
        found = getattr(import_module(_COMMANDS[name][0]), name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; does not import those of ``_COMMANDS``."""
        lines = {name: text for name, (_, text) in _COMMANDS.items()}
        lines |= {name: command.get_short_help_str(limit=_HELP_WIDTH) for name, command in self._actions.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))

    @cached_property
    def _actions(self) -> Mapping[str, click.Command]:
        from engine.cli.commands.actions import action_commands

        return {str(command.name): command for command in action_commands()}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.option("--debug", is_flag=True, help="Show log messages and tracebacks.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Format of log messages; json is one object per line, with table, snapshot etc. as fields. [default: text]",
)
@click.version_option(package_name="fluvial")
def cli(debug: bool, log_format: Form | None) -> None:
    """Streaming ingestion for PySpark: tables that are a Kafka log and an LSM tree of columnar files."""
    if log_format is not None or not logging.getLogger().handlers:  # else the caller has configured logging
        # libraries' messages, for example about an interrupted call, mean nothing to users
        configure_logging(logging.INFO if debug else logging.WARNING, log_format or "text", all_loggers=debug)


if __name__ == "__main__":
    main()
