"""The statements of the founding documents, in their own words, through ``spark.sql``, ``engine.sql`` and the shell.

The words are those of ``tests/requirements.tsv``; where they leave a name open, the test puts one in.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import engine
from engine import Catalog
from tests.support.requirements import as_written

pytestmark = pytest.mark.sweep
Fluvial = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Door:
    """One way in for statements, to a catalog of its own whose current database is ``default``."""

    catalog: Catalog
    run: Callable[[str], DataFrame]

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.run(text).collect()), key=repr)

    def ids(self, text: str) -> list[int]:
        return [row[0] for row in self.rows(text)]


@pytest.fixture(scope="module", params=["spark.sql", "engine.sql"])
def door(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Door]:
    catalog = Catalog(str(tmp_path_factory.mktemp("documents")), options={"data-lineage": "true"})
    catalog.create_database("default")
    session = spark.newSession()
    if request.param == "engine.sql":
        yield Door(catalog, lambda text: engine.sql(session, text, catalog))
        return
    engine.install(session, catalog)
    session.sql("USE fluvial.default")
    yield Door(catalog, session.sql)
    engine.uninstall(session)


@pytest.fixture(scope="module")
def versions(door: Door) -> Door:
    """``t`` has a row more in each snapshot, a tag and a branch of its first, and a savepoint of its second."""
    door.run("CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED)")
    door.run("INSERT INTO t VALUES (1)")
    table = door.catalog.table("default.t")
    table.tags.create("tag-name")
    table.branches.create("branch-name", tag="tag-name")
    table.branches.open("branch-name").write(pa.table({"id": [9]}))
    door.run("INSERT INTO t VALUES (2)")
    table.savepoints.create()
    door.run("INSERT INTO t VALUES (3)")
    return door


def test_a_query_travels_as_the_documents_write_it(versions: Door) -> None:
    """TAG-06, TAG-07, TAG-11, TAG-12, TAG-16 to TAG-19, BR-38 to BR-40, BR-42."""
    travels = as_written("TAG-06").removesuffix("1")
    asked = {
        as_written("TAG-06"): [1],
        f"{travels}tag-name": [1],
        f"{travels}'tag-name'": [1],
        as_written("TAG-11", name="tag-name"): [1],
        "SELECT * FROM t /*+ OPTIONS('scan.snapshot-id'='1') */": [1],
        "SELECT * FROM t /*+ OPTIONS('scan.savepoint-id'='1') */": [1, 2],
        f"{travels}snapshot.1": [1],
        f"{travels}savepoint.1": [1, 2],
        as_written("BR-38"): [1],
        as_written("BR-39").replace(".snapshot", ".2"): [1, 9],
        as_written("BR-42", branch_name="branch-name"): [1, 9],
        "SELECT * FROM t": [1, 2, 3],
    }
    assert {text: versions.ids(text) for text in asked} == asked


def test_a_table_is_made_and_written_as_the_documents_write_it(door: Door) -> None:
    """FL-07 to FL-16, FL-28 to FL-31, FL-34: the whole grammar; a hidden change is marked in its commit."""
    hidden = re.findall(r"/\*\+.*?\*/", as_written("FL-34"))[0]
    door.run(
        "CREATE TABLE IF NOT EXISTS fluvial.default.orders (k BIGINT COMMENT 'key', dt STRING, ts TIMESTAMP(3), "
        "more AS k + 1 COMMENT 'one more', WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, "
        "CONSTRAINT pk PRIMARY KEY (k, dt) NOT ENFORCED) COMMENT 'a table' PARTITIONED BY (dt) "
        + as_written("FL-16").strip("[]")
    )
    table = door.catalog.table("default.orders")
    assert (table.schema.primary_keys, table.schema.partition_keys, table.options.change_tracking) == (
        ("k", "dt"), ("dt",), False
    )  # fmt: skip
    door.run("ALTER TABLE orders SET ('change-tracking' = 'true')")
    door.run("INSERT INTO fluvial.default.orders PARTITION (dt='a') (k, ts) SELECT 1, TIMESTAMP '2026-01-01 00:00:00';")
    door.run("INSERT INTO orders PARTITION (dt) (k, dt) SELECT 2, 'b'")
    door.run("INSERT OVERWRITE orders PARTITION (dt='a') (k) SELECT 3")
    assert door.rows("SELECT k, dt, more FROM orders") == [(2, "b", 3), (3, "a", 4)]
    for words, key in (("INTO", 4), ("OVERWRITE", 5)):
        before = table.latest_snapshot()
        door.run(f"INSERT {words} {hidden} orders PARTITION (dt='a') (k) SELECT {key}")
        written = table.latest_snapshot()
        assert written is not None
        assert before is not None
        assert (written.id, written.properties["fluvial.changes"]) == (before.id + 1, "none")
    assert door.rows("SELECT k, dt FROM orders") == [(2, "b"), (5, "a")]


def test_a_table_is_changed_and_shown_as_the_documents_write_it(door: Door) -> None:
    """FL-19 to FL-23, FL-35 to FL-52, FL-103, FL-104."""
    door.run("CREATE TABLE days (k BIGINT, dt STRING, PRIMARY KEY (k, dt) NOT ENFORCED) PARTITIONED BY (dt)")
    for key in (1, 2):
        door.run(f"INSERT INTO days VALUES ({key}, 'a'), ({key}, 'b'), ({key}, 'c')")
    door.run("ALTER TABLE fluvial.default.days PARTITION (dt='a') COMPACT")
    door.run("ALTER TABLE days PARTITION (dt='b') SET 'change-tracking' = 'false'")
    shown = {
        part: dict(
            row[:2] for row in door.rows(f"DESCRIBE TABLE EXTENDED fluvial.default.days PARTITION (dt='{part}')")
        )
        for part in "ab"
    }
    wanted = ("partition", "compacted", "change-tracking", "num-files")
    assert [shown["a"][each] for each in wanted] == ["dt=a", "true", "true", "1"]
    assert [shown["b"][each] for each in wanted] == ["dt=b", "false", "false", "2"]
    whole = dict(row[:2] for row in door.rows("DESCRIBE TABLE EXTENDED fluvial.default.days"))
    name = "Name" if "Name" in whole else "name"  # Spark's own, or the document's
    assert (whole[name], whole["bucket"], whole["file.format"]) == ("fluvial.default.days", "1", "parquet")
    assert whole["file.path"].endswith("/default.db/days")
    door.run("ALTER TABLE days SET 'change-tracking' = 'false'")
    door.run("ALTER TABLE days DROP PARTITION (dt='a')")
    door.run("DELETE FROM days WHERE dt = 'b'")
    assert door.rows("SELECT * FROM days") == [(1, "c"), (2, "c")]
    with pytest.raises(Exception, match="there are no temporary tables"):
        door.run("DROP TEMPORARY TABLE days")
    door.run("DROP TABLE IF EXISTS fluvial.default.days")
    assert not door.catalog.table_exists("default.days")
    door.run("DROP TABLE IF EXISTS fluvial.default.days")


def test_settings_are_given_as_the_documents_write_them(door: Door) -> None:
    """FL-24, FL-27, FL-68, FL-69, FL-83, LN-07, LN-12."""
    setting, create = as_written("FL-83").split("; ")
    door.run(setting)
    door.run(create.replace("...", "ten (id BIGINT PRIMARY KEY NOT ENFORCED)"))
    door.run("RESET 'table-storage.bucket'")
    assert door.catalog.table("default.ten").options.bucket == 10
    door.run("SET table-storage.log.scan.startup.mode = latest-offset")
    assert door.rows("SET table-storage.log.scan") == [("table-storage.log.scan", "latest")]
    door.run("RESET table-storage.log.scan")
    door.run("SET 'execution.runtime-mode' = 'batch';")
    for refused, fix in (
        (as_written("FL-24").split("; ")[0], "start a stream by readStream"),
        ("CREATE CATALOG my_catalog WITH ('type' = 'paimon', 'table-lineage' = 'true');", "fluvial.install"),
    ):
        with pytest.raises(Exception, match=re.escape(fix)):
            door.run(refused)


def test_lineage_is_asked_for_as_the_document_writes_it(door: Door) -> None:
    """LN-11, LN-12, LN-26 to LN-34, LN-66: the words of the document, with its names."""
    assert {row[0] for row in door.rows(as_written("LN-11"))} >= {"table-lineage", "data-lineage"}
    door.run("CREATE TABLE word_table (word STRING);")
    door.run("CREATE TABLE word_count_table (word STRING PRIMARY KEY NOT ENFORCED, cnt BIGINT);")
    door.run("INSERT INTO word_table VALUES ('x')")
    door.run("INSERT INTO word_table VALUES ('y'), ('x')")
    door.run(as_written("LN-12"))
    door.run("INSERT INTO word_count_table SELECT word, count(*) FROM word_table GROUP BY word;")
    door.run(as_written("LN-31"))
    door.run(as_written("LN-32").replace("'5'", "'1'"))
    assert door.rows(as_written("LN-33").replace("'7'", "'1'")) == [("x", 1, "x", 2), (None, None, "y", 1)]
    door.run("USE paimon")
    try:
        names = {"myDatabase": "default", "myTable": "word_count_table", "=123": "=1"}
        read = {**names, "myTable": "word_table", "=123": "=2"}
        assert door.rows(filled(as_written("LN-26"), names)) == [("default", "word_table")]
        assert ("default", "word_count_table") in door.rows(filled(as_written("LN-27"), read))
        assert door.rows(filled(as_written("LN-28"), names)) == [("default", "word_table", 2)]
        for number, wrong in (("LN-29", "source_job_lineage"), ("LN-30", "_job_lineage")):
            text = filled(as_written(number), {**read, "catalog1": "fluvial", "catalog2": "fluvial", "=10": "=2"})
            text = text.replace("job_name", "job1")
            with pytest.raises(Exception, match="barrier_id"):  # the document's slip: these tables have no barriers
                door.run(text).collect()
            right = text.replace("source_job_lineage", "source_snapshot_lineage")
            right = right.replace("sink_job_lineage", "sink_snapshot_lineage")
            assert door.rows(right) in ([("default", "word_count_table", 1)], [(1,)]), wrong
        with pytest.raises(Exception, match="read only"):
            door.run("DELETE FROM sink_job_lineage")
    finally:
        door.run("USE default")


def filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


ACTIONS = {
    "TAG-26": ({"--name": "eod"}, lambda table: "eod" in [each.name for each in table.tags.list()]),
    "BR-44": (
        {"--name": "fix", "--tag": "eod"},
        lambda table: [each.name for each in table.branches.list()] == ["fix"],
    ),
    "BR-46": ({"--name": "fix"}, lambda table: table.read().to_arrow().num_rows == 2),
    "BR-45": ({"--name": "fix"}, lambda table: table.branches.list() == []),
    "TAG-27": ({"--name": "eod"}, lambda table: table.tags.list() == []),
}


def test_actions_are_run_as_the_documents_write_them(catalog: Catalog, fluvial: Fluvial) -> None:
    """TAG-26, TAG-27, SP-18, BR-44 to BR-47, LN-67, LN-68: the names and options of the tables of actions."""
    table = catalog.create_table("d.t", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}), options={"pipeline.name": "job1"})
    place = ("d.t", "--warehouse", catalog.warehouse)
    for number, (options, is_done) in ACTIONS.items():
        written = as_written(number)
        action = written.partition("--")[0].strip()
        assert all(option.removeprefix("--") in written for option in options)
        if number == "BR-46":
            table.branches.open("fix").write(pa.table({"id": [2]}))
        code, _, error = fluvial(action, *place, *(word for pair in options.items() for word in pair))
        assert (code, is_done(catalog.table("d.t"))) == (0, True), (number, error)
    table.tags.create("eod")
    table.branches.create("next", tag="eod")
    replace = as_written("BR-47").partition(" --")[0]
    assert fluvial(replace, *place, "--name", "next")[0] == 0
    assert catalog.table("d.t").branches.main == "next"
    assert fluvial("create-savepoint", *place)[0] == 0
    delete, _, option = as_written("SP-18").strip("`").partition(" ")
    assert fluvial(delete, *place, option.partition(" ")[0], "1")[0] == 0
    for number in ("LN-67", "LN-68"):
        action, _, _ = as_written(number).partition("--job")
        assert fluvial(action, "--job", "job1", "--warehouse", catalog.warehouse)[0] == 0
