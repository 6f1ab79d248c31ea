"""Entries by their place in columns: enough to merge manifests, and to copy them byte for byte."""

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from typing import NamedTuple

import numpy as np

from filestore.manifest.entries import EntryKind
from filestore.manifest.entry_building import entries_at
from filestore.manifest.entry_columns import EntryColumns
from filestore.manifest.lists import ManifestFileMeta, manifest_meta
from filestore.types.data_types import DataType


class EntryRow(NamedTuple):
    """One entry of some columns."""

    kind: EntryKind
    identity: tuple[object, ...]  # equal where ``ManifestEntry.identity`` is
    columns: EntryColumns
    row: int


def entry_rows(columns: EntryColumns) -> list[EntryRow]:
    """All entries, in file order."""
    everything = np.arange(len(columns))
    names = columns.texts(columns.names, everything).to_pylist()
    partitions = map(columns.partitions.__getitem__, columns.partition_codes.tolist())
    rests: list[object] = [None] * len(columns)
    odd = np.flatnonzero(~columns.is_plain)
    for row, entry in zip(odd.tolist(), entries_at(columns, odd), strict=True):
        rests[row] = (entry.file.extra_files, entry.file.embedded_index, entry.file.external_path)
    identities = zip(names, partitions, columns.buckets.tolist(), columns.levels.tolist(), rests, strict=True)
    kinds = map(tuple(EntryKind).__getitem__, columns.kinds.tolist())
    return [*map(EntryRow._make, zip(kinds, identities, repeat(columns), everything.tolist(), strict=False))]


def encoded_rows(rows: Sequence[EntryRow]) -> bytes:
    """The entries as they are stored, one after the other."""
    return b"".join(columns.encoded(places) for columns, places in _by_columns(rows))


def describe_rows(
    file_name: str, size_bytes: int, rows: Sequence[EntryRow], partition_types: Sequence[DataType]
) -> ManifestFileMeta:
    """The metadata of a manifest with these entries (at least one) for a manifest list."""
    counts: dict[bytes, int] = {}
    bounds: list[tuple[int, int, int, int, int]] = []
    for columns, places in _by_columns(rows):
        per_partition = np.bincount(columns.partition_codes[places], minlength=len(columns.partitions)).tolist()
        for partition, count in zip(columns.partitions, per_partition, strict=True):
            if count:
                counts[partition] = counts.get(partition, 0) + count
        buckets, levels = columns.buckets[places], columns.levels[places]
        bounds.append(
            (
                int(columns.schema_ids[places].max()),
                int(buckets.min()),
                int(buckets.max()),
                int(levels.min()),
                int(levels.max()),
            )
        )
    schema_ids, low_buckets, high_buckets, low_levels, high_levels = zip(*bounds, strict=True)
    return manifest_meta(
        file_name,
        size_bytes,
        added_count=sum(row.kind is EntryKind.ADD for row in rows),
        entry_count=len(rows),
        partition_counts=counts,
        partition_types=partition_types,
        schema_id=max(schema_ids),
        buckets=(min(low_buckets), max(high_buckets)),
        levels=(min(low_levels), max(high_levels)),
    )


def _by_columns(rows: Sequence[EntryRow]) -> Iterable[tuple[EntryColumns, np.ndarray]]:
    """Rows of one columns object that follow each other, as it and their places."""
    for _, group in groupby(rows, lambda row: id(row.columns)):
        together = list(group)
        yield together[0].columns, np.array([row.row for row in together], np.int64)
