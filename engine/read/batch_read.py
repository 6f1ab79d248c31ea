"""A batch read: one state of a table, planned into pieces that tasks read independently of each other."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from engine.log.log_tail import TailSplit, read_tail_split
from engine.read.diff_read import DiffSplit, read_diff_split
from engine.read.fallback import Fallback, FallbackSplit, find_fallback
from engine.read.read_state import ReadState, Served, StateSource, find_state
from engine.request.branch_choice import on_named_branch
from engine.request.option_check import unknown_option
from engine.request.read_request import ReadRequest
from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN
from filestore.options.table_options import TableOptions, canonical_options
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import Predicate, on_columns_only
from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.scan.pruning import Pruner
from filestore.scan.row_expiry import RowExpiry
from filestore.scan.table_scan import Filter, TableScan
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_view import TableView
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.read")

Piece = DataSplit | TailSplit | FallbackSplit | DiffSplit
"""What one task reads."""

_UNKNOWN_HERE: Final = {
    MetadataColumn.LOG_OFFSET: "rows of files have no offset",
    MetadataColumn.LOG_TIMESTAMP: "rows of files have no time of their own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The pieces of a state that a filter may want."""

    snapshot: Snapshot | None  # None: the table has no snapshot
    splits: tuple[Piece, ...]
    filter: Predicate | None = None  # to be applied to the rows of every piece
    has_changes: bool = False  # the rows have kinds of their own


