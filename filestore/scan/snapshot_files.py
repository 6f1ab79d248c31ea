"""The manifest entries of a snapshot: its delta, and all live files, pruned while reading.

Pruning never separates an ADD from its DELETE: both have the same partition, bucket and level.
Source: Paimon AbstractFileStoreScan.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from filestore.format.statistics import ColumnRange
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import DELETION_VECTORS, IndexManifestEntry, ManifestFileMeta
from filestore.manifest.live_rows import ChosenEntries, chosen_rows, live_rows
from filestore.snapshot.lost_files import naming_missing_files
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table_store import TableStore
from filestore.types.binary_row import decode_row
from lsm.keys.keys import comparable

Ranges = Mapping[str, ColumnRange]


def manifests_of(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """Every manifest of a snapshot, chronological: base list, then delta list."""
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        base = store.manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
    return [*base, *delta_manifests(store, snapshot)]


def delta_manifests(store: TableStore, snapshot: Snapshot) -> list[ManifestFileMeta]:
    """The delta manifests of one commit."""
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        return list(store.manifests.read_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size))


def delta_entries(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    """The delta entries of one commit, in file order."""
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        return [entry for each in delta_manifests(store, snapshot) for entry in store.manifests.read_manifest(each)]


def changelog_of(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    """The changelog files of a commit, of manifests that are still there."""
    if snapshot.changelog_manifest_list is None:
        return []
    entries: list[ManifestEntry] = []
    name, size_bytes = snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
    with suppress(FileNotFoundError):
        for manifest in store.manifests.read_list(name, size_bytes):
            with suppress(FileNotFoundError):
                entries += store.manifests.read_manifest(manifest)
    return entries


def changes_since(store: TableStore, base: SnapshotRef, latest: Snapshot) -> dict[int, list[ManifestEntry]] | None:
    """The delta entries of commits after ``base`` up to ``latest``, by snapshot id.

    None when some of them have expired, or the base is not in the history of ``latest``: it was rolled back.
    """
    changes: dict[int, list[ManifestEntry]] = {}
    if base.id > latest.id:
        return None
    if base.id == latest.id:
        return changes if base.identity in ("", latest.identity) else None
    before = base
    for snapshot_id in range(base.id + 1, latest.id + 1):
        try:
            snapshot = latest if snapshot_id == latest.id else store.snapshots.read(snapshot_id)
            if not _follows(store, snapshot, before):
                return None
            changes[snapshot_id] = delta_entries(store, snapshot)
            before = snapshot.ref
        except FileNotFoundError:
            return None
    return changes


def _follows(store: TableStore, snapshot: Snapshot, before: SnapshotRef) -> bool:
    if not before.identity:
        return True  # nothing to compare
    if snapshot.parent is not None:
        return snapshot.parent == before.identity
    found = store.snapshots.find(before.id)
    return found is None or found.ref == before


def live_files(
    store: TableStore,
    snapshot: Snapshot | None,
    *,
    keep_ranges: Callable[[Ranges], bool] = lambda _: True,
    keep_partition: Callable[[bytes], bool] = lambda _: True,
    keep_bucket: Callable[[int, int], bool] | None = None,
    bucket_range: tuple[int, int] | None = None,
    min_level: int = 0,
) -> list[ManifestEntry]:
    """The live files of a snapshot.

    Args:
        store: the table.
        snapshot: the snapshot; None has no files.
        keep_ranges: whether partitions within these value ranges (by column name) may be wanted; else skips whole
            manifests.
        keep_partition: whether a partition (BinaryRow bytes) is wanted; called once per partition.
        keep_bucket: whether a (bucket, total buckets) is wanted; None is all.
        bucket_range: lowest and highest wanted bucket; None is all.
        min_level: files of lower levels are omitted.
    """
    parts = live_parts(
        store,
        snapshot,
        keep_ranges=keep_ranges,
        keep_partition=keep_partition,
        keep_bucket=keep_bucket,
        bucket_range=bucket_range,
        min_level=min_level,
    )
    return store.manifests.entries_of(parts)


def live_parts(
    store: TableStore,
    snapshot: Snapshot | None,
    *,
    manifests: Sequence[ManifestFileMeta] | None = None,
    keep_ranges: Callable[[Ranges], bool] = lambda _: True,
    keep_partition: Callable[[bytes], bool] = lambda _: True,
    keep_bucket: Callable[[int, int], bool] | None = None,
    bucket_range: tuple[int, int] | None = None,
    min_level: int = 0,
) -> list[ChosenEntries]:
    """The live files of a snapshot as columns, in parts; see ``live_files``. ``manifests`` are all of the snapshot."""
    if snapshot is None:
        return []
    keep_partition = cache(keep_partition)
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        wanted = [
            manifest
            for manifest in (manifests_of(store, snapshot) if manifests is None else manifests)
            if _may_hold_wanted(manifest, bucket_range, min_level) and keep_ranges(partition_ranges(store, manifest))
        ]
        parts = [
            chosen_rows(each, keep_partition=keep_partition, keep_bucket=keep_bucket, min_level=min_level)
            for each in store.manifests.read_columns(wanted)
        ]
        return live_rows(parts)


def live_files_of_partitions(
    store: TableStore,
    snapshot: Snapshot | None,
    partitions: Collection[bytes],
    *,
    buckets: Collection[int] | None = None,
) -> list[ManifestEntry]:
    """The live files of some partitions, optionally only of some buckets.

    Manifests that cannot hold any of them are skipped.
    """
    keep_ranges = ranges_that_hold(store, partitions)
    keep_partition = frozenset(partitions).__contains__
    if buckets is None:
        return live_files(store, snapshot, keep_ranges=keep_ranges, keep_partition=keep_partition)
    return live_files(
        store,
        snapshot,
        keep_ranges=keep_ranges,
        keep_partition=keep_partition,
        keep_bucket=lambda bucket, _: bucket in buckets,
        bucket_range=(min(buckets, default=0), max(buckets, default=0)),
    )


def ranges_that_hold(store: TableStore, partitions: Collection[bytes]) -> Callable[[Ranges], bool]:
    """Whether value ranges of partition columns may hold one of these partitions."""
    values = [store.partition_values(each) for each in partitions]
    names = store.schema.partition_keys

    def keep_ranges(ranges: Ranges) -> bool:
        return any(
            all(_within(value, ranges.get(name)) for name, value in zip(names, each, strict=True)) for each in values
        )

    return keep_ranges


def deletion_indexes(
    store: TableStore, snapshot: Snapshot | None
) -> Mapping[tuple[bytes, int], Sequence[IndexManifestEntry]]:
    """The live deletion vectors of a snapshot, by partition and bucket; buckets without any are omitted."""
    indexes: defaultdict[tuple[bytes, int], list[IndexManifestEntry]] = defaultdict(list)
    if snapshot is not None and snapshot.index_manifest is not None:
        with naming_missing_files(store.snapshots, store.name, snapshot.ref):
            entries = store.manifests.read_index_manifest(snapshot.index_manifest)
        for entry in entries:
            if entry.index_type == DELETION_VECTORS and entry.kind is EntryKind.ADD:
                indexes[entry.partition, entry.bucket].append(entry)
    return dict(indexes)


def differing_vectors(
    store: TableStore, before: Snapshot | None, after: Snapshot | None
) -> frozenset[tuple[bytes, int]]:
    """The buckets with other deletion vectors in two states."""
    names = [None if each is None else each.index_manifest for each in (before, after)]
    if names[0] == names[1]:
        return frozenset()
    one, two = deletion_indexes(store, before), deletion_indexes(store, after)
    return frozenset(place for place in {*one, *two} if vector_places(one.get(place)) != vector_places(two.get(place)))


def vector_places(indexes: Sequence[IndexManifestEntry] | None) -> Mapping[str, object]:
    """Where the vector of each data file is; equal places hold equal vectors."""
    found: dict[str, object] = {}
    for entry in indexes or ():
        found |= {each.data_file_name: (entry.file_name, each) for each in entry.index_vectors}
    return found


def partition_ranges(store: TableStore, manifest: ManifestFileMeta) -> Ranges:
    """Value range of each partition column over all entries of a manifest; empty when unknown."""
    stats = manifest.partition_stats
    lows = decode_row(stats.min_values, store.partition_types) if stats.min_values[:4] != _NO_COLUMNS else ()
    highs = decode_row(stats.max_values, store.partition_types) if stats.max_values[:4] != _NO_COLUMNS else ()
    if len(lows) != len(store.partition_types) or len(highs) != len(lows):
        return {}
    nulls = stats.null_counts or (None,) * len(lows)
    columns = zip(store.schema.partition_keys, lows, highs, nulls, strict=True)
    return {name: ColumnRange(min=low, max=high, null_count=count) for name, low, high, count in columns}


_NO_COLUMNS = b"\0\0\0\0"


def _within(value: Any, known: ColumnRange | None) -> bool:
    if known is None:
        return True
    if value is None:
        return known.null_count != 0
    if known.min is None or known.max is None:
        return known.null_count is None  # all null, or unknown
    return bool(comparable(known.min) <= comparable(value) <= comparable(known.max))  # type: ignore[operator]


def _may_hold_wanted(manifest: ManifestFileMeta, bucket_range: tuple[int, int] | None, min_level: int) -> bool:
    if manifest.max_level is not None and manifest.max_level < min_level:
        return False
    if bucket_range is None or manifest.min_bucket is None or manifest.max_bucket is None:
        return True
    return manifest.min_bucket <= bucket_range[1] and bucket_range[0] <= manifest.max_bucket
