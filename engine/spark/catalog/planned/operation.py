"""MERGE, UPDATE and DELETE as Spark plans them: it reads rows, and hands over what is to be in their place.

Statements of SQL never get here, the parser takes them; ``DataFrame.mergeInto`` does, and so do the flows of AUTO CDC.
Spark's own word for a part that is replaced as a whole is a group. A group here is a row of a key; of a table without a
key it is the table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.read.frames import spark_opens
from engine.request.changed_rows import check_changes_rows
from engine.request.read_keys import rows_to_change
from engine.spark.catalog.planned.replaced_rows import write_difference
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.scan import FILTER, FilteredBySpark, ScanBuilderProxy, ScanProxy
from engine.spark.catalog.session_state import AsSpark, CatalogSession
from engine.spark.writer.staged_rows import batch_directory, clear_staged
from engine.table import Table
from engine.write.own_rows import oldest, own_snapshot_id
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

# ---- The rows of a table that Spark reads to change them: all, or those of the keys that a statement matches


_MOST_TEXT: Final = 4 << 20  # of a condition that names keys; where there are more, all rows are read

Note = Callable[[str], None]
"""Gets the condition of the rows that are read, when there is one."""


class ChangedScanBuilder(ScanBuilderProxy):
    """One read. Conditions of the statement are left to Spark: a row that is not read is not replaced."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        schema: TableSchema,
        note: Note,
    ) -> None:
        """See ``ScanBuilderProxy``."""
        super().__init__(session, name, options, columns, schema, None)
        self._keys = schema.primary_keys
        self._note = note

    @called
    def pushPredicates(self, predicates: Any) -> Any:
        """Implements ``pushPredicates`` of Spark's interface."""
        return predicates

    @called
    def build(self) -> "ChangedScan":
        """Implements ``build`` of Spark's interface."""
        return ChangedScan(
            self._session,
            self._name,
            self._options,
            self._columns,
            keys=self._keys,
            text_of=self._text,
            note=self._note,
        )

    def _text(self, predicate: Any) -> str | None:
        return self._text_of(predicate, {field.name: field.dataType for field in self._columns.fields})


class ChangedScan(ScanProxy, FilteredBySpark):
    """One read by the source in Python, which leaves out exactly the rows that a condition leaves out.

    Spark finds the keys that match when the statement runs, and says them by ``filter``.
    """

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        options: Mapping[str, str],
        columns: StructType,
        *,
        keys: Sequence[str],
        text_of: Callable[[Any], str | None],
        note: Note,
    ) -> None:
        """Of a table with this key; ``text_of`` gives a condition as Fluvial reads it."""
        super().__init__(session, name, options, columns, columns, None, is_system=False)
        self._keys = keys
        self._text_of = text_of
        self._note = note

    def _plain_paths(self) -> Sequence[str]:
        return ()

    @called
    def filterAttributes(self) -> Any:
        """Spark's: the key."""
        return self.references(self._keys)

    @called
    def filter(self, predicates: Any) -> None:
        """Spark's: values of each column of the key, of all rows that the statement matches."""
        texts = [text for each in predicates if (text := self._condition(each)) is not None]
        condition = " AND ".join(f"({text})" for text in texts)
        if texts and len(condition) <= _MOST_TEXT:
            self._options = {**self._options, FILTER: condition}
            self._note(condition)
            for made in ("_python_scan", "_batch_scan"):
                self.__dict__.pop(made, None)

    def _condition(self, predicate: Any) -> str | None:
        if str(predicate.name()) == "IN" and len(predicate.children()) == 1:
            return f"{predicate.children()[0].toString()} IS NULL"  # no row matches, and no key is null
        return self._text_of(predicate)

    @called
    def toBatch(self) -> "_Batch":
        """Spark's: it asks before it says which keys match."""
        return _Batch(self)

    def of_now(self) -> Any:
        """Spark's own batch of the source, with the condition that is known."""
        return self._python_scan.toBatch()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            *ScanProxy.Java.implements,
            "org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering",
        )


class _Batch(Proxy):
    def __init__(self, scan: ChangedScan) -> None:
        super().__init__(scan.inside)
        self._scan = scan

    @called
    def planInputPartitions(self) -> Any:
        """Implements ``planInputPartitions`` of Spark's interface."""
        return self._scan.of_now().planInputPartitions()

    @called
    def createReaderFactory(self) -> Any:
        """Implements ``createReaderFactory`` of Spark's interface."""
        return self._scan.of_now().createReaderFactory()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.Batch",)


# ---- MERGE, UPDATE and DELETE as Spark plans them: it reads rows, and hands over what is to be in their place


_SNAPSHOT: Final = "scan.snapshot-id"


class RowLevelBuilder(Proxy):
    """Makes the operation of a statement."""

    def __init__(self, operation: "RowLevelChange") -> None:
        """There is nothing that it would be asked before it is made."""
        super().__init__(operation.inside)
        self._operation = operation

    @called
    def build(self) -> "RowLevelChange":
        """Implements ``build`` of Spark's interface."""
        return self._operation

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.write.RowLevelOperationBuilder",)


