"""One session of Spark, as the catalogs in it see it, and whose a text is while Fluvial itself asks Spark."""

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.spark.session import TIME_SWITCH, with_sources
from engine.spark_internals.catalog import SparkInside
from engine.types.column_names import CaseRule

_entered: Final = threading.local()


class CatalogSession:
    """A session of the JVM, and the catalogs that it has by name."""

    def __init__(self, inside: SparkInside, session: Any, catalogs: Mapping[str, Catalog]) -> None:
        """A session that may not be complete yet: nothing of it is asked here, and it is not kept from its end."""
        self.inside = inside
        self.catalogs = catalogs
        self._session = inside.weak(session)
        self._python: weakref.ref[SparkSession] | None = None

    @property
    def jvm(self) -> Any:
        """The session in the JVM."""
        return self._session.get()

    def open_spark(self) -> SparkSession:
        """The session as PySpark's; who keeps it keeps the session. While it is kept, there is one."""
        found = None if self._python is None else self._python()
        if found is None:
            found = with_sources(self.inside.python_session(self.jvm))
            self._python = weakref.ref(found)
        return found

    @property
    def names(self) -> CaseRule:
        """When two names are one, in the session of now."""
        return CaseRule.of(self.open_spark())

    def allow_times(self) -> None:
        """Let the session have columns of TIME, which tables have, unless it says whether it has them."""
        settings = self.jvm.conf()
        if not settings.getAll().contains(TIME_SWITCH):
            settings.set(TIME_SWITCH, "true")

    def place(self) -> tuple[str, str]:
        """The current catalog and namespace."""
        return self.inside.current_place(self.jvm)


class AsSpark:
    """A block in which the texts of this thread are Spark's: Fluvial has put its own tables in."""

    def __enter__(self) -> None:
        self._before = self.is_entered()
        _entered.is_set = True

    def __exit__(self, *error: object) -> None:
        _entered.is_set = self._before

    @staticmethod
    def is_entered() -> bool:
        """Whether this thread is in such a block."""
        return bool(getattr(_entered, "is_set", False))
