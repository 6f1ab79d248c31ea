"""The bucket that the JVM works out is the bucket that NumPy, and so every other writer of the table, works out."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine.types.spark_types import spark_schema
from engine.write.routing import _hash_expression, bucket_column, shuffle_by_bucket
from filestore.hashing.buckets import bucket_ids
from filestore.types.data_types import DataField, DataType, arrow_type

pytestmark = pytest.mark.spark

RANDOM = np.random.default_rng(11)
TEXTS = ["", "a", "abcdefg", "abcdefgh", "héllo", "日本語テキスト", "x" * 40, "seven77", "eight888"]
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
COLUMNS = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 127],
    "SMALLINT": [-300, 300],
    "INT": [-(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 255, 2**63 - 1, *RANDOM.integers(-(2**62), 2**62, 50).tolist()],
    "DATE": [date(1960, 2, 29), date(2024, 2, 29)],
    "VARCHAR": TEXTS,
    "VARBINARY": [text.encode() for text in TEXTS],
    "TIMESTAMP_LTZ": [MOMENT, MOMENT + timedelta(microseconds=1), datetime(2024, 1, 1, 1, 2, 3, 456789, tzinfo=UTC)],
    "TIMESTAMP": [MOMENT.replace(tzinfo=None), datetime(2024, 1, 1, 1, 2, 3, 456789)],
    "DOUBLE": [-2.25, 0.0, 1e300],
    "DECIMAL": [Decimal("-1.25"), Decimal("0.00"), Decimal("99.99")],
}
IN_THE_JVM = set(COLUMNS) - {"DOUBLE", "DECIMAL"}


def key(root: str, name: str = "k") -> DataField:
    sizes = {
        "DECIMAL": {"precision": 10, "scale": 2},
        "VARCHAR": {"length": 2**31 - 1},
        "VARBINARY": {"length": 2**31 - 1},
    }
    precise = {"precision": 6} if root.startswith("TIMESTAMP") else sizes.get(root, {})
    return DataField(id=0, name=name, type=DataType(root=root, nullable=False, **precise))


def buckets_of(spark: SparkSession, fields: list[DataField], columns: list[list[object]], count: int) -> list[int]:
    frame = spark.createDataFrame(list(zip(*columns, strict=True)), spark_schema(fields))
    return [row.b for row in frame.select(bucket_column(fields, count).alias("b")).collect()]


def expected_buckets(fields: list[DataField], columns: list[list[object]], count: int) -> list[int]:
    arrays = [pa.array(values, arrow_type(field.type)) for field, values in zip(fields, columns, strict=True)]
    return bucket_ids(arrays, [field.type for field in fields], count).tolist()


@pytest.mark.parametrize("root", COLUMNS)
def test_one_key_column_has_the_same_bucket_in_spark_and_numpy(spark: SparkSession, root: str) -> None:
    """FL-76, FL-77."""
    fields, columns = [key(root)], [COLUMNS[root]]
    assert buckets_of(spark, fields, columns, 97) == expected_buckets(fields, columns, 97)
    assert (_hash_expression(fields) is not None) == (root in IN_THE_JVM)


@pytest.mark.parametrize(
    "roots", [("VARCHAR", "BIGINT"), ("VARCHAR", "VARCHAR", "INT"), ("TIMESTAMP", "VARCHAR"), ("INT", "DECIMAL")]
)
def test_composite_keys_have_the_same_bucket_too(spark: SparkSession, roots: tuple[str, ...]) -> None:
    """FL-76."""
    fields = [key(root, f"k{i}") for i, root in enumerate(roots)]
    columns = [[values[i % len(values)] for i in range(60)] for values in (COLUMNS[root] for root in roots)]
    assert buckets_of(spark, fields, columns, 16) == expected_buckets(fields, columns, 16)


def test_every_bucket_is_in_one_task(spark: SparkSession) -> None:
    """FL-78: one bucket is written by one task; a task may write several."""
    frame = spark.range(1000).select(F.col("id").alias("k"))
    together = shuffle_by_bucket(frame, [key("BIGINT")], 8, 3)
    rows = together.select(
        bucket_column([key("BIGINT")], 8).alias("b"), F.spark_partition_id().alias("task")
    ).distinct()
    tasks_of = {row.b: row.task for row in rows.collect()}
    assert len(tasks_of) == rows.count() == 8
    assert all(task == bucket % 3 for bucket, task in tasks_of.items())
