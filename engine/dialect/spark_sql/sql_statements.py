"""What the parsers of Spark's sessions ask Fluvial's SQL."""

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from engine.dialect.entry import frame_of
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.grammar.places import OwnSyntaxError, SqlSyntaxError
from engine.dialect.grammar.spark_text import in_sparks_words
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.frame_cache import FrameCache
from engine.dialect.scope.kept_rows import rows_read_again
from engine.dialect.session import SqlSession
from engine.dialect.spark_sql.routes import is_command, reads_ours
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.statements import OwnCommand, OwnQuery, SparkText
from filestore.catalog.catalog import DEFAULT_DATABASE
from lsm.errors import FluvialError, InvalidInputError

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

    def _routed(self, session: CatalogSession, statement: Statement) -> OwnQuery | OwnCommand | None:
        for name in session.catalogs:
            context = self._context(session, name)
            if is_command(context, statement):
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
