"""A batch read: one state of a table, planned into pieces that tasks read independently of each other."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.read.batch_plan import BatchPlan, plan_state
from engine.read.fallback import Fallback, find_fallback
from engine.read.find_state import find_state
from engine.read.pieces import PieceReader, constant_field
from engine.read.read_state import ReadState, Served
from engine.read.tools.arrow_rows import ArrowRows
from engine.read.tools.scanned_rows import names_of
from engine.request.read_request import Newest, ReadRequest, open_for_read
from filestore.predicate.given_filter import GivenFilter, given_filter, predicate_of
from filestore.predicate.predicate import Predicate
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable

if TYPE_CHECKING:
    from engine.types.row_changes import MetadataColumn

logger = logging.getLogger("fluvial.read")


class BatchRead(ArrowRows):
    """A state of a table, which can be read several times. It does not change when the table is written."""

    def __init__(self, state: ReadState, request: ReadRequest, fallback: Fallback | None = None) -> None:
        """Made by ``open_read``.

        Args:
            state: what is read.
            request: what was asked for.
            fallback: the branch from which partitions come that the state lacks.
        """
        self._state = state
        self._request = request
        self.fallback = fallback

    def __repr__(self) -> str:
        at = "no snapshot" if self.snapshot is None else f"snapshot={self.snapshot.id}"
        return f"BatchRead({self.table.name!r}, {at}, {self._state.served.source})"

    @property
    def table(self) -> FileTable:
        """The table with the schema of the rows."""
        return self._state.table

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot under the log's tail; None of a table without one."""
        return self._state.snapshot

    @property
    def is_newest(self) -> bool:
        """Whether the newest state was asked for, and not one that has a name, a number or a time."""
        return isinstance(self._request.place, Newest)

    @property
    def served(self) -> Served:
        """What this read really gives: from which source, of which time."""
        return self._state.served

    @cached_property
    def constants(self) -> Mapping[str, pa.Scalar]:
        """Columns beside the table's, with one value in all rows; of a difference each row has its own kind."""
        from engine.types.rows import ROW_KIND_COLUMN

        kinds = {ROW_KIND_COLUMN: pa.scalar("+I")} if self._request.has_row_kinds else {}
        snapshot_id = pa.scalar(None if self.snapshot is None else self.snapshot.id, pa.int64())
        columns: tuple[MetadataColumn, ...] = self._request.metadata_columns
        return {**kinds, **{column.value: snapshot_id for column in columns}}

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self.schema_of(None)

    def describe(self) -> str:
        """One line: snapshot or snapshot+log, up to which offsets, of which time, and why."""
        return " ".join(str(each) for each in (self._state.served, self.fallback) if each is not None)

    def plan(self, filter: Any = None) -> BatchPlan:
        """The pieces to read; those that certainly do not match the filter are left out."""
        return self._plan(predicate_of(filter, self.table.schema))

    def to_batches(self, columns: Sequence[str] | None = None, filter: Any = None) -> Iterator[pa.RecordBatch]:
        """The matching rows, as batches in bounded memory.

        Args:
            columns: names of the columns to return, in this order; None: all.
            filter: SQL text such as ``"amount > 10 and day = DATE '2024-02-29'"``, an expression of PyArrow such as
                ``pyarrow.compute.field("amount") > 10``, or a predicate.
        """
        names = self.schema_of(columns).names
        given, plan, read = self._opened(names, filter)
        for piece in plan.pieces:
            for batch in read(piece):
                yield from given.of(batch, names)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Any = None) -> pa.Table:
        """The rows that match, in memory; see ``to_batches``."""
        from filestore.read.side_by_side import batches_of_all, sharing_memory

        names = self.schema_of(columns).names
        given, plan, read = self._opened(names, filter)
        has_spans = any(piece.own_split is not None and piece.own_split.span is not None for piece in plan.pieces)
        batches = batches_of_all(
            plan.pieces,
            read,
            is_raw=lambda piece: piece.own_split is not None and not piece.own_split.needs_merge,
            sharing=(lambda threads: replace(read, table=sharing_memory(read.table, threads))) if has_spans else None,
        )
        kept = (rows for batch in batches for rows in given.of(batch, names))
        return pa.Table.from_batches(kept, schema=self.schema_of(columns))

    def _opened(self, names: Sequence[str], filter: Any) -> tuple[GivenFilter, BatchPlan, PieceReader]:
        """What a filter leaves to be done, the pieces, and what reads these columns and those that it needs."""
        given = given_filter(filter, self.table.schema, self.schema)
        plan = self._plan(given.predicate)
        return given, plan, plan.reader([*names, *(each for each in given.columns if each not in names)])

    def _plan(self, predicate: Predicate | None) -> BatchPlan:
        return plan_state(self._state, self.fallback, predicate, self.constants, is_newest=self.is_newest)

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Arrow schema of columns of the table, then of those that the read adds, if none of them is named.

        Raises: InvalidInputError: there is no such column.
        """
        names, schema = self.table.schema.column_names if columns is None else names_of(columns), self.table.schema
        added = {name: constant_field(name, value.type) for name, value in self.constants.items()}
        if not added:
            return schema.arrow_schema_of(names)
        fields = [added[name] if name in added else schema.arrow_field(name) for name in names]
        return pa.schema([*fields, *(() if {*names} & added.keys() else added.values())])


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
    return open_request(*open_for_read(table, given), falls_back=falls_back)


def open_request(table: FileTable, request: ReadRequest, *, falls_back: bool = True) -> BatchRead:
    """Find the state that a parsed request asks for.

    Args:
        table: with the reader's options in force.
        request: parsed from the same options.
        falls_back: see ``open_read``.

    Raises: as ``open_read``.
    """
    state = find_state(table, request)
    return BatchRead(state, request, find_fallback(table, state, request) if falls_back else None)


def log_served(read: BatchRead) -> None:
    """Log what a Spark read gets, to ``fluvial.read``."""
    logger.info("batch read: %s", read.describe())
