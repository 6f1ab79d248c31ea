"""Emptying a table permanently: rows, history and holders. Source: Paimon, procedure ``purge_files``."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.table import Table
from filestore.maintenance.changelog_expiry import delete_changelogs
from filestore.maintenance.snapshot_expiry import ExpiryStep, expire_snapshots, expiry_of_all
from filestore.refs.file_references import FileSize, data_files
from filestore.refs.live_references import LiveReference, ReferenceKind, branch_names
from filestore.refs.savepoint_files import list_savepoints
from filestore.refs.unused_files import unused_files
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.savepoints import delete_savepoint
from filestore.tag.tags import delete_tag, keeps_merge, read_tag
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError
from lsm.nearest_names import some_text

_MANY: Final = 2**62
_NEWEST_ONLY: Final = Retention(min_count=1, max_count=1, age_ms=0, limit=_MANY)

_PURGED: Final = parse_columns(
    "what string, "  # rows, consumer, changelog, savepoint, tag, snapshot
    "name string, files int64, "  # freed data and changelog files; of rows: files that have them
    "size_bytes int64"
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
    if dry_run:
        return rows_table(_PURGED, [*rows, *_planned(table)])
    table.overwrite(table.schema.arrow_schema.empty_table(), partition={})
    rows += list(_holders(table))
    for step in expire_snapshots(store, _NEWEST_ONLY, keeps_changelogs=False):
        rows.append(_row_of_step(step))
        progress(len(rows), None)
    return rows_table(_PURGED, rows)


def _rows_of(table: Table, latest: Snapshot) -> Row:
    return _row_of_files("rows", table.name, data_files(table.store, latest))


def _holders(table: Table) -> Iterator[Row]:
    """Delete what keeps old snapshots or their files."""
    store = table.store
    for consumer in sorted(store.consumers.next_snapshots()):
        store.consumers.delete(consumer)
        yield _row("consumer", consumer, 0, 0)
    for changelog in delete_changelogs(store):
        yield _row("changelog", str(changelog.changelog_id), len(changelog.data_files), 0)
    for savepoint in list_savepoints(store):
        yield _row_of_files("savepoint", str(savepoint.id), delete_savepoint(store, savepoint.id).data)
    for tag in _tags(store, ()):
        yield _row_of_files("tag", tag, delete_tag(store, tag).data)


def _planned(table: Table) -> Iterator[Row]:
    """The rows that ``_holders`` and the expiry would return, each after those before it; nothing is deleted."""
    store = table.store
    gone: set[tuple[ReferenceKind, str]] = set()

    def is_gone(reference: LiveReference) -> bool:
        return reference.branch == store.paths.branch and (reference.kind, reference.name) in gone

    def freed(what: str, name: str, snapshot: Snapshot, tag: str) -> Row:
        gone.add((ReferenceKind.TAG, tag))
        unused = unused_files(store, snapshot, is_deleted=is_gone, source=store.paths.tag(tag))
        return _row_of_files(what, name, unused.data)

    for consumer in sorted(store.consumers.next_snapshots()):
        yield _row("consumer", consumer, 0, 0)
    for changelog in delete_changelogs(store, dry_run=True):
        gone.add((ReferenceKind.CHANGELOG, str(changelog.changelog_id)))
        yield _row("changelog", str(changelog.changelog_id), len(changelog.data_files), 0)
    savepoints = list_savepoints(store)
    for savepoint in savepoints:
        gone.add((ReferenceKind.SAVEPOINT, str(savepoint.id)))
        yield freed("savepoint", str(savepoint.id), savepoint.snapshot, savepoint.tag_name)
    for tag in _tags(store, [each.tag_name for each in savepoints]):
        yield freed("tag", tag, read_tag(store, tag).snapshot, tag)
    yield from map(_row_of_step, expiry_of_all(store, is_gone))


def _tags(store: TableStore, of_savepoints: Collection[str]) -> list[str]:
    """The tags to delete by themselves: those of merges go with their branch, those of savepoints with these."""
    return sorted(
        each for each in store.snapshots.tag_names() if each not in of_savepoints and not keeps_merge(store, each)
    )


def _row_of_files(what: str, name: str, files: Sequence[FileSize]) -> Row:
    return _row(what, name, len(files), sum(file.size_bytes for file in files))


def _row_of_step(step: ExpiryStep) -> Row:
    return _row_of_files("snapshot", str(step.snapshot.id), (*step.data, *step.changelog))


def _row(what: str, name: str, files: int, size_bytes: int) -> Row:
    return {"what": what, "name": name, "files": files, "size_bytes": size_bytes}
