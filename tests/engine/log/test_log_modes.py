"""What readers of the log see, and when: log.consistency and log.changelog-mode through the sink of a stream."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from engine import Catalog, Table, sink
from engine.broker.broker import Broker
from engine.log.table_log import TableLog
from engine.runtime.steps import Step, StepEvent, ignore
from filestore.snapshot.snapshot_store import SnapshotStore
from logstore.log.log_writer import CHUNK_ROWS
from lsm.row_kind import RowKind
from tests.peers.agreement import Agreement
from tests.support.logs import folded, log_changes
from tests.support.option_keys import dotted

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def new_table(tmp_path: Path, broker: Broker) -> Callable[..., Table]:
    catalog = Catalog(str(tmp_path / "warehouse"), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})

    def make(name: str, **options: str) -> Table:
        texts = dotted(options)
        topic = f"modes-{abs(hash(str(tmp_path))) % 10**9}-{name}"
        options = {"bucket": "1", "log.kafka.topic": topic, **texts}
        return catalog.create_table(f"db.{name}", SCHEMA, primary_key=["id"], options=options)

    return make


def stream(
    spark: SparkSession, table: Table, home: Path, rows: pa.Table, observe: Callable[..., None] = ignore
) -> None:
    """Write rows through a streaming query, as one micro-batch; what observes may kill its process, so in tasks."""
    source = home / f"input-{table.name}"
    source.mkdir(exist_ok=True)
    pq.write_table(rows, source / f"part-{time.time_ns()}.parquet")
    frame = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
    write = sink(table, {"sink.writer": "tasks"}, observe=observe)
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(home / f"checkpoint-{table.name}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    write.close()


@dataclass(frozen=True)
class Look:
    """Notes, in the task, what a reader sees when all files are written and nothing is committed."""

    log: TableLog
    snapshots: SnapshotStore
    note: str

    def __call__(self, event: StepEvent) -> None:
        if event.step is Step.FILES_FLUSHED:
            seen = {"log": self.log.end_offsets()[0], "snapshot": self.snapshots.latest_id()}
            Path(self.note).write_text(json.dumps(seen))


@pytest.mark.sampled(1)
@pytest.mark.interop
@pytest.mark.parametrize(("consistency", "shown_before"), [("eventual", True), ("transactional", False)])
def test_eventual_rows_are_in_the_log_before_the_snapshot_and_transactional_ones_are_not(
    spark: SparkSession,
    new_table: Callable[..., Table],
    tmp_path: Path,
    consistency: str,
    shown_before: bool,
    assert_peers_agree: Agreement,
) -> None:
    """FL-57, FL-58, FL-107, FL-128, FL-190: at once, without waiting for the end of the micro-batch."""
    table = new_table(consistency, log_consistency=consistency)
    count, note = CHUNK_ROWS + 30_000, tmp_path / "note"
    rows = pa.table({"id": pa.array(range(count)), "v": pa.array(range(count))})
    assert table.log is not None
    stream(spark, table, tmp_path, rows, Look(table.log, table.store.snapshots, str(note)))
    seen = json.loads(note.read_text())
    assert seen["snapshot"] is None
    assert (seen["log"] > 0) == shown_before
    newest = {row["id"]: row for row in table.read().to_arrow().to_pylist()}
    assert len(newest) == count
    assert folded(log_changes(table), "id") == newest
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.log_offsets[0] > seen["log"]
    assert len(assert_peers_agree(table.store.paths.root)) == count


def test_written_rows_are_consumed_within_a_second(new_table: Callable[..., Table]) -> None:
    """FL-03: from the call that writes them to a reader of the log; the best of five, for the machine is shared."""
    table = new_table("fast", log_consistency="eventual")
    assert table.log is not None
    delays, log = [], table.log
    for number in range(5):
        before, seen = log.end_offsets()[0], threading.Event()

        def consume(before: int = before, seen: threading.Event = seen, number: int = number) -> None:
            while log.end_offsets()[0] <= before:
                time.sleep(0.01)
            assert log_changes(table)[-1][1]["v"] == number
            seen.set()

        reader = threading.Thread(target=consume)
        reader.start()
        began = time.monotonic()
        table.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([number], pa.int64())}))
        assert seen.wait(30)
        delays.append(time.monotonic() - began)
        reader.join()
    assert min(delays) < 1, delays


CHANGES = [("+I", 1, 10), ("+I", 2, 20), ("-U", 1, 10), ("+U", 1, 11), ("-D", 2, 20)]
INSERT, DELETE = RowKind.INSERT, RowKind.DELETE


@pytest.mark.parametrize(
    ("mode", "in_log"),
    [
        (
            "all",
            [(INSERT, 1, 10), (INSERT, 2, 20), (DELETE, 1, 10), (INSERT, 1, 11), (DELETE, 2, 20)],
        ),
        ("upsert", [(INSERT, 1, 10), (INSERT, 2, 20), (INSERT, 1, 11), (DELETE, 2, 20)]),
        ("auto", [(INSERT, 1, 10), (INSERT, 2, 20), (INSERT, 1, 11), (DELETE, 2, 20)]),
    ],
)
def test_update_before_stays_in_the_log_in_mode_all_only(
    spark: SparkSession,
    new_table: Callable[..., Table],
    tmp_path: Path,
    mode: str,
    in_log: list[tuple[RowKind, int, int]],
) -> None:
    """FL-59..FL-62, FL-130, FL-132: the log tells -U as a delete of the old row; the table is the same."""
    table = new_table(mode, log_changelog__mode=mode)
    kinds, ids, values = zip(*CHANGES, strict=True)
    stream(spark, table, tmp_path, pa.table({"id": ids, "v": values, "_row_kind": kinds}))
    found = log_changes(table)
    assert [(kind, row["id"], row["v"]) for kind, row in found] == in_log
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "v": 11}]
    assert folded(found, "id") == {1: {"id": 1, "v": 11}}


@dataclass(frozen=True)
class KillsOnce:
    """Kills the task's process where it stands, once."""

    step: Step
    mark: str

    def __call__(self, event: StepEvent) -> None:
        if event.step is self.step and not Path(self.mark).exists():
            Path(self.mark).touch()
            os._exit(9)


