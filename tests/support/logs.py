"""What a table's log holds, read as any reader of committed records would."""

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine.log.table_log import TableLog
from engine.table import Table
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from filestore.commit.table_commit import CommitResult
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.row_kind import RowKind

Row = dict[str, Any]


def log_changes(table: Table) -> list[tuple[RowKind, Row]]:
    """Every change with its kind: bucket by bucket, in the order of the log."""
    return [change for changes in changes_by_bucket(table).values() for change in changes]


def changes_by_bucket(table: Table) -> dict[int, list[tuple[RowKind, Row]]]:
    """Every change with its kind, in the order of the log; buckets without any have no entry."""
    log = table.log
    assert log is not None
    found: dict[int, list[tuple[RowKind, Row]]] = {}
    for bucket, end in visible_ends(table).items():
        whole = LogRange(bucket=bucket, start_offset=min(log.first_offset, end), end_offset=end)
        for records in map(without_notes, read_range(log.properties, topic=log.topic, log_range=whole)):
            decoded = log.codec.decode(records.column("key"), records.column("value"), table.schema.arrow_schema)
            changes = zip(map(RowKind, decoded.kinds.to_pylist()), decoded.rows.to_pylist(), strict=True)
            found.setdefault(bucket, []).extend(changes)
    return found


def without_notes(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records without claims and control records, which have neither key nor value."""
    has_value = pc.greater(pc.fill_null(pc.binary_length(records["value"]), 0), 0)
    return records.filter(pc.or_(records["key"].is_valid(), has_value))


def visible_ends(table: Table) -> Mapping[int, int]:
    """The end of each bucket's log, once the newest snapshot's records are before it.

    The newest snapshot may be a late one, of a compaction that had begun before the table got this log.
    """
    wait_for_log(table, table.store.log_offsets_at(table.latest_snapshot()) or {})
    return table.log_end_offsets()


def ends_with_markers(table: Table) -> Mapping[int, int]:
    """The ends of the log, once brokers show the commit marker behind each bucket's last record."""
    newest = table.latest_snapshot()
    assert newest is not None
    wait_for_log(table, {bucket: offset + 1 for bucket, offset in newest.log_offsets.items()})
    return table.log_end_offsets()


def wait_for_log(table: Table, ends: Mapping[int, int]) -> None:
    """Until every reader sees the log up to here: soon after a commit the brokers may still show an earlier end."""
    deadline = time.monotonic() + 60
    while any(table.log_end_offsets()[bucket] < end for bucket, end in ends.items()):
        assert time.monotonic() < deadline, f"the log stays behind: wanted={ends} is={table.log_end_offsets()}"
        time.sleep(0.01)


def folded(changes: list[tuple[RowKind, Row]], key: str) -> dict[Any, Row]:
    """What a downstream reader that keeps the newest row of each key ends up with."""
    rows: dict[Any, Row] = {}
    for kind, row in changes:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[row[key]] = row
        else:
            rows.pop(row[key], None)
    return rows


def write_batch(writer: BatchWriter, batch: int, rows: pa.Table) -> CommitResult:
    """One micro-batch, written by this process as one part."""
    return writer.write(batch, lambda spec: write_part(spec, rows.to_batches()))


class DiedBeforeTheCommit(Exception):
    """The log has the rows, the table does not."""


def write_without_commit(table: Table, batch: int, news: pa.Table) -> None:
    """A batch of the user ``eventual`` that is in the log, and never in the table."""
    writer = BatchWriter(table.files, TableLog.of(table.files), commit_user="eventual")
    ends: dict[int, int] = {}

    def die(spec: Any) -> Any:
        results = list(write_part(spec, news.to_batches()))
        ends.update({each.bucket: each.log_slice.end_offset for each in results if each.log_slice})
        raise DiedBeforeTheCommit

    with pytest.raises(DiedBeforeTheCommit):
        writer.write(batch, die)
    wait_for_log(table, ends)
