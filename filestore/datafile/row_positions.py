"""Positions of rows in data files: the positions of keys, and the rows at given positions.

Positions are those that the reader of the file gives, see ``FileRows``. Row groups without a wanted row are not read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.datafile.data_file import open_data_file
from filestore.format.interface import USUAL_BATCH, BatchLimit, FileRows
from filestore.format.statistics import ColumnRange
from filestore.index.deletion_vectors import NO_POSITIONS, Positions
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.evaluation import may_match
from filestore.predicate.predicate import Compare, CompareOp, In, Predicate, and_all
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError
from lsm.keys.key_groups import one_chunk
from lsm.keys.key_lookup import sorted_rows_with_keys
from lsm.keys.keys import internal_value

RangeTest = Callable[[Mapping[str, ColumnRange]], bool]

_NAMED_KEYS: Final = 256  # up to this many keys are tested one by one, more as a range from first to last


def positions_of_keys(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    keys: pa.Table,
    *,
    deleted: Positions = NO_POSITIONS,
) -> tuple[Positions, pa.Table]:
    """Positions of the rows with some keys in a file, and their keys, without deleted rows.

    Args:
        store: the table of the file.
        partition: BinaryRow bytes.
        bucket: bucket number.
        file: data file of a table with a primary key.
        keys: (k,) key columns in key order.
        deleted: deleted positions of the file.
    """
    found: list[Positions] = []
    found_keys: list[pa.RecordBatch] = []
    names = list(store.schema.trimmed_primary_keys)
    for read in placed_rows(store, partition, bucket, file, names, with_system=False, span=span_of(keys)):
        hits = sorted_rows_with_keys(read.rows, keys)
        hits = np.setdiff1d(hits, read.found(deleted), assume_unique=True)
        if len(hits):
            found.append(read.first + hits)
            found_keys.append(read.rows.take(pa.array(hits)))
    if not found:
        return NO_POSITIONS, keys.slice(0, 0)
    return np.concatenate(found), pa.Table.from_batches(found_keys).combine_chunks()


def span_of(keys: pa.Table) -> Predicate | None:
    """A predicate on the leading key column to skip row groups without any of the sorted keys."""
    name, column = keys.column_names[0], one_chunk(keys.column(0))
    if len(keys) <= _NAMED_KEYS:
        return In(column=name, values=tuple(dict.fromkeys(internal_value(value) for value in column)))
    low, high = internal_value(column[0]), internal_value(column[-1])
    return and_all(
        [Compare(column=name, op=CompareOp.GE, value=low), Compare(column=name, op=CompareOp.LE, value=high)]
    )


def rows_at(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    positions: Positions,
    columns: Sequence[str],
    *,
    with_system: bool,
    limit: BatchLimit = USUAL_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The rows at ascending positions of a file, with the table's schema, as non-empty batches.

    Raises: CorruptDataError: the file has no such row.
    """
    if not len(positions):
        return
    count = 0
    for read in placed_rows(
        store, partition, bucket, file, columns, with_system=with_system, wanted=positions, limit=limit
    ):
        found = read.found(positions)
        count += len(found)
        if len(found):
            yield read.rows.take(pa.array(found))
    if count != len(positions):
        raise CorruptDataError(
            f"rows are not in their file: table={store.name} file={file.file_name} rows={len(positions)} found={count}"
        )


def rows_not_at(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    positions: Positions,
    columns: Sequence[str],
    *,
    with_system: bool,
    span: Predicate | None = None,
    may_hold: RangeTest | None = None,
    limit: BatchLimit = USUAL_BATCH,
) -> Iterator[pa.RecordBatch]:
    """All rows of a file except at ascending positions; those for which ``span`` is not true may be missing too.

    So may row groups of which ``may_hold`` says that they are not wanted, by ranges of the columns.
    """
    for read in placed_rows(
        store, partition, bucket, file, columns, with_system=with_system, span=span, may_hold=may_hold, limit=limit
    ):
        dropped = read.found(positions)
        if not len(dropped):
            yield read.rows
            continue
        kept = np.ones(read.rows.num_rows, np.bool_)
        kept[dropped] = False
        yield read.rows.filter(pa.array(kept))


def placed_rows(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    columns: Sequence[str],
    *,
    with_system: bool,
    span: Predicate | None = None,
    may_hold: RangeTest | None = None,
    wanted: Positions | None = None,
    limit: BatchLimit = USUAL_BATCH,
) -> Iterator[FileRows]:
    """Rows with their positions, from row groups that may match ``span`` and hold a wanted row.

    Args:
        store: the table of the file; rows have its schema.
        partition: BinaryRow bytes.
        bucket: bucket number.
        file: the file to read.
        columns: columns in output order, including those tested by ``span``.
        with_system: append ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
        span: rows for which it is not true may be missing.
        may_hold: whether a row group with these ranges of the columns may hold a row that is wanted.
        wanted: rows at other positions may be missing; ascending.
        limit: of a batch.
    """

    def keep(ranges: Mapping[str, ColumnRange], places: range) -> bool:
        if wanted is not None and np.searchsorted(wanted, places.start) == np.searchsorted(wanted, places.stop):
            return False
        if span is not None and not may_match(span, ranges, len(places)):
            return False
        return may_hold is None or may_hold(ranges)

    return open_data_file(
        store.io,
        store.file_path(partition, bucket, file),
        file,
        file_schema=store.schema_of(file.schema_id),
        read_schema=store.schema,
        columns=columns,
        with_system=with_system,
        keep=keep,
        limit=limit,
        verify=store.options.read_verify_checksums,
    )
