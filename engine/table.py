"""A table as users hold it: its files, its log, and both written as one."""

import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engine.batch_part import BatchSpec, write_part
from engine.batch_writer import BatchWriter
from engine.frames import table_frame
from engine.overwrite import overwrite
from engine.sink import run_parts
from engine.table_log import TableLog, tracks_changes
from filestore.commit_message import BATCH_IDENTIFIER
from filestore.options import TableOptions
from filestore.snapshots import Snapshot
from filestore.table import Table as FileTable
from filestore.table import TableRead
from filestore.table_commit import CommitResult
from filestore.table_schema import TableSchema


class Table:
    """An opened table. Made by ``Catalog.table``; open it again to see a changed schema."""

    def __init__(self, files: FileTable) -> None:
        """Wrap the files of a table."""
        self.store = files  # what reads, writes and commits are made of; can be pickled

    def __repr__(self) -> str:
        return f"Table({self.name!r}, key={list(self.schema.primary_keys)}, log={self.options.log_system})"

    @property
    def name(self) -> str:
        """``database.table``."""
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """Columns, keys and options texts."""
        return self.store.schema

    @property
    def options(self) -> TableOptions:
        """The options in force."""
        return self.store.options

    @cached_property
    def log(self) -> TableLog | None:
        """The log, None when the table has none."""
        return TableLog.of(self.store)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None before the first commit."""
        return self.store.snapshots.latest()

    def log_end_offsets(self) -> Mapping[int, int]:
        """Per bucket, the offset up to which the log can be read now; empty without a log."""
        return {} if self.log is None else self.log.end_offsets()

    def read(self, *, snapshot_id: int | None = None, tag: str | None = None) -> TableRead:
        """The table at a snapshot, by default the newest, for reading into Arrow.

        Raises:
            InvalidInputError: no such snapshot or tag, or both given.
        """
        return self.store.read(snapshot_id=snapshot_id, tag=tag)

    def dataframe(
        self,
        spark: SparkSession,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> DataFrame:
        """A snapshot as a Spark frame; files that need no merging are scanned by Spark itself.

        Args:
            spark: the session.
            columns: names, in the wanted order; None is all.
            filter: SQL text; leaves out partitions, buckets and files before Spark sees them.
            snapshot_id: default the newest.
            tag: instead of a snapshot id.

        Raises:
            InvalidInputError: unknown column, snapshot or tag; a filter that cannot be read.
        """
        read = self.read(snapshot_id=snapshot_id, tag=tag)
        return table_frame(spark, read.table, read.plan(filter=filter), columns=columns, filter_text=filter)

    def write(
        self,
        rows: pa.Table | pa.RecordBatch,
        *,
        kinds: pa.Array | None = None,
        options: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Write rows from this process and make them visible, in files and log.

        Args:
            rows: the table's columns by name; nullable ones may be missing. A column ``_row_kind`` gives each row's
                kind.
            kinds: (n,) ``+I -U +U -D`` texts instead of that column.
            options: ``change-tracking=false`` leaves the log out.

        Raises:
            InvalidInputError: a row that the table cannot hold; nothing is visible.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if kinds is not None:
            table = table.append_column("_row_kind", kinds)
        return self._batch_writer(options).write(BATCH_IDENTIFIER, lambda spec: write_part(spec, table.to_batches()))

    def append(self, frame: DataFrame, options: Mapping[str, str] | None = None) -> CommitResult:
        """Write a Spark frame as one batch and make it visible, in files and log.

        A batch job that dies half-way and is run again writes its rows again: streams that must not, go through
        ``sink``.

        Raises:
            InvalidInputError: a column or row that does not fit; nothing is visible.
        """

        def run(spec: BatchSpec) -> Any:
            return run_parts(frame, spec)

        return self._batch_writer(options).write(BATCH_IDENTIFIER, run)

    def overwrite(
        self,
        rows: pa.Table | pa.RecordBatch | DataFrame,
        partition: Mapping[str, object] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Replace rows in one commit. The log does not get it: streams read the difference from the files.

        Args:
            rows: the new rows, from this process or a Spark frame; of a static partition they must lie in it.
            partition: values of some partition columns: everything there is replaced. None: of a partitioned table the
                partitions that occur in the rows (all, with ``dynamic-partition-overwrite=false``), else everything.
            options: ``change-tracking=false``: streams do not get the difference.

        Raises:
            InvalidInputError: a column or row that does not fit, or lies outside the partition; nothing is visible.
            ConflictError: other writers were faster too often: try again.
        """

        def run(spec: BatchSpec) -> Any:
            if isinstance(rows, DataFrame):
                return run_parts(rows, spec)
            return write_part(spec, [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches())

        tracks = tracks_changes(self.store, options)
        return overwrite(self.store, run, partition=partition, tracks_changes=tracks)

    def compact(self, *, full: bool = False) -> CommitResult | None:
        """Compact every bucket that needs it, in this process; with ``full`` each into one run. None: nothing to do."""
        return self.store.compact(full=full)

    def _batch_writer(self, options: Mapping[str, str] | None) -> BatchWriter:
        return BatchWriter(
            self.store,
            TableLog.of(self.store, options),
            commit_user=str(uuid.uuid4()),
            tracks_changes=tracks_changes(self.store, options),
        )
