"""Reading a table for Spark's planner: by Spark's own Parquet scan where no row needs merging, else by the source."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from typing import Any, Final

from pyspark.sql.types import BooleanType, ByteType, DataType, IntegerType, LongType, ShortType, StringType, StructType

from engine.lineage.origins import SourceRead
from engine.read.batch_plan import BatchPlan
from engine.read.batch_read import BatchRead, log_served, open_request
from engine.read.frames import divided_plan, listed_here
from engine.request.read_keys import BATCH_KEYS
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.statistics import ScanStatistics
from engine.spark.data_source import FORMAT_NAME
from engine.spark.read_options import ReadOptions, spelled_options
from engine.spark_internals.frame_plans import note_scan
from engine.spark_internals.session import JvmError
from engine.table import Table
from filestore.predicate.parser import parse_filter
from filestore.schema.table_schema import TableSchema

FILTER: Final = "filter"
_FILTERED: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType)
"""Types whose values have the same text in Spark's conditions and in Fluvial's."""

_MOST_TABLES: Final = 16
_MOST_PATHS: Final = 1000


class FilteredBySpark(Proxy):
    """What gets conditions that Spark applies again, all of them."""

    @called
    def pushedPredicates(self) -> Any:
        """Spark's: none is Fluvial's alone."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.expressions.filter.Predicate"), [])

    def supportsIterativePushdown(self) -> bool:
        """Implements ``supportsIterativePushdown`` of Spark's interface."""
        return False


class ScanBuilderProxy(FilteredBySpark):
    """One read; Spark says which columns it needs, and which conditions it will apply."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        schema: TableSchema | None,
        opened: Table | None,
    ) -> None:
        """A scan of a table in a session, with the options of the read; a system table has no schema.

        ``opened``: the table if it has just been opened; None: it is opened when the scan is planned.
        """
        super().__init__(session.inside)
        self._session = session
        self._name = name
        self._options = dict(options)
        self._columns = columns
        self._wanted = columns
        self._schema = schema
        self._opened = opened

    @called
    def pruneColumns(self, needed: Any) -> None:
        """Spark's: at least one is read, to count rows by."""
        names = {*self.inside.names_of(needed)}
        fields = [field for field in self._columns.fields if field.name in names] or self._columns.fields[:1]
        self._wanted = StructType(fields)

    @called
    def pushPredicates(self, predicates: Any) -> Any:
        """Spark's: they leave files out; Spark applies all of them again."""
        types = {field.name: field.dataType for field in self._columns.fields}
        texts = [text for each in predicates if (text := self._text_of(each, types)) is not None]
        if texts and FILTER not in spelled_options(self._options) and self._schema is not None:
            self._options[FILTER] = " AND ".join(f"({text})" for text in texts)
        return predicates

    @called
    def build(self) -> "ScanProxy":
        """Implements ``build`` of Spark's interface."""
        is_system = self._schema is None
        return ScanProxy(
            self._session, self._name, self._options, self._wanted, self._columns, self._opened, is_system=is_system
        )

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns",
            "org.apache.spark.sql.connector.read.SupportsPushDownV2Filters",
        )

    def _text_of(self, predicate: Any, types: Mapping[str, DataType]) -> str | None:
        """A condition that Fluvial reads as Spark means it; None: only Spark applies it."""
        if self._schema is None:
            return None
        names = [list(each.fieldNames()) for each in predicate.references()]
        if not names or any(len(each) != 1 or not isinstance(types.get(each[0]), _FILTERED) for each in names):
            return None
        with suppress(Exception):  # no text, or none that Fluvial understands
            text = self.inside.text_of(predicate)
            if "\\" not in text:
                parse_filter(text, self._schema)
                return text
        return None


