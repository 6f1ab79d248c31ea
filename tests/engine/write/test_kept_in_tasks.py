"""Workers that keep the log's writers between tasks write what workers write that open one for each batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Table
from engine.broker.broker import Broker
from engine.log.bucket_log import BucketLog
from engine.log.table_log import TableLog
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, StepEvent, ignore
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.session import Upkeep, WriteSession, compact_here
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.snapshot.snapshot import CommitKind
from filestore.table_store import TableStore
from logstore.kafka.clients import ErrorNotes
from logstore.log.kept_writers import KeptWriters
from lsm.errors import ConflictError, CorruptDataError, OutcomeUnknownError
from tests.support.logs import changes_by_bucket
from tests.support.tables import KEY_SCHEMA
from tests.support.warehouses import new_table

pytestmark = pytest.mark.broker

Rows = list[pa.RecordBatch]
KEYS = 30
BUCKETS = 3
EXACT = {"log.changelog-mode": "all", "changelog-producer": "lookup"}
MUCH = 200_000  # rows: more than a bucket holds back until a broker has taken one
OPENED = (Step.BUCKET_FENCED, Step.ROWS_WRITTEN, Step.FILES_FLUSHED)


class Workers:
    """Workers of a cluster: each keeps writers of its own, and ``next`` writes the next batch."""

    def __init__(self, count: int) -> None:
        self.kept = [KeptWriters() for _ in range(count)]
        self.next = 0
        self.attempts = 0
        self.specs: list[BatchSpec] = []

    def write(self, spec: BatchSpec, rows: Rows) -> list[BucketResult]:
        self.attempts += 1
        self.specs.append(spec)
        return self.task(self.next, spec, rows)

    def task(self, worker: int, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        return write_part(replace(spec, kept=self.kept[worker], keeps_writers=True), rows)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        return compact_here(store, tasks)

    def session(self, table: Table) -> WriteSession[Rows]:
        return WriteSession(
            table.files, self, commit_user="query", options=NO_OPTIONS, upkeep=Upkeep.STREAM, origin=lambda *_: None
        )


def batch_rows(value: int, keys: int = KEYS) -> Rows:
    rows = pa.table({"id": pa.array(range(keys)), "v": pa.array([value] * keys)}, schema=KEY_SCHEMA)
    return list(rows.to_batches())


def bucketed_table(home: Path, broker: Broker, **options: str) -> Table:
    return new_table(home, KEY_SCHEMA, broker=broker, options={"bucket": str(BUCKETS), **options})


def histories(table: Table) -> set[tuple[int, ...]]:
    """Of each key: the values that the log adds, in order. One history: every batch is in it once, whole."""
    found: dict[int, list[int]] = {}
    for changes in changes_by_bucket(table).values():
        for kind, row in changes:
            if not kind.is_retract:
                found.setdefault(row["id"], []).append(row["v"])
    return {tuple(values) for values in found.values()}


def shown_values(table: Table) -> set[int]:
    return set(table.read().to_arrow()["v"].to_pylist())


def test_a_worker_has_one_producer_of_a_bucket_however_many_batches_it_writes(
    tmp_path: Path, broker: Broker, fences: list[int]
) -> None:
    table, workers, counts = bucketed_table(tmp_path, broker), Workers(1), []
    with workers.session(table) as session:
        for batch in range(6):
            session.write(batch_rows(batch, keys=1 if batch == 2 else KEYS), batch_id=batch)
            counts.append(len(fences))
    assert counts == [2 * BUCKETS] * 6  # the driver's, when the query begins, and the worker's
    assert histories(table) == {(0, 1, 2, 3, 4, 5), (0, 1, 3, 4, 5)}


def test_a_writer_of_a_program_has_one_producer_of_a_bucket_however_often_it_commits(
    tmp_path: Path, broker: Broker, fences: list[int]
) -> None:
    table, counts = bucketed_table(tmp_path, broker), []
    with table.writer("w", max_delay_s=0) as writer:
        for batch in range(4):
            writer.write(batch_rows(batch)[0]).result()
            counts.append(len(fences))
    assert counts == [2 * BUCKETS] * 4
    assert histories(table) == {(0, 1, 2, 3)}


@pytest.mark.parametrize("options", [{}, EXACT], ids=["given", "exact"])
def test_workers_that_have_a_bucket_in_turn_each_fence_it_once_and_are_never_refused(
    tmp_path: Path, broker: Broker, fences: list[int], options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The end in the snapshot is another one than what the worker left: it asks no broker to find out."""
    caplog.set_level("INFO", "fluvial.log")
    table, workers = bucketed_table(tmp_path, broker, **options), Workers(2)
    turns = [0, 0, 1, 0, 1, 1, 1, 0]
    with workers.session(table) as session:
        for batch, worker in enumerate(turns):
            workers.next = worker
            session.write(batch_rows(batch), batch_id=batch)
    moves = 1 + sum(one != other for one, other in pairwise(turns))
    assert len(fences) == BUCKETS * (1 + moves)
    assert workers.attempts == len(turns)
    assert "is replaced" not in caplog.text
    assert histories(table) == {tuple(range(len(turns)))}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", [{}, EXACT], ids=["given", "exact"])
