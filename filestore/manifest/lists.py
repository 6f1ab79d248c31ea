"""The records of manifest lists and of index manifests.

Source: Paimon ManifestFileMeta, IndexManifestEntry.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from filestore.format.simple_stats import SimpleStats
from filestore.layout.file_names import checked_name
from filestore.manifest.entries import MANIFEST_VERSION, DataFileMeta, EntryKind, ManifestEntry, check_version
from filestore.manifest.record_files import UNKNOWN_FIELDS, UnknownField, values_of
from filestore.types.binary_row import decode_row, encode_row
from filestore.types.data_types import DataType

INDEX_VERSION: Final = 1
DELETION_VECTORS: Final = "DELETION_VECTORS"
"""Index type of deletion vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileMeta:
    """One manifest in a manifest list. Its statistics are used to skip it, so they must cover all its entries."""

    file_name: str
    size_bytes: int  # exact: with a smaller size, Java reads an empty table
    added_count: int
    deleted_count: int
    partition_stats: SimpleStats  # over the partitions of all entries, deletes included
    schema_id: int  # highest schema id of the entries
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    total_buckets: int | None = None  # of all its entries, by pypaimon 2.1
    extra_files: tuple[str, ...] | None = None  # beside the manifest, likewise: carried on, not read
    unknown: tuple[UnknownField, ...] = field(default=(), compare=False)  # by a later version of Paimon: carried on

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the manifest and of what is beside it."""
        return (self.file_name, *(self.extra_files or ()))

    def to_avro(self) -> dict[str, Any]:
        """The Avro record in a manifest list."""
        return {
            "_VERSION": MANIFEST_VERSION,
            "_FILE_NAME": self.file_name,
            "_FILE_SIZE": self.size_bytes,
            "_NUM_ADDED_FILES": self.added_count,
            "_NUM_DELETED_FILES": self.deleted_count,
            "_PARTITION_STATS": self.partition_stats.to_avro(),
            "_SCHEMA_ID": self.schema_id,
            "_MIN_BUCKET": self.min_bucket,
            "_MAX_BUCKET": self.max_bucket,
            "_MIN_LEVEL": self.min_level,
            "_MAX_LEVEL": self.max_level,
            "_MIN_ROW_ID": self.min_row_id,
            "_MAX_ROW_ID": self.max_row_id,
            "_TOTAL_BUCKETS": self.total_buckets,
            "_EXTRA_FILES": None if self.extra_files is None else list(self.extra_files),
            **values_of(self.unknown),
        }

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> "ManifestFileMeta":
        """Parse a record of any writer. Raises: KeyError or ValueError for an invalid one."""
        check_version(record, MANIFEST_VERSION)
        get = record.get
        extra = get("_EXTRA_FILES")
        return cls(
            file_name=checked_name(record["_FILE_NAME"]),
            size_bytes=record["_FILE_SIZE"],
            added_count=record["_NUM_ADDED_FILES"],
            deleted_count=record["_NUM_DELETED_FILES"],
            partition_stats=SimpleStats.from_avro(record["_PARTITION_STATS"]),
            schema_id=record["_SCHEMA_ID"],
            min_bucket=get("_MIN_BUCKET"),
            max_bucket=get("_MAX_BUCKET"),
            min_level=get("_MIN_LEVEL"),
            max_level=get("_MAX_LEVEL"),
            min_row_id=get("_MIN_ROW_ID"),
            max_row_id=get("_MAX_ROW_ID"),
            total_buckets=get("_TOTAL_BUCKETS"),
            extra_files=None if extra is None else tuple(map(checked_name, extra)),
            unknown=get(UNKNOWN_FIELDS, ()),
        )


def describe_manifest(
    file_name: str, size_bytes: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType]
) -> ManifestFileMeta:
    """The metadata of a manifest with these entries (at least one) for a manifest list."""
    buckets = [entry.bucket for entry in entries]
    levels = [entry.file.level for entry in entries]
    return manifest_meta(
        file_name,
        size_bytes,
        added_count=sum(entry.kind is EntryKind.ADD for entry in entries),
        entry_count=len(entries),
        partition_counts=Counter(entry.partition for entry in entries),
        partition_types=partition_types,
        schema_id=max(entry.file.schema_id for entry in entries),
        buckets=(min(buckets), max(buckets)),
        levels=(min(levels), max(levels)),
    )


def manifest_meta(
    file_name: str,
    size_bytes: int,
    *,
    added_count: int,
    entry_count: int,
    partition_counts: Mapping[bytes, int],
    partition_types: Sequence[DataType],
    schema_id: int,
    buckets: tuple[int, int],
    levels: tuple[int, int],
) -> ManifestFileMeta:
    """The metadata of a manifest, from what is known of all its entries; ranges are lowest and highest."""
    return ManifestFileMeta(
        file_name=file_name,
        size_bytes=size_bytes,
        added_count=added_count,
        deleted_count=entry_count - added_count,
        partition_stats=_partition_stats(partition_counts, partition_types),
        schema_id=schema_id,
        min_bucket=buckets[0],
        max_bucket=buckets[1],
        min_level=levels[0],
        max_level=levels[1],
    )


def _partition_stats(counts: Mapping[bytes, int], types: Sequence[DataType]) -> SimpleStats:
    decoded = [(decode_row(partition, types), count) for partition, count in counts.items()]
    low: list[Any] = []
    high: list[Any] = []
    nulls: list[int] = []
    for index in range(len(types)):
        values: list[Any] = [row[index] for row, _ in decoded if row[index] is not None]
        unordered = any(value != value for value in values)  # NaN: no bounds, so nothing is skipped
        low.append(min(values) if values and not unordered else None)
        high.append(max(values) if values and not unordered else None)
        nulls.append(sum(count for row, count in decoded if row[index] is None))
    return SimpleStats(min_values=encode_row(low, types), max_values=encode_row(high, types), null_counts=tuple(nulls))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorRange:
    """Location of one data file's deletion vector in an index file."""

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None
    unknown: tuple[UnknownField, ...] = field(default=(), compare=False)  # by a later version of Paimon: carried on


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifestEntry:
    """One index file of a bucket: deletion vectors, or the key hashes of a dynamic bucket."""

    kind: EntryKind
    partition: bytes
    bucket: int
    index_type: str  # 'DELETION_VECTORS', 'HASH', or the name of a global index
    file_name: str
    size_bytes: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: Mapping[str, Any] | None = None  # as it was read: preserved, not interpreted
    unknown: tuple[UnknownField, ...] = field(default=(), compare=False)  # by a later version of Paimon: carried on

    def to_avro(self) -> dict[str, Any]:
        """The Avro record in an index manifest."""
        ranges = self.deletion_vectors
        return {
            "_VERSION": INDEX_VERSION,
            "_KIND": int(self.kind),
            "_PARTITION": self.partition,
            "_BUCKET": self.bucket,
            "_INDEX_TYPE": self.index_type,
            "_FILE_NAME": self.file_name,
            "_FILE_SIZE": self.size_bytes,
            "_ROW_COUNT": self.row_count,
            "_DELETIONS_VECTORS_RANGES": None
            if ranges is None
            else [
                {
                    "f0": each.data_file_name,
                    "f1": each.offset,
                    "f2": each.length,
                    "_CARDINALITY": each.cardinality,
                    **values_of(each.unknown),
                }
                for each in ranges
            ],
            "_EXTERNAL_PATH": self.external_path,
            "_GLOBAL_INDEX": self.global_index,
            **values_of(self.unknown),
        }

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON, without a global index and what a later version of Paimon notes."""
        vectors = self.deletion_vectors
        known = None if vectors is None else tuple(replace(each, unknown=()) for each in vectors)
        record = replace(self, unknown=(), deletion_vectors=known).to_avro()
        return {**record, "_PARTITION": base64.b64encode(self.partition).decode("ascii"), "_GLOBAL_INDEX": None}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "IndexManifestEntry":
        """Parse the result of ``to_json``."""
        return cls.from_avro({**record, "_PARTITION": base64.b64decode(record["_PARTITION"])})

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> "IndexManifestEntry":
        """Parse a record of any writer. Raises: KeyError or ValueError for an invalid one."""
        check_version(record, INDEX_VERSION)
        ranges = record.get("_DELETIONS_VECTORS_RANGES")
        return cls(
            kind=EntryKind(record["_KIND"]),
            partition=record["_PARTITION"],
            bucket=record["_BUCKET"],
            index_type=record["_INDEX_TYPE"],
            file_name=checked_name(record["_FILE_NAME"]),
            size_bytes=record["_FILE_SIZE"],
            row_count=record["_ROW_COUNT"],
            deletion_vectors=None
            if ranges is None
            else tuple(
                DeletionVectorRange(
                    data_file_name=each["f0"],
                    offset=each["f1"],
                    length=each["f2"],
                    cardinality=each.get("_CARDINALITY"),
                    unknown=each.get(UNKNOWN_FIELDS, ()),
                )
                for each in ranges
                if each is not None
            ),
            external_path=record.get("_EXTERNAL_PATH"),
            global_index=record.get("_GLOBAL_INDEX"),
            unknown=record.get(UNKNOWN_FIELDS, ()),
        )

    @property
    def index_vectors(self) -> tuple[DeletionVectorRange, ...]:
        """Deletion vectors of the index file; empty for other kinds of indexes."""
        return self.deletion_vectors or () if self.index_type == DELETION_VECTORS else ()


def vectors_of(files: Iterable[DataFileMeta], indexes: Sequence[IndexManifestEntry]) -> tuple[IndexManifestEntry, ...]:
    """The index entries, reduced to the deletion vectors of these files."""
    if not indexes:
        return ()
    names = {file.file_name for file in files}
    return vectors_of_names(names.__contains__, indexes)


def vectors_of_names(
    keep: Callable[[str], bool], indexes: Iterable[IndexManifestEntry]
) -> tuple[IndexManifestEntry, ...]:
    """The index entries, reduced to the deletion vectors of kept data file names; without empty ones."""
    found = []
    for entry in indexes:
        vectors = tuple(each for each in entry.index_vectors if keep(each.data_file_name))
        if vectors:
            found.append(replace(entry, deletion_vectors=vectors, row_count=len(vectors)))
    return tuple(found)


def names_with_vectors(entries: Iterable[IndexManifestEntry]) -> frozenset[str]:
    """Names of the data files with a deletion vector."""
    return frozenset(each.data_file_name for entry in entries for each in entry.index_vectors)
