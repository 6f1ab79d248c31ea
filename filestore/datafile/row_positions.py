"""Positions of rows in data files: the positions of keys, and the rows at given positions.

Positions count all rows of the file from 0, including deleted ones. Row groups without a wanted row are not read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.datafile.data_file import open_data_file
from filestore.format.interface import USUAL_BATCH, BatchLimit
from filestore.format.statistics import ColumnRange
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, are_deleted
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.evaluation import may_match
from filestore.predicate.predicate import Compare, CompareOp, In, Predicate, and_all
from filestore.table_store import TableStore
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
    for numbers, batch in numbered_rows(store, partition, bucket, file, names, with_system=False, span=span_of(keys)):
        hits = sorted_rows_with_keys(batch, keys)
        hits = hits[~are_deleted(numbers[hits], deleted)]
        if len(hits):
            found.append(numbers[hits])
            found_keys.append(batch.take(pa.array(hits)))
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
    """The rows at ascending positions of a file, with the table's schema, as non-empty batches."""
    rows = numbered_rows(
        store, partition, bucket, file, columns, with_system=with_system, wanted=positions, limit=limit
    )
    for numbers, batch in rows:
        inside = _between(positions, int(numbers[0]), int(numbers[-1]) + 1)
        if len(inside):
            yield batch.take(pa.array(np.searchsorted(numbers, inside)))


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
    rows = numbered_rows(
        store, partition, bucket, file, columns, with_system=with_system, span=span, may_hold=may_hold, limit=limit
    )
    for numbers, batch in rows:
        inside = _between(positions, int(numbers[0]), int(numbers[-1]) + 1)
        kept = np.ones(batch.num_rows, np.bool_)
        kept[np.searchsorted(numbers, inside)] = False
        yield batch.filter(pa.array(kept)) if len(inside) else batch


def _between(positions: Positions, start: int, stop: int) -> Positions:
    low, high = np.searchsorted(positions, [start, stop])
    return positions[low:high]


def numbered_rows(
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
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Batches with the positions of their rows, from row groups that may match ``span`` and hold a wanted row.

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
    groups: list[Positions] = []  # positions of the rows that are read
    tested_rows = 0

    def keep(ranges: Mapping[str, ColumnRange], row_count: int) -> bool:
        nonlocal tested_rows
        first, tested_rows = tested_rows, tested_rows + row_count
        if wanted is not None and len(_between(wanted, first, tested_rows)) == 0:
            return False
        if span is not None and not may_match(span, ranges, row_count):
            return False
        if may_hold is not None and not may_hold(ranges):
            return False
        groups.append(np.arange(first, tested_rows))
        return True

    given = 0
    numbers: Positions | None = None
    rows = open_data_file(
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
    for batch in rows:
        if numbers is None:  # formats call ``keep`` for all row groups before the first row, or never
            numbers = np.concatenate(groups) if groups else np.arange(file.row_count)
        yield numbers[given : given + batch.num_rows], batch
        given += batch.num_rows
