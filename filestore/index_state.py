"""The index files of a snapshot: which there are after a commit, and whether the commit may follow another one.

A snapshot's index manifest lists every index file that is in force: deletion vectors, and the key hashes of dynamic
buckets. A commit names those that go and those that come. Source: paimon-format.md sections 4.3 and 8.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from filestore.commit_message import CommitMessage
from filestore.data_split import DELETION_VECTORS
from filestore.manifests import EntryKind, IndexManifestEntry
from filestore.snapshots import Snapshot
from filestore.table_store import TableStore

HASH: Final = "HASH"
"""Type of an index file with the hashes of all keys of a bucket."""


def index_files(table: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """The index files in force in a snapshot."""
    if snapshot is None or snapshot.index_manifest is None:
        return []
    entries = table.manifests.read_index_manifest(snapshot.index_manifest)
    return [entry for entry in entries if entry.kind is EntryKind.ADD]


def bucket_index(table: TableStore, snapshot: Snapshot | None) -> list[IndexManifestEntry]:
    """What a writer must know of a snapshot to find the dynamic buckets of keys; nothing for other tables."""
    if not table.has_dynamic_buckets:
        return []
    return [entry for entry in index_files(table, snapshot) if entry.index_type == HASH]


def changes_index(messages: Iterable[CommitMessage]) -> bool:
    """Whether a commit of these messages needs another index manifest."""
    return any(message.index_before or message.index_after for message in messages)


def next_index(
    entries: Iterable[IndexManifestEntry],
    messages: Sequence[CommitMessage],
    *,
    replaces: Callable[[bytes], bool] = lambda _: False,
) -> list[IndexManifestEntry]:
    """The index files after a commit.

    Args:
        entries: before it.
        messages: of the commit.
        replaces: whether a partition is overwritten: its index files go with its data.
    """
    gone = {entry.file_name for message in messages for entry in message.index_before}
    kept = [entry for entry in entries if entry.file_name not in gone and not replaces(entry.partition)]
    return [*kept, *(entry for message in messages for entry in message.index_after)]


def index_conflict(
    table: TableStore, latest: Snapshot, base_id: int | None, messages: Sequence[CommitMessage]
) -> str | None:
    """Why the index files of a commit that was made from ``base_id`` (0: the empty table) cannot follow, or None."""
    if not changes_index(messages):
        return None
    base = None if base_id is None else table.snapshots.find(base_id)
    before = index_files(table, base) if base is not None or base_id == 0 else None
    return find_index_conflict(before, index_files(table, latest), messages)


def find_index_conflict(
    base: Iterable[IndexManifestEntry] | None, now: Iterable[IndexManifestEntry], messages: Sequence[CommitMessage]
) -> str | None:
    """Why the index files that a commit brings cannot follow what others did since it began, or None.

    What goes must be there. Deletion vectors of a bucket must be those that were replaced; key hashes of a whole
    partition must be those of the base: else one key could get two buckets.

    Args:
        base: index files of the snapshot that the commit was made from; None: it has expired.
        now: those of the newest snapshot.
        messages: of the commit.
    """
    now = list(now)
    there = {entry.file_name for entry in now}
    for message in messages:
        for entry in message.index_before:
            if entry.file_name not in there:
                return f"an index file was replaced: file={entry.file_name} bucket={entry.bucket}"
        if any(entry.index_type == DELETION_VECTORS for entry in message.index_after):
            ours = {entry.file_name for entry in message.index_before}
            for entry in now:
                is_here = (entry.partition, entry.bucket) == (message.partition, message.bucket)
                if is_here and entry.index_type == DELETION_VECTORS and entry.file_name not in ours:
                    return f"rows of this bucket were deleted meanwhile: file={entry.file_name} bucket={entry.bucket}"
    hashed = {message.partition for message in messages for entry in message.index_after if entry.index_type == HASH}
    if hashed and base is None:
        return "the snapshot that keys were assigned from has expired"
    for partition in hashed:
        if _hash_files(base or (), partition) != _hash_files(now, partition):
            return f"another writer assigned keys of this partition to buckets: partition={partition.hex()}"
    return None


def _hash_files(entries: Iterable[IndexManifestEntry], partition: bytes) -> set[str]:
    return {entry.file_name for entry in entries if entry.index_type == HASH and entry.partition == partition}
