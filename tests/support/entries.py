"""Manifest entries for tests that never look into a file."""

from filestore.format.simple_stats import EMPTY_STATS
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.types.binary_row import encode_row
from filestore.types.data_types import parse_data_type

INT = parse_data_type("INT NOT NULL")


def key(value: int) -> bytes:
    """BinaryRow of an INT key."""
    return encode_row((value,), (INT,))


def file(
    name: str,
    *,
    level: int = 0,
    keys: tuple[int, int] = (0, 9),
    sequence: tuple[int, int] = (0, 9),
    size_bytes: int = 100,
    deletes: int = 0,
) -> DataFileMeta:
    """A data file."""
    return DataFileMeta(
        file_name=name,
        size_bytes=size_bytes,
        row_count=10,
        min_key=key(keys[0]),
        max_key=key(keys[1]),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        value_stats_cols=(),
        min_sequence_number=sequence[0],
        max_sequence_number=sequence[1],
        schema_id=0,
        level=level,
        delete_row_count=deletes,
        creation_time_ms=0,
    )


def add(data: DataFileMeta, *, bucket: int = 0, total_buckets: int = 1, partition: bytes = bytes(12)) -> ManifestEntry:
    """An entry that adds a file."""
    return ManifestEntry(kind=EntryKind.ADD, partition=partition, bucket=bucket, total_buckets=total_buckets, file=data)


def delete(
    data: DataFileMeta, *, bucket: int = 0, total_buckets: int = 1, partition: bytes = bytes(12)
) -> ManifestEntry:
    """An entry that takes a file away."""
    return ManifestEntry(
        kind=EntryKind.DELETE, partition=partition, bucket=bucket, total_buckets=total_buckets, file=data
    )
