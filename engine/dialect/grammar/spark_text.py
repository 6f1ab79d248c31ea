"""Options and versions of tables in the words of Spark's grammar, where Spark reads a text by itself.

Spark keeps or runs some texts: those of views, kept tables, variables, scripts and streams. What Fluvial's grammar adds
to the name of a table is said there as Spark says it: a hint of options as a clause, ``t WITH ('k' = 'v')``, and a
version in quotes, ``t VERSION AS OF 'branch-1.tag-1'``.
"""

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import Token, TokenType

from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import BARE_VERSION, added_options, has_options, misplaced_hint, tokens_of
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.splice import Edit, Spliced

_ADDED: Final = re.compile(r"/\*\+|version\b", re.IGNORECASE)
_TARGET: Final = ("INTO", "OVERWRITE")
_BEFORE_TABLE: Final = frozenset({"FROM", "JOIN", "TABLE", "USING", ",", *_TARGET})
_KEPT: Final = ("CACHE", "DECLARE")
_SCRIPT: Final = "BEGIN"
_STREAM: Final = "STREAM"


def in_sparks_words(text: str) -> str:
    """A text for Spark, where it reads the text by itself; queries and changes of Fluvial's tables stay as they are.

    Raises:
        InvalidInputError: a quote or comment is not closed; a hint of options that cannot be read, or, in a text that
            Spark reads, that no table takes.
    """
    if not _ADDED.search(text):
        return text
    source = SourceText.of(text)
    tokens = tokens_of(source)
    is_script = Cursor(source, tokens).sees(_SCRIPT)
    edits: list[Edit] = []
    statement: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
            continue
        is_sparks = is_script or _is_kept(Cursor(source, statement))
        taken: set[int] = set()
        edits += _edits(Cursor(source, statement), is_sparks=is_sparks, taken=taken)
        wrong = next((each for each in statement if has_options(each) and each.start not in taken), None)
        if is_sparks and wrong is not None:
            raise misplaced_hint(source, wrong)
        statement = []
    return Spliced.of(text, edits).text


def _is_kept(cursor: Cursor) -> bool:
    """Whether Spark keeps the text of a query in a statement."""
    if cursor.take("EXPLAIN"):
        cursor.take_any("EXTENDED", "CODEGEN", "COST", "FORMATTED")
    if cursor.sees_any(*_KEPT):
        return True
    if not cursor.take("CREATE"):
        return False
    cursor.take("OR", "REPLACE")
    cursor.take_any("GLOBAL")
    cursor.take_any("TEMP", "TEMPORARY")
    return cursor.sees_any("VIEW", "FUNCTION")


def _edits(cursor: Cursor, *, is_sparks: bool, taken: set[int]) -> Iterator[Edit]:
    """The changes of a statement: at all its tables, or only at those that are read as streams.

    Args:
        cursor: at the statement's start.
        is_sparks: whether Spark reads the whole statement.
        taken: gets where the hints begin that a table took.
    """
    while not cursor.at_end():
        is_target = cursor.sees_any(*_TARGET)
        is_table = cursor.sees_any(*_BEFORE_TABLE)
        cursor.index += 1
        if is_table:
            before = cursor.index
            is_stream = cursor.take(_STREAM) and (cursor.sees("(") or cursor.sees_name())
            if not is_stream:
                cursor.index = before
            if is_sparks or is_stream:
                yield from _of_table(cursor, is_target=is_target, taken=taken)


def _of_table(cursor: Cursor, *, is_target: bool, taken: set[int]) -> Iterator[Edit]:
    """The changes at one table; the cursor goes past it."""
    hints = _hints(cursor) if is_target else []
    cursor.take("TABLE")
    before = cursor.index
    is_bracketed = cursor.take("(")
    if not cursor.sees_name():
        cursor.index = before
        return
    cursor.names()
    if is_bracketed and not cursor.take(")"):
        cursor.index = before
        return
    place, quotes = cursor.stop, None
    hints += _hints(cursor)
    if (version := _version(cursor)) is not None:
        start, place, word = version
        quotes = None if word is None else _quoted(word)
        if quotes is not None:
            yield Edit(start, place, quotes)
        hints += _hints(cursor)
    if not hints:
        return
    options = added_options(cursor.source, hints)
    clause = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in options.items())
    taken.update(each.start for each in hints)
    yield from (Edit(each.start, each.end + 1, "") for each in hints)
    yield Edit(place, place, f" WITH ({clause})")


def _hints(cursor: Cursor) -> list[Token]:
    found = []
    while (token := cursor.token) is not None and has_options(token):
        found.append(token)
        cursor.index += 1
    return found


def _version(cursor: Cursor) -> tuple[int, int, str | None] | None:
    """Where the version of a table begins and ends, and the word that lacks quotes; the cursor goes past it."""
    before = cursor.index
    cursor.take("FOR")
    kind = cursor.take_any("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
    if kind is None or not cursor.take("AS", "OF") or cursor.token is None:
        cursor.index = before
        return None
    start = cursor.start
    if cursor.sees_string():
        cursor.string()
        return start, cursor.stop, None
    word = BARE_VERSION.match(cursor.text, start) if "VERSION" in kind else None
    if word is None:
        return start, start, None  # an expression: Spark reads it, and no hint follows
    while not cursor.at_end() and cursor.start < word.end():
        cursor.index += 1
    return start, word.end(), None if word.group().isdecimal() else word.group()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
