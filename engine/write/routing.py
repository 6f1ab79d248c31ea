"""Which task writes a row: the bucket of its key, worked out where the row already is.

Spark's ``hash(binary)`` is murmur3 over little-endian words with seed 42, and its odd handling of a tail never
applies to a BinaryRow: its length is a multiple of 8. So the table's own bucket hash is computed inside the JVM,
from the row's bytes built with SQL functions. Types for which those bytes are awkward go through an Arrow function
instead.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from engine.types.quoting import quoted
from engine.types.rows import change_rows, row_buckets
from filestore.hashing.buckets import bucket_ids
from filestore.table_view import TableView
from filestore.types.data_types import DataField, DataType, arrow_type
from lsm.errors import InvalidInputError

_BYTES_1_OF_2: Final = 0x00FF00FF00FF00FF
_BYTES_2_OF_4: Final = 0x0000FFFF0000FFFF
_INLINE_BYTES: Final = 7
_SLOT_BYTES: Final = 8


def shuffle_by_bucket(
    frame: DataFrame, keys: Sequence[DataField], bucket_count: int, task_count: int, *, function: str = "default"
) -> DataFrame:
    """The frame with every row of one bucket in one task: bucket ``b`` is in task ``b % task_count`` (Spark 4.0: any).

    Rows of one key keep their order if they come from one input task.

    Args:
        frame: already in the table's types (``spark_types.aligned``).
        keys: the bucket key, in its order.
        bucket_count: > 0.
        task_count: > 0, at most ``bucket_count``.
        function: option ``bucket-function.type``.
    """
    return _in_tasks(frame, task_count, bucket_column(keys, bucket_count, function=function) % F.lit(task_count))


def shuffle_counted_rows(frame: DataFrame, table: TableView, task_count: int) -> DataFrame:
    """Shuffle a frame for a table that counts equal rows: the bucket depends on all values, so Arrow computes it.

    Args:
        frame: already in the table's types, perhaps with ``_row_kind``.
        table: the table.
        task_count: > 0, at most the number of buckets.
    """
    names = table.schema.column_names

    def tasks(*columns: pa.Array) -> pa.Array:
        rows, _ = change_rows(pa.RecordBatch.from_arrays(list(columns), names=list(names)), table)
        return pa.array(row_buckets(rows, table) % task_count, pa.int32())

    if task_count == 1:
        return _in_tasks(frame, 1, F.lit(0))
    return _in_tasks(frame, task_count, _computed(tasks, names))


def _computed(function: Callable[..., pa.Array], names: Sequence[str]) -> Column:
    """The numbers that a function of Arrow arrays gives for some columns. Raises: InvalidInputError: Spark 4.0."""
    if not hasattr(F, "arrow_udf"):
        raise InvalidInputError(
            f"buckets of these columns are computed by Spark 4.1 and later: columns={', '.join(names)} "
            f"spark={pyspark.__version__} fix='use Spark 4.1, or sink.writer=driver on a local master'"
        )
    column: Column = F.arrow_udf(function, IntegerType())(*[F.col(quoted(each)) for each in names])
    return column


def _in_tasks(frame: DataFrame, task_count: int, task: Column) -> DataFrame:
    """The rows of each task by its number; Spark 4.0 hashes the number, so that a task may have those of several."""
    if hasattr(type(frame), "repartitionById"):
        return frame.repartitionById(task_count, task)
    return frame.repartition(task_count, task)


def bucket_column(keys: Sequence[DataField], bucket_count: int, *, function: str = "default") -> Column:
    """The bucket of each row as an int column; rows with a null key get 0 and are refused by the writer."""
    text = _hash_expression(keys) if function == "default" else None
    if text is not None:
        return F.expr(f"coalesce(abs({text} % {bucket_count}), 0)")

    types = [field.type for field in keys]

    def buckets(*columns: pa.Array) -> pa.Array:
        # A time that the column cannot hold is refused by the writer, in whichever bucket.
        typed = [column.cast(arrow_type(each), safe=False) for column, each in zip(columns, types, strict=True)]
        return pa.array(bucket_ids(typed, types, bucket_count, function=function), pa.int32())

    return F.coalesce(_computed(buckets, [field.name for field in keys]), F.lit(0))


def _hash_expression(keys: Sequence[DataField]) -> str | None:
    """SQL text of the key hash, or None when a column's bytes cannot be built in SQL."""
    if any(field.type.nullable for field in keys):
        return None
    bitmap_bytes = (len(keys) + 63 + 8) // 64 * 8
    slots = [f"X'{'00' * bitmap_bytes}'"]
    tails: list[str] = []
    end = f"{bitmap_bytes + _SLOT_BYTES * len(keys)}L"
    for field in keys:
        column = quoted(field.name)
        whole = _fixed_slot(column, field.type)
        if whole is not None:
            slots.append(_little_endian(whole))
        elif field.type.root in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
            length = f"octet_length({column})"
            data = f"cast({column} as binary)"
            padded = f"cast(shiftright({length} + 7, 3) * 8 as int)"
            short = f"{length} <= {_INLINE_BYTES}"
            slots.append(
                f"case when {short} then concat(rpad({data}, 7, X'00'), unhex(hex({length} + 128)))"
                f" else {_little_endian(f'(shiftleft({end}, 32) | cast({length} as bigint))')} end"
            )
            tails.append(f"case when {short} then X'' else rpad({data}, {padded}, X'00') end")
            end = f"({end} + case when {short} then 0L else cast({padded} as bigint) end)"
        elif _is_wide_timestamp(field.type):
            micros = _epoch_micros(column, field.type)
            millis = f"(({micros} - pmod({micros}, 1000L)) div 1000L)"
            slots.append(_little_endian(f"(shiftleft({end}, 32) | (pmod({micros}, 1000L) * 1000L))"))
            tails.append(_little_endian(millis))
            end = f"({end} + 8L)"
        else:
            return None
    return f"hash(concat({', '.join(slots + tails)}))"


