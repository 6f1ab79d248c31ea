"""``format("fluvial")``: a table for ``spark.read``, ``readStream``, ``write`` and ``writeStream``.

Spark finds it by the installed module ``pyspark_fluvial``. This module only says who does what.
"""

from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from engine.read_options import BATCH_KEYS, STREAM_KEYS, ReadOptions
from engine.snapshot_reader import SnapshotReader
from engine.stream.options import StreamOptions
from engine.stream.reader import HybridStreamReader

FORMAT: Final = "fluvial"


class FluvialDataSource(DataSource):
    """Entry point for Spark; one instance per ``load()`` or ``save()``."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The chosen columns, in their order, then the row kind and metadata if these are asked for."""
        return ReadOptions.parse(self.options, (*BATCH_KEYS, *STREAM_KEYS)).spark_schema

    def reader(self, schema: StructType) -> SnapshotReader:
        """Reader of the columns that ``schema`` names: Spark passes on what the user gave to ``.schema(…)``."""
        return SnapshotReader(ReadOptions.parse(self.options, BATCH_KEYS), schema.fieldNames())

    def streamReader(self, schema: StructType) -> HybridStreamReader:
        """Reader of a snapshot and then of what follows."""
        return HybridStreamReader(StreamOptions.of(ReadOptions.parse(self.options, STREAM_KEYS), schema))
