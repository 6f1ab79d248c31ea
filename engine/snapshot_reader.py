"""``spark.read.format("fluvial")``: a snapshot of a table through Spark's Python data source interface.

What Spark pushes into a Python source stays with the relation and leaks into other queries on it, which gives wrong
answers (reports/spark.md, trap 1); so nothing is taken from Spark, and users choose by options, which belong to one
``load()``.

A plan is made when Spark plans the query and is kept by Spark for that frame; a new ``load()`` plans anew.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from engine.read_options import ReadOptions
from engine.spark_arrow import to_spark_batch
from filestore.data_split import DataSplit
from filestore.split_read import read_split


class _Split(InputPartition):
    def __init__(self, split: DataSplit) -> None:
        super().__init__(None)
        self.split = split


class SnapshotReader(DataSourceReader):
    """Plans on the driver's side, reads in tasks."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        """Plan the snapshot that the options name; ``names`` are the columns to return, in this order."""
        in_force = options.table.options
        read = options.table.read(snapshot_id=in_force.value("scan.snapshot-id"), tag=in_force.value("scan.tag-name"))
        self._store = read.table
        self._names = names
        self._plan = read.plan(filter=options.filter)

    def partitions(self) -> list[InputPartition]:
        """One per split."""
        return [_Split(split) for split in self._plan.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one split; an empty table has one partition, which Spark makes without asking."""
        if isinstance(partition, _Split):
            for rows in read_split(self._store, partition.split, columns=self._names, filter=self._plan.filter):
                yield to_spark_batch(rows)
