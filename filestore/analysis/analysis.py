"""ANALYZE: reading a table once, and publishing what was found with a snapshot of its own.

Source: Paimon Statistics, StatsFileHandler.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from filestore.analysis.column_statistics import ColumnStatistics
from filestore.commit.committable import StatisticsFile
from filestore.commit.table_commit import TableCommit
from filestore.read.split_read import read_split
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.undo import undoing_unless_visible

OnColumn = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """The statistics of ANALYZE."""

    snapshot_id: int  # that was read
    schema_id: int  # of then; with another one the statistics do not count
    row_count: int
    size_bytes: int
    columns: Mapping[str, Mapping[str, Any]]  # by name, as in the file

    def to_json(self) -> bytes:
        """The bytes of its file."""
        body = {
            "snapshotId": self.snapshot_id,
            "schemaId": self.schema_id,
            "mergedRecordCount": self.row_count,
            "mergedRecordSize": self.size_bytes,
            "colStats": self.columns,
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def analyze(
    table: FileTable, columns: Sequence[str], *, progress: OnColumn = lambda done, of: None
) -> TableStatistics | None:
    """Count a table's rows and describe some of its columns, for planners; None: the table has no snapshot.

    Args:
        table: to read at its newest snapshot.
        columns: names; () reads no column.
        progress: called with splits done, and of all.

    Raises:
        ConflictError: the schema changed, or the commit lost too many races: call again. Nothing is visible.
        InvalidInputError: there is no such column.
        OutcomeUnknownError: it may be visible.
    """
    known = table.schema.column_names
    for name in columns:
        if name not in known:
            raise InvalidInputError(f"no such column: table={table.name} column={name} columns={list(known)}")
    store, read = table.store, table.read()
    snapshot = read.snapshot
    if snapshot is None:
        return None
    view = read.table
    found = {name: ColumnStatistics(view.schema.field(name)) for name in dict.fromkeys(columns)}
    rows, splits = 0, read.plan().splits
    for done, split in enumerate(splits):
        progress(done, len(splits))
        for batch in read_split(view, split, columns=list(found)):
            rows += batch.num_rows
            for name, column in found.items():
                column.add(batch.column(name))
    progress(len(splits), len(splits))
    files = [entry.file for entry in live_files(store, snapshot) if entry.bucket >= 0]
    stored = sum(file.row_count for file in files)
    statistics = TableStatistics(
        snapshot_id=snapshot.id,
        schema_id=store.schema.id,
        row_count=rows,
        size_bytes=round(sum(file.size_bytes for file in files) * min(rows / stored, 1)) if stored else 0,
        columns={name: column.to_json() for name, column in found.items()},
    )
    name = f"stat-{store.names.uuid()}-0"
    with undoing_unless_visible(lambda: store.io.delete(store.paths.statistics(name))):
        store.io.write_new(store.paths.statistics(name), statistics.to_json())
        commit = TableCommit(store, store.new_commit_user(), history_start=snapshot.id)
        commit.commit_statistics(StatisticsFile(name=name, schema_id=store.schema.id))
    return statistics


def statistics_of(store: TableStore, snapshot: Snapshot | None) -> TableStatistics | None:
    """The statistics of ANALYZE that apply to a snapshot; None: none.

    Raises: CorruptDataError, FileNotFoundError.
    """
    if snapshot is None or snapshot.statistics is None:
        return None
    path = store.paths.statistics(snapshot.statistics)
    try:
        body = orjson.loads(store.io.read_bytes(path))
        if body["schemaId"] != snapshot.schema_id:
            return None
        return TableStatistics(
            snapshot_id=body["snapshotId"],
            schema_id=body["schemaId"],
            row_count=body.get("mergedRecordCount") or 0,
            size_bytes=body.get("mergedRecordSize") or 0,
            columns=body.get("colStats") or {},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"statistics cannot be decoded: file={path} error={error!r}") from error
