"""The index files of a snapshot: their state after a commit, and conflicts between commits.

A snapshot's index manifest lists all its index files: deletion vectors, and the key hashes of dynamic
buckets. A commit lists removed and added ones. Source: Paimon IndexManifestFileHandler.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, names_with_vectors, vectors_of_names
from filestore.snapshot.lost_files import naming_missing_files
from filestore.snapshot.snapshot import EMPTY_TABLE, Snapshot, SnapshotRef
from filestore.table_store import TableStore

HASH: Final = "HASH"
"""Type of an index file with the hashes of all keys of a bucket."""


def index_files(store: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """The live index files of a snapshot."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        entries = store.manifests.read_index_manifest(snapshot.index_manifest)
    return [entry for entry in entries if entry.kind is EntryKind.ADD]


def bucket_index(store: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """The hash index files that writers need to assign keys to dynamic buckets; [] for other tables."""
    if not store.has_dynamic_buckets:
        return []
    return [entry for entry in index_files(store, snapshot) if entry.index_type == HASH]


def changes_index(messages: Iterable[CommitMessage], *, has_index: bool = False) -> bool:
    """Whether a commit of these messages may change the index manifest; ``has_index``: the snapshot has one."""
    return any(
        message.index_before or message.index_after or (has_index and message.compact_before) for message in messages
    )


def next_index(
    entries: Iterable[IndexManifestEntry],
    messages: Sequence[CommitMessage],
    *,
    replaces: Callable[[bytes], bool] = lambda _: False,
) -> list[IndexManifestEntry]:
    """The index files after a commit. A deletion vector is removed with its data file, by any kind of commit.

    Args:
        entries: index files before the commit.
        messages: messages of the commit.
        replaces: whether a partition is overwritten, which removes its index files.
    """
    removed = {entry.file_name for message in messages for entry in message.index_before}
    kept = [entry for entry in entries if entry.file_name not in removed and not replaces(entry.partition)]
    files = _removed_files(messages)
    after: list[IndexManifestEntry] = []
    for entry in (*kept, *(entry for message in messages for entry in message.index_after)):
        names = files.get((entry.partition, entry.bucket), frozenset())
        if names.isdisjoint(each.data_file_name for each in entry.index_vectors):
            after.append(entry)
        else:
            after += vectors_of_names(frozenset(names_with_vectors([entry]) - names).__contains__, [entry])
    return after


def index_conflict(
    store: TableStore, latest: Snapshot, base: SnapshotRef | None, messages: Sequence[CommitMessage]
) -> str | None:
    """The index conflict of a commit based on ``base`` with the latest snapshot, or None."""
    if not changes_index(messages, has_index=latest.index_manifest is not None):
        return None
    before: list[IndexManifestEntry] | None = None
    if _hashed(messages):  # nothing else is compared with the base
        found = None if base is None else store.snapshots.find_ref(base)
        before = index_files(store, found) if found is not None or base == EMPTY_TABLE else None
    return find_index_conflict(before, index_files(store, latest), messages)


def find_index_conflict(
    base: Iterable[IndexManifestEntry] | None, now: Iterable[IndexManifestEntry], messages: Sequence[CommitMessage]
) -> str | None:
    """The conflict of a commit's index files with commits since its base, or None.

    Removed index files must be unchanged. A data file that is removed, or gets a deletion vector, must still have the
    vector that was read: else concurrent deletes would be lost. Key hashes of a whole partition must be
    those of the base: else one key could get two buckets.

    Args:
        base: index files of the commit's base snapshot; None: it has expired, or no key was assigned.
        now: index files of the newest snapshot.
        messages: messages of the commit.
    """
    now = list(now)
    live = {entry.file_name: entry for entry in now}
    vectors: defaultdict[tuple[bytes, int], list[IndexManifestEntry]] = defaultdict(list)
    for entry in now:
        if entry.index_vectors:
            vectors[entry.partition, entry.bucket].append(entry)
    removed = _removed_files(messages)
    replaced = {entry.file_name for message in messages for entry in message.index_before}
    for message in messages:
        for entry in message.index_before:
            if live.get(entry.file_name) != entry:
                return f"an index file was replaced: file={entry.file_name} bucket={entry.bucket}"
        added = names_with_vectors(message.index_after)
        touched = added | (removed.get((message.partition, message.bucket), frozenset()))
        for entry in vectors.get((message.partition, message.bucket), ()):
            if entry.file_name in replaced:
                continue
            if (added and message.total_buckets > 0) or not touched.isdisjoint(names_with_vectors([entry])):
                return f"rows of this bucket were deleted concurrently: file={entry.file_name} bucket={entry.bucket}"
    hashed = _hashed(messages)
    if hashed and base is None:
        return "the snapshot that keys were assigned from has expired"
    for partition in hashed:
        if _hash_files(base or (), partition) != _hash_files(now, partition):
            return f"another writer assigned keys of this partition to buckets: partition={partition.hex()}"
    return None


def missing_delete_target(
    changes: Iterable[ManifestEntry], messages: Sequence[CommitMessage], *, is_all: bool
) -> str | None:
    """The conflict if data files with rows deleted by a commit no longer exist, or None.

    Args:
        changes: manifest entries since the commit's base, or every live file.
        messages: messages of the commit.
        is_all: whether ``changes`` are all live files.
    """
    counts: Counter[tuple[bytes, int, str]] = Counter()
    for entry in changes:
        change = 1 if entry.kind is EntryKind.ADD else -1
        counts[entry.partition, entry.bucket, entry.file.file_name] += change
    for message in messages:
        for name in names_with_vectors(message.index_after):
            if counts[message.partition, message.bucket, name] < (1 if is_all else 0):
                return f"a file with rows to delete was replaced: file={name} bucket={message.bucket}"
    return None


def _removed_files(messages: Iterable[CommitMessage]) -> Mapping[tuple[bytes, int], frozenset[str]]:
    """Names of removed files by bucket, without files that only move to another level."""
    removed: defaultdict[tuple[bytes, int], set[str]] = defaultdict(set)
    for message in messages:
        removed[message.partition, message.bucket] |= {file.file_name for file in message.compact_before}
    for message in messages:
        removed[message.partition, message.bucket] -= {file.file_name for file in message.files_after}
    return {key: frozenset(names) for key, names in removed.items() if names}


def _hashed(messages: Iterable[CommitMessage]) -> set[bytes]:
    """The partitions in which a commit assigns keys to buckets."""
    return {message.partition for message in messages for entry in message.index_after if entry.index_type == HASH}


def _hash_files(entries: Iterable[IndexManifestEntry], partition: bytes) -> set[str]:
    return {entry.file_name for entry in entries if entry.index_type == HASH and entry.partition == partition}
