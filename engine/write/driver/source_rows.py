"""The rows of a micro-batch from Kafka, read and decoded in threads of this process, without Spark between.

Where a batch is what ``fluvial-kafka`` gives, as it is, Spark would turn each row from Arrow into its own form and
back, which takes more time than all else that is done with it. So the ranges that Spark planned are read here, by the
code that its tasks run. The query's progress counts these rows as it counts those.
"""

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from engine.runtime.spark_internals import SourceScan, source_scan
from engine.types.rows import UNAVAILABLE_COLUMN

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


def scan_of(frame: DataFrame) -> SourceScan | None:
    """What a micro-batch is read from, if it is the rows of ``fluvial-kafka`` as they are; None: Spark computes it.

    Args:
        frame: as ``foreachBatch`` was given it. One that is kept in memory for several readers is Spark's.
    """
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if query_id is None or frame.is_cached or not all(map(_is_same, frame.schema.fields)):
        return None
    try:
        scan = source_scan(frame, query_id)
    except Py4JError:  # another release of Spark: its plans have other members
        return None
    return scan if scan is not None and scan.source == SOURCE_NAME else None


def _is_same(field: T.StructField) -> bool:
    """Whether Spark gives the values of a column as the source does."""
    given = field.dataType
    if isinstance(given, T.CharType | T.VarcharType):
        return False
    return isinstance(given, _SAME_IN_SPARK) or field.name == UNAVAILABLE_COLUMN


def read_rows(scan: SourceScan, schema: T.StructType, *, threads: int, most_bytes: int) -> list[pa.RecordBatch] | None:
    """All rows, a batch for each partition that has some, in their order; None when they are more than allowed.

    Args:
        scan: of the batch.
        schema: of the batch.
        threads: that read and decode, each a partition at a time.
        most_bytes: of all rows.

    Raises:
        FluvialError: as the source's tasks do.
    """
    from engine.kafka.options import KafkaSourceOptions
    from engine.kafka.readers import KafkaStreamReader

    reader = KafkaStreamReader(KafkaSourceOptions.parse(CaseInsensitiveDict(dict(scan.options))), schema)
    budget = _Budget(most_bytes)

    def rows_of(partition: InputPartition) -> list[pa.RecordBatch]:
        return [*budget.within(reader.read(partition))]

    parts = [pickle.loads(each) for each in scan.partitions]
    with ThreadPoolExecutor(max(1, min(threads, len(parts))), thread_name_prefix="fluvial-read") as pool:
        found = [*pool.map(rows_of, parts)]
    if budget.is_over:
        return None
    batches = [pa.concat_batches(each) for each in found if each]
    scan.count(sum(each.num_rows for each in batches))
    return batches


class _Budget:
    """Bytes that several threads may hold together."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._lock = threading.Lock()
        self.is_over = False

    def within(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, until those of all threads are too large."""
        for batch in batches:
            with self._lock:
                self._left -= batch.nbytes
                self.is_over |= self._left < 0
            if self.is_over:
                return
            yield batch
