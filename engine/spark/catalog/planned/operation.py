"""MERGE, UPDATE and DELETE as Spark plans them: it reads rows, and hands over what is to be in their place.

Statements of SQL never get here, the parser takes them; ``DataFrame.mergeInto`` does, and so do the flows of AUTO CDC.
Spark's own word for a part that is replaced as a whole is a group. A group here is a row of a key; of a table without a
key it is the table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.read.frames import spark_opens
from engine.request.changed_rows import check_changes_rows
from engine.request.read_keys import NEWEST_ROWS
from engine.spark.catalog.planned.changed_scan import ChangedScanBuilder
from engine.spark.catalog.planned.replaced_rows import write_difference
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import AsSpark, CatalogSession
from engine.spark.writer.staged_rows import batch_directory, clear_staged
from engine.table import Table
from lsm.errors import InvalidInputError

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
            {**self._place, **state, **NEWEST_ROWS},
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

    def toBatch(self) -> "RowLevelChange":
        """Implements ``toBatch`` of Spark's interface."""
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
