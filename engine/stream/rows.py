"""The task side of a stream: pieces of a table's history, one after another, as rows with their kinds.

All log and file changes of one bucket are read by one task and in order, so rows of one key keep the order in which
they were written. Rows of a whole snapshot have no order, and each key occurs once.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from engine.log.log_rows import log_rows
from engine.log.table_log import TableLog
from engine.runtime.task_host import TaskHost
from engine.stream.normalizer import matching_changes, normalized
from engine.stream.options import StreamOptions
from engine.types.row_changes import MetadataColumn, RowChanges
from engine.types.rows import ROW_KIND_COLUMN
from filestore.changelog.snapshot_changes import ChangeSplit, read_changes, read_whole
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import DataSplit
from filestore.table_view import TableView
from logstore.log.kept_consumers import RangeConsumers
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError


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
                    yield RowChanges(rows=rows, kinds=kinds, snapshot_id=piece.split.snapshot_id)
            case ChangePiece():
                for rows, kinds in read_changes(table, piece.split, columns=columns, compared=self.compared):
                    yield RowChanges(rows=rows, kinds=kinds, snapshot_id=piece.split.snapshot_id)
            case LogPiece():
                if piece.base_id is None:
                    yield from log_rows(
                        table,
                        piece.log,
                        piece.log_range,
                        columns=columns,
                        with_origin=self._shows_origin,
                        kept=kept,
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
