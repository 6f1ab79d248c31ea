"""Lineage of everything else that Spark runs: batches, SQL, and streams of which one end is not ours; and recovery."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table, sink
from engine.dialect.entry import run_text
from engine.lineage.lineage import Lineage
from engine.lineage.recording import lineage_of_table
from engine.procedures import create_branch, impact, recovery_plan, replace_main_branch, rewind_checkpoint
from engine.procedures.recovery import validate_snapshot
from engine.runtime.spark_settings import spark_setting
from lsm.errors import InvalidInputError
from tests.support.rows import row_dicts

pytestmark = pytest.mark.spark

WORDS = pa.schema([("word", pa.string()), ("n", pa.int64())])


def word_table(catalog: Catalog, name: str) -> Table:
    options = {"bucket": "1", "write-only": "true"}
    return catalog.create_table(f"db.{name}", WORDS, primary_key=["word"], options=options)


def load_word(table: Table, word: str, n: int, **options: str) -> None:
    table.write(pa.table({"word": [word], "n": [n]}, schema=WORDS), options={"pipeline.name": "load", **options})


def lineage(table: Table) -> Lineage:
    found = lineage_of_table(table.store)
    assert found is not None
    return found


def stored_lineage(table: Table, job: str) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """What a job has read and written, by the store."""
    meta = lineage(table).meta
    sources = {(each.table, each.snapshot_id) for each in meta.source_data_lineages() if each.job == job}
    return sources, {(each.table, each.snapshot_id) for each in meta.sink_data_lineages() if each.job == job}


def test_batches_and_statements_know_the_snapshots_that_they_read(spark: SparkSession, tmp_path: Path) -> None:
    """LN-01, LN-02, LN-12, LN-32: through frames, SQL, joins and time travel; each job by its name."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    one, two, three = (word_table(catalog, name) for name in ("one", "two", "three"))
    for n in range(3):
        load_word(one, "a", n)
    load_word(two, "a", 1)

    old = one.dataframe(spark, snapshot_id=2)
    frame = old.alias("l").join(two.dataframe(spark).alias("r"), "n", "full")
    three.append(frame.selectExpr("coalesce(l.word, r.word) AS word", "n"), {"pipeline.name": "join"})
    assert stored_lineage(three, "join") == ({("one", 2), ("two", 1)}, {("three", 1)})

    with spark_setting(spark, "pipeline.name", "statements"):
        run_text(spark, "INSERT INTO db.three SELECT word, n FROM db.one VERSION AS OF 1 WHERE n >= 0", catalog, {})
        run_text(
            spark,
            "MERGE INTO db.three t USING db.two s ON t.word = s.word WHEN MATCHED THEN UPDATE SET n = 9",
            catalog,
            {},
        )
    assert stored_lineage(three, "statements") == ({("one", 1), ("two", 1)}, {("three", 2), ("three", 3)})


