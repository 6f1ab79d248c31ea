"""From a snapshot and a filter to splits: the pieces that tasks read independently of each other.

Whoever reads a split of a filtered plan must apply the filter to its rows: pruning leaves out whole files whose keys cannot match,
also those that hold newer versions of rows that do not match.
Source: paimon-format.md sections 6.4 and 13; FL-178 to FL-182, FL-80.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Final

import pyarrow as pa

from filestore.buckets import bucket_ids
from filestore.datatypes import arrow_type
from filestore.manifests import DataFileMeta, ManifestEntry
from filestore.predicates import Predicate, and_all, columns_of, conjuncts, equal_values, may_match, parse_filter
from filestore.snapshot_files import Ranges, live_files
from filestore.snapshots import Snapshot
from filestore.split_packing import Pack, PackLimits, pack_plain, pack_sorted
from filestore.statistics import ColumnRange, key_ranges_of, ranges_of
from filestore.table_store import TableStore

Filter = Predicate | str | None

_MOST_BUCKET_KEYS: Final = 10_000  # combinations of equal values that are hashed to find buckets
_ALL_ROWS: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSplit:
    """Files of one bucket that are read together; it needs nothing but the table to be read."""

    snapshot_id: int
    partition: bytes  # BinaryRow with arity prefix
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    raw_convertible: bool  # the rows of the files are the rows of the table: no merging, no deletes, no deletion vectors
    needs_merge: bool
    deletion_vectors: tuple[Mapping[str, Any], ...] = ()  # entries of the index manifest

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def row_count(self) -> int:
        """Physical rows of all files."""
        return sum(file.row_count for file in self.files)

    def to_json(self) -> str:
        """Return one line of JSON; bytes are base64."""
        body = {
            "snapshotId": self.snapshot_id,
            "partition": base64.b64encode(self.partition).decode("ascii"),
            "bucket": self.bucket,
            "totalBuckets": self.total_buckets,
            "files": [file.to_json() for file in self.files],
            "rawConvertible": self.raw_convertible,
            "needsMerge": self.needs_merge,
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "DataSplit":
        """Return the split that ``to_json`` wrote."""
        body: dict[str, Any] = json.loads(text)
        return cls(
            snapshot_id=body["snapshotId"],
            partition=base64.b64decode(body["partition"]),
            bucket=body["bucket"],
            total_buckets=body["totalBuckets"],
            files=tuple(DataFileMeta.from_json(file) for file in body["files"]),
            raw_convertible=body["rawConvertible"],
            needs_merge=body["needsMerge"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A snapshot and the splits of its rows that a filter may want."""

    snapshot: Snapshot | None  # None: the table has no snapshot, and no rows
    splits: tuple[DataSplit, ...]
    filter: Predicate | None = None  # to be applied to the rows of every split


class TableScan:
    """Plans reads of one table, with the schema that the table was opened with."""

    def __init__(self, table: TableStore) -> None:
        """Nothing is read yet."""
        self._table = table

    def plan(
        self,
        *,
        snapshot: Snapshot | None = None,
        filter: Filter = None,  # noqa: A002  the word of users
        partitions: Collection[bytes] | None = None,
        buckets: Collection[int] | None = None,
    ) -> Plan:
        """Return the splits to read.

        Args:
            snapshot: to read; None is the newest.
            filter: leaves out what surely does not match.
            partitions: only these (BinaryRow bytes).
            buckets: only these.
        """
        table = self._table
        predicate = parse_filter(filter, table.schema) if isinstance(filter, str) else filter
        snapshot = snapshot or table.snapshots.latest()
        if snapshot is None:
            return Plan(snapshot=None, splits=(), filter=predicate)
        pruner = _Pruner(table, predicate)
        entries = live_files(
            table,
            snapshot,
            keep_ranges=pruner.keep_ranges,
            keep_partition=lambda each: (partitions is None or each in partitions) and pruner.keep_partition(each),
            keep_bucket=lambda bucket, total: (buckets is None or bucket in buckets) and pruner.keep_bucket(bucket, total),
            bucket_span=(min(buckets), max(buckets)) if buckets else None,
            min_level=1 if self._skips_level0 else 0,
        )
        splits = self._splits(snapshot, [entry for entry in entries if pruner.keep_by_key(entry.file)], pruner)
        return Plan(snapshot=snapshot, splits=tuple(splits), filter=predicate)

    @property
    def _skips_level0(self) -> bool:
        """Rows in level 0 of these tables have not met the older rows of their key yet (paimon-format.md 6.4.6)."""
        options = self._table.options
        return self._table.has_key and (options.deletion_vectors_enabled or options.merge_engine == "first-row")

    def _splits(self, snapshot: Snapshot, entries: Iterable[ManifestEntry], pruner: "_Pruner") -> list[DataSplit]:
        vectors = self._deletion_vectors(snapshot)
        by_bucket: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
        for entry in entries:
            by_bucket[entry.partition, entry.bucket].append(entry)
        splits = []
        for (partition, bucket), group in by_bucket.items():
            for pack in self._packs([entry.file for entry in group], pruner):
                splits.append(
                    DataSplit(
                        snapshot_id=snapshot.id,
                        partition=partition,
                        bucket=bucket,
                        total_buckets=group[0].total_buckets,
                        files=pack.files,
                        raw_convertible=pack.is_raw,
                        needs_merge=not pack.is_raw,
                    )
                )
        return splits

    def _packs(self, files: Sequence[DataFileMeta], pruner: "_Pruner") -> list[Pack]:
        table = self._table
        limits = PackLimits(
            target_bytes=table.options.value("source.split.target-size"),
            open_cost_bytes=table.options.value("source.split.open-file-cost"),
        )
        if table.has_key and not table.options.deletion_vectors_enabled:
            return pack_sorted(files, sorted_file=table.sorted_file, keep=pruner.keep_by_value, limits=limits)
        ordered = sorted(files, key=lambda file: (file.min_sequence_number, file.file_name))
        return pack_plain((file for file in ordered if pruner.keep_by_value(file)), limits)


