"""Tables whose log is ahead of their snapshots: what a union read is for."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from engine import Table
from engine.log.table_log import TableLog
from engine.request.writer_options import WriterOptions
from engine.runtime.steps import Step, StepEvent
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from filestore.commit.table_commit import CommitResult
from tests.support.clients import delete_records
from tests.support.logs import wait_for_log

Change = tuple[str, int, str | None]
"""Kind, key and value."""


class DiedError(Exception):
    """What stands for kill -9 in a test of one process."""


def changes(made: Iterable[Change]) -> pa.Table:
    """Rows with their kinds, to be written."""
    kinds, ids, values = zip(*made, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string()), "_row_kind": list(kinds)})


def write_log_only(table: Table, rows: pa.Table) -> None:
    """Write a batch whose driver dies when log and files are there and before the snapshot is."""

    def dies(event: StepEvent) -> None:
        if event.step is Step.TASKS_DONE:
            raise DiedError

    results: list[BucketResult] = []

    def write(spec: BatchSpec) -> list[BucketResult]:
        results.extend(write_part(spec, rows.to_batches()))
        return results

    writer = BatchWriter(table.files, table.log, commit_user=f"gone-{uuid4()}", observe=dies)
    try:
        writer.write(0, write)
    except DiedError:
        wait_for_log(table, {each.bucket: each.log_slice.end_offset for each in results if each.log_slice})
        return
    raise AssertionError("the writer should have died")


def adopt(table: Table, rows: pa.Table) -> CommitResult:
    """Write a batch, and commit before it what a dead writer has left in the log."""
    log = TableLog.of(table.files, WriterOptions({"log.on-orphan-batch": "adopt"}))
    return BatchWriter(table.files, log, commit_user=str(uuid4())).write(
        0, lambda spec: write_part(spec, rows.to_batches())
    )


def write_aborted(table: Table, rows: pa.Table) -> None:
    """Write a batch whose task dies after it has sent rows to the log."""

    def batches() -> Iterable[pa.RecordBatch]:
        yield from rows.to_batches()
        raise DiedError

    writer = BatchWriter(table.files, table.log, commit_user=f"aborted-{uuid4()}")
    try:
        writer.write(0, lambda spec: write_part(spec, batches()))
    except DiedError:
        return
    raise AssertionError("the writer should have died")


def forget_after(table: Table, snapshot_id: int) -> None:
    """Take away the snapshots after one: then its log is ahead of it by all that they held."""
    for each in table.store.snapshots.ids():
        if each > snapshot_id:
            Path(table.store.paths.snapshot(each)).unlink()


def lose_log_before(table: Table, before_offsets: Mapping[int, int]) -> None:
    """Delete the oldest records of the log, as retention does."""
    assert table.log is not None
    delete_records(table.log.properties.by_name["bootstrap.servers"], table.log.topic, before_offsets)


def by_key(rows: pa.Table) -> dict[int, str | None]:
    """Values by key; every key once."""
    found = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def folded(made: Iterable[Change], onto: Mapping[int, str | None] | None = None) -> dict[int, str | None]:
    """The oracle: a dict."""
    state = dict(onto or {})
    for kind, key, value in made:
        if kind[0] == "+":
            state[key] = value
        else:
            state.pop(key, None)
    return state