def _fixed_slot(column: str, data_type: DataType) -> str | None:
    """A bigint with the slot of a fixed-width value in its low bytes; None for other types."""
    match data_type.root:
        case "BOOLEAN":
            return f"cast({column} as bigint)"
        case "TINYINT":
            return f"(cast({column} as bigint) & 255L)"
        case "SMALLINT":
            return f"(cast({column} as bigint) & 65535L)"
        case "INT":
            return f"(cast({column} as bigint) & 4294967295L)"
        case "BIGINT":
            return column
        case "DATE":
            return f"(cast(unix_date({column}) as bigint) & 4294967295L)"
        case "TIMESTAMP" | "TIMESTAMP_LTZ" if (data_type.precision or 0) <= 3:
            micros = _epoch_micros(column, data_type)
            return f"(({micros} - pmod({micros}, 1000L)) div 1000L)"
        case _:
            return None


def _is_wide_timestamp(data_type: DataType) -> bool:
    return data_type.root in ("TIMESTAMP", "TIMESTAMP_LTZ") and 3 < (data_type.precision or 0) <= 6


def _epoch_micros(column: str, data_type: DataType) -> str:
    if data_type.root == "TIMESTAMP_LTZ":
        return f"unix_micros({column})"
    return f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {column})"


def _little_endian(whole: str) -> str:
    """Eight bytes of a bigint, lowest first: bytes are swapped in pairs, then in fours, then in halves."""
    pairs = f"(shiftleft({whole} & {_BYTES_1_OF_2}L, 8) | (shiftrightunsigned({whole}, 8) & {_BYTES_1_OF_2}L))"
    fours = f"(shiftleft({pairs} & {_BYTES_2_OF_4}L, 16) | (shiftrightunsigned({pairs}, 16) & {_BYTES_2_OF_4}L))"
    return f"unhex(lpad(hex(shiftleft({fours}, 32) | shiftrightunsigned({fours}, 32)), 16, '0'))"
