"""Tables that count their rows behind a log and behind Spark: sink, log, hybrid streams, SQL."""

import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table, sink, sql
from engine.broker.broker import Broker
from engine.deploy.config.table_config import TableConfig
from engine.deploy.pipeline.table_changes import ensure_table, table_differences
from engine.dialect.dml.target import WriteTarget
from engine.dialect.scope.context import SqlContext
from engine.procedures.maintenance.copying import copy
from engine.procedures.maintenance.rewriting import rescale
from engine.procedures.versions.branches import create_branch, merge_branch
from engine.procedures.versions.snapshots import expire_snapshots
from engine.procedures.versions.tags import create_tag
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.logs import changes_by_bucket, visible_ends
from tests.support.streams import Query, query
from tests.support.tails import write_log_only

SCHEMA = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us"))])
ROWS = [
    {"n": 1, "x": 0.5, "s": "a", "t": None},
    {"n": 1, "x": None, "s": "ä" * 9, "t": None},
    {"n": None, "x": -0.0, "s": None, "t": None},
    {"n": 2, "x": 1e300, "s": "", "t": None},
]
Counts = Counter[str]


def word(row: Mapping[str, Any]) -> str:
    return str({name: row[name] for name in SCHEMA.names})


def counted_words(rows: pa.Table) -> Counts:
    return Counter(word(row) for row in rows.to_pylist())


def folded(changes: Iterable[Mapping[str, Any]]) -> Counts:
    """How often each row is there after changes."""
    counts: Counts = Counter()
    for change in changes:
        counts[word(change)] += 1 if change["_row_kind"][0] == "+" else -1
    return Counter({row: count for row, count in counts.items() if count})


def batch(*changes: tuple[str, int]) -> pa.Table:
    """Changes of rows of ROWS, by number."""
    rows = pa.Table.from_pylist([ROWS[number] for _, number in changes], schema=SCHEMA)
    return rows.append_column("_row_kind", pa.array([kind for kind, _ in changes]))


