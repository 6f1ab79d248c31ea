"""Reads the rows of a micro-batch from Parquet files in threads of this process, without a Spark job.

For an unmodified stream of Parquet files, Spark would decode each row into its own form and encode it again for Arrow,
which takes longer than reading the files. So this process reads the files that Spark planned, if they have exactly the
columns of the stream. Spark reads files that need one of its rules (another type, a missing column, dates of an old
calendar), and files that cannot be read, for which it raises its own error.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from engine.spark_internals.batch_plans import ParquetScan
from engine.types.spark_types import spark_arrow_schema
from engine.write.driver.byte_budget import ByteBudget

_SPARK_VERSION: Final = b"org.apache.spark.version"
_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_CORRECTED_SINCE: Final = b"3"
_SAME_VALUES: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_BATCH_ROWS: Final = 1 << 16


class NotAsTheyAreError(Exception):
    """The rows of the files differ from those of the stream, or cannot be read: Spark reads the batch."""


def read_files(
    scan: ParquetScan, schema: T.StructType, *, threads: int, most_bytes: int
) -> list[pa.RecordBatch] | None:
    """All rows, in the order of the files and of their rows; None when they exceed ``most_bytes``.

    Args:
        scan: of the batch.
        schema: of the batch; scalar columns.
        threads: that read, each a file at a time.
        most_bytes: of all rows.

    Raises:
        NotAsTheyAreError: nothing is decided about the batch; Spark has to read it.
    """
    wanted, budget = spark_arrow_schema(schema), ByteBudget(most_bytes)

    def rows_of(path: str) -> list[pa.RecordBatch]:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            _check(file, wanted)
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            if not budget.has_room(sum(each.total_byte_size for each in groups)):  # before wide rows are decoded
                return []
            return [*budget.within(_rows(file, wanted))]

    try:
        with ThreadPoolExecutor(max(1, min(threads, len(scan.paths))), thread_name_prefix="fluvial-read") as pool:
            found = [*pool.map(rows_of, scan.paths)]
    except (pa.ArrowException, OSError) as error:
        raise NotAsTheyAreError from error
    if budget.is_over:
        return None
    batches = [batch for each in found for batch in each]
    scan.count(sum(each.num_rows for each in batches))
    return batches


def _rows(file: pq.ParquetFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(_BATCH_ROWS, columns=wanted.names):
        columns = [batch.column(field.name).cast(field.type) for field in wanted]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _check(file: pq.ParquetFile, wanted: pa.Schema) -> None:
    """Refuse a file of which Spark would read anything but its values."""
    notes = file.metadata.metadata or {}
    version = notes.get(_SPARK_VERSION, _CORRECTED_SINCE).split(b".")[0]
    if any(key in notes for key in _OLD_CALENDAR) or not version.isdigit() or int(version) < int(_CORRECTED_SINCE):
        raise NotAsTheyAreError("dates of an old calendar")
    given = file.schema_arrow
    names = [name.lower() for name in given.names]
    physical = {leaf.path: leaf.physical_type for leaf in map(file.schema.column, range(len(file.schema)))}
    for field in wanted:
        if field.name not in given.names or names.count(field.name.lower()) != 1:
            raise NotAsTheyAreError(f"column {field.name}")
        if not _is_same(given.field(field.name).type, physical.get(field.name), field.type):
            raise NotAsTheyAreError(f"type of {field.name}")


def _is_same(given: pa.DataType, physical: str | None, wanted: pa.DataType) -> bool:
    if physical == "INT96":  # as Spark itself writes moments, in UTC, and times without a zone
        return bool(pa.types.is_timestamp(wanted))
    return bool(_SAME_VALUES.get(given, given) == wanted)