class ScanProxy(Proxy):
    """One read, as Spark's own scan of files, or of the source in Python."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        all_columns: StructType,
        opened: Table | None,
        *,
        is_system: bool,
    ) -> None:
        """The columns that are read, and those that there are; ``opened``: see ``ScanBuilderProxy``."""
        super().__init__(session.inside)
        self._session = session
        self._name = name
        self._options = options
        self._columns = columns
        self._all_columns = all_columns
        self._opened = opened
        self._is_system = is_system
        self._streams = False
        note_scan(self.hashCode(), self)

    @property
    def source_read(self) -> SourceRead | None:
        """The state that is read, or an older one; None: it is a stream or a system table, or is not known."""
        known = None if self._is_system or self._streams else self._planned
        return None if known is None else known[1].source_read

    @cached_property
    def _schema(self) -> Any:
        return self.inside.struct(self._columns)

    @cached_property
    def _paths(self) -> Sequence[str]:
        return () if self._is_system else self._plain_paths()

    @cached_property
    def _batch_scan(self) -> Any:
        if not self._paths:
            return self._python_scan
        key = (self._session, self._columns.json(), *self._paths)
        tables = self.inside.parquet_tables
        table = tables.pop(key, None)
        with nullcontext() if table is not None else listed_here(self._session.open_spark(), self._paths):
            if table is None:
                table = self.inside.parquet_table(self._session.jvm, self._name, self._schema, self._paths)
            scan = table.newScanBuilder(self.inside.no_options).build()
        if len(self._paths) <= _MOST_PATHS:
            tables[key] = table
            for oldest in list(tables)[:-_MOST_TABLES]:
                tables.pop(oldest, None)
        return scan

    def _asked(self, method: str) -> Any:
        """What Spark's own scan answers."""
        if self._is_of_files:
            return self.inside.called(self._batch_scan, method, "parquet scan")
        return self.inside.called(self._python_scan, method, "python scan")

    @property
    def _is_of_files(self) -> bool:
        return not self._streams and bool(self._paths)

    @cached_property
    def _python_scan(self) -> Any:
        table = self.inside.python_table(self._schema, FORMAT_NAME)
        return table.newScanBuilder(self.inside.options(self._options)).build()

    @cached_property
    def _planned(self) -> tuple[BatchRead, BatchPlan] | None:
        """What is read of a table; None: it has other columns than its own, which the source adds."""
        options = ReadOptions.parse(self._options, BATCH_KEYS, opened=self._opened)
        read = open_request(options.table, options.request())
        if not {*self._columns.fieldNames()} <= {*read.table.schema.column_names}:
            return None
        return read, read.plan(filter=options.filter)

    def _plain_paths(self) -> Sequence[str]:
        """The files, when Spark's scan of them gives exactly the rows; () when it does not."""
        if self._planned is None:
            return ()
        read, plan = self._planned
        if plan.has_changes:
            return ()
        divided = divided_plan(self._session.open_spark(), plan, self._columns.fieldNames())
        if divided.rest or divided.vectored:
            return ()
        log_served(read)
        return divided.plain

    # ---- what Spark calls

    @called
    def readSchema(self) -> Any:
        """Implements ``readSchema`` of Spark's interface."""
        return self._schema

    @called
    def description(self) -> str:
        """Spark's: which scan it is."""
        return self._description

    @called
    def toBatch(self) -> Any:
        """Implements ``toBatch`` of Spark's interface."""
        return self._batch_scan.toBatch()

    @cached_property
    def _statistics(self) -> ScanStatistics:
        known = None if self._is_system or self._streams else self._planned
        share = self._schema.defaultSize() / max(self.inside.struct(self._all_columns).defaultSize(), 1)
        plan = None if known is None else known[1]
        return ScanStatistics(self.inside, plan, self._columns.fieldNames(), share)

    @called
    def estimateStatistics(self) -> Any:
        """Spark's: of a batch read of a table; of a stream and of a system table nothing is known."""
        return self._statistics

    @called
    def estimateSizeInBytes(self) -> Any:
        """Spark's, from 4.3 on."""
        return self._statistics.sizeInBytes()

    def reflectsFullyPushedDownFilters(self) -> bool:
        """Spark's, from 4.3 on: conditions leave files out, of rows and columns they say nothing."""
        return False

    @called
    def toMicroBatchStream(self, checkpoint: str) -> Any:
        """Implements ``toMicroBatchStream`` of Spark's interface."""
        self._streams = True
        return self._python_scan.toMicroBatchStream(checkpoint)

    @called
    def toContinuousStream(self, checkpoint: str) -> Any:
        """Spark's: refuses."""
        return self._python_scan.toContinuousStream(checkpoint)

    @called
    def supportedCustomMetrics(self) -> Any:
        """Implements ``supportedCustomMetrics`` of Spark's interface."""
        return self._asked("supportedCustomMetrics")

    @called
    def reportDriverMetrics(self) -> Any:
        """Implements ``reportDriverMetrics`` of Spark's interface."""
        return self._asked("reportDriverMetrics")

    @called
    def columnarSupportMode(self) -> Any:
        """Spark's; it asks some times for a plan."""
        return self._columnar_mode

    @cached_property
    def _description(self) -> str:
        if self._is_system or self._streams or self._planned is None:
            return f"fluvial {self._name} {self._asked('description')}"
        condition = spelled_options(self._options).get(FILTER)
        words = f", files left out by: {condition}" if condition else ""
        return f"{self._planned[1].summary()}{words}, {self._asked('description')}"

    @cached_property
    def _columnar_mode(self) -> Any:
        if self._is_of_files:
            with suppress(JvmError, TypeError):
                return self.inside.columnar_mode(self._session.jvm, self._schema)
        return self._asked("columnarSupportMode")

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.SupportsReportStatistics",)
