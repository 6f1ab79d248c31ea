"""Reading a split: the rows of its files as one stream of batches, merged by key where files overlap.

Memory is bounded by a batch of each open file and a section of the merge. Of ``sort-spill-buffer-size`` a quarter is
for a section, the rest for the batches of all open files together; at least one row of each is in memory.
Source: Paimon MergeFileSplitRead, RawFileSplitRead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from filestore.datafile.data_file import open_data_file, read_data_file
from filestore.format.interface import USUAL_BATCH, BatchLimit
from filestore.format.statistics import ColumnRange
from filestore.index.deletion_vectors import Positions, read_deletion_vectors
from filestore.index.file_index import index_file_of, stored_may_match, uses_indexes
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.given_filter import predicate_of
from filestore.predicate.predicate import Predicate, columns_of, on_columns_only
from filestore.scan.data_split import DataSplit
from filestore.scan.key_span import KeyBounds
from filestore.scan.row_expiry import RowExpiry, not_expired
from filestore.scan.table_scan import Filter
from filestore.schema.file_fields import TRACKING_COLUMNS
from filestore.schema.row_counts import repeated, with_count
from filestore.snapshot.lost_files import naming_missing_files
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.data_types import DataType
from filestore.types.nested_arrays import with_slots
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.levels import SortedRun, sections
from lsm.row_kind import SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD

if TYPE_CHECKING:
    from filestore.scan.row_ranges import RowFiles
    from lsm.merge.change_recorder import ChangeRecorder
    from lsm.merge.merge_function import MergeFunction

# A merge holds a batch of every run: so batches are smaller, and smaller still with many runs. Below these
# sizes decoding costs more than the memory is worth (measured: 16k rows are 8 % slower than 32k at 10 runs).
_MERGE_BATCH_ROWS: Final = 32_768
_ROWS_AHEAD: Final = 655_360
_MIN_BATCH_ROWS: Final = 8_192
_RUN_ROWS: Final = 4096  # of each run in a section: with many runs, cutting costs more than merging


class MarkedMerge(Protocol):
    """A merge that knows more of a row than it has: which file it is of."""

    @property
    def merge(self) -> "MergeFunction":
        """What folds the marked rows instead of the table's merge function."""

    def marked(self, rows: pa.RecordBatch, file: DataFileMeta) -> pa.RecordBatch:
        """The rows of a file with what the merge has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The settings of a merge that records its changes; see ``MarkedMerge``."""

    merge: "ChangeRecorder"  # wraps the table's merge function
    known_level: int  # rows of this level and deeper ones are old

    def marked(self, rows: pa.RecordBatch, file: DataFileMeta) -> pa.RecordBatch:
        """The rows of a file, and whether they are old."""
        from lsm.merge.change_recorder import with_is_old

        return with_is_old(rows, is_old=file.level >= self.known_level)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """Files of one bucket, read as sorted runs."""

    table: TableStore
    partition: bytes
    bucket: int
    files: Sequence[DataFileMeta]
    deleted: Mapping[str, Positions] = field(default_factory=dict)  # deleted positions by file name
    chosen: Mapping[str, Positions] = field(default_factory=dict)  # the only positions to read, by file name
    bounds: KeyBounds | None = None  # the only keys to read

    def read(
        self,
        file: DataFileMeta,
        columns: Sequence[str],
        *,
        with_system: bool,
        filter: Predicate | None = None,
        limit: BatchLimit = USUAL_BATCH,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file with the table's schema, in file order, without deleted rows."""
        from filestore.datafile.row_positions import rows_at, rows_not_at

        table = self.table
        check_whole_rows(table)
        chosen = self.chosen.get(file.file_name)
        if chosen is not None:
            for batch in rows_at(
                table, self.partition, self.bucket, file, chosen, columns, with_system=with_system, limit=limit
            ):
                yield _matching(batch, filter)
            return
        positions = self.deleted.get(file.file_name)
        if not may_hold_rows(table, self.partition, self.bucket, file, filter):
            return
        if self.bounds is not None:
            yield from self._inside(self.bounds, file, columns, with_system=with_system, filter=filter, limit=limit)
            return
        if positions is not None:
            place = (table, self.partition, self.bucket, file)
            # positions count also rows that the filter drops
            for batch in rows_not_at(*place, positions, columns, with_system=with_system, span=filter, limit=limit):
                yield _matching(batch, filter)
            return
        yield from read_data_file(
            table.io,
            table.file_path(self.partition, self.bucket, file),
            file,
            file_schema=table.schema_of(file.schema_id),
            read_schema=table.schema,
            columns=columns,
            with_system=with_system,
            filter=filter,
            limit=limit,
            verify=table.options.read_verify_checksums,
        )

    def _inside(
        self,
        bounds: KeyBounds,
        file: DataFileMeta,
        columns: Sequence[str],
        *,
        with_system: bool,
        filter: Predicate | None,
        limit: BatchLimit,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file within bounds; ``columns`` have the key."""
        from filestore.datafile.row_positions import rows_not_at

        table, positions = self.table, self.deleted.get(file.file_name)
        if positions is None:
            read = open_data_file(
                table.io,
                table.file_path(self.partition, self.bucket, file),
                file,
                file_schema=table.schema_of(file.schema_id),
                read_schema=table.schema,
                columns=columns,
                with_system=with_system,
                keep=partial(_may_be_inside, bounds, filter),
                tested={*table.schema.trimmed_primary_keys, *_columns_of(filter)},
                limit=limit,
                verify=table.options.read_verify_checksums,
            )
            rows: Iterator[pa.RecordBatch] = (each.rows for each in read)
        else:
            rows = rows_not_at(
                table,
                self.partition,
                self.bucket,
                file,
                positions,
                columns,
                with_system=with_system,
                span=filter,
                may_hold=bounds.may_hold,
                limit=limit,
            )
        for batch in rows:
            found = bounds.inside(batch)
            if found.num_rows:
                yield _matching(found, filter)
            if bounds.ends_in(batch):
                return

    def _row_count(self, file: DataFileMeta) -> int:
        chosen = self.chosen.get(file.file_name)
        return file.row_count if chosen is None else len(chosen)

    def sections(self) -> list[list[SortedRun]]:
        """The runs to merge, section by section in key order, oldest run first."""
        return sections(self.table.sorted_file(file) for file in self.files)

    def merged(
        self,
        runs: Sequence[SortedRun],
        columns: Sequence[str],
        *,
        drop_deletes: bool,
        filter: Predicate | None = None,
        instead: MarkedMerge | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of one section in key order, every key once, with the two system columns.

        Args:
            runs: runs of this bucket.
            columns: value columns, including those of ``columns_to_merge``.
            drop_deletes: drop deleted keys.
            filter: predicate on key columns only.
            instead: of the table's merge function.
        """
        from filestore.schema.merge_engine import merge_function
        from lsm.merge.merge import SECTION_ROWS, RunSource, merge_runs
        from lsm.merge.merge_function import WholeRows, with_level

        table = self.table
        by_name = {file.file_name: file for file in self.files}
        section_bytes = max(table.options.sort_spill_buffer_size_bytes // 4, 1)
        row_counts = {id(run): sum(self._row_count(by_name[each.file_name]) for each in run.files) for run in runs}
        total = max(sum(row_counts.values()), 1)
        merge = instead.merge if instead else merge_function(table.schema, table.options, columns)
        counts_levels = levels_count(table, (each.level for run in runs for each in run.files))

        def rows_of(run: SortedRun) -> Iterator[pa.RecordBatch]:
            # Half of what is read ahead is for all runs alike, half by their rows: a section ends where a batch does.
            part = (1 / len(runs) + row_counts[id(run)] / total) / 2
            limit = BatchLimit(
                rows=max(_MIN_BATCH_ROWS, min(_MERGE_BATCH_ROWS, int(_ROWS_AHEAD * part))),
                size_bytes=max(int(3 * section_bytes * part), 1),
                spills=len(runs) > 1,
            )
            for each in run.files:
                file = by_name[each.file_name]
                batches = self.read(file, columns, with_system=True, filter=filter, limit=limit)
                for batch in batches:
                    marked = batch if instead is None else instead.marked(batch, file)
                    yield with_level(marked, file.level) if counts_levels else marked

        return merge_runs(
            [RunSource(min_key=run.min_key, open=partial(rows_of, run)) for run in runs],
            key_names=table.schema.trimmed_primary_keys,
            merge=WholeRows(inner=merge) if counts_levels else merge,
            sequence_names=table.options.sequence_fields,
            sequence_descending=table.options.sequence_descending,
            drop_deletes=drop_deletes,
            section_rows=max(SECTION_ROWS, _RUN_ROWS * len(runs)),
            section_bytes=section_bytes,
        )


def _may_be_inside(
    bounds: KeyBounds, filter: Predicate | None, ranges: Mapping[str, ColumnRange], places: range
) -> bool:
    from filestore.predicate.evaluation import may_match

    return bounds.may_hold(ranges) and (filter is None or may_match(filter, ranges, len(places)))


def levels_count(table: TableStore, levels: Iterable[int]) -> bool:
    """Whether a merge of files of these levels has to know them: rows of a lower one have those of higher ones in."""
    from filestore.schema.merge_engine import has_whole_rows

    return len({each for each in levels if each > 0}) > 1 and has_whole_rows(table.options)


def check_whole_rows(store: TableStore) -> None:
    """Refuse to read files one by one whose rows are spread over several. Raises: InvalidInputError."""
    if store.options.data_evolution_enabled:
        raise InvalidInputError(
            f"files of this table hold parts of rows, and only its states are read: table={store.name} "
            "data-evolution.enabled=true fix='read a snapshot'"
        )


def may_hold_rows(
    store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, filter: Predicate | None
) -> bool:
    """False only if a file's separate index proves that no row of the file passes a filter."""
    if filter is None or index_file_of(file) is None or not uses_indexes(filter, store.options):
        return True
    path, then = store.file_path(partition, bucket, file), store.schema_of(file.schema_id)
    return stored_may_match(store.io, path, file, filter, file_schema=then, read_schema=store.schema)


def read_split(
    table: TableView,
    split: DataSplit,
    *,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
    with_system: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a split as users see them.

    Args:
        table: opened with the schema that the rows have.
        split: of a plan of this table; of a filtered plan only together with that filter.
        columns: to return, in this order; None is all.
        filter: rows for which it is not true are left out.
        with_system: also return ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``; only of a table with a key.

    Yields:
        Non-empty batches of these columns; in key order within a section, else in file order.
    """
    predicate = predicate_of(filter, table.schema)
    names = list(table.schema.column_names if columns is None else columns)
    if table.row_counts is None:
        yield from read_stored(table.store, split, columns=names, filter=predicate, with_system=with_system)
        return
    found = repeated(read_stored(table.store, split, columns=with_count(names), filter=predicate))
    yield from found if names else (batch.select([]) for batch in found)


def read_stored(
    store: TableStore,
    split: DataSplit,
    *,
    columns: Sequence[str],
    filter: Predicate | None = None,
    with_system: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a split as they are stored; otherwise as ``read_split``."""
    names, predicate = columns, filter
    types = [(field.name, field.type) for field in store.schema.fields_of(names)]
    schema = store.schema.arrow_schema_of(names)
    system = [SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD] if with_system else []
    for each in system:
        schema = schema.append(each)
    if split.needs_merge:
        rows = _merged_rows(store, split, names, predicate)
    else:
        rows = _raw_rows(store, split, names, predicate, with_system=with_system)
    with naming_missing_files(store.snapshots, store.name, split.snapshot):
        for batch in rows:
            if batch.num_rows and not len(schema):
                yield batch.select([])  # rows without columns are still counted
            elif batch.num_rows:
                found = [_with_slots(batch.column(name), data_type, name) for name, data_type in types]
                found += [batch.column(field.name) for field in system]
                yield pa.RecordBatch.from_arrays(found, schema=schema)


def _with_slots(column: pa.Array, data_type: DataType, name: str) -> pa.Array:
    """Filled slots below nulls; what another program wrote against its own schema is shown as it is."""
    try:
        return with_slots(column, data_type, name)
    except InvalidInputError:
        return column


def _raw_rows(
    store: TableStore, split: DataSplit, names: Sequence[str], predicate: Predicate | None, *, with_system: bool
) -> Iterator[pa.RecordBatch]:
    from filestore.scan.row_ranges import files_by_rows

    files = _files_of(store, split)
    columns = _in_order(store, {*names, *_columns_of(predicate), *time_field(store, split)})
    if store.options.data_evolution_enabled:
        for parts in files_by_rows(split.files):
            for batch in _rows_of_parts(store, split, parts, columns):
                yield _matching(not_expired(store, batch, split.expiry_moment_ms), predicate)
        return
    for file in split.files:
        for batch in files.read(file, columns, with_system=with_system, filter=predicate):
            yield not_expired(store, batch, split.expiry_moment_ms)


def _rows_of_parts(
    store: TableStore, split: DataSplit, parts: "RowFiles", columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows whose columns are in several files: each column from the newest file that has it."""
    ids = {name: store.schema.field(name).id for name in columns}
    tracking = {field.id for field in TRACKING_COLUMNS}
    wanted: list[list[str]] = []
    left = list(columns)
    for schema in map(store.columns_in, parts):
        known = {field.id for field in schema.fields} | tracking
        wanted.append([name for name in left if ids[name] in known])
        left = [name for name in left if ids[name] not in known]
    wanted[0] += left  # that no file has: they are newer
    sources = [(file, names) for file, names in zip(parts, wanted, strict=True) if names] or [(parts[0], [])]
    streams = [
        read_data_file(
            store.io,
            store.file_path(split.partition, split.bucket, file),
            file,
            file_schema=store.columns_in(file),
            read_schema=store.schema,
            columns=names,
            with_system=False,
            verify=store.options.read_verify_checksums,
        )
        for file, names in sources
    ]
    schema = store.schema.arrow_schema_of(columns)
    for batches in _aligned(streams):
        found = {name: batch.column(name) for batch in batches for name in batch.schema.names}
        if found:
            arrays = [found[name] for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield batches[0]


def _aligned(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of the same rows from each stream. Raises: CorruptDataError: one has fewer rows."""
    left: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        full = [next(stream, None) if batch is None else batch for batch, stream in zip(left, streams, strict=True)]
        there = [batch for batch in full if batch is not None]
        if not there:
            return
        if len(there) < len(full):
            raise CorruptDataError("files with the same row ids have different numbers of rows")
        count = min(batch.num_rows for batch in there)
        yield [batch.slice(0, count) for batch in there]
        left = [batch.slice(count) if batch.num_rows > count else None for batch in there]


def _files_of(store: TableStore, split: DataSplit) -> BucketFiles:
    deleted = read_deletion_vectors(store, split.deletion_vectors)
    bounds = None if split.span is None else KeyBounds(store, split.span)
    return BucketFiles(
        table=store, partition=split.partition, bucket=split.bucket, files=split.files, deleted=deleted, bounds=bounds
    )


def _merged_rows(
    store: TableStore, split: DataSplit, names: Sequence[str], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    from filestore.schema.merge_engine import columns_to_merge

    files = _files_of(store, split)
    wanted = {*names, *_columns_of(predicate), *time_field(store, split)}
    columns = _in_order(store, columns_to_merge(store.schema, store.options, wanted))
    by_key = on_columns_only(predicate, store.schema.trimmed_primary_keys)
    for runs in files.sections():
        for merged in files.merged(runs, columns, drop_deletes=True, filter=by_key):
            for batch in merged.to_batches():
                yield _matching(not_expired(store, batch, split.expiry_moment_ms), predicate)


def time_field(store: TableStore, split: DataSplit) -> tuple[str, ...]:
    """The time column of row-level expiry, if rows of the split may have expired."""
    expiry = RowExpiry.of(store.schema, store.options)
    return () if expiry is None or split.expiry_moment_ms is None else (expiry.time_field,)


def _matching(batch: pa.RecordBatch, predicate: Predicate | None) -> pa.RecordBatch:
    from filestore.predicate.evaluation import filter_mask

    return batch if predicate is None else batch.filter(filter_mask(predicate, batch))


def _columns_of(predicate: Predicate | None) -> frozenset[str]:
    return frozenset() if predicate is None else columns_of(predicate)


def _in_order(store: TableStore, names: Iterable[str]) -> list[str]:
    wanted = {*names}
    return [name for name in store.schema.column_names if name in wanted]
