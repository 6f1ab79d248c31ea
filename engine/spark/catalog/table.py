"""A table as Spark's catalogs hold it. Reading and writing is done by tables of Spark's own that it makes."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.request.place_options import TABLE_PLACE_KEYS
from engine.request.writer_options import CLIENT_PREFIX
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.scan import ScanBuilderProxy
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.write import WriteBuilderProxy
from engine.spark.data_source import FORMAT_NAME, FluvialDataSource
from engine.system_tables.names import is_system_table
from filestore.options.catalog_options import is_catalog_option
from filestore.options.log_place import OWN_LOG_KEYS
from filestore.options.secrets import without_secrets

_READS: Final = ("BATCH_READ", "MICRO_BATCH_READ")
_WRITES: Final = ("BATCH_WRITE", "STREAMING_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC")
_TABLE: Final = "table"
_WAREHOUSE: Final = "warehouse"


class TableProxy(Proxy):
    """A table, or a system table, in a session."""

    def __init__(self, session: CatalogSession, catalog: Catalog, name: str, state: Mapping[str, str]) -> None:
        """``state``: options that say which state is read; () is the newest."""
        super().__init__(session.inside)
        self._session = session
        self._catalog = catalog
        self._name = name
        self._state = state

    @cached_property
    def _is_system(self) -> bool:
        return is_system_table(self._catalog, self._name)

    @cached_property
    def place(self) -> dict[str, str]:
        """The options by which ``format("fluvial")`` finds the table."""
        own = {key: value for key, value in self._catalog.options.items() if is_catalog_option(key)}
        return {**own, **self._login, _WAREHOUSE: self._catalog.warehouse, _TABLE: self._name, **self._state}

    @property
    def _login(self) -> dict[str, str]:
        """How the catalog reaches the brokers of the table's log."""
        if self._is_system or self._catalog.table(self._name).options.log_system == "none":
            return {}
        options = self._catalog.options.items()
        return {key: value for key, value in options if key.startswith(CLIENT_PREFIX) and key not in OWN_LOG_KEYS}

    @cached_property
    def _columns(self) -> StructType:
        return FluvialDataSource(self.place).schema()

    @cached_property
    def _schema(self) -> Any:
        return self.inside.struct(self._columns)

    # ---- what Spark calls

    def name(self) -> str:
        """Spark's."""
        return self._name

    def id(self) -> str | None:
        """Spark's: it has none."""
        return None

    def version(self) -> str | None:
        """Spark's: states are chosen when a scan is planned."""
        return None

    @called
    def schema(self) -> Any:
        """Spark's."""
        return self._schema

    @called
    def columns(self) -> Any:
        """Spark's."""
        return self.inside.columns(self._schema)

    @called
    def partitioning(self) -> Any:
        """Spark's: the partition columns."""
        make = self.inside.named("org.apache.spark.sql.connector.expressions.Expressions")
        kind = self.inside.named("org.apache.spark.sql.connector.expressions.Transform")
        keys = () if self._is_system else self._catalog.table(self._name).schema.partition_keys
        return self.inside.array(kind, [make.identity(key) for key in keys])

    @called
    def properties(self) -> Any:
        """Spark's: the options that the table shows, and who made it."""
        made = self.inside.jvm.java.util.HashMap()
        made.put("provider", FORMAT_NAME)
        if not self._is_system:
            schema = self._catalog.table(self._name).schema
            for key, value in without_secrets(schema.options).items():
                made.put(key, value)
            if schema.primary_keys:
                made.put("primary-key", ",".join(schema.primary_keys))
            if schema.comment:
                made.put("comment", schema.comment)
        return made

    @called
    def constraints(self) -> Any:
        """Spark's: none that it would check."""
        return self.inside.array(self.inside.of_catalog("constraints.Constraint"), [])

    @called
    def capabilities(self) -> Any:
        """Spark's."""
        kind = self.inside.of_catalog("TableCapability")
        names = _READS if self._is_system or self._state else (*_READS, *_WRITES)
        return self.inside.set_of([getattr(kind, name) for name in names])

    @called
    def newScanBuilder(self, options: Any) -> ScanBuilderProxy:
        """Spark's."""
        given = _given(options)
        schema = None if self._is_system else self._catalog.table(self._name).schema
        return ScanBuilderProxy(self._session, self._name, {**self.place, **given}, self._columns, schema)

    @called
    def newWriteBuilder(self, info: Any) -> WriteBuilderProxy:
        """Spark's."""
        keys = () if self._is_system else self._catalog.table(self._name).schema.partition_keys
        return WriteBuilderProxy(self.inside, info, self.place, keys)

    class Java:
        """What py4j looks for."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.catalog.SupportsRead",
            "org.apache.spark.sql.connector.catalog.SupportsWrite",
        )


def _given(options: Any) -> dict[str, str]:
    """The user's options of one read, without Spark's own for a version, which the catalog was asked by."""
    found = {str(key): str(value) for key, value in dict(options.asCaseSensitiveMap()).items()}
    own = {"versionasof", "timestampasof", *(key.lower() for key in TABLE_PLACE_KEYS if key in (_TABLE, _WAREHOUSE))}
    return {key: value for key, value in found.items() if key.lower() not in own}
