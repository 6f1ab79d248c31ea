"""``format("fluvial")``: a table for ``spark.read``, ``readStream``, ``write`` and ``writeStream``.

Spark finds it by the installed module ``pyspark_fluvial``. This module only says who does what.
"""

from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from engine.read_options import BATCH_KEYS, STREAM_KEYS, ReadOptions
from engine.snapshot_reader import SnapshotReader
from engine.spark_types import spark_schema

FORMAT: Final = "fluvial"


class FluvialDataSource(DataSource):
    """Entry point for Spark; one instance per ``load()`` or ``save()``."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The chosen columns, in their order."""
        options = ReadOptions.parse(self.options, (*BATCH_KEYS, *STREAM_KEYS))
        return spark_schema([options.table.schema.field(name) for name in options.names])

    def reader(self, schema: StructType) -> SnapshotReader:
        """Reader of the columns that ``schema`` names: Spark passes on what the user gave to ``.schema(…)``."""
        return SnapshotReader(ReadOptions.parse(self.options, BATCH_KEYS), schema.fieldNames())
