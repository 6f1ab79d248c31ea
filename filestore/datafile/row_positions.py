"""Rows of a data file with their numbers in it: where a row is, and the rows at some places.

Numbers count every row of the file from 0, also those that are deleted. Row groups without a wanted row are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.datafile.data_file import BATCH_ROWS, open_data_file
from filestore.format.statistics import ColumnRange
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, are_deleted
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.evaluation import may_match
from filestore.predicate.predicate import Compare, CompareOp, In, Predicate, and_all
from filestore.table_store import TableStore
from lsm.keys.key_groups import one_chunk
from lsm.keys.key_lookup import sorted_rows_with_keys
from lsm.keys.keys import internal_value

_NAMED_KEYS: Final = 256  # up to so many keys are asked for one by one, more as the span from the first to the last


def positions_of_keys(
    store: TableStore,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    keys: pa.Table,
    *,
    deleted: Positions = NO_POSITIONS,
) -> tuple[Positions, pa.Table]:
    """Where the rows of some keys are in a file, and their keys; those that are deleted are left out.

    Args:
        store: whose.
        partition: BinaryRow bytes.
        bucket: number.
        file: of a table with a key.
        keys: (k,) key columns in key order.
        deleted: rows of the file that are deleted.
    """
    found: list[Positions] = []
    there: list[pa.RecordBatch] = []
    names = list(store.schema.trimmed_primary_keys)
    for numbers, batch in numbered_rows(store, partition, bucket, file, names, with_system=False, span=span_of(keys)):
        hits = sorted_rows_with_keys(batch, keys)
        hits = hits[~are_deleted(numbers[hits], deleted)]
        if len(hits):
            found.append(numbers[hits])
            there.append(batch.take(pa.array(hits)))
    if not found:
        return NO_POSITIONS, keys.slice(0, 0)
    return np.concatenate(found), pa.Table.from_batches(there).combine_chunks()


def span_of(keys: pa.Table) -> Predicate | None:
    """What leaves out row groups without any of the keys, which are in key order, by their leading column."""
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
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows at some places of a file (ascending), in today's schema; never an empty batch."""
    rows = numbered_rows(
        store, partition, bucket, file, columns, with_system=with_system, wanted=positions, batch_rows=batch_rows
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
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """All rows of a file but those at some places (ascending); rows that do not match ``span`` may be missing too."""
    rows = numbered_rows(
        store, partition, bucket, file, columns, with_system=with_system, span=span, batch_rows=batch_rows
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
    wanted: Positions | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[tuple[Positions, pa.RecordBatch]]:
    """Batches with the numbers of their rows, of the row groups that may match ``span`` and hold a wanted row.

    Args:
        store: whose; the rows are of its schema.
        partition: BinaryRow bytes.
        bucket: number.
        file: to read.
        columns: in the order wanted; those that ``span`` tests are among them.
        with_system: append ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
        span: rows for which it is not true may be missing.
        wanted: likewise all but these (ascending).
        batch_rows: most rows of a batch.
    """
    groups: list[Positions] = []  # numbers of the rows that are read
    asked = 0

    def keep(ranges: Mapping[str, ColumnRange], row_count: int) -> bool:
        nonlocal asked
        first, asked = asked, asked + row_count
        if wanted is not None and len(_between(wanted, first, asked)) == 0:
            return False
        if span is not None and not may_match(span, ranges, row_count):
            return False
        groups.append(np.arange(first, asked))
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
        batch_rows=batch_rows,
    )
    for batch in rows:
        if numbers is None:  # a format that has asked has asked for every group before its first row
            numbers = np.concatenate(groups) if groups else np.arange(file.row_count)
        yield numbers[given : given + batch.num_rows], batch
        given += batch.num_rows
