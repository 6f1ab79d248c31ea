"""Checks whether a commit may be published on top of snapshots that others published since its base.

Each check returns None, or the reason as a lower-case fact with ``key=value`` pairs; ``TableCommit`` raises it as a
ConflictError. Source: Paimon ``ConflictDetection``.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final, Generic, Self, TypeVar, overload

from filestore.commit.committable import Committable, discard
from filestore.index.index_manifest import index_conflict, missing_delete_target
from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.scan.snapshot_files import changelog_of, changes_since, live_files, live_files_of_partitions
from filestore.snapshot.snapshot import CommitKind, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.keys.keys import KeyTuple

T = TypeVar("T")


class _lazy(Generic[T]):
    """A property that is computed once. Unlike ``functools.cached_property`` no lock is held while files are read."""

    def __init__(self, compute: Callable[["Candidate"], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: "Candidate", owner: type) -> T: ...

    def __get__(self, instance: "Candidate | None", owner: type) -> Self | T:
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._compute(instance)
        return found


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A commit that wants to follow a snapshot."""

    store: TableStore
    kind: CommitKind
    committable: Committable
    latest: Snapshot  # to be followed
    delta: Sequence[ManifestEntry]  # of the commit
    replaced: Sequence[ManifestEntry] | None  # OVERWRITE of partitions: their live files; None: of single files

    @property
    def base(self) -> SnapshotRef | None:
        """The snapshot that the commit was made on; None: not known."""
        return self.committable.base

    @property
    def has_key(self) -> bool:
        """Whether the table has a primary key."""
        return self.store.has_key

    @_lazy
    def changes(self) -> Mapping[int, Sequence[ManifestEntry]] | None:
        """Changes that others committed since the base, by snapshot id; None: the base or a later one has expired."""
        return None if self.base is None else changes_since(self.store, self.base, self.latest)

    @_lazy
    def since_base(self) -> Sequence[ManifestEntry]:
        """The entries that others added since the base; when they are not known, every live file."""
        if self.changes is None:
            return live_files(self.store, self.latest)
        return [*chain.from_iterable(self.changes.values())]

    @_lazy
    def numbered_since_base(self) -> Sequence[ManifestEntry]:
        """The entries that may hold sequence numbers of this commit: of its partitions only, if the base is unknown."""
        partitions = {each.partition for each in self.delta if is_numbered(each, has_key=self.has_key)}
        if not partitions:
            return []
        if self.changes is None:
            return live_files_of_partitions(self.store, self.latest, partitions)
        return self.since_base

    @_lazy
    def inputs_and_changes(self) -> Sequence[ManifestEntry]:
        """The entries that a compaction must fit to.

        Its inputs were live in the base snapshot, and nothing else in it overlaps the outputs: so they and the changes
        since the base are enough.
        """
        if self.changes is None:
            return live_files_of_partitions(self.store, self.latest, {entry.partition for entry in self.delta})
        inputs = [replace(entry, kind=EntryKind.ADD) for entry in self.delta if entry.kind is EntryKind.DELETE]
        return [*inputs, *self.since_base]

    @property
    def takes_files(self) -> bool:
        """Whether the commit replaces single files."""
        return any(entry.kind is EntryKind.DELETE for entry in self.delta)


def find_published(candidate: Candidate) -> Snapshot | None:
    """The snapshot that already holds what a commit replaces single files by; None: it must be committed."""
    if candidate.kind is CommitKind.OVERWRITE or not (candidate.kind is CommitKind.COMPACT or candidate.takes_files):
        return None
    if candidate.changes is None:
        is_done = is_in_place(candidate.inputs_and_changes, candidate.delta)
        return candidate.latest if is_done else None
    wanted = {(entry.kind, entry.identity) for entry in candidate.delta}
    for snapshot_id, entries in candidate.changes.items():
        if wanted <= {(entry.kind, entry.identity) for entry in entries}:
            return candidate.store.snapshots.read(snapshot_id)
    return None


