"""Catalogs in all sessions of an application: those that run, and those that Spark makes later from them.

A session of Spark gets its catalogs by the name of a Java class, which Python has not. So what reads the texts of a
session and what resolves its names, which Spark makes for each session, give it the catalogs when they are first used.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.spark.catalog.catalog import CatalogProxy
from engine.spark.catalog.parser import AnalyzerBuilder, ParserBuilder, ParserProxy
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.statements import Statements
from engine.spark_internals.catalog import SparkInside, known_inside
from engine.spark_internals.session import jvm_session
from lsm.errors import InvalidInputError

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
