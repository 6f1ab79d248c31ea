"""``CACHE TABLE``, ``spark.catalog.cacheTable``, ``df.cache()``, and what plans and frames say of files."""

import re
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from engine import Catalog
from engine.spark_internals.session import jvm_frame

KEY = "(id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')"
KINDS = {"key": KEY, "none": "(id BIGINT, v STRING)"}


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest, spark: SparkSession, shop: Catalog) -> Iterator[str]:
    """A table with the rows 1 and 2; nothing is kept behind the test."""
    name = f"fluvial.shop.kept_{request.param}"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} {KINDS[request.param]}")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    yield name
    spark.catalog.clearCache()


def from_memory(frame: DataFrame) -> bool:
    return "InMemoryRelation" in str(jvm_frame(frame).queryExecution().executedPlan().toString())


def by_name(spark: SparkSession, name: str) -> list[DataFrame]:
    """The doors that know a table by its name."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kept_view AS SELECT * FROM {name}")
    return [spark.table(name), spark.read.table(name), spark.sql(f"SELECT * FROM {name}"), spark.table("kept_view")]


def numbers_of(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


CACHES: dict[str, Callable[[SparkSession, str], object]] = {
    "cacheTable": lambda spark, name: spark.catalog.cacheTable(name),
    "CACHE TABLE": lambda spark, name: spark.sql(f"CACHE TABLE {name}"),
    "CACHE LAZY TABLE": lambda spark, name: spark.sql(f"CACHE LAZY TABLE {name}"),
    "cache": lambda spark, name: spark.table(name).cache(),
}


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", CACHES)
def test_kept_rows_are_found_by_every_door_and_read_again_when_the_application_changes_them(
    spark: SparkSession, shop: Catalog, name: str, way: str
) -> None:
    """As for tables of Spark's own; what others write is seen after REFRESH TABLE."""
    CACHES[way](spark, name)
    assert spark.catalog.isCached(name)
    for frame in by_name(spark, name):
        assert from_memory(frame)
        assert numbers_of(frame) == [1, 2]
    spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    assert [numbers_of(frame) for frame in by_name(spark, name)] == [[1, 2, 3]] * 4
    spark.sql("SELECT 4L AS id, 'd' AS v").writeTo(name).append()
    assert [numbers_of(frame) for frame in by_name(spark, name)] == [[1, 2, 3, 4]] * 4
    table = shop.table(name.removeprefix("fluvial."))
    table.write(spark.sql("SELECT 5L AS id, 'e' AS v").toArrow())  # another writer's
    assert [numbers_of(frame) for frame in by_name(spark, name)] == [[1, 2, 3, 4]] * 4
    spark.sql(f"INSERT INTO {name} SELECT id + 10, v FROM {name} WHERE id = 5")  # a change reads what is there
    assert [numbers_of(frame) for frame in by_name(spark, name)] == [[1, 2, 3, 4, 5, 15]] * 4
    table.write(spark.sql("SELECT 6L AS id, 'f' AS v").toArrow())
    spark.catalog.refreshTable(name)
    assert [numbers_of(frame) for frame in by_name(spark, name)] == [[1, 2, 3, 4, 5, 6, 15]] * 4
    spark.sql(f"SELECT id FROM {name} VERSION AS OF 1").collect()
    assert numbers_of(spark.sql(f"SELECT id FROM {name} VERSION AS OF 1")) == [1, 2]
    spark.catalog.uncacheTable(name)
    assert not spark.catalog.isCached(name)
    assert not any(map(from_memory, by_name(spark, name)))


CHANGES = {
    "UPDATE {} SET v = 'z' WHERE id = 1": [(1, "z"), (2, "b")],
    "DELETE FROM {} WHERE id = 1": [(2, "b")],
    "MERGE INTO {} t USING (SELECT 1L AS id, 'm' AS v) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *": [
        (1, "m"),
        (2, "b"),
    ],
    "INSERT OVERWRITE {} SELECT 7, 'o'": [(7, "o")],
    "TRUNCATE TABLE {}": [],
    "ALTER TABLE {} RENAME COLUMN v TO w": [(1, "a"), (2, "b")],
    "CALL fluvial.sys.rollback(table => '{short}', snapshot => 1)": [(1, "a"), (2, "b")],
    "CREATE OR REPLACE TABLE {} AS SELECT 8L AS id, 'r' AS v": [(8, "r")],
}


@pytest.mark.sweep
def test_each_statement_that_changes_a_table_has_its_kept_rows_read_again(spark: SparkSession, shop: Catalog) -> None:
    name = "fluvial.shop.kept_changed"
    for text, expected in CHANGES.items():
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} {KEY}")
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
        if "rollback" in text:
            spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
        spark.catalog.cacheTable(name)
        assert spark.table(name).count() in (2, 3)
        spark.sql(text.format(name, short=name.removeprefix("fluvial.")))
        for frame in by_name(spark, name):
            assert sorted(tuple(row) for row in frame.collect()) == expected, text
    spark.sql(f"DROP TABLE {name}")
    assert not spark.catalog.tableExists(name)
    spark.catalog.clearCache()


@pytest.mark.parametrize("name", ["key"], indirect=True)  # of a table without a key, mergeInto replaces the whole
def test_merge_into_of_frames_reads_the_newest_rows_and_not_kept_ones(spark: SparkSession, name: str) -> None:
    spark.catalog.cacheTable(name)
    assert spark.table(name).count() == 2
    news = spark.sql("SELECT 2L AS id, 'm' AS v UNION ALL SELECT 3L, 'n'").alias("news")
    news.mergeInto(name, expr(f"news.id = {name}.id")).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert sorted(tuple(row) for row in spark.table(name).collect()) == [(1, "a"), (2, "m"), (3, "n")]


def test_a_frame_of_rows_keeps_its_state(spark: SparkSession, shop: Catalog, name: str) -> None:
    """Frames that name no table to Spark's cache: a query's, and one of the source."""
    source = spark.read.format("fluvial").option("warehouse", shop.warehouse)
    frames = [spark.sql(f"SELECT * FROM {name} WHERE id > 0"), source.option("table", name[8:]).load()]
    for frame in frames:
        frame.cache().count()
    spark.sql(f"INSERT INTO {name} VALUES (9, 'x')")
    assert [numbers_of(frame) for frame in frames] == [[1, 2]] * 2
    for frame in frames:
        frame.unpersist()
    assert numbers_of(spark.sql(f"SELECT * FROM {name} WHERE id > 0")) == [1, 2, 9]


def test_a_plan_says_the_files_and_the_condition_that_left_others_out(spark: SparkSession, name: str) -> None:
    spark.sql(f"INSERT INTO {name} VALUES (1, 'c')")  # merged, where there is a key
    spark.sql(f"INSERT INTO {name} VALUES (100, 'd')")
    files = {row.file_path.rpartition("/")[2] for row in spark.sql(f"SELECT file_path FROM {name}$files").collect()}
    for frame in (spark.table(name).where("id < 50"), spark.sql(f"SELECT * FROM {name} WHERE id < 50")):
        plan = str(jvm_frame(frame).queryExecution().executedPlan().toString())
        if "FileScan" not in plan:  # Spark's own words, which cut a list of files
            assert len([each for each in files if each in plan]) == 2
            assert "at snapshot 3" in plan
        assert re.search(r"id(#\d+L)? < 50", plan)
