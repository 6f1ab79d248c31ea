"""System tables of a table's commits: snapshots, commits, compactions, log offsets, statistics."""

from collections.abc import Iterator
from typing import Any, Final

import orjson
import pyarrow as pa

from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.scan.snapshot_files import delta_entries
from filestore.snapshot.snapshot import CHANGES_KEY, CommitKind, Snapshot
from filestore.system_tables.json_columns import json_text
from filestore.system_tables.system_table import SystemTable
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns
from lsm.errors import CorruptDataError


def history(store: TableStore) -> Iterator[Snapshot]:
    """Every snapshot that has not expired, oldest first."""
    for snapshot_id in store.snapshots.line().ids:
        found = store.snapshots.find(snapshot_id)
        if found is not None:
            yield found


def query_of(snapshot: Snapshot) -> tuple[str | None, int | None]:
    """The streaming query and micro-batch of a snapshot committed by Fluvial; (None, None) for others."""
    is_batch = CHANGES_KEY in snapshot.properties and snapshot.commit_kind is not CommitKind.COMPACT
    if not is_batch or snapshot.commit_identifier == BATCH_IDENTIFIER:
        return None, None
    return snapshot.commit_user, snapshot.commit_identifier


_SNAPSHOTS: Final = parse_columns(
    "snapshot_id int64, schema_id int64, commit_user string, commit_identifier int64, commit_kind string, "
    "commit_time instant, base_manifest_list string, delta_manifest_list string, changelog_manifest_list string?, "
    "total_record_count int64?, delta_record_count int64?, changelog_record_count int64?, watermark int64?, "
    "next_row_id int64?, operation string?, writer_version string?, log_offsets string?, query_id string?, "
    "batch_id int64?"
)


def _snapshots(store: TableStore, _: Snapshot | None) -> pa.Table:
    plain = [name for name in _SNAPSHOTS.names if hasattr(Snapshot, name) and name != "log_offsets"]
    rows = []
    for each in history(store):
        query, batch = query_of(each)
        rows.append(
            {name: getattr(each, name) for name in plain}
            | {
                "snapshot_id": each.id,
                "commit_kind": each.commit_kind.value,
                "commit_time": each.time_ms,
                "log_offsets": _offsets_text(each),
                "query_id": query,
                "batch_id": batch,
            }
        )
    return table_of(rows, _SNAPSHOTS)


def _offsets_text(snapshot: Snapshot) -> str | None:
    return json_text(dict(sorted(snapshot.log_offsets.items()))) if snapshot.log_offsets else None


_LOG_OFFSETS: Final = parse_columns(
    "snapshot_id int64, bucket int32, topic string?, start_offset int64?, end_offset int64, commit_time instant"
)


def _log_offsets(store: TableStore, _: Snapshot | None) -> pa.Table:
    topic = store.options.log_topic
    known: dict[int, int] | None = None
    rows: list[dict[str, Any]] = []
    for each in history(store):
        if known is None and each.id == 1:
            known = {}
        for bucket, end in sorted(each.log_offsets.items()):
            rows.append(
                {
                    "snapshot_id": each.id,
                    "bucket": bucket,
                    "topic": topic,
                    "start_offset": None if known is None else known.get(bucket, 0),
                    "end_offset": end,
                    "commit_time": each.time_ms,
                }
            )
        if each.log_offsets:
            known = dict(each.log_offsets)
    return table_of(rows, _LOG_OFFSETS)


_COMMITS: Final = parse_columns(
    "snapshot_id int64, commit_user string, commit_identifier int64, query_id string?, batch_id int64?, "
    "commit_kind string, changes string?, commit_time instant, ms_since_previous int64?, delta_record_count int64?, "
    "log_record_count int64?, operation string?, properties string?"
)


def _commits(store: TableStore, _: Snapshot | None) -> pa.Table:
    rows = []
    times_ms: dict[str, int] = {}
    before: Snapshot | None = None
    for each in history(store):
        query, batch = query_of(each)
        previous_ms = times_ms.get(each.commit_user)
        rows.append(
            {
                "snapshot_id": each.id,
                "commit_user": each.commit_user,
                "commit_identifier": each.commit_identifier,
                "query_id": query,
                "batch_id": batch,
                "commit_kind": each.commit_kind.value,
                "changes": each.properties.get(CHANGES_KEY),
                "commit_time": each.time_ms,
                "ms_since_previous": None if previous_ms is None else each.time_ms - previous_ms,
                "delta_record_count": each.delta_record_count,
                "log_record_count": log_record_count(before, each),
                "operation": each.operation,
                "properties": json_text(dict(each.properties)) if each.properties else None,
            }
        )
        times_ms[each.commit_user] = each.time_ms
        before = each
    return table_of(rows, _COMMITS)


