"""Procedures about snapshots."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import MomentText, moment_ms
from engine.runtime.times import sql_time_text
from engine.table import Table
from filestore.maintenance.changelog_expiry import expire_changelogs as expire_old_changelogs
from filestore.maintenance.snapshot_expiry import ExpiryStep
from filestore.maintenance.snapshot_expiry import expire_snapshots as expire
from filestore.snapshot.retention import Retention
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns

_MANY: Final = 2**62
_AT_ONCE: Final = 1000
"""Snapshots for which tags and branches are read once."""

_EXPIRED: Final = parse_columns(
    "snapshot_id int64, commit_time string, data_files int64, changelog_files int64, metadata_files int64, "
    "size_bytes int64"  # of data and changelog files
)
_CHANGELOGS: Final = parse_columns(
    "changelog_id int64, "  # that of its snapshot
    "commit_time string, data_files int64, metadata_files int64"
)


@procedure(_EXPIRED)
def expire_snapshots(
    table: Table,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: MomentText | None = None,
    max_deletes: int | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> pa.Table:
    """Delete old snapshots, and the files that neither a snapshot nor a tag, branch or consumer needs.

    Args:
        table: the table.
        retain_max: keep at most so many, however young. Default: snapshot.num-retained.max of the table.
        retain_min: keep at least so many, however old. Default: snapshot.num-retained.min of the table.
        older_than: delete what was replaced before this time, as "2024-01-31 12:30:00" in UTC. Default:
            snapshot.time-retained ago.
        max_deletes: delete at most so many. Default: all that are due.
        dry_run: only show what would go.
        progress: notified of how far it is.

    Returns:
        One row for each snapshot that went, oldest first.

    Raises:
        CorruptDataError: a tag or branch refers to missing files, so what may go is not known.
    """
    store = table.store
    known = Retention.of(store.options)
    limit = _MANY if dry_run else max(known.limit, _AT_ONCE)
    retention = _asked(known, retain_max, retain_min, limit=limit)
    before_ms = None if older_than is None else moment_ms("older_than", older_than)
    rows: list[dict[str, Any]] = []
    for step in _steps(store, retention, before_ms, max_deletes, dry_run=dry_run):
        rows.append(
            {
                "snapshot_id": step.snapshot.id,
                "commit_time": sql_time_text(step.snapshot.time_ms),
                "data_files": len(step.data),
                "changelog_files": len(step.changelog),
                "metadata_files": len(step.metadata.all),
                "size_bytes": step.size_bytes,
            }
        )
        progress(len(rows), max_deletes)
    return rows_table(_EXPIRED, rows)


@procedure(_CHANGELOGS)
def expire_changelogs(
    table: Table,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: MomentText | None = None,
    max_deletes: int | None = None,
    dry_run: bool = False,
) -> pa.Table:
    """Delete old changelogs, which outlive snapshots that Paimon for Java expired, or a caller before the options say.

    Args:
        table: the table.
        retain_max: keep at most so many, snapshots included. Default: changelog.num-retained.max of the table.
        retain_min: keep at least so many, snapshots included. Default: changelog.num-retained.min of the table.
        older_than: delete what was committed before this time, as "2024-01-31 12:30:00" in UTC. Default:
            changelog.time-retained ago.
        max_deletes: delete at most so many. Default: all that are due.
        dry_run: only show what would go.

    Returns:
        One row for each changelog that went, oldest first.

    Raises:
        CorruptDataError: a tag or branch refers to missing files, so what may go is not known.
    """
    limit = _MANY if max_deletes is None else max_deletes
    retention = _asked(Retention.of(table.options), retain_max, retain_min, limit=limit)
    before_ms = None if older_than is None else moment_ms("older_than", older_than)
    return rows_table(
        _CHANGELOGS,
        [
            {
                "changelog_id": each.changelog_id,
                "commit_time": sql_time_text(each.time_ms),
                "data_files": len(each.data_files),
                "metadata_files": len(each.metadata_files),
            }
            for each in expire_old_changelogs(table.store, retention, before_ms=before_ms, dry_run=dry_run)
        ],
    )


def _asked(known: Retention, retain_max: int | None, retain_min: int | None, *, limit: int) -> Retention:
    """The table's retention with what a caller wants otherwise."""
    least = known.min_count if retain_min is None else retain_min
    most = max(known.max_count, least) if retain_max is None else retain_max
    return Retention(min_count=least, max_count=most, age_ms=known.age_ms, limit=limit)


def _steps(
    store: TableStore, retention: Retention, before_ms: int | None, max_deletes: int | None, *, dry_run: bool
) -> Iterator[ExpiryStep]:
    """Some at a time: what is to be deleted is known in memory."""
    left = _MANY if max_deletes is None else max_deletes
    while left > 0:
        some = replace(retention, limit=min(left, retention.limit))
        count = 0
        for step in expire(store, some, before_ms=before_ms, dry_run=dry_run):
            count += 1
            yield step
        if count < some.limit:
            return
        left -= count
