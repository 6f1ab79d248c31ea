"""The rows of a Spark frame in this process as Arrow batches, if they are few enough: neither heap nor process grows.

Spark gives a process the rows of a task as one result, whatever its size. So the frame is cut in the JVM: of each
partition come the first rows that fit into a share of the heap, and where a row does not fit, a sign of that. Where
Spark knows that the files of a batch are small, it is not cut: that would only cost planning and generated code.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import IO, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from engine.runtime.spark_internals import arrow_results, planned_bytes
from engine.types.quoting import quoted

IS_CUT: Final = "__fluvial_cut"
"""A column: this row does not fit, and what follows it in its partition is missing."""
_PLACE: Final = "__fluvial_place"
_FIXED_BYTES: Final = 16  # of a value at most, but for text, binary and what is nested
_PLACE_BITS: Final = 33  # of a row's number within its partition, see monotonically_increasing_id
_MOST_DENSE: Final = 16  # bytes of rows for a byte of files; the heap has room for three times as many
_NO_RESULT: Final = "spark.driver.maxResultSize"  # named by Spark's error when a job has given too many bytes
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
    is_cut = planned_bytes(frame) * _MOST_DENSE > most_partition_bytes
    asked = cut_frame(frame, most_partition_bytes) if is_cut else frame
    context.addJobTag(tag)
    is_large = False
    try:
        with arrow_results(asked) as stream:
            found = _within(stream, most_bytes, is_cut=is_cut)
            if found is None:
                is_large = True
                context.cancelJobsWithTag(tag)
            else:
                return found
    except (PySparkException, Py4JJavaError) as error:
        if not is_large and _NO_RESULT not in str(error):
            raise
    finally:
        context.removeJobTag(tag)
    return None


def cut_frame(frame: DataFrame, most_bytes: int) -> DataFrame:
    """The frame with one more column, `IS_CUT`: false up to the first row of a partition that does not fit.

    Rows are kept while their number times their own width is below the limit. So rows of one width take that many
    bytes, and others a small multiple of it: the n-th row at most an n-th.
    """
    fields = frame.schema.fields
    names = [quoted(field.name) for field in fields]
    wide = [_is_wide(field.dataType) for field in fields]
    fixed = _FIXED_BYTES * len(fields)
    sizes = [f"coalesce(octet_length({_sized(field)}), 0)" for field in fields if _is_wide(field.dataType)]
    place = f"monotonically_increasing_id() & {(1 << _PLACE_BITS) - 1}L AS {_PLACE}"
    is_cut = f"{_PLACE} * ({' + '.join([f'{fixed}L', *sizes])}) >= {most_bytes}L AS {IS_CUT}"
    values = [f"if({IS_CUT}, NULL, {name}) AS {name}" if cut else name for name, cut in zip(names, wide, strict=True)]
    placed = frame.selectExpr(*names, place).where(f"{_PLACE} <= {-(-most_bytes // fixed)}L")
    return placed.selectExpr(*names, is_cut).selectExpr(*values, IS_CUT)


def _is_wide(given: T.DataType) -> bool:
    return isinstance(given, T.StringType | T.BinaryType | T.ArrayType | T.MapType | T.StructType)


def _sized(field: T.StructField) -> str:
    name = quoted(field.name)
    return name if isinstance(field.dataType, T.StringType | T.BinaryType) else f"CAST({name} AS STRING)"


def _within(stream: IO[bytes], most_bytes: int, *, is_cut: bool) -> list[pa.RecordBatch] | None:
    """The batches of a stream, in their order, without `IS_CUT`; None as soon as they are too large."""
    found: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in pa.ipc.open_stream(stream):
        size_bytes += batch.nbytes
        if size_bytes > most_bytes or (is_cut and pc.any(batch.column(IS_CUT)).as_py()):
            return None
        found.append(batch.drop_columns([IS_CUT]) if is_cut else batch)
    return [found[place] for place in _order(stream)]


def _order(stream: IO[bytes]) -> Sequence[int]:
    """What Spark sends behind the batches, which come as partitions are computed."""
    return list(_numbers(stream, max(_number(stream), 0)))  # -1: it failed, and says why where it is asked to end


def _numbers(stream: IO[bytes], count: int) -> Iterator[int]:
    for _ in range(count):
        yield _number(stream)


def _number(stream: IO[bytes]) -> int:
    (value,) = _INT.unpack(stream.read(_INT.size))
    return int(value)
