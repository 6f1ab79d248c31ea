"""Tables by name: ``spark.table``, ``spark.catalog``, ``df.writeTo``, and streams."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine import Catalog

Rows = list[tuple[object, ...]]


def named_rows(spark: SparkSession, table: str) -> Rows:
    return sorted(tuple(row) for row in spark.table(f"fluvial.shop.{table}").collect())


def test_a_table_is_read_by_name_at_any_state(spark: SparkSession, shop: Catalog) -> None:
    assert named_rows(spark, "t") == [(1, "a"), (2, "z"), (3, "c")]
    first = [(1, "a"), (2, "b"), (3, "c")]
    by_version = spark.read.option("versionAsOf", "1").table("fluvial.shop.t")
    by_option = spark.read.option("scan.snapshot-id", "1").table("fluvial.shop.t")
    assert sorted(map(tuple, by_version.collect())) == sorted(map(tuple, by_option.collect())) == first
    condition = spark.table("fluvial.shop.t").where("v = 'z' OR id = 3").select("v")
    assert sorted(row.v for row in condition.collect()) == ["c", "z"]
    both = spark.table("fluvial.shop.t")
    assert both.where("id = 1").union(both.where("id = 3")).count() == 2  # no condition reaches the other read
    system = spark.table("fluvial.shop.`t$snapshots`").select("snapshot_id")
    assert sorted(row.snapshot_id for row in system.collect()) == [1, 2]


def test_the_catalog_lists_what_there_is(spark: SparkSession, shop: Catalog) -> None:
    assert "t" in {each.name for each in spark.catalog.listTables("fluvial.shop")}
    assert spark.catalog.tableExists("fluvial.shop.t")
    assert not spark.catalog.tableExists("fluvial.shop.nothing")
    assert [each.name for each in spark.catalog.listColumns("fluvial.shop.t")] == ["id", "v"]
    assert spark.catalog.getTable("fluvial.shop.t").catalog == "fluvial"
    assert "fluvial" in {each.name for each in spark.catalog.listCatalogs()}
    assert spark.catalog.databaseExists("fluvial.shop")
    there = spark.newSession()
    there.catalog.setCurrentCatalog("fluvial")
    there.catalog.setCurrentDatabase("shop")
    assert there.catalog.currentDatabase() == "shop"
    assert "t" in {each.name for each in there.catalog.listTables()}
    assert "shop" in {each.name for each in there.catalog.listDatabases()}
    assert "abs" in {each.name for each in there.catalog.listFunctions()}
    assert [row.function for row in there.sql("SHOW FUNCTIONS LIKE 'abs'").collect()] == ["abs"]
    with pytest.raises(AnalysisException, match="UNRESOLVED_ROUTINE"):
        there.sql("SELECT no_such_function(id) FROM t")
    there.catalog.createTable("fluvial.shop.listed", schema=there.table("t").schema)
    assert there.table("listed").columns == ["id", "v"]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("fluvial.shop.nothing")


def test_a_frame_is_written_to_a_table(spark: SparkSession, shop: Catalog) -> None:
    def frame(*values: tuple[int, str]) -> "object":
        return spark.createDataFrame(list(values), "id BIGINT, p STRING").writeTo("fluvial.shop.w")

    made = frame((1, "a"), (2, "b")).tableProperty("primary-key", "id,p").tableProperty("bucket", "1")  # type: ignore[attr-defined]
    made.partitionedBy(F.col("p")).create()
    assert shop.table("shop.w").schema.primary_keys == ("id", "p")
    assert shop.table("shop.w").schema.partition_keys == ("p",)
    frame((3, "b")).append()  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(1, "a"), (2, "b"), (3, "b")]
    frame((4, "b")).overwritePartitions()  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(1, "a"), (4, "b")]
    frame((5, "a")).overwrite(F.col("p") == "a")  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(4, "b"), (5, "a")]
    frame((6, "c")).overwrite(F.lit(True))  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(6, "c")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame((7, "d")).create()  # type: ignore[attr-defined]
    frame((8, "e")).createOrReplace()  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(8, "e")]
    assert shop.table("shop.w").schema.primary_keys == ()
    frame((9, "f"), (9, "g")).tableProperty("bucket", "1").tableProperty("bucket-key", "id").replace()  # type: ignore[attr-defined]
    assert named_rows(spark, "w") == [(9, "f"), (9, "g")]
    assert shop.table("shop.w").schema.options["bucket-key"] == "id"
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.range(1).writeTo("fluvial.shop.nothing").replace()
    assert not shop.table_exists("shop.nothing")


def test_a_frame_is_saved_as_a_table(spark: SparkSession, shop: Catalog) -> None:
    """``df.write``; of its options Spark gives a catalog none when it makes the table."""
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, p STRING")
    frame.write.partitionBy("p").saveAsTable("fluvial.shop.saved")
    assert shop.table("shop.saved").schema.partition_keys == ("p",)
    frame.where("id = 2").write.mode("append").saveAsTable("fluvial.shop.saved")
    frame.selectExpr("id + 2", "p").write.insertInto("fluvial.shop.saved")
    assert [row[0] for row in named_rows(spark, "saved")] == [1, 2, 2, 3, 4]
    frame.write.mode("overwrite").saveAsTable("fluvial.shop.saved")
    assert named_rows(spark, "saved") == [(1, "a"), (2, "b")]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        frame.write.saveAsTable("fluvial.shop.saved")
    with pytest.raises(
        AnalysisException,
        match=r"an option of the table, not a write option: bucket=1 fix=.set it where the table is made",
    ):
        frame.write.option("bucket", "1").saveAsTable("fluvial.shop.never")
    assert not shop.table_exists("shop.never")


@pytest.mark.parametrize("key", ["", "PRIMARY KEY NOT ENFORCED"])
def test_a_frame_of_a_table_takes_its_place(spark: SparkSession, shop: Catalog, key: str) -> None:
    """The old table is there until the new one is filled; where the frame fails, it stays."""
    name = f"fluvial.shop.own{len(key)}"
    spark.sql(f"CREATE TABLE {name} (id BIGINT {key}, v STRING) WITH ('bucket' = '{1 if key else -1}')")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")

    def rows() -> list[tuple[object, ...]]:
        return sorted(map(tuple, spark.table(name).collect()))

    spark.table(name).where("id < 4").write.mode("overwrite").saveAsTable(name)
    assert rows() == [(1, "a"), (2, "b"), (3, "c")]
    spark.table(name).where("id < 3").writeTo(name).createOrReplace()
    assert rows() == [(1, "a"), (2, "b")]
    spark.table(name).selectExpr("id + 10 AS id", "v").writeTo(name).replace()
    assert rows() == [(11, "a"), (12, "b")]
    failing = spark.table(name).selectExpr("id", "CAST(raise_error('stop') AS STRING) AS v")
    writes: list[Callable[[], None]] = [
        lambda: failing.write.mode("overwrite").saveAsTable(name),
        lambda: failing.writeTo(name).createOrReplace(),
        lambda: failing.writeTo(name).replace(),
    ]
    for write in writes:
        with pytest.raises(PySparkException, match="stop"):
            write()
        assert rows() == [(11, "a"), (12, "b")]
    with pytest.raises(PySparkException, match="stop"):
        failing.write.saveAsTable("fluvial.shop.never_made")
    assert {each for each in shop.list_tables("shop") if each.startswith(("own", "never"))} <= {"own0", "own24"}


def test_where_no_name_can_change_a_table_of_the_same_columns_gets_other_rows(
    spark: SparkSession, shop: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On object stores: in one commit, and the history stays; a table of other columns is refused."""
    spark.sql("CREATE TABLE fluvial.shop.fixed (id BIGINT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.fixed VALUES (1, 'a'), (2, 'b')")
    monkeypatch.setattr(Catalog, "can_rename_tables", False)
    spark.table("fluvial.shop.fixed").where("id = 2").write.mode("overwrite").saveAsTable("fluvial.shop.fixed")
    assert named_rows(spark, "fixed") == [(2, "b")]
    assert spark.sql("SELECT count(*) FROM fluvial.shop.fixed VERSION AS OF 1").first()[0] == 2
    with pytest.raises(PySparkException, match="tables on this storage cannot be replaced in one step"):
        spark.range(3).writeTo("fluvial.shop.fixed").replace()
    assert named_rows(spark, "fixed") == [(2, "b")]


