"""Micro-batches that the driver reads from Parquet files itself: the rows and progress that Spark's way gives."""

import datetime as dt
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from engine import Catalog, sink
from engine.spark_internals.batch_plans import ParquetScan, path_of_url
from engine.write.driver import driver_runner
from engine.write.driver.file_rows import NotAsTheyAreError, read_files

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("is_new", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("big", pa.decimal128(38, 3)),
        ("ratio", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("bytes", pa.binary()),
    ]
)


def typed_rows(first: int, count: int) -> pa.Table:
    """Keys that come again from file to file, values of all types, nulls, dates of the year 2."""
    numbers = range(first, first + count)

    def some(value: Any, number: int) -> Any:
        return None if number % 7 == 3 else value

    old = dt.datetime(2, 3, 4, 5, 6, 7, 8)
    return pa.table(
        {
            "id": [number % 40 for number in numbers],
            "tiny": [some(number % 100 - 50, number) for number in numbers],
            "is_new": [some(number % 2 == 0, number) for number in numbers],
            "price": [some(Decimal(number) / 4, number) for number in numbers],
            "big": [some(Decimal(10) ** 30 + number, number) for number in numbers],
            "ratio": [some(number / 8, number) for number in numbers],
            "day": [some(old.date() + dt.timedelta(days=number), number) for number in numbers],
            "at": [some(old.replace(tzinfo=dt.UTC) + dt.timedelta(days=number), number) for number in numbers],
            "local": [some(old + dt.timedelta(seconds=number), number) for number in numbers],
            "text": [some(f"näme {number}", number) for number in numbers],
            "bytes": [some(b"\x00\xff" * (number % 3), number) for number in numbers],
        },
        schema=SCHEMA,
    )


class Metric:
    """Counts as Spark's does."""

    rows = 0

    def add(self, rows: int) -> None:
        self.rows += rows


def scan_of(*paths: Path) -> ParquetScan:
    return ParquetScan(paths=[str(path) for path in paths], row_metric=Metric())


def read_from(*paths: Path, schema: pa.Schema = SCHEMA, most_bytes: int = 1 << 24) -> list[pa.RecordBatch] | None:
    return read_files(scan_of(*paths), from_arrow_schema(schema), threads=2, most_bytes=most_bytes)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("Spark was asked for the rows")


class Run:
    """A query over files, of which each micro-batch has two, that ran to their end."""

    def __init__(self, spark: SparkSession, source: Path, home: Path) -> None:
        table = Catalog(str(home)).create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
        write = sink(table)
        changes = spark.readStream.schema(from_arrow_schema(SCHEMA)).option("maxFilesPerTrigger", "2")
        stream = changes.parquet(str(source)).writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        write.close()
        self.progress = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        self.rows = table.read().to_arrow().sort_by("id")


@pytest.mark.spark
def test_the_driver_reads_what_spark_would_and_spark_runs_no_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of PyArrow, in row groups, of Spark, which stores moments as INT96, and one with a name to be quoted."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(typed_rows(0, 60), source / "a.parquet", row_group_size=17)
    pq.write_table(typed_rows(60, 60), source / "b %20ü#.parquet", compression="zstd")
    spark.createDataFrame(typed_rows(120, 60)).coalesce(1).write.parquet(str(tmp_path / "by-spark"))
    [written] = (tmp_path / "by-spark").glob("part-*.parquet")
    assert pq.ParquetFile(written).schema.column(7).physical_type == "INT96"
    written.rename(source / "c.parquet")
    pq.write_table(typed_rows(180, 30), source / "d.parquet")
    for number, name in enumerate(sorted(os.listdir(source))):
        os.utime(source / name, (1.7e9 + number, 1.7e9 + number))
    with monkeypatch.context() as patched:
        patched.setattr(driver_runner, "scan_of", lambda _: None)
        by_spark = Run(spark, source, tmp_path / "spark")
    monkeypatch.setattr(driver_runner, "collect_rows", refuse)
    by_driver = Run(spark, source, tmp_path / "driver")
    assert by_driver.progress == by_spark.progress == [120, 90]
    assert by_driver.rows.equals(by_spark.rows)
    assert by_driver.rows.num_rows == 40


