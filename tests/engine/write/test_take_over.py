"""A run of a query that was paused while a second start of it took over changes nothing, wherever it was paused."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from engine import Table
from engine.broker.broker import Broker
from engine.compaction.background import BackgroundCompaction
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions
from engine.spark.writer.staged_commit import StreamSessions
from engine.spark.writer.staged_rows import stage_rows
from engine.spark.writer.staged_writer import StagedStreamWriter, StagedTask
from engine.write.housekeeping import Housekeeping
from engine.write.session import LocalRunner, Upkeep, WriteSession
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from logstore.log.log_writer import BucketLogWriter
from logstore.log.marker import CommitMarker
from lsm.errors import TakenOverError
from tests.support.logs import log_changes
from tests.support.warehouses import new_table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
REFUSED = "another run of this query has taken over"
STEPS = (
    Step.BATCH_STARTED, Step.LOG_RECOVERED, Step.PART_STARTED, Step.BUCKET_FENCED, Step.ROWS_WRITTEN,
    Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.PART_DONE, Step.TASKS_DONE, Step.TABLE_COMMITTED,
)  # fmt: skip
OF_THE_LOG = {Step.LOG_RECOVERED, Step.BUCKET_FENCED, Step.LOG_COMMITTED}
OPTIONS = {
    "bucket": "2", "num-sorted-run.compaction-trigger": "2", "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
}  # fmt: skip


def rows_of(batch: int, by: str) -> list[pa.RecordBatch]:
    """Key 0 to 5 get this batch's value and the name of the run that wrote it; deletes from the third batch on."""
    rows = pa.table({"id": pa.array(range(6), pa.int64()), "v": pa.array([f"{batch} {by}"] * 6)}, schema=SCHEMA)
    kinds = ["-D" if batch > 1 and each == batch else "+U" for each in range(6)]
    return rows.append_column("_row_kind", pa.array(kinds)).to_batches()


class Start:
    """One start of the query."""

    def __init__(self, table: Table, name: str, observe: Observer = ignore) -> None:
        self.name = name
        self.session: WriteSession[Iterable[pa.RecordBatch]] = WriteSession(
            table.files,
            LocalRunner(),
            commit_user="query",
            options=NO_OPTIONS,
            upkeep=Upkeep.STREAM,
            origin=lambda batch_id, rows: None,
            run_id=name,
            observe=observe,
        )

    def write(self, batch: int) -> Any:
        return self.session.write(rows_of(batch, self.name), batch_id=batch)


def state(table: Table) -> Any:
    newest = table.latest_snapshot()
    log = log_changes(table) if table.log is not None else []
    return newest, table.read().to_arrow().sort_by("id").to_pylist(), log


def files_of_rows(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.paths.root).rglob("data-*")}


CASES = [
    pytest.param(log, step, 0 if step is Step.LOG_RECOVERED else 2, id=f"{'log' if log else 'files'}-{step.value}")
    for log in (True, False)
    for step in STEPS
    if log or step not in OF_THE_LOG
]


@pytest.mark.sampled(3)
@pytest.mark.broker
@pytest.mark.sweep
@pytest.mark.parametrize(("log", "step", "batch"), CASES)
def test_a_run_that_was_paused_at_any_step_changes_nothing(
    tmp_path: Path, broker: Broker, log: bool, step: Step, batch: int
) -> None:
    """Issue 14 item 4: the newer run commits the same batch and the one after it, then the old one continues."""
    table = new_table(tmp_path, SCHEMA, broker=broker if log else None, options=OPTIONS)
    found: list[Any] = []

    def pause(event: StepEvent) -> None:
        if event.step is step and event.batch_id == batch and not found:
            newer.write(batch)
            newer.write(batch + 1)
            newer.session.close()
            found.append((state(table), files_of_rows(table)))

    old, newer = Start(table, "old", pause), Start(table, "new")
    for each in range(batch):
        old.write(each)
    with pytest.raises(TakenOverError, match=rf"{REFUSED}: .*batch={batch} run=old newer_run=new"):
        old.write(batch)
    [(after, files)] = found
    assert state(table) == after
    late = files_of_rows(table) - files
    assert late == set() or (log and step is Step.LOG_COMMITTED), "files that only the log may name stay"
    for each in range(batch, batch + 3):
        with pytest.raises(TakenOverError, match=REFUSED):
            old.write(each)
    old.session.close()
    assert state(table) == after
    third = Start(table, "third")
    third.write(batch + 2)  # no writer of the log was fenced by what the old run tried
    third.session.close()
    _, rows, changes = state(table)
    assert {row["v"] for row in rows} == {f"{batch + 2} third"}
    if log:
        versions = [int(row["v"].split()[0]) for _, row in changes if row["id"] == 0]
        assert versions == list(range(batch + 3))  # each batch once


