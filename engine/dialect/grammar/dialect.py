"""Spark's SQL and what Fluvial adds to queries, as a dialect of sqlglot.

A table may have options, as Flink's hint ``t /*+ OPTIONS('k'='v') */`` or as Spark's clause ``t WITH (k = 'v')``, and
``t$snapshots`` is a name. The table of an INSERT may have the hint also behind INTO or OVERWRITE. A hint of options
that no table takes is an error, wherever it is. Positions stay on the nodes, so that a text can be spliced.
Statements that are not queries or changes of rows have their own grammar: ``engine/dialect/grammar/parser.py``.

sqlglot's parser has no public way to extend its grammar, so ``FluvialParser`` overrides and calls private members. No
other class does; ``tests/engine/dialect/grammar/test_sqlglot_internals.py`` fails, by name, when a release lacks one.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.places import OwnSyntaxError, SourceText, SqlSyntaxError
from lsm.errors import InvalidInputError

_EVOLVES: Final = "evolves"
_OPTIONS: Final = "options"
_SPAN: Final = "span"
_WITH_FREE_TEXT: Final = ("ADD", "LIST", "RESET", "SET")  # statements with values and paths without quotes
_GIVEN_TWICE: Final = "option is given twice with different values: option="
_HINTS: Final = "hints"  # where the hints begin that the options are from


class SyntaxProblem(ParseError):
    """What sqlglot could not read. ``span`` is where, as offsets; None: at the end."""

    span: tuple[int, int] | None = None


class FluvialTokenizer(Spark.Tokenizer):
    """No statement is taken as raw text; ``$`` is part of a name; ``/*+`` begins a hint everywhere, as in Spark."""

    COMMANDS: ClassVar[set[TokenType]] = set()
    VAR_SINGLE_TOKENS: ClassVar[set[str]] = {"$"}
    TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = {*TokenType}


class FluvialParser(SparkParser):
    """Tables keep their options and their span; nothing is passed over as an unknown command."""

    source: SourceText | None = None

    VERSION_PHRASES = {  # noqa: RUF012
        **SparkParser.VERSION_PHRASES,
        ("FOR", "SYSTEM_VERSION"): "VERSION",
        ("SYSTEM_VERSION", "AS", "OF"): "VERSION",
        ("SYSTEM_TIME", "AS", "OF"): "TIMESTAMP",
    }
    TABLE_POSTFIX_TOKENS = frozenset({*Spark.Parser.TABLE_POSTFIX_TOKENS, TokenType.HINT, TokenType.WITH})

    def raise_error(self, message: str, token: Any = None) -> None:  # noqa: D102 - sqlglot's
        place = token or self._curr
        problem = SyntaxProblem(message)
        problem.span = (place.start, place.end + 1) if place else None
        raise problem

    def _warn_unsupported(self) -> None:
        self.raise_error("statement is not complete", self._prev)

    def _parse_statement(self) -> exp.Expr | None:
        if self._match(TokenType.TABLE):
            return exp.select("*").from_(self._parse_table() or "")
        return super()._parse_statement()

    def _parse_insert(self) -> exp.Insert | exp.MultitableInserts:
        evolves = self._match_text_seq("WITH", "SCHEMA", "EVOLUTION")
        found = super()._parse_insert()
        found.meta[_EVOLVES] = bool(evolves)
        return found

    def _parse_merge(self) -> exp.Merge:
        evolves = self._match_text_seq("WITH", "SCHEMA", "EVOLUTION")
        found = super()._parse_merge()
        found.meta[_EVOLVES] = bool(evolves)
        return found

    def _parse_hint(self) -> exp.Hint | None:
        hint = super()._parse_hint()
        for name in hint.find_all(exp.Table) if hint else ():
            name.replace(exp.Var(this=name.name))  # a name of a table, not a table
        return hint

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        table = super()._parse_table(*args, **kwargs)
        version = table.args.get("version") if isinstance(table, exp.Table) else None
        if table is not None and version is not None:
            start, stop = table.meta.get(_SPAN, (0, 0))
            table.meta[_SPAN] = (start, max(stop, version.meta[_SPAN][1]))
            self._give_options(table, version)
        return table

    def _parse_insert_table(self) -> exp.Expr | None:
        given = exp.Table()
        if self._prev.token_type in _BEFORE_TARGET and self._curr and has_options(self._curr):
            self._parse_table_options(given)
            self._match(TokenType.TABLE)
        target = super()._parse_insert_table()
        table = target.this if isinstance(target, exp.Schema) else target
        if isinstance(table, exp.Table):
            self._give_options(table, given)
        return target

    def _parse_table_parts(self, *args: Any, **kwargs: Any) -> exp.Table | exp.Dot | None:
        start = self._curr.start if self._curr else 0
        table = super()._parse_table_parts(*args, **kwargs)
        if isinstance(table, exp.Table):
            self._parse_table_options(table)
            table.meta[_SPAN] = (start, self._prev.end + 1)
        return table

    def _parse_version(self) -> exp.Version | None:
        start = self._curr.start if self._curr else 0
        version = self._parse_bare_version() or super()._parse_version()
        if version is not None:
            self._parse_table_options(version)
            version.meta[_SPAN] = (start, self._prev.end + 1)
        return version

    def _parse_bare_version(self) -> exp.Version | None:
        """``VERSION AS OF branch-1.tag-1``: a word without quotes, to its blank, as it is in the text."""
        before = self._index
        if not self._match_texts(_VERSION_WORDS, advance=False):
            return None
        self._match_text_seq("FOR")
        self._match_texts(_VERSION_WORDS)
        start = self._curr.start if self._match_text_seq("AS", "OF") and self._curr else len(self.sql)
        found = BARE_VERSION.match(self.sql, start)
        if found is None:
            self._retreat(before)
            return None
        while self._curr and self._curr.start < found.end():
            self._advance()
        if self._prev.end + 1 != found.end():
            self.raise_error("a version ends within a word", self._prev)
        word = exp.Literal.string(found.group())
        return self.expression(exp.Version(this="VERSION", expression=word, kind="AS OF"))

    def _parse_table_options(self, node: exp.Expr) -> None:
        """Give a node the options at this place, if there is a hint or a clause."""
        hints: list[Token] = []
        while self._curr and self._curr.token_type is TokenType.HINT and (not hints or has_options(self._curr)):
            hints.append(self._curr)
            self._advance()
        if hints:
            node.meta[_OPTIONS] = added_options(self._source(), hints)
            node.meta[_HINTS] = [each.start for each in hints]
            return
        if not (
            self._curr
            and self._curr.token_type is TokenType.WITH
            and self._next
            and self._next.token_type is TokenType.L_PAREN
        ):
            return
        self._advance()
        cursor = Cursor(self._source(), self._tokens[self._index :])
        node.meta[_OPTIONS] = read_options(cursor)
        self._advance(cursor.index)

    def _give_options(self, table: exp.Expr, other: exp.Expr) -> None:
        """Add options of another place to a table's. Raises: InvalidInputError: they say different things."""
        options, added = table_options(table), table_options(other)
        twice = [key for key, value in added.items() if options.get(key, value) != value]
        if twice:
            start, stop = table.meta[_SPAN]
            raise self._source().problem(f"{_GIVEN_TWICE}{twice[0]}", start, stop, OwnSyntaxError)
        table.meta[_OPTIONS] = {**options, **added}
        table.meta[_HINTS] = [*table.meta.get(_HINTS, []), *other.meta.get(_HINTS, [])]

    def _source(self) -> SourceText:
        return self.source or SourceText.of(self.sql)

    def scalar_expression(self, source: SourceText, tokens: list[Token]) -> tuple[exp.Expr, int]:
        """The expression that tokens begin with, and how many tokens it takes. Raises: ParseError."""
        self.source, self.sql = source, source.text
        self._chunks = [tokens]
        self._advance_chunk()
        found = self._parse_disjunction()
        if found is None:
            self.raise_error("expected an expression")
        assert found is not None
        return found, self._index


_VERSION_WORDS: Final = ("FOR", "VERSION", "SYSTEM_VERSION")
BARE_VERSION: Final = re.compile(r"\w+(?:[.-]\w+)*")
"""A tag, snapshot or branch: words, with one point or dash between two of them."""
_BEFORE_TARGET: Final = (TokenType.INTO, TokenType.OVERWRITE)

MAX_STATEMENT_CHARACTERS: Final = 16_000_000
"""Of a statement."""
MAX_STATEMENT_WORDS: Final = 200_000
"""Of a statement: a list of 100,000 values. Reading a word takes 9 microseconds, and Spark reads them again."""


class FluvialDialect(Spark):
    """Spark's grammar with tables of Fluvial."""

    Tokenizer = FluvialTokenizer
    Parser = FluvialParser


def tokens_of(source: SourceText) -> list[Token]:
    """The tokens of a text.

    Raises: InvalidInputError at a quote or comment that is not closed; a text that takes seconds to be parsed;
        ``t#tags``, an earlier spelling of system tables, which is no SQL.
    """
    if len(source.text) > MAX_STATEMENT_CHARACTERS:
        raise _too_long(f"characters={len(source.text)} most={MAX_STATEMENT_CHARACTERS}")
    try:
        tokens = FluvialDialect().tokenize(source.text)
    except TokenError as error:
        raise _unreadable(source, error) from error
    if len(tokens) > MAX_STATEMENT_WORDS:
        raise _too_long(f"words={len(tokens)} most={MAX_STATEMENT_WORDS}")
    has_sign = "#" in source.text and tokens and tokens[0].text.upper() not in _WITH_FREE_TEXT
    names = tokens if has_sign else []
    for before, sign, name in zip(names, names[1:], names[2:], strict=False):
        if sign.token_type is TokenType.HASH and before.end + 1 == sign.start and sign.end + 1 == name.start:
            raise source.problem(
                f"a system table is named with another sign: write='{before.text}${name.text}'",
                before.start, name.end + 1, OwnSyntaxError,
            )  # fmt: skip
    return tokens


def _too_long(size: str) -> InvalidInputError:
    return InvalidInputError(
        f"statement is too long: {size} fix='put the values into a view of a DataFrame, or a table, and write "
        "IN (SELECT ...), or INSERT ... SELECT'"
    )


def read_options(cursor: Cursor) -> dict[str, str]:
    """``('key' = 'value', key.part = 1, ...)``: keys in quotes, backticks or bare, the sign may be left out.

    Raises:
        InvalidInputError: at the place that is wrong; a key that comes twice.
    """
    options: dict[str, str] = {}
    for start, stop, key, value in cursor.listed(_read_option):
        if options.setdefault(key, value) != value:
            raise cursor.problem(f"{_GIVEN_TWICE}{key}", start, stop)
    return options


def read_set_options(cursor: Cursor) -> dict[str, str]:
    """The options behind SET: in parentheses, or one alone, as ``SET 'change-tracking' = 'false'``."""
    if cursor.sees_string():
        _, _, key, value = _read_option(cursor)
        return {key: value}
    cursor.take_any("TBLPROPERTIES", "OPTIONS")
    return read_options(cursor)


def read_option_key(cursor: Cursor) -> str:
    """A key in quotes, in backticks, or of words with points and dashes between them."""
    if cursor.sees_string():
        return cursor.string()
    parts = [cursor.name("an option's name")]
    while mark := cursor.take_any(".", "-"):
        parts += [mark, cursor.name("the rest of the option's name")]
    return "".join(parts)


def read_option_value(cursor: Cursor) -> str:
    """A text in quotes, a number, or a word such as ``true``."""
    if cursor.sees_string():
        return cursor.string()
    sign = "-" if cursor.take("-") else ""
    token = cursor.token
    if token is None or (token.token_type is not TokenType.NUMBER and (sign or not token.text.isidentifier())):
        raise cursor.problem("syntax error, expected a value")
    cursor.index += 1
    return sign + token.text


def parse_expression(cursor: Cursor) -> exp.Expr:
    """The scalar expression at the cursor, which goes past it. Raises: InvalidInputError at the place."""
    parser = FluvialParser(dialect=FluvialDialect)
    try:
        found, count = parser.scalar_expression(cursor.source, list(cursor.tokens[cursor.index :]))
    except ParseError as error:
        raise _problem_of(cursor.source, error) from error
    except RecursionError:
        raise _too_deep(cursor.source) from None
    cursor.index += count
    return found


def parse_query(source: SourceText) -> exp.Expr:
    """The tree of a query or of a change of rows.

    Raises:
        InvalidInputError: at the place; a hint of options that no table takes.
    """
    parser = FluvialParser(dialect=FluvialDialect)
    parser.source = source
    tokens = tokens_of(source)
    try:
        trees = parser.parse(tokens, source.text)
    except ParseError as error:
        start = error.span[0] if isinstance(error, SyntaxProblem) and error.span else None
        hint = next((each for each in tokens if each.start == start and has_options(each)), None)
        if hint is not None:
            raise misplaced_hint(source, hint) from None  # with a cause it would be Spark's to read
        raise _problem_of(source, error) from error
    except RecursionError:
        raise _too_deep(source) from None
    assert len(trees) == 1
    assert trees[0] is not None
    taken = [start for table in trees[0].find_all(exp.Table) for start in table.meta.get(_HINTS, ())]
    for hint in tokens:
        if hint.start not in taken and has_options(hint):
            raise misplaced_hint(source, hint)
    return trees[0]


def evolves_schema(change: exp.Expr) -> bool:
    """Whether an INSERT or a MERGE says WITH SCHEMA EVOLUTION."""
    return bool(change.meta.get(_EVOLVES))


def check_begins(source: SourceText, stop: int) -> None:
    """Refuse a hint before the first word of a text. Raises: InvalidInputError.

    Args:
        source: the text.
        stop: where its first word begins.
    """
    if "/*+" in source.text[:stop]:
        for token in FluvialDialect().tokenize(f";{source.text[:stop]}")[1:]:
            raise misplaced_hint(source, token, shift=-1)


def table_options(table: exp.Expr) -> Mapping[str, str]:
    """Options that follow a table in a query, by hint or clause."""
    found: Mapping[str, str] = table.meta.get(_OPTIONS, {})
    return found


def table_span(table: exp.Expr) -> tuple[int, int]:
    """Offsets in the statement's text of a table's name with its options and version, without its alias."""
    start, stop = table.meta[_SPAN]
    return start, stop


def has_options(token: Token) -> bool:
    """Whether a token is a hint that has OPTIONS among its words."""
    return token.token_type is TokenType.HINT and re.search(r"\bOPTIONS\s*\(", token.text, re.IGNORECASE) is not None


def added_options(source: SourceText, hints: Sequence[Token]) -> dict[str, str]:
    """The options of the hints of one table. Raises: InvalidInputError: one cannot be read, or two differ."""
    options: dict[str, str] = {}
    for hint in hints:
        for key, value in _options_of_hint(source, hint).items():
            if options.setdefault(key, value) != value:
                raise source.problem(_GIVEN_TWICE + key, hint.start, hint.end + 1, OwnSyntaxError)
    return options


def _options_of_hint(source: SourceText, hint: Token) -> dict[str, str]:
    inner = source.part(hint.start + len("/*+"), hint.end + 1 - len("*/"))
    cursor = Cursor(inner, tokens_of(inner))
    try:
        cursor.expect("OPTIONS")
        options = read_options(cursor)
        cursor.expect_end()
    except SqlSyntaxError as error:
        if not has_options(hint):
            raise  # a hint of Spark's, which its parser knows to be misplaced
        raise OwnSyntaxError(str(error)) from None
    return options