def test_rows_come_in_the_order_of_files_within_a_limit(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("b", "a", "c")]
    for number, place in enumerate(places):
        pq.write_table(typed_rows(number * 20, 20), place)
    scan = scan_of(*places)
    found = read_files(scan, from_arrow_schema(SCHEMA), threads=2, most_bytes=1 << 24)
    assert found is not None
    assert pa.Table.from_batches(found).equals(typed_rows(0, 60))
    assert scan.row_metric.rows == 60
    scan = scan_of(*places)
    assert read_files(scan, from_arrow_schema(SCHEMA), threads=2, most_bytes=1000) is None
    assert scan.row_metric.rows == 0  # Spark will count them


def test_wide_rows_are_not_decoded_where_they_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"text": [f"{number:0100000}" for number in range(50)]})
    pq.write_table(table, tmp_path / "f", use_dictionary=False)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse)
    assert read_from(tmp_path / "f", schema=table.schema, most_bytes=1 << 20) is None


def test_columns_are_found_by_name_whatever_is_beside_them(tmp_path: Path) -> None:
    table = pa.table({"list": [[1], None], "b": ["x", None], "a": pa.array([1, 2], pa.int32())})
    pq.write_table(table.set_column(1, "b", table["b"].cast(pa.large_string())), tmp_path / "f")
    wanted = pa.schema([("a", pa.int32()), ("b", pa.string())])
    found = read_from(tmp_path / "f", schema=wanted)
    assert found is not None
    assert pa.Table.from_batches(found).to_pydict() == {"a": [1, 2], "b": ["x", None]}
    assert found[0].schema.types == wanted.types


@pytest.mark.parametrize(
    ("columns", "notes"),
    [
        ({"b": [1]}, {}),  # null in Spark
        ({"A": [1]}, {}),  # the same column in Spark, unless names are case-sensitive
        ({"a": [1], "A": [2]}, {}),  # ambiguous in Spark
        ({"a": pa.array([1], pa.int32())}, {}),  # widened by Spark
        ({"a": pa.array([1], pa.uint64())}, {}),
        ({"a": ["1"]}, {}),  # refused by Spark
        ({"a": [1]}, {"org.apache.spark.version": "2.4.8"}),  # days of the Julian calendar
        ({"a": [1]}, {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}),
        ({"a": [1]}, {"org.apache.spark.version": "x"}),
    ],
)
def test_what_needs_a_rule_of_spark_is_left_to_it(
    tmp_path: Path, columns: dict[str, Any], notes: Mapping[str, str]
) -> None:
    pq.write_table(pa.table(columns).replace_schema_metadata(dict(notes)), tmp_path / "f")
    with pytest.raises(NotAsTheyAreError):
        read_from(tmp_path / "f", schema=pa.schema([("a", pa.int64())]))


def test_files_that_cannot_be_read_are_reported_by_spark(tmp_path: Path) -> None:
    pq.write_table(typed_rows(0, 9), tmp_path / "f")
    whole = (tmp_path / "f").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-9])
    (tmp_path / "none").write_bytes(b"")
    for name in ("cut", "none", "gone"):
        with pytest.raises(NotAsTheyAreError):
            read_from(tmp_path / "f", tmp_path / name)


def test_only_files_of_this_machine_have_a_path() -> None:
    assert path_of_url("file:///a%20b/%C3%BC%25.parquet") == "/a b/ü%.parquet"
    assert path_of_url("file:/a") == "/a"
    assert [path_of_url(url) for url in ("s3a://b/k", "hdfs://h/a", "file://host/a", "/a")] == [None] * 4
