"""Where one batch goes: the table at a branch and at a schema that holds the rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.compaction.dedicated import DedicatedCompaction, waits_for_others
from engine.lineage.batch_origin import batch_origin
from engine.lineage.origins import CommitOrigin
from engine.log.table_log import TableLog, tracks_changes
from engine.request.branch_choice import at_branch
from engine.request.writer_options import WriterOptions
from engine.write.batch_writer import BatchWriter
from engine.write.schema_evolution import cast_rows, evolve_schema, fields_of_rows, merge_rules
from filestore.evolution.schema_merge import MergeRules, are_numbers
from filestore.table import FileTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """A table that is about to get a batch."""

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

    def writer(self) -> BatchWriter:
        """Writes one batch; first it waits for compaction, where another process compacts and is behind."""
        writer = BatchWriter(
            self.table,
            TableLog.of(self.table, self.options),
            commit_user=self.commit_user,
            tracks_changes=tracks_changes(self.table.store, self.options),
        )
        if waits_for_others(self.table.store, self.options):
            DedicatedCompaction(self.table.store).before_batch(writer.live)
        return writer

    def batches(self, rows: pa.Table | pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows of this process, cast where that is allowed."""
        given = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
        return cast_rows(given, self.table.schema, self.rules)

    def frame(self, frame: "DataFrame") -> "DataFrame":
        """A Spark frame, cast where that is allowed."""
        from engine.types.spark_types import cast_frame

        return cast_frame(frame, self.table.schema) if self.rules is not None and self.rules.casts else frame
