"""The command ``fluvial``.

Exit codes: 0 success, 1 failure, 2 invalid request (change it), 130 interrupted; ``run`` and ``plan`` have more.
"""

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from engine.cli.command_list import ACTIONS, COMMANDS, GROUPS, SECTIONS, called_here, same_by_meaning
from engine.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID
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
            instead = called_here(args[0], None if context.parent is None else self.name)
            if instead is not None:
                raise InvalidInputError(f"no such command: command={args[0]} fix={instead!r}")
            meant = same_by_meaning(args[0], known)
            near = did_you_mean(args[0], known, likeness=_CLOSE) if meant is None else f" did_you_mean={meant}"
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


# ---- The help of single commands, kept in the user's cache: for its first help only a command's modules are imported
#
# They import what the command does, which costs 1 to 2 s of processor time; a text from the cache costs 0.1 s. It is
# of one width of the terminal and one state of the code: whatever file of Fluvial changes, it is created again.


_WORDS: Final = ("--help", "-h")
_CACHE: Final = "FLUVIAL_CACHE"
_ROOM: Final = "help"
_PACKAGES: Final = ("engine", "filestore", "logstore", "lsm")


def shown_help(arguments: Sequence[str], make: Callable[[], int]) -> int | None:
    """Print the help that is asked for.

    Args:
        arguments: of the command line.
        make: prints it and returns the exit code; called if the cache lacks it.

    Returns:
        The exit code; None: these arguments ask for something else.
    """
    *path, last = arguments or ("",)
    if last not in _WORDS or not path or not all(word.replace("-", "").isalnum() and word[0] != "-" for word in path):
        return None
    file, stamp = _file(path), _stamp()
    found = _read(file, stamp)
    if found is not None:
        sys.stdout.write(found)
        return 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = make()
    sys.stdout.write(printed.getvalue())
    if code == 0:
        _keep(file, stamp, printed.getvalue())
    return code


def _file(path: Sequence[str]) -> Path:
    cache = os.path.expanduser(os.environ.get(_CACHE) or "~/.cache/fluvial")
    return Path(cache) / _ROOM / f"{'.'.join(path)}.{shutil.get_terminal_size().columns}.json"


def _stamp() -> str:
    """What is another one after every change: where the packages are, their files, the newest of them, Python."""
    root = Path(__file__).resolve().parents[2]
    times = [time for package in _PACKAGES for time in _times(root / package)]
    return f"{root} {len(times)} {max(times)} {sys.version}"


def _times(directory: Path) -> Iterator[int]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.stat().st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _times(Path(entry.path))


def _read(file: Path, stamp: str) -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["stamp"] == stamp:
            return str(found["text"])
    return None


def _keep(file: Path, stamp: str, text: str) -> None:
    """Write it whole or not at all; a cache that cannot be written is none."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as made:
            json.dump({"stamp": stamp, "text": text}, made)
        os.replace(made.name, file)
