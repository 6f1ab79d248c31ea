"""The index files of a snapshot: which there are after a commit, and whether the commit may follow another one.

A snapshot's index manifest lists every index file that is in force: deletion vectors, and the key hashes of dynamic
buckets. A commit names those that go and those that come. Source: paimon-format.md sections 4.3 and 8.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, names_with_vectors, vectors_of_names
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

HASH: Final = "HASH"
"""Type of an index file with the hashes of all keys of a bucket."""


def index_files(store: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """The index files in force in a snapshot."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    entries = store.manifests.read_index_manifest(snapshot.index_manifest)
    return [entry for entry in entries if entry.kind is EntryKind.ADD]


def bucket_index(store: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """What a writer must know of a snapshot to find the dynamic buckets of keys; nothing for other tables."""
    if not store.has_dynamic_buckets:
        return []
    return [entry for entry in index_files(store, snapshot) if entry.index_type == HASH]


def changes_index(messages: Iterable[CommitMessage], *, has_index: bool = False) -> bool:
    """Whether a commit of these messages may need another index manifest; ``has_index``: there is one."""
    return any(
        message.index_before or message.index_after or (has_index and message.compact_before) for message in messages
    )


def next_index(
    entries: Iterable[IndexManifestEntry],
    messages: Sequence[CommitMessage],
    *,
    replaces: Callable[[bytes], bool] = lambda _: False,
) -> list[IndexManifestEntry]:
    """The index files after a commit. A deletion vector goes with its data file, whoever takes that away.

    Args:
        entries: before it.
        messages: of the commit.
        replaces: whether a partition is overwritten: its index files go with its data.
    """
    gone = {entry.file_name for message in messages for entry in message.index_before}
    kept = [entry for entry in entries if entry.file_name not in gone and not replaces(entry.partition)]
    files = _gone_files(messages)
    after: list[IndexManifestEntry] = []
    for entry in (*kept, *(entry for message in messages for entry in message.index_after)):
        names = files.get((entry.partition, entry.bucket), frozenset())
        if names.isdisjoint(each.data_file_name for each in entry.index_vectors):
            after.append(entry)
        else:
            after += vectors_of_names(frozenset(names_with_vectors([entry]) - names).__contains__, [entry])
    return after


def index_conflict(
    store: TableStore, latest: Snapshot, base_id: int | None, messages: Sequence[CommitMessage]
) -> str | None:
    """Why the index files of a commit that was made from ``base_id`` (0: the empty table) cannot follow, or None."""
    if not changes_index(messages, has_index=latest.index_manifest is not None):
        return None
    before: list[IndexManifestEntry] | None = None
    if _hashed(messages):  # nothing else is held against the base
        base = None if base_id is None else store.snapshots.find(base_id)
        before = index_files(store, base) if base is not None or base_id == 0 else None
    return find_index_conflict(before, index_files(store, latest), messages)


def find_index_conflict(
    base: Iterable[IndexManifestEntry] | None, now: Iterable[IndexManifestEntry], messages: Sequence[CommitMessage]
) -> str | None:
    """Why the index files that a commit brings cannot follow what others did since it began, or None.

    What goes must be there as it was read. A data file that goes, or that gets a deletion vector, must have the vector
    that was read: else rows that somebody deleted meanwhile would come back. Key hashes of a whole partition must be
    those of the base: else one key could get two buckets.

    Args:
        base: index files of the snapshot that the commit was made from; None: it has expired, or no key was assigned.
        now: those of the newest snapshot.
        messages: of the commit.
    """
    now = list(now)
    there = {entry.file_name: entry for entry in now}
    vectors: defaultdict[tuple[bytes, int], list[IndexManifestEntry]] = defaultdict(list)
    for entry in now:
        if entry.index_vectors:
            vectors[entry.partition, entry.bucket].append(entry)
    gone = _gone_files(messages)
    ours = {entry.file_name for message in messages for entry in message.index_before}
    for message in messages:
        for entry in message.index_before:
            if there.get(entry.file_name) != entry:
                return f"an index file was replaced: file={entry.file_name} bucket={entry.bucket}"
        brought = names_with_vectors(message.index_after)
        touched = brought | (gone.get((message.partition, message.bucket), frozenset()))
        for entry in vectors.get((message.partition, message.bucket), ()):
            if entry.file_name in ours:
                continue
            if (brought and message.total_buckets > 0) or not touched.isdisjoint(names_with_vectors([entry])):
                return f"rows of this bucket were deleted meanwhile: file={entry.file_name} bucket={entry.bucket}"
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
    """Why rows that a commit marks as deleted are not there to be marked, or None.

    Args:
        changes: what others did since the commit's base, or every live file.
        messages: of the commit.
        is_all: which of both.
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


def _gone_files(messages: Iterable[CommitMessage]) -> Mapping[tuple[bytes, int], frozenset[str]]:
    """Names of the files that leave each bucket; one that only moves to another level stays."""
    gone: defaultdict[tuple[bytes, int], set[str]] = defaultdict(set)
    for message in messages:
        gone[message.partition, message.bucket] |= {file.file_name for file in message.compact_before}
    for message in messages:
        gone[message.partition, message.bucket] -= {file.file_name for file in message.files_after}
    return {key: frozenset(names) for key, names in gone.items() if names}


def _hashed(messages: Iterable[CommitMessage]) -> set[bytes]:
    """The partitions in which a commit assigns keys to buckets."""
    return {message.partition for message in messages for entry in message.index_after if entry.index_type == HASH}


def _hash_files(entries: Iterable[IndexManifestEntry], partition: bytes) -> set[str]:
    return {entry.file_name for entry in entries if entry.index_type == HASH and entry.partition == partition}
