"""The lineage of a streaming query: the name of its job, and what each of its batches had read.

The job is ``pipeline.name``, given to the sink (and the source) or set in the session; else the name of the query; else
its id, which its checkpoint keeps. The barrier is the micro-batch.

The checkpoint has what a batch read before the batch starts: Spark stores the end of each source, and Fluvial's ends
name the table and snapshot. So a sink can report both sides. Where it cannot, because the sink is not Fluvial's or the
checkpoint is elsewhere, the reading tasks report their own reads.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import DataFrame

from engine.checkpoint.checkpoint_files import checkpoint_root, offsets_of
from engine.lineage.batch_origin import fitting_job, session_job
from engine.lineage.origins import CommitOrigin, SourceRead, begins_of_offsets, newest_reads, reads_of_offsets
from engine.lineage.recording import Recorder
from engine.spark_internals.session import jvm_query
from filestore.table_store import TableStore
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.lineage")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"
_REPORTED_BY_SINK: Final = "fluvial.lineage.reported-by-sink"
# Source: Spark's StreamExecution.getBatchDescriptionString
_NAME: Final = re.compile(r"(?P<name>.*)\nid = [0-9a-f-]{36}\nrunId = ", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """A streaming query of this driver."""

    name: str | None
    query_id: str
    checkpoint: str  # its resolved location
    run_id: str  # of this start


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """A job with the micro-batches of a query as barriers."""

    name: str
    checkpoint: str | None  # location; None: unknown
    run: str = ""  # id of the query, which a new checkpoint changes; "": the commit user
    run_id: str = ""  # of this start of the query; "": not known

    def origin(self, batch_id: int, beside: Iterable[SourceRead] = ()) -> CommitOrigin:
        """The origin of the rows of a batch, without its streams' reads if its checkpoint cannot be read here.

        Args:
            batch_id: the barrier.
            beside: what it read besides its streams.
        """
        reads = newest_reads((*self._reads(batch_id), *beside))
        return CommitOrigin(job=self.name, barrier_id=batch_id, reads=reads, run=self.run)

    def start(self, batch_id: int, reads: Iterable[SourceRead]) -> tuple[SourceRead, ...]:
        """Where a run of the query begins: what was read before, else what its first batch reads.

        Args:
            batch_id: the first batch of the run.
            reads: of this batch.
        """
        known = self._reads(batch_id - 1) if batch_id else self._reads(0, begins_of_offsets)
        before = {(each.warehouse, each.table): each for each in known}
        return tuple(before.get((each.warehouse, each.table), each) for each in reads)

    def _reads(
        self, batch_id: int, of: Callable[[Iterable[Any]], tuple[SourceRead, ...]] = reads_of_offsets
    ) -> tuple[SourceRead, ...]:
        if self.checkpoint is None:
            return ()
        try:
            return of(offsets_of(checkpoint_root(self.checkpoint), self.checkpoint, batch_id).sources)
        except (FluvialError, OSError, KeyError, TypeError, ValueError) as error:
            logger.debug("a sink cannot determine what its batch read: checkpoint=%s reason=%s", self.checkpoint, error)
            return ()


class RecordedRun:
    """A run of a streaming query, whose starts are recorded: of each table before the first batch that reads it.

    Not thread-safe.
    """

    def __init__(self, recorder: Recorder, job: StreamJob) -> None:
        """The record of one run of the query."""
        self._recorder = recorder
        self.job: Final = job
        self._started: set[tuple[str, str]] | None = None

    def origin(self, batch_id: int, beside: Iterable[SourceRead] = ()) -> CommitOrigin:
        """See ``StreamJob.origin``. Raises: as ``Recorder.opened``."""
        origin = self.job.origin(batch_id, beside)
        new = tuple(each for each in origin.reads if (each.warehouse, each.table) not in (self._started or ()))
        if self._started is None:
            starts = self.job.start(batch_id, new)
            self._recorder.opened(self.job.name, new, starts, run_id=self.job.run_id)
            self._started = set()
        elif new:  # they were empty until now
            self._recorder.started(self.job.name, new, run_id=self.job.run_id)
        self._started |= {(each.warehouse, each.table) for each in new}
        return origin

    def close(self) -> None:
        """See ``Recorder.closed``."""
        self._recorder.closed(self.job.name)


def running_query(frame: DataFrame) -> RunningQuery | None:
    """The streaming query of a micro-batch's frame; None for other frames."""
    query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    found = jvm_query(frame.sparkSession, query_id)
    if found is None:
        return None
    checkpoint = str(found.resolvedCheckpointRoot())
    return RunningQuery(name=found.name() or None, query_id=query_id, checkpoint=checkpoint, run_id=str(found.runId()))


