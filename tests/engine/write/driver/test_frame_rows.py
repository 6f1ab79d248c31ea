"""The rows of a frame in this process: all of them in the frame's order, or none where they are too large."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.write.driver.driver_runner import IS_OVER, collect_rows, limited_frame

pytestmark = pytest.mark.spark

WIDTHS = "id BIGINT, text STRING, data BINARY, list ARRAY<STRING>"


def numbers(spark: SparkSession, count: int, *, partitions: int = 3) -> DataFrame:
    """A frame whose plan knows its size, of ``count`` rows of 8 bytes."""
    return spark.range(0, count, 1, partitions)


def unknown(spark: SparkSession, count: int, *, width: int = 10, partitions: int = 3) -> DataFrame:
    """Rows of about ``width`` bytes, of which the plan knows only that they may be many."""
    frame = spark.range(0, count, 1, partitions).select("id", F.repeat(F.lit("x"), width).alias("text"))
    return frame.crossJoin(spark.range(1).select(F.lit("y").alias("other")))


@pytest.mark.parametrize("most_partition_bytes", [1 << 30, 100_000], ids=["as it is", "limited"])
def test_all_rows_come_in_the_order_of_the_frame(spark: SparkSession, most_partition_bytes: int) -> None:
    frame = numbers(spark, 1_000, partitions=7)
    found = collect_rows(frame, most_bytes=1 << 20, most_partition_bytes=most_partition_bytes)
    assert found is not None
    assert pa.Table.from_batches(found).to_pydict() == {"id": list(range(1_000))}
    empty = collect_rows(frame.where("id < 0"), most_bytes=1, most_partition_bytes=most_partition_bytes)
    assert empty is not None
    assert sum(each.num_rows for each in empty) == 0


@pytest.mark.parametrize(
    ("most_bytes", "most_partition_bytes"), [(100_000, 1 << 40), (1 << 40, 100_000)], ids=["in all", "of a partition"]
)
def test_rows_that_are_too_large_are_none(spark: SparkSession, most_bytes: int, most_partition_bytes: int) -> None:
    frame = unknown(spark, 3_000, width=1_000)
    assert collect_rows(frame, most_bytes=most_bytes, most_partition_bytes=most_partition_bytes) is None
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert not list(spark.sparkContext.getJobTags())
    small = collect_rows(unknown(spark, 30), most_bytes=100_000, most_partition_bytes=100_000)
    assert small is not None
    assert sum(each.num_rows for each in small) == 30


@settings(max_examples=15)
@given(st.lists(st.integers(0, 400), max_size=60), st.integers(200, 20_000))
def test_what_leaves_the_heap_is_bounded_and_a_row_that_does_not_fit_is_seen(
    spark: SparkSession, widths: list[int], most_bytes: int
) -> None:
    """The oracle walks the rows of the one partition as the docstring says."""
    rows = [(n, "t" * width, b"d" * (width // 2), ["l"] * (width // 8)) for n, width in enumerate(widths)]
    listed = [max(3 * len(row[3]), 2) for row in rows]  # "[l, l]"
    sizes = [4 * 16 + len(row[1]) + len(row[2]) + more for row, more in zip(rows, listed, strict=True)]
    over = next((n for n, size in enumerate(sizes) if n * size >= most_bytes), None)
    # the n-th row takes at most an n-th of the limit
    assert sum(sizes[1:over]) <= most_bytes * 5
    limited = limited_frame(spark.createDataFrame(rows, WIDTHS).coalesce(1), most_bytes)
    if over is None:
        assert [tuple(row) for row in limited.collect()] == rows
    else:
        assert [tuple(row) for row in limited.take(over)] == rows[:over]
        with pytest.raises(PySparkException, match=IS_OVER):
            limited.collect()


def test_an_error_of_the_frame_is_raised(spark: SparkSession) -> None:
    for limit in (1, 1 << 40):
        with pytest.raises(PySparkException, match="no such luck"):
            collect_rows(
                spark.range(3).select(F.raise_error(F.lit("no such luck")).cast("long").alias("id")),
                most_bytes=1 << 20,
                most_partition_bytes=limit,
            )
