"""A view of a table's live files, which long-lived writers advance incrementally to newer snapshots."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.snapshot_files import changes_since, deletion_indexes, live_files
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.snapshot.snapshot import EMPTY_TABLE, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError
from lsm.levels import Levels

T = TypeVar("T")

NO_SEQUENCE_NUMBER = -1
"""The maximum sequence number of a bucket without rows, so that the first row gets 0."""


class BucketKey(NamedTuple):
    """Identifies one LSM tree; equal to the plain tuple."""

    partition: bytes  # BinaryRow with arity prefix
    bucket: int


@dataclass(slots=True)
class _Bucket:
    total_buckets: int
    files: dict[object, DataFileMeta] = field(default_factory=dict)  # by manifest identity


class LiveFiles:
    """The live files of every bucket at one snapshot."""

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        """Read every live file of a snapshot; None is the empty table."""
        self._table = store
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._indexes: tuple[str | None, Mapping[tuple[bytes, int], Sequence[IndexManifestEntry]]] = (None, {})
        self.snapshot: Snapshot | None = None
        self._load(snapshot)

    @classmethod
    def latest(cls, store: TableStore) -> "LiveFiles":
        """The view at the newest snapshot."""
        return at_latest(store, lambda snapshot: cls(store, snapshot))

    @property
    def ref(self) -> SnapshotRef:
        """Names the current snapshot; EMPTY_TABLE for the empty table."""
        return EMPTY_TABLE if self.snapshot is None else self.snapshot.ref

    @property
    def snapshot_id(self) -> int:
        """Id of the current snapshot; 0 for the empty table."""
        return 0 if self.snapshot is None else self.snapshot.id

    def reading(self) -> AbstractContextManager[None]:
        """Read files of this snapshot in a block; see ``reading_snapshot``."""
        return reading_snapshot(self._table, self.ref)

    def advance(self) -> frozenset[BucketKey]:
        """Move to the newest snapshot and return the buckets that changed.

        Reads only the deltas since, or everything if the history was rolled back or has expired in the meantime.
        """
        return at_latest(self._table, self._advance_to)

    def _advance_to(self, latest: Snapshot | None) -> frozenset[BucketKey]:
        changes = self._changes_until(latest)
        if latest is None or changes is None:
            before = frozenset(self._buckets)
            self._load(latest)
            return before | frozenset(self._buckets)
        entries = [entry for each in changes.values() for entry in each]
        for entry in entries:
            self._apply(entry)
        self.snapshot = latest
        return frozenset(BucketKey(entry.partition, entry.bucket) for entry in entries)

    def buckets(self) -> Iterator[BucketKey]:
        """Every bucket with files, except postpone buckets."""
        return (key for key in self.all_buckets() if key.bucket >= 0)

    def postponed(self) -> Iterator[BucketKey]:
        """The postpone bucket of every partition that has rows in it."""
        return (key for key in self.all_buckets() if key.bucket < 0)

    def all_buckets(self) -> Iterator[BucketKey]:
        """Every bucket with files, including postpone buckets."""
        return (key for key, bucket in self._buckets.items() if bucket.files)

    def files(self, key: BucketKey) -> tuple[DataFileMeta, ...]:
        """The live files of a bucket, in no order."""
        bucket = self._buckets.get(key)
        return tuple(bucket.files.values()) if bucket else ()

    def indexes(self, key: BucketKey) -> tuple[IndexManifestEntry, ...]:
        """The deletion vector index files of a bucket. Raises: FileNotFoundError when the snapshot expired."""
        name = None if self.snapshot is None else self.snapshot.index_manifest
        if name != self._indexes[0]:
            self._indexes = (name, deletion_indexes(self._table, self.snapshot))
        return tuple(self._indexes[1].get(key, ()))

    def file_count(self, key: BucketKey) -> int:
        """Number of live files of a bucket."""
        bucket = self._buckets.get(key)
        return len(bucket.files) if bucket else 0

    def levels(self, key: BucketKey) -> Levels:
        """The LSM tree of a bucket of a table with a primary key."""
        files = [self._table.sorted_file(each) for each in self.files(key)]
        return Levels.of(files, level_count=self._table.level_count)

    def max_sequence_number(self, key: BucketKey) -> int:
        """Highest sequence number in a bucket; NO_SEQUENCE_NUMBER when it is empty."""
        return max((each.max_sequence_number for each in self.files(key)), default=NO_SEQUENCE_NUMBER)

    def max_sequence_numbers(self) -> Mapping[BucketKey, int]:
        """Highest sequence number of every bucket with files, for writer tasks."""
        return {key: self.max_sequence_number(key) for key in self.all_buckets()}

    def total_buckets(self, key: BucketKey) -> int | None:
        """The bucket count that the bucket's live files were written with; None when there are none."""
        bucket = self._buckets.get(key)
        return bucket.total_buckets if bucket and bucket.files else None

    def partition_total_buckets(self) -> Mapping[bytes, int]:
        """The bucket count of every partition with files."""
        return {key.partition: self._buckets[key].total_buckets for key in self.buckets()}

    def check_bucket_counts(self, messages: Iterable[CommitMessage]) -> None:
        """Refuse messages for partitions with live files of another bucket count.

        Raises:
            InvalidInputError: the table's ``bucket`` was changed; only an overwrite rescales a partition.
        """
        counts = self.partition_total_buckets()
        for message in messages:
            live = counts.get(message.partition, message.total_buckets)
            if live != message.total_buckets and message.bucket >= 0:
                raise bucket_count_error(self._table, message, live)

    def _changes_until(self, latest: Snapshot | None) -> dict[int, list[ManifestEntry]] | None:
        if latest is None or self.snapshot is None:
            return None
        return changes_since(self._table, self.snapshot.ref, latest)

    def _load(self, snapshot: Snapshot | None) -> None:
        self._buckets.clear()
        for entry in live_files(self._table, snapshot):
            self._apply(entry)
        self.snapshot = snapshot

    def _apply(self, entry: ManifestEntry) -> None:
        key = BucketKey(entry.partition, entry.bucket)
        bucket = self._buckets.setdefault(key, _Bucket(entry.total_buckets))
        if entry.kind is EntryKind.ADD:
            bucket.total_buckets = entry.total_buckets
            bucket.files[entry.identity] = entry.file
        else:
            bucket.files.pop(entry.identity, None)
            if not bucket.files:
                del self._buckets[key]


