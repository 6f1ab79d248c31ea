"""Upsert changes completed with the rows that they replace, looked up in the table's files.

The log of a table with a key has new rows, not old ones. With ``log.scan.normalize=true`` the state before a range is
still known: it is the snapshot before it, changed by the part of the log between. So every change gets its exact kind,
every update comes as ``-U`` and ``+U``, every delete with the deleted row, and a change without effect is dropped, such
as one that was written twice.

Cost: every micro-batch reads, in each changed bucket, the files that may have its keys; memory grows with the rows of a
micro-batch, which ``read.stream.maxRowsPerTrigger`` bounds. FLIP-188 keeps all rows in the consumer's state instead,
which costs a copy of the table for each stream.

Under a filter on value columns a row that stops matching is deleted, and one that starts to is inserted: that needs
exact changes, every update as ``-U`` directly followed by its ``+U``, every delete with the deleted row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.log.log_rows import log_rows
from engine.log.table_log import TableLog
from engine.types.row_changes import RowChanges
from filestore.predicate.predicate import Compare, CompareOp, Predicate, and_all
from filestore.read.split_read import read_split
from filestore.scan.table_scan import TableScan
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table_view import TableView
from filestore.write.table_write import partition_codes
from logstore.offsets import LogRange
from lsm.keys.key_groups import one_chunk
from lsm.keys.key_lookup import rows_with_keys
from lsm.keys.keys import internal_value, key_order
from lsm.keys.words import BoolArray
from lsm.merge.row_diff import differs
from lsm.row_kind import RowKind

_Ints = NDArray[np.int64]


def normalized(
    table: TableView,
    log: TableLog,
    log_range: LogRange,
    *,
    base_id: int,
    base_offset: int,
    columns: Sequence[str],
    compared: Sequence[str] | None = None,
) -> Iterator[RowChanges]:
    """The changes of a range of one bucket's log with their exact kinds, in the log's order.

    Args:
        table: a table with a key.
        log: the table's log.
        log_range: bucket and offsets.
        base_id: a snapshot before the range; 0: the empty table.
        base_offset: the bucket's log offset in that snapshot.
        columns: to return.
        compared: a change in other columns only is dropped; None: ``columns``.

    Raises:
        SnapshotExpiredError: the snapshot has expired.
    """
    tested = columns if compared is None else compared
    needed = list(dict.fromkeys([*columns, *tested, *log.key_names]))
    whole = LogRange(
        bucket=log_range.bucket,
        start_offset=min(base_offset, log_range.start_offset),
        end_offset=log_range.end_offset,
    )
    pieces = list(log_rows(table, log, whole, columns=needed, with_origin=True))
    if not pieces:
        return
    changes = _joined(pieces)
    before = _rows_before(table, log_range.bucket, base_id, changes.rows, needed)
    yield from exact_changes(
        before,
        changes,
        key_names=log.key_names,
        first_offset=log_range.start_offset,
        columns=columns,
        compared=tested,
    )


def exact_changes(
    before: pa.Table,
    changes: RowChanges,
    *,
    key_names: Sequence[str],
    first_offset: int,
    columns: Sequence[str],
    compared: Sequence[str],
) -> Iterator[RowChanges]:
    """Adds and retracts as ``+I``, ``-U`` ``+U`` and ``-D``, each with its row.

    Args:
        before: (m,) rows of the keys before the first change, each key at most once.
        changes: (n,) in order, with offsets.
        key_names: the key columns.
        first_offset: earlier changes only affect the state.
        columns: to return.
        compared: an update that changes none of these is left out.
    """
    rows = pa.concat_tables([before, pa.Table.from_batches([changes.rows])]).combine_chunks()
    count, known = rows.num_rows, before.num_rows
    kinds = np.concatenate([np.zeros(known, np.int8), np.asarray(changes.kinds)])
    is_add = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
    order, starts = key_order([one_chunk(rows.column(name)) for name in key_names], presorted=False)
    previous = np.full(count, -1, np.int64)
    previous[order[1:]] = np.where(starts[1:], -1, order[:-1])
    existed = (previous >= 0) & is_add[previous]
    is_wanted = np.zeros(count, np.bool_)
    is_wanted[known:] = np.asarray(changes.offsets) >= first_offset
    updates = np.flatnonzero(is_wanted & is_add & existed)
    updates = updates[_differ(rows.select(list(compared)), updates, previous[updates])]
    inserts = np.flatnonzero(is_wanted & is_add & ~existed)
    deletes = np.flatnonzero(is_wanted & ~is_add & existed)
    # for every output row: the row to show, its change, and its kind; -U sorts before its +U
    shown = np.concatenate([inserts, previous[updates], updates, previous[deletes]])
    change = np.concatenate([inserts, updates, updates, deletes])
    kind = np.repeat(
        np.array([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE], np.int8),
        [len(inserts), len(updates), len(updates), len(deletes)],
    )
    in_order = np.lexsort((kind, change))
    if len(in_order) == 0:
        return
    origin = pa.array(change[in_order] - known)
    assert changes.offsets is not None
    yield RowChanges(
        rows=rows.select(list(columns)).take(pa.array(shown[in_order])).combine_chunks().to_batches()[0],
        kinds=pa.array(kind[in_order]),
        offsets=changes.offsets.take(origin),
        timestamps=None if changes.timestamps is None else changes.timestamps.take(origin),
    )


def matching_changes(changes: RowChanges, matches: pa.Array) -> RowChanges:
    """The changes of the rows that match a filter on value columns.

    Args:
        changes: (n,) exact ones, in order.
        matches: (n,) boolean; null: no.

    Returns:
        An update with one side that matches is that side, as ``-D`` or ``+I``; so is one whose other side is in another
        batch.
    """
    kinds, is_wanted = np.array(changes.kinds, np.int8), np.asarray(matches.fill_null(False), np.bool_)
    is_before, is_after = kinds == RowKind.UPDATE_BEFORE, kinds == RowKind.UPDATE_AFTER
    is_pair = is_before[:-1] & is_after[1:] & is_wanted[:-1] & is_wanted[1:]
    stays_before, stays_after = np.append(is_pair, False), np.append(False, is_pair)
    kinds[is_before & ~stays_before] = RowKind.DELETE
    kinds[is_after & ~stays_after] = RowKind.INSERT
    return replace(changes, kinds=pa.array(kinds)).taken(pa.array(is_wanted))


def _joined(pieces: Sequence[RowChanges]) -> RowChanges:
    rows = pa.Table.from_batches([piece.rows for piece in pieces]).combine_chunks().to_batches()[0]
    return RowChanges(
        rows=rows,
        kinds=pa.concat_arrays([piece.kinds for piece in pieces]),
        offsets=pa.concat_arrays([piece.offsets for piece in pieces]),
        timestamps=pa.concat_arrays([piece.timestamps for piece in pieces]),
    )


def _rows_before(
    table: TableView, bucket: int, base_id: int, changed: pa.RecordBatch, columns: Sequence[str]
) -> pa.Table:
    """The rows of a snapshot with keys among the changed ones."""
    schema = changed.schema
    if base_id == 0:
        return schema.empty_table()
    snapshot = table.store.snapshots.find(base_id)
    if snapshot is None:
        raise SnapshotExpiredError(
            f"a snapshot that the stream needs is gone: table={table.name} wanted_snapshot={base_id} "
            "cause=it expired before the changes after it were read fix=keep snapshots longer, or name a consumer-id"
        )
    keys = _distinct_keys(table, changed)
    partitions, _ = partition_codes(changed, table.store)
    plan = TableScan(table.store).plan(
        snapshot=snapshot, filter=_key_span(table, keys), partitions=set(partitions), buckets={bucket}
    )
    found = []
    for split in plan.splits:
        # expiry is no change: an expired row is what a change replaces, whenever it is looked up
        for batch in read_split(table, replace(split, expiry_moment_ms=None), columns=columns, filter=plan.filter):
            kept = rows_with_keys(batch, keys)
            if len(kept):
                found.append(batch.take(pa.array(kept)))
    return pa.Table.from_batches(found, schema=found[0].schema).cast(schema) if found else schema.empty_table()


def _distinct_keys(table: TableView, changed: pa.RecordBatch) -> pa.Table:
    names = list(table.schema.primary_keys)
    return pa.Table.from_batches([changed.select(names)]).group_by(names).aggregate([])


def _key_span(table: TableView, keys: pa.Table) -> Predicate | None:
    """From the minimum to the maximum of the leading key column: skips files without any of the keys."""
    name = table.schema.trimmed_primary_keys[0]
    if pa.types.is_floating(keys.column(name).type):
        return None  # the maximum may be NaN, which min_max ignores
    try:
        span = pc.min_max(keys.column(name))
    except pa.ArrowNotImplementedError:
        return None
    low, high = internal_value(span["min"]), internal_value(span["max"])
    return and_all(
        [Compare(column=name, op=CompareOp.GE, value=low), Compare(column=name, op=CompareOp.LE, value=high)]
    )


def _differ(rows: pa.Table, left: _Ints, right: _Ints) -> BoolArray:
    """(m,) whether pairs of rows differ in any column."""
    found = np.zeros(len(left), np.bool_)
    for column in rows.columns:
        whole = one_chunk(column)
        found |= differs(whole.take(pa.array(left)), whole.take(pa.array(right)))
    return found
