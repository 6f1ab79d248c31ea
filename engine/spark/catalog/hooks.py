"""Catalogs in all sessions of an application: those that run, and those that Spark makes later from them.

A session of Spark gets its catalogs by the name of a Java class, which Python has not. So what reads the texts of a
session and what resolves its names, which Spark makes for each session, give it the catalogs when they are first used.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine.catalog import Catalog
from engine.runtime.logs import fields_of
from engine.spark.catalog.catalog import CatalogProxy
from engine.spark.catalog.procedure import CALL_TEXT
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import AsSpark, CatalogSession
from engine.spark.catalog.statements import OwnQuery, SparkText, Statements
from engine.spark_internals.catalog import PARSER, SparkInside, known_inside
from engine.spark_internals.session import jvm_frame, jvm_session
from lsm.errors import FluvialError, InvalidInputError

# ---- The parser of a session: texts about tables of Fluvial become plans of Fluvial's, all others are Spark's


_REFUSED: Final = "INVALID_SQL_SYNTAX.UNSUPPORTED_SQL_STATEMENT"
_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"
_NAME: Final = "relationName"
_UNABLE: Final = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
_NOT_SPARKS: Final = re.compile(r"\s*(?:(?:re)?set\s*['\"]|(?:create|use)\s+catalog\b)")  # statements it has not
_SYNTAX: Final = "syntax error"  # begins a message about words that cannot be read


class ParserProxy(Proxy):
    """A ``ParserInterface`` in front of the session's own."""

    def __init__(
        self, session: CatalogSession, base: Any, statements: Statements, prepare: Callable[[CatalogSession], None]
    ) -> None:
        """In front of ``base``; ``prepare`` gives the session its catalogs, at the first text."""
        super().__init__(session.inside)
        self.base = base
        self.is_active = bool(session.catalogs)
        self.session = session
        self._statements = statements
        self._prepare = prepare
        self._is_prepared = False

    # ---- what Spark calls

    @called
    def parsePlan(self, text: str) -> Any:
        """The plan of a statement."""
        plan = self._own_plan(text)
        return self.base.parsePlan(text) if plan is None else plan

    @called
    def parsePlanWithParameters(self, text: str, parameters: Any) -> Any:
        """The plan of a statement with ``:name`` or ``?``."""
        if self._may_be_own(text):
            plan = self._own_plan(self.inside.substituted(text, parameters))
            if plan is not None:
                return plan
        return self.base.parsePlanWithParameters(text, parameters)

    @called
    def parseQuery(self, text: str) -> Any:
        """The plan of a query: of a view, whose names Spark resolves."""
        self.ready()
        return self.base.parseQuery(text)

    @called
    def parseMultipartIdentifier(self, text: str) -> Any:
        """The parts of a name."""
        self.ready()
        return self.base.parseMultipartIdentifier(text)

    @called
    def parseExpression(self, text: str) -> Any:
        """Implements ``parseExpression`` of Spark's interface."""
        return self.base.parseExpression(text)

    @called
    def parseTableIdentifier(self, text: str) -> Any:
        """Implements ``parseTableIdentifier`` of Spark's interface."""
        return self.base.parseTableIdentifier(text)

    @called
    def parseFunctionIdentifier(self, text: str) -> Any:
        """Implements ``parseFunctionIdentifier`` of Spark's interface."""
        return self.base.parseFunctionIdentifier(text)

    @called
    def parseTemporalTableIdentifier(self, text: str) -> Any:
        """Implements ``parseTemporalTableIdentifier`` of Spark's interface."""
        return self.base.parseTemporalTableIdentifier(text)

    @called
    def parseRoutineParam(self, text: str) -> Any:
        """Implements ``parseRoutineParam`` of Spark's interface."""
        return self.base.parseRoutineParam(text)

    @called
    def splitStatements(self, text: str) -> Any:
        """Implements ``splitStatements`` of Spark's interface."""
        return self.base.splitStatements(text)

    @called
    def parseTableSchema(self, text: str) -> Any:
        """Implements ``parseTableSchema`` of Spark's interface."""
        return self.base.parseTableSchema(text)

    @called
    def parseDataType(self, text: str) -> Any:
        """Implements ``parseDataType`` of Spark's interface."""
        return self.base.parseDataType(text)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (PARSER,)

    # ---- Fluvial's texts

    def forget(self) -> None:
        """There are other catalogs: the session gets them at its next text."""
        self.is_active = bool(self.session.catalogs)
        self._is_prepared = False

    def drop(self, name: str) -> None:
        """Take a catalog from the session, if it still runs."""
        session = self.session.jvm
        if session is not None and self._is_prepared:
            self.inside.put_catalog(session, name, None)
        self.forget()

    def ready(self) -> None:
        """Give the session its catalogs, once."""
        if self.is_active and not self._is_prepared:
            self._is_prepared = True
            self._prepare(self.session)

    def _may_be_own(self, text: str) -> bool:
        """Whether a look into the text pays: it has a catalog's name, or names in it are relative to a catalog."""
        if not self.is_active or AsSpark.is_entered():
            return False
        self.ready()
        words = text.lower()
        if any(name.lower() in words for name in self.session.catalogs) or "table-storage." in words:
            return True
        if _NOT_SPARKS.match(words):
            return True
        return self.inside.current_catalog(self.session.jvm) in self.session.catalogs

    def _own_plan(self, text: str) -> Any:
        """The plan of a text of Fluvial's; None: Spark's."""
        if not self._may_be_own(text) or self.inside.is_resolving_view():
            return None
        with AsSpark():
            try:
                found = self._statements.route(self.session, text)
                if isinstance(found, OwnQuery):
                    return self._plan_of(found.frame)
            except FluvialError as error:
                return self._spark_plan(text, error)
        if isinstance(found, SparkText):
            return None if found.text == text else self.base.parsePlan(found.text)
        call = CALL_TEXT.format(catalog=found.catalog.replace("`", "``"), text=_literal(text))
        return self.base.parsePlan(call)

    def _plan_of(self, frame: DataFrame) -> Any:
        return self.inside.plan_of(jvm_frame(frame))

    def _spark_plan(self, text: str, error: FluvialError) -> Any:
        """Spark finds what is wrong and says it in its own words; what it cannot read is refused in Fluvial's."""
        try:
            plan = self.base.parsePlan(text)
        except PySparkException:
            if self._statements.is_syntax_error(error):
                raise
            raise self.inside.refused(text, _REFUSED, {"sqlText": str(error)}) from error
        near = fields_of(str(error)).get("did_you_mean")
        if near is not None:
            self._check_names(text, plan, str(near).rstrip(":"))
        elif not str(error).startswith(_SYNTAX):
            self._check_ability(text, plan, error)
        return plan

    def _check_names(self, text: str, plan: Any, near: str) -> None:
        """Say that a table is not there as Spark does, and which one may be meant."""
        try:
            self.inside.look(self.session.jvm, plan)
        except PySparkException as missing:
            given = missing.getMessageParameters() or {}
            if missing.getCondition() == _MISSING and _NAME in given:
                said = {**given, _NAME: f"{given[_NAME]} (did you mean {near}?)"}
                raise self.inside.refused(text, _MISSING, said) from missing

    def _check_ability(self, text: str, plan: Any, error: FluvialError) -> None:
        """Say why a table cannot do what it is asked, where Spark would say only that it cannot."""
        try:
            self.inside.look_at_plan(self.session.jvm, plan)
        except PySparkException as unable:
            if str(unable.getCondition()).startswith(_UNABLE):
                words = str(error).partition("\n")[0]
                raise self.inside.refused(text, _REFUSED, {"sqlText": words}) from unable


