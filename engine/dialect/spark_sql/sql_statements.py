"""What the parsers of Spark's sessions ask Fluvial's SQL."""

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from engine.dialect.call import is_of_procedures
from engine.dialect.entry import frame_of
from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.parser import Call, Explain, SparkStatement, parse_statements
from engine.dialect.grammar.places import OwnSyntaxError, SqlSyntaxError, WordElsewhereError
from engine.dialect.grammar.spark_text import in_sparks_words
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import run_query
from engine.dialect.query.references import check_sources, find_references, missing_table, our_name
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.frame_cache import FrameCache
from engine.dialect.scope.kept_rows import rows_read_again
from engine.dialect.scope.names import is_ours
from engine.dialect.session import SqlSession
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.statements import OwnCommand, OwnQuery, SparkText
from engine.spark_internals.session import has_view
from engine.system_tables.names import has_namespace, is_system_name
from filestore.catalog.catalog import DEFAULT_DATABASE
from lsm.errors import FluvialError, InvalidInputError

# ---- Decides whether Spark or Fluvial runs a statement of ``spark.sql``, by the tables and views that it names


_CHANGES: Final = (exp.Insert, exp.Delete, exp.Update, exp.Merge)
_LISTED: Final = (tree.AnalyzeTables, tree.ShowTables)
_OF_DATABASES: Final = (tree.CreateDatabase, tree.DropDatabase, tree.DescribeDatabase, *_LISTED)
_SAYS_ITSELF: Final = (tree.CreateDatabase, tree.AnalyzeTables)  # that there is a database, or none
_MAKES: Final = (tree.CreateTable,)
_SETTINGS: Final = (tree.SetSetting, tree.ResetSetting)


def is_command(context: SqlContext, statement: Statement) -> bool:
    """Whether a statement is a command of Fluvial's in this catalog; a query is none.

    Raises:
        InvalidInputError: it writes to a table that does not exist.
    """
    what: Any = statement.tree
    if isinstance(what, _CHANGES):
        return _writes_ours(context, what)
    if isinstance(what, exp.Expr | SparkStatement):
        return False
    if isinstance(what, tree.Use):
        return what.is_catalog and what.name == (context.catalog_name,)  # USE without this word is Spark's
    if isinstance(what, Explain):
        return reads_ours(context, what.inner)
    if isinstance(what, Call):
        return is_of_procedures(context, what.procedure[:-1], is_current=context.is_current)
    if isinstance(what, _SETTINGS):
        return True
    if isinstance(what, tree.ShowDatabases):
        return context.is_current
    if isinstance(what, tree.ShowProcedures):
        return is_of_procedures(context, what.space, is_current=context.is_current)
    if isinstance(what, _OF_DATABASES):
        name = what.database if isinstance(what, _LISTED) else what.name
        is_here = name[0] == context.catalog_name if len(name) == 2 else context.is_current
        return is_here and (not name or isinstance(what, _SAYS_ITSELF) or _is_database(context, name[-1]))
    return _is_on_ours(context, what)


def reads_ours(context: SqlContext, statement: Statement) -> bool:
    """Whether a statement is a query of tables of this catalog. Raises: InvalidInputError: one does not exist."""
    what = statement.tree
    if not isinstance(what, exp.Expr) or isinstance(what, _CHANGES):
        return False
    found = find_references(context, statement, what, is_view=lambda name: has_view(context.spark, name))
    return bool(found)


def _check_sources(context: SqlContext, statement: Statement) -> None:
    """Spark says that a table is not there before it runs a command, as it says it of queries.

    Raises: InvalidInputError: the rows that a command writes are to come from a table that does not exist.
    """
    what = statement.tree
    source = what.query if isinstance(what, tree.CreateTable) else statement if isinstance(what, _CHANGES) else None
    if source is not None and isinstance(source.tree, exp.Expr):
        check_sources(context, source, source.tree, is_view=lambda name: has_view(context.spark, name))


def _writes_ours(context: SqlContext, what: Any) -> bool:
    node = what.this.this if isinstance(what.this, exp.Schema) else what.this
    is_table = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
    return is_table and our_name(context, node) is not None


def _is_database(context: SqlContext, name: str) -> bool:
    """Whether there is one; of another, Spark says that it is not there."""
    return has_namespace(context.catalog, context.names.database(name, context.catalog))


def _is_on_ours(context: SqlContext, what: Any) -> bool:
    """A statement about one table."""
    has_catalog = len(what.name) == 3
    is_here = bool(what.name[0] == context.catalog_name) if has_catalog else context.is_current
    if not is_here or isinstance(what, _MAKES):
        return is_here
    if is_ours(context, what.name):
        return True
    if is_system_name(name := context.full_name(*what.name)):
        return False
    raise missing_table(context, *name.split(".", 1))


