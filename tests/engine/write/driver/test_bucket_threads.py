"""Batches written in threads are what one process writes, and a thread that fails leaves what a failed task leaves."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Table
from engine.broker.broker import Broker
from engine.log.table_log import TableLog
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.write.batch_part import BatchSpec, BucketResult
from engine.write.driver.bucket_threads import compact_in_threads, write_in_threads
from engine.write.driver.driver_runner import Turns
from engine.write.session import LocalRunner, Runner, Upkeep, WriteSession
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import TakenOverError, UnavailableError
from tests.support.logs import changes_by_bucket
from tests.support.tables import KEY_SCHEMA, key_table
from tests.support.warehouses import new_table

Changes = Sequence[tuple[int, int, str]]  # id, value, kind
SCHEMA = pa.schema([*KEY_SCHEMA, ("_row_kind", pa.string())])


class ThreadRunner:
    """Threads of this process, for Arrow batches, as the driver of a query has them."""

    def __init__(self, most_threads: int = 3) -> None:
        self._most = most_threads

    def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        return write_in_threads(replace(spec, keeps_writers=True), list(rows), most_threads=self._most)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        return compact_in_threads(store, tasks, most_threads=self._most)


def query_session(
    table: FileTable, runner: Runner[Iterable[pa.RecordBatch]], observe: Observer = ignore
) -> WriteSession[Iterable[pa.RecordBatch]]:
    return WriteSession(
        table, runner, commit_user="query", options=NO_OPTIONS, upkeep=Upkeep.STREAM, origin=lambda *_: None,
        observe=observe,
    )  # fmt: skip


def batches_of(changes: Changes, pieces: int = 2) -> list[pa.RecordBatch]:
    columns = [pa.array([each[n] for each in changes], SCHEMA.types[n]) for n in range(3)]
    rows = pa.table(columns, schema=SCHEMA)
    return rows.to_batches(max_chunksize=max(1, -(-len(changes) // pieces)))


def written_files(table: FileTable) -> set[str]:
    io, root = table.store.io, table.store.paths.root
    return {
        f"{name}/{file}"
        for name in io.list_names(root)
        if "bucket-" in name
        for file in io.list_names(f"{root}/{name}")
    }


CHANGE = st.tuples(st.integers(0, 12), st.integers(0, 99), st.sampled_from(["+I", "+U", "-D", "-U"]))


@pytest.mark.long
@pytest.mark.sweep
@given(
    batches=st.lists(st.lists(CHANGE, max_size=20), min_size=1, max_size=6),
    buckets=st.sampled_from(["1", "2", "5", "-1"]),
    options=st.sampled_from([{}, {"changelog-producer": "input"}, {"num-sorted-run.compaction-trigger": "2"}]),
)
def test_threads_write_what_one_process_writes(batches: list[Changes], buckets: str, options: dict[str, str]) -> None:
    """The newest row of each key wins, whichever thread has it; every file is numbered as without threads."""
    found = []
    for runner in (LocalRunner(), ThreadRunner()):
        table = key_table(bucket=buckets, **options)
        with query_session(table, runner) as session:
            for number, changes in enumerate(batches):
                session.write(batches_of(changes), batch_id=number)
        snapshot = table.store.snapshots.latest()
        rows = sorted(map(str, table.read().to_arrow().to_pylist()))
        found.append((rows, None if snapshot is None else snapshot.total_record_count))
    assert found[0][0] == found[1][0]
    if not options:
        assert found[0] == found[1]


def test_files_of_threads_that_ended_go_when_another_one_fails() -> None:
    table = key_table(bucket="4")
    with query_session(table, ThreadRunner(4)) as session:
        session.write(batches_of([(key, 1, "+I") for key in range(40)]), batch_id=0)
    before = written_files(table)
    seen: list[Step] = []

    def fail_last(event: StepEvent) -> None:
        if event.step is Step.PART_DONE:
            seen.append(event.step)
            if len(seen) == 4:
                raise UnavailableError("no more")

    with query_session(table, ThreadRunner(4), fail_last) as session:
        with pytest.raises(UnavailableError, match="no more"):
            session.write(batches_of([(key, 2, "+U") for key in range(40)]), batch_id=1)
        assert len(seen) == 4
        assert written_files(table) == before
    with query_session(table, ThreadRunner(4)) as session:
        session.write(batches_of([(key, 3, "+U") for key in range(40)]), batch_id=1)
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {3}


@pytest.mark.sampled(3)
@pytest.mark.broker
@pytest.mark.parametrize("step", [Step.BUCKET_FENCED, Step.ROWS_WRITTEN, Step.FILES_FLUSHED, Step.LOG_COMMITTED])
@pytest.mark.parametrize("is_replayed_at_once", [True, False], ids=["same run", "new run"])
def test_a_thread_that_fails_at_any_step_is_completed_once(
    tmp_path: Path, broker: Broker, step: Step, is_replayed_at_once: bool
) -> None:
    """The other threads may have ended their transactions: a replay with other rows takes over what they left."""
    table: Table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": "3"})
    failed: list[Step] = []

    def fail_once(event: StepEvent) -> None:
        if event.step is step and event.batch_id == 1 and not failed:
            failed.append(step)
            raise UnavailableError("no more")

    def change(value: int) -> list[pa.RecordBatch]:
        return batches_of([(key, value, "+U") for key in range(30)])

    session = query_session(table.files, ThreadRunner(), fail_once)
    session.write(change(0), batch_id=0)
    with pytest.raises(UnavailableError, match="no more"):
        session.write(change(1), batch_id=1)
    if not is_replayed_at_once:
        session.close()
        session = query_session(table.files, ThreadRunner())
    session.write(change(2), batch_id=1)
    session.write(change(3), batch_id=2)
    session.close()
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {3}
    log = changes_by_bucket(table)
    for changes in log.values():
        values = [row["v"] for _, row in changes]
        keys = len({row["id"] for _, row in changes})
        assert len(values) == 3 * keys  # each batch once
        assert len(set(values[keys : 2 * keys])) == 1  # a bucket is of one attempt
        assert set(values[keys : 2 * keys]) <= {1, 2}


def all_keys_at(value: int, keys: int = 30) -> list[pa.RecordBatch]:
    return batches_of([(key, value, "+U") for key in range(keys)])


def logged_values(table: Table) -> set[tuple[int, ...]]:
    """Of each key: the values of its records, in order."""
    found: dict[int, list[int]] = {}
    for changes in changes_by_bucket(table).values():
        for _, row in changes:
            found.setdefault(row["id"], []).append(row["v"])
    return {tuple(values) for values in found.values()}


@pytest.mark.broker
def test_a_run_fences_each_bucket_once_more_and_then_writes_on(
    tmp_path: Path, broker: Broker, fences: list[int]
) -> None:
    """Buckets without rows in a batch stay open; another writer's batch is noticed before a row is written."""
    table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": "3"})
    counts = []
    with query_session(table.files, ThreadRunner()) as session:
        for batch in range(4):
            session.write(all_keys_at(batch, keys=1 if batch == 2 else 30), batch_id=batch)
            counts.append(len(fences))
        assert counts == [6, 6, 6, 6]  # all by the first batch, then by the threads
        table.write(pa.table({"id": range(30), "v": [4] * 30}))
        before = len(fences)
        session.write(all_keys_at(5), batch_id=5)
        assert len(fences) - before == 3
        session.write(all_keys_at(6), batch_id=6)
        assert len(fences) - before == 3
    assert logged_values(table) == {(0, 1, 2, 3, 4, 5, 6), (0, 1, 3, 4, 5, 6)}
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {6}


