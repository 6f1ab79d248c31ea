"""Resolves the destination of a batch: the table at its branch, with a schema that has all columns of the rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.lineage.batch_origin import batch_origin
from engine.lineage.origins import CommitOrigin
from engine.request.branch_choice import at_branch
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.types.given_rows import GivenRows, given_rows, is_frame
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.write.own_rows import oldest, read_by_frame
from engine.write.schema_evolution import cast_rows, evolve_schema, fields_of_rows, merge_rules
from engine.write.session import LocalRunner, Runner, Upkeep, WriteSession
from filestore.commit.table_commit import CommitResult
from filestore.evolution.schema_merge import MergeRules, are_numbers
from filestore.schema.table_schema import TableSchema
from filestore.table import FileTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """A table that is about to get a batch, and the batch: rows of this process, or a Spark frame."""

    table: FileTable
    rows: "GivenRows | DataFrame"
    options: WriterOptions
    rules: MergeRules | None
    commit_user: str  # of this batch alone
    origin: CommitOrigin  # where the rows come from
    read_id: int | None = None  # the snapshot of the table that the rows were computed from; None: they were not

    @classmethod
    def of(cls, table: FileTable, options: WriterOptions, rows: Any, *, are_constants: bool = False) -> "BatchTarget":
        """Merge the schema with the rows', if the options say so.

        Args:
            table: the opened table.
            options: of the writer.
            rows: a Spark frame, or see ``given_rows``.
            are_constants: no table is read for the rows of a frame, which so is not asked for those that it reads.

        Raises:
            InvalidInputError: these are no rows, or their columns cannot be merged, or they were computed from the
                table without rows that wait for a compaction.
        """
        there = at_branch(table, options.branch)
        given = _as_spelled(rows, there.schema)
        rules = merge_rules(there.store, options)
        asks = is_frame(rows) and not are_constants
        read_id = oldest(options.read_snapshot_id, read_by_frame(there.store, rows) if asks else None)
        user = there.store.new_commit_user()
        origin = batch_origin(there.store, options.pipeline_name, user, rows if is_frame(rows) else None)
        if rules is None:
            return cls(
                table=there, rows=given, options=options, rules=None, commit_user=user, origin=origin, read_id=read_id
            )
        if isinstance(given, GivenRows):
            rules = replace(rules, fitting=are_numbers)
            fields = fields_of_rows(given.schema, there.schema)
        else:
            from engine.types.spark_types import fields_of_frame

            fields = fields_of_frame(given.schema, there.schema)
        grown = evolve_schema(there, fields, rules)
        return cls(
            table=grown, rows=given, options=options, rules=rules, commit_user=user, origin=origin, read_id=read_id
        )

    def append(self, *, read_snapshot_id: int | None = None) -> CommitResult:
        """Add the rows; see ``Table.append``."""
        with self._session(Upkeep.BATCH) as session:
            return session.write(self._fitting(), read_snapshot_id=oldest(read_snapshot_id, self.read_id))

    def overwrite(self, partition: Mapping[str, object] | None, *, read_snapshot_id: int | None = None) -> CommitResult:
        """Replace rows by these; see ``Table.overwrite``."""
        with self._session(Upkeep.REPLACE) as session:
            return session.overwrite(self._fitting(), partition, only_after=oldest(read_snapshot_id, self.read_id))

    def _session(self, upkeep: Upkeep) -> WriteSession[Any]:
        return WriteSession(
            self.table,
            self._runner(),
            commit_user=self.commit_user,
            options=self.options,
            upkeep=upkeep,
            origin=lambda batch_id, rows: self.origin,
        )

    def _runner(self) -> Runner[Any]:
        """Rows of this process are written by it; a Spark frame by tasks, unless it is small."""
        if isinstance(self.rows, GivenRows):
            return LocalRunner()
        from engine.write.driver.driver_runner import runner_of_batch

        return runner_of_batch(self.rows)

    def _fitting(self) -> Any:
        """Rows for the runner, cast where that is allowed."""
        if isinstance(self.rows, GivenRows):
            fitting = _Fitting(self.rows, self)
            return iter(fitting) if self.rows.is_read_once else fitting
        from engine.types.spark_types import cast_frame

        casts = self.rules is not None and self.rules.casts
        return cast_frame(self.rows, self.table.schema) if casts else self.rows


def _as_spelled(rows: Any, schema: TableSchema) -> Any:
    """The rows with the table's names for columns that differ from them in case only."""
    if not is_frame(rows):
        return given_rows(rows, schema).as_spelled((*schema.column_names, ROW_KIND_COLUMN, UNAVAILABLE_COLUMN))
    from engine.types.spark_types import as_spelled

    return as_spelled(rows, schema)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Rows cast while they are read; an attempt that lost its turn reads them again."""

    given: GivenRows
    target: BatchTarget

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return cast_rows(self.given.open(), self.target.table.schema, self.target.rules)


def write_locally(table: FileTable, rows: Iterable[pa.RecordBatch]) -> CommitResult:
    """Write rows of this process as one batch of a job that lineage does not know.

    Raises:
        FluvialError: see ``WriteSession.write``.
    """
    session = WriteSession(
        table,
        LocalRunner(),
        commit_user=table.store.new_commit_user(),
        options=NO_OPTIONS,
        upkeep=Upkeep.BATCH,
        origin=lambda batch_id, rows: None,
    )
    with session:
        return session.write(rows)
