"""Whether a commit may be published on top of what others published meanwhile: pure functions over manifest entries.

Each function returns None, or the reason as a lower-case fact with ``key=value`` pairs; the caller raises
ConflictError. Source: paimon-format.md section 7.1 (Paimon ``ConflictDetection``), FL-89 to FL-91.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.scan.snapshot_files import changes_since
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.keys.keys import KeyTuple


def find_conflict(
    base: Iterable[ManifestEntry],
    delta: Sequence[ManifestEntry],
    *,
    kind: CommitKind,
    key_of: Callable[[bytes], KeyTuple] | None,
) -> str | None:
    """Return why ``delta`` cannot follow ``base``, or None.

    Args:
        base: entries of the changed partitions as they are now, adds and deletes in any order.
        delta: our entries.
        kind: OVERWRITE may change the number of buckets of a partition.
        key_of: turns a file's min or max key bytes into a comparable key; None for a table without a key.
    """
    live = live_entries(base)
    gone = {entry.identity for entry in delta if entry.kind is EntryKind.DELETE}
    staying = [entry for entry in live if entry.identity not in gone]
    reason = None if kind is CommitKind.OVERWRITE else bucket_count_conflict(staying, delta)
    reason = reason or _repeated_add(live, delta) or _lost_input(live, delta)
    return reason if reason is not None or key_of is None else _overlap(live, delta, key_of)


def bucket_count_conflict(live: Iterable[ManifestEntry], delta: Iterable[ManifestEntry]) -> str | None:
    """Every live file of a partition must be written for the same number of buckets; only an overwrite rescales."""
    ours = {entry.partition: entry for entry in delta if entry.kind is EntryKind.ADD and entry.total_buckets > 0}
    if not ours:
        return None
    for entry in live:
        mine = ours.get(entry.partition)
        if mine is not None and entry.total_buckets > 0 and entry.total_buckets != mine.total_buckets:
            return (
                f"the number of buckets of a partition changed: partition={entry.partition.hex()} "
                f"live={entry.total_buckets} ours={mine.total_buckets}: overwrite the partition to rescale it"
            )
    return None


def sequence_conflict(newer: Iterable[ManifestEntry], delta: Iterable[ManifestEntry], *, has_key: bool) -> str | None:
    """Return the bucket in which somebody took sequence numbers that we also use, or None.

    Two records of one key with one number have no order: readers disagree about the winner (paimon-format.md 0.13), so
    the later of two writers of a bucket must number its rows again.

    Args:
        newer: entries published after the snapshot from whose highest numbers ``delta`` was numbered, or all live ones.
        delta: our entries.
        has_key: whether the table has one.
    """
    ours: dict[tuple[bytes, int], int] = {}
    for entry in delta:
        if entry.kind is EntryKind.ADD and is_numbered(entry, has_key=has_key):
            place = (entry.partition, entry.bucket)
            ours[place] = min(entry.file.min_sequence_number, ours.get(place, entry.file.min_sequence_number))
    for entry in newer:
        first = ours.get((entry.partition, entry.bucket))
        if first is not None and entry.kind is EntryKind.ADD and entry.file.max_sequence_number >= first:
            return (
                f"another writer numbered rows of this bucket: partition={entry.partition.hex()} bucket={entry.bucket} "
                f"file={entry.file.file_name} max_sequence={entry.file.max_sequence_number} "
                f"our_first_sequence={first}: write the rows again from the new highest number"
            )
    return None


def is_numbered(entry: ManifestEntry, *, has_key: bool) -> bool:
    """Whether the rows of a file are numbered behind those of its bucket.

    Those of append tables without buckets all count from 0, and postponed ones are numbered again with their buckets.
    """
    return entry.total_buckets > 0 or (has_key and entry.bucket >= 0)


def is_in_place(live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry]) -> bool:
    """Whether everything that was to change has changed already."""
    known = {entry.identity for entry in live}
    added = {entry.identity for entry in delta if entry.kind is EntryKind.ADD}
    deleted = {entry.identity for entry in delta if entry.kind is EntryKind.DELETE}
    return bool(added) and added <= known and not deleted & known


def _repeated_add(live: Collection[ManifestEntry], delta: Sequence[ManifestEntry]) -> str | None:
    deleted = {entry.identity for entry in delta if entry.kind is EntryKind.DELETE}
    known = {entry.identity for entry in live} - deleted
    for entry in delta:
        if entry.kind is not EntryKind.ADD:
            continue
        if entry.identity in known:
            return f"a file is added twice: file={entry.file.file_name} bucket={entry.bucket} level={entry.file.level}"
        known.add(entry.identity)
    return None


def _lost_input(live: Collection[ManifestEntry], delta: Sequence[ManifestEntry]) -> str | None:
    known = {entry.identity for entry in live} | {entry.identity for entry in delta if entry.kind is EntryKind.ADD}
    for entry in delta:
        if entry.kind is EntryKind.DELETE and entry.identity not in known:
            return (
                f"a file to delete is not live any more: file={entry.file.file_name} "
                f"partition={entry.partition.hex()} bucket={entry.bucket} level={entry.file.level}"
            )
    return None


def _overlap(
    live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry], key_of: Callable[[bytes], KeyTuple]
) -> str | None:
    touched = {_run_of(entry) for entry in delta if entry.kind is EntryKind.ADD and entry.file.level > 0}
    if not touched:
        return None
    runs = defaultdict(list)
    for entry in live_entries([*live, *delta]):
        if _run_of(entry) in touched:
            runs[_run_of(entry)].append((key_of(entry.file.min_key), key_of(entry.file.max_key), entry.file.file_name))
    for (_, bucket, level), ranges in runs.items():
        for (_, last, left), (first, _, right) in pairwise(sorted(ranges)):
            if first <= last:
                return f"files of one level overlap: level={level} bucket={bucket} files={left},{right}"
    return None


def _run_of(entry: ManifestEntry) -> tuple[bytes, int, int]:
    return entry.partition, entry.bucket, entry.file.level


def superseded_by(
    store: TableStore, changelog_base_snapshot: Mapping[tuple[bytes, int], int], latest: Snapshot
) -> str | None:
    """Why the changes that were told are not those that a commit on top of ``latest`` makes; None when they are.

    Args:
        store: to be committed to.
        changelog_base_snapshot: for each bucket of the commit the snapshot that its changes were looked up in; 0:
            before the first.
        latest: what the commit would follow.
    """
    base_id = min(changelog_base_snapshot.values(), default=latest.id)
    changes = changes_since(store, base_id, latest)
    if changes is None:
        return f"snapshots since the changes were told are gone: changelog_base_snapshot={base_id}"
    for snapshot_id, entries in changes.items():
        touched = [
            key
            for key in {(entry.partition, entry.bucket) for entry in entries}
            if changelog_base_snapshot.get(key, snapshot_id) < snapshot_id
        ]
        if touched and _changes_rows(store, snapshot_id, latest):
            return (
                f"another writer changed rows after the changes were told: partition={touched[0][0].hex()} "
                f"bucket={touched[0][1]} changelog_base_snapshot={changelog_base_snapshot[touched[0]]} "
                f"changed_by={snapshot_id}"
            )
    return None


def _changes_rows(store: TableStore, snapshot_id: int, latest: Snapshot) -> bool:
    snapshot = latest if snapshot_id == latest.id else store.snapshots.find(snapshot_id)
    return snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT
