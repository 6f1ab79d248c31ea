"""``format("fluvial")``: a table for ``spark.read``, ``readStream``, ``write`` and ``writeStream``.

Spark finds it by the installed module ``pyspark_fluvial``. This module only names the parts, which are imported when
they are used: every session imports it, and the process in which Spark looks for sources.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from engine.spark.writer.staged_writer import StagedBatchWriter, StagedStreamWriter
    from engine.stream.reader import HybridStreamReader

FORMAT_NAME: Final = "fluvial"


class FluvialDataSource(DataSource):
    """Entry point for Spark; one instance per ``load()`` or ``save()``."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return FORMAT_NAME

    def schema(self) -> StructType:
        """The chosen columns, in their order, then the row kind and metadata if these are asked for."""
        from engine.checkpoint.admission import without_checkpoint
        from engine.request.place_options import TABLE_ID
        from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
        from engine.spark.read_options import ReadOptions
        from engine.spark.system_reader import names_system_table, system_schema

        if names_system_table(self.options):
            schema, table_id = system_schema(self.options)
        else:
            read = ReadOptions.parse(without_checkpoint(self.options), (*BATCH_KEYS, *STREAM_KEYS))
            schema, table_id = read.spark_schema(), read.table.store.table_id()
        if table_id and TABLE_ID not in self.options:
            self.options[TABLE_ID] = table_id  # Spark keeps this object with the frame
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reader of the columns that ``schema`` names: Spark passes on what the user gave to ``.schema(…)``."""
        from engine.request.read_keys import BATCH_KEYS, CHANGES_OPTION
        from engine.spark.read_options import ReadOptions
        from engine.spark.snapshot_reader import SnapshotReader
        from engine.spark.system_reader import SystemReader, names_system_table

        if CHANGES_OPTION in self.options:
            from engine.spark.changes_reader import ChangesReader

            return ChangesReader(self.options, schema)
        if names_system_table(self.options):
            return SystemReader(self.options, schema)
        return SnapshotReader(ReadOptions.parse(self.options, BATCH_KEYS), schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":
        """Reader of a snapshot and then of what follows."""
        from engine.checkpoint.admission import fitting_reader, without_checkpoint

        return fitting_reader(_stream_reader(without_checkpoint(self.options), schema), self.options)

    def writer(self, schema: StructType, overwrite: bool) -> "StagedBatchWriter":
        """Writer of a frame with these columns, in mode append or overwrite."""
        from engine.request.writer_options import BATCH_WRITE_KEYS
        from engine.spark.write_options import WriteOptions
        from engine.spark.writer.staged_writer import StagedBatchWriter

        return StagedBatchWriter(WriteOptions.parse(self.options, BATCH_WRITE_KEYS), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StagedStreamWriter":
        """Writer of one micro-batch: Spark asks for one in the planner and again in the committing process."""
        from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions
        from engine.spark.writer.staged_writer import StagedStreamWriter

        return StagedStreamWriter(WriteOptions.parse(self.options, STREAM_WRITE_KEYS), schema, overwrite)


def _stream_reader(options: Mapping[str, str], schema: StructType) -> "HybridStreamReader":
    from engine.request.read_keys import CHANGES_OPTION, STREAM_KEYS
    from engine.spark.read_options import ReadOptions, stream_options
    from engine.spark.system_reader import ChangeStreamReader, names_system_table
    from engine.stream.reader import HybridStreamReader

    if CHANGES_OPTION in options:
        from engine.spark.changes_reader import ChangesStreamReader

        return ChangesStreamReader(options, schema)
    if names_system_table(options):
        return ChangeStreamReader(options, schema)
    return HybridStreamReader(stream_options(ReadOptions.parse(options, STREAM_KEYS), schema))
