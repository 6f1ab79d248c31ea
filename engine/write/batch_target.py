"""Where one batch goes: the table at a branch and at a schema that holds the rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.lineage.batch_origin import batch_origin
from engine.lineage.origins import CommitOrigin
from engine.request.branch_choice import at_branch
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.write.schema_evolution import cast_rows, evolve_schema, fields_of_rows, merge_rules
from engine.write.session import LocalRunner, Runner, Upkeep, WriteSession
from filestore.commit.table_commit import CommitResult
from filestore.evolution.schema_merge import MergeRules, are_numbers
from filestore.table import FileTable
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """A table that is about to get a batch: an Arrow table or batch of this process, or a Spark frame."""

    table: FileTable
    options: WriterOptions
    rules: MergeRules | None
    commit_user: str  # of this batch alone
    origin: CommitOrigin  # where the rows come from

    @classmethod
    def of(cls, table: FileTable, options: WriterOptions, rows: Any) -> "BatchTarget":
        """Merge the schema with the rows', if the options say so.

        Args:
            table: the opened table.
            options: of the writer.
            rows: an Arrow table or batch, or a Spark frame.

        Raises:
            InvalidInputError: the columns cannot be merged.
        """
        if not (isinstance(rows, pa.Table | pa.RecordBatch) or hasattr(rows, "sparkSession")):
            raise InvalidInputError(
                f"rows come as an Arrow table or batch, or as a Spark frame: given={type(rows).__name__} "
                "fix='convert them, as with pyarrow.table(...)'"
            )
        there = at_branch(table, options.branch)
        rules = merge_rules(there.store, options)
        user = there.store.new_commit_user()
        frame = None if isinstance(rows, pa.Table | pa.RecordBatch) else rows
        origin = batch_origin(there.store, options.pipeline_name, user, frame)
        if rules is None:
            return cls(table=there, options=options, rules=None, commit_user=user, origin=origin)
        if isinstance(rows, pa.Table | pa.RecordBatch):
            rules = replace(rules, fitting=are_numbers)
            fields = fields_of_rows(rows.schema, there.schema)
        else:
            from engine.types.spark_types import fields_of_frame

            fields = fields_of_frame(rows.schema, there.schema)
        grown = evolve_schema(there, fields, rules)
        return cls(table=grown, options=options, rules=rules, commit_user=user, origin=origin)

    def append(self, rows: Any, *, read_snapshot_id: int | None = None) -> CommitResult:
        """Add rows; see ``Table.append``."""
        with self._session(rows, Upkeep.BATCH) as session:
            return session.write(self._fitting(rows), read_snapshot_id=read_snapshot_id)

    def overwrite(self, rows: Any, partition: Mapping[str, object] | None) -> CommitResult:
        """Replace rows; see ``Table.overwrite``."""
        with self._session(rows, Upkeep.REPLACE) as session:
            return session.overwrite(self._fitting(rows), partition)

    def _session(self, rows: Any, upkeep: Upkeep) -> WriteSession[Any]:
        return WriteSession(
            self.table,
            _runner_of(rows),
            commit_user=self.commit_user,
            options=self.options,
            upkeep=upkeep,
            origin=lambda batch_id, rows: self.origin,
        )

    def _fitting(self, rows: Any) -> Any:
        """Rows for the runner, cast where that is allowed."""
        if isinstance(rows, pa.Table | pa.RecordBatch):
            return self._batches(rows)
        return self._frame(rows)

    def _batches(self, rows: pa.Table | pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        given = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
        return _Fitting(given, self)

    def _frame(self, frame: "DataFrame") -> "DataFrame":
        from engine.types.spark_types import cast_frame

        return cast_frame(frame, self.table.schema) if self.rules is not None and self.rules.casts else frame


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Rows cast while they are read; an attempt that lost its turn reads them again."""

    given: Sequence[pa.RecordBatch]
    target: BatchTarget

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return cast_rows(self.given, self.target.table.schema, self.target.rules)


def _runner_of(rows: Any) -> Runner[Any]:
    """Rows that Arrow holds are of this process; a Spark frame is written by tasks."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return LocalRunner()
    from engine.write.spark_runner import SparkRunner

    return SparkRunner(rows.sparkSession)


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
