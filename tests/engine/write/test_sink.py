"""The sink of a streaming query: what it demands, and what readers see while it runs."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table, sink
from engine.procedures import compact
from engine.write import run_lock
from engine.write.run_lock import held_checkpoints
from filestore.snapshot.snapshot import CommitKind
from lsm.errors import InvalidInputError
from tests.peers.agreement import Agreement
from tests.support.checkpoint_holder import holder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("value", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
ROWS = 10


def sink_table(tmp_path: Path, **options: str) -> Table:
    return Catalog(str(tmp_path / "warehouse")).create_table(
        "db.t", SCHEMA, primary_key=["value"], options={"bucket": "2", **options}
    )


def rate_rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()


def test_a_query_without_a_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """FL-85, FL-86: a restart would write everything again, so it throws; nothing is set in secret."""
    table = sink_table(tmp_path)
    query = rate_rows(spark).writeStream.foreachBatch(sink(table)).start()
    with pytest.raises(PySparkException, match="checkpointLocation"):
        query.awaitTermination(60)
    assert table.latest_snapshot() is None


def test_batch_readers_see_whole_micro_batches_only(spark: SparkSession, tmp_path: Path) -> None:
    """FL-105, FL-118, FL-140: a reader never sees a part of one; each micro-batch is one snapshot."""
    table = sink_table(tmp_path)
    seen: list[int] = []
    write = sink(table)

    def watched(frame: DataFrame, batch: int) -> None:
        seen.append(table.read().to_arrow().num_rows)
        write(frame, batch)

    stream = rate_rows(spark).writeStream.foreachBatch(watched)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    while len(seen) < 4 and query.isActive:
        query.awaitTermination(0.2)
    query.stop()
    write.close()
    assert seen[:4] == [0, ROWS, 2 * ROWS, 3 * ROWS]


def test_a_query_of_a_checkpoint_that_another_process_has_is_refused_its_first_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once that one has ended it writes, and lets go of the checkpoint when it ends itself; so does a restart."""
    monkeypatch.setattr(run_lock, "_ENDED_S", 0.0)
    table, checkpoint = sink_table(tmp_path), tmp_path / "checkpoint"
    other = holder(checkpoint)

    def run(batches: int) -> str:
        stream, write = rate_rows(spark), sink(table)
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).start()
        with suppress(PySparkException):  # below
            while query.isActive and (table.store.snapshots.latest_id() or 0) < batches:
                query.awaitTermination(0.2)
        failure = query.exception()
        query.stop()
        write.close()
        return str(failure)

    said = run(1)
    assert "another run has this checkpoint" in said
    assert f"pid={other.pid} age=" in said
    assert table.latest_snapshot() is None
    other.kill()
    other.wait()
    assert [run(1), run(2)] == ["None", "None"]
    wait_until(lambda: run_lock._held == {}, "the query has let go of its checkpoint")
    with held_checkpoints([str(checkpoint)]) as is_held:
        assert is_held


@pytest.mark.interop
def test_more_buckets_are_written_by_more_tasks_and_hold_the_same_rows(
    spark: SparkSession, tmp_path: Path, assert_peers_agree: Agreement
) -> None:
    """FL-81."""
    table = sink_table(tmp_path, bucket="8")
    table.append(spark.range(500).selectExpr("id AS value", "current_timestamp() AS timestamp"))
    splits = table.read().plan().splits
    assert {split.bucket for split in splits} == set(range(8))
    assert sorted(table.read().to_arrow()["value"].to_pylist()) == list(range(500))
    assert len(assert_peers_agree(table.store.paths.root)) == 500


@pytest.mark.parametrize("bucket", ["-1", "-2"])
def test_tables_whose_buckets_are_not_fixed(spark: SparkSession, tmp_path: Path, bucket: str) -> None:
    """Dynamic buckets: keys stay where they are, bucket after bucket is filled. Postponed: seen once compacted."""
    table = sink_table(tmp_path, bucket=bucket, **{"dynamic-bucket.target-row-num": "40"})
    table.append(spark.range(100).selectExpr("id AS value", "current_timestamp() AS timestamp"))
    frame = spark.range(50, 130).selectExpr("id AS value", "timestamp'2026-01-01' AS timestamp")
    frame.write.format("fluvial").options(warehouse=str(tmp_path / "warehouse"), table="db.t").mode("append").save()
    if bucket == "-2":
        assert table.read().to_arrow().num_rows == 0
        compact(table)
    assert sorted(table.read().to_arrow()["value"].to_pylist()) == list(range(130))
    assert {split.bucket for split in table.read().plan().splits} == ({0, 1, 2, 3} if bucket == "-1" else {0})


@pytest.mark.long
@pytest.mark.interop
def test_a_writer_that_only_appends_leaves_compaction_to_somebody_else(
    spark: SparkSession, tmp_path: Path, assert_peers_agree: Agreement
) -> None:
    """FL-167: ``write-only`` writers and ``fluvial compact`` as the service that compacts beside them."""
    table = sink_table(tmp_path, bucket="1")
    frames = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    write, batches = sink(table, {"write-only": "true"}), 8
    query = frames.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    while (table.store.snapshots.latest_id() or 0) < batches:
        assert query.isActive
        query.awaitTermination(0.2)
    compact = [sys.executable, "-m", "engine.cli", "compact", "db.t", "--warehouse", str(tmp_path / "warehouse")]
    done = subprocess.run([*compact, "--json"], capture_output=True, text=True, check=True)
    query.stop()
    write.close()
    (bucket,) = json.loads(done.stdout)["rows"]
    assert bucket["files_before"] >= batches
    assert bucket["files_after"] < bucket["files_before"]
    kinds = [table.store.snapshots.read(each).commit_kind for each in table.store.snapshots.ids()]
    assert kinds.count(CommitKind.COMPACT) == 1
    rows = table.read().to_arrow()["value"].to_pylist()
    assert sorted(rows) == list(range(len(rows)))
    assert len(assert_peers_agree(table.store.paths.root)) == len(rows)
    assert len(assert_peers_agree(table.store.paths.root, snapshot_id=batches)) == batches * ROWS


def test_an_unknown_option_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"change-traking did_you_mean=change-tracking"):
        sink(sink_table(tmp_path), {"change-traking": "false"})


def test_it_serves_streams_only(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"Table\.append"):
        sink(sink_table(tmp_path))(spark.range(1).selectExpr("id AS value"), 0)