def log_record_count(before: Snapshot | None, snapshot: Snapshot) -> int | None:
    """Number of log offsets of a commit, including transaction control records; None when unknown."""
    if not snapshot.log_offsets or (before is None and snapshot.id > 1):
        return None
    known = {} if before is None else before.log_offsets
    return sum(max(0, end - known.get(bucket, 0)) for bucket, end in snapshot.log_offsets.items())


_COMPACTIONS: Final = parse_columns(
    "snapshot_id int64, commit_time instant, commit_user string, bucket_count int64?, input_files int64?, "
    "output_files int64?, input_bytes int64?, output_bytes int64?, input_rows int64?, output_rows int64?, "
    "highest_level int32?"
)


def _compactions(store: TableStore, _: Snapshot | None) -> pa.Table:
    rows = [
        {"snapshot_id": each.id, "commit_time": each.time_ms, "commit_user": each.commit_user, **_work(store, each)}
        for each in history(store)
        if each.commit_kind is CommitKind.COMPACT
    ]
    return table_of(rows, _COMPACTIONS)


def _work(store: TableStore, snapshot: Snapshot) -> dict[str, int | None]:
    """Input and output of a compaction; empty if its snapshot expired since it was listed."""
    try:
        entries = delta_entries(store, snapshot)
    except FileNotFoundError:
        return {}

    def files(kind: EntryKind) -> list[ManifestEntry]:
        return [entry for entry in entries if entry.kind is kind]

    inputs, outputs = files(EntryKind.DELETE), files(EntryKind.ADD)
    return {
        "bucket_count": len({(entry.partition, entry.bucket) for entry in entries}),
        "input_files": len(inputs),
        "output_files": len(outputs),
        "input_bytes": sum(entry.file.size_bytes for entry in inputs),
        "output_bytes": sum(entry.file.size_bytes for entry in outputs),
        "input_rows": sum(entry.file.row_count for entry in inputs),
        "output_rows": sum(entry.file.row_count for entry in outputs),
        "highest_level": max((entry.file.level for entry in outputs), default=None),
    }


_STATISTICS: Final = parse_columns(
    "snapshot_id int64, schema_id int64, mergedRecordCount int64?, mergedRecordSize int64?, colstat string?"
)


def _statistics(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    if snapshot is None or snapshot.statistics is None:
        return table_of([], _STATISTICS)
    path = store.paths.statistics(snapshot.statistics)
    try:
        body = orjson.loads(store.io.read_bytes(path))
        row = {
            "snapshot_id": body["snapshotId"],
            "schema_id": body["schemaId"],
            "mergedRecordCount": body.get("mergedRecordCount"),
            "mergedRecordSize": body.get("mergedRecordSize"),
            "colstat": json_text(body.get("colStats") or {}),
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"statistics cannot be decoded: file={path} error={error!r}") from error
    return table_of([row], _STATISTICS)


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Few rows as columns; what a row does not have is null."""
    return pa.Table.from_pylist(rows, schema=schema)


SNAPSHOTS: Final = SystemTable(name="snapshots", doc="Every snapshot.", schema=_SNAPSHOTS, rows=_snapshots)
LOG_OFFSETS: Final = SystemTable(
    name="log_offsets", doc="The slice of the log that each snapshot ends.", schema=_LOG_OFFSETS, rows=_log_offsets
)
COMMITS: Final = SystemTable(
    name="commits", doc="Who committed what: user, query, batch, kind.", schema=_COMMITS, rows=_commits
)
COMPACTIONS: Final = SystemTable(
    name="compactions", doc="What each compaction read and wrote.", schema=_COMPACTIONS, rows=_compactions
)
STATISTICS: Final = SystemTable(
    name="statistics", doc="What ANALYZE found.", schema=_STATISTICS, rows=_statistics, is_of_snapshot=True
)
