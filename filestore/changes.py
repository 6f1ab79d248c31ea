"""The changes of a snapshot, read from its files.

An APPEND of a table whose newest row of a key is its row, and of a table without a key, is read as it was written. All
else is the exact difference of two states: by key, what is new, what is gone, and what is another row.

Source: paimon-format.md sections 4.4 and 6.4; Paimon's ``streaming-read-overwrite`` for what an overwrite tells.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.manifests import DataFileMeta, EntryKind, ManifestEntry, live_entries
from filestore.merge_engines import columns_to_merge
from filestore.snapshot_files import delta_entries, live_files
from filestore.snapshots import CommitKind, Snapshot
from filestore.split_read import BucketFiles
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.levels import SortedRun
from lsm.merge import RunSource, merge_runs
from lsm.row_diff import AFTER, BEFORE, RowDiff
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, RowKind

_BucketKey = tuple[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """The changes of one bucket, which one task reads in order; picklable."""

    snapshot_id: int
    partition: bytes  # BinaryRow with arity prefix
    bucket: int
    removed: tuple[DataFileMeta, ...] = ()  # rows that went, of a table without a key
    added: tuple[DataFileMeta, ...] = ()  # rows that came, as they were written, oldest first
    before: tuple[DataFileMeta, ...] = ()  # with `after`: the two states whose difference this is
    after: tuple[DataFileMeta, ...] = ()

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """Every file that is read."""
        return (*self.removed, *self.added, *self.before, *self.after)

    @property
    def row_count(self) -> int:
        """Rows of all files: more than the changes of a difference."""
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def plan_changes(table: TableStore, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
    """What one commit changed, by partition and bucket, in the same order whenever it is asked.

    Raises:
        InvalidInputError: the table has deletion vectors: their changes are not in files of rows.
    """
    changelog = _changelog(table, snapshot)
    if changelog:
        return _as_written(snapshot, changelog)
    delta = delta_entries(table, snapshot)
    if not table.has_key:
        return _as_written(snapshot, delta)
    if snapshot.commit_kind is CommitKind.APPEND and rows_are_results(table):
        return _as_written(snapshot, [entry for entry in delta if entry.kind is EntryKind.ADD])
    touched = {(entry.partition, entry.bucket) for entry in delta}
    base = [
        entry
        for manifest in table.manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        for entry in table.manifests.read_manifest(manifest)
    ]
    before = [entry for entry in live_entries(base) if (entry.partition, entry.bucket) in touched]
    return _difference(table, snapshot, before, live_entries([*before, *delta]))


def plan_diff(table: TableStore, before: Snapshot | None, after: Snapshot) -> tuple[ChangeSplit, ...]:
    """The difference between any two snapshots, by partition and bucket; only buckets whose files differ.

    Args:
        table: whose.
        before: None is the empty table.
        after: need not be later.
    """
    old, new = live_files(table, before), live_files(table, after)
    if table.has_key:
        return _difference(table, after, old, new)
    kept = {entry.identity for entry in old} & {entry.identity for entry in new}
    gone = [_deleted(entry) for entry in old if entry.identity not in kept]
    return _as_written(after, [*gone, *(entry for entry in new if entry.identity not in kept)])


def read_changes(
    table: TableStore, split: ChangeSplit, *, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The changes of a split; rows of one key come in order.

    Args:
        table: opened with the schema that the rows shall have.
        split: of this table.
        columns: to return, in this order; None is all. Rows that differ in other columns only are no change.

    Yields:
        (n,) rows and int8 row kinds, n > 0.
    """
    names = list(table.schema.column_names if columns is None else columns)
    files = BucketFiles(table=table, partition=split.partition, bucket=split.bucket, files=split.files)
    for file in split.removed:
        for rows in files.read(file, names, with_system=False):
            yield rows, _kinds(len(rows), RowKind.DELETE)
    for file in split.added:
        yield from _rows_as_written(files, file, names)
    if split.before or split.after:
        yield from _differing_rows(table, split, names)


def rows_are_results(table: TableStore) -> bool:
    """Whether a row as written is the row that readers see: no older row of its key has a say in it."""
    options = table.options
    return options.merge_engine == "deduplicate" and not options.sequence_fields and not options.ignore_delete


