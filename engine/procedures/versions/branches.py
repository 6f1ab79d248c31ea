"""Procedures about branches."""

import json
from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import existing_names
from engine.table import Table
from filestore.branch.branches import Branch, DeletedBranch
from filestore.branch.key_places import KeyConflict
from filestore.refs.live_references import branch_names
from filestore.types.data_types import parse_columns

_NAME: Final = {"name": "branch"}

_BRANCHES: Final = parse_columns("branch string, tag_name string?, tagged_snapshot_id int64?")
_DELETED: Final = pa.schema([*_BRANCHES, *parse_columns("data_files int64, metadata_files int64, size_bytes int64")])
_MERGED: Final = parse_columns(
    "branch string, snapshot_id int64?, buckets int64, files int64, size_bytes int64, conflicts int64, "
    "schema_changes string?, "  # of main's columns; null: none
    "key string?, base_row string?, main_row string?, branch_row string?"
)
_FORWARDED: Final = parse_columns("snapshot_id int64, is_published bool")
_REPLACED: Final = parse_columns(
    "main_branch string, dropped_branch string, dropped_snapshots int64, data_files int64, size_bytes int64"
)


@procedure(_BRANCHES, aliases=_NAME)
def create_branch(
    table: Table,
    branch: str,
    tag: str | None = None,
    snapshot: int | None = None,
    log: bool = False,
    ignore_if_exists: bool = False,
) -> pa.Table:
    """Make a branch: the same table with snapshots, schemas and tags of its own. No row is copied.

    Args:
        table: on its main branch.
        branch: the name, up to 153 bytes; not a number or a word of a version, and without
            dots, slashes, colons and commas.
        tag: of main, to begin at. It cannot be deleted as long as the branch is there.
        snapshot: id of a snapshot of main, to begin at; a tag branch-NAME keeps it. Default of both: the branch is
            empty.
        log: give the branch a log of its own, if the table has one.
        ignore_if_exists: nothing is done when there is such a branch, wherever it began.

    Returns:
        One row.

    Raises:
        InvalidInputError: the name is taken or cannot be one, or there is no such tag or snapshot.
        ConflictError: the tag was deleted, or the snapshot expired, at this moment.
    """
    made = table.branches.create(branch, tag=tag, snapshot_id=snapshot, log=log, ignore_if_exists=ignore_if_exists)
    return rows_table(_BRANCHES, [_row(made)])


@procedure(_DELETED, aliases=_NAME)
def delete_branch(table: Table, branch: str, dry_run: bool = False) -> pa.Table:
    """Delete branches, the files that only they used, and their logs.

    Args:
        table: the table.
        branch: name of the branch, or several with commas between them; a branch of exactly this name comes first.
        dry_run: only show what would go.

    Returns:
        One row for each branch.

    Raises:
        InvalidInputError: there is no such branch, or it is main.
        ConflictError: another operation is at work on it, or died at it; names it.
    """
    names = existing_names("branch", branch, branch_names(table.store))
    if len(names) > 1:
        for name in names:
            table.branches.get(name)  # all or none
    deleted = [table.branches.delete(name, dry_run=dry_run) for name in names]
    return rows_table(_DELETED, [_gone(each) for each in deleted])


@procedure(
    _BRANCHES,
    aliases={"name": "from_branch", "branch": "from_branch", "target": "to_branch", "target_branch": "to_branch"},
)
def rename_branch(table: Table, from_branch: str, to_branch: str) -> pa.Table:
    """Give a branch another name. Its readers and writers have to open it again.

    Args:
        table: the table.
        from_branch: its name.
        to_branch: the new name.

    Returns:
        One row: the branch as it is now.
    """
    return rows_table(_BRANCHES, [_row(table.branches.rename(from_branch, to_branch))])


