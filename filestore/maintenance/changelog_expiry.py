"""Changelogs that outlive their snapshots, for streams that lag behind, and their expiry.

``keep_changelogs`` writes them before their snapshots go, where ``changelog.*`` options keep changes longer. There is
never a hole between them and the snapshots: Java's next commit would fail on one. They are deleted oldest first, each
after its files, and the hint EARLIEST of their directory is updated before any deletion.
Source: Paimon ExpireSnapshotsImpl, ExpireChangelogImpl, ChangelogDeletion.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from filestore.refs.file_references import FileReferences, metadata_files, removed_files
from filestore.refs.live_references import LiveReference, changelog_references
from filestore.refs.unused_files import SparedFiles
from filestore.snapshot.commit_times import CommitTimes
from filestore.snapshot.retention import Retention, expiry_end
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredChangelog:
    """A deleted changelog, with the deleted files."""

    changelog_id: int  # the id of its snapshot
    time_ms: int
    data_files: tuple[str, ...]
    metadata_files: tuple[str, ...]


def expire_changelogs(
    store: TableStore, retention: Retention, *, before_ms: int | None = None, dry_run: bool = False
) -> Iterator[ExpiredChangelog]:
    """Delete old changelogs of the table's branch, and the files that nothing else uses.

    Args:
        store: the table, on the branch to expire.
        retention: what to keep; snapshots count as kept.
        before_ms: epoch milliseconds; replaces ``retention.age_ms``: changelogs older than this may be deleted.
        dry_run: delete nothing.

    Yields:
        Each changelog, oldest first, after its deletion.

    Raises:
        CorruptDataError: a live reference has missing files, so the files it uses are unknown; nothing is deleted.
        UnavailableError: a file system error; run it again.
    """
    yield from _delete(store, _expired(store, retention, before_ms), dry_run=dry_run)


def delete_changelogs(
    store: TableStore, *, before: int | None = None, dry_run: bool = False
) -> Iterator[ExpiredChangelog]:
    """Delete all changelogs, or those of snapshots before one, and the files that nothing else uses.

    Yields, raises: as above.
    """
    old = [each for each in changelog_references(store) if before is None or each.snapshot_id < before]
    yield from _delete(store, sorted(old, key=_by_id), dry_run=dry_run)


def keep_changelogs(store: TableStore, snapshots: Sequence[Snapshot]) -> Callable[[], None]:
    """Write the changelogs of snapshots that are about to expire, in their order.

    Returns:
        What takes those back that were not there before, when the snapshots are of another table by now.

    Raises: UnavailableError.
    """
    written: list[tuple[str, bytes]] = []
    for snapshot in snapshots:
        path = store.paths.changelog(snapshot.id)
        try:
            body = store.io.read_bytes(store.paths.snapshot(snapshot.id))  # with what others note in it
            if Snapshot.from_json(body, source=path).ref != snapshot.ref:
                break
        except FileNotFoundError:
            break  # others expire it
        if store.io.create_exclusive(path, body):
            written.append((path, body))
    if written:
        earliest = store.snapshots.earliest_changelog()
        ids = sorted(each.snapshot_id for each in changelog_references(store) if each.snapshot_id >= earliest)
        store.io.replace(store.paths.latest_changelog_hint, str(ids[-1]).encode())
        if earliest not in ids:
            store.io.replace(store.paths.earliest_changelog_hint, str(ids[0]).encode())

    def take_back() -> None:
        for path, body in written:
            store.delete_own(path, body)

    return take_back


def _delete(store: TableStore, expired: Sequence[LiveReference], *, dry_run: bool) -> Iterator[ExpiredChangelog]:
    if not expired:
        return
    if not dry_run:
        _write_hints(store, expired)
    references = FileReferences(store)
    spared = SparedFiles(store, {*expired})
    data = {each: references.data([each]) | _removed(store, each) for each in expired}
    metadata = {each: _metadata(store, each) for each in expired}
    for reference in expired:
        unused, unused_metadata = sorted(data[reference] - spared.used), sorted(metadata[reference] - spared.used)
        if not dry_run:
            for path in (*unused, *unused_metadata, store.paths.changelog(reference.snapshot_id)):
                store.delete_file(path)
        assert reference.snapshot is not None
        yield ExpiredChangelog(
            changelog_id=reference.snapshot_id,
            time_ms=reference.snapshot.time_ms,
            data_files=tuple(unused),
            metadata_files=tuple(unused_metadata),
        )
    if not dry_run:
        for files in (data, metadata):
            for path in spared.released({path for paths in files.values() for path in paths}):
                store.delete_file(path)
    if not dry_run and not changelog_references(store):
        store.io.delete(store.paths.earliest_changelog_hint)


def _removed(store: TableStore, reference: LiveReference) -> set[str]:
    """Data files that a commit removed, which Java leaves there until the changelog of that commit expires."""
    assert reference.snapshot is not None
    with suppress(FileNotFoundError):
        return {each.path for each in removed_files(store, reference.snapshot)}
    return set()


def _metadata(store: TableStore, reference: LiveReference) -> frozenset[str]:
    """All metadata files that are there, also those that another engine left beside what the changelog needs."""
    assert reference.snapshot is not None
    return metadata_files(store, reference.snapshot, is_partial=True).all


def _by_id(reference: LiveReference) -> int:
    return reference.snapshot_id


def _write_hints(store: TableStore, expired: Sequence[LiveReference]) -> None:
    """Update the hints before deletions. Java trusts a stale LATEST hint, but not a stale EARLIEST one."""
    if len(expired) == len(changelog_references(store)):
        store.io.delete(store.paths.latest_changelog_hint)
    store.io.replace(store.paths.earliest_changelog_hint, str(expired[-1].snapshot_id + 1).encode())


def _expired(store: TableStore, retention: Retention, before_ms: int | None) -> list[LiveReference]:
    references = sorted(changelog_references(store), key=_by_id)
    latest, now_ms = store.snapshots.latest(), store.clock.now_ms()
    if not references or latest is None:
        return []
    counted = CommitTimes(store.snapshots, latest, now_ms)
    times = {each.snapshot_id: counted.of(each.snapshot) for each in references if each.snapshot is not None}
    first_kept = expiry_end(
        earliest=references[0].snapshot_id,
        latest=latest.id,
        retention=retention,
        before_ms=now_ms - retention.age_ms if before_ms is None else before_ms,
        held_from=min(references[-1].snapshot_id + 1, store.consumers.least_next_snapshot() or latest.id),
        time_ms_of=lambda each: times.get(each, times[references[-1].snapshot_id]),
    )
    return [reference for reference in references if reference.snapshot_id < first_kept]
