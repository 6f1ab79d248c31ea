"""What Spark's optimizer is given: sizes of what is read, what ANALYZE counted; and where it cannot be given it."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog
from engine.spark.catalog.statistics import bound_value
from filestore.maintenance.table_statistics import analyze
from filestore.types.data_types import parse_data_type

UNKNOWN = 2**63 - 1
"""Bytes that Spark takes a table for of which it knows nothing."""


def optimized_plan(frame: DataFrame) -> Any:
    """Spark's statistics of a whole frame."""
    return frame._jdf.queryExecution().optimizedPlan().stats()


def size(frame: DataFrame) -> int:
    return int(str(optimized_plan(frame).sizeInBytes()))


def estimated_rows(frame: DataFrame) -> int | None:
    found = optimized_plan(frame).rowCount()
    return None if found.isEmpty() else int(str(found.get()))


@pytest.fixture
def counting(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.cbo.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.cbo.enabled")


def text_of_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture(scope="module")
def big(spark: SparkSession, shop: Catalog) -> str:
    """1,000 rows of which v has ten values, compacted, then analyzed."""
    spark.sql(
        "CREATE TABLE fluvial.shop.big (id BIGINT PRIMARY KEY NOT ENFORCED, v INT, d DECIMAL(9, 2), t TIMESTAMP) "
        "WITH ('bucket' = '1')"
    )
    spark.sql(
        "INSERT INTO fluvial.shop.big SELECT id, CAST(id % 10 AS INT), CAST(id AS DECIMAL(9, 2)), "
        "timestamp_micros(id) FROM range(1000)"
    )
    shop.table("shop.big").compact(full=True)
    analyze(shop.table("shop.big").files, ["id", "v", "d", "t"])
    return "fluvial.shop.big"


def test_a_scan_has_the_size_of_its_files_and_columns(spark: SparkSession, shop: Catalog, big: str) -> None:
    """Issue 20 point 7: with or without ANALYZE, by Spark's own scan or by Fluvial's."""
    stored = sum(split.size_bytes for split in shop.table("shop.big").files.read().plan().splits)
    assert 0 < size(spark.table(big).select("v")) < size(spark.table(big))
    assert size(spark.table(big).select("v")) < stored
    assert size(spark.table("fluvial.shop.t")) < 100_000  # it is merged by Fluvial


def test_all_tables_of_a_database_are_analyzed(spark: SparkSession, shop: Catalog) -> None:
    """As Spark does for its own tables: it ended with an internal error."""
    spark.sql("CREATE DATABASE fluvial.counted")
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE fluvial.counted.{name} (id INT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '1')")
        spark.sql(f"INSERT INTO fluvial.counted.{name} VALUES (1), (2)")
    assert spark.sql("ANALYZE TABLES IN fluvial.counted COMPUTE STATISTICS").collect() == []
    for name in ("a", "b"):
        assert spark.sql(f"SELECT mergedRecordCount FROM fluvial.counted.{name}$statistics").collect() == [(2,)]


def test_rows_and_columns_are_those_of_analyze(counting: SparkSession, big: str) -> None:
    """Issue 20 point 7: the cost-based optimizer counts with them, through conditions too."""
    frame = counting.table(big)
    found = optimized_plan(frame)
    assert estimated_rows(frame) == 1000
    columns = {pair._1().name(): pair._2() for pair in _items(found.attributeStats())}
    assert int(str(columns["v"].distinctCount().get())) == 10
    assert (columns["v"].min().get(), columns["v"].max().get()) == (0, 9)
    assert (columns["id"].min().get(), columns["id"].max().get()) == (0, 999)
    assert str(columns["d"].max().get()) == "999.00"
    assert columns["t"].max().get() == 999
    assert estimated_rows(frame.where("v = 3")) == 100
    assert estimated_rows(frame.where("id < 500")) == pytest.approx(500, abs=2)
    assert (estimated_rows(frame.where("d >= 990 AND t < timestamp_micros(995)")) or 1000) < 50
    assert estimated_rows(frame.groupBy("v").count()) == 10
    assert estimated_rows(counting.table("fluvial.shop.t")) is None  # not analyzed
    assert estimated_rows(counting.sql(f"SELECT * FROM {big} VERSION AS OF 1")) is None  # nor was this state


def test_a_small_table_is_sent_to_the_tasks_of_a_large_one(spark: SparkSession, big: str) -> None:
    """What the size is for: before, each join of two tables was sorted on both sides."""
    joined = spark.table(big).join(spark.table("fluvial.shop.t"), "id")
    assert "BroadcastHashJoin" in text_of_plan(joined)
    assert joined.count() == 3


def test_of_system_tables_and_of_the_data_source_spark_knows_nothing(
    spark: SparkSession, shop: Catalog, big: str
) -> None:
    """Spark asks no source in Python for statistics (4.3): ``format("fluvial")`` is as large as can be."""
    assert size(spark.table("fluvial.shop.`big$snapshots`")) >= UNKNOWN
    frame = spark.read.format("fluvial").option("warehouse", str(shop.warehouse)).option("table", "shop.big").load()
    assert size(frame) >= UNKNOWN


def test_bounds_are_numbers_that_spark_counts_with() -> None:
    """Paimon's texts of each type; what is none is unknown."""
    cases = [
        ("INT", "-7", -7), ("DATE", "19000", 19000), ("DOUBLE", "1.5", 1.5), ("DECIMAL(9, 2)", "1.50", Decimal("1.50")),
        ("TIMESTAMP(6)", "1970-01-01 00:00:01.500000", 1_500_000), ("STRING", "a", None), ("INT", "x", None),
        ("BOOLEAN", "true", None),
    ]  # fmt: skip
    for kind, text, value in cases:
        assert bound_value(text, parse_data_type(kind)) == value


def _items(values: Any) -> list[Any]:
    iterator, found = values.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
