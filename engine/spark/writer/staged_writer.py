"""``df.write.format("fluvial")`` and ``df.writeStream.format("fluvial")``: exactly once, however the frame is spread.

Spark asks a Python data source for no distribution of rows, so every task has rows of any bucket. It stages them
(``staged_rows``), and the process in which Spark calls ``commit`` writes them into the table (``staged_commit``); or it
writes their data files itself (``task_files``), and that process only publishes: ``writing_way`` says when. That
process is neither the driver nor a task, and ``abort`` is called in yet another: all they know is the options and what
the tasks returned.

A streaming query is known by the id in its checkpoint. Tasks get it from Spark and pass it on: the committing process
need not reach the checkpoint.

Save modes error and ignore, and ``partitionBy`` of a batch, are refused by Spark; ``partitionBy`` of a stream never
gets here. Rows go to the partitions that the table was made with.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from engine.lineage.stream_job import BATCH_ID, QUERY_ID, RUN_ID, task_job
from engine.log.table_log import TableLog
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.runtime.task_host import TaskHost
from engine.spark.write_options import PARTITION_KEY, WriteOptions
from engine.spark.writer.staged_commit import StreamSessions, append_batch, overwrite_batch
from engine.spark.writer.staged_rows import StagedFile, clear_staged, delete_staged
from engine.spark.writer.task_files import FilesOfTask, TaskPlan
from engine.spark.writer.writing_way import FilesBy, FilesChoice
from engine.write.sink import NO_CHECKPOINT
from filestore.commit.query_run import QueryRun
from filestore.schema.validation import check_writable
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.batch")

_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)  # object: before Spark 4.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTask(WriterCommitMessage):
    """The answer of a task, for the committing process."""

    file: StagedFile | FilesOfTask | None  # None: the task had no rows
    commit_user: str
    run_id: str  # of this start of the query; of a batch job ""
    job: str = ""  # in the catalog's lineage; of a batch job ""
    query_id: str = ""  # of a batch job ""


class StagedBatchWriter(DataSourceArrowWriter):
    """One batch job. Made in Spark's planner, sent to tasks and to the committing process."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Check what can be checked before a row is computed.

        Args:
            options: the table and how to write it.
            schema: the frame's columns.
            overwrite: replace rows instead of adding some.

        Raises:
            InvalidInputError: the frame does not fit, the table cannot be written, or an option has no such value.
        """
        if options.partition is not None and not overwrite:
            raise InvalidInputError(f'option is for mode("overwrite") only: {PARTITION_KEY}={dict(options.partition)}')
        self._options = _checked(options, schema)
        self._overwrite = overwrite
        self._plan = task_plan(self._options, replaces=overwrite)
        self._commit_user = options.table.store.new_commit_user()
        self._host = TaskHost.here()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of one task, or write their files."""
        self._host.check(self._options.table.store)
        rows = self._options.rows(iterator)
        file, choice = self._plan.write(rows, commit_user=self._commit_user, batch_id=0, partition=_partition())
        _report(self._options, choice, batch_id=None)
        return StagedTask(file=file, commit_user=self._commit_user, run_id="")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible."""
        options, files = self._options, _files(messages)
        if self._overwrite:
            overwrite_batch(
                options.table, options.given, files, commit_user=self._commit_user, partition=options.partition
            )
        else:
            append_batch(options.table, options.given, files, commit_user=self._commit_user)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was staged, by tasks that were killed too."""
        clear_staged(self._options.table.store, self._commit_user)


