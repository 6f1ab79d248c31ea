"""A table as Spark's catalogs hold it. Reading and writing is done by tables of Spark's own that it makes."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.replacement import OldState, Replacement
from engine.request.option_check import is_client_property
from engine.request.place_options import SCHEMA_ID, TABLE_ID, TABLE_PLACE_KEYS
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS, rows_to_change
from engine.request.writer_options import WriterOptions
from engine.spark.catalog.planned.operation import RowLevelBuilder, RowLevelChange
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.scan import ScanBuilderProxy
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.data_source import FORMAT_NAME, FluvialDataSource
from engine.spark.read_options import ReadOptions
from engine.spark.write_options import DYNAMIC_KEY, PARTITION_KEY
from engine.spark_internals.catalog import SparkInside
from engine.table import Table
from engine.types.spark_types import described_schema
from engine.write.own_rows import own_snapshot_id
from filestore.options.catalog_options import is_catalog_option
from filestore.options.secrets import without_secrets
from lsm.errors import InvalidInputError

# ---- Writing a table for Spark's planner: by the writer of ``format("fluvial")``, in tasks


_ALWAYS: Final = "ALWAYS_TRUE"
_NEVER: Final = "ALWAYS_FALSE"
_SAME: Final = ("StringType", "ByteType", "ShortType", "IntegerType", "LongType", "BooleanType")


Seen = Callable[[Any], Mapping[str, str]]
"""Gets the query whose rows are written; returns options of the write. Raises: InvalidInputError, ConflictError."""


class WriteBuilderProxy(Proxy):
    """One write: Spark says what of the table is replaced."""

    def __init__(
        self, inside: SparkInside, info: Any, place: Mapping[str, str], partition_keys: Sequence[str], see: Seen
    ) -> None:
        """``info`` is what Spark says of the rows; without more an append. ``see`` is asked when the write begins."""
        super().__init__(inside)
        self._info = info
        self._options = dict(place)
        self._partition_keys = partition_keys
        self._see = see
        self._is_overwrite = False

    @called
    def truncate(self) -> "WriteBuilderProxy":
        """Spark's: all rows are replaced."""
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "false"
        return self

    @called
    def overwriteDynamicPartitions(self) -> "WriteBuilderProxy":
        """Spark's: the partitions of the rows are replaced."""
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "true"
        return self

    def canOverwrite(self, predicates: Any) -> bool:
        """Spark's: it would refuse others without a word about what can be done."""
        return True

    @called
    def overwrite(self, predicates: Any) -> "WriteBuilderProxy":
        """Spark's: all of the table, nothing of it, or one value of some partition columns."""
        if any(each.name() == _NEVER for each in predicates):
            return self
        parts = self._parts(predicates)
        if parts is None:
            raise InvalidInputError(
                "a frame replaces one partition or the table: "
                f"condition={' AND '.join(str(each.toString()) for each in predicates)} "
                "fix='INSERT INTO ... REPLACE WHERE condition SELECT ..., or overwritePartitions()'"
            )
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "false"
        if parts:
            self._options[PARTITION_KEY] = ",".join(parts)
        return self

    @called
    def build(self) -> "WriteProxy":
        """Implements ``build`` of Spark's interface."""
        return WriteProxy(self.inside, self._made, self._see)

    def _made(self, more: Mapping[str, str]) -> Any:
        """Spark's own write by the source in Python."""
        info = self.inside.write_info(self._info, {**self._options, **more})
        writer = self.inside.python_table(self.inside.struct(StructType()), FORMAT_NAME).newWriteBuilder(info)
        return (writer.truncate() if self._is_overwrite else writer).build()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.write.SupportsOverwriteV2",
            "org.apache.spark.sql.connector.write.SupportsDynamicOverwrite",
        )

    def _parts(self, predicates: Any) -> list[str] | None:
        """``column=value`` of each condition; None: there is another one."""
        found = []
        for each in predicates:
            if each.name() == _ALWAYS:
                continue
            children = list(each.children())
            if each.name() not in ("=", "<=>") or len(children) != 2 or not _is_literal(children):
                return None
            name, kind = ".".join(children[0].fieldNames()), str(children[1].dataType().toString()).partition("(")[0]
            if name not in self._partition_keys or kind not in _SAME:
                return None
            found.append(f"{name}={quote(str(children[1].value()))}")
        return found


class WriteProxy(Proxy):
    """One write that is planned: it begins when Spark asks for its batch, where the physical plan of its rows is known.

    Then it is seen whether the rows were computed from the table itself.
    """

    def __init__(self, inside: SparkInside, make: Callable[[Mapping[str, str]], Any], see: Seen) -> None:
        """``make`` makes Spark's own write, with more options."""
        super().__init__(inside)
        self._make = make
        self._see = see

    def description(self) -> str:
        """Implements ``description`` of Spark's interface."""
        return FORMAT_NAME

    @called
    def toBatch(self) -> Any:
        """Implements ``toBatch`` of Spark's interface."""
        return self._make(self._see(self.inside.running_query())).toBatch()

    @called
    def toStreaming(self) -> Any:
        """Implements ``toStreaming`` of Spark's interface."""
        return self._make({}).toStreaming()

    @called
    def supportedCustomMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomMetric"), [])

    @called
    def reportDriverMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomTaskMetric"), [])

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.write.Write",)


def _is_literal(children: Sequence[Any]) -> bool:
    kinds = [str(each.getClass().getSimpleName()) for each in children]
    return kinds == ["FieldReference", "LiteralValue"]


# ---- A table as Spark's catalogs hold it. Reading and writing is done by tables of Spark's own that it makes


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
        asked = {**self.place, **of_then, **given}
        asked = rows_to_change(asked) if self._is_changed else asked
        return ScanBuilderProxy(self._session, self._name, asked, self._columns, schema, opened)

    @called
    def newWriteBuilder(self, info: Any) -> WriteBuilderProxy:
        """Implements ``newWriteBuilder`` of Spark's interface."""
        _ = self.open_table
        return WriteBuilderProxy(self.inside, info, self.place, self._partition_keys, self._see)

    def _see(self, query: Any) -> Mapping[str, str]:
        """The rows are not written over what others have committed since they were read from this table."""
        read_id = None if self._table is None else own_snapshot_id(self._table.store, query)
        return {} if read_id is None else {WriterOptions.read_snapshot_id.key: str(read_id)}

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
        self._read: OldState | None = None  # of the table that is replaced

    def _see(self, query: Any) -> Mapping[str, str]:
        if self._replacement is None:
            return super()._see(query)
        old = self._catalog.table(self._replacement.name).store
        read_id = own_snapshot_id(old, query)
        self._read = None if read_id is None else OldState(table_id=old.table_id(), snapshot_id=read_id)
        return {}

    @called
    def newWriteBuilder(self, info: Any) -> WriteBuilderProxy:
        """Implements ``newWriteBuilder`` of Spark's interface."""
        builder = super().newWriteBuilder(info)
        return builder.truncate() if self._is_old else builder

    @called
    def commitStagedChanges(self) -> None:
        """Spark's: the rows are written."""
        if self._replacement is not None:
            self._replacement.finish(self._read)

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

        implements: Sequence[str] = (*TableProxy.Java.implements, "org.apache.spark.sql.connector.catalog.StagedTable")


def _given(found: Mapping[str, str]) -> dict[str, str]:
    """The user's options of one read, without Spark's own for a version, which the catalog was asked by."""
    own = {"versionasof", "timestampasof", *(key.lower() for key in TABLE_PLACE_KEYS if key in (_TABLE, _WAREHOUSE))}
    return {key: value for key, value in found.items() if key.lower() not in own}
