"""Statements through ``spark.sql``: those of Fluvial's SQL, with Spark's errors and the plans of ``engine.sql``."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import engine
from engine import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.spark_internals.session import jvm_frame
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
    """Issue 19, 1: every statement of docs/sql.md gives through ``spark.sql`` what the page says.

    DESCRIBE there is Spark's own, see ``test_describe.py``.
    """
    session = spark.newSession()
    engine.install(session, Catalog(str(tmp_path)))
    try:
        session.sql("USE fluvial")
        checked = 0
        for text, expected in blocks():
            statements = parse_statements(text)
            rows = [session.sql(each.text).toArrow() for each in statements]
            if expected and not statements[-1].text.startswith("DESCRIBE"):
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


def test_frames_name_the_files_that_they_read(spark: SparkSession, shop: Catalog) -> None:
    """Spark's ``inputFiles`` asks only tables of its own classes; ``input_file_name()`` is right through each door."""
    table = "fluvial.shop.files_named"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, v STRING)")
    for number in (1, 2):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, 'a')")
    files = {row.file_path.rpartition("/")[2] for row in spark.sql(f"SELECT file_path FROM {table}$files").collect()}
    assert len(files) == 2
    doors = {"sql": spark.sql(f"SELECT * FROM {table}"), "name": spark.table(table), "one": spark.table(table)}
    doors["one"] = doors["one"].where("id = 1")
    for door, frame in doors.items():
        found = {row[0].rpartition("/")[2] for row in frame.select(F.input_file_name()).collect()}
        assert found <= files, door
        assert len(found) == (1 if door == "one" else 2), door
        assert {each.rpartition("/")[2] for each in frame.inputFiles()} == (files if door == "sql" else set()), door


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
            "or where its opener allows it: option=path value=/elsewhere path=/elsewhere",
        ),
        ("SELECT idd FROM fluvial.shop.t", AnalysisException, "Did you mean one of the following? [`id`"),
        ("SELEC 1 FROM fluvial.shop.t", ParseException, "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM fluvial.shop.t VERSION AS OF 99", IllegalArgumentException, "snapshot"),
        ("UPDATE fluvial.shop.t SET idd = 1", AnalysisException, "did_you_mean=id"),
        ("CREATE CATALOG other WITH ('type' = 'paimon')", ParseException, "fluvial.install(spark, fluvial.Catalog("),
        (
            "CREATE TEMP VIEW hinted AS SELECT * FROM fluvial.shop.t x /*+ OPTIONS('scan.snapshot-id'='1') */",
            ParseException,
            "no table takes this hint",
        ),
        ("DROP TEMPORARY TABLE fluvial.shop.t", ParseException, "DROP VIEW a temporary view"),
        ("SELECT * FROM fluvial.shop.t$tags VERSION AS OF 1", ParseException, "without versions"),
        (
            "SELECT * FROM fluvial.paimon.job_startup /*+ OPTIONS('scan.snapshot-id'='1') */",
            ParseException,
            "without versions",
        ),
        ("CALL fluvial.sys.create_tagg('t')", IllegalArgumentException, "did_you_mean=sys.create_tag"),
    ],
)
def test_errors_are_sparks(spark: SparkSession, shop: Catalog, text: str, kind: type[Exception], words: str) -> None:
    """Issue 19, 1: Spark's own class of error where Spark has one, and Fluvial's message otherwise."""
    with pytest.raises(kind) as raised:
        spark.sql(text).collect()
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO sourced SELECT id FROM sources",
        "INSERT INTO sourced SELECT id FROM nowhere",
        "CREATE TABLE made AS SELECT id FROM nowhere",
        "CREATE OR REPLACE TABLE sourced AS WITH q AS (SELECT id FROM nowhere) SELECT * FROM q",
        "DELETE FROM sourced WHERE id IN (SELECT id FROM nowhere)",
        "UPDATE sourced SET id = (SELECT max(id) FROM nowhere)",
        "MERGE INTO sourced USING nowhere ON sourced.id = nowhere.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_source_that_is_not_there_is_sparks_error(spark: SparkSession, shop: Catalog, text: str) -> None:
    """``except AnalysisException`` works for commands as for queries; names of views and WITH queries are known."""
    session = spark.newSession()
    session.sql("USE fluvial.shop")
    session.sql("CREATE OR REPLACE TABLE sourced (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '1')")
    with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND.*(nowhere|sources)"):
        session.sql(text).collect()
    session.sql("CREATE TEMPORARY VIEW seen AS SELECT 7L AS id")
    session.sql(
        "WITH named AS (SELECT * FROM seen) INSERT INTO sourced SELECT n.id FROM named AS n JOIN seen USING (id)"
    )
    assert session.table("sourced").collect() == [(7,)]