def job_of_frame(frame: DataFrame, job: str | None, commit_user: str) -> StreamJob:
    """The job of the query of a micro-batch's frame.

    Args:
        frame: in ``foreachBatch``.
        job: that the sink names.
        commit_user: of the sink; names the job of frames that no query gives.
    """
    query = running_query(frame)
    session = frame.sparkSession
    name = job or session_job(session) or (query.name if query is not None else None)
    run = session.sparkContext.getLocalProperty(QUERY_ID) or commit_user
    found = StreamJob(name=fitting_job(name or run), checkpoint=None, run=fitting_job(run))
    return found if query is None else replace(found, checkpoint=query.checkpoint, run_id=query.run_id)


def report_tasks(frame: DataFrame, reads: Iterable[SourceRead], sink: TableStore) -> None:
    """Let the tasks of a batch know which sources the sink reports: those of its own catalog, and itself."""
    warehouse = None if sink.catalog is None else sink.catalog.warehouse
    reported = sorted({each.table for each in reads if each.warehouse == warehouse} | {sink.name})
    frame.sparkSession.sparkContext.setLocalProperty(_REPORTED_BY_SINK, json.dumps([warehouse, reported]))


def task_job(given: str | None) -> tuple[str, int] | None:
    """Job and batch of the task; None outside of a streaming query.

    Args:
        given: ``pipeline.name`` of the source or sink.
    """
    properties = _properties()
    query_id, batch_id = properties(QUERY_ID), properties(BATCH_ID)
    if query_id is None or batch_id is None:
        return None
    described = _NAME.match(properties(_DESCRIPTION) or "")
    return fitting_job(given or (described["name"] if described else "") or query_id), int(batch_id)


def report_read(store: TableStore, read: SourceRead, given: str | None, start: SourceRead | None = None) -> None:
    """Record what the batch of this task has read, unless the batch's sink does.

    Args:
        store: the table.
        read: table and snapshot.
        given: ``pipeline.name`` of the source.
        start: where the run of the query began in this table; None: that is recorded.

    Raises:
        UnavailableError: the store does not answer, and ``lineage.on-unavailable=fail``.
    """
    place = task_job(given)
    if place is None or read.snapshot_id == 0 or _is_reported_by_sink(read):
        return
    recorder = Recorder.of(store)
    if recorder is not None:
        run = fitting_job(_properties()(QUERY_ID))
        origin = CommitOrigin(job=place[0], barrier_id=place[1], reads=(read,), run=run)
        starts = () if start is None else (start,)
        recorder.has_read(origin, starts, run_id=fitting_job(_properties()(RUN_ID) or ""))


def _is_reported_by_sink(read: SourceRead) -> bool:
    """Whether the sink of the task's batch reports a source."""
    text = _properties()(_REPORTED_BY_SINK)
    if text is None:
        return False
    warehouse, tables = json.loads(text)
    return bool(warehouse == read.warehouse and read.table in tables)


def _properties() -> Any:
    context = TaskContext.get()
    return (lambda key: None) if context is None else context.getLocalProperty