@pytest.mark.broker
def test_a_run_that_was_fenced_between_two_batches_looks_again(
    tmp_path: Path, broker: Broker, fences: list[int]
) -> None:
    """A writer that died behind its fence has left nothing in the table that would show it: Kafka refuses the rows."""
    table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": "3"})
    log = TableLog.of(table.files)
    assert log is not None
    with query_session(table.files, ThreadRunner()) as session:
        session.write(all_keys_at(0), batch_id=0)
        with log.writer(1) as other:
            other.fence()
        session.write(all_keys_at(1), batch_id=1)
        session.write(all_keys_at(2), batch_id=2)
    assert logged_values(table) == {(0, 1, 2)}
    assert {row["v"] for row in table.read().to_arrow().to_pylist()} == {2}


@pytest.mark.broker
def test_a_run_that_a_newer_one_has_taken_over_writes_nothing(tmp_path: Path, broker: Broker) -> None:
    """Its producers were open all the time."""
    table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": "3"})
    old, new = query_session(table.files, ThreadRunner()), query_session(table.files, ThreadRunner())
    with old, new:
        old.write(all_keys_at(0), batch_id=0)
        new.write(all_keys_at(1), batch_id=1)
        with pytest.raises(TakenOverError):
            old.write(all_keys_at(9), batch_id=1)
        new.write(all_keys_at(2), batch_id=2)
    assert logged_values(table) == {(0, 1, 2)}


def test_after_a_batch_that_was_too_large_tasks_write_more_and_more_of_them() -> None:
    turns, large, drivers = Turns(), True, []
    for batch in range(300):
        if turns.driver_is_next():
            drivers.append(batch)
            if large:
                turns.hand_over()
            else:
                turns.keep()
    assert drivers[:8] == [0, 2, 5, 10, 19, 36, 69, 134]
    assert drivers[8:] == [199, 264]  # 64 at most
    turns.keep()
    assert turns.hand_over() == 1