# ---- What the parsers of Spark's sessions ask Fluvial's SQL


_MOST_SESSIONS: Final = 16  # that are kept with their frames; a session that comes back only plans again


class _Kept:
    """What one session keeps between its statements."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.settings: dict[str, str] = {}
        self.frames: dict[str, FrameCache] = {}  # by the name of the catalog

    def context(self, session: CatalogSession, name: str) -> SqlContext:
        """The context of one statement; threads share the settings and the frames."""
        context = _SessionContext(
            catalog=session.catalogs[name],
            open_spark=lambda: self.spark,
            catalog_name=name,
            settings=self.settings,
            frames=self.frames.setdefault(name, FrameCache()),
        )
        context.find_place_in(session)
        assert context.spark is self.spark  # it runs already
        return context


class _SessionContext(SqlContext):
    """Where the session is, is asked when a name needs it: whole names do not, and it is seven calls of the JVM."""

    is_sparks_own = True

    def find_place_in(self, session: CatalogSession) -> None:
        """Instead of the place that a context begins with."""
        self._session = session
        del self.database, self.is_current

    @cached_property
    def _place(self) -> tuple[str, str]:
        return self._session.place()

    @cached_property
    def is_current(self) -> bool:  # type: ignore[override]
        """Whether names without a catalog may be this one's."""
        return self._place[0] == self.catalog_name

    @cached_property
    def database(self) -> str:  # type: ignore[override]
        """The database of names without one."""
        return self._place[1] if self.is_current else DEFAULT_DATABASE


class SqlStatements:
    """Fluvial's SQL for sessions of Spark; one for an application, asked by all its threads."""

    def __init__(self) -> None:
        """No session is known."""
        self._kept: OrderedDict[CatalogSession, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def route(self, session: CatalogSession, text: str) -> OwnQuery | OwnCommand | SparkText:
        """Implements ``Statements.route``."""
        sparks = SparkText(in_sparks_words(text))
        try:
            statements = parse_statements(sparks.text)
        except WordElsewhereError as error:
            if self._is_ours(session, error.table):
                raise OwnSyntaxError(str(error)) from error
            raise
        except SqlSyntaxError as error:
            if error.__cause__ is not None or (sparks.text != text and not isinstance(error, OwnSyntaxError)):
                return sparks  # sqlglot's error, or a part of a script: Spark may read it
            raise
        if len(statements) != 1:
            return sparks
        try:
            return self._routed(session, statements[0]) or sparks
        except SqlSyntaxError as error:  # it could be read: what is wrong is what it says
            raise InvalidInputError(str(error)) from error

    def _is_ours(self, session: CatalogSession, table: tuple[str, ...]) -> bool:
        """Whether a name is a table of one of the catalogs, where the session is."""
        for name in session.catalogs if table else ():
            context = self._context(session, name)
            is_here = table[0] == name if len(table) == 3 else context.is_current
            if is_here and is_ours(context, table):
                return True
        return False

    def _routed(self, session: CatalogSession, statement: Statement) -> OwnQuery | OwnCommand | None:
        for name in session.catalogs:
            context = self._context(session, name)
            if is_command(context, statement):
                _check_sources(context, statement)
                return OwnCommand(name)
            if reads_ours(context, statement):
                return OwnQuery(run_query(context, statement))
        return None

    def is_syntax_error(self, error: FluvialError) -> bool:
        """Implements ``Statements.is_syntax_error``."""
        return isinstance(error, SqlSyntaxError) and not isinstance(error, OwnSyntaxError)

    def run(self, session: CatalogSession, catalog: str, text: str) -> DataFrame | None:
        """Implements ``Statements.run``."""
        context = self._context(session, catalog)
        (statement,) = parse_statements(text)
        with rows_read_again(context, statement):
            result = SqlSession(context).run(statement)
        has_rows = result.frame is not None or (result.table is not None and result.table.num_columns)
        return frame_of(context.spark, result) if has_rows else None

    def _context(self, session: CatalogSession, name: str) -> SqlContext:
        return self._of(session).context(session, name)

    def _of(self, session: CatalogSession) -> _Kept:
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None:
                self._kept.move_to_end(session)
                return kept
        kept = _Kept(session.open_spark())
        with self._lock:
            self._kept[session] = kept
            if len(self._kept) > _MOST_SESSIONS:
                self._kept.popitem(last=False)
        return kept