class RowLevelChange(Proxy):
    """One statement on one table, from planning to its commit: Spark's operation, its write, and the batch of that."""

    def __init__(
        self, session: CatalogSession, table: Table, place: Mapping[str, str], columns: StructType, info: Any
    ) -> None:
        """An operation on the table's newest snapshot.

        Args:
            session: that plans.
            table: opened for the statement.
            place: options by which ``format("fluvial")`` finds it.
            columns: of the table.
            info: Spark's, of the statement.

        Raises:
            InvalidInputError: the table does not support it.
        """
        super().__init__(session.inside)
        self._session = session
        self._table = table
        self._place = dict(place)
        self._columns = columns
        self._command = info.command()
        self._condition: str | None = None
        self._info: Any = None
        self._staged: Any = None  # Spark's batch of the staged rows
        self._user = table.store.new_commit_user()
        root = table.store.paths.root
        if not spark_opens(session.open_spark(), root):
            raise InvalidInputError(
                f"Spark itself stages the rows of this statement, and has no file system for the table: place={root} "
                "fix='set spark.hadoop.fs.<scheme>.impl, or use MERGE INTO of spark.sql'"
            )
        if table.schema.primary_keys:
            command = str(self._command.toString())  # a MERGE does not say whether it deletes: its rows do
            check_changes_rows(table.files, command, deletes=command == "DELETE")
        snapshot = table.latest_snapshot()
        self._read_id = 0 if snapshot is None else snapshot.id
        # as of a snapshot rows lack a column that was added behind it; the commit asks for the snapshot anyway
        self._is_pinned = snapshot is not None and snapshot.schema_id == table.schema.id

    # ---- the operation

    def description(self) -> str:
        """Implements ``description`` of Spark's interface."""
        return f"fluvial {self._table.name}"

    def command(self) -> Any:
        """Implements ``command`` of Spark's interface."""
        return self._command

    @called
    def requiredMetadataAttributes(self) -> Any:
        """Spark's: none."""
        return self.references([])

    @called
    def newScanBuilder(self, options: Any) -> ChangedScanBuilder:
        """Implements ``newScanBuilder`` of Spark's interface."""
        state = {_SNAPSHOT: str(self._read_id)} if self._is_pinned else {}
        return ChangedScanBuilder(
            self._session,
            self._table.name,
            rows_to_change({**self._place, **state}),
            self._columns,
            self._table.schema,
            self._note,
        )

    @called
    def newWriteBuilder(self, info: Any) -> "RowLevelChange":
        """Spark's: the rows that are to be there."""
        self._info = self.inside.write_info(info, {})
        return self

    # ---- the write

    @called
    def build(self) -> "RowLevelChange":
        """Implements ``build`` of Spark's interface."""
        return self

    @called
    def toBatch(self) -> "RowLevelChange":
        """Spark's: the physical plan of the rows is known now, and what they are computed from."""
        read_id = own_snapshot_id(self._table.store, self.inside.running_query())
        self._read_id = oldest(self._read_id, read_id) or 0
        return self

    @called
    def supportedCustomMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomMetric"), [])

    @called
    def reportDriverMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomTaskMetric"), [])

    @called
    def createBatchWriterFactory(self, physical: Any) -> Any:
        """Spark's: tasks stage the rows by its own writer of Parquet; one of Python's would drop them."""
        schema = self._info.schema()
        table = self.inside.parquet_table(self._session.jvm, self._table.name, schema, [self._directory])
        builder = table.newWriteBuilder(self._info)
        self._staged = self.inside.called(builder, "build", "builder of Parquet files").toBatch()
        return self._staged.createBatchWriterFactory(physical)

    def useCommitCoordinator(self) -> bool:
        """Spark's: files of a task have their own."""
        return False

    def onDataWriterCommit(self, message: Any) -> None:
        """Implements ``onDataWriterCommit`` of Spark's interface."""

    @called
    def commit(self, messages: Any, *summary: Any) -> None:
        """Spark's: write what differs from what was read."""
        try:
            self._staged.commit(messages)
            with AsSpark():
                spark = self._session.open_spark()
                new = spark.read.schema(self._columns).parquet(self._directory)
                write_difference(spark, self._table, self._read_id, self._condition, new)
        finally:
            clear_staged(self._table.store, self._user)

    @called
    def abort(self, messages: Any) -> None:
        """Spark's: delete what was staged."""
        if self._staged is not None:
            self._staged.abort(messages)
        clear_staged(self._table.store, self._user)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.write.RowLevelOperation",
            "org.apache.spark.sql.connector.write.WriteBuilder",
            "org.apache.spark.sql.connector.write.Write",
            "org.apache.spark.sql.connector.write.BatchWrite",
        )

    @property
    def _directory(self) -> str:
        """Directory of the staged rows."""
        return f"{self._table.store.paths.root}/{batch_directory(self._user, 0)}"

    def _note(self, condition: str) -> None:
        self._condition = condition
