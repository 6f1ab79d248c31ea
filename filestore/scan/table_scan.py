"""Scan planning: from a snapshot and a filter to splits, which tasks read independently.

Readers of a split of a filtered plan must apply the filter to its rows: pruning omits whole files without matching
keys, including files with newer versions of rows that do not match. Source: Paimon
KeyValueFileStoreScan, SnapshotReader.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from threading import Lock
from typing import Any, Final, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.entry_building import made_objects
from filestore.manifest.entry_columns import ByteSpans, EntryColumns
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.manifest.live_rows import ChosenEntries
from filestore.predicate.given_filter import predicate_of
from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import DataSplit
from filestore.scan.key_cuts import RangeOfFiles, section_ranges
from filestore.scan.key_span import KeySpan
from filestore.scan.pruning import Pruner
from filestore.scan.row_expiry import may_expire, moment_of
from filestore.scan.row_ranges import files_by_rows
from filestore.scan.snapshot_files import deletion_indexes, live_parts
from filestore.scan.split_packing import KeyRange, Pack, PackLimits, pack_parts, pack_plain, pack_sorted, packed_ranges
from filestore.schema.row_counts import seen_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.keys.words import BoolArray, IndexArray

# ---- The live files of a plan by bucket, on columns: their order, and which buckets hold nothing to merge


class PlannedBucket(NamedTuple):
    """The bucket of the files of one group."""

    partition: bytes
    bucket: int
    total_buckets: int  # of the first file


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroups:
    """Files by bucket: groups in the order of their first file, each in the order in which it is packed."""

    places: Sequence[PlannedBucket]
    ends: IndexArray  # (g,) behind the last file of each group, in ``order``
    order: IndexArray  # (n,) places of files, counted through all parts
    sizes: NDArray[np.int64]  # (n,) bytes, in this order
    firsts: IndexArray  # (n,) of files that are merged with others, first keys as numbers in key order
    lasts: IndexArray
    is_plain: BoolArray  # (g,) no key is in two files, and none holds deletes


def grouped_files(store: TableStore, parts: Sequence[ChosenEntries], *, merges: bool) -> FileGroups:
    """Group the files of a snapshot.

    Args:
        store: the table.
        parts: at least one file.
        merges: files of a bucket that share keys are merged, so they are in key order; else in that of their numbers.
    """
    places, groups = _groups(parts)
    counts = np.bincount(groups)
    firsts, lasts = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    if merges:
        shared = np.flatnonzero(counts[groups] > 1)
        firsts[shared], lasts[shared] = _ranks(store, parts, shared)
        order = np.lexsort((firsts, groups))  # files with the same first key overlap, in any order
        span = int(lasts.max()) + 1
        reach = np.maximum.accumulate(groups[order] * span + lasts[order])
        overlaps = np.append(False, groups[order][1:] * span + firsts[order][1:] <= reach[:-1])
        has_deletes = ~_numbers(parts, lambda each: each.has_no_deletes)[order]
        is_plain = np.bincount(groups[order], overlaps | has_deletes) == 0
    else:
        ordered = pa.table(
            {
                "group": groups,
                "number": _numbers(parts, lambda each: each.min_sequence_numbers),
                "name": _texts(parts, lambda each: each.names),
            }
        )
        keys = [(name, "ascending") for name in ordered.column_names]
        order = pc.sort_indices(ordered, sort_keys=keys).to_numpy().astype(np.int64)
        is_plain = np.ones(len(places), np.bool_)
    sizes = _numbers(parts, lambda each: each.sizes)[order]
    return FileGroups(
        places=places,
        ends=np.cumsum(counts),
        order=order,
        sizes=sizes,
        firsts=firsts[order],
        lasts=lasts[order],
        is_plain=is_plain,
    )


def _groups(parts: Sequence[ChosenEntries]) -> tuple[list[PlannedBucket], IndexArray]:
    """The buckets in the order of their first files, and the index of each file's."""
    known: dict[bytes, int] = {}
    codes = []
    for each in parts:
        own = np.array([known.setdefault(value, len(known)) for value in each.columns.partitions], np.int64)
        codes.append(own[each.columns.partition_codes[each.rows]])
    buckets = _numbers(parts, lambda each: each.buckets)
    keys = np.concatenate(codes) << 32 | buckets.astype(np.int64) & 0xFFFFFFFF
    _, firsts, groups = np.unique(keys, return_index=True, return_inverse=True)
    by_first = np.argsort(firsts)
    ranks = np.empty(len(firsts), np.int64)
    ranks[by_first] = np.arange(len(firsts))
    partitions = [*known]
    chosen = firsts[by_first]
    totals = _numbers(parts, lambda each: each.total_buckets)[chosen].tolist()
    named = zip((keys[chosen] >> 32).tolist(), buckets[chosen].tolist(), totals, strict=True)
    return [PlannedBucket(partitions[code], bucket, total) for code, bucket, total in named], ranks[groups]