@pytest.mark.broker
@pytest.mark.sweep
def test_a_task_that_fences_the_log_late_writes_nothing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 14 item 4: paused behind its look at the run; its fence is the newest, and still it must not write."""
    table = new_table(tmp_path, SCHEMA, broker=broker, options={**OPTIONS, "bucket": "1"})

    def stop(event: StepEvent) -> None:
        if event.step is Step.LOG_RECOVERED and not after:
            raise KeyboardInterrupt  # it has fenced every bucket, and written nothing

    old, newer = Start(table, "old"), Start(table, "new", stop)
    old.write(0)
    fence = BucketLogWriter.fence
    after: list[Any] = []

    def late(self: BucketLogWriter) -> CommitMarker | None:
        monkeypatch.setattr(BucketLogWriter, "fence", fence)
        with pytest.raises(KeyboardInterrupt):
            newer.write(1)
        after.append(state(table))
        return fence(self)

    monkeypatch.setattr(BucketLogWriter, "fence", late)
    with pytest.raises(TakenOverError, match=r"batch=1 run=old newer_run=new"):
        old.write(1)
    assert [state(table)] == after
    newer.write(1)
    assert {row["v"] for row in state(table)[1]} == {"1 new"}


def test_a_run_that_is_paused_in_its_first_batch_is_refused_by_what_has_only_begun(tmp_path: Path) -> None:
    """The newer run has published nothing yet."""
    table = new_table(tmp_path, SCHEMA, options=OPTIONS)

    def begin(event: StepEvent) -> None:
        if event.step is Step.TASKS_DONE:
            with pytest.raises(KeyboardInterrupt):
                Start(table, "new", interrupt).write(0)

    def interrupt(event: StepEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(TakenOverError, match="newer_run=new"):
        Start(table, "old", begin).write(0)
    assert table.latest_snapshot() is None
    assert files_of_rows(table) == set()
    Start(table, "third").write(0)
    assert table.read().to_arrow().num_rows == 6


def test_compaction_and_expiry_of_an_old_run_change_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path, SCHEMA, options={**OPTIONS, "write-only": "true"})
    old, newer = Start(table, "old"), Start(table, "new")
    for batch in range(4):
        old.write(batch)
    kept = table.store.with_options({"write-only": "false"})
    made: list[CommitMessage] = []

    def compact(tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        newer.write(4)
        made.extend(LocalRunner().compact(kept, tasks))
        return made

    compaction = BackgroundCompaction(kept, compact, check=lambda: old.session.check_run("compaction"))
    compaction.after_commit(old.session._writer.live)
    compaction.close()
    assert made
    assert files_of_rows(table).isdisjoint(file.file_name for each in made for file in each.compact_after)
    Housekeeping(kept, check=lambda: old.session.check_run("expiry")).after_commit()
    assert table.store.snapshots.ids() == [1, 2, 3, 4, 5]
    newest = table.latest_snapshot()
    assert newest is not None
    assert (newest.commit_identifier, compaction.failures.count) == (4, 0)
    free = Housekeeping(kept, check=lambda: newer.session.check_run("expiry"))
    free.after_commit()
    assert table.store.snapshots.ids() == [4, 5]


def test_the_committing_process_of_an_old_run_is_refused_when_it_is_started_again(tmp_path: Path) -> None:
    """format("fluvial"): Spark starts that process again under the id of the same run."""
    table = new_table(tmp_path, SCHEMA, options=OPTIONS)

    def commit(process: StreamSessions, run: str, batch: int) -> None:
        file = stage_rows(table.files, rows_of(batch, run), commit_user="query", batch_id=batch)
        assert file is not None
        process.commit(table.files, NO_OPTIONS, [file], commit_user="query", run_id=run, batch_id=batch)

    first = StreamSessions()
    commit(first, "old", 0)
    commit(StreamSessions(), "new", 1)
    before = state(table)
    for process in (first, first, StreamSessions()):
        for batch in (1, 2):
            with pytest.raises(TakenOverError, match=rf"{REFUSED}: .*run=old newer_run=new"):
                commit(process, "old", batch)
    assert state(table) == before


def test_the_tasks_of_a_run_take_over_and_those_of_an_old_one_stage_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """format("fluvial"): a run that was paused before its first commit is refused as well."""
    table = new_table(tmp_path, SCHEMA, options=OPTIONS)
    place = {"warehouse": str(tmp_path), "table": table.name, "checkpointLocation": str(tmp_path / "checkpoint")}
    options = WriteOptions.parse(place, STREAM_WRITE_KEYS)
    writer = StagedStreamWriter(
        options, StructType().add("id", "long").add("v", "string").add("_row_kind", "string"), overwrite=False
    )

    def task(run: str) -> StagedTask:
        monkeypatch.setattr("engine.spark.writer.staged_writer._place", lambda: ("query", run, 0))
        return writer.write(iter(rows_of(0, run)))

    old, new = task("old"), task("new")
    with pytest.raises(TakenOverError, match=r"batch=0 run=old newer_run=new"):
        task("old")
    with pytest.raises(TakenOverError, match=r"batch=0 run=old newer_run=new"):
        writer.commit([old], 0)
    writer.commit([new], 0)
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {"0 new"}
