"""Compaction tasks as Spark tasks, never on all cores at once: a batch must always find one."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine.runtime.task_host import TaskHost
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore

_SLOT = "_task"


class SparkUnits:
    """Runs compaction tasks of one table in Spark. Called from a thread of its own."""

    def __init__(self, spark: SparkSession, store: TableStore) -> None:
        """Remember where to run."""
        self._spark = spark
        self._table = store

    def __call__(self, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Carry out tasks and return what they wrote, in their order."""
        at_once = max(1, min(len(tasks), self._spark.sparkContext.defaultParallelism - 1))
        slots = self._spark.range(0, len(tasks), 1, at_once).select(F.col("id").alias(_SLOT))
        answers = slots.mapInArrow(_CompactionSlots(self._table, tasks), "message string").collect()
        return [CommitMessage.from_json(answer.message) for answer in answers]


class _CompactionSlots:
    """What a Spark task runs."""

    def __init__(self, store: TableStore, tasks: Sequence[CompactionTask]) -> None:
        self._table = store
        self._tasks = tasks
        self._host = TaskHost.here()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._host.check(self._table)
        for batch in batches:
            for slot in batch.column(0).to_pylist():
                message = run_task(self._table, self._tasks[slot])
                yield pa.RecordBatch.from_pydict({"message": pa.array([message.to_json()], pa.string())})
