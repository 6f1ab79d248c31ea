"""What a statement asks the JVM: each question costs as much as a small piece of a plan."""

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog
from engine.procedures import rollback
from engine.spark_internals.session import jvm_frame, jvm_of

RELEASE = "m\n"  # of an object that is not needed any more, at any time


def questions(spark: SparkSession, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often one run calls into the JVM, after one that does not count."""
    work()
    client = jvm_of(spark)[0]._gateway_client
    send, asked = client.send_command, []

    def sent(command: str, *arguments: Any, **named: Any) -> Any:
        asked.append(command)
        return send(command, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(client, "send_command", sent)
        work()
    return sum(not each.startswith(RELEASE) for each in asked)


def test_a_statement_asks_the_jvm_little(spark: SparkSession, shop: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured 27, 36, 33 and 110; 20 of each are Spark's own but for the second, of which 9 are.

    The plan of the rows of an INSERT is asked what it reads, 11 times, where its text may read a table.
    """
    spark.sql("CREATE TABLE fluvial.shop.asked (id BIGINT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.asked SELECT id, 'v' FROM range(10)")

    def counted(work: Callable[[], object]) -> int:
        return questions(spark, work, monkeypatch)

    assert counted(lambda: spark.sql("SELECT id, v FROM fluvial.shop.asked WHERE id > 3").collect()) <= 27
    assert counted(lambda: spark.table("fluvial.shop.asked").collect()) <= 37
    assert counted(lambda: spark.sql("DESCRIBE fluvial.shop.asked").collect()) <= 33
    assert counted(lambda: spark.sql("INSERT INTO fluvial.shop.asked VALUES (1, 'x')").collect()) <= 113
    assert counted(lambda: spark.sql("INSERT INTO fluvial.shop.asked SELECT -1L AS id, 'x'").collect()) <= 113
    assert counted(lambda: spark.sql("INSERT INTO fluvial.shop.asked SELECT id, 'y' FROM range(1)").collect()) <= 125
    assert counted(lambda: spark.sql("SELECT id FROM range(3)").collect()) <= 21, "a text of Spark's"
    assert spark.table("fluvial.shop.asked").count() == 16


def test_a_query_of_few_rows_asks_the_jvm_little(
    spark: SparkSession, shop: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured 25, and 43 without a row: another id each time is another condition, and the same scan of files."""
    spark.sql("CREATE TABLE fluvial.shop.few (id BIGINT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.few SELECT id, 'v' FROM range(10)")
    ids, before = count(), temporary_views(spark)

    def point(least: int) -> Callable[[], object]:
        return lambda: spark.sql(f"SELECT v FROM fluvial.shop.few WHERE id = {least + next(ids)}").collect()

    assert questions(spark, point(0), monkeypatch) <= 29
    assert questions(spark, point(100), monkeypatch) <= 47
    spark.sql("INSERT INTO fluvial.shop.few SELECT id, 'w' FROM range(50, 60)")
    for wanted in (55, 5, 56):  # in files of their own
        found = spark.sql(f"SELECT id, v FROM fluvial.shop.few WHERE id = {wanted}")
        assert (len(found.inputFiles()), [tuple(row) for row in found.collect()]) == (1, [(wanted, "wv"[wanted < 50])])
    assert "LocalTableScan" in plan_of(spark, "SELECT v FROM fluvial.shop.few WHERE id = -1")
    assert temporary_views(spark) == before


def temporary_views(spark: SparkSession) -> set[str]:
    return {each.name for each in spark.catalog.listTables() if each.isTemporary}


def plan_of(spark: SparkSession, text: str) -> str:
    """How a query is computed."""
    return str(spark.sql(f"EXPLAIN {text}").collect()[0][0])


WRITER = """
import sys
import pyarrow as pa
from engine import Catalog

table = Catalog(sys.argv[1]).table("shop.kept")
table.write(pa.table({"id": [2, 4], "v": ["other", "process"]}))
"""


@pytest.mark.long
def test_what_a_session_keeps_of_a_table_is_never_old(spark: SparkSession, shop: Catalog) -> None:
    """Frames are kept by snapshot and files: what another process or another way does is seen by the next text."""
    spark.sql("CREATE TABLE fluvial.shop.kept (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    others = Catalog(shop.warehouse)  # that shares nothing but the files
    expected: dict[int, str] = {}

    def look() -> None:
        for text, wanted in (
            ("SELECT id, v FROM fluvial.shop.kept", expected),
            ("SELECT id, v FROM fluvial.shop.kept WHERE id = 2", {2: expected[2]} if 2 in expected else {}),
            ("SELECT id, v FROM fluvial.shop.kept WHERE id = 77", {}),
        ):
            assert {row["id"]: row["v"] for row in spark.sql(text).collect()} == wanted
        assert {row["id"]: row["v"] for row in spark.table("fluvial.shop.kept").collect()} == expected

    def write(rows: dict[int, str]) -> None:
        others.table("shop.kept").write(pa.table({"id": [*rows], "v": [*rows.values()]}))
        expected.update(rows)

    look()
    write({1: "a", 2: "b"})
    look()
    others.table("shop.kept").compact(full=True)
    look()
    subprocess.run([sys.executable, "-c", WRITER, shop.warehouse], check=True)
    expected |= {2: "other", 4: "process"}
    look()
    others.table("shop.kept").compact(full=True)
    look()
    rollback(others.table("shop.kept"), 1)  # numbers of snapshots are used again
    expected = {1: "a", 2: "b"}
    look()
    write({2: "again"})
    look()
    others.drop_table("shop.kept")
    others.create_table("shop.kept", pa.schema([("id", pa.int64()), ("v", pa.string())]), options={"bucket": "-1"})
    expected = {}
    look()
    write({2: "new table"})
    look()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.parquet.enableVectorizedReader", "true"),
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.parquet.enableNestedColumnVectorizedReader", "false"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.maxFields", "2"),
    ],
)
def test_a_scan_gives_columns_where_sparks_own_does(
    spark: SparkSession, shop: Catalog, setting: str, value: str
) -> None:
    """Without asking a reader, which each copy of a plan would make: two thirds of what planning cost more."""
    spark.sql(
        "CREATE TABLE IF NOT EXISTS fluvial.shop.wide (id BIGINT, v STRING, n STRUCT<a: INT, b: ARRAY<INT>>, j VARIANT)"
    )
    if not spark.table("fluvial.shop.wide").count():
        spark.sql(
            "INSERT INTO fluvial.shop.wide VALUES (1, 'a', named_struct('a', 1, 'b', array(1, 2)), parse_json('[1]'))"
        )
    (path,) = spark.sql("SELECT * FROM fluvial.shop.wide").inputFiles()
    session = spark.newSession()
    session.conf.set(setting, value)
    session.conf.set("spark.sql.sources.useV1SourceList", "")  # Spark's own scan of the same kind
    plain = session.read.schema(session.table("fluvial.shop.wide").schema).parquet(path)
    for columns in (["id"], ["id", "v"], ["n"], ["j"], ["id", "v", "n", "j"]):
        found, peer = session.table("fluvial.shop.wide").select(columns), plain.select(columns)
        assert gives_columns(found) is gives_columns(peer)
        assert str(found.collect()) == str(peer.collect())  # values of VARIANT are compared by their bytes


def gives_columns(frame: DataFrame) -> bool:
    """Whether the one scan of a frame does."""
    leaf = jvm_frame(frame).queryExecution().executedPlan().collectLeaves().head()
    assert leaf.getClass().getSimpleName() == "BatchScanExec"
    return bool(leaf.supportsColumnar())