@pytest.mark.parametrize("keys", [1, KEYS])
@pytest.mark.parametrize("step", OPENED)
def test_a_zombie_with_kept_writers_that_wakes_behind_another_attempt_adopts_its_batch(
    tmp_path: Path, broker: Broker, step: Step, keys: int, options: dict[str, str]
) -> None:
    """A repeated stage, a speculative copy, an executor taken for dead: the snapshot's end is what it remembers."""
    table, workers = bucketed_table(tmp_path, broker, **options), Workers(2)
    other: list[list[BucketResult]] = []

    def wake_late(event: StepEvent) -> None:
        if event.step is step and not other:
            other.append([])
            other[0] = workers.task(1, workers.specs[-1], batch_rows(77, keys))

    with workers.session(table) as session:
        session.write(batch_rows(0, keys), batch_id=0)
        task = workers.task
        workers.task = lambda worker, spec, rows: task(  # type: ignore[method-assign]
            worker, replace(spec, observe=wake_late) if worker == 0 else spec, rows
        )
        session.write(batch_rows(1, keys), batch_id=1)
        session.write(batch_rows(2, keys), batch_id=2)
    if keys == 1 or step is Step.BUCKET_FENCED:  # else a broker may have taken a row before
        assert workers.attempts == 3, "it finds out in the same attempt"
    assert histories(table) == {(0, 77, 2)}
    assert shown_values(table) == {2}
    snapshots = [table.store.snapshots.read(each) for each in table.store.snapshots.ids()]
    [found] = [each.id for each in snapshots if each.commit_identifier == 1 and each.commit_kind is CommitKind.APPEND]
    assert set(table.read(snapshot_id=found).to_arrow()["v"].to_pylist()) == {77}


def test_a_zombie_whose_rows_a_broker_has_taken_is_refused(tmp_path: Path, broker: Broker) -> None:
    """Another attempt fences it behind its proof: it commits nothing, and the batch is tried again as a whole."""
    table, workers = bucketed_table(tmp_path, broker, bucket="1"), Workers(2)
    other: list[list[BucketResult]] = []

    def wake_late(event: StepEvent) -> None:
        if event.step is Step.FILES_FLUSHED and not other:
            other.append([])
            other[0] = workers.task(1, replace(workers.specs[-1], observe=ignore), batch_rows(77))

    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
        spec_of = workers.write
        workers.write = lambda spec, rows: spec_of(replace(spec, observe=wake_late), rows)  # type: ignore[method-assign]
        session.write(batch_rows(1, MUCH), batch_id=1)
        session.write(batch_rows(2), batch_id=2)
    assert workers.attempts == 4
    assert histories(table) == {(0, 77, 2)}


def test_a_zombie_that_wakes_when_later_batches_are_in_the_table_writes_nothing(tmp_path: Path, broker: Broker) -> None:
    table, workers = bucketed_table(tmp_path, broker), Workers(2)
    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
        workers.next = 1
        session.write(batch_rows(1), batch_id=1)
        session.write(batch_rows(2), batch_id=2)
        files = set(Path(table.store.paths.root).rglob("data-*"))
        for late in workers.specs[1:2]:  # of worker 0, which has writers that were left at the end that it was given
            with pytest.raises(ConflictError, match="a later batch is in the log"):
                workers.task(0, late, batch_rows(99))
        assert set(Path(table.store.paths.root).rglob("data-*")) == files
        session.write(batch_rows(3), batch_id=3)
    assert histories(table) == {(0, 1, 2, 3)}