class BatchRead:
    """A state of a table, ready to be read as often as wanted. It stays the same whatever is written meanwhile."""

    def __init__(self, state: ReadState, constants: Mapping[str, pa.Scalar], fallback: Fallback | None = None) -> None:
        """Made by ``open_read``.

        Args:
            state: what is read.
            constants: columns beside the table's, with one value in all rows.
            fallback: where partitions come from that the state lacks.
        """
        self._state = state
        self.constants = constants
        self.fallback = fallback

    @property
    def table(self) -> FileTable:
        """The table with the schema of the rows."""
        return self._state.table

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot under the log's tail; None of a table without one."""
        return self._state.snapshot

    @property
    def served(self) -> Served:
        """What this read really gives: from which source, of which time."""
        return self._state.served

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._schema_of(None)

    def describe(self) -> str:
        """One line: snapshot or snapshot+log, up to which offsets, of which time, and why."""
        return " ".join(str(each) for each in (self._state.served, self.fallback) if each is not None)

    def plan(self, filter: Filter = None) -> BatchPlan:
        """The pieces to read; what surely does not match the filter is left out."""
        state, table = self._state, self._state.table
        predicate = parse_filter(filter, table.schema) if isinstance(filter, str) else filter
        if state.diff is not None:
            changes = tuple(DiffSplit(diff=state.diff, split=split) for split in state.diff.plan())
            return BatchPlan(snapshot=state.snapshot, splits=changes, filter=predicate, has_changes=True)
        # with the log a read is as new as the newest write, also where files alone wait for a compaction
        scan = TableScan(table.store, all_levels=state.served.source is StateSource.SNAPSHOT_AND_LOG)
        splits: tuple[DataSplit, ...] = ()
        if state.snapshot is not None:
            splits = scan.plan(snapshot=state.snapshot, filter=predicate).splits
        if self.fallback is not None:
            others = self.fallback.splits(table.store, state.snapshot, predicate)
            return BatchPlan(snapshot=state.snapshot, splits=(*splits, *others), filter=predicate)
        pruner = Pruner(table.store, predicate)
        ranges = [each for each in state.ranges if pruner.keep_bucket(each.bucket, table.options.bucket)]
        if not ranges:
            return BatchPlan(snapshot=state.snapshot, splits=splits, filter=predicate)
        assert state.log is not None
        touched = {each.bucket for each in ranges}
        under: Sequence[DataSplit] = ()
        if state.snapshot is not None:
            by_key = on_columns_only(predicate, table.schema.primary_keys)
            under = scan.plan(snapshot=state.snapshot, filter=by_key, buckets=touched).splits
        expires = RowExpiry.of(table.schema, table.options) is not None
        moment_ms = table.store.clock.now_ms() if state.served.as_of_ms is None else state.served.as_of_ms
        tails = [
            TailSplit(
                log=state.log,
                log_range=each,
                splits=tuple(split for split in under if split.bucket == each.bucket),
                expiry_moment_ms=moment_ms if expires else None,
            )
            for each in ranges
        ]
        pieces: tuple[Piece, ...] = (*tails, *(split for split in splits if split.bucket not in touched))
        return BatchPlan(snapshot=state.snapshot, splits=pieces, filter=predicate)

    def to_batches(self, columns: Sequence[str] | None = None, filter: Filter = None) -> Iterator[pa.RecordBatch]:
        """The rows that match, one piece after the other.

        Args:
            columns: of the table, to return in this order; None is all.
            filter: SQL text such as ``"amount > 10 and day = DATE '2024-02-29'"``, or a predicate.
        """
        plan = self.plan(filter)
        names = self._schema_of(columns).names
        for piece in plan.splits:
            yield from read_piece(self.table, piece, names=names, filter=plan.filter, constants=self.constants)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Filter = None) -> pa.Table:
        """The rows that match, in memory; see ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(columns, filter), schema=self._schema_of(columns))

    def _schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        names = self.table.schema.column_names if columns is None else columns
        constants = [_constant_field(name, value) for name, value in self.constants.items()]
        return pa.schema([*(self.table.schema.arrow_field(name) for name in names), *constants])


def open_read(table: FileTable, given: Mapping[str, str], *, falls_back: bool = True) -> BatchRead:
    """Find the state that options ask for.

    Args:
        table: with its own options.
        given: of this reader, on top of them; see ``BATCH_KEYS``.
        falls_back: False: the rows are of the table's own branch alone.

    Raises:
        InvalidInputError: options contradict each other, or there is no such state.
        UnavailableError: a commit to wait for did not come, or the brokers do not answer.
        CorruptDataError: records of the log that are needed are lost.
    """
    given = canonical_options(given)
    read = on_named_branch(table, given).with_options(given)
    for key in given:
        if not key.startswith("log.kafka."):
            _ = read.options[TableOptions.declared[key]]  # refuses a value that cannot be read, by name
    request = ReadRequest.parse(read.options, given)
    state = find_state(read, request)
    if not falls_back:
        return BatchRead(state, _constants(read, state.snapshot))
    as_of_ms = request.time_ms
    if as_of_ms is None and request.version_in(read.store) is not None and state.snapshot is not None:
        as_of_ms = state.snapshot.time_ms
    fallback = find_fallback(state.table, as_of_ms=as_of_ms, reads_log=state.served.source is not StateSource.SNAPSHOT)
    return BatchRead(state, _constants(read, state.snapshot), fallback)


def log_served(read: BatchRead) -> None:
    """Say what a Spark read gets, in the log ``fluvial.read``."""
    logger.info("batch read: %s", read.describe())


def read_piece(
    table: TableView,
    piece: Piece,
    *,
    names: Sequence[str],
    filter: Predicate | None,
    constants: Mapping[str, pa.Scalar],
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece of a plan; no batch is empty.

    Args:
        table: opened with the schema of the rows.
        piece: of a plan of this table; of a filtered plan only together with that filter.
        names: columns of the table, and constants, to return in this order; of a difference also ``_row_kind``.
        filter: rows for which it is not true are left out.
        constants: see ``BatchRead``.
    """
    if isinstance(piece, DiffSplit):
        yield from read_diff_split(piece, names=names, filter=filter, constants=constants)
        return
    columns = [name for name in names if name not in constants]
    if isinstance(piece, TailSplit):
        batches = read_tail_split(table, piece, columns=columns, filter=filter)
    elif isinstance(piece, FallbackSplit):
        schema = pa.schema([table.schema.arrow_field(name) for name in columns])
        found = read_split(piece.table, piece.split, columns=columns, filter=filter)
        batches = (pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in found)
    else:
        batches = read_split(table, piece, columns=columns, filter=filter)
    if len(columns) == len(names):
        yield from batches
        return
    for batch in batches:
        arrays = [pa.repeat(constants[name], len(batch)) if name in constants else batch.column(name) for name in names]
        fields = [
            _constant_field(name, constants[name]) if name in constants else batch.schema.field(name) for name in names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _constant_field(name: str, value: pa.Scalar) -> pa.Field:
    return pa.field(name, value.type, nullable=name != ROW_KIND_COLUMN)


def _constants(table: FileTable, snapshot: Snapshot | None) -> dict[str, pa.Scalar]:
    constants: dict[str, pa.Scalar] = {}
    if table.options.read_changelog:
        constants[ROW_KIND_COLUMN] = pa.scalar("+I")
    for name in table.options.read_metadata_columns:
        if name not in {*MetadataColumn}:
            raise unknown_option(name, [each.value for each in MetadataColumn], "column of read.metadata-columns")
        if name in _UNKNOWN_HERE:
            raise InvalidInputError(
                f"a batch read does not know this column: read.metadata-columns={name} "
                f"cause={_UNKNOWN_HERE[MetadataColumn(name)]} fix=use {MetadataColumn.SNAPSHOT_ID}, or read a stream"
            )
        constants[name] = pa.scalar(None if snapshot is None else snapshot.id, pa.int64())
    return constants