def discard_changes(candidate: Candidate, done: Snapshot) -> None:
    """Delete the changelogs of a commit where the one that has its files wrote others.

    Two compactions that move a file to another level keep its name, and each has written what changes by that.
    """
    if candidate.changes is None:
        return  # which commit it was is not known: it may be this one
    store = candidate.store
    kept = {store.file_path(each.partition, each.bucket, each.file) for each in changelog_of(store, done)}
    for message in candidate.committable.messages:
        paths = {each: store.file_path(message.partition, message.bucket, each) for each in message.changelog_files}
        others = tuple(each for each, path in paths.items() if path not in kept)
        discard(store, [replace(message, new_files=(), compact_after=(), index_after=(), changelog_files=others)])


def why_not(candidate: Candidate) -> str | None:
    """The first reason why a commit cannot follow the newest snapshot; None: it can."""
    if candidate.kind is CommitKind.APPEND:
        checks = _DISTRIBUTE if candidate.takes_files else _APPEND
    elif candidate.kind is CommitKind.COMPACT:
        checks = _COMPACT
    else:
        checks = _REPLACE_FILES if candidate.replaced is None else _REPLACE_PARTITIONS
    reasons = (check(candidate) for check in checks)
    return next((reason for reason in reasons if reason is not None), None)


def find_conflict(
    base: Iterable[ManifestEntry],
    delta: Sequence[ManifestEntry],
    *,
    kind: CommitKind,
    key_of: Callable[[bytes], KeyTuple] | None,
) -> str | None:
    """Why ``delta`` cannot follow ``base``, or None.

    Args:
        base: entries of the changed partitions as they are now, adds and deletes in any order.
        delta: entries of the commit.
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
    added = {entry.partition: entry for entry in delta if entry.kind is EntryKind.ADD and entry.total_buckets > 0}
    if not added:
        return None
    for entry in live:
        new = added.get(entry.partition)
        if new is not None and entry.total_buckets > 0 and entry.total_buckets != new.total_buckets:
            return (
                f"the number of buckets of a partition changed: partition={entry.partition.hex()} "
                f"live={entry.total_buckets} commit={new.total_buckets}: overwrite the partition to rescale it"
            )
    return None


def sequence_conflict(newer: Iterable[ManifestEntry], delta: Iterable[ManifestEntry], *, has_key: bool) -> str | None:
    """The bucket in which another writer used the sequence numbers of this commit, or None.

    Two records of one key with one number have no order, and readers disagree about the winner. So the later of two
    writers of a bucket must number its rows again.

    Args:
        newer: entries published after the snapshot that ``delta`` was numbered on, or all live ones.
        delta: entries of the commit.
        has_key: whether the table has one.
    """
    first_numbers: dict[tuple[bytes, int], int] = {}
    for entry in delta:
        if entry.kind is EntryKind.ADD and is_numbered(entry, has_key=has_key):
            place = (entry.partition, entry.bucket)
            number = entry.file.min_sequence_number
            first_numbers[place] = min(number, first_numbers.get(place, number))
    for entry in newer:
        first = first_numbers.get((entry.partition, entry.bucket))
        if first is not None and entry.kind is EntryKind.ADD and entry.file.max_sequence_number >= first:
            return (
                f"another writer numbered rows of this bucket: partition={entry.partition.hex()} bucket={entry.bucket} "
                f"file={entry.file.file_name} max_sequence={entry.file.max_sequence_number} "
                f"first_sequence_of_commit={first}: write the rows again from the new highest number"
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
    """Why the changes in the log are not those that a commit on top of ``latest`` makes; None when they are.

    Args:
        store: to be committed to.
        changelog_base_snapshot: for each bucket of the commit the snapshot that its changes were looked up in; 0:
            before the first.
        latest: what the commit would follow.
    """
    base_id = min(changelog_base_snapshot.values(), default=latest.id)
    changes = changes_since(store, SnapshotRef(base_id, ""), latest)
    if changes is None:
        return f"snapshots since the changes were looked up have expired: changelog_base_snapshot={base_id}"
    for snapshot_id, entries in changes.items():
        touched = [
            key
            for key in {(entry.partition, entry.bucket) for entry in entries}
            if changelog_base_snapshot.get(key, snapshot_id) < snapshot_id
        ]
        if touched and _changes_rows(store, snapshot_id, latest):
            return (
                f"another writer changed rows after the changes were looked up: partition={touched[0][0].hex()} "
                f"bucket={touched[0][1]} changelog_base_snapshot={changelog_base_snapshot[touched[0]]} "
                f"changed_by={snapshot_id}"
            )
    return None


def _changes_rows(store: TableStore, snapshot_id: int, latest: Snapshot) -> bool:
    snapshot = latest if snapshot_id == latest.id else store.snapshots.find(snapshot_id)
    return snapshot is None or snapshot.commit_kind.changes_rows


# ---- the checks of each kind of commit, in the order in which their reasons are reported

ConflictCheck = Callable[[Candidate], str | None]


def _bucket_counts_appended(candidate: Candidate) -> str | None:
    return bucket_count_conflict(live_entries(candidate.numbered_since_base), candidate.delta)


def _bucket_counts_replaced(candidate: Candidate) -> str | None:
    return bucket_count_conflict(live_entries(candidate.since_base), candidate.delta)


def _sequence_numbers_appended(candidate: Candidate) -> str | None:
    return sequence_conflict(candidate.numbered_since_base, candidate.delta, has_key=candidate.has_key)


def _sequence_numbers_replaced(candidate: Candidate) -> str | None:
    return sequence_conflict(candidate.since_base, candidate.delta, has_key=candidate.has_key)


def _looked_up_changes(candidate: Candidate) -> str | None:
    return superseded_by(candidate.store, candidate.committable.changelog_base_snapshot, candidate.latest)


def _compacted_files(candidate: Candidate) -> str | None:
    return _files_conflict(candidate, candidate.inputs_and_changes)


def _replaced_partitions(candidate: Candidate) -> str | None:
    assert candidate.replaced is not None
    return _files_conflict(candidate, candidate.replaced)


def _files_conflict(candidate: Candidate, base: Sequence[ManifestEntry]) -> str | None:
    key_of = candidate.store.key_of if candidate.has_key else None
    return find_conflict(base, candidate.delta, kind=candidate.kind, key_of=key_of)


def _delete_targets_compacted(candidate: Candidate) -> str | None:
    is_all = candidate.changes is None
    return missing_delete_target(candidate.inputs_and_changes, candidate.committable.messages, is_all=is_all)


def _delete_targets_replaced(candidate: Candidate) -> str | None:
    is_all = candidate.changes is None
    return missing_delete_target(candidate.since_base, candidate.committable.messages, is_all=is_all)


def _index_files(candidate: Candidate) -> str | None:
    return index_conflict(candidate.store, candidate.latest, candidate.base, candidate.committable.messages)


_APPEND: Final[Sequence[ConflictCheck]] = (
    _bucket_counts_appended,
    _sequence_numbers_appended,
    _looked_up_changes,
    _index_files,
)
_DISTRIBUTE: Final[Sequence[ConflictCheck]] = (
    _bucket_counts_appended,
    _sequence_numbers_appended,
    _looked_up_changes,
    _compacted_files,
    _index_files,
)
_COMPACT: Final[Sequence[ConflictCheck]] = (_compacted_files, _delete_targets_compacted, _index_files)
_REPLACE_PARTITIONS: Final[Sequence[ConflictCheck]] = (_replaced_partitions,)
_REPLACE_FILES: Final[Sequence[ConflictCheck]] = (
    _delete_targets_replaced,
    _bucket_counts_replaced,
    _sequence_numbers_replaced,
    _index_files,
)
