"""A batch job that another writer took for dead: its rows are there once, or it says that this is unknown."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.log.log_rows import log_rows
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, StepEvent
from engine.table import Table
from engine.write.repeating import LostTraceError
from engine.write.session import LocalRunner, Upkeep, WriteSession
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.offsets import LogRange

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
JOB, OTHER = range(8), range(100, 108)
"""Keys of both buckets."""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})
        yield catalog.create_table("d.t", SCHEMA, options={"bucket": "2", "bucket-key": "id", "write-only": "true"})


def ids(keys: range) -> pa.Table:
    return pa.table({"id": list(keys)}, schema=SCHEMA)


def write_beside(table: Table, step: Step, beside: Callable[[], object]) -> None:
    """Write a batch job that sleeps at a step for as long as something else is done."""
    slept: list[Step] = []

    def observe(event: StepEvent) -> None:
        if event.step is step and not slept:
            slept.append(step)
            beside()

    session = WriteSession(
        table.files, LocalRunner(), commit_user="job", options=NO_OPTIONS, upkeep=Upkeep.BATCH,
        origin=lambda *_: None, observe=observe,
    )  # fmt: skip
    with session:
        session.write(ids(JOB).to_batches())
    assert slept == [step]


def adopt(table: Table) -> None:
    """What another writer does: it publishes the job's rows, then its own."""
    table.write(ids(OTHER))


def adopt_and_expire(table: Table) -> None:
    adopt(table)
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=99)))


def logged(table: Table) -> Counter[int]:
    """How often each key is in the log."""
    log, newest = table.log, table.latest_snapshot()
    assert log is not None
    assert newest is not None
    found: Counter[int] = Counter()
    for bucket, end in newest.log_offsets.items():
        for each in log_rows(table.files, log, LogRange(bucket=bucket, start_offset=0, end_offset=end), columns=["id"]):
            found.update(row["id"] for row in each.rows.to_pylist())
    return found


@pytest.mark.parametrize(
    ("step", "beside"),
    [(Step.TASKS_DONE, adopt), (Step.TASKS_DONE, adopt_and_expire), (Step.LOG_COMMITTED, adopt)],
    ids=["whole", "whole-expired", "part"],
)
def test_a_job_that_another_writer_published_adds_what_lacks(
    table: Table, step: Step, beside: Callable[[Table], None]
) -> None:
    """FL-87: each row is once in the table and once in the log."""
    write_beside(table, step, lambda: beside(table))
    once = Counter([*JOB, *OTHER])
    assert Counter(table.read().to_arrow()["id"].to_pylist()) == once
    assert logged(table) == once


def test_a_job_of_which_an_unknown_part_was_published_is_not_written_again(table: Table) -> None:
    """The snapshots that would show the part have expired: the log has not one row twice."""
    with pytest.raises(LostTraceError, match=r"have expired: table=d.t fix='look whether its rows are there"):
        write_beside(table, Step.LOG_COMMITTED, lambda: adopt_and_expire(table))
    found = Counter(table.read().to_arrow()["id"].to_pylist())
    assert set(OTHER) < set(found) < {*JOB, *OTHER}
    assert logged(table) == found
    assert set(found.values()) == {1}
