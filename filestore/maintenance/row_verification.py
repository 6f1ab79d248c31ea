"""Reads every row of the live files, and compares what is read with what the manifests say of the files.

Reading verifies page checksums and values. Compared are row counts, retracts, sequence numbers, keys and their order,
and value ranges. A batch of one file is in memory at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.data_file import read_data_file
from filestore.format.file_format import format_of_file
from filestore.format.interface import USUAL_BATCH
from filestore.format.statistics import ColumnRange, RangeCollector, has_order
from filestore.maintenance.verification import Finding
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.file_ranges import ranges_of
from filestore.refs.live_references import on_branch, readable_references
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.schema.file_fields import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, file_fields
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError
from lsm.keys.keys import KeyTuple, comparable, key_at, key_order
from lsm.row_kind import KEY_PREFIX, RowKind


def verify_rows(store: TableStore, *, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    """Problems in the rows of a table's live files, on all branches; each file is read once.

    Missing files and unreadable metadata are left to ``verify_files``.

    Args:
        store: the table to verify.
        progress: called with the numbers of read and of all files.
    """
    files = _live_files(store)
    for done, (path, (there, subject, key, file)) in enumerate(files.items()):
        progress(done, len(files))
        if there.io.exists(path):
            yield from _file(there, subject, key, file, path)
    progress(len(files), len(files))


_Place = tuple[TableStore, str, BucketKey, DataFileMeta]


def _live_files(store: TableStore) -> dict[str, _Place]:
    """The files of all live references by path, each with the first reference to it."""
    found: dict[str, _Place] = {}
    for reference in readable_references(store)[0]:
        there = on_branch(store, reference.branch)
        try:
            snapshot = reference.snapshot or there.snapshots.find(reference.snapshot_id)
            live = LiveFiles(there, snapshot)
        except FluvialError:
            continue  # a finding of verify_files
        for key in live.all_buckets():
            for file in live.files(key):
                found.setdefault(there.file_path(key.partition, key.bucket, file), (there, str(reference), key, file))
    return found


@dataclass(slots=True)
class _Read:
    """The findings of one file."""

    row_count: int = 0
    retract_count: int = 0
    sequence_numbers: list[int] = field(default_factory=list)  # lowest and highest of each batch
    first_key: KeyTuple | None = None
    last_key: KeyTuple | None = None
    is_sorted: bool = True


def _file(store: TableStore, subject: str, key: BucketKey, file: DataFileMeta, path: str) -> Iterator[Finding]:
    try:
        problems = list(_problems(store, key, file, path))
    except FluvialError as error:
        yield Finding(
            check="rows", subject=subject, problem=str(error) if path in str(error) else f"{error} file={path}"
        )
        return
    for problem in problems:
        yield Finding(check="rows", subject=subject, problem=f"{problem} file={path}")


def _problems(store: TableStore, key: BucketKey, file: DataFileMeta, path: str) -> Iterator[str]:
    schema = store.columns_in(file)
    has_key = bool(schema.primary_keys)
    fields = [each for each in schema.fields if has_order(each.type)]
    ranges, read = RangeCollector(fields), _Read()
    for rows in read_data_file(
        store.io, path, file, file_schema=schema, read_schema=schema, columns=schema.column_names, with_system=has_key
    ):
        rows.validate(full=True)
        ranges.add(pa.Table.from_batches([rows]))
        _add(read, rows, schema.trimmed_primary_keys if has_key else ())
    if has_key:
        yield from _unreadable_keys(store, path, schema)
    if read.row_count != file.row_count:
        yield f"rows={read.row_count} manifest={file.row_count}"
    if read.row_count:
        yield from _wrong_ranges(ranges.ranges(), ranges_of(file, schema))
    if has_key and read.row_count:
        yield from _wrong_keys(store, key, file, read)


def _unreadable_keys(store: TableStore, path: str, schema: TableSchema) -> Iterator[str]:
    """Key columns repeat value columns, and are read by other engines only."""
    keys = [each for each in file_fields(schema, key_values=True, thin=False) if each.name.startswith(KEY_PREFIX)]
    try:
        with store.io.open_input(path) as source:
            for _ in format_of_file(path).reader(source, keys, limit=USUAL_BATCH, keep=None, keep_fields=()):
                pass
    except (pa.ArrowException, OSError) as error:
        yield f"key columns cannot be read: error={error}"


def _add(read: _Read, rows: pa.RecordBatch, keys: tuple[str, ...]) -> None:
    read.row_count += rows.num_rows
    if not keys:
        return
    kinds, numbers = rows.column(VALUE_KIND_COLUMN.name), rows.column(SEQUENCE_NUMBER_COLUMN.name)
    if kinds.null_count or numbers.null_count:
        raise CorruptDataError(f"rows without a kind or sequence number: rows={rows.num_rows}")
    if pc.any(pc.greater(kinds, max(RowKind))).as_py():
        raise CorruptDataError(f"a row has an unknown kind: kinds={pc.unique(kinds).to_pylist()}")
    read.retract_count += pc.sum(pc.bit_wise_and(kinds, pa.scalar(1, kinds.type))).as_py() or 0
    bounds = pc.min_max(numbers).as_py()
    read.sequence_numbers += [bounds["min"], bounds["max"]]
    columns = [rows.column(name) for name in keys]
    order, starts = key_order(columns, presorted=False)
    first = key_at(columns, 0)
    read.is_sorted &= bool((order == np.arange(rows.num_rows)).all() and starts.all())
    read.is_sorted &= read.last_key is None or read.last_key < first
    read.first_key = first if read.first_key is None else read.first_key
    read.last_key = key_at(columns, rows.num_rows - 1)


def _wrong_keys(store: TableStore, key: BucketKey, file: DataFileMeta, read: _Read) -> Iterator[str]:
    if read.retract_count != (file.delete_row_count or 0) and file.delete_row_count is not None:
        yield f"retracts={read.retract_count} manifest={file.delete_row_count}"
    numbers = min(read.sequence_numbers), max(read.sequence_numbers)
    if numbers != (file.min_sequence_number, file.max_sequence_number):
        yield f"sequence_numbers={numbers} manifest={(file.min_sequence_number, file.max_sequence_number)}"
    if key.bucket < 0:
        return  # postponed rows are in the order of their arrival
    if not read.is_sorted:
        yield "the rows are not in the order of their keys, or a key is there twice"
    known = store.key_of(file.min_key), store.key_of(file.max_key)
    if (read.first_key, read.last_key) != known:
        yield f"first_key={read.first_key} last_key={read.last_key} manifest={known}"


def _wrong_ranges(found: Mapping[str, ColumnRange], known: Mapping[str, ColumnRange]) -> Iterator[str]:
    """Columns with values outside the manifest's bounds, which may be wider, or with another number of nulls."""
    for name, said in known.items():
        actual = found.get(name)
        if actual is None:
            continue
        if said.null_count is not None and said.null_count != actual.null_count:
            yield f"column={name} nulls={actual.null_count} manifest={said.null_count}"
        if said.min is None or said.max is None or actual.min is None:
            continue
        if comparable(actual.min) < comparable(said.min) or comparable(said.max) < comparable(actual.max):  # type: ignore[operator]
            yield f"column={name} values=[{actual.min!r}, {actual.max!r}] manifest=[{said.min!r}, {said.max!r}]"
