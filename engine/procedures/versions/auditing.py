"""Procedures about branches that are checked before they reach main."""

from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from engine.versions.audit import publish
from engine.versions.branches import delete_branch
from engine.write.log_sync import follow_overwrite
from filestore.types.data_types import parse_columns

_PUBLISHED: Final = parse_columns(
    "branch string, expectations int64, snapshot_id int64?, buckets int64, files int64, size_bytes int64, "
    "branch_deleted bool"
)


@procedure(_PUBLISHED)
def audit_publish(
    table: Table, branch: str, expect: str | None = None, force: bool = False, drop_branch: bool = False
) -> pa.Table:
    """Bring a branch into main by one commit, if its rows are as expected.

    Args:
        table: opened on its main branch, which gets the rows.
        branch: to check and to merge.
        expect: conditions with ; between them. One without an aggregate, as "amount >= 0", must be true for every row,
            one with aggregates, as "count(*) > 0", once.
        force: keys that main changed differently meanwhile get the branch's row.
        drop_branch: delete the branch when it is published.

    Returns:
        One row; the snapshot is null when the branch had nothing new.

    Raises:
        ExpectationError: the branch is not as expected; says where. Nothing is published.
        ConflictError: main changed the same keys differently, or the branch was written while it was checked; nothing
            is published.
    """
    conditions = [each.strip() for each in (expect or "").split(";") if each.strip()]
    there = Table(table.files.on_branch(branch))
    done = publish(table.store, there, branch, conditions, force=force)
    follow_overwrite(table.files)
    if drop_branch:
        delete_branch(table.store, branch)
    row: dict[str, Any] = {
        "branch": branch,
        "expectations": len(conditions),
        "snapshot_id": None if done.snapshot is None else done.snapshot.id,
        "buckets": done.bucket_count,
        "files": done.file_count,
        "size_bytes": done.size_bytes,
        "branch_deleted": drop_branch,
    }
    return rows_table(_PUBLISHED, [row])