def _ranks(store: TableStore, parts: Sequence[ChosenEntries], rows: IndexArray) -> tuple[IndexArray, IndexArray]:
    """The first and the last keys of some files as numbers in key order."""
    if not len(rows):
        return rows, rows
    firsts = _texts(parts, lambda each: each.first_keys).take(pa.array(rows))
    lasts = _texts(parts, lambda each: each.last_keys).take(pa.array(rows))
    ranks = store.key_ranks(pa.concat_arrays([firsts, lasts]))
    return ranks[: len(rows)], ranks[len(rows) :]


def _numbers(parts: Sequence[ChosenEntries], column: Callable[[EntryColumns], NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([column(each.columns)[each.rows] for each in parts])


def _texts(parts: Sequence[ChosenEntries], column: Callable[[EntryColumns], ByteSpans]) -> pa.LargeBinaryArray:
    return pa.concat_arrays([each.columns.texts(column(each.columns), each.rows) for each in parts])


# ---- Scan planning: from a snapshot and a filter to splits, which tasks read independently


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
        is_many = sum(map(len, parts)) > MANY_FILES
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
                        snapshot=snapshot.ref,
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
            snapshot=repeat(snapshot.ref),
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


# ---- The files of a plan as rows of manifests; some at a time become objects, when a reader looks at them
#
# A file as an object is 1 kB and 5 µs, so a plan of very many keeps the last blocks of them only.


MANY_FILES: Final = 4096  # a plan of more than these keeps rows
BLOCK_FILES: Final = 4096  # of a plan that become objects at a time
_BLOCKS: Final = 2  # that are kept

EntriesOf = Callable[[Iterable[ChosenEntries]], list[ManifestEntry]]
"""Entries as objects; see ``ManifestStore.entries_of``."""


class FileBlocks:
    """Live files in the order of a plan. May be used by several threads."""

    def __init__(self, entries_of: EntriesOf, parts: Sequence[ChosenEntries], order: IndexArray) -> None:
        """``order`` (n,) has the places of the files in the parts, counted through all of them."""
        self._entries_of = entries_of
        self._parts = parts
        self._ends = np.cumsum([len(each) for each in parts])
        self._order = order
        self._known: OrderedDict[int, list[DataFileMeta]] = OrderedDict()
        self._lock = Lock()

    def between(self, first: int, stop: int) -> list[DataFileMeta]:
        """The files from one place in the order up to another."""
        found: list[DataFileMeta] = []
        for number in range(first // BLOCK_FILES, -(-stop // BLOCK_FILES)):
            start = number * BLOCK_FILES
            found += self._block(number)[max(first - start, 0) : stop - start]
        return found

    def _block(self, number: int) -> list[DataFileMeta]:
        with self._lock:
            known = self._known.get(number)
            if known is None:
                known = self._known[number] = self._made(number * BLOCK_FILES)
                while len(self._known) > _BLOCKS:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(number)
            return known

    def _made(self, start: int) -> list[DataFileMeta]:
        places = self._order[start : start + BLOCK_FILES]
        in_order = np.argsort(places, kind="stable")
        places = places[in_order]
        numbers = np.searchsorted(self._ends, places, side="right")
        chosen = []
        for number in np.unique(numbers).tolist():
            part = self._parts[number]
            rows = places[numbers == number] - (self._ends[number] - len(part))
            chosen.append(ChosenEntries(part.columns, part.rows[rows]))
        made = np.empty(len(places), object)
        made[in_order] = [entry.file for entry in self._entries_of(chosen)]
        files: list[DataFileMeta] = made.tolist()
        return files


class PlannedFiles(Sequence[DataFileMeta]):
    """Some files that follow each other in ``FileBlocks``; equal to, and pickled as, a tuple of them."""

    __slots__ = ("_blocks", "_first", "_stop")

    def __init__(self, blocks: FileBlocks, first: int, stop: int) -> None:
        self._blocks, self._first, self._stop = blocks, first, stop

    def __len__(self) -> int:
        return self._stop - self._first

    @overload
    def __getitem__(self, index: int) -> DataFileMeta: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DataFileMeta, ...]: ...

    def __getitem__(self, index: int | slice) -> DataFileMeta | tuple[DataFileMeta, ...]:
        return self._files()[index]

    def __iter__(self) -> Iterator[DataFileMeta]:
        return iter(self._files())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PlannedFiles) and self._files() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._files())

    def __repr__(self) -> str:
        return repr(self._files())

    def __reduce__(self) -> tuple[type, tuple[list[DataFileMeta]]]:
        return tuple, (list(self._files()),)

    def _files(self) -> tuple[DataFileMeta, ...]:
        return tuple(self._blocks.between(self._first, self._stop))