class ParserBuilder(Proxy):
    """What Spark asks for the parser of each new session."""

    def __init__(self, inside: SparkInside, make: Callable[[Any, Any], Any]) -> None:
        """``make`` gets the session and its parser."""
        super().__init__(inside)
        self._make = make

    @called
    def apply(self, session: Any, parser: Any) -> Any:
        """The parser of a session."""
        return self._make(session, parser)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("scala.Function2",)


class AnalyzerBuilder(Proxy):
    """What Spark asks when a session resolves its first names; its answer is a check that checks nothing."""

    def __init__(self, inside: SparkInside, look: Callable[[Any], None]) -> None:
        """``look`` gets the session."""
        super().__init__(inside)
        self._look = look

    @called
    def apply(self, session: Any) -> Any:
        """The check of a session."""
        self._look(session)
        return self.inside.no_check()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("scala.Function1",)


def _literal(text: str) -> str:
    """A text as SQL, whatever is in it, in every setting of the session's escapes: as hexadecimal digits."""
    return text.encode().hex()


# ---- Catalogs in all sessions of an application: those that run, and those that Spark makes later from them


_installed: WeakKeyDictionary[SparkContext, "InstalledCatalogs"] = WeakKeyDictionary()
_lock = threading.Lock()


class InstalledCatalogs:
    """The catalogs of one application."""

    def __init__(self, spark: SparkSession, statements: Statements) -> None:
        """None yet; sessions made from now on ask here. Raises: InvalidInputError: see ``check_spark``."""
        self._inside = SparkInside(spark)
        self._statements = statements
        self._catalogs: dict[str, Catalog] = {}
        self._parsers: WeakSet[ParserProxy] = WeakSet()
        self._replaced: list[tuple[Any, Any]] = []  # sessions that ran already, and their parsers
        session = jvm_session(spark)
        with known_inside():
            self._inside.inject_parser(session, ParserBuilder(self._inside, self._parser))
            self._inside.inject_check(session, AnalyzerBuilder(self._inside, self._look))

    @classmethod
    def of(cls, spark: SparkSession, statements: Callable[[], Statements]) -> "InstalledCatalogs":
        """The installed catalogs of a session's application."""
        with _lock:
            found = _installed.get(spark.sparkContext)
            if found is None:
                found = _installed[spark.sparkContext] = cls(spark, statements())
            return found

    @property
    def catalogs(self) -> Mapping[str, Catalog]:
        """The installed catalogs by name."""
        return self._catalogs

    def add(self, spark: SparkSession, name: str, catalog: Catalog) -> None:
        """Give a catalog to a session, and to all that have the parser already or get it later.

        Raises:
            InvalidInputError: this Spark has not what is needed, though its release is known; it has no catalog then.
        """
        self._catalogs[name] = catalog
        try:
            with known_inside():
                self._share(jvm_session(spark))
        except InvalidInputError:
            self._catalogs.pop(name)
            for parser in list(self._parsers):
                parser.forget()
            raise

    def _share(self, session: Any) -> None:
        base = self._inside.parser(session)
        if not self._inside.is_python(base):
            self._inside.set_parser(session, self._parser(session, base))
            self._replaced.append((session, base))
        for parser in list(self._parsers):
            parser.forget()
            if parser.session.jvm is not None:  # it has resolved names without the catalog
                parser.ready()

    def remove(self, spark: SparkSession, name: str) -> None:
        """Take a catalog away from all sessions; without any catalog, texts are Spark's alone."""
        if self._catalogs.pop(name, None) is None:
            raise InvalidInputError(f"no such catalog: catalog={name} catalogs={sorted(self._catalogs)}")
        for parser in list(self._parsers):
            parser.drop(name)
        if not self._catalogs:
            for session, base in self._replaced:
                self._inside.set_parser(session, base)
            self._replaced.clear()

    def _parser(self, session: Any, base: Any) -> ParserProxy:
        found = ParserProxy(CatalogSession(self._inside, session, self._catalogs), base, self._statements, self._give)
        self._parsers.add(found)
        return found

    def _look(self, session: Any) -> None:
        """A session is about to resolve names for the first time."""
        parser = self._inside.parser(session)
        if self._inside.is_python(parser):
            parser.parseMultipartIdentifier("it_looks")  # which makes it ready

    def _give(self, session: CatalogSession) -> None:
        """Put the catalogs into a session."""
        session.allow_times()
        for name, catalog in list(self._catalogs.items()):
            proxy = CatalogProxy(session, name, catalog, self._statements)
            self._inside.put_catalog(session.jvm, name, proxy)