def test_statements_of_one_session_invent_no_ancestors(spark: SparkSession, tmp_path: Path) -> None:
    """LN-01, LN-26; lineage.md 3: two statements without a name are two jobs, of one session and one application."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    for name in ("one", "two", "three", "four"):
        load_word(word_table(catalog, name), "a", 1)
    for source, target in (("one", "three"), ("two", "four")):
        run_text(spark, f"INSERT INTO db.{target} SELECT word, n + 1 FROM db.{source}", catalog, {})
    rows = catalog.system_table("paimon.upstream_tables").to_arrow(filter="database = 'db'").to_pylist()
    assert {(row["table"], row["upstream_table"]) for row in rows} == {("three", "one"), ("four", "two")}


def loaded(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    """A table by ``spark.read``, which nothing of ours sees but its Python source."""
    warehouse = str(Path(table.store.paths.root).parents[1])
    return spark.read.format("fluvial").options(warehouse=warehouse, table=table.name, **options).load()


def test_a_batch_write_knows_what_spark_loaded(spark: SparkSession, tmp_path: Path) -> None:
    """LN-01, LN-12: of ``spark.read.format("fluvial")``, the snapshot that Spark planned, whatever is written
    meanwhile; through views, joins, subqueries and caches; where no file may match, too. No table is its own source.
    """
    catalog = Catalog(str(tmp_path / "warehouse"))
    one, two, three = (word_table(catalog, name) for name in ("one", "two", "three"))
    for n in range(3):
        load_word(one, "a", n)
    load_word(two, "a", 1)

    def reads(job: str, frame: DataFrame) -> set[tuple[str, int]]:
        three.append(frame, {"pipeline.name": job})
        return stored_lineage(three, job)[0]

    assert reads("named", loaded(spark, one, **{"scan.snapshot-id": "2"})) == {("one", 2)}
    old = loaded(spark, one)
    assert old.count() == 1
    old.createOrReplaceTempView("old")
    load_word(one, "b", 1)
    assert reads("view", spark.table("old")) == {("one", 3)}
    assert reads("again", loaded(spark, one)) == {("one", 4)}
    joined = old.groupBy("n").count().join(loaded(spark, two), "n", "full").selectExpr("'j' AS word", "n")
    assert reads("join", joined) == {("one", 3), ("two", 1)}
    loaded(spark, two).createOrReplaceTempView("two")
    nested = spark.sql("SELECT 's' AS word, (SELECT max(n) FROM two) AS n FROM old WHERE n IN (SELECT n FROM old)")
    assert reads("nested", nested) == {("one", 3), ("two", 1)}
    cached = loaded(spark, one).cache()
    assert cached.count() == 2
    assert reads("cached", cached.limit(1)) == {("one", 4)}
    cached.unpersist()
    nothing = loaded(spark, one, filter="word = 'none'").selectExpr("'none' AS word", "count(*) AS n")
    assert reads("nothing", nothing) == {("one", 4)}
    assert reads("itself", loaded(spark, three)) == set()


@pytest.mark.long
def test_a_stream_knows_the_tables_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    """LN-12, LN-13: joined to the stream, where its tasks tell, and joined in ``foreachBatch``, where the sink does."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    one, two, three = (word_table(catalog, name) for name in ("one", "two", "three"))
    for n in range(2):
        load_word(one, "a", n)
        load_word(two, "a", n)
    options = {"warehouse": catalog.warehouse, "table": "db.one", "read.changelog": "true"}
    stream = spark.readStream.format("fluvial").options(**options).load().select("word", "n")
    write_three = sink(three)

    def enriched(frame: DataFrame, other: DataFrame) -> DataFrame:
        return frame.join(other.select("word", "n"), ["word", "n"], "left").select("word", "n")

    beside = loaded(spark, two)
    jobs = {
        "stream": enriched(stream, beside).writeStream.foreachBatch(sink(three)),
        "format": enriched(stream, beside)
        .writeStream.format("fluvial")
        .options(warehouse=catalog.warehouse, table="db.three"),
        "batch": stream.writeStream.foreachBatch(
            lambda frame, batch_id: write_three(enriched(frame, two.dataframe(frame.sparkSession)), batch_id)
        ),
        "itself": enriched(stream, loaded(spark, three)).writeStream.foreachBatch(sink(three)),
    }
    for job, writer in jobs.items():
        query = writer.queryName(job).trigger(availableNow=True)
        assert query.option("checkpointLocation", str(tmp_path / job)).start().awaitTermination(120)
    assert {job: stored_lineage(three, job)[0] for job in jobs} == {
        "stream": {("one", 2), ("two", 2)},
        "format": {("one", 2), ("two", 2)},
        "batch": {("one", 2), ("two", 2)},
        "itself": {("one", 2)},
    }


