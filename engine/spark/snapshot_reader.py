"""``spark.read.format("fluvial")``: a state of a table through Spark's Python data source interface.

What Spark pushes into a Python source stays with the relation and leaks into other queries on it, which gives wrong
answers; so nothing is taken from Spark, and users choose by options, which belong to one ``load()``.

A plan is made when Spark plans the query and is kept by Spark for that frame; a new ``load()`` plans again.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from engine.lineage.origins import SourceRead
from engine.lineage.stream_job import report_read
from engine.read.batch_read import log_served, open_request
from engine.read.pieces import Piece
from engine.spark.read_options import ReadOptions
from engine.types.spark_arrow import to_spark_batch


class _Part(InputPartition):
    def __init__(self, piece: Piece | None, source_read: SourceRead | None) -> None:
        super().__init__(None)
        self.piece = piece  # None: nothing of the table is wanted
        self.source_read = source_read  # for lineage; of the first part only, see `engine.lineage.frame_sources`


class SnapshotReader(DataSourceReader):
    """Plans on the driver's side, reads in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Find and plan the state that the options name; ``schema`` has the columns to return, in this order."""
        read = open_request(options.table, options.request())
        read.table.schema.fields_of(options.columns)
        plan = read.plan(filter=options.filter)
        self._read = plan.reader(schema.fieldNames())
        self._nullable = [field.nullable for field in schema]
        self._job = options.job
        source_read = plan.source_read
        pieces: Sequence[Piece | None] = plan.pieces or [None]
        self._parts = [_Part(piece, None if index else source_read) for index, piece in enumerate(pieces)]
        log_served(read)

    def __getstate__(self) -> dict[str, object]:
        """Tasks get their own part from Spark."""
        return self.__dict__ | {"_parts": []}

    def partitions(self) -> Sequence[InputPartition]:
        """One per piece of the plan, at least one."""
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one piece. A micro-batch that reads a table beside its streams reports it to lineage."""
        assert isinstance(partition, _Part)
        if partition.piece is not None:
            for rows in self._read(partition.piece):
                yield as_declared(to_spark_batch(rows), self._nullable)
        if partition.source_read is not None:
            read = partition.source_read
            report_read(self._read.table.store, read, self._job, start=read)


def as_declared(batch: pa.RecordBatch, nullable: Sequence[bool]) -> pa.RecordBatch:
    """The batch with the nullability that Spark was given: it refuses any other."""
    fields = [field.with_nullable(may) for field, may in zip(batch.schema, nullable, strict=True)]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
