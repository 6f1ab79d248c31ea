"""Scan planning: from a snapshot and a filter to splits, which tasks read independently.

Readers of a split of a filtered plan must apply the filter to its rows: pruning omits whole files without matching
keys, including files with newer versions of rows that do not match. Source: Paimon
KeyValueFileStoreScan, SnapshotReader.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Final

import numpy as np

from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.entry_building import made_objects
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.manifest.live_rows import ChosenEntries
from filestore.predicate.given_filter import predicate_of
from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import DataSplit
from filestore.scan.file_groups import PlannedBucket, grouped_files
from filestore.scan.key_cuts import RangeOfFiles, section_ranges
from filestore.scan.key_span import KeySpan
from filestore.scan.planned_files import BLOCK_FILES, FileBlocks, PlannedFiles
from filestore.scan.pruning import Pruner
from filestore.scan.row_expiry import may_expire, moment_of
from filestore.scan.row_ranges import files_by_rows
from filestore.scan.snapshot_files import deletion_indexes, live_parts
from filestore.scan.split_packing import KeyRange, Pack, PackLimits, pack_parts, pack_plain, pack_sorted, packed_ranges
from filestore.schema.row_counts import seen_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.keys.words import IndexArray

Filter = Predicate | str | None

_NO_KEYS: Final[KeyRange] = ((), ())  # of a file that is alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A snapshot, and the splits that may hold matching rows."""

    snapshot: Snapshot | None  # None: the table has no snapshot, and no rows
    splits: tuple[DataSplit, ...]
    filter: Predicate | None = None  # to be applied to the rows of every split


