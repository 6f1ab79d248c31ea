"""The command ``fluvial``.

Exit codes: 0 success, 1 failure, 2 invalid request (change it), 130 interrupted; ``run`` and ``plan`` have more.
"""

import errno
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Final

import click

from engine.cli.command_list import ACTIONS, COMMANDS, GROUPS, SECTIONS, WORDS_ELSEWHERE
from engine.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID
from engine.cli.kept_help import shown_help
from engine.dialect.grammar.places import SqlSyntaxError
from engine.runtime.imports import without_collection
from engine.runtime.installed_pyspark import missing_spark
from engine.runtime.logs import Form, configure_logging, fields_of
from lsm.errors import FluvialError, InvalidInputError, ManyProblemsError, printable
from lsm.nearest_names import did_you_mean
from lsm.secret_names import shown_line

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def main() -> None:
    """Entry point of the script ``fluvial``."""
    # PySpark warns about every release of pandas newer than itself; nothing here uses pandas
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    arguments = sys.argv[1:]
    code = shown_help(arguments, lambda: run_command(arguments))
    sys.exit(run_command(arguments) if code is None else code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; errors are reported on standard error, in one line."""
    try:
        code = cli.main(args=list(arguments), prog_name="fluvial", standalone_mode=False)
        sys.stdout.flush()  # what could not be written fails here, not when the interpreter ends
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_INVALID
    except click.ClickException as error:
        _report(arguments, _usage_text(error), "InvalidInputError")
        return EXIT_INVALID
    except click.Abort:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except FluvialError as error:
        if _is_interrupted(error, arguments):
            return EXIT_INTERRUPTED
        for text in _messages(error):
            _report(arguments, text, _kind(error))
        return EXIT_INVALID if isinstance(error, InvalidInputError) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001  (the edge of the process: an unexpected error is a bug)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:  # no fault of the program
            fix = "fix='make room where the output goes, or for temporary files'"
            _report(arguments, f"something cannot be written: reason={error} {fix}", "UnavailableError")
            return EXIT_FAILED
        if _is_interrupted(error, arguments):
            return EXIT_INTERRUPTED
        if message := missing_spark(error):
            _report(arguments, message, "InvalidInputError")
            return EXIT_INVALID
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()))
        _report(arguments, f"unexpected: {reason} fix=run it with --debug and report the output", type(error).__name__)
        return EXIT_FAILED
    return code if isinstance(code, int) else 0


def _report(arguments: Sequence[str], text: str, kind: str) -> None:
    """Print an error in the one form that all errors have: a line of text, or of JSON as log messages have it."""
    form = [*arguments[arguments.index("--log-format") + 1 :][:1]] if "--log-format" in arguments else []
    if "json" in form or "--log-format=json" in arguments:
        body = {"level": "error", "kind": kind, "message": text, **fields_of(text)}
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"error: {text}\n")


def _messages(error: FluvialError) -> list[str]:
    """The texts that are printed for an error: one line, one for each problem, or one with the statement below it."""
    if isinstance(error, SqlSyntaxError) or str(error).endswith("^"):
        return [str(error)]
    lines = str(error).splitlines() if isinstance(error, ManyProblemsError) else [str(error)]
    return [" ".join(line.split()) for line in lines]


def _kind(error: FluvialError) -> str:
    return type(error).__name__ if type(error).__module__ == "lsm.errors" else type(error).__mro__[1].__name__


def _usage_text(error: click.ClickException) -> str:
    """What is wrong with the command line, and where its help is."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = "fluvial" if context is None else context.command_path
    return f"{said[:1].lower()}{said[1:]} fix='{path} --help'"


def _is_interrupted(error: BaseException, arguments: Sequence[str]) -> bool:
    """Whether an error was raised while handling Ctrl-C: interrupted work often cannot be closed cleanly.

    With ``--debug`` the error's stack is printed first.
    """
    if "--debug" in arguments:
        sys.stderr.write(shown_line(printable(traceback.format_exc())))
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    if seen is not None:
        sys.stderr.write("interrupted\n")
    return seen is not None


_CLOSE: Final = 0.7  # of 1, so that no command is taken for another one


class _Named(click.Group):
    """Commands by name, with the nearest one for a name that is none."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is asked for. Raises: click.UsageError with the nearest one."""
        known = self.list_commands(context)
        if args and args[0] not in known:
            instead = WORDS_ELSEWHERE.get(args[0].replace("_", "-")) if context.parent is None else None
            if instead is not None:
                raise InvalidInputError(f"no such command: command={args[0]} fix={instead!r}")
            near = did_you_mean(args[0], known, likeness=_CLOSE)
            raise click.UsageError(f"no such command: command={args[0]}{near}", context)
        return super().resolve_command(context, args)


class _Commands(_Named):
    """Imports a command on first use, so that short commands do not wait for Spark or for job files."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, for completion: commands, actions and groups of actions."""
        return sorted({*COMMANDS, *ACTIONS, *GROUPS})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One command; None when the name is unknown."""
        if name in GROUPS:
            return _Actions(name, self, *GROUPS[name])
        if name not in COMMANDS:
            return self.actions.get(name) if name in ACTIONS else None
        with without_collection():
            found = getattr(import_module(COMMANDS[name][0]), name.replace("-", "_"))
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for, and the groups of actions; imports none of them."""
        texts = {name: text for name, (_, text) in COMMANDS.items()} | dict(ACTIONS)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, texts[name]) for name in names])
        with formatter.section("Groups of actions"):
            formatter.write_dl([(name, f"{text} ({', '.join(inner)})") for name, (text, inner) in GROUPS.items()])
        with formatter.section("Names of their own"):
            formatter.write_text(
                "Each action is also a command: fluvial create-tag is fluvial tag create. "
                f"{', '.join(sorted(ACTIONS))}."
            )

    @cached_property
    def actions(self) -> Mapping[str, click.Command]:
        """The actions by name; imports all procedures."""
        from engine.cli.commands.actions import action_commands

        return {str(command.name): command for command in action_commands()}


class _Actions(_Named):
    """Actions of one kind under short names."""

    def __init__(self, name: str, all_commands: _Commands, text: str, inner: Mapping[str, str]) -> None:
        super().__init__(name, help=text)
        self._all, self._inner = all_commands, inner

    def list_commands(self, context: click.Context) -> list[str]:
        """The short names."""
        return [*self._inner]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The action of a short name."""
        return self._all.get_command(context, self._inner[name]) if name in self._inner else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The short names, with the actions' own."""
        with formatter.section("Actions"):
            formatter.write_dl([(name, f"{ACTIONS[own]} ({own})") for name, own in self._inner.items()])


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