def test_a_catalog_is_used_by_that_word(spark: SparkSession, shop: Catalog) -> None:
    """LN-07: ``USE CATALOG`` as the document writes it; Spark has ``USE`` and ``SET CATALOG``."""
    before = spark.catalog.currentCatalog()
    try:
        spark.sql("USE CATALOG fluvial;")
        assert spark.catalog.currentCatalog() == "fluvial"
        assert {row.key for row in spark.sql("SELECT * FROM paimon.catalog_options;").collect()} >= {"table-lineage"}
    finally:
        spark.catalog.setCurrentCatalog(before)


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


def listed(spark: SparkSession, text: str) -> list[str]:
    """The second column of a list of tables, or the only one of a list of databases."""
    return [row[-2 if len(row) > 1 else 0] for row in spark.sql(text).collect()]


def test_the_databases_that_every_catalog_has_are_listed_and_used(spark: SparkSession, tmp_path: Path) -> None:
    """LN-10, LN-11, LN-66: ``paimon`` and ``sys`` are databases as any other, and their tables are only read."""
    session = spark.newSession()
    engine.install(session, Catalog(str(tmp_path), options={"table-lineage": "true"}), name="lined")
    try:
        session.sql("CREATE DATABASE lined.d")
        for text in ("SHOW DATABASES IN lined", "SHOW NAMESPACES IN lined LIKE '*'"):
            assert listed(session, text) == ["d", "paimon", "sys"]
        assert {"job_startup", "catalog_options"} <= {*listed(session, "SHOW TABLES IN lined.paimon")}
        assert listed(session, "SHOW TABLES IN lined.sys LIKE '*options'") == ["all_table_options", "catalog_options"]
        for name, count in (("paimon.job_startup", 0), ("sys.all_table_options", 0)):
            database, _, table = name.partition(".")
            session.sql(f"USE lined.{database}")
            assert table in listed(session, "SHOW TABLES")
            assert session.sql(f"SELECT * FROM {table}").count() == session.table(table).count() == count
            assert session.catalog.currentDatabase() == database
            assert session.catalog.databaseExists(database)
            assert table in [each.name for each in session.catalog.listTables(database)]
        assert listed(session, "SHOW DATABASES") == ["d", "paimon", "sys"]
        described = session.sql("DESCRIBE DATABASE paimon").collect()
        assert ("Namespace Name", "paimon") in [tuple(each) for each in described]
        for text in (
            "ALTER TABLE paimon.job_startup ADD COLUMN x INT",
            "ALTER TABLE paimon.job_startup SET ('a' = 'b')",
            "ALTER TABLE paimon.job_startup RENAME TO paimon.other",
            "COMMENT ON TABLE paimon.job_startup IS 'x'",
            "INSERT INTO paimon.job_startup VALUES ('a', 'b', 'c', 1)",
            "UPDATE paimon.job_startup SET job = 'x'",
            "DELETE FROM paimon.job_startup",
            "DROP TABLE paimon.job_startup",
        ):
            with pytest.raises(IllegalArgumentException, match=r"system tables? (is|are) (only read|read only): name="):
                session.sql(text).collect()
        for text in ("DROP DATABASE paimon CASCADE", "DROP DATABASE sys CASCADE"):
            with pytest.raises(IllegalArgumentException, match="every catalog has them"):
                session.sql(text)
    finally:
        engine.uninstall(session, name="lined")


def test_settings_in_quotes_are_taken_as_they_are_written_elsewhere(spark: SparkSession, shop: Catalog) -> None:
    """LN-12: ``SET 'pipeline.name' = 'job1'``; what no session has is refused by name."""
    session = spark.newSession()
    shown = session.sql("SET 'pipeline.name'='job1'").collect()
    assert [tuple(each) for each in shown] == [("pipeline.name", "job1")]
    assert session.conf.get("pipeline.name") == "job1"
    assert session.sql("set 'pipeline.name'").collect()[0].value == "job1"
    session.sql("RESET 'pipeline.name'")
    assert session.conf.get("pipeline.name", "none") == "none"
    session.sql("SET 'spark.sql.shuffle.partitions' = '3'")
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert session.sql("SET 'execution.runtime-mode' = 'batch'").collect()[0].value == "batch"
    for text, words in (
        ("SET 'execution.runtime-mode' = 'streaming'", "start a stream by readStream"),
        ("SET 'sql-client.execution.result-mode' = 'tableau'", "no setting of a session"),
    ):
        with pytest.raises(IllegalArgumentException, match=words):
            session.sql(text)


