"""``spark.read.format("fluvial")``: a state of a table through Spark's Python data source interface.

What Spark pushes into a Python source stays with the relation and leaks into other queries on it, which gives wrong
answers (reports/spark.md, trap 1); so nothing is taken from Spark, and users choose by options, which belong to one
``load()``.

A plan is made when Spark plans the query and is kept by Spark for that frame; a new ``load()`` plans anew.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from engine.lineage.origins import SourceRead
from engine.lineage.stream_job import report_read
from engine.options.read_options import ReadOptions
from engine.read.batch_read import Piece, log_served, open_read, read_piece
from engine.types.spark_arrow import to_spark_batch
from filestore.table_view import TableView


class _Part(InputPartition):
    def __init__(self, piece: Piece | None, tells: SourceRead | None) -> None:
        super().__init__(None)
        self.piece = piece  # None: nothing of the table is wanted
        self.tells = tells  # for lineage; of the first part only, see `engine.lineage.frame_sources`


class SnapshotReader(DataSourceReader):
    """Plans on the driver's side, reads in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Find and plan the state that the options name; ``schema`` has the columns to return, in this order."""
        read = open_read(options.table.files, options.given)
        self._table: TableView = read.table
        self._names = schema.fieldNames()
        self._nullable = [field.nullable for field in schema]
        self._constants = read.constants
        self._plan = read.plan(filter=options.filter)
        self._job = options.job
        self._tells = SourceRead.of(read.table.store, read.snapshot)
        log_served(read)

    def partitions(self) -> list[InputPartition]:
        """One per piece of the plan, at least one."""
        pieces: Sequence[Piece | None] = self._plan.splits or [None]
        return [_Part(piece, self._tells if index == 0 else None) for index, piece in enumerate(pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one piece. A micro-batch that reads a table beside its streams tells lineage so."""
        assert isinstance(partition, _Part)
        if partition.piece is not None:
            for rows in read_piece(
                self._table,
                partition.piece,
                names=self._names,
                filter=self._plan.filter,
                constants=self._constants,
            ):
                yield self._as_asked(to_spark_batch(rows))
        if partition.tells is not None:
            report_read(self._table.store, partition.tells, self._job)

    def _as_asked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Spark refuses columns that may be null and are declared not to be, and the other way round."""
        fields = [field.with_nullable(may) for field, may in zip(batch.schema, self._nullable, strict=True)]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
