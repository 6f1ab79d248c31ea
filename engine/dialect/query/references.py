"""The tables of Fluvial that a statement names: not its own WITH queries, and not views of Spark."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from sqlglot import Token, TokenType, exp

from engine.dialect.grammar.dialect import table_options, table_span, tokens_of
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.statements import Statement
from engine.dialect.scope.context import SqlContext
from engine.lineage.tables import DATABASE as LINEAGE_DATABASE
from engine.system_tables.names import CATALOG_DATABASES, is_system_name
from filestore.layout.branch_names import BRANCH_NAME_PREFIX, SEPARATOR
from lsm.errors import InvalidInputError, MissingDatabaseError, MissingTableError
from lsm.nearest_names import did_you_mean

# fmt: off
_CONSTANTS: Final = (
    exp.Values, exp.Select, exp.SetOperation, exp.From, exp.Tuple, exp.Paren, exp.Alias, exp.TableAlias, exp.Identifier,
    exp.Column, exp.Star, exp.Literal, exp.HexString, exp.Null, exp.Boolean, exp.Interval, exp.Var, exp.Neg, exp.Cast,
    exp.DataType, exp.DataTypeParam, exp.Add, exp.Sub, exp.Mul, exp.Div,
)
# fmt: on
"""Parts of a text that reads no table. A function may: of SQL it is a query, and one of Spark's may be hidden by it."""


@dataclass(frozen=True, eq=False)
class Reference:
    """One place of a statement where a table is read."""

    node: exp.Table
    name: str  # "db.table", or "db.table$branch_b"
    system: str | None  # the part behind the last $ of "db.table$snapshots"
    options: Mapping[str, str] = field(repr=False)  # of the hint or clause behind the name
    start: int  # offsets of name, options and version in the statement's text
    stop: int

    @property
    def alias(self) -> str | None:
        """The user's name for it."""
        alias = self.node.args.get("alias")
        return alias.name or None if isinstance(alias, exp.TableAlias) else None

    @property
    def visible_name(self) -> str:
        """The qualifier of its columns; without an alias the last part of the name."""
        return self.alias or self.node.name

    @property
    def version(self) -> exp.Version | None:
        """VERSION AS OF or TIMESTAMP AS OF."""
        found = self.node.args.get("version")
        return found if isinstance(found, exp.Version) else None