def test_an_exact_log_survives_a_killed_task_and_streams_read_it_as_it_is(
    spark: SparkSession, new_table: Callable[..., Table], tmp_path: Path
) -> None:
    """FL-132, FL-135: a sum reported once, by upserts without -U; the restarted query takes over what is in the log."""
    table = new_table(
        "exact", log_changelog__mode="all", changelog__producer="lookup", merge__engine="aggregation",
        fields_v_aggregate__function="sum", bucket="2",
    )  # fmt: skip
    mark = tmp_path / "killed"
    batches = [[(1, 1), (2, 2), (3, 3)], [(1, 10), (1, 20), (4, 4)]]
    for number, batch in enumerate(batches):
        rows = pa.table({"id": [row[0] for row in batch], "v": [row[1] for row in batch]})
        if number == 1:
            with pytest.raises(StreamingQueryException):
                stream(spark, table, tmp_path, rows, KillsOnce(Step.LOG_COMMITTED, str(mark)))
            rows = rows.slice(0, 0)  # the same batch again: its input is in the checkpoint
        stream(spark, table, tmp_path, rows)
    assert mark.exists()
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == {1: 31, 2: 2, 3: 3, 4: 4}
    place = {"warehouse": str(tmp_path / "warehouse"), "table": table.name}
    from_1 = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "streaming-read-mode": "log"}
    read = spark.readStream.format("fluvial").options(**place, **from_1).option("read.changelog", True)
    query = read.load().writeStream.format("memory").queryName("exact").trigger(availableNow=True).start()
    query.awaitTermination()
    reported = [(row._row_kind, row.id, row.v) for row in spark.table("exact").collect()]
    adds = [("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3), ("+I", 4, 4)]
    assert sorted(reported) == sorted([*adds, ("-U", 1, 1), ("+U", 1, 31)])
