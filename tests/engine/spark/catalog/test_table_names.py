"""Names of tables and databases: whether their case counts is what the session says, and what is meant is said."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine import Catalog
from engine.spark.catalog.catalog import CatalogProxy
from tests.engine.spark.catalog.test_types import case_counts

STATEMENTS = (
    "SELECT id FROM {}",
    "SELECT T.id FROM {}",
    "INSERT INTO {} VALUES (2, 'b')",
    "INSERT OVERWRITE {} SELECT 1, 'c'",
    "UPDATE {} SET v = 'u'",
    "DELETE FROM {} WHERE id = 9",
    "MERGE INTO {} AS a USING (SELECT 1 AS id) s ON a.id = s.id WHEN MATCHED THEN UPDATE SET v = 'm'",
    "ALTER TABLE {} SET TBLPROPERTIES ('owner.team' = 'x')",
    "DESCRIBE {}",
    "SHOW CREATE TABLE {}",
    "SHOW COLUMNS IN {}",
    "ANALYZE TABLE {} COMPUTE STATISTICS",
    "TRUNCATE TABLE {}",
    "DROP TABLE {}",
)


class OfASession:
    """What a proxy asks its session for, without a JVM: names as they are spelled."""

    def __init__(self) -> None:
        self.inside = self.names = self

    def parts_of(self, identifier: list[str]) -> list[str]:
        return identifier

    def table(self, name: str, catalog: Catalog) -> str:
        return name


class CountedCatalog(Catalog):
    """Counts what it is asked; another drop may come first."""

    asked = 0
    is_dropped_beside = False

    def table_exists(self, name: str) -> bool:
        self.asked += 1
        return super().table_exists(name)

    def drop_table(self, name: str, **given: bool) -> list[str]:
        if self.is_dropped_beside:
            super().drop_table(name)
        return super().drop_table(name, **given)


def test_a_drop_looks_a_name_up_once_and_another_drop_beside_it_is_no_error(tmp_path: Path) -> None:
    """Once to find it; where it is dropped the files are looked at."""
    catalog = CountedCatalog(str(tmp_path))
    session: Any = OfASession()
    proxy = CatalogProxy(session, "fluvial", catalog, session)
    for catalog.is_dropped_beside in (False, True):
        catalog.create_table("d.t", pa.schema([("a", pa.int64())]))
        catalog.asked = 0
        assert proxy.dropTable(["d", "t"])
        assert catalog.asked == 1
    catalog.asked = 0
    assert [proxy.dropTable([database, "t"]) for database in ("d", "none")] == [False, False]
    assert catalog.asked == 2


def make_spelled(spark: SparkSession) -> None:
    spark.sql("DROP TABLE IF EXISTS fluvial.shop.Spelled")
    spark.sql("CREATE TABLE fluvial.shop.Spelled (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    spark.sql("INSERT INTO fluvial.shop.Spelled VALUES (1, 'a')")


@pytest.mark.sweep
@pytest.mark.parametrize("statement", STATEMENTS)
def test_case_counts_in_every_statement_or_in_none(spark: SparkSession, shop: Catalog, statement: str) -> None:
    make_spelled(spark)
    with case_counts(spark):
        for name in ("fluvial.shop.SPELLED", "fluvial.SHOP.Spelled"):
            with pytest.raises(AnalysisException) as raised:
                spark.sql(statement.format(name).replace("T.id", "id")).collect()
            assert "_NOT_FOUND" in str(raised.value.getCondition())
            if "SPELLED" in name and not statement.startswith("DROP"):  # which Spark looks up later
                assert "did you mean Spelled?" in str(raised.value)
    for name in ("fluvial.SHOP.SPELLED",) if "DROP" in statement else ("fluvial.SHOP.SPELLED", "fluvial.Shop.spelled"):
        spark.sql(statement.format(name).replace("T.id", f"{name.split('.')[2]}.id")).collect()
    assert shop.table_exists("shop.Spelled") is ("DROP" not in statement)


def test_frames_name_tables_likewise(spark: SparkSession, shop: Catalog) -> None:
    make_spelled(spark)
    name, rows = "fluvial.Shop.SPELLED", spark.sql("SELECT 2 AS id, 'b' AS v")
    rows.writeTo(name).append()
    rows.write.insertInto(name)
    rows.alias("s").mergeInto(name, F.expr(f"s.id = {name}.id")).whenMatched().updateAll().merge()
    assert spark.table(name).count() == spark.read.table(name).count() == 2
    assert spark.catalog.tableExists(name)
    assert spark.catalog.getTable(name).tableType == "MANAGED"
    assert [each.name for each in spark.catalog.listColumns(name)] == ["id", "v"]
    assert "Spelled" in [each.name for each in spark.catalog.listTables("fluvial.SHOP")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        rows.writeTo(name).create()
    assert spark.sql("SELECT count(*) AS n FROM fluvial.SHOP.SPELLED$snapshots").first().n == 3
    spark.sql("USE fluvial.SHOP")
    assert spark.sql("SELECT count(*) AS n FROM SPELLED").first().n == 2
    assert spark.table("SPELLED").count() == 2
    spark.sql("USE spark_catalog.default")


def test_two_tables_whose_names_differ_in_case_are_named_exactly(spark: SparkSession, shop: Catalog) -> None:
    for name in ("both", "Both"):
        shop.create_table(f"shop.{name}", shop.table("shop.t").schema.arrow_schema)
    spark.sql("INSERT INTO fluvial.shop.Both VALUES (1, 'a')")
    assert spark.sql("SELECT * FROM fluvial.shop.both").count() == 0
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM fluvial.shop.BOTH")
