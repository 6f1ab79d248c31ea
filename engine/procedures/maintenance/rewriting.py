"""Procedures that rewrite files or manifests: other bucket counts, older rows, fewer manifests."""

from typing import Any, Final

import pyarrow as pa

from engine.log.replacement import check_replaceable, give_log
from engine.procedures.maintenance.compaction import chosen_buckets
from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import MomentText, moment_ms
from engine.table import Table
from engine.table_versions import restore_rows
from engine.write.log_sync import follow_overwrite
from filestore.commit.table_commit import TableCommit
from filestore.maintenance.bucket_count import align_bucket_count, set_bucket_count
from filestore.maintenance.index_rewriting import write_indexes
from filestore.maintenance.lost_manifests import lost_manifests, remove_lost_manifests
from filestore.maintenance.partitions import path_of
from filestore.maintenance.rewriting import lost_files, remove_lost_files
from filestore.maintenance.rewriting import rescale as rescale_files
from filestore.manifest.commit_message import PURPOSE_KEY
from filestore.refs.versions import Version, find_version
from filestore.scan.snapshot_files import manifests_of
from filestore.snapshot.snapshot import Snapshot
from filestore.types.data_types import parse_columns
from lsm.errors import ConflictError, InvalidInputError

_FULL_MERGE: Final = {"manifest.full-compaction-threshold-size": "0 b"}

_MANIFESTS: Final = parse_columns(
    "manifests_before int64, manifests_after int64, size_before_bytes int64, size_after_bytes int64, snapshot_id int64"
)
_INDEXED: Final = parse_columns(
    "written_partitions int64, written_indexes int64, snapshot_id int64?"  # null: every file had its index
)
_LOST: Final = parse_columns(
    "path string, rows_in_file int64, snapshot_id int64?"  # null: dry run
)
_LOST_MANIFESTS: Final = parse_columns(
    "path string, files_added int64?, "  # null: unknown for a list
    "files_taken_away int64?, snapshot_id int64?"  # null: dry run
)
RESTORED: Final = parse_columns(
    "partition string, previous_snapshot_id int64, restored_snapshot_id int64, current_snapshot_id int64"
)
_RESCALED: Final = parse_columns(
    "bucket_before int32, bucket_after int32, partitions int64, snapshot_id int64?, schema_id int64?"
)


@procedure(_MANIFESTS)
def compact_manifest(table: Table) -> pa.Table:
    """Merge the manifests of a table into as few as possible, so that planning a read opens fewer files.

    Args:
        table: the table of the manifests.

    Returns:
        One row; none if there is at most one manifest.
    """
    snapshot = table.latest_snapshot()
    if snapshot is None:
        return rows_table(_MANIFESTS, [])
    before = manifests_of(table.store, snapshot)
    if len(before) < 2 and not any(each.deleted_count for each in before):
        return rows_table(_MANIFESTS, [])
    store = table.store.with_options(_FULL_MERGE)
    done = TableCommit(store, store.new_commit_user(), history_start=snapshot.id)
    merged = done.merge_manifests({PURPOSE_KEY: "compact_manifest"}).snapshot
    assert merged is not None
    after = manifests_of(table.store, merged)
    row = {
        "manifests_before": len(before),
        "manifests_after": len(after),
        "size_before_bytes": sum(each.size_bytes for each in before),
        "size_after_bytes": sum(each.size_bytes for each in after),
        "snapshot_id": merged.id,
    }
    return rows_table(_MANIFESTS, [row])


@procedure(_INDEXED)
def rewrite_file_index(table: Table, where: str | None = None) -> pa.Table:
    """Add missing indexes to data files, according to the table's options; no data is rewritten.

    Args:
        table: a table with ``file-index.bloom-filter.columns``.
        where: only partitions that match this condition on partition columns.

    Returns:
        One row.

    Raises:
        ConflictError: other writers replaced some of these files meanwhile: run it again.
    """
    done = write_indexes(table.store, keep=chosen_buckets(table.store, where=where))
    snapshot = None if done.committed is None else done.committed.snapshot
    row = {
        "written_partitions": done.partitions,
        "written_indexes": done.files,
        "snapshot_id": None if snapshot is None else snapshot.id,
    }
    return rows_table(_INDEXED, [row])


@procedure(_LOST)
def remove_unexisting_files(table: Table, dry_run: bool = False) -> pa.Table:
    """Remove lost data files from a table, so that the rest can be read; their rows are lost.

    In a table with a key, older versions of these rows may reappear.

    Args:
        table: the table of the files.
        dry_run: only show what is lost.

    Returns:
        One row for each file.

    Raises:
        ConflictError: other writers changed these files meanwhile: run it again.
    """
    lost = lost_files(table.store)
    snapshot = remove_lost_files(table.store, lost).snapshot if lost.files and not dry_run else None
    if snapshot is not None:
        follow_overwrite(table.files)
    return rows_table(
        _LOST,
        [
            {
                "path": each.path,
                "rows_in_file": each.file.row_count,
                "snapshot_id": None if snapshot is None else snapshot.id,
            }
            for each in lost.files
        ],
    )


