"""A table as Spark's catalogs hold it. Reading and writing is done by tables of Spark's own that it makes."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.replacement import Replacement
from engine.request.option_check import is_client_property
from engine.request.place_options import SCHEMA_ID, TABLE_ID, TABLE_PLACE_KEYS
from engine.request.read_keys import BATCH_KEYS, NEWEST_ROWS, STREAM_KEYS
from engine.spark.catalog.planned.operation import RowLevelBuilder, RowLevelChange
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.scan import ScanBuilderProxy
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.write import WriteBuilderProxy
from engine.spark.data_source import FORMAT_NAME, FluvialDataSource
from engine.spark.read_options import ReadOptions
from engine.table import Table
from engine.types.spark_types import described_schema
from filestore.options.catalog_options import is_catalog_option
from filestore.options.secrets import without_secrets
from lsm.errors import InvalidInputError

_READS: Final = ("BATCH_READ", "MICRO_BATCH_READ")
_WRITES: Final = (
    "BATCH_WRITE",
    "STREAMING_WRITE",
    "TRUNCATE",
    "OVERWRITE_BY_FILTER",
    "OVERWRITE_DYNAMIC",
    "AUTOMATIC_SCHEMA_EVOLUTION",
)
_TABLE: Final = "table"
_WAREHOUSE: Final = "warehouse"


class TableProxy(Proxy):
    """A table, or a system table, in a session."""

    def __init__(
        self, session: CatalogSession, catalog: Catalog, name: str, state: Mapping[str, str], table: Table | None
    ) -> None:
        """Wrap a table that was opened for the statement; None: a system table.

        ``state``: options that say which state is read; () is the newest.
        """
        super().__init__(session.inside)
        self._session = session
        self._catalog = catalog
        self._name = name
        self._state = state
        self._table = table
        self._is_changed = False  # by the statement that it was opened for
        self._unread = table  # for the first scan; a frame that is computed later again sees the table of then

    @cached_property
    def place(self) -> dict[str, str]:
        """The options by which ``format("fluvial")`` finds the table."""
        if self._table is None:
            return {**self._named, **self._source.options}
        return {**self._named, TABLE_ID: self._table.store.table_id()}

    @property
    def _named(self) -> dict[str, str]:
        own = {key: value for key, value in self._catalog.options.items() if is_catalog_option(key)}
        return {**own, **self._login, _WAREHOUSE: self._catalog.warehouse, _TABLE: self._name, **self._state}

    @cached_property
    def _source(self) -> FluvialDataSource:
        """Of a system table; that it has given its columns leaves the id of the table in its options."""
        source = FluvialDataSource(self._named)
        source.schema()
        return source

    @property
    def _login(self) -> dict[str, str]:
        """How the catalog reaches the brokers of the table's log."""
        if self._table is None or self._table.options.log_system == "none":
            return {}
        options = self._catalog.options.items()
        return {key: value for key, value in options if is_client_property(key)}

    @cached_property
    def _columns(self) -> StructType:
        if self._table is None:
            return self._source.schema()
        if self._table.closed is not None:
            return described_schema(self._table.schema.fields)
        return ReadOptions.parse(self.place, (*BATCH_KEYS, *STREAM_KEYS), opened=self._table).spark_schema()

    @cached_property
    def _schema(self) -> Any:
        return self.inside.struct(self._columns)

    @property
    def table(self) -> Table | None:
        """As it was opened, maybe to be described; None: a system table."""
        return self._table

    @property
    def open_table(self) -> Table | None:
        """The table, opened for its rows. Raises: InvalidInputError: it cannot be read; the message says why."""
        if self._table is not None and self._table.closed is not None:
            raise InvalidInputError(self._table.closed)
        return self._table

    # ---- what Spark calls

    def name(self) -> str:
        """Implements ``name`` of Spark's interface."""
        return self._name

    def id(self) -> str | None:
        """Spark's: it has none."""
        return None

    def version(self) -> str | None:
        """Spark's: states are chosen when a scan is planned."""
        return None

    @called
    def schema(self) -> Any:
        """Implements ``schema`` of Spark's interface."""
        return self._schema

    @called
    def columns(self) -> Any:
        """Implements ``columns`` of Spark's interface."""
        return self.inside.columns(self._schema)

    @called
    def partitioning(self) -> Any:
        """Spark's: the partition columns."""
        make = self.inside.named("org.apache.spark.sql.connector.expressions.Expressions")
        kind = self.inside.named("org.apache.spark.sql.connector.expressions.Transform")
        return self.inside.array(kind, [make.identity(key) for key in self._partition_keys])

    @called
    def properties(self) -> Any:
        """Spark's: the options that the table shows, and who made it."""
        made = {"provider": FORMAT_NAME}
        if self._table is not None:
            schema = self._table.schema
            made |= without_secrets(schema.options)
            if schema.primary_keys:
                made["primary-key"] = ",".join(schema.primary_keys)
            if schema.comment:
                made["comment"] = schema.comment
        return self.inside.text_map(made)

    @called
    def constraints(self) -> Any:
        """Spark's: none that it would check."""
        return self.inside.array(self.inside.of_catalog("constraints.Constraint"), [])

    @called
    def capabilities(self) -> Any:
        """Implements ``capabilities`` of Spark's interface."""
        is_read_only = self._table is None or bool(self._state)
        return self.inside.capabilities(_READS if is_read_only else (*_READS, *_WRITES))

    @called
    def newScanBuilder(self, options: Any) -> ScanBuilderProxy:
        """Implements ``newScanBuilder`` of Spark's interface."""
        given = _given(self.inside.texts_by_key(options.asCaseSensitiveMap()))
        schema = None if (table := self.open_table) is None else table.schema
        opened, self._unread = self._unread, None
        of_then = {} if schema is None else {SCHEMA_ID: str(schema.id)}
        asked = {**self.place, **of_then, **given, **(NEWEST_ROWS if self._is_changed else {})}
        return ScanBuilderProxy(self._session, self._name, asked, self._columns, schema, opened)

    @called
    def newWriteBuilder(self, info: Any) -> WriteBuilderProxy:
        """Implements ``newWriteBuilder`` of Spark's interface."""
        _ = self.open_table
        return WriteBuilderProxy(self.inside, info, self.place, self._partition_keys)

    @called
    def newRowLevelOperationBuilder(self, info: Any) -> RowLevelBuilder:
        """Spark's: it plans MERGE of frames itself."""
        if (table := self.open_table) is None or self._state:
            raise InvalidInputError(f"only the present of a table can be changed: table={self._name}")
        self._is_changed = True  # Spark looks in it for the rows that the statement concerns
        return RowLevelBuilder(RowLevelChange(self._session, table, self.place, self._columns, info))

    @property
    def _partition_keys(self) -> Sequence[str]:
        return () if self._table is None else self._table.schema.partition_keys

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.catalog.SupportsRead",
            "org.apache.spark.sql.connector.catalog.SupportsWrite",
            "org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations",
        )


