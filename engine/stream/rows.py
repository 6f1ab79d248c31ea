"""The task side of a stream: pieces of a table's history, one after another, as rows with their kinds.

All log and file changes of one bucket are read by one task and in order, so rows of one key keep the order in which
they were written. Rows of a whole snapshot have no order, and each key occurs once.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.log.log_rows import log_rows
from engine.log.table_log import TableLog
from engine.runtime.task_host import TaskHost
from engine.stream.options import StreamOptions
from engine.types.row_changes import MetadataColumn, RowChanges
from engine.types.rows import ROW_KIND_COLUMN
from filestore.changelog.snapshot_changes import ChangeSplit, read_changes, read_whole
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Compare, CompareOp, Predicate, and_all
from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.scan.table_scan import TableScan
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table_view import TableView
from filestore.write.table_write import partition_codes
from logstore.log.kept_consumers import RangeConsumers
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.key_lookup import rows_with_keys
from lsm.keys.keys import internal_value, key_order
from lsm.keys.words import BoolArray
from lsm.merge.row_diff import differs
from lsm.row_kind import RowKind

# ---- Upsert changes completed with the rows that they replace, looked up in the table's files
# The log of a table with a key has new rows, not old ones. With ``log.scan.normalize=true`` the state before a range is
# still known: it is the snapshot before it, changed by the part of the log between. So every change gets its exact
# kind, every update comes as ``-U`` and ``+U``, every delete with the deleted row, and a change without effect is
# dropped, such as one that was written twice.
#
# Cost: every micro-batch reads, in each changed bucket, the files that may have its keys; memory grows with the rows of
# a micro-batch, which ``read.stream.maxRowsPerTrigger`` bounds. FLIP-188 keeps all rows in the consumer's state
# instead, which costs a copy of the table for each stream.
#
# Under a filter on value columns a row that stops matching is deleted, and one that starts to is inserted: that needs
# exact changes, every update as ``-U`` directly followed by its ``+U``, every delete with the deleted row.


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
        bucket=log_range.bucket, start_offset=min(base_offset, log_range.start_offset), end_offset=log_range.end_offset
    )
    pieces = list(log_rows(table, log, whole, columns=needed, with_origin=True))
    if not pieces:
        return
    changes = _joined(pieces)
    before = _rows_before(table, log_range.bucket, base_id, changes.rows, needed)
    yield from exact_changes(
        before, changes, key_names=log.key_names, first_offset=log_range.start_offset, columns=columns, compared=tested
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


# ---- The task side of a stream: pieces of a table's history, one after another, as rows with their kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPiece:
    """A split of a whole snapshot."""

    split: DataSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePiece:
    """A split of the changes of a snapshot, from its files."""

    split: ChangeSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """A range of one bucket's log."""

    log: TableLog
    log_range: LogRange
    base_id: int | None = None  # for normalizing: a snapshot before the range
    base_offset: int = 0  # of the log at that snapshot


StreamPiece = SnapshotPiece | ChangePiece | LogPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRows:
    """Converts pieces to rows of the stream; every task gets it."""

    table: TableView
    schema: pa.Schema  # of the rows: the table's columns, row kind, metadata
    columns: Sequence[str]  # needed columns of the table
    filter: Predicate | None
    filters_values: bool = False  # of rows that a change may replace: see ``matching_changes``
    compared: Sequence[str] | None = None  # a change of other columns is none; None: ``columns``
    wider: TableView | None = None  # the table with dropped columns, where these are compared; None: ``table``
    host: TaskHost = dataclasses.field(default_factory=TaskHost.here)

    @classmethod
    def of(cls, options: StreamOptions) -> Self:
        """The conversion that a stream's options ask for."""
        return cls(
            table=options.table,
            schema=options.schema,
            columns=options.columns,
            filter=options.filter,
            filters_values=options.filters_values,
        )

    def read(self, pieces: Sequence[StreamPiece], kept: RangeConsumers | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of pieces, in order, in the stream's types and non-empty batches; ``kept``: see ``log_rows``."""
        self.host.check(self.table.store)
        for piece in pieces:
            for found in self._changes(piece, kept):
                rows = self._matching(found)
                if rows.rows.num_rows:
                    yield self._in_stream_schema(rows)

    @property
    def _shows_origin(self) -> bool:
        return not {MetadataColumn.LOG_OFFSET, MetadataColumn.LOG_TIMESTAMP}.isdisjoint(self.schema.names)

    def _changes(self, piece: StreamPiece, kept: RangeConsumers | None) -> Iterator[RowChanges]:
        columns, table = self.columns, self.wider or self.table
        match piece:
            case SnapshotPiece():
                for rows, kinds in read_whole(table, piece.split, columns=columns, filter=self.filter):
                    yield RowChanges(rows=rows, kinds=kinds, snapshot_id=piece.split.snapshot.id)
            case ChangePiece():
                for rows, kinds in read_changes(table, piece.split, columns=columns, compared=self.compared):
                    yield RowChanges(rows=rows, kinds=kinds, snapshot_id=piece.split.snapshot.id)
            case LogPiece():
                if piece.base_id is None:
                    yield from log_rows(
                        table, piece.log, piece.log_range, columns=columns, with_origin=self._shows_origin, kept=kept
                    )
                else:
                    yield from normalized(
                        table,
                        piece.log,
                        piece.log_range,
                        base_id=piece.base_id,
                        base_offset=piece.base_offset,
                        columns=columns,
                        compared=self.compared,
                    )

    def _matching(self, found: RowChanges) -> RowChanges:
        if self.filter is None:
            return found
        matches = filter_mask(self.filter, found.rows)
        return matching_changes(found, matches) if self.filters_values else found.taken(matches)

    def _in_stream_schema(self, found: RowChanges) -> pa.RecordBatch:
        if ROW_KIND_COLUMN not in self.schema.names and found.has_retracts:
            raise InvalidInputError(
                f"a row was retracted, and the stream has no row kinds: table={self.table.name} "
                "fix=set read.changelog=true"
            )
        columns: list[pa.Array] = []
        for field in self.schema:
            if field.name == ROW_KIND_COLUMN:
                column = found.kind_texts()
            elif field.name in {*MetadataColumn}:
                column = found.metadata(MetadataColumn(field.name))
            else:
                column = found.rows.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type, safe=False))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
