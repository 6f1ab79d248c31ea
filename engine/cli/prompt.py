"""Interactive statements: multi-line input with a persistent history."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.cli.output import notes
from engine.dialect.grammar.parser import ends_statement

try:
    import readline
except ImportError:  # Python was built without it: no history
    readline = None  # type: ignore[assignment]

_FIRST: Final = "fluvial> "
_NEXT: Final = "      -> "
_LEAVE: Final = frozenset({"quit", "exit", "quit;", "exit;"})
_HISTORY_LINES: Final = 2000


def statements_typed() -> Iterator[str]:
    """Texts that end with ``;``, until end of input or exit. Ctrl-C discards the current input."""
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
