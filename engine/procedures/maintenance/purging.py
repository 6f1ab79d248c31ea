"""Emptying a table permanently: rows, history and holders. Source: Paimon, procedure ``purge_files``."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.table import Table
from filestore.maintenance.changelog_expiry import expire_changelogs
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.file_references import data_files
from filestore.refs.live_references import branch_names
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.tag.savepoints import delete_savepoint
from filestore.tag.tags import delete_tag, keeps_merge
from lsm.errors import InvalidInputError
from lsm.nearest_names import some_text

_MANY: Final = 2**62
_NEWEST_ONLY: Final = Retention(min_count=1, max_count=1, age_ms=0, limit=_MANY)

_PURGED: Final = pa.schema(
    [
        pa.field("what", pa.string(), nullable=False),  # rows, consumer, tag, changelog, snapshot
        pa.field("name", pa.string(), nullable=False),
        pa.field("files", pa.int64()),  # freed data files; null: unknown before the others are deleted
        pa.field("size_bytes", pa.int64()),
    ]
)
Row = dict[str, Any]


@procedure(_PURGED)
def purge_files(table: Table, dry_run: bool = False, progress: Progress = silent) -> pa.Table:
    """Empty a table permanently: no rows, consumers, tags or changelogs, one empty snapshot; schema and log are kept.

    Streams receive the deletes if they read them before the files are deleted; others find their position expired.
    Files of dead or running writers stay: see remove_orphan_files.

    Args:
        table: the table.
        dry_run: only show what would be deleted.
        progress: called with the number of deleted snapshots.

    Returns:
        One row for each deleted item, in order.

    Raises:
        InvalidInputError: the table has branches, which share its files.
        ConflictError: other writers won too many races: run it again.
    """
    store = table.store
    branches = [name for name in branch_names(store) if name != store.paths.branch]
    if branches:
        raise InvalidInputError(
            f"branches share the files of a table: table={table.name} {some_text('branches', sorted(branches))} "
            "fix=delete the branches first"
        )
    latest = table.latest_snapshot()
    if latest is None:
        return rows_table(_PURGED, [])
    rows = [_rows_of(table, latest)]
    if not dry_run:
        table.overwrite(table.schema.arrow_schema.empty_table(), partition={})
    rows += list(_holders(table, dry_run=dry_run))
    if dry_run:
        return rows_table(
            _PURGED, [*rows, *(_row("snapshot", str(each), None, None) for each in store.snapshots.ids())]
        )
    for step in expire_snapshots(store, _NEWEST_ONLY):
        files = (*step.data, *step.changelog)
        rows.append(_row("snapshot", str(step.snapshot.id), len(files), step.size_bytes))
        progress(len(rows), None)
    for _ in expire_changelogs(store, _NEWEST_ONLY):
        pass  # which the options kept of those snapshots
    return rows_table(_PURGED, rows)


def _rows_of(table: Table, latest: Snapshot) -> Row:
    files = data_files(table.store, latest)
    return _row("rows", table.name, len(files), sum(file.size_bytes for file in files))


def _holders(table: Table, *, dry_run: bool) -> Iterator[Row]:
    """Delete what keeps old snapshots or their files."""
    store = table.store
    for consumer in sorted(store.consumers.next_snapshots()):
        if not dry_run:
            store.consumers.delete(consumer)
        yield _row("consumer", consumer, 0, 0)
    own = {each.tag_name for each in list_savepoints(store)}  # deleted with their savepoints
    for savepoint in list_savepoints(store):
        freed = delete_savepoint(store, savepoint.id, dry_run=dry_run)
        yield _row("savepoint", str(savepoint.id), len(freed.data), sum(file.size_bytes for file in freed.data))
    for tag in sorted({*store.snapshots.tag_names()} - own):
        if keeps_merge(store, tag):
            continue  # goes with its branch
        gone = delete_tag(store, tag, dry_run=dry_run)
        yield _row("tag", tag, len(gone.data), sum(file.size_bytes for file in gone.data))
    for changelog in expire_changelogs(store, _NEWEST_ONLY, dry_run=dry_run):
        yield _row("changelog", str(changelog.changelog_id), len(changelog.data_files), 0)


def _row(what: str, name: str, files: int | None, size_bytes: int | None) -> Row:
    return {"what": what, "name": name, "files": files, "size_bytes": size_bytes}
