"""The streaming sink: ``changes.writeStream.foreachBatch(sink(table)).option("checkpointLocation", …).start()``.

Every micro-batch lands in the table's files and in its log exactly once, through restarts, replays, speculative and
zombie tasks. The way of one micro-batch: here → ``session`` → ``batch_writer`` (driver) → ``spark_runner`` (bucket to
task) → ``batch_part`` (task) → one commit.
"""

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from engine.compaction.background import CompactionFailures
from engine.compaction.dedicated import is_write_only
from engine.kafka.dead_letters import LettersPart
from engine.lineage.batch_origin import reads_beside
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from engine.lineage.stream_job import QUERY_ID, RecordedRun, job_of_frame, report_tasks, running_query
from engine.log.table_log import TableLog
from engine.request.branch_choice import at_branch
from engine.request.commit_handle import CommitHandle
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.runtime.step_file import StepFile
from engine.runtime.steps import Observer, ignore
from engine.spark_internals.session import JvmError, jvm_query, when_query_ends
from engine.types.spark_types import as_spelled, cast_frame, fields_of_frame
from engine.write.batch_writer import NO_PROPERTIES
from engine.write.driver.driver_runner import runner_of_sink
from engine.write.emptying import empty_before, place_of_truncate, rows_behind, sending_letters
from engine.write.run_lock import hold_checkpoint, release_checkpoint
from engine.write.schema_evolution import evolve_schema, merge_rules
from engine.write.session import Upkeep, WriteSession
from engine.write.truncates import TruncatedBatchError
from engine.write.unavailable.filling import Refuse
from filestore.commit.table_commit import CommitResult
from filestore.evolution.schema_merge import MergeRules
from filestore.schema.validation import check_writable
from filestore.table import FileTable
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.sink")

COMMIT_USER_KEY: Final = WriterOptions.commit_user.key
_TEMPORARY: Final = "temporary-"  # prefix of the checkpoints that Spark makes up
NO_CHECKPOINT: Final = (
    "the query has no checkpoint location, so a restart would write everything again: "
    'fix=set .option("checkpointLocation", …)'
)


def sink(
    table: Any,
    options: Mapping[str, str] | None = None,
    *,
    observe: Observer = ignore,
    refuse: Refuse | None = None,
) -> "StreamSink":
    """A function for ``foreachBatch`` that writes each micro-batch to a table, exactly once.

    Frames hold the table's columns, in any order, and optionally ``_row_kind`` (+I -U +U -D, and -T for a truncate of
    the source, which empties the table) and ``_unavailable`` (names of columns that the source left out, whose value is
    that of the row before); nullable columns may be missing. Rows of one key must come from one input task in their
    order, or the table needs a ``sequence.field``.

    Args:
        table: from ``Catalog.table``.
        options: of this writer alone: ``branch`` (unless the table was opened on one),
            ``change-tracking`` (false: nothing goes to the log), ``write-only`` (true: another process compacts and
            expires), ``pipeline.name`` (the job in the catalog's lineage), ``trace.directory`` (gets the times of its
            steps), ``write.stream.commit-user`` (default: the query's id), ``log.on-orphan-batch``, ``log.kafka.*``,
            ``write.merge-schema`` and its parts (the table's schema grows with the frames').
        observe: called with each step, in tasks too, so it must be picklable.
        refuse: called in tasks with updates whose missing values no row has; these updates are not written. None: they
            fail the batch.

    Returns:
        The function; it serves one run of one query. ``close`` stops its threads.

    Raises:
        InvalidInputError: an unknown option, or a value that cannot be read. When the query runs: no checkpoint
            location, one that a query of another process has, or a frame that does not fit the table.
        TakenOverError: when the query runs, and another run of it has begun since: this one ends.
    """
    writer = WriterOptions.parse(options, SINK_KEYS, "sink option")
    return StreamSink(at_branch(table.files, writer.branch), writer, observe, refuse)


