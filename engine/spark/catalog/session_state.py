"""One session of Spark, as the catalogs in it see it."""

import weakref
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.spark.catalog.internals import SparkInside
from engine.spark.session import with_sources


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

    def place(self) -> tuple[str, str]:
        """The current catalog and namespace."""
        return self.inside.current_place(self.jvm)
