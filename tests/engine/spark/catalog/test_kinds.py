"""docs/spark-statements.md: each cell is true."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine import Catalog

PAGE = Path(__file__).parents[4] / "docs" / "spark-statements.md"
STATEMENTS = {
    "`SELECT`": "SELECT count(*) FROM {}",
    "`VERSION AS OF`": "SELECT count(*) FROM {} VERSION AS OF 1",
    "`CHANGES FROM`": "SELECT count(*) FROM {} CHANGES FROM VERSION 1",
    "`INSERT INTO`": "INSERT INTO {} VALUES (5, 'x', 1)",
    "`INSERT WITH SCHEMA EVOLUTION`": "INSERT WITH SCHEMA EVOLUTION INTO {} SELECT 6, 'x', 1, 9 AS more",
    "`INSERT OVERWRITE`": "INSERT OVERWRITE {} SELECT 1, 'x', 1",
    "`INSERT OVERWRITE PARTITION`": "INSERT OVERWRITE {} PARTITION (p = 1) SELECT 1, 'x'",
    "`REPLACE WHERE` a partition": "INSERT INTO {} REPLACE WHERE p = 1 SELECT 5, 'x', 1",
    "`REPLACE WHERE` any condition": "INSERT INTO {} REPLACE WHERE id = 5 SELECT 5, 'x', 1",
    "`UPDATE`": "UPDATE {} SET v = 'u' WHERE id = 1",
    "`DELETE` all rows": "DELETE FROM {}",
    "`DELETE` a partition": "DELETE FROM {} WHERE p = 1",
    "`DELETE` any condition": "DELETE FROM {} WHERE id = 1",
    "`MERGE` that only inserts": "MERGE INTO {} AS a USING (SELECT 7 AS id) q ON a.id = q.id "
    "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (q.id, 1)",
    "`MERGE` that updates": "MERGE INTO {} AS a USING (SELECT 1 AS id) q ON a.id = q.id "
    "WHEN MATCHED THEN UPDATE SET v = 'm'",
    "`TRUNCATE`": "TRUNCATE TABLE {}",
    "`TRUNCATE PARTITION`": "TRUNCATE TABLE {} PARTITION (p = 1)",
    "`ADD COLUMN`": "ALTER TABLE {} ADD COLUMN added INT",
    "`SET TBLPROPERTIES`": "ALTER TABLE {} SET TBLPROPERTIES ('snapshot.num-retained.max' = '100')",
    "`COMPACT`": "ALTER TABLE {} COMPACT",
    "`COMMENT ON TABLE`": "COMMENT ON TABLE {} IS 'c'",
    "`ANALYZE TABLE`": "ANALYZE TABLE {} COMPUTE STATISTICS",
    "`DESCRIBE`": "DESCRIBE {}",
    "`SHOW CREATE TABLE`": "SHOW CREATE TABLE {}",
    "`SHOW COLUMNS`": "SHOW COLUMNS IN {}",
    "`SHOW PARTITIONS`": "SHOW PARTITIONS {}",
    "`DROP TABLE`": "DROP TABLE {}",
}
KEY = "(id INT PRIMARY KEY NOT ENFORCED, v STRING, p INT) WITH ('bucket' = '1')"
NONE = "(id INT, v STRING, p INT)"
KINDS = {
    "key": KEY,
    "no key": NONE,
    "deletion vectors": f"{NONE} WITH ('deletion-vectors.enabled' = 'true')",
    "row counts": f"{NONE} WITH ('row-counts' = 'true')",
    "partitions": f"{NONE} PARTITIONED BY (p)",
    "branch": KEY,
    "system table": KEY,
    "view": KEY,
}


MERGED = "`DataFrame.mergeInto`"


def merge_frame(spark: SparkSession, table: str) -> None:
    """Update one row and add another."""
    source = spark.sql("SELECT * FROM VALUES (1, 'm', 1), (7, 'm', 1) AS s(id, v, p)").alias("s")
    writer = source.mergeInto(table, F.expr(f"s.id = {table}.id"))
    writer.whenMatched().updateAll().whenNotMatched().insertAll().merge()


def cells() -> dict[str, dict[str, str]]:
    """By statement and kind."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(lines[0][1:], row[1:], strict=True)) for row in lines[2:]}


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_each_statement_on_each_kind_of_table(spark: SparkSession, shop: Catalog, kind: str) -> None:
    name = f"kind_{kind.replace(' ', '_')}"
    table = f"fluvial.shop.{name}"
    written = {
        "branch": f"fluvial.shop.`{name}$branch_dev`",
        "system table": f"fluvial.shop.`{name}$snapshots`",
        "view": "view_of_a_kind",
    }.get(kind, table)
    found = {}
    for statement, text in (STATEMENTS | {MERGED: ""}).items():
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        spark.sql(f"CREATE TABLE {table} {KINDS[kind]}")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 1), (2, 'b', 2)")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW view_of_a_kind AS SELECT * FROM {table}")
        if kind == "branch":
            spark.sql(f"CALL fluvial.sys.create_branch(table => 'shop.{name}', branch => 'dev', snapshot => 1)")
        try:
            if statement == MERGED:
                merge_frame(spark, written)
            else:
                spark.sql(text.format(written)).collect()
            found[statement] = "yes"
        except PySparkException:
            found[statement] = "no"
            assert spark.table(table).count() == 2
    assert found == {statement: row[kind] for statement, row in cells().items()}