class StreamSink:
    """The function for ``foreachBatch``. It serves one run of one query, and starts with its first micro-batch."""

    newest: ClassVar[WeakValueDictionary[tuple[str, ...], "StreamSink"]] = WeakValueDictionary()
    """Newest sink of each (table, query) in this process. An unclosed sink keeps its threads until Py4J drops its last
    reference to it."""

    def __init__(
        self, table: FileTable, options: WriterOptions, observe: Observer, refuse: Refuse | None = None
    ) -> None:
        """Made by ``sink``."""
        check_writable(table.store.schema)
        TableLog.of(table, options)  # reports wrong options before the query starts
        self._table = table
        self._options = options
        steps = StepFile.of(options.trace_directory, table.name, observe)
        self._observe = steps or observe
        self._triggers = None if steps is None else TriggerTimes(steps)
        self._refuse = refuse
        self._rules = merge_rules(table.store, options)
        self._merged: T.StructType | None = None  # the columns of the newest frame that the table holds
        self._session: WriteSession[DataFrame] | None = None  # from the first micro-batch on
        self._last_commit: CommitHandle | None = None
        self._run: RecordedRun | None = None  # None: no lineage, or no micro-batch yet

    def __call__(self, frame: DataFrame, batch_id: int, notes: Mapping[str, str] = NO_PROPERTIES) -> None:
        """Write one micro-batch. ``notes``: properties of its snapshot, besides those of lineage."""
        frame = as_spelled(frame, self._table.schema)
        if self._rules is not None:
            frame = self._merge(frame, self._rules)
        if self._session is None:
            self._session = self._opened(frame, batch_id)
        if self._triggers is not None:
            self._triggers.note_earlier(frame)
        try:
            with sending_letters(frame, LettersPart.BEFORE):
                done = self._session.write(frame, batch_id=batch_id, notes=notes)
        except TruncatedBatchError:
            done = self._written_behind_truncate(self._session, frame, batch_id, notes)
        self._last_commit = CommitHandle.of(done, self._table.store)

    def close(self) -> None:
        """Wait for the compaction that is running, and start no other. Call it after the query, before Spark stops."""
        if self._session is not None:
            self._session.close()
        if self._triggers is not None:
            self._triggers.close()
        if self._run is not None:
            self._run.close()

    @property
    def last_commit(self) -> CommitHandle | None:
        """The handle of the newest micro-batch, to be passed on to readers; None before the first."""
        return self._last_commit

    @property
    def compaction_failures(self) -> CompactionFailures:
        """Compactions of this run that failed: look at them when a table gets slow to read."""
        return CompactionFailures() if self._session is None else self._session.compaction_failures

    def _written_behind_truncate(
        self, session: WriteSession[DataFrame], frame: DataFrame, batch_id: int, notes: Mapping[str, str]
    ) -> CommitResult:
        """The batch without what came before a truncate of the source, behind a commit that empties the table."""
        with sending_letters(frame, LettersPart.NONE):
            place = place_of_truncate(frame, self._table.name)
        session.check_run(f"truncate batch={batch_id}")
        session.close()
        self._session = None  # also for what follows: this one's runner has learned from rows that are not the source's
        empty_before(self._table, self.commit_user(frame), batch_id)
        logger.info("the source was truncated, and so is the table: table=%s batch=%d", self._table.name, batch_id)
        rest = rows_behind(frame, place)
        with self._opened(rest, batch_id) as last, sending_letters(frame, LettersPart.BEHIND):
            return last.write(rest, batch_id=batch_id, notes=notes)

    def commit_user(self, frame: DataFrame) -> str:
        """The id of the query that gives a micro-batch, or what was set instead. Raises: InvalidInputError."""
        return self._options.commit_user or _query_id(frame)

    def _merge(self, frame: DataFrame, rules: MergeRules) -> DataFrame:
        """The frame as the table holds it; its schema is changed before any row of the batch is written."""
        if frame.schema != self._merged:
            if self._session is not None:
                self._session.check_run("schema")
            table = evolve_schema(self._table, fields_of_frame(frame.schema, self._table.schema), rules)
            self._merged = frame.schema
            if table is not self._table:
                self._table = table
                if self._session is not None:
                    self._session.continue_at(table)
        return cast_frame(frame, self._table.schema) if rules.casts else frame

    def _opened(self, frame: DataFrame, batch_id: int) -> WriteSession[DataFrame]:
        user = self.commit_user(frame)
        _hold(frame)
        store = self._table.store
        recorder = Recorder.of(store)
        job = None if recorder is None else job_of_frame(frame, self._options.pipeline_name, user)
        if self._run is None and recorder is not None and job is not None:
            self._run = RecordedRun(recorder, job)
            self._run.origin(batch_id, reads_beside(store, frame))
        key = (store.paths.root, store.paths.branch, user)
        former, self.newest[key] = self.newest.get(key), self
        if former is not None and former._session is not None:
            former._session.close()
        return WriteSession(
            self._table,
            runner_of_sink(frame.sparkSession, self._options, self._table.name, refuse=self._refuse),
            commit_user=user,
            options=self._options,
            upkeep=Upkeep.STREAM,
            origin=self._origin,
            checkpoint=None if is_write_only(store, self._options) else checkpoint_of(frame),
            observe=self._observe,
        )

    def _origin(self, batch_id: int, frame: DataFrame | None) -> CommitOrigin | None:
        if self._run is None or frame is None:
            return None
        store = self._table.store
        origin = self._run.origin(batch_id, reads_beside(store, frame))
        report_tasks(frame, origin.reads, store)
        return origin


