"""What Spark, dbt and BI tools read of a table: types and facts in Spark's words, ours behind them."""

import json

import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog

COLUMNS = (
    "b BOOLEAN, ti TINYINT, si SMALLINT, i INT COMMENT 'a number', bi BIGINT, f FLOAT, d DOUBLE, de DECIMAL(10, 2), "
    "s STRING, vc VARCHAR(7), ch CHAR(3), bin BINARY, dt DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, a ARRAY<INT>, "
    "m MAP<STRING, ARRAY<BIGINT>>, st STRUCT<x: INT COMMENT 'inside', y: STRUCT<z: DECIMAL(5, 1)>>, p STRING"
)

SIZED = ("vc", "ch")  # of which Spark says here that they are a string


@pytest.fixture(scope="module")
def tables(spark: SparkSession, shop: Catalog) -> tuple[str, str]:
    """One of Parquet in Spark's catalog, and ours."""
    spark.sql("DROP TABLE IF EXISTS described")
    spark.sql(f"CREATE TABLE described ({COLUMNS}) USING parquet PARTITIONED BY (p) COMMENT 'of it'")
    spark.sql(f"CREATE TABLE fluvial.shop.described ({COLUMNS}) PARTITIONED BY (p) COMMENT 'of it'")
    return "described", "fluvial.shop.described"


def row_tuples(spark: SparkSession, text: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(text).collect()]


@pytest.mark.parametrize(
    "text", ["DESCRIBE {}", "DESC TABLE {}", "SHOW COLUMNS IN {}", "DESCRIBE {} i", "DESCRIBE {} s"]
)
def test_columns_are_described_as_those_of_parquet(spark: SparkSession, tables: tuple[str, str], text: str) -> None:
    theirs, ours = [row_tuples(spark, text.format(table)) for table in tables]
    assert ours == theirs


def test_details_have_sparks_names(spark: SparkSession, tables: tuple[str, str]) -> None:
    theirs, ours = [row_tuples(spark, f"DESCRIBE EXTENDED {table}") for table in tables]
    start = theirs.index(("# Detailed Table Information", "", ""))
    assert ours[: start + 1] == theirs[: start + 1]
    facts = {str(row[0]): row[1] for row in ours[start + 1 :]}
    assert facts["Name"] == "fluvial.shop.described"
    assert (facts["Type"], facts["Provider"], facts["Comment"]) == ("MANAGED", "fluvial", "of it")
    assert str(facts["Location"]).endswith("/shop.db/described")
    assert "file.format=parquet" in str(facts["Table Properties"])
    assert {"Catalog", "Database", "Table", "Owner", "file.format", "bucket", "change-tracking"} <= {*facts}


def test_details_as_json(spark: SparkSession, tables: tuple[str, str]) -> None:
    theirs, ours = [json.loads(str(row_tuples(spark, f"DESCRIBE EXTENDED {table} AS JSON")[0][0])) for table in tables]
    kinds = {each["name"]: each["type"] for each in ours["columns"]}
    assert (kinds["vc"], kinds["ch"]) == ({"name": "varchar", "length": 7}, {"name": "char", "length": 3})
    assert [each for each in ours["columns"] if each["name"] not in SIZED] == [
        each for each in theirs["columns"] if each["name"] not in SIZED
    ]
    same = ("comment", "type", "partition_columns")
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert (ours["table_name"], ours["schema_name"], ours["namespace"]) == ("described", "shop", ["shop"])


def test_the_catalog_lists_sparks_types(spark: SparkSession, tables: tuple[str, str]) -> None:
    theirs, ours = [spark.catalog.listColumns(table) for table in tables]
    shown = [[tuple(each) for each in columns if each.name not in SIZED] for columns in (theirs, ours)]
    assert shown[0] == shown[1]
    assert [each.isPartition for each in ours] == [each.isPartition for each in theirs]
    found = spark.catalog.getTable(tables[1])
    assert (found.name, found.description, found.tableType) == ("described", "of it", "MANAGED")


def test_key_and_computed_columns(spark: SparkSession, shop: Catalog) -> None:
    """A computed column has a type; engine.sql keeps its own words.

    PyHive's dialects of SQLAlchemy take each row before the partitions for a column, and fail where one has no type.
    """
    table = "fluvial.shop.computed"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL, n INT DEFAULT 3, twice AS n * 2L, PRIMARY KEY (id, n) NOT ENFORCED)"
        " PARTITIONED BY (n)"
    )
    rows = [
        ("id", "bigint", None),
        ("n", "int", None),
        ("twice", "bigint", "AS n * 2L"),
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("n", "int", None),
    ]
    assert row_tuples(spark, f"DESCRIBE {table}") == rows
    extended = row_tuples(spark, f"DESCRIBE EXTENDED {table}")
    assert extended[: len(rows)] == rows
    assert ("Primary Key", "id,n", "") in extended
    assert row_tuples(spark, f"DESCRIBE {table} n")[1:] == [("data_type", "int"), ("comment", "NULL"), ("default", "3")]
    own = engine.sql(spark, "DESCRIBE shop.computed", catalog=shop).collect()
    assert [tuple(row) for row in own][:3] == [
        ("id", "BIGINT NOT NULL", None),
        ("n", "INT NOT NULL", None),
        ("twice", "AS n * 2L", None),
    ]