class StagedTableProxy(TableProxy):
    """A new table that a statement fills; the statement's end makes it visible under its name."""

    def __init__(
        self,
        session: CatalogSession,
        catalog: Catalog,
        name: str,
        table: Table,
        replacement: Replacement | None,
        *,
        is_old: bool = False,
    ) -> None:
        """Stage a table at its own path, or beside the one that it replaces; ``is_old``: its rows are replaced."""
        super().__init__(session, catalog, name, {}, table)
        self._replacement = replacement
        self._is_old = is_old

    @called
    def newWriteBuilder(self, info: Any) -> WriteBuilderProxy:
        """Implements ``newWriteBuilder`` of Spark's interface."""
        builder = super().newWriteBuilder(info)
        return builder.truncate() if self._is_old else builder

    @called
    def commitStagedChanges(self) -> None:
        """Spark's: the rows are written."""
        if self._replacement is not None:
            self._replacement.finish()

    @called
    def abortStagedChanges(self) -> None:
        """Spark's: they are not."""
        if not self._is_old:
            self._catalog.drop_table(self._name, if_exists=True)

    @called
    def reportDriverMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomTaskMetric"), [])

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            *TableProxy.Java.implements,
            "org.apache.spark.sql.connector.catalog.StagedTable",
        )


def _given(found: Mapping[str, str]) -> dict[str, str]:
    """The user's options of one read, without Spark's own for a version, which the catalog was asked by."""
    own = {"versionasof", "timestampasof", *(key.lower() for key in TABLE_PLACE_KEYS if key in (_TABLE, _WAREHOUSE))}
    return {key: value for key, value in found.items() if key.lower() not in own}