def bucket_count_error(store: TableStore, message: CommitMessage, live: int) -> InvalidInputError:
    """The error in a message for a partition whose live files have another bucket count."""
    return InvalidInputError(
        f"a partition was written with another bucket count: table={store.name} "
        f"partition={store.partition_values(message.partition)} live={live} "
        f"now={message.total_buckets} fix='overwrite the partition to rescale it'"
    )


def snapshot_is_gone(store: TableStore, ref: SnapshotRef) -> bool:
    """Whether a snapshot was removed, or is about to be: an expiry deletes its files first."""
    return ref.id < store.snapshots.claimed_up_to() or store.snapshots.find_ref(ref) is None


@contextmanager
def reading_snapshot(store: TableStore, ref: SnapshotRef) -> Iterator[None]:
    """Read files of a snapshot in a block, to plan a commit.

    Raises: ConflictError when one is missing because the snapshot was removed meanwhile: plan again.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not isinstance(error, SnapshotExpiredError) and not snapshot_is_gone(store, ref):
            raise
        raise ConflictError(
            f"the snapshot was removed while its files were read: table={store.name} snapshot={ref.id}: plan again"
        ) from error


def at_latest(store: TableStore, read: Callable[[Snapshot | None], T]) -> T:
    """Read the newest snapshot; again, when it was removed or has expired while its files were read."""
    before: Snapshot | None = None
    while True:
        latest = store.snapshots.latest()
        try:
            return read(latest)
        except FileNotFoundError as error:
            if latest is None or latest == before:
                raise
            if not isinstance(error, SnapshotExpiredError) and not snapshot_is_gone(store, latest.ref):
                raise
            before = latest
