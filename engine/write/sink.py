"""The streaming sink: ``changes.writeStream.foreachBatch(sink(table)).option("checkpointLocation", …).start()``.

Every micro-batch lands in the table's files and in its log exactly once, through restarts, replays, speculative and
zombie tasks. The way of one micro-batch: here → ``batch_writer`` (driver) → ``routing`` (bucket to task) →
``batch_part`` (task) → one commit.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from engine.checkpoint.saved_checkpoints import CheckpointPlace
from engine.compaction.background import BackgroundCompaction, CompactionFailures
from engine.compaction.dedicated import DedicatedCompaction, is_write_only, waits_for_others
from engine.compaction.spark_units import SparkUnits
from engine.lineage.batch_origin import reads_beside
from engine.lineage.recording import Recorder
from engine.lineage.stream_job import QUERY_ID, StreamJob, job_of_frame, report_tasks, running_query
from engine.log.table_log import TableLog, tracks_changes
from engine.request.branch_choice import at_branch
from engine.request.commit_handle import CommitHandle
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.runtime.steps import Observer, ignore
from engine.types.spark_types import aligned, cast_frame, fields_of_frame
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from engine.write.housekeeping import Housekeeping
from engine.write.local_merge import LocalMerge
from engine.write.routing import shuffle_by_bucket, shuffle_counted_rows
from engine.write.schema_evolution import evolve_schema, merge_rules
from filestore.evolution.schema_merge import MergeRules
from filestore.schema.validation import check_writable
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.sink")

COMMIT_USER_KEY: Final = WriterOptions.commit_user.key
_TEMPORARY: Final = "temporary-"  # how Spark begins the name of a checkpoint that it makes up
NO_CHECKPOINT: Final = (
    "the query has no checkpoint location, so a restart would write everything again: "
    'fix=set .option("checkpointLocation", …)'
)


def sink(table: Any, options: Mapping[str, str] | None = None, *, observe: Observer = ignore) -> "StreamSink":
    """A function for ``foreachBatch`` that writes each micro-batch to a table, exactly once.

    Frames hold the table's columns, in any order, and optionally ``_row_kind`` (+I -U +U -D); nullable columns may be
    missing. Rows of one key must come from one input task in their order, or the table needs a ``sequence.field``.

    Args:
        table: from ``Catalog.table``.
        options: of this writer alone: ``branch`` (unless the table was opened on one),
            ``change-tracking`` (false: nothing goes to the log), ``write-only`` (true:
            another job compacts and expires), ``pipeline.name`` (the job in the catalog's lineage),
            ``write.stream.commit-user`` (default: the query's id), ``log.on-orphan-batch``, ``log.kafka.*``,
            ``write.merge-schema`` and its parts (the table's schema grows with the frames').
        observe: told each step; called in tasks too, so it must be picklable.

    Raises:
        InvalidInputError: an unknown option, or a value that cannot be read. When the query runs: no checkpoint
            location, or a frame that does not fit the table.
    """
    writer = WriterOptions.parse(options, SINK_KEYS, "sink option")
    return StreamSink(at_branch(table.files, writer.branch), writer, observe)


class StreamSink:
    """What ``foreachBatch`` calls. It serves one run of one query, and starts with its first micro-batch."""

    def __init__(self, table: TableView, options: WriterOptions, observe: Observer) -> None:
        """Made by ``sink``."""
        check_writable(table.store.schema)
        self._table = table
        self._options = options
        self._observe = observe
        self._rules = merge_rules(table.store, options)
        self._merged: T.StructType | None = None  # the columns of the newest frame that the table holds
        self._log = TableLog.of(table, options)
        self._writer: BatchWriter | None = None
        self._compaction: BackgroundCompaction | None = None
        self._dedicated: DedicatedCompaction | None = None
        self._housekeeping: Housekeeping | None = None
        self._job: StreamJob | None = None
        self._last_commit: CommitHandle | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch."""
        if self._rules is not None:
            frame = self._merge(frame, self._rules)
        if self._writer is None:
            self._start(frame, batch_id)
        assert self._writer is not None
        if self._housekeeping is not None:
            self._housekeeping.before_batch()
        if self._compaction is not None:
            self._compaction.before_batch(self._writer.live)
        elif self._dedicated is not None:
            self._dedicated.before_batch(self._writer.live)
        origin = None if self._job is None else self._job.origin(batch_id, reads_beside(self._table.store, frame))
        if origin is not None:
            report_tasks(frame, origin.reads, self._table.store)
        committed = self._writer.write(batch_id, lambda spec: run_parts(frame, spec), origin=origin)
        self._last_commit = CommitHandle.of(committed)
        if self._compaction is not None:
            self._compaction.after_commit(self._writer.live)
        if self._housekeeping is not None:
            self._housekeeping.after_commit()

    def close(self) -> None:
        """Wait for the compaction that is running, and start no other. Call it after the query, before Spark stops."""
        if self._compaction is not None:
            self._compaction.close()
        if self._housekeeping is not None:
            self._housekeeping.close()

    @property
    def last_commit(self) -> CommitHandle | None:
        """The handle of the newest micro-batch, to be passed on to readers; None before the first."""
        return self._last_commit

    @property
    def compaction_failures(self) -> CompactionFailures:
        """Compactions of this run that failed: look at them when a table gets slow to read."""
        return CompactionFailures() if self._compaction is None else self._compaction.failures

    def _merge(self, frame: DataFrame, rules: MergeRules) -> DataFrame:
        """The frame as the table holds it, whose schema grows before anything of the batch is written."""
        if frame.schema != self._merged:
            table = evolve_schema(self._table, fields_of_frame(frame.schema, self._table.schema), rules)
            self._merged = frame.schema
            if table is not self._table:  # the old writer does not know the new columns; compaction learns from files
                self._table, self._writer = table, None if self._writer is None else self._new_writer(frame, table)
        return cast_frame(frame, self._table.schema) if rules.casts else frame

    def _new_writer(self, frame: DataFrame, table: TableView) -> BatchWriter:
        return BatchWriter(
            table,
            self._log,
            commit_user=self._options.commit_user or _query_id(frame),
            tracks_changes=tracks_changes(table.store, self._options),
            observe=self._observe,
        )

    def _start(self, frame: DataFrame, batch_id: int) -> None:
        user = self._options.commit_user or _query_id(frame)
        recorder = Recorder.of(self._table.store)
        if recorder is not None:
            self._job = job_of_frame(frame, self._options.pipeline_name, user)
            recorder.opened(self._job.name, self._job.origin(batch_id, reads_beside(self._table.store, frame)).reads)
        self._writer = self._new_writer(frame, self._table)
        if compacts(self._table.store, self._options):
            self._compaction = BackgroundCompaction(
                self._table.store, SparkUnits(frame.sparkSession, self._table.store)
            )
        elif waits_for_others(self._table.store, self._options):
            self._dedicated = DedicatedCompaction(self._table.store)
        if not is_write_only(self._table.store, self._options):
            location = checkpoint_of(frame)
            place = None if location is None else CheckpointPlace(location=location, commit_user=user)
            self._housekeeping = Housekeeping(self._table.store, checkpoint=place)


def compacts(store: TableStore, options: WriterOptions) -> bool:
    """Whether a stream into this table compacts it, beside itself: unless ``write-only``."""
    return not is_write_only(store, options)


def run_parts(frame: DataFrame, spec: BatchSpec) -> list[BucketResult]:
    """Write a frame's rows in Spark tasks, every bucket in one of them."""
    table, options = spec.table, spec.table.options
    rows = aligned(frame, table.schema)
    local = LocalMerge.of(table.store, has_log=spec.log is not None)
    if local is not None:
        rows = local.applied(rows)
    if table.row_counts is not None:
        parallelism = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
        rows = shuffle_counted_rows(rows, table, min(options.bucket, parallelism))
    elif options.bucket > 0:
        keys = [table.schema.field(name) for name in table.schema.bucket_keys]
        parallelism = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
        rows = shuffle_by_bucket(
            rows,
            keys,
            options.bucket,
            min(options.bucket, parallelism),
            function=options.bucket_function,
        )
    elif table.store.has_dynamic_buckets:
        rows = rows.repartition(1)  # who assigns a key knows all the others
    answers = rows.mapInArrow(_PartTask(spec), "result string").collect()
    return [BucketResult.from_json(answer.result) for answer in answers]


class _PartTask:
    """What a Spark task runs. Its module is imported by the worker, so nothing but the specification travels."""

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results = write_part(self._spec, batches)
        yield pa.RecordBatch.from_pydict({"result": pa.array([result.to_json() for result in results], pa.string())})


def _query_id(frame: DataFrame) -> str:
    """The id that a streaming query keeps in its checkpoint.

    Raises:
        InvalidInputError: not called by a streaming query, or the query's checkpoint will be deleted when it stops.
    """
    if not hasattr(frame.sparkSession, "sparkContext"):
        raise InvalidInputError(
            "foreachBatch(sink(table)) needs the driver's own session, which Spark Connect does not give: "
            'fix=use writeStream.format("fluvial"), which keeps the same promises'
        )
    context = frame.sparkSession.sparkContext
    query_id = context.getLocalProperty(QUERY_ID)
    if not query_id:
        raise InvalidInputError(
            "not called by a streaming query: fix=use writeStream.foreachBatch(sink(table)), Table.append for a batch, "
            f"or set {COMMIT_USER_KEY} to a name that stays the same over restarts"
        )
    if is_temporary(checkpoint_of(frame)):
        raise InvalidInputError(NO_CHECKPOINT)
    return str(query_id)


def checkpoint_of(frame: DataFrame) -> str | None:
    """The checkpoint location of the streaming query whose micro-batch a frame is; None when it is of none."""
    query = running_query(frame)
    return None if query is None else query.checkpoint


def is_temporary(checkpoint: str | None) -> bool:
    """Whether Spark made up the checkpoint location: such a directory is deleted when the query stops."""
    return checkpoint is not None and checkpoint.rstrip("/").rsplit("/", 1)[-1].startswith(_TEMPORARY)