def test_a_version_needs_no_quotes(spark: SparkSession, shop: Catalog) -> None:
    """BR-38, BR-39, TAG-07: a branch, a tag and a snapshot as the documents of branches and tags write them."""
    spark.sql("CREATE TABLE fluvial.shop.bare (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('bucket' = '1')")
    spark.sql("INSERT INTO fluvial.shop.bare VALUES (1)")
    spark.sql("CALL fluvial.sys.create_tag(table => 'shop.bare', tag => 'tag-1')")
    spark.sql("CALL fluvial.sys.create_branch(table => 'shop.bare', branch => 'branch-1', tag => 'tag-1')")
    spark.sql("INSERT INTO fluvial.shop.bare VALUES (2)")
    spark.sql("INSERT INTO fluvial.shop.`bare$branch_branch-1` VALUES (3), (4)")
    counts = {"tag-1": 1, "branch-1.tag-1": 1, "branch-1.2": 3, "branch-1.latest": 3, "latest": 2, "1": 1}
    for version, count in counts.items():
        for quote in ("", "'"):
            text = f"SELECT * FROM fluvial.shop.bare FOR VERSION AS OF {quote}{version}{quote}"
            assert spark.sql(text).count() == count, text
    with pytest.raises(PySparkException, match=r"write branch-1\.latest for its newest state"):
        spark.sql("SELECT * FROM fluvial.shop.bare VERSION AS OF branch-1")


def test_texts_that_spark_keeps_take_options_and_versions(spark: SparkSession, shop: Catalog) -> None:
    """FL-34, BR-38, TAG-07: a view, a kept table, a variable, a script and a stream read what their text says."""
    table = shop.create_table("shop.kept", pa.schema([("id", pa.int64())]), options={"bucket": "1", "bucket-key": "id"})
    table.write(pa.table({"id": [1]}))
    table.tags.create("tag-1")
    table.branches.create("branch-1", tag="tag-1")
    table.write(pa.table({"id": [2]}))
    name, hint = "fluvial.shop.kept", "/*+ OPTIONS('scan.snapshot-id'='1') */"
    before = {"VERSION AS OF branch-1.tag-1", "VERSION AS OF tag-1", hint, f"{hint} -- c\n {hint}"}
    for number, place in enumerate(sorted(before)):
        query = f"SELECT id FROM {name} {place}"
        spark.sql(f"CREATE TEMPORARY VIEW kept_{number} AS {query}")
        spark.sql(f"CACHE TABLE kept_rows_{number} AS {query}")
        for view in ("kept", "kept_rows"):
            assert [row[0] for row in spark.table(f"{view}_{number}").collect()] == [1], place
        assert [row[0] for row in spark.sql(f"BEGIN {query}; END").collect()] == [1], place
        assert spark.sql("SELECT :a + count(*) FROM kept_0 WHERE 'version' <> ''", args={"a": 1}).first() == (2,)
    tracked = table.latest_snapshot()
    spark.sql(f"BEGIN INSERT INTO {HIDDEN} {name} VALUES (3); END")
    hidden = table.latest_snapshot()
    assert hidden is not None
    assert tracked is not None
    assert hidden.id == tracked.id + 1
    assert hidden.properties[CHANGES_KEY] == "none"
    for opened in (f"STREAM {name}", f"STREAM({name})"):
        mode = "/*+ OPTIONS('scan.mode'='from-snapshot', 'scan.snapshot-id'='2') */"
        query = (
            spark.sql(f"SELECT id FROM {opened} {mode}").writeStream.format("memory").queryName("kept_stream").start()
        )
        query.processAllAvailable()
        query.stop()
        assert [row[0] for row in spark.table("kept_stream").collect()] == [2]
        spark.catalog.dropTempView("kept_stream")
    spark.sql(f"CREATE TEMPORARY VIEW wrong AS SELECT * FROM {name} /*+ OPTIONS('no.such'='1') */")
    with pytest.raises(PySparkException, match=r"unknown read option: no\.such"):
        spark.table("wrong").collect()
