"""The facts of a snapshot that a batch write needs, read only for the buckets that it writes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.lists import ManifestFileMeta
from filestore.manifest.live_rows import ChosenEntries
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey, bucket_count_error, reading_snapshot
from filestore.scan.snapshot_files import live_parts, manifests_of, ranges_that_hold
from filestore.snapshot.snapshot import EMPTY_TABLE, Snapshot, SnapshotRef
from filestore.table_store import TableStore

_FEW: Final = 8  # buckets that are looked up one by one; with more, all of the snapshot are


class BucketNumbers:
    """Highest sequence numbers and bucket counts at one snapshot; called with partition and bucket.

    Costs by the manifests that may hold the bucket, and by its files.
    """

    def __init__(self, store: TableStore, snapshot: Snapshot | None) -> None:
        """Nothing is read yet; None is the empty table."""
        self._table = store
        self.snapshot = snapshot
        self._manifests: Sequence[ManifestFileMeta] | None = None
        self._highest: dict[BucketKey, int] = {}
        self._totals: dict[BucketKey, int] = {}  # of buckets with files
        self._partition_totals: dict[bytes, int | None] = {}
        self._knows_all = snapshot is None

    @property
    def ref(self) -> SnapshotRef:
        """Names the snapshot; EMPTY_TABLE for the empty table."""
        return EMPTY_TABLE if self.snapshot is None else self.snapshot.ref

    def __call__(self, partition: bytes, bucket: int) -> int:
        """Highest sequence number in a bucket; NO_SEQUENCE_NUMBER when it is empty.

        Raises: ConflictError when the snapshot was removed: plan again.
        """
        key = BucketKey(partition, bucket)
        self._load(key)
        return self._highest.get(key, NO_SEQUENCE_NUMBER)

    def check_bucket_counts(self, messages: Iterable[CommitMessage]) -> None:
        """Refuse messages for partitions with live files of another bucket count; see ``LiveFiles``.

        All files of a partition have one count, so those of the bucket show it; if it is empty, any others.

        Raises: InvalidInputError; ConflictError when the snapshot was removed: plan again.
        """
        for message in messages:
            if message.bucket < 0:
                continue
            key = BucketKey(message.partition, message.bucket)
            self._load(key)
            live = self._totals.get(key)
            if live is None:
                live = self._partition_total(message.partition)
            if live not in (None, message.total_buckets):
                raise bucket_count_error(self._table, message, live)

    def _load(self, key: BucketKey) -> None:
        if self._knows_all or key in self._highest:
            return
        if len(self._highest) >= _FEW:
            self._take(self._read(lambda _: True, None, None))
            self._knows_all = True
            return
        self._highest[key] = NO_SEQUENCE_NUMBER
        self._take(self._read(key.partition.__eq__, [key.partition], key.bucket))

    def _partition_total(self, partition: bytes) -> int | None:
        if partition not in self._partition_totals:
            parts = [] if self._knows_all else self._read(partition.__eq__, [partition], None)
            self._partition_totals[partition] = next(_totals(parts), None)
        return self._partition_totals[partition]

    def _read(
        self, keep_partition: Callable[[bytes], bool], partitions: Sequence[bytes] | None, bucket: int | None
    ) -> list[ChosenEntries]:
        if self.snapshot is None:
            return []
        with reading_snapshot(self._table, self.ref):
            if self._manifests is None:
                self._manifests = manifests_of(self._table, self.snapshot)
            return live_parts(
                self._table,
                self.snapshot,
                manifests=self._manifests,
                keep_ranges=(lambda _: True) if partitions is None else ranges_that_hold(self._table, partitions),
                keep_partition=keep_partition,
                keep_bucket=None if bucket is None else lambda each, _: each == bucket,
                bucket_range=None if bucket is None else (bucket, bucket),
            )

    def _take(self, parts: Iterable[ChosenEntries]) -> None:
        for part in parts:
            for key, (highest, total) in _by_bucket(part).items():
                self._highest[key] = max(highest, self._highest.get(key, NO_SEQUENCE_NUMBER))
                self._totals[key] = total
                if key.bucket >= 0:
                    self._partition_totals[key.partition] = total


def _by_bucket(part: ChosenEntries) -> Mapping[BucketKey, tuple[int, int]]:
    """Highest sequence number, and the bucket count of the last file, of each bucket."""
    columns, rows = part.columns, part.rows
    if not len(rows):
        return {}
    places = columns.partition_codes[rows].astype(np.int64) << 32 | columns.buckets[rows].astype(np.int64) & 0xFFFFFFFF
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lasts = np.append(starts[1:], len(ordered)) - 1
    highest = np.maximum.reduceat(columns.max_sequence_numbers[rows][order], starts).tolist()
    totals = columns.total_buckets[rows][order][lasts].tolist()
    keys = zip((ordered[starts] >> 32).tolist(), ordered[starts].astype(np.int32).tolist(), strict=True)
    names = [BucketKey(columns.partitions[code], bucket) for code, bucket in keys]
    return dict(zip(names, zip(highest, totals, strict=True), strict=True))


def _totals(parts: Iterable[ChosenEntries]) -> Iterator[int]:
    """Bucket counts of files, but of postponed ones."""
    for part in parts:
        yield from part.columns.total_buckets[part.rows[part.columns.buckets[part.rows] >= 0]].tolist()
