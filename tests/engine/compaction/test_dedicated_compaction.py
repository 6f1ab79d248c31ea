"""Writers that leave compaction to a job of its own slow down for it, but only while it is at work."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import filestore.compact.compactor
from engine import Catalog, Table
from engine.compaction.background import BackgroundCompaction, compaction_debt
from engine.compaction.dedicated import DedicatedCompaction
from filestore.compact.compactor import run_task
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind
from lsm.errors import CorruptDataError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
TRIGGER, STOP = 3, 5


class Job:
    """Time that passes only while somebody waits; after some of it a job compacts the table."""

    def __init__(self, table: Table, *, every_s: float | None) -> None:
        self.table = table
        self.every_s = every_s  # None: it never does
        self.now_s = 0.0

    def seconds(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        before, self.now_s = self.now_s, self.now_s + seconds
        if self.every_s is not None and int(before / self.every_s) < int(self.now_s / self.every_s):
            self.table.files.compact()


def write_only_table(path: Path, **options: str) -> Table:
    given = {
        "bucket": "1",
        "num-sorted-run.compaction-trigger": str(TRIGGER),
        "num-sorted-run.stop-trigger": str(STOP),
        "write-only": "true",
        "write.backpressure.timeout": "20 s",
        **options,
    }
    return Catalog(str(path)).create_table("db.t", SCHEMA, primary_key=["id"], options=given)


def flushed(table: Table, count: int) -> LiveFiles:
    """Write commits below the engine, which would wait itself; the writer's view."""
    for number in range(count):
        table.files.write(pa.table({"id": [1, 100 + number], "v": [number, number]}, schema=SCHEMA))
    return LiveFiles.latest(table.store)


def waiting(table: Table, job: Job) -> DedicatedCompaction:
    return DedicatedCompaction(table.store, sleep=job.sleep, seconds=job.seconds)


def runs(table: Table) -> int:
    live = LiveFiles.latest(table.store)
    return compaction_debt(table.store, live, live.buckets()).most_runs


def test_at_the_stop_trigger_a_write_only_writer_waits_for_the_job(tmp_path: Path) -> None:
    """FL-162, FL-167: as it would for a compaction beside it; the job's own commits tell that it is at work."""
    table = write_only_table(tmp_path)
    flushed(table, 3)
    table.files.compact(full=True)
    live = flushed(table, STOP - 1)
    job = Job(table, every_s=7)
    assert runs(table) == STOP
    assert waiting(table, job).before_batch(live) == 7.0
    assert runs(table) < STOP
    assert live.snapshot is not None
    assert live.snapshot.commit_kind is CommitKind.COMPACT, "the writer has seen it"
    assert waiting(table, job).before_batch(live) == 0.0


def test_above_the_soft_limit_it_waits_a_moment(tmp_path: Path) -> None:
    """FL-162: half-way between the triggers, once for each batch."""
    table = write_only_table(tmp_path, **{"num-sorted-run.stop-trigger": "9"})
    flushed(table, 3)
    table.files.compact(full=True)
    live = flushed(table, 6)
    job = Job(table, every_s=None)
    assert [waiting(table, job).before_batch(live) for _ in range(2)] == [1.0, 1.0]


def test_a_job_that_is_gone_is_not_waited_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One timeout, one warning that says what to do; once the job is back it is waited for as before."""
    table = write_only_table(tmp_path)
    flushed(table, 3)
    table.files.compact(full=True)
    live = flushed(table, STOP - 1)
    job = Job(table, every_s=None)
    dedicated = waiting(table, job)
    with caplog.at_level(logging.WARNING):
        assert dedicated.before_batch(live) == 20.0
    assert "makes no progress, the batch continues: table=db.t runs=5 stop_trigger=5 waited_s=20" in caplog.text
    assert dedicated.before_batch(live) == 0.0
    table.files.compact(full=True)
    flushed(table, STOP)
    job.every_s = 3
    assert 0 < dedicated.before_batch(live) <= 3.0


@pytest.mark.sweep
def test_a_table_that_nobody_compacts_is_not_waited_for(tmp_path: Path) -> None:
    """A first load into a write-only table is as fast as it was; so is one whose compactions are long ago."""
    table = write_only_table(tmp_path)
    job = Job(table, every_s=None)
    assert waiting(table, job).before_batch(flushed(table, STOP + 2)) == 0.0
    table.files.compact(full=True)
    assert waiting(table, job).before_batch(flushed(table, 2 * STOP)) == 0.0


@pytest.mark.parametrize(
    ("word", "soft_s", "hard_s"), [("off", 0.0, 0.0), ("soft", 1.0, 1.0), ("hard", 0.0, 20.0), ("soft+hard", 1.0, 20.0)]
)
def test_each_word_of_the_option(tmp_path: Path, word: str, soft_s: float, hard_s: float) -> None:
    """write.backpressure, of a writer that leaves compaction to others."""
    table = write_only_table(tmp_path, **{"write.backpressure": word, "num-sorted-run.stop-trigger": "7"})
    flushed(table, 3)
    table.files.compact(full=True)
    job = Job(table, every_s=None)
    assert waiting(table, job).before_batch(flushed(table, 5)) == soft_s
    assert waiting(table, job).before_batch(flushed(table, 1)) == hard_s


def test_a_batch_job_is_held_back_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table.write and Table.append, of write-only tables only."""
    held: list[str] = []
    monkeypatch.setattr(DedicatedCompaction, "before_batch", lambda self, _live: held.append(self._table.name))
    rows = pa.table({"id": [1], "v": [1]}, schema=SCHEMA)
    write_only_table(tmp_path / "a").write(rows)
    write_only_table(tmp_path / "b", **{"write-only": "false"}).write(rows)
    assert held == ["db.t"]


