"""Expiry of changelogs that outlive their snapshots, which Paimon for Java keeps for streams that lag behind.

Fluvial's changelogs live as long as their snapshots (see FORMAT.md), so only tables written by Java have any.
They are deleted oldest first, each after its files, and the hint EARLIEST of their directory is updated before any
deletion. Source: Paimon ExpireChangelogImpl, ChangelogDeletion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from filestore.maintenance.snapshot_expiry import Retention, expiry_end
from filestore.refs.file_references import FileReferences
from filestore.refs.live_references import LiveReference, all_references, changelog_references
from filestore.snapshot.commit_times import CommitTimes
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
    expired = _expired(store, retention, before_ms)
    if not expired:
        return
    if not dry_run:
        _write_hints(store, expired)
    references = FileReferences(store)
    gone = set(expired)
    kept = FileReferences(store).all_used(lambda: {*all_references(store)} - gone)
    data = {reference: sorted(references.data([reference]) - kept) for reference in expired}
    metadata = {reference: sorted(references.metadata([reference]) - kept) for reference in expired}
    for reference in expired:
        if not dry_run:
            for path in (*data[reference], *metadata[reference], store.paths.changelog(reference.snapshot_id)):
                store.delete_file(path)
        assert reference.snapshot is not None
        yield ExpiredChangelog(
            changelog_id=reference.snapshot_id,
            time_ms=reference.snapshot.time_ms,
            data_files=tuple(data[reference]),
            metadata_files=tuple(metadata[reference]),
        )


def _write_hints(store: TableStore, expired: Sequence[LiveReference]) -> None:
    """Update the hints before deletions. Java trusts a stale LATEST hint, but not a stale EARLIEST one."""
    earliest, latest = (f"{store.paths.changelog_dir}/{name}" for name in ("EARLIEST", "LATEST"))
    if len(expired) == len(changelog_references(store)):
        store.io.delete(latest)
        store.io.delete(earliest)
    else:
        store.io.replace(earliest, str(expired[-1].snapshot_id + 1).encode())


def _expired(store: TableStore, retention: Retention, before_ms: int | None) -> list[LiveReference]:
    references = sorted(changelog_references(store), key=lambda reference: reference.snapshot_id)
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
