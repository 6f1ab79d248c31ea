"""Compaction beside a writer: it keeps the runs few, it never costs data, and it stops a batch only when it must."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.compaction.background import BackgroundCompaction, CompactionFailures, compaction_debt
from engine.compaction.dedicated import is_write_only
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.write.batch_writer import BatchWriter
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import LiveFiles
from tests.peers.agreement import Agreement
from tests.support.logs import write_batch
from tests.support.streams import query

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
TRIGGER, STOP = 3, 5


@pytest.fixture
def table(tmp_path: Path) -> Table:
    options = {
        "bucket": "1",
        "num-sorted-run.compaction-trigger": str(TRIGGER),
        "num-sorted-run.stop-trigger": str(STOP),
    }
    return Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options=options)


class RunHere:
    """Runs tasks in the compaction's own thread, when the gate is open."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0

    def __call__(self, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        self.calls += 1
        assert self.gate.wait(20)
        return [run_task(self.table.store, task) for task in tasks]


def write_colliding(writer: BatchWriter, batch: int) -> None:
    rows = pa.table({"id": [batch % 4, 100 + batch], "v": [batch, batch]})
    write_batch(writer, batch, rows)


def runs(table: Table) -> int:
    live = LiveFiles.latest(table.store)
    return compaction_debt(table.store, live, live.buckets()).most_runs


def expected_rows(batches: int) -> dict[int, int]:
    rows: dict[int, int] = {}
    for batch in range(batches):
        rows |= {batch % 4: batch, 100 + batch: batch}
    return rows


@pytest.mark.interop
def test_a_stream_of_batches_never_has_more_runs_than_the_stop_trigger(
    table: Table, assert_peers_agree: Agreement
) -> None:
    """FL-162, FL-166, FL-168."""
    writer, work = BatchWriter(table.files, None, commit_user="q"), RunHere(table)
    compaction = BackgroundCompaction(table.store, work)
    most = 0
    for batch in range(20):
        compaction.before_batch(writer.live)
        write_colliding(writer, batch)
        most = max(most, runs(table))
        compaction.after_commit(writer.live)
    compaction.close()
    assert work.calls > 2
    assert compaction.failures == CompactionFailures()
    assert most <= STOP
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == expected_rows(20)
    assert len(assert_peers_agree(table.store.paths.root)) == len(expected_rows(20))
    for snapshot in (5, 12):  # in the middle, between two compactions
        assert_peers_agree(table.store.paths.root, snapshot_id=snapshot)


def test_a_slow_compaction_does_not_hold_a_commit_back_before_the_stop_trigger(table: Table) -> None:
    writer, work = BatchWriter(table.files, None, commit_user="q"), RunHere(table)
    compaction = BackgroundCompaction(table.store, work)
    work.gate.clear()
    for batch in range(STOP - 1):
        compaction.before_batch(writer.live)
        write_colliding(writer, batch)
        compaction.after_commit(writer.live)
    assert work.calls == 1
    assert table.latest_snapshot().id == STOP - 1
    work.gate.set()
    compaction.close()
    assert runs(table) < STOP - 1


@pytest.mark.sweep
def test_at_the_stop_trigger_a_batch_waits_for_the_compaction(table: Table) -> None:
    writer, work = BatchWriter(table.files, None, commit_user="q"), RunHere(table)
    compaction = BackgroundCompaction(table.store, work)
    work.gate.clear()
    for batch in range(STOP):
        write_colliding(writer, batch)
    compaction.after_commit(writer.live)
    waited: list[float] = []
    waiting = threading.Thread(target=lambda: waited.append(compaction.before_batch(writer.live)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    work.gate.set()
    waiting.join(20)
    assert waited
    assert runs(table) < STOP
    compaction.close()


@pytest.mark.interop
def test_a_compaction_that_lost_its_inputs_is_abandoned_and_costs_nothing(
    table: Table, assert_peers_agree: Agreement
) -> None:
    """FL-91: somebody else compacted the same files first."""
    writer, work = BatchWriter(table.files, None, commit_user="q"), RunHere(table)
    for batch in range(TRIGGER + 1):
        write_colliding(writer, batch)

    def overtaken(tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        messages = work(tasks)
        table.compact(full=True)
        return messages

    compaction = BackgroundCompaction(table.store, overtaken)
    compaction.after_commit(writer.live)
    compaction.close()
    files = {path.name for path in Path(table.store.paths.root).rglob("data-*")}
    live = LiveFiles.latest(table.store)
    named = {file.file_name for key in live.buckets() for file in live.files(key)}
    assert len(named) == 1
    assert compaction.failures.count == 0
    assert len(files) == TRIGGER + 1 + len(named)
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == expected_rows(TRIGGER + 1)
    assert len(assert_peers_agree(table.store.paths.root)) == len(expected_rows(TRIGGER + 1))


def test_a_failing_compaction_leaves_the_stream_alone(table: Table) -> None:
    writer = BatchWriter(table.files, None, commit_user="q")

    def fails(tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        raise RuntimeError(f"no room for {len(tasks)}")

    compaction = BackgroundCompaction(table.store, fails)
    for batch in range(TRIGGER + 1):
        compaction.before_batch(writer.live)
        write_colliding(writer, batch)
        compaction.after_commit(writer.live)
    compaction.close()
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == expected_rows(TRIGGER + 1)
    assert compaction.failures.count >= 1
    assert compaction.failures.last == "RuntimeError: no room for 1"


@pytest.mark.parametrize("waits", [True, False])
def test_changes_are_told_behind_every_batch(tmp_path: Path, waits: bool) -> None:
    """FL-135: ``lookup-wait``: by the end of the batch, or beside the next one."""
    table = told_table(tmp_path, **{"changelog-producer": "lookup", "lookup-wait": str(waits).lower()})
    writer, work = BatchWriter(table.files, None, commit_user="q"), RunHere(table)
    compaction = BackgroundCompaction(table.store, work)
    if not waits:
        work.gate.clear()
    for batch in range(4):
        write_colliding(writer, batch)
        compaction.after_commit(writer.live)
        assert told_rows(table) == ([2] * (batch + 1) if waits else [])
    work.gate.set()
    compaction.close()
    assert {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()} == expected_rows(4)


def test_a_failing_compaction_is_not_waited_for_again(tmp_path: Path) -> None:
    table = told_table(tmp_path, **{"changelog-producer": "lookup"})
    writer, calls = BatchWriter(table.files, None, commit_user="q"), []

    def fails(tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        calls.append(tasks)
        raise RuntimeError("no room")

    compaction = BackgroundCompaction(table.store, fails)
    write_colliding(writer, 0)
    compaction.after_commit(writer.live)
    assert (len(calls), compaction.failures.count) == (1, 1)
    compaction.close()


def test_everything_is_merged_after_so_many_commits(tmp_path: Path) -> None:
    """FL-135: ``full-compaction.delta-commits``; a stream that starts again merges what the one before left."""
    options = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}
    table = told_table(tmp_path, **options)
    for first in (0, 4):
        writer = BatchWriter(table.files, None, commit_user=f"q{first}")
        compaction = BackgroundCompaction(table.store, RunHere(table))
        for batch in range(first, first + 3):
            write_colliding(writer, batch)
            compaction.after_commit(writer.live)
            compaction._wait(None)
            writer.live.advance()
        compaction.close()
    assert told_rows(table) == [4, 8], "four new rows; then four more, and two updates"


def told_table(tmp_path: Path, **options: str) -> Table:
    return Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **options})


def told_rows(table: Table) -> list[int]:
    """How many changes each compaction reported."""
    snapshots = [table.store.snapshots.read(each) for each in table.store.snapshots.ids()]
    return [each.changelog_record_count or 0 for each in snapshots if each.changelog_manifest_list is not None]


@pytest.mark.interop
@pytest.mark.parametrize("bucket", ["-1", "1"])
def test_a_stream_into_a_table_without_a_key_puts_small_files_together(
    tmp_path: Path, bucket: str, assert_peers_agree: Agreement
) -> None:
    """FL-06, FL-162, FL-167: beside the batches, which never wait for it; streams see each row once."""
    options = {"bucket": bucket, "compaction.min.file-num": "3"}
    appended = Catalog(str(tmp_path)).create_table("db.t", SCHEMA, options=options)
    assert not is_write_only(appended.store, NO_OPTIONS)
    assert is_write_only(appended.store, WriterOptions({"write-only": "true"}))
    writer, work = BatchWriter(appended.files, None, commit_user="q"), RunHere(appended)
    compaction = BackgroundCompaction(appended.store, work)
    reader = query(appended, with_kinds=False)
    seen = []
    for batch in range(20):
        assert compaction.before_batch(writer.live) < 1
        write_colliding(writer, batch)
        compaction.after_commit(writer.live)
        seen += [row["v"] for row in reader.available()]
        if batch % 4 == 3 and compaction._running is not None:
            compaction._running.result()  # twenty batches may be over before the first compaction is
    compaction.close()
    assert work.calls > 2
    assert compaction.failures == CompactionFailures()
    live = LiveFiles.latest(appended.store)
    assert max(live.file_count(key) for key in live.buckets()) < 12
    found = appended.read().to_arrow()["v"].to_pylist()
    assert sorted(seen) == sorted(found) == sorted([*range(20), *range(20)])
    if bucket == "1":
        assert found == sorted(found)
    assert len(assert_peers_agree(appended.store.paths.root)) == 40


@pytest.mark.sweep
def test_rows_are_seen_behind_every_batch_of_a_table_with_deletion_vectors(tmp_path: Path) -> None:
    """FL-162: nobody sees level 0 there; older rows are marked, and reads merge nothing."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "compaction.max-size-amplification-percent": "100000"}
    table = Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    table.write(pa.table({"id": list(range(50, 99)), "v": [0] * 49}))
    writer = BatchWriter(table.files, None, commit_user="query")
    compaction = BackgroundCompaction(table.store, RunHere(table))
    for batch in range(8):
        compaction.before_batch(writer.live)
        write_colliding(writer, batch)
        compaction.after_commit(writer.live)
        rows = {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist() if not 50 <= row["id"] < 99}
        assert rows == expected_rows(batch + 1)
        assert not any(split.needs_merge for split in table.read().plan().splits)
    compaction.close()
    assert compaction.failures == CompactionFailures()
    table.write(pa.table({"id": [50, 51], "v": [0, 0]}), kinds=pa.array(["-D", "-D"]))
    assert table.read().to_arrow(filter="id >= 50 and id < 52").num_rows == 0
    table.overwrite(pa.table({"id": [1], "v": [7]}))
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "v": 7}]
