"""``engine.sql`` on a Spark session: commands as frames, state between calls, and what is Spark's in Spark."""

import re
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from engine import Catalog, sql
from engine.dialect.entry import WAREHOUSE_CONF
from engine.dialect.grammar.places import SqlSyntaxError
from engine.runtime.spark_settings import spark_setting
from lsm.errors import InvalidInputError


def collected(frame: object) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]  # type: ignore[attr-defined]


@pytest.mark.sweep
def test_commands_give_frames_and_state_stays(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    done = sql(spark, "CREATE DATABASE a; USE a; SET table-storage.bucket = 3", catalog, **{"write-only": "true"})
    assert collected(done) == [("table-storage.bucket", "3")]
    assert sql(spark, "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED)", catalog).columns == []
    assert collected(sql(spark, "SHOW TABLES", catalog)) == [("a", "t", False)]
    assert dict(collected(sql(spark, "SHOW TBLPROPERTIES t", catalog))) == {  # type: ignore[arg-type]
        "bucket": "3", "file.format": "parquet", "write-only": "true",
    }  # fmt: skip
    other = Catalog(str(tmp_path))
    with pytest.raises(InvalidInputError, match="no such database: database=default"):
        sql(spark, "DESCRIBE t", other)


@pytest.mark.sweep
def test_what_is_sparks_is_run_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    sql(spark, "CREATE TEMPORARY VIEW sparks AS SELECT 1 AS a; CACHE TABLE sparks", catalog)
    assert collected(sql(spark, "DESCRIBE sparks", catalog))[0][:2] == ("a", "int")
    assert collected(sql(spark, "SET spark.sql.shuffle.partitions", catalog))[0][0] == "spark.sql.shuffle.partitions"
    assert ("", "sparks", True) in collected(sql(spark, "SHOW TABLES IN spark_catalog.default", catalog))
    sql(spark, "DROP VIEW sparks", catalog)
    with pytest.raises(ParseException):
        sql(spark, "CREATE TEMPORARY VIEW", catalog)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SHOW TABLE EXTENDED IN shop LIKE '*'", "name=shop fix='SHOW TABLES"),
        ("SHOW TABLE EXTENDED IN fluvial.shop LIKE '*'", "name=fluvial.shop fix='SHOW TABLES"),
        ("SHOW TABLE EXTENDED LIKE '*'", "name=shop fix='SHOW TABLES"),
        ("SHOW TABLE EXTENDED IN shop LIKE 'same' PARTITION (id = 1)", "name=shop.same fix='SHOW PARTITIONS"),
        ("SHOW VIEWS IN shop", "fix='SHOW VIEWS without a database"),
        ("ANALYZE TABLE same COMPUTE STATISTICS NOSCAN", "name=same fix='ANALYZE TABLE without"),
        ("ANALYZE TABLE shop.same PARTITION (id = 1) COMPUTE STATISTICS", "fix='ANALYZE TABLE without"),
        ("REFRESH TABLE same", "each statement reads the newest snapshot"),
        ("MSCK REPAIR TABLE same", "a snapshot has all partitions"),
        ("LOAD DATA INPATH '/x' INTO TABLE same", "name=same fix='INSERT INTO"),
        ("COMMENT ON DATABASE shop IS 'x'", "a name and nothing else"),
        ("ALTER DATABASE shop SET DBPROPERTIES ('a' = 'b')", "a name and nothing else"),
        ("CACHE TABLE same", "fix='fluvial.install(spark, catalog) and spark.sql"),
        ("CACHE TABLE kept AS SELECT * FROM fluvial.shop.same", "name=fluvial.shop.same fix='fluvial.install"),
        ("UNCACHE TABLE IF EXISTS same", "name=same fix="),
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM same", "name=same fix='fluvial.install"),
        ("CREATE TABLE made USING parquet AS SELECT * FROM same", "name=same fix="),
        ("CREATE TABLE made LIKE same USING parquet", "name=same fix="),
        ("EXPLAIN CACHE TABLE same", "name=same fix="),
        ("INSERT OVERWRITE same PARTITION (id = 1) IF NOT EXISTS SELECT 2", "fix='INSERT INTO, INSERT OVERWRITE"),
        ("BEGIN DELETE FROM shop.same; END", "name=shop.same fix="),
    ],
)
def test_what_spark_runs_is_never_done_to_a_table_of_its_own_in_place_of_one_of_fluvial(
    spark: SparkSession, tmp_path: Path, text: str, words: str
) -> None:
    """Where both have a table ``same``, as where Spark has none: a statement that is Spark's alone says so."""
    catalog = Catalog(str(tmp_path))
    spark.sql("CREATE DATABASE IF NOT EXISTS spark_catalog.shop")
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.default.same (id INT) USING parquet")
    sql(spark, "CREATE DATABASE shop; USE shop; CREATE TABLE same (id INT)", catalog)
    try:
        with pytest.raises(InvalidInputError, match=re.escape(words)):
            sql(spark, text, catalog)
        assert not spark.catalog.isCached("spark_catalog.default.same")
        assert collected(sql(spark, "WITH same AS (SELECT 1 AS a) SELECT * FROM same", catalog)) == [(1,)]
    finally:
        spark.sql("DROP TABLE spark_catalog.default.same")
        spark.sql("DROP DATABASE spark_catalog.shop")


def test_spark_is_asked_before_its_own_syntax_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    script = "BEGIN DECLARE x INT DEFAULT 1; SET x = x + 1; SELECT x AS n; END"
    assert collected(sql(spark, script, catalog)) == [(2,)]
    for mistake in (
        "SELECT 1 FROM (",
        "SELECT * FROM t WITH (a)",
        "CREATE TABLE t (a INT) PLACED '/x'",
        "BEGIN SELECT 1; FOO; END",
    ):
        with pytest.raises(SqlSyntaxError):
            sql(spark, mistake, catalog)


def test_the_catalog_may_stand_in_sparks_configuration(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no catalog: .*spark\.sql\.catalog\.fluvial"):
        sql(spark, "SHOW DATABASES")
    with (
        spark_setting(spark, WAREHOUSE_CONF, str(tmp_path)),
        spark_setting(spark, "spark.sql.catalog.fluvial.table-default.bucket", "5"),
    ):
        sql(spark, "CREATE TABLE d.t (id INT PRIMARY KEY NOT ENFORCED)")
        assert Catalog(str(tmp_path)).table("d.t").options.bucket == 5


@pytest.mark.sweep
def test_watermarks_of_any_expression_are_worked_out(spark: SparkSession, tmp_path: Path) -> None:
    """FL-45."""
    catalog = Catalog(str(tmp_path))
    sql(spark, "CREATE TABLE d.t (ts TIMESTAMP(3), WATERMARK FOR ts AS date_trunc('hour', ts))", catalog)
    frame = spark.sql("SELECT TIMESTAMP_NTZ'2026-01-31 10:20:30' AS ts")
    catalog.table("d.t").write(frame.toArrow())
    described = dict(row[:2] for row in collected(sql(spark, "DESCRIBE EXTENDED d.t", catalog)))
    assert described["watermark"] == "2026-01-31 10:00:00.000"
