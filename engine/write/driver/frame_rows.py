"""The rows of a Spark frame in this process as Arrow batches, if they are few enough: neither heap nor process grows.

Spark gives a process the rows of a task as one result, whatever its size. So the frame is limited in the JVM: its job
fails at the first row of a partition that does not fit into a share of the heap. Where Spark knows that the files of a
batch are small, there is no limit: that would only cost planning and generated code.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import IO, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from engine.runtime.spark_messages import is_result_too_large, raised_by_expression
from engine.spark_internals.session import JvmError, arrow_results, planned_bytes
from engine.types.quoting import quoted

IS_OVER: Final = "fluvial: a partition is too large for the driver"
"""In the error of a job: a row did not fit."""
_FIXED_BYTES: Final = 16  # of a value at most, but for text, binary and what is nested
_PLACE_BITS: Final = 33  # of a row's number within its partition, see monotonically_increasing_id
_MOST_DENSE: Final = 16  # bytes of rows for a byte of files; the heap has room for three times as many
_INT: Final = struct.Struct(">i")


def collect_rows(frame: DataFrame, *, most_bytes: int, most_partition_bytes: int) -> list[pa.RecordBatch] | None:
    """All rows in the order of the frame; None when they are more than allowed: then its job was cancelled.

    Args:
        frame: to be computed, once.
        most_bytes: of all rows, as Arrow holds them.
        most_partition_bytes: of the rows of one partition, about.

    Raises:
        PySparkException: the frame cannot be computed.
    """
    context = frame.sparkSession.sparkContext
    tag = f"fluvial-{uuid4()}"
    may_be_large = planned_bytes(frame) * _MOST_DENSE > most_partition_bytes
    asked = limited_frame(frame, most_partition_bytes) if may_be_large else frame
    context.addJobTag(tag)
    is_large = False
    try:
        with arrow_results(asked) as stream:
            found = _within(stream, most_bytes)
            if found is None:
                is_large = True
                context.cancelJobsWithTag(tag)
            else:
                return found
    except (PySparkException, JvmError) as error:
        if not is_large and raised_by_expression(error) != IS_OVER and not is_result_too_large(error):
            raise
    finally:
        context.removeJobTag(tag)
    return None


def limited_frame(frame: DataFrame, most_bytes: int) -> DataFrame:
    """The frame, of which the job fails with `IS_OVER` at the first row of a partition that does not fit.

    A row fits when its number in the partition times its own width is below the limit. So rows of one width take that
    many bytes, and others a small multiple of it: the n-th row at most an n-th.
    """
    fields = frame.schema.fields
    fixed = _FIXED_BYTES * len(fields)
    sizes = [f"coalesce(octet_length({_sized(field)}), 0)" for field in fields if _is_wide(field.dataType)]
    place = f"(monotonically_increasing_id() & {(1 << _PLACE_BITS) - 1}L)"
    is_over = f"{place} * ({' + '.join([f'{fixed}L', *sizes])}) >= {most_bytes}L"
    return frame.where(f"if({is_over}, raise_error('{IS_OVER}'), true)")


def _is_wide(given: T.DataType) -> bool:
    return isinstance(given, T.StringType | T.BinaryType | T.ArrayType | T.MapType | T.StructType)


def _sized(field: T.StructField) -> str:
    name = quoted(field.name)
    return name if isinstance(field.dataType, T.StringType | T.BinaryType) else f"CAST({name} AS STRING)"


def _within(stream: IO[bytes], most_bytes: int) -> list[pa.RecordBatch] | None:
    """The batches of a stream, in their order; None as soon as they are too large."""
    found: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in pa.ipc.open_stream(stream):
        size_bytes += batch.nbytes
        if size_bytes > most_bytes:
            return None
        found.append(batch)
    return [found[place] for place in _order(stream)]


def _order(stream: IO[bytes]) -> Sequence[int]:
    """The order of the batches, which Spark sends after them, since they arrive in the order of computation."""
    return list(_numbers(stream, max(_number(stream), 0)))  # -1: it failed, and says why where it is asked to end


def _numbers(stream: IO[bytes], count: int) -> Iterator[int]:
    for _ in range(count):
        yield _number(stream)


def _number(stream: IO[bytes]) -> int:
    (value,) = _INT.unpack(stream.read(_INT.size))
    return int(value)
