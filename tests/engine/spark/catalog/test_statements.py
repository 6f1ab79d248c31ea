"""Statements through ``spark.sql``: those of Fluvial's SQL, with Spark's errors and the plans of ``engine.sql``."""

import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import engine
from engine import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.runtime.spark_internals import jvm_frame
from filestore.snapshot.snapshot import CHANGES_KEY
from lsm.errors import InvalidInputError
from tests.engine.dialect.test_reference import blocks, shown

KINDS = ("FileScan parquet", "MapInArrow")
IDS = re.compile(r"#\d+L?|\[plan_id=\d+\]|fluvial_\w+|file:\S+")


def plan(frame: DataFrame) -> str:
    """The physical plan without what differs between two runs of one statement."""
    return IDS.sub("", jvm_frame(frame).queryExecution().executedPlan().toString())


@pytest.mark.long
@pytest.mark.sweep
def test_the_page_of_statements_runs_in_sparks_own_sql(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, 1: every statement of docs/sql.md gives through ``spark.sql`` what the page says."""
    session = spark.newSession()
    engine.install(session, Catalog(str(tmp_path)))
    try:
        session.sql("USE fluvial")
        checked = 0
        for text, expected in blocks():
            rows = [session.sql(each.text).toArrow() for each in parse_statements(text)]
            if expected:
                assert shown(rows[-1]) == expected, text
                checked += 1
        assert checked > 15
    finally:
        engine.uninstall(session)


def test_a_compacted_table_is_read_by_sparks_own_scan(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 1: the plans of ``spark.sql`` are those of ``engine.sql``."""
    spark.sql("CREATE TABLE fluvial.shop.plain (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '1')")
    spark.sql("INSERT INTO fluvial.shop.plain SELECT id FROM range(5)")
    spark.sql("ALTER TABLE fluvial.shop.plain COMPACT")
    text = "SELECT id FROM {}shop.plain WHERE id > 2"
    ours = plan(spark.sql(text.format("fluvial.")))
    assert "FileScan parquet" in ours
    assert ours == plan(engine.sql(spark, text.format(""), shop))
    by_name = spark.table("fluvial.shop.plain").where("id > 2")
    assert "ParquetScan" in plan(by_name)
    assert sorted(row.id for row in by_name.collect()) == [3, 4]
    assert spark.table("fluvial.shop.plain").count() == 5


def test_of_a_partly_compacted_table_only_keys_in_two_files_are_merged(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 1: files whose keys no other file has stay with Spark's scan, which gets the conditions."""
    spark.sql("CREATE TABLE fluvial.shop.partly (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    for least in (0, 10, 20):
        spark.sql(f"INSERT INTO fluvial.shop.partly SELECT id, 'old' FROM range({least}, {least + 10})")
    spark.sql("UPDATE fluvial.shop.partly SET v = 'new' WHERE id = 15")
    expected = {number: "new" if number == 15 else "old" for number in range(30)}
    whole = spark.sql("SELECT id, v FROM fluvial.shop.partly")
    assert {"FileScan parquet", "MapInArrow"} <= {each for each in KINDS if each in plan(whole)}
    assert len(whole.inputFiles()) == 2
    assert (
        dict(map(tuple, whole.collect())) == dict(map(tuple, spark.table("fluvial.shop.partly").collect())) == expected
    )
    for condition, kinds in (
        ("id = 3", {"FileScan parquet"}),
        ("id = 15", {"MapInArrow"}),
        ("id > 8 AND v = 'old'", {"FileScan parquet", "MapInArrow"}),
        ("id = 77", set()),
    ):
        found = spark.sql(f"SELECT id, v FROM fluvial.shop.partly WHERE {condition}")
        assert {each for each in KINDS if each in plan(found)} == kinds
        rows = dict(map(tuple, found.collect()))
        assert rows == dict(map(tuple, spark.table("fluvial.shop.partly").where(condition).collect()))
        assert rows.items() <= expected.items()
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,3)]" in plan(
        spark.sql("SELECT v FROM fluvial.shop.partly WHERE id = 3")
    )


def test_parameters_are_put_in(spark: SparkSession, shop: Catalog) -> None:
    named = spark.sql("SELECT v FROM fluvial.shop.t WHERE id = :id", {"id": 2})
    assert [tuple(row) for row in named.collect()] == [("z",)]
    immediate = "EXECUTE IMMEDIATE 'SELECT v FROM fluvial.shop.t WHERE id = {}' USING 2{}"
    for mark, name in (("?", ""), (":id", " AS id")):
        assert [tuple(row) for row in spark.sql(immediate.format(mark, name)).collect()] == [("z",)]
    spark.sql("CREATE TABLE fluvial.shop.few (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '1')")
    spark.sql("INSERT INTO fluvial.shop.few VALUES (1), (2)")
    (done,) = spark.sql("DELETE FROM fluvial.shop.few WHERE id = ?", [1]).collect()
    assert (done.rows_inserted, done.rows_deleted) == (0, 1)