class StatementText:
    """The text of a statement with its tokens."""

    def __init__(self, statement: Statement) -> None:
        """Tokens are made when they are first asked for."""
        self.statement = statement
        self.text = statement.text

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens, with hints and without comments."""
        return tokens_of(SourceText.of(self.text))

    def index_at(self, offset: int) -> int:
        """Number of the first token that starts at an offset or behind it."""
        return next((index for index, each in enumerate(self.tokens) if each.start >= offset), len(self.tokens))

    def word(self, index: int) -> str:
        """A token in upper case; "" when there is none, or when it is quoted."""
        if not 0 <= index < len(self.tokens):
            return ""
        token = self.tokens[index]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()

    def after_parens(self, index: int) -> int:
        """Number of the token behind the bracket that the one at ``index`` opens."""
        depth = 0
        for place in range(index, len(self.tokens)):
            kind = self.tokens[place].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0:
                return place + 1
        return len(self.tokens)

    def find(self, word: str, start: int = 0) -> int:
        """Number of a token outside of brackets and CASE; behind the last when there is none."""
        depth = 0
        for index in range(start, len(self.tokens)):
            here = self.word(index)
            if here == word and depth == 0:
                return index
            depth += (here in ("(", "CASE")) - (here in (")", "END"))
        return len(self.tokens)

    def head(self, word: str, target: exp.Table) -> int:
        """Number of the word that begins a change of rows, behind its WITH queries."""
        named = self.index_at(target.meta["span"][0])
        return next(index for index in range(named - 1, -1, -1) if self.word(index) == word)

    def start_of(self, index: int) -> int:
        """Offset of a token; behind the last it is the end of the text."""
        return self.tokens[index].start if index < len(self.tokens) else len(self.text)


def find_references(
    context: SqlContext, statement: Statement, tree: exp.Expr, *, is_view: Callable[[str], bool]
) -> list[Reference]:
    """Where a tree reads tables of Fluvial, in the order of the text.

    Args:
        context: the catalog and the current database.
        statement: offsets of the tree are in its text.
        tree: of the statement, or a part of it.
        is_view: whether Spark has a temporary view of a name; such a view hides a table of Fluvial.

    Raises:
        InvalidInputError: a name in Fluvial's catalog that is no table; names similar ones.
    """
    found: dict[int, Reference] = {}
    for node, is_short in _named(tree):
        if is_short and is_view(node.name):
            continue
        try:
            name = our_name(context, node)
        except InvalidInputError as error:
            raise statement.source.problem(str(error), *table_span(node)) from error
        if name is None:
            continue
        name, system = _parts_of(name)
        start, stop = table_span(node)
        if node.args.get("pivots"):
            stop = node.this.meta["end"] + 1
        found[start] = Reference(node, name, system or None, table_options(node), start, stop)
    return [found[start] for start in sorted(found)]


def check_sources(context: SqlContext, statement: Statement, tree: exp.Expr, *, is_view: Callable[[str], bool]) -> None:
    """Look for the tables that a change of rows, or a new table, reads by their last name alone; see above.

    Raises:
        InvalidInputError: there is no such table, view or WITH query.
    """
    for node, is_short in _named(tree):
        if not (is_short and context.is_current):
            continue
        try:
            known = our_name(context, node) is not None
        except InvalidInputError:
            known = False
        if not known and not is_view(node.name):
            problem = missing_table(context, context.database, node.name)
            raise statement.source.problem(str(problem), *table_span(node)) from problem


def _named(tree: exp.Expr) -> Iterator[tuple[exp.Table, bool]]:
    """The names of tables in a tree that are not its own WITH queries, and whether each is short: without a place."""
    written = written_table(tree)
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or "start" not in node.this.meta or "span" not in node.meta:
            continue
        is_short = node.args.get("db") is None and node is not written
        if not is_short or node.name.lower() not in _own_names(node):
            yield node, is_short


def written_table(tree: exp.Expr) -> exp.Expr | None:
    """What a change of rows writes, which a WITH query never hides; None: it is a query."""
    if not isinstance(tree, exp.Insert | exp.Delete | exp.Update | exp.Merge):
        return None
    found: exp.Expr = tree.this
    return found.this if isinstance(found, exp.Schema) else found


def reads_nothing(tree: exp.Insert) -> bool:
    """Whether the text alone says that the rows of an INSERT come from no table: by name, in a view, by a function."""
    query = None if tree.args.get("with_") else tree.expression
    return isinstance(query, exp.Expr) and all(isinstance(node, _CONSTANTS) for node in query.walk())


def _parts_of(name: str) -> tuple[str, str | None]:
    """The table, with its branch, and the system table that is meant."""
    base, *marked = name.split(SEPARATOR)
    if marked and marked[0].startswith(BRANCH_NAME_PREFIX) and base not in CATALOG_DATABASES:
        base = f"{base}{SEPARATOR}{marked.pop(0)}"
    return base, SEPARATOR.join(marked) or None


def our_name(context: SqlContext, node: exp.Table) -> str | None:
    """``db.table``, maybe with a ``$system`` name; None when the table is not Fluvial's.

    Raises:
        InvalidInputError: Fluvial's catalog is named, or is the current one and has a table with a similar name, or a
            branch of a table in it is; and it has no such table.
    """
    parts = [part.name for part in node.parts]
    if len(parts) > 3 or (len(parts) == 3 and parts[0] != context.catalog_name):
        return None
    if len(parts) < 3 and not context.is_current:
        return None
    name = context.full_name(*parts)
    database, _, table = name.partition(".")
    base = table.partition("$")[0]
    if table_exists(context, database, base):
        return name
    if database == LINEAGE_DATABASE and is_system_name(name):
        return f"{LINEAGE_DATABASE}{SEPARATOR}{table}"
    if database in CATALOG_DATABASES and database not in context.catalog.list_databases():
        return f"{database}{SEPARATOR}{table}"
    if len(parts) == 3 or f"{SEPARATOR}{BRANCH_NAME_PREFIX}" in table:  # of which Spark says that it is no name
        raise missing_table(context, database, base)
    if database in context.catalog.list_databases() and did_you_mean(base, context.catalog.list_tables(database)):
        raise missing_table(context, database, base)  # the current catalog is this one: no other can have the name
    return None


def missing_table(context: SqlContext, database: str, table: str) -> InvalidInputError:
    """The error for a missing table, with a similar name if there is one."""
    databases = context.catalog.list_databases()
    if database not in databases:
        return MissingDatabaseError(f"no such database: database={database}{did_you_mean(database, databases)}")
    hint = did_you_mean(table, context.catalog.list_tables(database))
    return MissingTableError(f"no such table: table={database}.{table}{hint}")


def table_exists(context: SqlContext, database: str, table: str) -> bool:
    """Whether the warehouse has this table."""
    try:
        return context.catalog.table_exists(f"{database}.{table}")
    except InvalidInputError:  # not a name that a table can have
        return False


def _own_names(node: exp.Expr) -> Iterator[str]:
    """Names of the WITH queries that are visible at a node, in lower case."""
    inner: exp.Expr = node
    outer = node.parent
    while outer is not None:
        if isinstance(outer, exp.With):
            ctes = outer.expressions
            place = next((index for index, each in enumerate(ctes) if each is inner), len(ctes))
            visible = ctes if outer.args.get("recursive") else ctes[:place]
        else:
            clause = outer.args.get("with_")
            visible = clause.expressions if isinstance(clause, exp.With) and clause is not inner else []
        for each in visible:
            yield each.alias.lower()
        inner, outer = outer, outer.parent