class _Pruner:
    """Answers of one filter about partitions, buckets and files. True = may hold a wanted row."""

    def __init__(self, table: TableStore, predicate: Predicate | None) -> None:
        self._table = table
        self._predicate = predicate
        self._by_partition = self._part(table.schema.partition_keys)
        self._by_key = self._part(table.schema.trimmed_primary_keys)
        self._wanted_buckets: dict[int, frozenset[int] | None] = {}

    def keep_ranges(self, ranges: Ranges) -> bool:
        """Whether a manifest with these partition ranges may matter."""
        return self._by_partition is None or may_match(self._by_partition, ranges, _ALL_ROWS)

    def keep_partition(self, partition: bytes) -> bool:
        """Whether rows of a partition may match."""
        if self._by_partition is None:
            return True
        values = zip(self._table.schema.partition_keys, self._table.partition_values(partition), strict=True)
        ranges = {name: ColumnRange(min=value, max=value, null_count=int(value is None)) for name, value in values}
        return may_match(self._by_partition, ranges, 1)

    def keep_bucket(self, bucket: int, total_buckets: int) -> bool:
        """Whether rows of a bucket may match; partitions may have been rescaled to different numbers of buckets."""
        if total_buckets not in self._wanted_buckets:
            self._wanted_buckets[total_buckets] = self._buckets(total_buckets)
        wanted = self._wanted_buckets[total_buckets]
        return wanted is None or bucket in wanted

    def keep_by_key(self, file: DataFileMeta) -> bool:
        """Whether a file may hold a wanted key: all versions of a key match or none does."""
        if self._by_key is None:
            return True
        ranges = key_ranges_of(file, self._table.schema_of(file.schema_id))
        return may_match(self._by_key, self._in_words_of_now(file, ranges), file.row_count)

    def keep_by_value(self, file: DataFileMeta) -> bool:
        """Whether a file, taken alone, may hold a wanted row."""
        if self._predicate is None:
            return True
        ranges = ranges_of(file, self._table.schema_of(file.schema_id))
        return may_match(self._predicate, self._in_words_of_now(file, ranges), file.row_count)

    def _part(self, names: Sequence[str]) -> Predicate | None:
        if self._predicate is None:
            return None
        return and_all([each for each in conjuncts(self._predicate) if columns_of(each) and columns_of(each) <= {*names}])

    def _in_words_of_now(self, file: DataFileMeta, ranges: Ranges) -> Ranges:
        """Ranges by today's column names; a column whose type has changed since is unknown."""
        schema = self._table.schema
        if file.schema_id == schema.id:
            return ranges
        then = {field.id: field for field in self._table.schema_of(file.schema_id).fields}
        known: dict[str, ColumnRange] = {}
        for field in schema.fields:
            old = then.get(field.id)
            if old is None:  # added later: every row of the file has null
                known[field.name] = ColumnRange(min=None, max=None, null_count=file.row_count)
            elif old.name in ranges and arrow_type(old.type) == arrow_type(field.type):
                known[field.name] = ranges[old.name]
        return known

    def _buckets(self, total_buckets: int) -> frozenset[int] | None:
        """The buckets of all rows that can match; None = any."""
        schema = self._table.schema
        if self._predicate is None or total_buckets < 1 or not schema.bucket_keys:
            return None
        wanted = [equal_values(self._predicate, name) for name in schema.bucket_keys]
        if any(values is None for values in wanted):
            return None
        choices = [list(values) for values in wanted if values is not None]
        if prod(len(each) for each in choices) > _MOST_BUCKET_KEYS:
            return None
        types = [schema.field(name).type for name in schema.bucket_keys]
        rows = list(product(*choices))
        columns = [
            pa.array([row[index] for row in rows], type=arrow_type(each)) for index, each in enumerate(types)
        ]
        return frozenset(
            bucket_ids(columns, types, total_buckets, function=self._table.options.bucket_function).tolist()
        )
