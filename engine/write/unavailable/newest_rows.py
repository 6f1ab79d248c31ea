"""The newest rows of keys: of the newest snapshot, looked up in its files, and of a batch until now."""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.hashing.buckets import key_hashes
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import vectors_of
from filestore.read.row_lookup import RowLookup
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import BucketKey
from filestore.scan.snapshot_files import deletion_indexes, live_files_of_partitions
from filestore.schema.merge_engine import merge_function
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.write.table_write import partition_codes
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order, newest_last
from lsm.keys.words import IndexArray
from lsm.row_kind import RowKind

_KIND: Final = "_KIND"
_IS_NEWEST: Final = "_NEWEST"


class SnapshotRows:
    """Rows of the newest snapshot, which is chosen at the first look-up: a task has fenced its log by then."""

    def __init__(self, store: TableStore) -> None:
        """Nothing is read yet."""
        self._store = store
        self._files: dict[bytes, dict[BucketKey, list[DataFileMeta]]] = {}

    def find(self, keys: pa.Table) -> pa.Table:
        """The merged rows of some keys, in any order, with the table's columns of today.

        Args:
            keys: (k,) unique rows of the primary key's columns.
        """
        found = []
        if not keys.num_rows:
            return self._store.schema.arrow_schema.empty_table()
        names = list(self._store.schema.primary_keys)
        partitions, codes = partition_codes(keys.select(names).combine_chunks().to_batches()[0], self._store)
        for code, partition in enumerate(partitions):
            chosen = keys.filter(pa.array(codes == code)).select(list(self._store.schema.trimmed_primary_keys))
            order, _ = key_order([one_chunk(column) for column in chosen.columns], presorted=False)
            ordered = chosen.take(pa.array(order))
            found += [
                rows for place, files in self._of(partition).items() if (rows := self._rows(place, files, ordered))
            ]
        return pa.concat_tables(found) if found else self._store.schema.arrow_schema.empty_table()

    @cached_property
    def _snapshot(self) -> Snapshot | None:
        return self._store.snapshots.latest()

    def _of(self, partition: bytes) -> dict[BucketKey, list[DataFileMeta]]:
        if partition not in self._files:
            files: defaultdict[BucketKey, list[DataFileMeta]] = defaultdict(list)
            for entry in live_files_of_partitions(self._store, self._snapshot, [partition]):
                files[BucketKey(partition, entry.bucket)].append(entry.file)
            self._files[partition] = dict(files)
        return self._files[partition]

    def _rows(self, place: BucketKey, files: Sequence[DataFileMeta], keys: pa.Table) -> pa.Table | None:
        """The rows of a bucket; None: it has none of the keys."""
        table = self._store.with_columns_of(files)
        vectors = vectors_of(files, deletion_indexes(self._store, self._snapshot).get(place, ()))
        deleted = read_deletion_vectors(self._store, vectors)
        bucket = BucketFiles(table=table, partition=place.partition, bucket=place.bucket, files=files, deleted=deleted)
        found = RowLookup(bucket).find(keys)
        if found is None or not found.num_rows:
            return None
        options = table.options
        order, starts = key_order([one_chunk(found.column(name)) for name in keys.column_names], presorted=False)
        order = newest_last(found, order, starts, options.sequence_fields, descending=options.sequence_descending)
        merged = merge_function(table.schema, options, table.schema.column_names).merge(
            found, order, starts, drop_deletes=True
        )
        return merged.select([name for name in self._store.schema.column_names if name in merged.column_names])


class EarlierRows:
    """The rows of a batch until now, newest of each key; above a budget they lie in a file without a name."""

    def __init__(self, store: TableStore, budget_bytes: int) -> None:
        """Hold at most so many bytes of rows in memory, besides a hash of each key."""
        self._store = store
        self._budget_bytes = budget_bytes
        self._size_bytes = 0
        self._pieces: list[tuple[NDArray[np.int32], pa.Table]] = []  # rows by ascending hash of their keys

    def add(self, rows: pa.Table, *, former: pa.Table | None = None) -> None:
        """Add rows of unique keys, newer than those before, and those that deletes among them removed.

        Args:
            rows: with ``_KIND``, if deletes are among them.
            former: the same columns, of some of the keys.
        """
        if not rows.num_rows:
            return
        count = rows.num_rows
        if former is not None and former.num_rows:
            rows = pa.concat_tables([rows, former])
        rows = rows.append_column(_IS_NEWEST, pa.array(np.arange(rows.num_rows) < count))
        names = self._store.schema.primary_keys
        types = [self._store.schema.field(name).type for name in names]
        hashes = key_hashes([one_chunk(rows.column(name)) for name in names], types)
        order = np.argsort(hashes, kind="stable")
        ordered = rows.take(pa.array(order)).combine_chunks()
        self._size_bytes += ordered.nbytes
        if self._size_bytes > self._budget_bytes:
            self._size_bytes -= ordered.nbytes
            ordered = _on_disk(ordered)
        self._pieces.append((hashes[order], ordered))

    def find(self, keys: pa.Table, *, is_living: bool = False) -> pa.Table | None:
        """The newest row of some keys, as it was added; None: there are none.

        Args:
            keys: unique.
            is_living: the newest that is no delete.
        """
        names = list(self._store.schema.primary_keys)
        types = [self._store.schema.field(name).type for name in names]
        wanted = keys.select(names)
        found = []
        for hashes, rows in reversed(self._pieces):
            if not wanted.num_rows:
                break
            asked = key_hashes([one_chunk(column) for column in wanted.columns], types)
            starts, ends = np.searchsorted(hashes, asked, "left"), np.searchsorted(hashes, asked, "right")
            candidates = np.unique(np.concatenate([np.arange(*span) for span in zip(starts, ends, strict=True)]))
            chosen = rows.take(pa.array(candidates.astype(np.int64)))
            is_wanted = (
                pc.not_equal(chosen.column(_KIND), int(RowKind.DELETE)) if is_living else chosen.column(_IS_NEWEST)
            )
            chosen = chosen.filter(is_wanted).drop_columns([_IS_NEWEST])
            places = places_among(chosen.select(names), wanted)
            found.append(chosen.filter(pa.array(places >= 0)))
            wanted = wanted.take(pa.array(np.setdiff1d(np.arange(wanted.num_rows), places)))
        return pa.concat_tables(found) if found else None


def places_among(keys: pa.Table, among: pa.Table) -> IndexArray:
    """(n,) row of each key among unique keys; -1: it is not there.

    Args:
        keys: (n,) key columns.
        among: (k,) the same columns, unique.
    """
    if not keys.num_rows or not among.num_rows:
        return np.full(keys.num_rows, -1)
    both = pa.concat_tables([among, keys.cast(among.schema)])
    order, starts = key_order([one_chunk(column) for column in both.columns], presorted=False)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(starts) - 1
    rows = np.full(int(groups.max()) + 1, -1)
    rows[groups[: among.num_rows]] = np.arange(among.num_rows)
    return rows[groups[among.num_rows :]]


def _on_disk(rows: pa.Table) -> pa.Table:
    with tempfile.NamedTemporaryFile(prefix="fluvial-rows-", delete=False) as file:
        path = Path(file.name)
    try:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    finally:
        path.unlink()  # the mapping keeps the bytes until it is gone
