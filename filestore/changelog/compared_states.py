"""Two states of a bucket, read beside each other: what turns the rows of one into those of the other."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from filestore.datafile.schema_mapping import map_schema
from filestore.index.deletion_vectors import NO_POSITIONS, read_deletion_vectors
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.scan.bucket_states import BucketState
from filestore.schema.merge_engine import columns_to_merge
from filestore.table_store import TableStore
from filestore.types.data_types import DataField
from lsm.merge.row_diff import diff_runs
from lsm.row_kind import VALUE_KIND, RowKind, repeated_kind

Changes = Iterator[tuple[pa.RecordBatch, pa.Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSide:
    """One of two states that are compared: its own table, and its rows as the difference shows them. Picklable."""

    store: TableStore
    fields: Mapping[str, DataField]  # of the difference, by name, each with the ids of this side; {}: its own

    def rows(
        self, read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]], names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Rows in columns of the difference; ``read`` gives them in columns of the side."""
        if not self.fields:
            yield from read(names)
            return
        mapping = map_schema(self.store.schema.fields, [self.fields[name] for name in names])
        for rows in read([field.name for field in mapping.file_fields]):
            yield mapping.apply(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStates:
    """Both sides, and of a file that both have whether it gives equal rows there; None: each does. Picklable."""

    before: DiffSide
    after: DiffSide
    shows_same: Callable[[DataFileMeta], bool] | None = None

    @classmethod
    def alike(cls, store: TableStore) -> "ComparedStates":
        """Compare two states that are read with the same columns."""
        side = DiffSide(store=store, fields={})
        return cls(before=side, after=side)


def diff_by_key(
    compared: ComparedStates,
    partition: bytes,
    states: tuple[Sequence[BucketState], Sequence[BucketState]],
    columns: Sequence[str],
    *,
    keys: Sequence[str],
    ignored: Collection[str] = (),
) -> Changes:
    """What differs by key, ``keys`` among the columns; a change of the ignored ones is none.

    Memory is bounded by the merges of both sides.
    """

    def sides(of: DiffSide, states: Iterable[BucketState]) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        reads = (partial(_rows_by_key, of.store, partition, state) for state in states)
        return [partial(of.rows, read, columns) for read in reads]

    before, after = sides(compared.before, states[0]), sides(compared.after, states[1])
    for changes in diff_runs(before, after, key_names=keys, ignored=ignored):
        for batch in changes.to_batches():
            yield batch, batch.column(VALUE_KIND)


def _rows_by_key(
    store: TableStore, partition: bytes, state: BucketState, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket in key order, always including level 0."""
    files = _bucket_files(store, partition, state)
    wanted = {*columns_to_merge(store.schema, store.options, columns)}
    to_merge = [name for name in store.schema.column_names if name in wanted]
    for runs in files.sections():
        for rows in files.merged(runs, to_merge, drop_deletes=True):
            yield from rows.select(columns).to_batches()


def diff_by_file(
    compared: ComparedStates,
    partition: bytes,
    states: tuple[Sequence[BucketState], Sequence[BucketState]],
    columns: Sequence[str],
) -> Changes:
    """Removed rows, then added rows. A file on both sides that shows the same there differs in its deleted rows."""
    before, after = compared.before, compared.after
    old = {state.bucket: _bucket_files(before.store, partition, state) for state in states[0]}
    new = {state.bucket: _bucket_files(after.store, partition, state) for state in states[1]}
    for here, there, side, kind in ((old, new, before, RowKind.DELETE), (new, old, after, RowKind.INSERT)):
        for bucket, files in here.items():
            other = there.get(bucket)
            for file in files.files:
                is_same = compared.shows_same is None or compared.shows_same(file)
                left = _without_rows_of(files, other, file) if is_same else files
                read = partial(_read_columns, left, file)
                for rows in side.rows(read, columns):
                    yield rows, repeated_kind(kind, rows.num_rows)


def _read_columns(files: BucketFiles, file: DataFileMeta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return files.read(file, columns, with_system=False)


def _without_rows_of(files: BucketFiles, other: BucketFiles | None, file: DataFileMeta) -> BucketFiles:
    """The files with the rows of one file hidden that the other side also has."""
    if other is None or all(each.file_name != file.file_name for each in other.files):
        return files
    here, there = (side.deleted.get(file.file_name, NO_POSITIONS) for side in (files, other))
    return replace(files, chosen={file.file_name: np.setdiff1d(there, here, assume_unique=True)})


def _bucket_files(store: TableStore, partition: bytes, state: BucketState) -> BucketFiles:
    deleted = read_deletion_vectors(store, state.deletion_vectors)
    files = state.files if store.has_key else sorted(state.files, key=lambda file: file.min_sequence_number)
    return BucketFiles(table=store, partition=partition, bucket=state.bucket, files=files, deleted=deleted)
