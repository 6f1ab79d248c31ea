"""Procedures that reset a table permanently; ``rollback_to_as_latest`` is the one that keeps history."""

from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import MomentText, moment_ms
from engine.runtime.times import sql_time_text
from engine.table import Table
from engine.table_versions import roll_back_to
from filestore.maintenance.rollback import RollbackPlan
from filestore.refs.versions import Version, before_watermark, find_version, parse_version
from filestore.snapshot.snapshot import Snapshot
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError

_GONE: Final = parse_columns(
    "kind string, "  # snapshot, tag or changelog
    "name string, snapshot_id int64, commit_user string, commit_time string, data_files int64, metadata_files int64, "
    "size_bytes int64, previous_snapshot_id int64, current_snapshot_id int64, "
    "objections string?"  # why it is refused without force; null: it is not
)


@procedure(_GONE)
def rollback(
    table: Table,
    snapshot: int | None = None,
    tag: str | None = None,
    version: str | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> pa.Table:
    """Reset a table to an older state; later snapshots and tags, and files only they use, are deleted permanently.

    Later commits reuse the numbers of deleted snapshots: streams that have read those fail, and need a new checkpoint.
    Columns and options stay as they are. rollback_to_as_latest does the same by a new commit,
    which disturbs no reader or writer.

    Args:
        table: with a log, a commit restores the older rows, and only later tags are deleted; later snapshots expire.
        snapshot: id of the snapshot to go back to.
        tag: or the tag, also of an expired snapshot.
        version: or either of them as one word, as in VERSION AS OF.
        force: also when a stream has just written, or named readers have read later snapshots: these are set back.
        dry_run: only show what would be deleted.

    Returns:
        One row for each deleted snapshot and tag, newest first; none when nothing is later. ``objections`` says why
        it is refused without force.

    Raises:
        InvalidInputError: not exactly one state is named or it does not exist; the rollback would cost
            someone data, and force is not given; a branch was created from a tag that would go.
        ConflictError: others committed meanwhile, or another rollback is in progress: nothing was removed, run it
            again; if the process of the other one has died, run repair.
    """
    if sum(each is not None for each in (snapshot, tag, version)) != 1:
        raise InvalidInputError(f"name one state: table={table.name} snapshot={snapshot} tag={tag} version={version}")
    wanted = Version(snapshot_id=snapshot, tag=tag) if version is None else parse_version(table.store, version)
    return _told(roll_back_to(table.files, _own(table, wanted), force=force, dry_run=dry_run))


@procedure(_GONE)
def rollback_to_timestamp(table: Table, timestamp: MomentText, force: bool = False, dry_run: bool = False) -> pa.Table:
    """Take a table back to the state of a time, as rollback does.

    Args:
        table: see rollback.
        timestamp: as "2024-01-31 12:30:00", in UTC; the last snapshot committed then or before, else the closest tag.
        force: as of rollback.
        dry_run: only show what would go.

    Returns:
        One row for each snapshot and tag that went, newest first.
    """
    wanted = Version(time_ms=moment_ms("timestamp", timestamp))
    return _told(roll_back_to(table.files, _own(table, wanted), force=force, dry_run=dry_run))


@procedure(_GONE)
def rollback_to_watermark(table: Table, watermark: int, force: bool = False, dry_run: bool = False) -> pa.Table:
    """Take a table back to the last snapshot that is not further than a watermark, as rollback does.

    Args:
        table: see rollback.
        watermark: event time in epoch milliseconds.
        force: as of rollback.
        dry_run: only show what would go.

    Returns:
        One row for each snapshot and tag that went, newest first.
    """
    found = before_watermark(table.store, watermark)
    if found is None:
        raise InvalidInputError(
            f"no snapshot has such an early watermark: table={table.name} watermark={watermark} "
            f"earliest={table.store.snapshots.earliest_id()}"
        )
    return _told(roll_back_to(table.files, found, force=force, dry_run=dry_run))


def _own(table: Table, wanted: Version) -> Snapshot:
    found = find_version(table.store, wanted)
    if found.branch != table.store.paths.branch:
        raise InvalidInputError(
            f"a table goes back on its own branch: table={table.name} branch={table.store.paths.branch} "
            f"version={wanted} fix='name the branch in the table, {table.name}$branch_{found.branch}'"
        )
    return found.snapshot


def _told(plan: RollbackPlan) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "kind": each.reference.kind.value,
            "name": each.reference.name,
            "snapshot_id": each.snapshot.id,
            "commit_user": each.snapshot.commit_user,
            "commit_time": sql_time_text(each.snapshot.time_ms),
            "data_files": len(each.data),
            "metadata_files": len(each.metadata.all),
            "size_bytes": each.size_bytes,
            "previous_snapshot_id": plan.previous_id or plan.target.id,
            "current_snapshot_id": plan.current_id,
            "objections": "; ".join(plan.objections) or None,
        }
        for each in plan.removals
    ]
    return rows_table(_GONE, rows)
