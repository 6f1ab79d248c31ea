"""Statements and calls of Spark's catalog interface, and what they give: the same on every Spark that is known.

    python -m tests.support.catalog_statements DIRECTORY

prints it as JSON; the PySpark that is first on ``PYTHONPATH`` runs it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from engine.spark_internals.session import jvm_frame

_TABLE = "CREATE TABLE {} (id BIGINT PRIMARY KEY NOT ENFORCED, v VARCHAR(3), j VARIANT) WITH ('bucket' = '1')"
_STATEMENTS = (
    "CREATE DATABASE lake.shop",
    "USE lake.shop",
    _TABLE.format("t"),
    """INSERT INTO t VALUES (1, 'a', parse_json('{"n": 1}')), (2, 'b', NULL), (3, 'c', NULL)""",
    "UPDATE t SET V = 'z' WHERE ID = 2",
    "DELETE FROM t WHERE id = 3",
    "MERGE INTO t USING (VALUES (1L, 'm'), (4L, 'n')) AS n(id, v) ON t.id = n.id "
    "WHEN MATCHED THEN UPDATE SET v = n.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)",
    "SELECT id, v, to_json(j) FROM t ORDER BY id",
    "SELECT id, v FROM t VERSION AS OF 1 ORDER BY id",
    "SELECT id, v, _change_type FROM t CHANGES FROM VERSION 2 TO VERSION 3 ORDER BY id, _change_type",
    "CALL sys.create_tag(table => 't', tag => 'now')",
    "ALTER TABLE t ADD COLUMN note STRING",
    "ALTER TABLE t COMPACT",
    "DESCRIBE t",
    "SHOW TABLES",
    "CREATE TABLE copied AS SELECT id, v FROM t",
    "CREATE TEMPORARY VIEW seen AS SELECT count(*) AS n FROM copied",
    "SELECT n FROM seen",
    "EXPLAIN DELETE FROM t",
    "SELECT * FROM nothing",
    "SELECT idd FROM t",
    "SELEC 1 FROM t",
    "INSERT INTO t (id, v) VALUES (9, 'long')",
    "SELECT * FROM t VERSION AS OF 99",
    "DROP TABLE copied",
    "SHOW TABLES IN lake.shop",
)
_SHOWN_ROWS = frozenset({"SELECT", "DESCRIBE", "SHOW"})


def outcomes(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """What each statement and call gives: rows, or the class of its error."""
    catalog = Catalog(str(directory / "warehouse"))
    session = spark.newSession()
    engine.install(session, catalog, "lake")
    try:
        found = {text: _outcome(session, text) for text in _STATEMENTS}
        return found | _calls(session, catalog, directory)
    finally:
        engine.uninstall(session, "lake")


def _outcome(spark: SparkSession, text: str) -> Any:
    try:
        rows = [[str(value) for value in row] for row in spark.sql(text).collect()]
    except PySparkException as error:
        return [type(error).__name__, error.getCondition()]
    return rows if text.partition(" ")[0] in _SHOWN_ROWS else len(rows)


def _calls(spark: SparkSession, catalog: Catalog, directory: Path) -> dict[str, Any]:
    """By name: frames, streams, and the catalog's lists."""
    frame = spark.sql("SELECT id, CAST(id AS STRING) AS v FROM range(3)")
    frame.writeTo("lake.shop.w").tableProperty("primary-key", "ID").tableProperty("bucket", "1").create()
    frame.where("id > 1").selectExpr("id AS ID", "'x' AS v").writeTo("lake.shop.w").append()
    spark.sql("ALTER TABLE lake.shop.w COMPACT")
    whole = spark.table("lake.shop.w")
    plan = jvm_frame(whole).queryExecution().executedPlan().toString()
    frame.writeTo(
        "lake.shop.log"
    ).create()  # before 4.3 a stream by name has no kinds, so it is of a table without a key
    writer = spark.readStream.table("lake.shop.log").writeStream
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    spark.sql("CREATE TABLE lake.shop.streamed (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    writer.trigger(availableNow=True).toTable("lake.shop.streamed").awaitTermination()
    return {
        "written": sorted([row.id, row.v] for row in whole.collect()),
        "plan": "ParquetScan" in plan,
        "then": spark.read.option("versionAsOf", "1").table("lake.shop.w").where("v = '2'").count(),
        "streamed": sorted([row.id, row.v] for row in spark.table("lake.shop.streamed").collect()),
        "tables": sorted(each.name for each in spark.catalog.listTables("lake.shop")),
        "columns": [[each.name, each.dataType] for each in spark.catalog.listColumns("lake.shop.t")],
        "exists": spark.catalog.tableExists("lake.shop.nothing"),
        "elsewhere": spark.newSession().table("lake.shop.w").count(),
        "keys": catalog.table("shop.w").schema.primary_keys[0],
    }


def main(directory: Path) -> None:
    """Run them in a session of this process."""
    conf = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
    spark = engine.session("statements", "local[1]", conf | {"spark.sql.warehouse.dir": str(directory / "spark")})
    print(json.dumps({"version": pyspark.__version__, **outcomes(spark, directory)}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
