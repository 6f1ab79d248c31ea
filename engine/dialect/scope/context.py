"""The context of statements: a catalog, a current database, settings, and Spark when it is needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Final

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.dialect.scope.frame_cache import FrameCache
from engine.types.column_names import CaseRule
from filestore.catalog.catalog import DEFAULT_DATABASE
from lsm.errors import InvalidInputError

CATALOG_NAME: Final = "fluvial"


@dataclass(kw_only=True)
class SqlContext:
    """One session's state; not thread-safe."""

    is_sparks_own: ClassVar[bool] = False  # whether the statements are those of ``spark.sql``

    catalog: Catalog
    open_spark: Callable[[], SparkSession]  # called at most once, when a statement needs Spark
    catalog_name: str = CATALOG_NAME
    database: str = DEFAULT_DATABASE
    is_current: bool = True  # names without a catalog may be this one's
    settings: dict[str, str] = field(default_factory=dict, repr=False)  # SET table-storage.*, without the prefix
    statement: str = ""  # the text of the one that is running
    spelled: dict[str, str] = field(default_factory=dict, repr=False)  # names of tables in it, as the catalog has them
    frames: FrameCache = field(default_factory=FrameCache, repr=False)

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session; starting one takes seconds."""
        return self.open_spark()

    @property
    def running_spark(self) -> SparkSession | None:
        """The Spark session if it has been started."""
        return self.__dict__.get("spark")

    @property
    def names(self) -> CaseRule:
        """When two names of columns are one, in the session of now."""
        return CaseRule.of(self.running_spark)

    def full_name(self, *parts: str) -> str:
        """``database.table`` for a name of one to three parts, as the catalog spells it, if there is such a table.

        Raises:
            InvalidInputError: the catalog is another one, or there are more parts.
        """
        if len(parts) == 3 and parts[0] == self.catalog_name:
            parts = parts[1:]
        if len(parts) == 1:
            return self._as_spelled(f"{self.database}.{parts[0]}")
        if len(parts) == 2:
            return self._as_spelled(".".join(parts))
        raise InvalidInputError(
            f"a table is named [{self.catalog_name}.][database.]table: name={'.'.join(parts)} "
            f"catalog={self.catalog_name}"
        )

    def begin(self, statement: str) -> None:
        """Another statement runs."""
        self.statement = statement
        self.spelled.clear()

    def _as_spelled(self, name: str) -> str:
        if name not in self.spelled:
            self.spelled[name] = self.names.table(name, self.catalog)
        return self.spelled[name]

    def database_name(self, parts: tuple[str, ...]) -> str:
        """A database name of one or two parts. Raises: InvalidInputError when the catalog is another one."""
        if len(parts) == 2 and parts[0] == self.catalog_name:
            parts = parts[1:]
        if len(parts) == 1:
            return self.names.database(parts[0], self.catalog)
        raise InvalidInputError(
            f"a database is named [{self.catalog_name}.]database: name={'.'.join(parts)} catalog={self.catalog_name}"
        )