class StagedStreamWriter(_StreamWriter):
    """One micro-batch. Made in Spark's planner for the tasks, and again for each commit or abort in another process."""

    sessions: ClassVar[StreamSessions] = StreamSessions()  # of the process that commits: Spark keeps it for all batches

    def __init__(
        self, options: WriteOptions, schema: StructType, overwrite: bool, *, observe: Observer = ignore
    ) -> None:
        """Check what can be checked before a row is computed.

        Args:
            options: the table and how to write it.
            schema: the frame's columns.
            overwrite: Spark's word for outputMode complete.
            observe: called with each step, in tasks and in the committing process; must be picklable.

        Raises:
            InvalidInputError: an overwriting stream, one that does not keep its place, a frame that does not fit, a
                table that cannot be written, an option that has no such value, or Spark 4.0, whose sinks in Python get
                no Arrow batches.
        """
        if _StreamWriter is object:
            raise InvalidInputError(
                f'writeStream.format("fluvial") needs Spark 4.1: spark={pyspark.__version__} '
                "fix='use Spark 4.1, or writeStream.foreachBatch(sink(table))'"
            )
        if overwrite:
            raise InvalidInputError(
                f"a stream cannot overwrite a table: table={options.table.name} outputMode=complete "
                "fix=use outputMode append, or foreachBatch and overwrite a batch"
            )
        if not options.has_checkpoint:
            raise InvalidInputError(NO_CHECKPOINT)
        self._options = _checked(options, schema)
        self._observe = observe
        self._plan = task_plan(self._options, observe=observe)
        self._host = TaskHost.here()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
        """Stage the rows of one task, or write their files; a run's first one takes over from earlier runs."""
        self._host.check(self._options.table.store)
        query_id, run_id, batch_id = _place()
        given = self._options.given
        user, named = given.commit_user or query_id, task_job(given.pipeline_name)
        if run_id:
            QueryRun(store=self._options.table.store, commit_user=user, run_id=run_id).take_over(batch_id)
        rows = self._options.rows(iterator)
        file, choice = self._plan.write(rows, commit_user=user, batch_id=batch_id, partition=_partition())
        _report(self._options, choice, batch_id=batch_id)
        self._observe(StepEvent(step=Step.ROWS_STAGED, batch_id=batch_id))
        job = query_id if named is None else named[0]
        return StagedTask(file=file, commit_user=user, run_id=run_id, job=job, query_id=query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows visible, unless this batch is committed already."""
        tasks = _tasks(messages)
        if tasks:
            self.sessions.commit(
                self._options.table,
                self._options.given,
                _files(messages),
                commit_user=tasks[0].commit_user,
                run_id=tasks[0].run_id,
                batch_id=batchId,
                job=tasks[0].job,
                query_id=tasks[0].query_id,
                checkpoint=self._options.checkpoint,
                observe=self._observe,
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the finished tasks left; what dead ones left is deleted when a later batch is committed."""
        store, left = self._options.table.store, _files(messages)
        delete_staged(store, [each for each in left if isinstance(each, StagedFile)])
        for each in left:
            if isinstance(each, FilesOfTask):
                each.attempt.delete(store)


def task_plan(options: WriteOptions, *, replaces: bool = False, observe: Observer = ignore) -> TaskPlan:
    """How the tasks of a writer write.

    Args:
        options: of the writer.
        replaces: rows of the table, instead of adding some: these do not go to the log.
        observe: called with each step.
    """
    has_log = not replaces and TableLog.of(options.table, options.given) is not None
    wanted = None if options.given.files_by == "auto" else FilesBy(options.given.files_by)
    return TaskPlan(table=options.table, has_log=has_log, wanted=wanted, replaces=replaces, observe=observe)


def _checked(options: WriteOptions, schema: StructType) -> WriteOptions:
    """The options with the table at a schema that holds the frame's rows."""
    check_writable(options.table.store.schema)
    TableLog.of(options.table, options.given)
    fitting = options.for_frame(schema)
    fitting.check_frame(schema)
    return fitting


def _tasks(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    """The answers of finished tasks, in the order of the frame's partitions."""
    return [message for message in messages if isinstance(message, StagedTask)]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile | FilesOfTask]:
    return [task.file for task in _tasks(messages) if task.file is not None]


def _partition() -> int:
    """Number of the task among those of the frame; 0 outside of Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _report(options: WriteOptions, choice: FilesChoice, batch_id: int | None) -> None:
    logger.info(
        "files of a task: table=%s batch=%s task=%d by=%s reason='%s'",
        options.table.name, batch_id, _partition(), choice.by.value, choice.reason,
    )  # fmt: skip


def _place() -> tuple[str, str, int]:
    """Query, run and batch that the task belongs to. Source: Spark's StreamExecution and MicroBatchExecution."""
    context = TaskContext.get()
    assert context is not None
    query_id, batch_id, run_id = (context.getLocalProperty(key) for key in (QUERY_ID, BATCH_ID, RUN_ID))
    assert query_id is not None
    assert batch_id is not None
    return query_id, run_id or "", int(batch_id)
