"""Describes the problem in a text of SQL, without terminal escapes, names of classes, or all of a long text."""

import re
from typing import Final, NamedTuple

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lsm.errors import printable

EXCERPT: Final = 160  # characters of a text that a message shows
_UNDERLINED: Final = re.compile(r"\x1b\[[0-9;]*m")
_REASONS: Final = {
    "Required keyword": "a part is missing",
    "Invalid expression": "unexpected word",
    "No expression": "nothing is written",
    "Error tokenizing": "a quote or comment is not closed, or a character is not known",
}


class SqlProblem(NamedTuple):
    """A syntax error."""

    reason: str
    place: str  # the text around it, with >>> and <<< around the words in question


def problem_of(error: SqlglotError, text: str) -> SqlProblem:
    """The problem that sqlglot found in a text."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    description = (str(found["description"]) if found else str(error)).partition(" but got <")[0]
    reason = next((words for start, words in _REASONS.items() if description.startswith(start)), None)
    if reason is None:
        lines = _UNDERLINED.sub("", description).splitlines()
        reason = lines[0].rstrip(". ") if lines and "<class" not in description else "syntax error"
    if found is None:
        return SqlProblem(reason, excerpt(text, 0, 0))
    before, words, after = (str(found[key] or "") for key in ("start_context", "highlight", "end_context"))
    return SqlProblem(reason, excerpt(f"{before}{words}{after}", len(before), len(before) + len(words), is_marked=True))


def sql_text(node: exp.Expr) -> str:
    """A part of a filter as SQL, cut where it is long."""
    return excerpt(node.sql(dialect="spark"), 0, 0)


def excerpt(text: str, start: int, stop: int, *, is_marked: bool = False) -> str:
    """The part of a text around some words of it, on one line.

    Args:
        text: the whole.
        start: offset of the first character in question.
        stop: offset behind the last.
        is_marked: put >>> and <<< around them.
    """
    stop = min(stop, start + EXCERPT)
    first, last = max(0, start - EXCERPT // 2), min(len(text), stop + EXCERPT)
    before, words, after = text[first:start], text[start:stop], text[stop:last]
    middle = f">>>{words}<<<" if is_marked else words
    shown = f"{'…' if first else ''}{before}{middle}{after}{'…' if last < len(text) else ''}"
    return printable(shown)
