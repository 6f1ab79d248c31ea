"""System tables with a table's own rows.

With their kinds (``audit_log``, ``binlog``), with their ids (``row_tracking``), or without merging (``ro``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from engine.read.batch_plan import BatchPlan
from engine.read.batch_read import open_read
from engine.read.find_state import find_snapshot
from engine.read.pieces import FilePiece
from engine.request.read_request import open_for_read
from engine.system_tables.binlog import arrays_of_one, binlog_fields
from engine.system_tables.names import BINLOG, READ_OPTIMIZED, ROW_TRACKING
from engine.types.rows import ROW_KIND_COLUMN
from filestore.predicate.predicate import Predicate
from filestore.scan.table_scan import TableScan
from filestore.schema.file_fields import with_id_columns
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.types.data_types import DataField, arrow_schema, data_type_of

ROW_KIND: Final = "rowkind"
"""Column of ``audit_log``: +I -U +U -D."""
CHANGELOG_KEY: Final = "read.changelog"


@dataclass(frozen=True, kw_only=True)
class RowTable:
    """A planned read of a table's rows at one state; each Spark task reads a piece."""

    table: FileTable  # with the schema of the rows
    plan: BatchPlan
    constants: Mapping[str, pa.Scalar]  # columns before the table's
    schema: pa.Schema
    is_packed: bool = False  # each column is an array of its values

    def batches(self, piece: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece of the plan.

        Args:
            piece: a piece of ``plan``.
            names: columns of ``schema``, in the requested order.
        """
        inner = [ROW_KIND_COLUMN if name == ROW_KIND and name in self.constants else name for name in names]
        for rows in self.plan.reader(inner)(piece):
            named = rows.rename_columns(list(names))
            yield arrays_of_one(named, ROW_KIND) if self.is_packed else named

    def without_pieces(self) -> "RowTable":
        """A copy for a task, which gets its piece separately."""
        return replace(self, plan=replace(self.plan, pieces=()))


def open_row_table(files: FileTable, system: str, given: Mapping[str, str], filter: str | Predicate | None) -> RowTable:
    """Plan the read of one of ``ROW_TABLES``.

    Args:
        files: of the table, on the requested branch.
        system: one of these names.
        given: options of this read, as for a batch read.
        filter: on the table's columns.

    Raises:
        InvalidInputError: options that contradict each other, a missing state, or an invalid filter; rows have no ids.
    """
    if system in (READ_OPTIMIZED, ROW_TRACKING):
        table, snapshot = snapshot_of_read(files, given)
        table = table.with_id_columns() if system == ROW_TRACKING else table
        plan = BatchPlan(table=table, snapshot=None, pieces=())
        if snapshot is not None:
            scan = TableScan(table.store) if system == ROW_TRACKING else _TopLevel(table.store)
            found = scan.plan(snapshot=snapshot, filter=filter)
            plan = BatchPlan(
                table=table, snapshot=snapshot, pieces=tuple(map(FilePiece, found.splits)), filter=found.filter
            )
        return RowTable(table=table, plan=plan, constants={}, schema=table.schema.arrow_schema)
    read = open_read(files, {**given, CHANGELOG_KEY: "true"})
    return RowTable(
        table=read.table,
        plan=read.plan(filter=filter),
        constants={ROW_KIND: pa.scalar("+I")},
        schema=arrow_schema(row_schema(read.table.schema, system).fields),
        is_packed=system == BINLOG,
    )


def row_schema(schema: TableSchema, system: str) -> TableSchema:
    """The columns of one of ``ROW_TABLES``, of a table with this schema."""
    if system in (READ_OPTIMIZED, ROW_TRACKING):
        return with_id_columns(schema) if system == ROW_TRACKING else schema
    kind = DataField(id=schema.highest_field_id + 1, name=ROW_KIND, type=data_type_of(pa.string(), nullable=False))
    fields = (kind, *(binlog_fields(schema.fields) if system == BINLOG else schema.fields))
    return TableSchema(
        id=schema.id,
        fields=fields,
        highest_field_id=kind.id,
        partition_keys=(),
        primary_keys=(),
        options={},
        time_ms=schema.time_ms,
    )


def snapshot_of_read(files: FileTable, given: Mapping[str, str]) -> tuple[FileTable, Snapshot | None]:
    """The snapshot of the ``scan.*`` options, by default the newest, and the table with its schema.

    Raises:
        InvalidInputError: there is no such snapshot, or the options contradict each other.
    """
    if files.store.closed is not None and not given:  # nothing of it is read, and its own options may be the reason
        return files, files.store.snapshots.latest()
    state = find_snapshot(*open_for_read(files, given))
    return state.table, state.snapshot


class _TopLevel(TableScan):
    """Only files of the last level, which need no merging."""

    @property
    def min_level(self) -> int:
        """The last level of a table with a key."""
        return self._table.level_count - 1 if self._table.has_key else 0
