"""A text cut into statements, each with its tree.

Queries and changes of rows are sqlglot's trees. Everything else of Fluvial is a dataclass of
``engine/dialect/grammar/statements.py``. What neither knows is Spark's. Offsets in trees count from the start of
the statement.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import Token, TokenType, exp

from engine.dialect.grammar.alter_grammar import read_alter, read_comment_on
from engine.dialect.grammar.create_grammar import read_create, read_replace
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import (
    check_begins,
    has_options,
    misplaced_hint,
    parse_expression,
    parse_query,
    tokens_of,
)
from engine.dialect.grammar.places import SourceText, SqlSyntaxError, WordElsewhereError
from engine.dialect.grammar.show_grammar import (
    read_analyze,
    read_describe,
    read_drop,
    read_reset,
    read_set,
    read_show,
    read_truncate,
    read_use,
)
from engine.dialect.grammar.statements import Statement
from lsm.errors import InvalidInputError
from lsm.nearest_names import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Explain:
    """``EXPLAIN [EXTENDED | CODEGEN | COST | FORMATTED] statement``."""

    mode: str | None  # upper case
    inner: Statement


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a CALL. ``start`` and ``stop`` are offsets in the statement's text."""

    name: str | None
    value: exp.Expr
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """``CALL [[catalog.]sys.]procedure(value, name => value, ...)``."""

    procedure: tuple[str, ...]
    arguments: tuple[Argument, ...]
    start: int  # of the procedure's name
    stop: int


@dataclass(frozen=True, kw_only=True)
class SparkStatement:
    """A statement that only Spark understands."""

    keyword: str  # its first word, upper case


def parse_statements(text: str) -> list[Statement]:
    """The statements of a text; empty ones are left out.

    Args:
        text: statements with ``;`` between them.

    Raises:
        InvalidInputError: with line, column and the words that cannot be read, for the first mistake.
    """
    statements = []
    tokens: list[Token] = []
    found = tokens_of(SourceText.of(text))
    check_begins(SourceText.of(text), found[0].start if found else len(text))
    for token in [*found, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            tokens.append(token)
        elif tokens:
            statements.append(_statement(SourceText.of(text).part(tokens[0].start, tokens[-1].end + 1)))
            tokens = []
    return statements


def ends_statement(text: str) -> bool:
    """Whether a text, as typed so far, ends with ``;`` outside of quotes and comments, or is blank."""
    try:
        tokens = tokens_of(SourceText.of(text))
    except InvalidInputError:
        return False
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def _statement(source: SourceText) -> Statement:
    return Statement(source.text, source.base, _tree(source), source.whole)


def _tree(source: SourceText) -> Any:
    cursor = Cursor(source, tokens_of(source))
    check_begins(source, cursor.start)
    if cursor.sees_any(*_QUERIES) or cursor.sees("("):
        return parse_query(source)
    first = cursor.tokens[0].text.upper()
    if first in _ELSEWHERE:
        raise _elsewhere(cursor, first)
    if first not in _FIRST_WORDS:
        hint = did_you_mean(first, _FIRST_WORDS)
        raise cursor.problem(f"syntax error, no statement begins with this word{hint}")
    for words, read in _GRAMMAR.items():
        if cursor.take(*words):
            found = read(cursor)
            break
    else:
        found = None
    if found is None:
        _check_no_options(cursor)
        return SparkStatement(keyword=first)
    return found


def _elsewhere(cursor: Cursor, word: str) -> InvalidInputError:
    hint = f"syntax error, no statement begins with this word write={_ELSEWHERE[word]!r}"
    error = WordElsewhereError(str(cursor.problem(hint)))
    cursor.take(word)
    cursor.take("TABLE")
    with suppress(SqlSyntaxError):
        error.table = cursor.names()
    return error


def _check_no_options(cursor: Cursor) -> None:
    """Refuse a hint of options in a text of Spark's: see ``in_sparks_words`` for those that a table takes."""
    hint = next(filter(has_options, cursor.tokens), None)
    if hint is not None:
        raise misplaced_hint(cursor.source, hint)


def _explain(cursor: Cursor) -> Explain:
    mode = cursor.take_any("EXTENDED", "CODEGEN", "COST", "FORMATTED")
    if cursor.token is None:
        raise cursor.problem("syntax error, expected a statement to explain")
    return Explain(mode=mode, inner=_statement(cursor.source.part(cursor.start, len(cursor.text))))


def _call(cursor: Cursor) -> Call:
    start = cursor.start
    procedure = cursor.names("the name of a procedure")
    stop = cursor.stop
    arguments: list[Argument] = []
    cursor.expect("(")
    while not cursor.sees(")"):
        if arguments:
            cursor.expect(",")
        arguments.append(_argument(cursor))
    cursor.expect(")")
    cursor.expect_end()
    return Call(procedure=procedure, arguments=tuple(arguments), start=start, stop=stop)


def _argument(cursor: Cursor) -> Argument:
    start, before = cursor.start, cursor.index
    name = None
    if not cursor.sees_string() and len(cursor.tokens) > before + 1:
        cursor.index += 1
        if cursor.sees("=>"):
            cursor.index -= 1
            name = cursor.name("the name of an argument")
            cursor.expect("=>")
        else:
            cursor.index = before
    value = parse_expression(cursor)
    return Argument(name=name, value=value, start=start, stop=cursor.stop)


_QUERIES: Final = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "INSERT", "DELETE", "UPDATE", "MERGE")
_GRAMMAR: Final[Mapping[tuple[str, ...], Callable[[Cursor], Any]]] = {
    ("ALTER",): read_alter,
    ("CALL",): _call,
    ("COMMENT", "ON"): read_comment_on,
    ("ANALYZE",): read_analyze,
    ("CREATE",): read_create,
    ("DESC",): read_describe,
    ("DESCRIBE",): read_describe,
    ("DROP",): read_drop,
    ("EXPLAIN",): _explain,
    ("REPLACE",): read_replace,
    ("RESET",): read_reset,
    ("SET",): read_set,
    ("SHOW",): read_show,
    ("TRUNCATE",): read_truncate,
    ("USE",): read_use,
}
_SPARKS: Final = (
    "ADD", "BEGIN", "CACHE", "CLEAR", "DECLARE", "EXECUTE", "LIST", "LOAD", "MSCK REPAIR", "REFRESH", "REPAIR",
    "UNCACHE",
)  # fmt: skip
_FIRST_WORDS: Final = frozenset({*_QUERIES, *(words[0] for words in _GRAMMAR), *_SPARKS})
_ELSEWHERE: Final = {
    "CLONE": "CALL sys.copy('db.t', ...)",
    "CONVERT": "CALL sys.migrate_table('db.t', ...)",
    "FSCK": "CALL sys.verify('db.t')",
    "OPTIMIZE": "CALL sys.compact('db.t')",
    "REORG": "CALL sys.compact('db.t', compact_strategy => 'full')",
    "RESTORE": "CALL sys.rollback_to_as_latest('db.t', ...)",
    "VACUUM": "CALL sys.expire_snapshots('db.t')",
}
"""Statements of other table formats, and what does the same here; ``CALL sys.help('compact')`` has the arguments."""