@pytest.mark.parametrize(("word", "waits"), [("off", False), ("soft", False), ("hard", True)])
def test_a_writer_that_compacts_follows_the_option_too(tmp_path: Path, word: str, waits: bool) -> None:
    """write.backpressure, of a compaction beside the stream: without hard a batch never merges by itself."""
    table = write_only_table(tmp_path, **{"write-only": "false", "write.backpressure": word})
    live = flushed(table, STOP)
    compaction = BackgroundCompaction(table.store, lambda tasks: [run_task(table.store, task) for task in tasks])
    compaction.before_batch(live)
    compaction.close()
    assert (runs(table) < STOP) == waits


def test_a_batch_can_be_compacted_behind_its_commit(tmp_path: Path) -> None:
    """commit.force-compact: nothing that is worth it is left when the call returns."""
    table = write_only_table(tmp_path, **{"write-only": "false", "commit.force-compact": "true"})
    for number in range(TRIGGER):
        table.write(pa.table({"id": [1], "v": [number]}, schema=SCHEMA))
    assert runs(table) == 1
    latest = table.latest_snapshot()
    assert latest is not None
    assert latest.commit_kind is CommitKind.COMPACT


@pytest.mark.parametrize("options", [{"commit.force-compact": "true"}, {"deletion-vectors.enabled": "true"}])
@pytest.mark.parametrize("error", [IndexError("a bug"), MemoryError(), CorruptDataError("a file is lost")])
def test_a_batch_is_acknowledged_whatever_happens_to_the_compaction_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    table = write_only_table(tmp_path, **{"write-only": "false", "num-sorted-run.compaction-trigger": "2", **options})
    rows = pa.table({"id": [1], "v": [1]}, schema=SCHEMA)
    table.write(rows)
    with monkeypatch.context() as broken:
        broken.setattr(filestore.compact.compactor, "run_task", fails)
        for write in (table.write, table.append):
            done = write(rows)
            assert done.snapshot is not None
            assert done.snapshot == table.latest_snapshot()


@pytest.mark.parametrize("has_bad_luck", [False, True])
def test_many_small_writes_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_bad_luck: bool
) -> None:
    """No bucket gets more runs than stop a stream; where that fails, the rows are there, and a warning says it."""
    catalog = Catalog(str(tmp_path))
    options = {"bucket": "3", "num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": "4"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    rewritten: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        if has_bad_luck:
            raise CorruptDataError("a file is lost")
        found = run_task(*given, **more)
        rewritten.append(sum(each.row_count for each in found.compact_before))
        return found

    monkeypatch.setattr(filestore.compact.compactor, "run_task", counted)
    with caplog.at_level(logging.WARNING, "fluvial.compaction"):
        for number in range(40):
            table.write(pa.table({"id": range(30), "v": [number] * 30}, schema=SCHEMA))
    live = LiveFiles.latest(table.store)
    most = max(len(live.levels(key).runs) for key in live.buckets())
    said = [each.getMessage() for each in caplog.records if "sorted runs pile up" in each.getMessage()]
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {39}
    if has_bad_luck:
        assert most == 40
        assert said
    else:
        assert most <= 4
        assert said == []
        assert sum(rewritten) < 3 * 40 * 30  # of all rows that were written: a bounded multiple


def test_a_writer_that_leaves_compaction_to_others_does_not_compact(tmp_path: Path) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": "4"}
    given = {**options, "write-only": "true"}
    table = Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options=given)
    for key in range(6):
        table.write(pa.table({"id": [key], "v": [key]}, schema=SCHEMA))
    live = LiveFiles.latest(table.store)
    assert [len(live.levels(key).runs) for key in live.buckets()] == [6]