def _changelog(table: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    if snapshot.changelog_manifest_list is None:
        return []
    lists = table.manifests.read_list(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
    return [entry for each in lists for entry in table.manifests.read_manifest(each)]


def _as_written(snapshot: Snapshot, entries: Iterable[ManifestEntry]) -> tuple[ChangeSplit, ...]:
    added: defaultdict[_BucketKey, list[DataFileMeta]] = defaultdict(list)
    removed: defaultdict[_BucketKey, list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        side = added if entry.kind is EntryKind.ADD else removed
        side[entry.partition, entry.bucket].append(entry.file)
    return tuple(
        ChangeSplit(
            snapshot_id=snapshot.id,
            partition=key[0],
            bucket=key[1],
            removed=_oldest_first(removed[key]),
            added=_oldest_first(added[key]),
        )
        for key in sorted({*added, *removed})
    )


def _difference(
    table: TableStore, snapshot: Snapshot, before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]
) -> tuple[ChangeSplit, ...]:
    if table.options.deletion_vectors_enabled:
        raise InvalidInputError(
            f"changes of a table with deletion vectors cannot be read from its files: table={table.name} "
            "deletion-vectors.enabled=true fix=read snapshots, or make a changelog with changelog-producer"
        )
    old, new = _by_bucket(before), _by_bucket(after)
    return tuple(
        ChangeSplit(snapshot_id=snapshot.id, partition=key[0], bucket=key[1], before=old[key], after=new[key])
        for key in sorted({*old, *new})
        if {file.file_name for file in old[key]} != {file.file_name for file in new[key]}
    )


def _by_bucket(entries: Iterable[ManifestEntry]) -> "defaultdict[_BucketKey, tuple[DataFileMeta, ...]]":
    found: defaultdict[_BucketKey, list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket].append(entry.file)
    return defaultdict(tuple, {key: _oldest_first(files) for key, files in found.items()})


def _oldest_first(files: Iterable[DataFileMeta]) -> tuple[DataFileMeta, ...]:
    return tuple(sorted(files, key=lambda file: (file.min_sequence_number, file.file_name)))


def _deleted(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry(
        kind=EntryKind.DELETE,
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        file=entry.file,
    )


def _rows_as_written(
    files: BucketFiles, file: DataFileMeta, names: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    if not files.table.has_key:
        for rows in files.read(file, names, with_system=False):
            yield rows, _kinds(len(rows), RowKind.INSERT)
        return
    is_changelog = file.file_name.startswith(files.table.options.changelog_file_prefix)
    for batch in files.read(file, names, with_system=True):
        rows, kinds = batch.select(names), batch.column(VALUE_KIND)
        if not is_changelog:
            kept = pc.not_equal(kinds, pa.scalar(int(RowKind.UPDATE_BEFORE), pa.int8()))
            rows, kinds = rows.filter(kept), kinds.filter(kept)
        if len(rows):
            yield rows, kinds


def _differing_rows(
    table: TableStore, split: ChangeSplit, names: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Both sides as streams in key order, merged as two sorted runs: memory does not grow with the bucket."""
    keys = list(table.schema.trimmed_primary_keys)
    columns = [name for name in table.schema.column_names if name in {*names, *keys}]
    sides = {
        BEFORE: BucketFiles(table=table, partition=split.partition, bucket=split.bucket, files=split.before),
        AFTER: BucketFiles(table=table, partition=split.partition, bucket=split.bucket, files=split.after),
    }
    sections = {side: files.sections() for side, files in sides.items()}
    # a section is alone in its range of keys, so one that is on both sides holds the same rows
    shared = {_names(each) for each in sections[BEFORE]} & {_names(each) for each in sections[AFTER]}
    runs = [
        RunSource(
            min_key=None,
            open=partial(
                _side, sides[side], [each for each in sections[side] if _names(each) not in shared], columns, side
            ),
        )
        for side in (BEFORE, AFTER)
    ]
    for found in merge_runs(runs, key_names=keys, merge=RowDiff(columns=tuple(names)), drop_deletes=False):
        for batch in found.combine_chunks().to_batches():
            yield batch.select(list(names)), batch.column(VALUE_KIND)


def _side(
    files: BucketFiles, sections: Sequence[Sequence[SortedRun]], columns: Sequence[str], side: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one state in key order, with the side in place of the sequence number."""
    table = files.table
    to_merge = columns_to_merge(table.schema, table.options, {*columns})
    needed = [name for name in table.schema.column_names if name in {*to_merge}]
    for runs in sections:
        for merged in files.merged(runs, needed, drop_deletes=True):
            for batch in merged.to_batches():
                numbers = pa.array(np.full(len(batch), side, np.int64))
                index = batch.schema.get_field_index(SEQUENCE_NUMBER)
                yield batch.set_column(index, batch.schema.field(index), numbers).select(
                    [*columns, SEQUENCE_NUMBER, VALUE_KIND]
                )


def _names(section: Sequence[SortedRun]) -> frozenset[str]:
    return frozenset(file.file_name for run in section for file in run.files)


def _kinds(count: int, kind: RowKind) -> pa.Array:
    return pa.array(np.full(count, kind, np.int8))