def misplaced_hint(source: SourceText, hint: Token, shift: int = 0) -> InvalidInputError:
    """The error of a hint of options that no table takes; ``shift`` moves the place that it shows."""
    problem = (
        "no table takes this hint: fix='write it behind the name of its table, as t /*+ OPTIONS(...) */; INSERT takes "
        "it behind INTO or OVERWRITE too'"
    )
    return source.problem(problem, hint.start + shift, hint.end + 1 + shift, OwnSyntaxError)


def _read_option(cursor: Cursor) -> tuple[int, int, str, str]:
    start = cursor.start
    key = read_option_key(cursor)
    stop = cursor.stop
    cursor.take("=")
    return start, stop, key, read_option_value(cursor)


def _problem_of(source: SourceText, error: ParseError) -> InvalidInputError:
    span = error.span if isinstance(error, SyntaxProblem) else None
    start, stop = span or (len(source.text), len(source.text))
    words = str(error).partition(" but got <")[0].rstrip(". ")
    if words.startswith("Required keyword"):
        words = "something is missing"
    elif words.endswith("Unexpected token"):
        words = "this cannot stand here"
    return source.problem(f"syntax error, {words[:1].lower()}{words[1:]}", start, stop)


def _too_deep(source: SourceText) -> InvalidInputError:
    return source.problem("statement is nested too deeply, fix='leave out brackets'", 0, 1)


def _unreadable(source: SourceText, error: TokenError) -> InvalidInputError:
    """Where an open quote or comment begins: the last place up to which the text can be cut."""
    text, dialect = source.text, FluvialDialect()
    for start in range(len(text) - 1, -1, -1):
        if text[start] not in "'\"`/":
            continue
        try:
            dialect.tokenize(text[:start])
        except TokenError:
            continue
        return source.problem("syntax error, quote or comment is not closed", start, start + 1)
    return source.problem(f"syntax error, {error}", len(text), len(text))
