"""Manifest entries for tests that never look into a file."""

from typing import Any

from hypothesis import strategies as st

from filestore.format.simple_stats import EMPTY_STATS, SimpleStats
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.types.binary_row import encode_row
from filestore.types.data_types import parse_data_type
from tests.support import hostile

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


@st.composite
def _stats(draw: st.DrawFn) -> SimpleStats:
    counts = draw(st.none() | st.lists(st.none() | st.integers(0, 2**40), max_size=3).map(tuple))
    return SimpleStats(min_values=draw(st.binary()), max_values=draw(st.binary()), null_counts=counts)


_NAMES = st.none() | st.lists(st.text(max_size=5), max_size=2).map(tuple)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_INTS = st.integers(-(2**31), 2**31 - 1)


def any_files(**changes: Any) -> st.SearchStrategy[DataFileMeta]:
    """Data files with values that no writer would write; ``changes`` are strategies of single fields."""
    parts: dict[str, Any] = {
        "file_name": hostile.NAMES,
        "size_bytes": _LONGS,
        "row_count": _LONGS,
        "min_key": st.binary(),
        "max_key": st.binary(),
        "key_stats": _stats(),
        "value_stats": _stats(),
        "min_sequence_number": _LONGS,
        "max_sequence_number": _LONGS,
        "schema_id": _LONGS,
        "level": _INTS,
        "extra_files": st.lists(hostile.NAMES, max_size=2).map(tuple),
        "creation_time_ms": st.none() | _LONGS,
        "delete_row_count": st.none() | _LONGS,
        "embedded_index": st.none() | st.binary(),
        "file_source": st.none() | _INTS,
        "value_stats_cols": _NAMES,
        "external_path": st.none() | hostile.NAMES.map("/elsewhere/{}".format),
        "first_row_id": st.none() | _LONGS,
        "write_cols": _NAMES,
    }
    return st.builds(DataFileMeta, **{**parts, **changes})


def any_entries(**changes: Any) -> st.SearchStrategy[ManifestEntry]:
    """Entries of such files; ``changes`` are strategies of single fields."""
    parts: dict[str, Any] = {
        "kind": st.sampled_from(EntryKind),
        "partition": st.just(bytes(12)),
        "bucket": _INTS,
        "total_buckets": _INTS,
        "file": any_files(),
    }
    return st.builds(ManifestEntry, **{**parts, **changes})