@pytest.mark.long
def test_every_start_of_a_stream_says_where_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    """LN-12 to LN-14, LN-24, LN-71, LN-74: into something else, by the query's name, and into a table of two jobs; a
    table beside the stream, too."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    one, two, beside = (word_table(catalog, name) for name in ("one", "two", "beside"))
    for word in "abc":
        load_word(one, word, 1)
    options = {"warehouse": catalog.warehouse, "table": "db.one", "read.changelog": "true", "scan.snapshot-id": "2"}
    source = spark.readStream.format("fluvial").options(**options).load()
    into_two = {"warehouse": catalog.warehouse, "table": "db.two"}
    for begins_at in (2, 3):  # a new checkpoint, and a restart
        load_word(beside, "a", 1)
        joined = source.join(loaded(spark, beside).select("word"), "word", "left")
        writers = {
            "foreign": joined.writeStream.format("noop"),
            "both": source.writeStream.format("fluvial").options(**into_two),
            "second": source.drop("_row_kind").writeStream.foreachBatch(sink(two)),
        }
        for job, writer in writers.items():
            started = writer.queryName(job).trigger(availableNow=True)
            assert started.option("checkpointLocation", str(tmp_path / job)).start().awaitTermination(120)
        startups = {(each.job, each.table, each.snapshot_id) for each in lineage(one).meta.job_startups()}
        assert startups == {*((job, "one", begins_at) for job in writers), ("foreign", "beside", begins_at - 1)}
        load_word(one, "d", 1)
    reads = {("one", number) for number in (2, 3, 4)}
    beside_it = {("beside", number) for number in (1, 2)}
    assert stored_lineage(one, "foreign") == (reads | beside_it, set())
    assert stored_lineage(two, "both") == (reads, {("two", number) for number in (1, 2, 5)})
    assert stored_lineage(two, "second") == (reads, {("two", number) for number in (3, 4, 6)})
    assert {each.job for each in lineage(one).meta.source_table_lineages()} == {*writers}


def run(spark: SparkSession, path: Path, name: str, tables: tuple[Table, ...], target: Table, **options: str) -> None:
    """A job that adds up the words of its tables, aligned; branches by the option."""
    frame: DataFrame | None = None
    for table in tables:
        reader = spark.readStream.format("fluvial").option("source.checkpoint-align.enabled", "true")
        place = {"warehouse": str(Path(table.store.paths.root).parents[1]), "table": table.name.split("$")[0]}
        branch = {} if table.branch == "main" else {"branch": table.branch}
        each = reader.options(**{"read.changelog": "true", **place, **branch, **options}).load()
        frame = each if frame is None else frame.unionByName(each)
    assert frame is not None
    write = frame.writeStream.foreachBatch(sink(target)).queryName(name).trigger(availableNow=True)
    assert write.option("checkpointLocation", str(path)).start().awaitTermination(120)


def test_an_incremental_recovery_gives_what_a_full_one_gives(spark: SparkSession, tmp_path: Path) -> None:
    """LN-06, LN-35 to LN-41, LN-75: table1 is corrected behind snapshot 2; by branches nothing is copied, the old job
    runs on, and what its steps say is done here as they say it."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    table1, table2, table3 = (word_table(catalog, f"table{number}") for number in (1, 2, 3))
    for word in ("a", "b", "wrong"):
        load_word(table1, word, 1)
    for word in ("x", "y"):
        load_word(table2, word, 2)
    run(spark, tmp_path / "old", "job", (table1, table2), table3, **{"scan.snapshot-id": "1"})
    assert [row["word"] for row in row_dicts(table3, "word")] == ["a", "b", "wrong", "x", "y"]

    hit = impact(table1, 3).to_pylist()
    assert [(row["job"], row["table"], row["snapshot_id"]) for row in hit] == [("job", "db.table3", 3)]
    plan = recovery_plan(table1, 2, incremental=True).to_pylist()
    assert [row["command"] for row in plan] == [
        "fluvial create-branch db.table1 --branch fix --snapshot 2",
        "fluvial sql 'MERGE INTO db.table1$branch_fix ...'",
        "fluvial create-branch db.table3 --branch fix --snapshot 2",
        "fluvial rewind-checkpoint db.table3 --tag branch-fix --checkpoint DIRECTORY --to NEW",
        "spark-submit JOB.py  # pipeline.name=job-fix checkpointLocation=NEW; db.table1: branch=fix; "
        "db.table3: branch=fix",
        "fluvial diff db.table1 latest fix.latest",
        "fluvial diff db.table3 latest fix.latest",
        "fluvial replace-main-branch db.table1 --branch fix",
        "fluvial replace-main-branch db.table3 --branch fix",
    ]
    create_branch(table1, "fix", snapshot=2)
    fixed1 = catalog.table("db.table1", branch="fix")
    load_word(fixed1, "right", 3)
    create_branch(table3, "fix", snapshot=2)
    rewind_checkpoint(table3, "branch-fix", str(tmp_path / "old"), str(tmp_path / "new"))
    fixed3 = catalog.table("db.table3", branch="fix")
    run(spark, tmp_path / "new", "job-fix", (fixed1, table2), fixed3)
    assert [row["word"] for row in row_dicts(fixed3, "word")] == ["a", "b", "right", "x", "y"]

    full = recovery_plan(table1, 2, branch="full").to_pylist()
    assert [row["command"] for row in full if row["what"].startswith(("begin", "start"))] == [
        "fluvial create-branch db.table1 --branch full --snapshot 2",
        "fluvial create-branch db.table3 --branch full",
        "spark-submit JOB.py  # pipeline.name=job-full checkpointLocation=NEW; db.table1: branch=full; "
        "db.table2: scan.mode=from-snapshot-full scan.snapshot-id=2; db.table3: branch=full",
    ]
    create_branch(table3, "full")
    whole3 = catalog.table("db.table3", branch="full")
    run(spark, tmp_path / "whole", "job-full", (fixed1, table2), whole3, **{"scan.mode": "latest-full"})
    assert row_dicts(whole3, "word") == row_dicts(fixed3, "word")
    assert [row["word"] for row in row_dicts(table3, "word")] == ["a", "b", "wrong", "x", "y"]  # until it is published
    replace_main_branch(table3, "fix")
    assert row_dicts(catalog.table("db.table3")) == row_dicts(whole3, "word")
    with pytest.raises(InvalidInputError, match="no barrier that ends at the snapshot"):
        recovery_plan(table2, 5, incremental=True)


def test_a_snapshot_is_validated_by_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """LN-31 to LN-34: by CALL and command, too; a changed query shows how many rows it would change."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    one, two = word_table(catalog, "word_table"), word_table(catalog, "word_count_table")
    for n in range(2):
        load_word(one, f"w{n}", n)
    two.append(one.dataframe(spark).selectExpr("word", "n * 10 AS n"), {"pipeline.name": "job1"})
    load_word(one, "later", 5)
    right = "SELECT word, n * 10 AS n FROM word_table"
    assert validate_snapshot(catalog, "db.word_count_table", 1, right).num_rows == 0
    [row] = validate_snapshot(catalog, "db.word_count_table", 1, right.replace("10", "11")).to_pylist()
    assert (row["job"], row["inserted"], row["deleted"], row["updated"]) == ("job1", 0, 0, 1)
    with pytest.raises(InvalidInputError, match="query failed"):
        validate_snapshot(catalog, "db.word_count_table", 1, "SELECT nothing FROM word_table")