def test_explain_runs_nothing(spark: SparkSession, shop: Catalog) -> None:
    before = shop.table("shop.t").latest_snapshot()
    spark.sql("EXPLAIN DELETE FROM fluvial.shop.t").collect()
    spark.sql("EXPLAIN SELECT * FROM fluvial.shop.t").collect()
    assert shop.table("shop.t").latest_snapshot() == before


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("SELECT * FROM fluvial.shop.nothing", AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
        ("INSERT INTO fluvial.shop.nothing VALUES (1)", AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
        (
            "SELECT * FROM fluvial.shop.tt",
            AnalysisException,
            "`fluvial`.`shop`.`tt` (did you mean t?) cannot be found",
        ),
        ("INSERT INTO fluvial.shop.tt VALUES (1)", AnalysisException, "(did you mean t?) cannot be found"),
        ("SELECT * FROM fluvial.shp.t", AnalysisException, "(did you mean shop?) cannot be found"),
        ("DELETE FROM fluvial.shop.tt", AnalysisException, "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SHOW TABLES IN fluvial.shp", AnalysisException, "SCHEMA_NOT_FOUND"),
        ("DESCRIBE DATABASE fluvial.shp", AnalysisException, "SCHEMA_NOT_FOUND"),
        ("DROP DATABASE fluvial.shp", AnalysisException, "SCHEMA_NOT_FOUND"),
        (
            "CREATE TABLE fluvial.shop.other (id INT) USING delta",
            IllegalArgumentException,
            "tables of this catalog are Fluvial's: catalog=fluvial format=delta fix='leave USING",
        ),
        (
            "CREATE TABLE fluvial.shop.other (id INT) LOCATION '/elsewhere'",
            IllegalArgumentException,
            "tables of this catalog are in its warehouse: location=file:/elsewhere",
        ),
        ("SELECT idd FROM fluvial.shop.t", AnalysisException, "Did you mean one of the following? [`id`"),
        ("SELEC 1 FROM fluvial.shop.t", ParseException, "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM fluvial.shop.t VERSION AS OF 99", IllegalArgumentException, "snapshot"),
        ("UPDATE fluvial.shop.t SET idd = 1", IllegalArgumentException, "idd"),
        ("CALL fluvial.sys.create_tagg('t')", IllegalArgumentException, "did_you_mean=sys.create_tag"),
    ],
)
def test_errors_are_sparks(spark: SparkSession, shop: Catalog, text: str, kind: type[Exception], words: str) -> None:
    """Issue 19, 1: Spark's own class of error where Spark has one, and Fluvial's message otherwise."""
    with pytest.raises(kind) as raised:
        spark.sql(text).collect()
    assert words in str(raised.value)


HIDDEN = "/*+ OPTIONS('change-tracking'='false') */"


def test_a_hint_of_options_counts_or_is_refused_in_both_doors(spark: SparkSession, shop: Catalog) -> None:
    """FL-34: INSERT takes it where the founding document writes it; no statement passes over one."""
    spark.sql("CREATE TABLE fluvial.shop.hinted (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    table = shop.table("shop.hinted")

    def through_spark(text: str) -> None:
        spark.sql(text.replace("@", "fluvial.shop.hinted")).collect()

    def through_engine(text: str) -> None:
        engine.sql(spark, text.replace("@", "shop.hinted"), shop).collect()

    for run in (through_spark, through_engine):
        for text in (
            f"INSERT OVERWRITE {HIDDEN} @ VALUES (3, 'a')",
            f"INSERT INTO {HIDDEN} TABLE @ SELECT 4, 'b'",
            f"INSERT INTO @ {HIDDEN} VALUES (5, 'c')",
        ):
            run(text)
            snapshot = table.latest_snapshot()
            assert snapshot is not None
            assert snapshot.properties[CHANGES_KEY] == "none", text
        last = table.latest_snapshot()
        unknown = "/*+ OPTIONS('no.such'='1') */"
        for text, words in (
            (f"INSERT {HIDDEN} INTO @ VALUES (6, 'x')", "no table takes this hint"),
            (f"INSERT INTO @ VALUES (6, 'x') {HIDDEN}", "no table takes this hint"),
            (f"{HIDDEN} DELETE FROM @", "no table takes this hint"),
            (f"UPDATE {HIDDEN} @ SET v = 'x'", "no table takes this hint"),
            (f"SELECT {HIDDEN} * FROM @", "no table takes this hint"),
            (f"INSERT INTO {unknown} @ VALUES (6, 'x')", "no.such"),
            (f"UPDATE @ {unknown} SET v = 'x'", "no.such"),
            (f"DELETE FROM @ {unknown}", "no.such"),
            (f"MERGE INTO @ {unknown} AS a USING @ AS b ON a.id = b.id WHEN MATCHED THEN DELETE", "no.such"),
            (f"MERGE INTO @ a USING @ {HIDDEN} b ON a.id = b.id WHEN MATCHED THEN DELETE", "change-tracking"),
            (f"SELECT * FROM @ {unknown}", "no.such"),
            (f"SELECT * FROM @ {HIDDEN}", "change-tracking"),
            (f"CREATE TABLE @_2 AS SELECT * FROM @ {unknown}", "no.such"),
        ):
            with pytest.raises((PySparkException, InvalidInputError)) as caught:
                run(text)
            assert words in str(caught.value), text
        assert table.latest_snapshot() == last
