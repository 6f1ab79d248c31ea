"""VARIANT: written and read by Spark's own SQL, merged, compacted, and read without Spark."""

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine import Catalog
from engine.spark_internals.session import jvm_frame

JAVA = Path(__file__).parents[3] / "golden" / "variant" / "java-1.4.2" / "db.db"

TEXT = "SELECT id, to_json(v) AS j, variant_get(v, '$.a', 'int') AS a FROM fluvial.shop.variants ORDER BY id"


def test_a_variant_is_written_merged_and_compacted(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: every way of writing; merged by us, then by Spark's own scan of the compacted file."""
    spark.sql(
        "CREATE TABLE fluvial.shop.variants (id INT PRIMARY KEY NOT ENFORCED, v VARIANT, s STRUCT<w: ARRAY<VARIANT>>) "
        "WITH ('bucket' = '1')"
    )
    spark.sql(
        "INSERT INTO fluvial.shop.variants SELECT id, parse_json(j), named_struct('w', array(parse_json(j))) "
        """FROM VALUES (1, '{"a": 1, "b": [1, "x"]}'), (2, NULL), (3, '"text"') AS t(id, j)"""
    )
    spark.sql("""UPDATE fluvial.shop.variants SET v = parse_json('{"a": 7}') WHERE id = 2""")
    spark.sql(
        "MERGE INTO fluvial.shop.variants t USING (SELECT 3 AS id, parse_json('[3]') AS v) n ON t.id = n.id "
        "WHEN MATCHED THEN UPDATE SET v = n.v"
    )
    frame = spark.sql("""SELECT 4 AS id, parse_json('{"a": 1.5}') AS v, NULL AS s""")
    frame.writeTo("fluvial.shop.variants").append()
    expected = [(1, '{"a":1,"b":[1,"x"]}', 1), (2, '{"a":7}', 7), (3, "[3]", None), (4, '{"a":1.5}', 1)]
    assert [tuple(row) for row in spark.sql(TEXT).collect()] == expected
    by_name = spark.table("fluvial.shop.variants").selectExpr("id", "to_json(v) AS j").sort("id")
    assert [tuple(row) for row in by_name.collect()] == [row[:2] for row in expected]
    spark.sql("ALTER TABLE fluvial.shop.variants COMPACT")
    compacted = spark.sql(TEXT)
    assert "FileScan parquet" in jvm_frame(compacted).queryExecution().executedPlan().toString()
    assert [tuple(row) for row in compacted.collect()] == expected
    assert [tuple(row) for row in by_name.collect()] == [row[:2] for row in expected]
    inner = spark.sql("SELECT to_json(s.w[0]) AS j FROM fluvial.shop.variants WHERE id = 1")
    assert inner.first() == ('{"a":1,"b":[1,"x"]}',)
    rows = shop.table("shop.variants").read().to_arrow(filter="id = 3")
    assert rows.column("v").to_pylist() == [{"value": b"\x03\x01\x00\x02\x0c\x03", "metadata": b"\x01\x00\x00"}]


def test_a_variant_is_no_key_and_only_in_parquet(spark: SparkSession, shop: Catalog) -> None:
    for text, problem in {
        "(v VARIANT PRIMARY KEY NOT ENFORCED)": "v",
        "(id INT, v VARIANT) PARTITIONED BY (v)": "cannot be partitioned by this type",
        "(id INT, v VARIANT) WITH ('file.format' = 'orc')": "only parquet files hold this type: column=v type=VARIANT",
    }.items():
        with pytest.raises(PySparkException, match=problem):
            spark.sql(f"CREATE TABLE fluvial.shop.refused {text}")
    assert not shop.table_exists("shop.refused")


def test_what_java_shredded_is_put_together(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: ``age`` and ``city`` are columns of their own in the files of Java Paimon (two of 20 rows each).

    By Spark's own scan where rows need no merging; the rows of a key in two files are merged in Python.
    """
    for name in ("events", "latest"):
        shutil.copytree(JAVA / name, Path(shop.warehouse) / "shop.db" / name)
    expected = [(number, f'{{"age":{number},"city":"c{number % 3}"}}', number) for number in range(20)]
    read = "SELECT id, to_json(v) AS j, variant_get(v, '$.age', 'int') AS age FROM {} ORDER BY id"
    for name, rows in (("events", sorted(expected * 2)), ("latest", expected)):
        for frame in (spark.sql(read.format(f"fluvial.shop.{name}")), spark.table(f"fluvial.shop.{name}")):
            found = frame if "j" in frame.columns else spark.sql(read.format("{named}"), named=frame)
            assert [tuple(row) for row in found.collect()] == rows
            assert name == "latest" or "parquet" in jvm_frame(found).queryExecution().executedPlan().toString().lower()
    shop.table("shop.latest").compact(full=True)
    assert [tuple(row) for row in spark.sql(read.format("fluvial.shop.latest")).collect()] == expected