def test_a_table_is_read_and_written_as_a_stream(spark: SparkSession, shop: Catalog, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE fluvial.shop.copy (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    changes = spark.readStream.option("read.changelog", True).table("fluvial.shop.t")
    writer = changes.writeStream.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True)
    writer.toTable("fluvial.shop.copy").awaitTermination()
    assert named_rows(spark, "copy") == named_rows(spark, "t")
    seen: list[int] = []

    def merge(frame: object, number: int) -> None:
        frame.createOrReplaceTempView("batch")  # type: ignore[attr-defined]
        session: SparkSession = frame.sparkSession  # type: ignore[attr-defined]
        session.sql(
            "MERGE INTO fluvial.shop.copy c USING (SELECT id + 100 AS id, v FROM batch) b ON c.id = b.id "
            "WHEN MATCHED THEN UPDATE SET v = b.v WHEN NOT MATCHED THEN INSERT *"
        )
        seen.append(session.sql("SELECT count(*) AS n FROM fluvial.shop.copy").collect()[0].n)

    again = changes.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "merged"))
    again.trigger(availableNow=True).start().awaitTermination()
    assert seen == [6]  # the session of a micro-batch is a clone


def test_a_table_made_of_constants_takes_nulls(spark: SparkSession, shop: Catalog) -> None:
    """As Spark's own does."""
    spark.sql("CREATE TABLE fluvial.shop.made_of AS SELECT 1 AS id, 'x' AS s, array(named_struct('a', 1)) AS l")
    spark.sql("INSERT INTO fluvial.shop.made_of VALUES (NULL, NULL, array(NULL, named_struct('a', NULL)))")
    assert spark.table("fluvial.shop.made_of").where("id IS NULL AND l[1].a IS NULL").count() == 1
