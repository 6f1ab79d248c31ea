"""The runner of a write session that uses Spark tasks: each bucket of a frame is written by one task."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine.compaction.spark_units import SparkUnits
from engine.runtime.spark_messages import fluvial_error, is_raised_in, raised_by_expression
from engine.runtime.task_host import TaskHost
from engine.types.rows import UNAVAILABLE_COLUMN
from engine.types.spark_types import aligned
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.local_merge import LocalMerge
from engine.write.routing import shuffle_by_bucket, shuffle_counted_rows
from engine.write.truncates import IS_TRUNCATED, TruncatedBatchError, failing_when_truncated
from engine.write.unavailable.filling import Refuse
from engine.write.unavailable.moved_rows import MovedBetweenTasksError
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError

logger = logging.getLogger("fluvial.sink")


class SparkRunner:
    """Spark tasks of one session."""

    def __init__(self, spark: SparkSession, *, refuse: Refuse | None = None) -> None:
        """Work in this session; it compacts beside the batches.

        Args:
            spark: the session.
            refuse: see ``BatchSpec``.
        """
        self._spark = spark
        self._refuse = refuse

    def write(self, spec: BatchSpec, rows: DataFrame) -> list[BucketResult]:
        """Implements ``Runner.write``."""
        spec = replace(spec, refuse=self._refuse, task_count=_task_count(rows, spec))
        try:
            return self._written(spec, rows)
        except PySparkException as error:
            if raised_by_expression(error) == IS_TRUNCATED:
                raise TruncatedBatchError.of(spec.table.name) from error
            if spec.task_count == 1 or not is_raised_in(error, MovedBetweenTasksError):
                raise
        logger.info(
            "one task writes the batch, because rows have values of rows that other tasks have: table=%s batch=%d",
            spec.table.name, spec.batch_id,
        )  # fmt: skip
        return self._written(replace(spec, task_count=1), rows)

    def _written(self, spec: BatchSpec, rows: DataFrame) -> list[BucketResult]:
        with losing_as_conflict(spec):
            answers = _shuffled(rows, spec).mapInArrow(_PartTask(spec), "result string").collect()
        return [BucketResult.from_json(answer.result) for answer in answers]

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Implements ``Runner.compact``."""
        return SparkUnits(self._spark, store)(tasks)


@contextmanager
def losing_as_conflict(spec: BatchSpec) -> Iterator[None]:
    """Around a Spark job of a batch: what a task raised because it lost to another writer is raised here as such."""
    try:
        yield
    except PySparkException as error:
        known = fluvial_error(error, f"write failed: table={spec.table.name}")
        if isinstance(known, ConflictError | OutcomeUnknownError):
            raise known from error
        raise


def _shuffled(frame: DataFrame, spec: BatchSpec) -> DataFrame:
    """The table's columns, all rows of a bucket in one partition."""
    table, options = spec.table, spec.table.options
    rows = failing_when_truncated(aligned(frame, table.schema), table.schema)
    local = LocalMerge.of(table.store, has_log=spec.log is not None)
    if local is not None and UNAVAILABLE_COLUMN not in rows.columns:  # a row with gaps needs those before it
        rows = local.applied(rows)
    bucket_count, task_count = options.bucket, spec.task_count
    if table.row_counts is not None:
        return shuffle_counted_rows(rows, table, task_count)
    if bucket_count > 0:
        keys = [table.schema.field(name) for name in table.schema.bucket_keys]
        return shuffle_by_bucket(rows, keys, bucket_count, task_count, function=options.bucket_function)
    return rows.repartition(1) if table.store.has_dynamic_buckets else rows  # one task assigns all keys to buckets


def _task_count(frame: DataFrame, spec: BatchSpec) -> int:
    """How many tasks have the buckets; one, if they are not fixed."""
    partitions = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return max(1, min(spec.table.options.bucket, partitions))


class _PartTask:
    """The function of a Spark task. The worker imports its module, so only the specification is pickled."""

    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec
        self._host = TaskHost.here()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._host.check(self._spec.table.store)
        results = write_part(self._spec.of_task(), batches)
        yield pa.RecordBatch.from_pydict({"result": pa.array([result.to_json() for result in results], pa.string())})