@procedure(_LOST_MANIFESTS)
def remove_unexisting_manifests(table: Table, dry_run: bool = False) -> pa.Table:
    """Remove lost manifests from a table, so that the rest can be read.

    Files that a lost manifest added are no longer in the table; files that it removed may be in the table again.

    Args:
        table: the table of the manifests.
        dry_run: only show what is lost.

    Returns:
        One row for each manifest or manifest list.

    Raises:
        ConflictError: the commit lost too many races: run it again.
    """
    latest = table.latest_snapshot()
    lost = [] if latest is None else lost_manifests(table.store, latest)
    done = None
    if lost and not dry_run:
        done = remove_lost_manifests(table.store, {PURPOSE_KEY: "remove_unexisting_manifests"}).snapshot
    return rows_table(
        _LOST_MANIFESTS,
        [
            {
                "path": each.path,
                "files_added": each.added_count,
                "files_taken_away": each.deleted_count,
                "snapshot_id": None if done is None else done.id,
            }
            for each in lost
        ],
    )


@procedure(RESTORED)
def rollback_to_as_latest(
    table: Table, snapshot: int | None = None, tag: str | None = None, timestamp: MomentText | None = None
) -> pa.Table:
    """Restore the rows of an older state by a new commit; the history is kept.

    Streams receive the exact difference. Partitions that differ are rewritten.

    Args:
        table: the table.
        snapshot: id of the snapshot with the wanted rows.
        tag: or the tag with them.
        timestamp: or the time at which readers saw them, as "2024-01-31 12:30:00" in UTC.

    Returns:
        One row for each replaced partition; none if nothing differs.

    Raises:
        InvalidInputError: not exactly one state is given, it does not exist, or the table changed so that the older
            files would hold other rows: a column was dropped or retyped, or buckets changed. Options, and columns that
            were added, renamed, moved or widened, are no hindrance.
        ConflictError: the commit lost too many races: run it again.
    """
    return restored(table, _state(table, snapshot, tag, timestamp))


@procedure(_RESCALED)
def rescale(table: Table, bucket_num: int, dry_run: bool = False) -> pa.Table:
    """Rewrite all rows with another number of buckets, which becomes the table's.

    Streams see no change. Running writers stop with an error, and continue when they are restarted. A table with a log
    gets another topic, with as many partitions; streams cross over by themselves.

    Args:
        table: a table with a fixed number of buckets.
        bucket_num: the new number.
        dry_run: only return how many partitions would be rewritten; ids are null.

    Returns:
        One row.

    Raises:
        InvalidInputError: the table has no fixed buckets, or the number is invalid; or a branch with a log is named.
        ConflictError: other writers committed meanwhile: run it again. Nothing is visible.
        UnavailableError: the brokers of the log do not answer. Nothing is visible.
    """
    store, before = table.store, table.options.bucket
    if store.has_log:
        check_replaceable(store)
    if before < 1 or bucket_num < 1:
        raise InvalidInputError(
            f"only a fixed number of buckets can change: table={table.name} bucket={before} bucket_num={bucket_num}"
        )
    rescaled = store.with_options({"bucket": str(bucket_num), "changelog-producer": "none"})
    done, partitions = rescale_files(store, rescaled, keep=lambda _: True, dry_run=dry_run)
    row: dict[str, Any] = {"bucket_before": before, "bucket_after": bucket_num, "partitions": partitions}
    if dry_run:
        return rows_table(_RESCALED, [row])
    schema = give_log(store, bucket_count=bucket_num).schema if store.has_log else set_bucket_count(store, bucket_num)
    if align_bucket_count(store):
        raise ConflictError(
            f"the table was rolled back or overwritten with its former bucket count meanwhile: table={table.name} "
            f"bucket={before} bucket_num={bucket_num} fix=run it again"
        )
    ids = {"snapshot_id": None if done.snapshot is None else done.snapshot.id, "schema_id": schema.id}
    return rows_table(_RESCALED, [{**row, **ids}])


def restored(table: Table, wanted: Snapshot) -> pa.Table:
    """Restore the rows of a snapshot, and return the result of ``rollback_to_as_latest``."""
    latest = table.latest_snapshot()
    if latest is None:
        raise InvalidInputError(f"the table has no snapshot: table={table.name}")
    done, partitions = restore_rows(table.files, wanted)
    assert done.snapshot is not None
    current = done.snapshot.id
    return rows_table(
        RESTORED,
        [
            {
                "partition": path_of(table.store, partition),
                "previous_snapshot_id": latest.id,
                "restored_snapshot_id": wanted.id,
                "current_snapshot_id": current,
            }
            for partition in partitions
        ],
    )


def _state(table: Table, snapshot: int | None, tag: str | None, timestamp: MomentText | None) -> Snapshot:
    given = [each for each in (snapshot, tag, timestamp) if each is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"name one state: table={table.name} snapshot={snapshot} tag={tag} timestamp={timestamp}"
        )
    time_ms = None if timestamp is None else moment_ms("timestamp", timestamp)
    return find_version(table.store, Version(snapshot_id=snapshot, tag=tag, time_ms=time_ms)).snapshot