class TableScan:
    """Plans scans of one table, with the schema that it was opened with."""

    def __init__(self, store: TableStore, *, all_levels: bool = False, cuts_keys: bool = False) -> None:
        """Create a scan.

        Args:
            store: the table.
            all_levels: include level-0 rows that scans otherwise skip until compaction, for merging with newer rows.
            cuts_keys: read large sections that are merged by several splits, each with a span of keys; for readers to
                whom a split is its rows, not its files.
        """
        self._table = store
        self._cuts_keys = cuts_keys
        self._all_levels = all_levels

    def plan(
        self,
        *,
        snapshot: Snapshot | None = None,
        filter: Filter = None,
        partitions: Collection[bytes] | None = None,
        buckets: Collection[int] | None = None,
        moment_ms: int | None = None,
    ) -> Plan:
        """Plan the splits to read.

        Args:
            snapshot: to read; None is the newest.
            filter: leaves out what does not match, by the columns that users see.
            partitions: only these (BinaryRow bytes).
            buckets: only these.
            moment_ms: at which expiry of rows is evaluated; None: see ``moment_of``.
        """
        table = self._table
        predicate = predicate_of(filter, seen_schema(table.schema))
        snapshot = snapshot or table.snapshots.latest()
        if snapshot is None:
            return Plan(snapshot=None, splits=(), filter=predicate)
        pruner = Pruner(table, predicate)
        parts = live_parts(
            table,
            snapshot,
            keep_ranges=pruner.keep_ranges,
            keep_partition=lambda each: (partitions is None or each in partitions) and pruner.keep_partition(each),
            keep_bucket=lambda bucket, total: (
                bucket >= 0 and (buckets is None or bucket in buckets) and pruner.keep_bucket(bucket, total)
            ),
            bucket_range=(min(buckets), max(buckets)) if buckets else None,
            min_level=self.min_level,
        )
        parts = [part.where(pruner.keep_rows(part)) for part in parts]
        is_many = sum(map(len, parts)) > BLOCK_FILES
        moment_ms = moment_of(table, snapshot) if moment_ms is None else moment_ms
        if is_many and not table.options.data_evolution_enabled and pruner.keeps_whole_partitions and moment_ms is None:
            splits = self._splits_of_many(snapshot, parts, pruner)
        else:
            entries = [each for each in table.manifests.entries_of(parts) if pruner.keep_by_key(each.file)]
            splits = self._splits(snapshot, entries, pruner, moment_ms)
        return Plan(snapshot=snapshot, splits=tuple(splits), filter=predicate)

    @cached_property
    def _limits(self) -> PackLimits:
        options = self._table.options
        return PackLimits(
            target_bytes=options.source_split_target_size_bytes,
            open_cost_bytes=options.source_split_open_file_cost_bytes,
        )

    @property
    def skips_level0(self) -> bool:
        """Whether level 0 is skipped, since its rows are not merged with older rows of their keys before compaction."""
        if self._all_levels:
            return False
        options = self._table.options
        if options.deletion_vectors_enabled and options.deletion_vectors_merge_on_read:
            return False
        return self._table.has_key and (options.deletion_vectors_enabled or options.merge_engine == "first-row")

    @property
    def min_level(self) -> int:
        """Files of lower levels are skipped."""
        return 1 if self.skips_level0 else 0

    def _splits(
        self, snapshot: Snapshot, entries: Iterable[ManifestEntry], pruner: Pruner, moment_ms: int | None
    ) -> Sequence[DataSplit]:
        indexes = deletion_indexes(self._table, snapshot)
        by_bucket: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
        for entry in entries:
            by_bucket[entry.partition, entry.bucket].append(entry)
        splits: list[DataSplit] = []
        key_ranges = self._key_ranges(by_bucket.values())
        for (partition, bucket), group in by_bucket.items():
            index = indexes.get((partition, bucket), ())
            with_vectors = {each.data_file_name for entry in index for each in entry.index_vectors}
            place = PlannedBucket(partition, bucket, group[0].total_buckets)
            for pack in self._packs(place, [entry.file for entry in group], pruner, with_vectors, key_ranges):
                vectors = vectors_of(pack.files, index)
                expires = moment_ms is not None and (not pack.is_raw or may_expire(self._table, pack.files, moment_ms))
                splits.append(
                    DataSplit(
                        snapshot_id=snapshot.id,
                        partition=partition,
                        bucket=bucket,
                        total_buckets=group[0].total_buckets,
                        files=pack.files,
                        raw_convertible=(pack.is_raw and not vectors and not expires and self._has_rows_in_files),
                        needs_merge=not pack.is_raw,
                        deletion_vectors=vectors,
                        expiry_moment_ms=moment_ms if expires else None,
                        span=pack.span,
                    )
                )
        return splits

    def _splits_of_many(
        self, snapshot: Snapshot, parts: Sequence[ChosenEntries], pruner: Pruner
    ) -> Sequence[DataSplit]:
        """``_splits`` of files that no filter prunes, none with expired rows: only what is merged becomes objects."""
        table, indexes = self._table, deletion_indexes(self._table, snapshot)
        groups = grouped_files(table, parts, merges=self._merges)
        files = FileBlocks(table.manifests.entries_of, parts, groups.order)
        weights = np.maximum(groups.sizes, self._limits.open_cost_bytes).tolist()
        packs: list[tuple[int, int, PlannedBucket, bool, tuple[IndexManifestEntry, ...], KeySpan | None]] = []
        order: list[IndexArray] = []  # of the files of the packs; one that several read is there as often
        first = at = 0
        for place, end, is_plain in zip(groups.places, groups.ends.tolist(), groups.is_plain.tolist(), strict=True):
            index = indexes.get((place.partition, place.bucket), ())
            if is_plain and not index:
                shift = at - first
                ranges_of = packed_ranges(weights, first, end, self._limits)
                packs += [(start + shift, stop + shift, place, True, (), None) for start, stop in ranges_of]
                order.append(groups.order[first:end])
                at, first = at + end - first, end
                continue
            here = files.between(first, end)
            known = {id(file): number for number, file in enumerate(here, first)}
            bounds = zip(groups.firsts[first:end].tolist(), groups.lasts[first:end].tolist(), strict=True)
            ranges = {file.file_name: ((low,), (high,)) for file, (low, high) in zip(here, bounds, strict=True)}
            with_vectors = {each.data_file_name for entry in index for each in entry.index_vectors}
            for pack in self._packs(place, here, pruner, with_vectors, ranges):
                stop = at + len(pack.files)
                order.append(groups.order[[known[id(file)] for file in pack.files]])
                packs.append((at, stop, place, pack.is_raw, vectors_of(pack.files, index), pack.span))
                at = stop
            first = end
        if not packs:
            return ()
        firsts, stops, places, raw, vectors, spans = zip(*packs, strict=True)
        is_convertible = not table.counts_rows
        blocks = FileBlocks(table.manifests.entries_of, parts, np.concatenate(order))
        return made_objects(
            DataSplit,
            len(packs),
            snapshot_id=repeat(snapshot.id),
            partition=[place.partition for place in places],
            bucket=[place.bucket for place in places],
            total_buckets=[place.total_buckets for place in places],
            files=made_objects(PlannedFiles, len(packs), _blocks=repeat(blocks), _first=firsts, _stop=stops),
            raw_convertible=[each and not of and is_convertible for each, of in zip(raw, vectors, strict=True)],
            needs_merge=[not each for each in raw],
            deletion_vectors=vectors,
            expiry_moment_ms=repeat(None),
            span=spans,
        )

    def _key_ranges(self, groups: Iterable[Sequence[ManifestEntry]]) -> Mapping[str, KeyRange]:
        """First and last keys of the files, by name, that share a bucket with others."""
        if not self._merges:
            return {}
        files = [entry.file for group in groups if len(group) > 1 for entry in group]
        firsts = self._table.keys_of([file.min_key for file in files])
        lasts = self._table.keys_of([file.max_key for file in files])
        return dict(zip((file.file_name for file in files), zip(firsts, lasts, strict=True), strict=True))

    @property
    def _has_rows_in_files(self) -> bool:
        """Whether a row of a file is a row of the table."""
        return not (self._table.counts_rows or self._table.options.data_evolution_enabled)

    @property
    def _merges(self) -> bool:
        """Whether rows of a key may be in several files; with deletion vectors only where one is of level 0."""
        return self._table.has_key and not (self._table.options.deletion_vectors_enabled and self.skips_level0)

    def _packs(
        self,
        place: PlannedBucket,
        files: Sequence[DataFileMeta],
        pruner: Pruner,
        with_vectors: Collection[str],
        key_ranges: Mapping[str, KeyRange],
    ) -> list[Pack]:
        table, limits = self._table, self._limits
        if self._merges and not (table.options.deletion_vectors_enabled and all(file.level for file in files)):
            return pack_sorted(
                files,
                key_range=lambda file: key_ranges.get(file.file_name, _NO_KEYS),
                sorted_file=table.sorted_file,
                keep=pruner.keep_by_value,
                limits=limits,
                cut=partial(self._cut, place),
            )
        if table.options.data_evolution_enabled:
            return pack_parts(files_by_rows(files), limits)
        ordered = sorted(files, key=lambda file: (file.min_sequence_number, file.file_name))
        kept = [file for file in ordered if pruner.keep_by_value(file)]
        # files without deletion vectors can be read directly by their format: they are not packed with others
        plain = pack_plain((file for file in kept if file.file_name not in with_vectors), limits)
        return [*plain, *pack_plain((file for file in kept if file.file_name in with_vectors), limits)]

    def _cut(self, place: PlannedBucket, files: Sequence[DataFileMeta]) -> list[RangeOfFiles]:
        if not self._cuts_keys:
            return []
        target_bytes = self._limits.target_bytes
        return section_ranges(self._table, place.partition, place.bucket, files, target_bytes=target_bytes)