def _query_id(frame: DataFrame) -> str:
    """The id of a streaming query, which its checkpoint keeps.

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


def _hold(frame: DataFrame) -> None:
    """Hold the checkpoint of a frame's query until that ends. Raises: InvalidInputError: another process has it."""
    query = running_query(frame)
    if query is None or is_temporary(query.checkpoint):
        return
    if hold_checkpoint(query.checkpoint, query.run_id):
        release = partial(release_checkpoint, query.checkpoint, query.run_id)
        when_query_ends(frame.sparkSession, query.query_id, release)


def checkpoint_of(frame: DataFrame) -> str | None:
    """The checkpoint location of the streaming query that gave a frame; None: no query did."""
    query = running_query(frame)
    return None if query is None else query.checkpoint


def is_temporary(checkpoint: str | None) -> bool:
    """Whether Spark made up the checkpoint location: such a directory is deleted when the query stops."""
    return checkpoint is not None and checkpoint.rstrip("/").rsplit("/", 1)[-1].startswith(_TEMPORARY)


# ---- The times of a query's triggers, by Spark's own progress: a trigger is known when the next one runs


_QUERY_ID: Final = "sql.streaming.queryId"


class TriggerTimes:
    """Writes down the triggers of the query that gives a sink its frames."""

    def __init__(self, steps: StepFile) -> None:
        """Nothing is written yet."""
        self._steps = steps
        self._query: Any = None
        self._newest = -1

    def note_earlier(self, frame: DataFrame) -> None:
        """Write down the trigger before that of this frame."""
        if self._query is None:
            context = frame.sparkSession.sparkContext
            self._query = jvm_query(frame.sparkSession, context.getLocalProperty(_QUERY_ID))
        self._note()

    def close(self) -> None:
        """Write down the last trigger; the query may have ended, and Spark too."""
        try:
            self._note()
        except (JvmError, OSError):
            return

    def _note(self) -> None:
        progress = None if self._query is None else self._query.lastProgress()
        if progress is None:
            return
        found = json.loads(progress.json())
        if found["batchId"] > self._newest:
            self._newest = found["batchId"]
            began = datetime.fromisoformat(found["timestamp"])
            self._steps.add_trigger(found, int(began.timestamp() * 1000))