@pytest.mark.parametrize("options", [{}, EXACT], ids=["given", "exact"])
def test_a_fence_that_left_nothing_is_answered_by_another_one_in_the_same_attempt(
    tmp_path: Path, broker: Broker, fences: list[int], options: dict[str, str]
) -> None:
    """A worker died behind its fence: the end is what the kept writer left, and Kafka takes nothing from it."""
    table, workers = bucketed_table(tmp_path, broker, **options), Workers(1)
    log = TableLog.of(table.files)
    assert log is not None
    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
        for bucket in range(BUCKETS):
            with log.writer(bucket) as other:
                other.fence()
        before = len(fences)
        session.write(batch_rows(1), batch_id=1)
        assert len(fences) - before == BUCKETS
        session.write(batch_rows(2), batch_id=2)
        assert len(fences) - before == BUCKETS
    assert workers.attempts == 3
    assert histories(table) == {(0, 1, 2)}


def test_a_bucket_without_a_row_for_the_log_is_fenced_before_its_files_count(
    tmp_path: Path, broker: Broker, fences: list[int]
) -> None:
    """Kafka would refuse a record, and there is none."""
    table, kept = bucketed_table(tmp_path, broker, bucket="1"), KeptWriters()
    workers = Workers(1)
    workers.kept = [kept]
    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
    [spec] = workers.specs
    assert spec.log is not None
    end = table.log_end_offsets()[0] - 1  # behind the last record, without the one of the transaction

    def without_rows() -> BucketLog:
        log = BucketLog(spec.log, table.store, 0, query="query", batch=1, kept=kept)  # type: ignore[arg-type]
        assert log.open(known_end=end) is None
        assert log.is_kept
        log.begin(table.schema.id)
        return log

    before, log = len(fences), without_rows()
    workers.task(
        0, replace(spec, batch_id=1, log_offsets={0: end}), batch_rows(1)
    )  # by another worker: none is left here
    assert log.commit([]) is None
    log.close()
    assert log.adopted is not None
    assert log.adopted.batch == 1
    assert len(fences) - before == 2


def test_what_another_program_has_written_is_found_by_a_kept_writer_too(tmp_path: Path, broker: Broker) -> None:
    """It fences nobody, and no snapshot has its offset: the rows are not where they must be."""
    table, workers = bucketed_table(tmp_path, broker, bucket="1"), Workers(1)
    log = TableLog.of(table.files)
    assert log is not None
    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
        producer = log.properties.plain_producer(ErrorNotes())
        producer.produce(log.topic, value=b"{}", partition=0)
        producer.flush()
        producer.close()
        with pytest.raises(CorruptDataError):
            session.write(batch_rows(1), batch_id=1)
    assert shown_values(table) == {0}


def test_a_worker_that_dies_between_two_batches_leaves_nothing_that_the_next_one_trips_over(
    tmp_path: Path, broker: Broker
) -> None:
    table, workers = bucketed_table(tmp_path, broker), Workers(1)
    with workers.session(table) as session:
        for batch in range(4):
            session.write(batch_rows(batch), batch_id=batch)
            workers.kept[0].abandon()  # its producers are open, and never used again
    assert workers.attempts == 4
    assert histories(table) == {(0, 1, 2, 3)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", [*OPENED, Step.LOG_COMMITTED, Step.PART_DONE])
def test_a_task_that_fails_keeps_no_writer_and_its_repetition_finds_what_it_left(
    tmp_path: Path, broker: Broker, step: Step
) -> None:
    table, workers = bucketed_table(tmp_path, broker), Workers(1)
    failed: list[Step] = []

    def fail_once(event: StepEvent) -> None:
        if event.step is step and not failed:
            failed.append(step)
            raise OutcomeUnknownError("no more")

    write: Callable[..., Any] = workers.write
    with workers.session(table) as session:
        session.write(batch_rows(0), batch_id=0)
        workers.write = lambda spec, rows: write(replace(spec, observe=fail_once), rows)  # type: ignore[method-assign]
        session.write(batch_rows(1), batch_id=1)
        session.write(batch_rows(2), batch_id=2)
    assert failed == [step]
    assert histories(table) == {(0, 1, 2)}
    assert shown_values(table) == {2}