def made(home: Path, name: str = "t", broker: Broker | None = None, **options: str) -> Table:
    log = {} if broker is None else {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    topic = {} if broker is None else {"log.kafka.topic": f"counts-{abs(hash(str(home))) % 10**9}-{name}"}
    texts = {"row-counts": "true", **log, **topic, **options}
    return Catalog(str(home / "warehouse")).create_table(f"db.{name}", SCHEMA, options=texts)


def test_updates_without_what_they_replace_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FL-184: such rows stay, and nothing else shows them. A pair that is cut between two batches is none."""
    table = made(tmp_path)
    table.write(batch(("+I", 0), ("+I", 1)))
    table.write(batch(("-U", 0), ("+U", 2), ("-U", 1), ("+U", 3)))
    table.write(batch(("+U", 0)))
    assert not [each for each in caplog.messages if "updates came" in each]
    table.write(batch(("+U", 1), ("+U", 2), ("+I", 3)))
    [said] = [each for each in caplog.messages if "updates came" in each]
    assert "table=db.t batch=" in said
    assert "updates=2 fix='send -U, too" in said


@pytest.mark.broker
def test_the_log_has_the_rows_as_they_came(tmp_path: Path, broker: Broker) -> None:
    """FL-05, FL-120, FL-121, FL-122, FL-124: one partition a bucket, null keys, debezium-json, every change."""
    table = made(tmp_path, broker=broker, bucket="3")
    history = [("+I", 0), ("+I", 1), ("-U", 0), ("+U", 2), ("+I", 0), ("+I", 0), ("-D", 0), ("+I", 3), ("-D", 3)]
    table.write(batch(*history[:4]))
    table.write(batch(*history[4:]))
    by_bucket = changes_by_bucket(table)
    assert len(by_bucket) > 1
    of_row: dict[str, list[RowKind]] = {}
    for changes in by_bucket.values():
        for kind, row in changes:
            of_row.setdefault(word(row), []).append(kind)
    expected: dict[str, list[RowKind]] = {}
    for kind_text, number in history:
        kind = RowKind.INSERT if kind_text[0] == "+" else RowKind.DELETE
        expected.setdefault(word(ROWS[number]), []).append(kind)
    assert of_row == expected  # all changes of a row in one bucket and in order
    assert table.log is not None
    texts = []
    for bucket, end in visible_ends(table).items():
        whole = LogRange(bucket=bucket, start_offset=0, end_offset=end)
        for records in read_range(table.log.properties, topic=table.log.topic, log_range=whole):
            assert records.column("key").null_count == len(records)
            texts += records.column("value").cast(pa.string()).to_pylist()
    assert '{"before":null,"after":{"n":2,"x":1e+300,"s":"","t":null},"op":"c"}'.replace("1e+300", "1.0E300") in [
        text.replace("1e+300", "1.0E300").replace("1e300", "1.0E300") for text in texts
    ]
    assert {text[-4:] for text in texts} == {'"c"}', '"d"}'}
    assert counted_words(table.read().to_arrow()) == folded(
        [{**ROWS[number], "_row_kind": kind} for kind, number in history]
    )


@pytest.mark.broker
def test_a_hybrid_stream_reads_snapshot_then_log_and_a_union_read_adds_the_tail(tmp_path: Path, broker: Broker) -> None:
    """FL-05, FL-109, FL-184: every change once over restarts, compaction and overwrite; fresh reads sum the same."""
    table = made(tmp_path, broker=broker, bucket="2")
    choice = random.Random(3)

    def some(count: int = 6) -> pa.Table:
        return batch(*[(choice.choice(["+I", "+I", "-D"]), choice.randrange(len(ROWS))) for _ in range(count)])

    written = [some()]
    table.write(written[0])
    table.write(batch(("-D", 3), ("-D", 3), ("-D", 3)))  # more often than it came
    written.append(batch(("-D", 3), ("-D", 3), ("-D", 3)))
    reader: Query = query(table)
    found = reader.available()
    assert folded(found) == folded(row for each in written for row in each.to_pylist())
    for turn in range(4):
        written.append(some())
        table.write(written[-1])
        if turn == 1:
            table.compact(full=True)
        if turn == 2:
            reader.start()  # of the old process only the checkpoint is left
            found += reader.available()
    found += reader.available()
    everything = [row for each in written for row in each.to_pylist()]
    assert folded(found) == folded(everything)
    assert counted_words(table.read().to_arrow()) == +folded(everything)
    table.overwrite(batch(("+I", 1)).drop_columns(["_row_kind"]))
    found += reader.available()
    assert folded(found) == counted_words(table.read().to_arrow()) == {word(ROWS[1]): 1}


@pytest.mark.broker
def test_a_union_read_adds_the_counts_of_the_tail(tmp_path: Path, broker: Broker) -> None:
    """FL-05, FL-184: what is in the log and in no snapshot yet is summed with what the files have."""
    table = made(tmp_path, broker=broker, bucket="2")
    table.write(batch(("+I", 0), ("+I", 0), ("+I", 1), ("+I", 3)))
    write_log_only(table, batch(("-D", 0), ("-D", 1), ("+I", 2), ("+I", 2), ("-D", 3), ("-D", 3)))
    fresh = table.read(options={"scan.log.union": "true"})
    assert counted_words(fresh.to_arrow()) == {word(ROWS[0]): 1, word(ROWS[2]): 2}
    assert counted_words(fresh.to_arrow(filter="n = 1")) == {word(ROWS[0]): 1}


@pytest.mark.sweep
def test_what_works_on_tables_with_a_key_works_on_counts(tmp_path: Path) -> None:
    """FL-05, FL-184: streams from files, tags, branches, diff, rescaling, expiry and system tables."""
    table = made(tmp_path, bucket="2")
    catalog = Catalog(str(tmp_path / "warehouse"))
    table.write(batch(("+I", 0), ("+I", 0), ("+I", 1)))
    reader = query(table)
    found = reader.available()
    create_tag(table, "old")
    create_branch(table, "b", tag="old")
    catalog.table("db.t$branch_b").write(batch(("-D", 1), ("+I", 2)))
    assert counted_words(catalog.table("db.t$branch_b").read().to_arrow()) == {word(ROWS[0]): 2, word(ROWS[2]): 1}
    table.write(batch(("-D", 0), ("+I", 3), ("+I", 3)))
    table.compact(full=True)
    difference = table.diff("old", "latest").to_arrow().to_pylist()
    assert folded(difference) == {word(ROWS[0]): -1, word(ROWS[3]): 2}
    found += reader.available()
    assert folded(found) == counted_words(table.read().to_arrow())
    assert counted_words(table.read(tag="old").to_arrow()) == {word(ROWS[0]): 2, word(ROWS[1]): 1}
    rescale(table, 3)
    table = catalog.table("db.t")
    table.write(batch(("-D", 3)))
    found += reader.available()
    assert folded(found) == counted_words(table.read().to_arrow())
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert counted_words(table.read().to_arrow()) == {word(ROWS[0]): 1, word(ROWS[1]): 1, word(ROWS[3]): 1}
    audited = catalog.system_table("db.t$audit_log").to_arrow()
    assert audited.column_names == ["rowkind", *SCHEMA.names]
    (schema, *_) = catalog.system_table("db.t$schemas").to_arrow().to_pylist()
    assert "_row_count" not in schema["fields"]
    copy(catalog, "db.t", "db.copied")
    copied = catalog.table("db.copied")
    copied.write(batch(("-D", 0)))
    assert counted_words(copied.read().to_arrow()) == {word(ROWS[1]): 1, word(ROWS[3]): 1}


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_sink_log_and_hybrid_stream_in_spark_over_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """FL-05, FL-06, FL-120, FL-184: a changelog without a key through Spark, each change once, twice started."""
    table = made(tmp_path, broker=broker, bucket="2")
    source, choice, sent = tmp_path / "input", random.Random(5), []
    source.mkdir()

    def run() -> None:
        frame = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
        write = sink(table)
        stream = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "in"))
        stream.trigger(availableNow=True).start().awaitTermination()
        write.close()
        place = {"warehouse": str(tmp_path / "warehouse"), "table": "db.t", "read.changelog": "true"}
        changes = spark.readStream.format("fluvial").options(**place).load()
        copied = changes.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "out"))
        copied.option("path", str(tmp_path / "copy")).trigger(availableNow=True).start().awaitTermination()

    for turn in range(2):
        picked = [(choice.choice(["+I", "+I", "-D"]), choice.randrange(len(ROWS))) for _ in range(300)]
        sent += [{**ROWS[number], "_row_kind": kind} for kind, number in picked]
        pq.write_table(batch(*picked), source / f"part-{turn}.parquet")
        run()
    expected = folded(sent)
    assert counted_words(table.read().to_arrow()) == +expected
    assert folded(pq.read_table(tmp_path / "copy").to_pylist()) == expected
    assert counted_words(table.dataframe(spark, filter="n = 1").toArrow()) == Counter(
        {row: count for row, count in (+expected).items() if row.startswith("{'n': 1")}
    )
    place = {"warehouse": str(tmp_path / "warehouse"), "table": "db.t"}
    spark.read.parquet(str(source)).write.format("fluvial").options(**place).mode("append").save()
    assert counted_words(table.read().to_arrow()) == Counter({row: 2 * count for row, count in (+expected).items()})
    shutil.rmtree(tmp_path / "input")


@pytest.mark.long
@pytest.mark.spark
def test_sql_makes_reads_and_changes_such_tables(spark: SparkSession, tmp_path: Path) -> None:
    """FL-05, FL-06, FL-184: CREATE, DESCRIBE, SHOW CREATE, SELECT, DELETE and UPDATE; MERGE says no."""
    catalog = Catalog(str(tmp_path / "warehouse"))

    def run(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql(spark, text, catalog).collect()]

    run("CREATE DATABASE c; CREATE TABLE c.t (k INT, v STRING, f DOUBLE) WITH ('row-counts' = 'true', 'bucket' = '2')")
    run("INSERT INTO c.t VALUES (1, 'a', 0.5), (1, 'a', 0.5), (2, 'b', NULL), (3, 'c', double('NaN'))")
    assert run("SELECT k, count(*) FROM c.t GROUP BY k ORDER BY k") == [(1, 2), (2, 1), (3, 1)]
    assert run("SELECT count(*) FROM c.t") == [(4,)]
    assert [row[0] for row in run("DESCRIBE c.t")][:3] == ["k", "v", "f"]
    text = run("SHOW CREATE TABLE c.t")[0][-1]
    assert "'row-counts' = 'true'" in text
    assert "_row" not in text.replace("'row-counts'", "")
    assert "merge-engine" not in text
    run("UPDATE c.t SET v = 'z' WHERE k = 1")
    run("DELETE FROM c.t WHERE k = 3 OR f IS NULL")
    assert run("SELECT k, v, f FROM c.t") == [(1, "z", 0.5), (1, "z", 0.5)]
    with pytest.raises(InvalidInputError, match="MERGE"):
        run("MERGE INTO c.t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE")
    run("ALTER TABLE c.t ADD COLUMN w INT; DELETE FROM c.t")
    assert run("SELECT * FROM c.t") == []


@pytest.mark.sweep
def test_writers_that_meet_in_a_bucket_lose_no_count(tmp_path: Path) -> None:
    """FL-184: a commit that comes between plan and commit of another one, overwrites and merged branches."""
    table = made(tmp_path, bucket="2")
    table.write(batch(("+I", 0), ("+I", 1)))
    writer = BatchWriter(table.files, None, commit_user="slow")

    def run(spec: BatchSpec) -> list[BucketResult]:
        results = write_part(spec, batch(("-D", 0), ("+I", 1), ("+I", 2)).to_batches())
        table.write(batch(("+I", 0), ("+I", 0), ("-D", 1)))
        table.compact(full=True)
        return results

    writer.write(0, run)
    assert counted_words(table.read().to_arrow()) == {word(ROWS[0]): 2, word(ROWS[1]): 1, word(ROWS[2]): 1}
    table.compact(full=True)
    assert counted_words(table.read().to_arrow()) == {word(ROWS[0]): 2, word(ROWS[1]): 1, word(ROWS[2]): 1}
    create_tag(table, "now")
    create_branch(table, "b", tag="now")
    Catalog(str(tmp_path / "warehouse")).table("db.t$branch_b").write(batch(("-D", 0), ("+I", 3)))
    merge_branch(table, "b")
    assert counted_words(table.read().to_arrow()) == {word(ROWS[number]): 1 for number in range(4)}
    reader = query(table)
    found = reader.available()
    table.overwrite(batch(("+I", 3), ("+I", 3), ("-D", 0)).slice(0, 2).drop_columns(["_row_kind"]))
    found += reader.available()
    assert folded(found) == counted_words(table.read().to_arrow()) == {word(ROWS[3]): 2}


def test_a_job_file_makes_such_a_table(tmp_path: Path) -> None:
    """FL-06, FL-184, FL-185: by the table section of a deploy; a second look finds nothing to change."""
    columns = {"n": "INT", "x": "DOUBLE", "s": "STRING", "t": "TIMESTAMP(6)"}
    options = {"row-counts": "true", "row-counts.index-key": "n"}
    wanted = TableConfig.model_validate({"columns": columns, "partition_by": ["s"], "options": options})
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = ensure_table(catalog, "db.t", wanted)
    table.write(batch(("+I", 0), ("+I", 0), ("-D", 0)))
    assert counted_words(ensure_table(catalog, "db.t", wanted).read().to_arrow()) == {word(ROWS[0]): 1}
    assert table_differences("db.t", table.schema, wanted) == []


def test_sql_does_not_change_rows_that_spark_cannot_name(tmp_path: Path) -> None:
    """FL-184: a delete names its row by all values, and Spark has no nanoseconds."""
    catalog = Catalog(str(tmp_path))
    options = {"row-counts": "true", "file.format": "orc"}
    for unit in ("us", "ns"):
        catalog.create_table(f"db.{unit}", pa.schema([("t", pa.timestamp(unit))]), options=options)
    context = SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("needs no Spark"))
    WriteTarget.of(context, "db.us", {}).check_changes_rows("DELETE", deletes=True)
    with pytest.raises(InvalidInputError, match="microseconds only"):
        WriteTarget.of(context, "db.ns", {}).check_changes_rows("DELETE", deletes=True)
    with pytest.raises(InvalidInputError, match="MERGE"):
        WriteTarget.of(context, "db.us", {}).check_changes_rows("MERGE", deletes=True)
