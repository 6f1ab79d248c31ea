"""Expiry of changelogs that outlived their snapshots: Paimon for Java keeps such, for streams that lag behind.

Ours live as long as their snapshots (FORMAT.md decision 35), so that only tables which Java has written have any.
They go oldest first, each after its last file, and the hint EARLIEST of their directory is written before anything
goes. Source: paimon-format.md sections 1 and 9 (Paimon ExpireChangelogImpl, ChangelogDeletion).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from filestore.maintenance.snapshot_expiry import Retention, expiry_end
from filestore.refs.file_references import FileReferences
from filestore.refs.live_references import LiveReference, all_references, changelog_references
from filestore.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredChangelog:
    """One that went."""

    changelog_id: int  # that of its snapshot
    time_ms: int
    data_files: tuple[str, ...]
    metadata_files: tuple[str, ...]


def expire_changelogs(
    store: TableStore, retention: Retention, *, before_ms: int | None = None, dry_run: bool = False
) -> Iterator[ExpiredChangelog]:
    """Delete old changelogs, and the files that nothing else uses.

    Args:
        store: whose; its branch counts.
        retention: what stays; snapshots count among what is kept.
        before_ms: epoch milliseconds: instead of ``retention.age_ms``, what is older than this is old.
        dry_run: delete nothing.

    Yields:
        Each changelog, oldest first, after it is gone.

    Raises:
        CorruptDataError: a root refers to files that are missing, so what it uses is not known; nothing is deleted.
        UnavailableError: the file system refused; run it again.
    """
    going = _going(store, retention, before_ms)
    if not going:
        return
    if not dry_run:
        _write_hints(store, going)
    references = FileReferences(store)
    gone = set(going)
    left = [root for root in all_references(store) if root not in gone]
    kept_data, kept_metadata = references.data(left), references.metadata(left)
    data = {root: sorted(references.data([root]) - kept_data) for root in going}
    metadata = {root: sorted(references.metadata([root]) - kept_metadata) for root in going}
    for root in going:
        if not dry_run:
            for path in (*data[root], *metadata[root], store.paths.changelog(root.snapshot_id)):
                store.io.delete(path)
        assert root.snapshot is not None
        yield ExpiredChangelog(
            changelog_id=root.snapshot_id,
            time_ms=root.snapshot.time_ms,
            data_files=tuple(data[root]),
            metadata_files=tuple(metadata[root]),
        )


def _write_hints(store: TableStore, going: Sequence[LiveReference]) -> None:
    """Before anything goes; a LATEST that names what is gone would be believed by Java, an EARLIEST would not."""
    earliest, latest = (f"{store.paths.changelog_dir}/{name}" for name in ("EARLIEST", "LATEST"))
    if len(going) == len(changelog_references(store)):
        store.io.delete(latest)
        store.io.delete(earliest)
    else:
        store.io.replace(earliest, str(going[-1].snapshot_id + 1).encode())


def _going(store: TableStore, retention: Retention, before_ms: int | None) -> list[LiveReference]:
    roots = sorted(changelog_references(store), key=lambda root: root.snapshot_id)
    latest = store.snapshots.latest_id()
    if not roots or latest is None:
        return []
    times = {root.snapshot_id: root.snapshot.time_ms for root in roots if root.snapshot is not None}
    stays = expiry_end(
        earliest=roots[0].snapshot_id,
        latest=latest,
        retention=retention,
        before_ms=store.clock.now_ms() - retention.age_ms if before_ms is None else before_ms,
        held_from=min(roots[-1].snapshot_id + 1, store.consumers.least_next_snapshot() or latest),
        time_ms_of=lambda each: times.get(each, times[roots[-1].snapshot_id]),
    )
    return [root for root in roots if root.snapshot_id < stays]
