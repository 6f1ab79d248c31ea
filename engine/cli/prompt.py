"""Interactive statements: multi-line input with a persistent history."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.cli.output import notes
from engine.dialect.grammar.parser import ends_statement
from lsm.errors import FluvialError

try:
    import readline
except ImportError:  # Python was built without it: no history
    readline = None  # type: ignore[assignment]

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
