"""The rows of a micro-batch from its source, read and decoded in threads of this process, without Spark between.

Where a batch is what ``fluvial-kafka`` or a stream of Parquet files gives, as it is, Spark would turn each row from
columns into its own form and back, which takes more time than all else that is done with it. So the ranges, or the
files, that Spark planned are read here. The query's progress counts these rows as it counts those.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from engine.kafka.dead_letters import ChosenLetters
from engine.spark_internals.batch_plans import ParquetScan, SourceScan, batch_scan
from engine.spark_internals.session import JvmError
from engine.types.rows import UNAVAILABLE_COLUMN
from engine.write.driver.byte_budget import ByteBudget
from engine.write.driver.file_rows import read_files

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

SOURCE_NAME: Final = "fluvial-kafka"
_QUERY_ID: Final = "sql.streaming.queryId"
_SAME_IN_SPARK: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def scan_of(frame: DataFrame) -> SourceScan | ParquetScan | None:
    """The scan of a micro-batch whose rows are those of a known source, unmodified; None: Spark computes the batch.

    Args:
        frame: as ``foreachBatch`` was given it. One that is kept in memory for several readers is Spark's.
    """
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if query_id is None or frame.is_cached or not all(map(_is_same, frame.schema.fields)):
        return None
    try:
        scan = batch_scan(frame, query_id)
    except JvmError:  # another release of Spark: its plans have other members
        return None
    return None if isinstance(scan, SourceScan) and scan.source != SOURCE_NAME else scan


def _is_same(field: T.StructField) -> bool:
    """Whether Spark gives the values of a column as the source does."""
    given = field.dataType
    if isinstance(given, T.CharType | T.VarcharType):
        return False
    return isinstance(given, _SAME_IN_SPARK) or field.name == UNAVAILABLE_COLUMN


def read_rows(
    scan: SourceScan | ParquetScan, schema: T.StructType, *, threads: int, most_bytes: int, letters: str | None = None
) -> list[pa.RecordBatch] | None:
    """All rows in their order; None when they are more than allowed: then no bad record of them was sent away.

    Args:
        scan: of the batch.
        schema: of the batch.
        threads: that read and decode, each a partition or a file at a time.
        most_bytes: of all rows.
        letters: which bad records are sent away: value of a ``LettersPart``; None: all.

    Raises:
        NotAsTheyAreError: see ``read_files``.
        FluvialError: as the source's tasks do.
    """
    from pyspark.sql.datasource import CaseInsensitiveDict

    from engine.checkpoint.admission import without_checkpoint

    if isinstance(scan, ParquetScan):
        return read_files(scan, schema, threads=threads, most_bytes=most_bytes)
    from engine.kafka.options import KafkaSourceOptions
    from engine.kafka.readers import KafkaStreamReader

    reader = KafkaStreamReader(KafkaSourceOptions.parse(CaseInsensitiveDict(without_checkpoint(scan.options))), schema)
    budget = ByteBudget(most_bytes)
    parts = [pickle.loads(each) for each in scan.partitions]
    chosen = [reader.letters(letters, is_held=True) for _ in parts]

    def rows_of(partition: "InputPartition", bad: ChosenLetters) -> list[pa.RecordBatch]:
        return [*budget.within(reader.rows(partition, bad))]

    with ThreadPoolExecutor(max(1, min(threads, len(parts))), thread_name_prefix="fluvial-read") as pool:
        found = [*pool.map(rows_of, parts, chosen)]
    if budget.is_over:
        return None
    for each in chosen:
        reader.flush(each)
    batches = [pa.concat_batches(rows) for rows in found if rows]
    scan.count(sum(each.num_rows for each in batches))
    return batches
