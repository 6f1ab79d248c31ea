"""The runner of a stream's session that writes micro-batches in the driver: no shuffle, no other process.

A batch that does not fit into the memory of its threads is written by Spark tasks, before a row of it is written here;
so are those that follow it, for a while.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engine.kafka.dead_letters import LETTERS
from engine.runtime.steps import Step, StepEvent
from engine.spark_internals.session import heap_bytes
from engine.types.rows import UNAVAILABLE_COLUMN
from engine.types.spark_types import aligned
from engine.write.batch_part import BatchSpec, BucketResult
from engine.write.driver.bucket_threads import compact_in_threads, write_in_threads
from engine.write.driver.file_rows import NotAsTheyAreError
from engine.write.driver.frame_rows import collect_rows
from engine.write.driver.source_rows import read_rows, scan_of
from engine.write.local_merge import LocalMerge
from engine.write.spark_runner import SparkRunner, losing_as_conflict
from engine.write.truncates import check_not_truncated
from engine.write.unavailable.filling import Refuse
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.options.table.common import MIB
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from logstore.format.source.old_keys import is_old_key

logger = logging.getLogger("fluvial.sink")

_MOST_BATCHES: Final = 64  # for tasks, before the driver looks again
_HEAP_SHARE: Final = 8  # a task's rows are on the heap as rows, as its result, and on their way
_ALONE_ROWS: Final = 5_000  # less work than starting threads; with a log they wait for the broker side by side
_LEAST_BYTES: Final = 4 * MIB
_MOST_BYTES: Final = 256 * MIB


class DriverRunner:
    """Threads of this process, as many as the local master has cores; Spark tasks for what is too large."""

    def __init__(self, spark: SparkSession, *, refuse: Refuse | None = None) -> None:
        """Nothing is started.

        Args:
            spark: the session.
            refuse: see ``BatchSpec``.
        """
        self._refuse = refuse
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._partition_bytes = min(max(heap_bytes(spark) // (_HEAP_SHARE * self._cores), _LEAST_BYTES), _MOST_BYTES)
        self._tasks = SparkRunner(spark, refuse=refuse)
        self._turns = Turns()
        self._reads_source: bool | None = None  # None: not known yet

    def write(self, spec: BatchSpec, rows: DataFrame) -> list[BucketResult]:
        """Implements ``Runner.write``."""
        if not self._turns.driver_is_next():
            return self._tasks.write(spec, rows)
        options = spec.table.options
        threads = max(1, min(self._cores, options.bucket))
        most_bytes: int = options.write_buffer_bytes * threads
        with losing_as_conflict(spec):
            found = self._rows(spec, rows, most_bytes)
        if found is None:
            count = self._turns.hand_over()
            logger.info(
                "tasks write a batch that is too large for the driver: table=%s batch=%d most_bytes=%d next_batches=%d",
                spec.table.name, spec.batch_id, most_bytes, count,
            )  # fmt: skip
            return self._tasks.write(spec, rows)
        check_not_truncated(found, spec.table.name, spec.table.schema)
        self._turns.keep()
        count = sum(batch.num_rows for batch in found)
        spec.observe(StepEvent(step=Step.ROWS_COLLECTED, batch_id=spec.batch_id, facts={"rows": count}))
        found = without_empty_marks(found, spec.table.schema)
        has_gaps = bool(found) and UNAVAILABLE_COLUMN in found[0].schema.names
        if not has_gaps:  # a row with gaps needs those before it
            local = LocalMerge.of(spec.table.store, has_log=spec.log is not None)
            found = found if local is None else list(local(iter(found)))
        spec = replace(spec, refuse=self._refuse, keeps_writers=True)
        is_tiny = spec.log is None and sum(batch.num_rows for batch in found) <= _ALONE_ROWS
        is_alone = is_tiny or (has_gaps and _has_old_keys(found))
        return write_in_threads(spec, found, most_threads=1 if is_alone else threads)

    def _rows(self, spec: BatchSpec, rows: DataFrame, most_bytes: int) -> list[pa.RecordBatch] | None:
        """All rows of a batch; None: they are too large."""
        asked = aligned(rows, spec.table.schema)
        scan = scan_of(rows) if self._reads_source is not False and asked is rows else None
        if self._reads_source is None and scan is not None:
            logger.info("the driver reads and decodes %s itself: table=%s", scan.source, spec.table.name)
        self._reads_source = scan is not None  # a query's plan does not change
        if scan is not None:
            with suppress(NotAsTheyAreError):  # of this batch: the next one's files may be
                part = rows.sparkSession.sparkContext.getLocalProperty(LETTERS)
                return read_rows(scan, rows.schema, threads=self._cores, most_bytes=most_bytes, letters=part)
        return collect_rows(asked, most_bytes=most_bytes, most_partition_bytes=self._partition_bytes)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Implements ``Runner.compact``."""
        return compact_in_threads(store, tasks, most_threads=self._cores - 1)


def without_empty_marks(batches: list[pa.RecordBatch], schema: TableSchema) -> list[pa.RecordBatch]:
    """The batches without ``_unavailable``, where no row lacks a value: then no row needs those before it.

    Args:
        batches: with the same columns.
        schema: of the table, which may have a column of this name. With it a delete may lack NOT NULL columns.
    """
    if not batches or UNAVAILABLE_COLUMN in schema.column_names or UNAVAILABLE_COLUMN not in batches[0].schema.names:
        return batches
    if any(not field.type.nullable and field.name not in schema.primary_keys for field in schema.fields):
        return batches
    if any(each.column(UNAVAILABLE_COLUMN).null_count < each.num_rows for each in batches):
        return batches
    return [each.drop_columns([UNAVAILABLE_COLUMN]) for each in batches]


def _has_old_keys(batches: Sequence[pa.RecordBatch]) -> bool:
    """Whether an update changed a key, so that its row needs values of the old key, which may be in any bucket."""
    marks = [batch.column(UNAVAILABLE_COLUMN) for batch in batches]
    return any(is_old_key(each.flatten().cast(pa.string())).any() for each in marks)


class Turns:
    """Whether the driver writes the next batch: not after one that was too large, then after twice as many."""

    def __init__(self) -> None:
        """The driver is next."""
        self._left = 0  # batches for tasks
        self._next = 1

    def driver_is_next(self) -> bool:
        """Count a batch."""
        if self._left == 0:
            return True
        self._left -= 1
        return False

    def hand_over(self) -> int:
        """A batch was too large; how many after it are for tasks."""
        self._left = self._next
        self._next = min(2 * self._next, _MOST_BATCHES)
        return self._left

    def keep(self) -> None:
        """A batch was small enough."""
        self._next = 1