@procedure(_MERGED, aliases={**_NAME, "source_branch": "branch"})
def merge_branch(table: Table, branch: str, force: bool = False, dry_run: bool = False) -> pa.Table:
    """Bring what a branch did into main by one commit, key by key; the branch stays.

    Main keeps the keys that the branch did not change since it began, or since it was merged last, and gets those that
    only the branch changed. Keys that both changed differently are conflicts. Tables without a primary key get the new
    files of both.

    Args:
        table: the table.
        branch: its name.
        force: keys that both changed differently get the branch's row; without a primary key, buckets in which the
            files of both cannot be kept apart get those of the branch.
        dry_run: change nothing; list the conflicts, what would be written, and what would become of main's columns.

    Returns:
        One row for each conflict that was forced or that a dry run found, up to 20, with its key and the rows of both
        and of their common state as JSON; without any, one row. The snapshot is null when the branch had nothing new.

    Raises:
        ConflictError: both changed the keys that are named, or both changed the schema; nothing is visible.
    """
    done = table.branches.merge(branch, force=force, dry_run=dry_run)
    row: dict[str, Any] = {
        "branch": branch,
        "snapshot_id": None if done.snapshot is None else done.snapshot.id,
        "buckets": done.bucket_count,
        "files": done.file_count,
        "size_bytes": done.size_bytes,
        "conflicts": done.conflict_count,
        "schema_changes": "; ".join(done.schema_changes) or None,
    }
    return rows_table(_MERGED, [{**row, **_conflict(each)} for each in done.conflicts] or [row])


@procedure(_FORWARDED, aliases=_NAME)
def fast_forward(table: Table, branch: str, force: bool = False, dry_run: bool = False) -> pa.Table:
    """Make a branch's snapshots, tags and schemas main's too, under the same numbers; no file is copied.

    Args:
        table: the table.
        branch: its name.
        force: main's own snapshots, tags and schemas since the branch began are deleted; what they committed is lost.
        dry_run: only return what main would lose and get.

    Returns:
        One row for each snapshot that main lost (is_published false) or got.

    Raises:
        ConflictError: main has snapshots of its own since the branch began, or got one meanwhile.
        InvalidInputError: the branch has a log of its own, or has expired snapshots that main would need.
    """
    done = table.branches.fast_forward(branch, force=force, dry_run=dry_run)
    rows = [{"snapshot_id": each, "is_published": False} for each in done.removed]
    rows += [{"snapshot_id": each, "is_published": True} for each in done.published]
    return rows_table(_FORWARDED, rows)


@procedure(_REPLACED, aliases=_NAME)
def replace_main_branch(table: Table, branch: str, force: bool = False, dry_run: bool = False) -> pa.Table:
    """Make a branch the main one; the old main and its log go. Jobs on the branch continue; those on the old main fail.

    Args:
        table: the table.
        branch: its name. main: a main branch that came by this procedure moves into the table's directory, where other
            engines look.
        force: also when main has a log and the branch has none.
        dry_run: only show what would go.

    Returns:
        One row.

    Raises:
        InvalidInputError: no such branch, it is main already, or main has a log or a savepoint that would be lost.
    """
    done = table.branches.replace_main(branch, force=force, dry_run=dry_run)
    row = {
        "main_branch": done.main,
        "dropped_branch": done.dropped,
        "dropped_snapshots": done.snapshot_count,
        "data_files": len(done.data),
        "size_bytes": done.size_bytes,
    }
    return rows_table(_REPLACED, [row])


def _conflict(found: KeyConflict) -> dict[str, str | None]:
    rows = {"key": found.key, "base_row": found.base, "main_row": found.main, "branch_row": found.branch}
    return {name: None if row is None else json.dumps(dict(row), default=str) for name, row in rows.items()}


def _row(branch: Branch) -> dict[str, Any]:
    return {"branch": branch.name, "tag_name": branch.tag, "tagged_snapshot_id": branch.snapshot_id}


def _gone(deleted: DeletedBranch) -> dict[str, Any]:
    return {
        **_row(deleted.branch),
        "data_files": len(deleted.data),
        "metadata_files": len(deleted.metadata),
        "size_bytes": deleted.size_bytes,
    }
