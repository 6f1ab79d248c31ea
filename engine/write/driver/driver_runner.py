"""The runner of a stream's session that writes micro-batches in the driver: no shuffle, no other process.

A batch that does not fit into the memory of its threads is written by Spark tasks, before a row of it is written here;
so are those that follow it, for a while.
"""

import logging
import pickle
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from engine.kafka.dead_letters import LETTERS, ChosenLetters
from engine.request.writer_options import WriterOptions
from engine.runtime.spark_messages import is_result_too_large, raised_by_expression
from engine.runtime.steps import Step, StepEvent
from engine.spark_internals.batch_plans import ParquetScan, SourceScan, batch_scan
from engine.spark_internals.session import (
    JvmError,
    arrow_results,
    has_arrow_results,
    heap_bytes,
    most_rows_of,
    planned_bytes,
)
from engine.types.quoting import quoted
from engine.types.rows import UNAVAILABLE_COLUMN
from engine.types.spark_types import aligned
from engine.write.batch_part import BatchSpec, BucketResult
from engine.write.driver.bucket_threads import compact_in_threads, write_in_threads
from engine.write.driver.byte_budget import ByteBudget
from engine.write.driver.file_rows import NotAsTheyAreError, read_files
from engine.write.local_merge import LocalMerge
from engine.write.session import Runner
from engine.write.spark_runner import SparkRunner, losing_as_conflict
from engine.write.truncates import check_not_truncated
from engine.write.unavailable.filling import Refuse
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.options.table.common import MIB
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from logstore.format.source.old_keys import is_old_key
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


logger = logging.getLogger("fluvial.sink")


# ---- The rows of a Spark frame in this process as Arrow batches, if they are few enough: neither heap nor process
# grows
# Spark gives a process the rows of a task as one result, whatever its size. So the frame is limited in the JVM: its job
# fails at the first row of a partition that does not fit into a share of the heap. Where Spark knows that the files of
# a batch are small, there is no limit: that would only cost planning and generated code.


IS_OVER: Final = "fluvial: a partition is too large for the driver"
"""In the error of a job: a row did not fit."""
_FIXED_BYTES: Final = 16  # of a value at most, but for text, binary and what is nested
_PLACE_BITS: Final = 33  # of a row's number within its partition, see monotonically_increasing_id
_MOST_DENSE: Final = 16  # bytes of rows for a byte of files; the heap has room for three times as many
_INT: Final = struct.Struct(">i")


def collect_rows(frame: DataFrame, *, most_bytes: int, most_partition_bytes: int) -> list[pa.RecordBatch] | None:
    """All rows in the order of the frame; None when they are more than allowed: then its job was cancelled.

    Args:
        frame: to be computed, once.
        most_bytes: of all rows, as Arrow holds them.
        most_partition_bytes: of the rows of one partition, about.

    Raises:
        PySparkException: the frame cannot be computed.
    """
    context = frame.sparkSession.sparkContext
    tag = f"fluvial-{uuid4()}"
    may_be_large = planned_bytes(frame) * _MOST_DENSE > most_partition_bytes
    asked = limited_frame(frame, most_partition_bytes) if may_be_large else frame
    context.addJobTag(tag)
    is_large = False
    try:
        with arrow_results(asked) as stream:
            found = _within(stream, most_bytes)
            if found is None:
                is_large = True
                context.cancelJobsWithTag(tag)
            else:
                return found
    except (PySparkException, JvmError) as error:
        if not is_large and raised_by_expression(error) != IS_OVER and not is_result_too_large(error):
            raise
    finally:
        context.removeJobTag(tag)
    return None


def limited_frame(frame: DataFrame, most_bytes: int) -> DataFrame:
    """The frame, of which the job fails with `IS_OVER` at the first row of a partition that does not fit.

    A row fits when its number in the partition times its own width is below the limit. So rows of one width take that
    many bytes, and others a small multiple of it: the n-th row at most an n-th.
    """
    fields = frame.schema.fields
    fixed = _FIXED_BYTES * len(fields)
    sizes = [f"coalesce(octet_length({_sized(field)}), 0)" for field in fields if _is_wide(field.dataType)]
    place = f"(monotonically_increasing_id() & {(1 << _PLACE_BITS) - 1}L)"
    is_over = f"{place} * ({' + '.join([f'{fixed}L', *sizes])}) >= {most_bytes}L"
    return frame.where(f"if({is_over}, raise_error('{IS_OVER}'), true)")


def _is_wide(given: T.DataType) -> bool:
    return isinstance(given, T.StringType | T.BinaryType | T.ArrayType | T.MapType | T.StructType)


def _sized(field: T.StructField) -> str:
    name = quoted(field.name)
    return name if isinstance(field.dataType, T.StringType | T.BinaryType) else f"CAST({name} AS STRING)"


def _within(stream: IO[bytes], most_bytes: int) -> list[pa.RecordBatch] | None:
    """The batches of a stream, in their order; None as soon as they are too large."""
    found: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in pa.ipc.open_stream(stream):
        size_bytes += batch.nbytes
        if size_bytes > most_bytes:
            return None
        found.append(batch)
    return [found[place] for place in _order(stream)]


def _order(stream: IO[bytes]) -> Sequence[int]:
    """The order of the batches, which Spark sends after them, since they arrive in the order of computation."""
    return list(_numbers(stream, max(_number(stream), 0)))  # -1: it failed, and says why where it is asked to end


def _numbers(stream: IO[bytes], count: int) -> Iterator[int]:
    for _ in range(count):
        yield _number(stream)


def _number(stream: IO[bytes]) -> int:
    (value,) = _INT.unpack(stream.read(_INT.size))
    return int(value)


# ---- The runner of a stream's session that writes micro-batches in the driver: no shuffle, no other process


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


# ---- The rows of a micro-batch from its source, read and decoded in threads of this process, without Spark between
#
# Where a batch is what ``fluvial-kafka`` or a stream of Parquet files gives, as it is, Spark would turn each row from
# columns into its own form and back, which takes more time than all else that is done with it. So the ranges, or the
# files, that Spark planned are read here. The query's progress counts these rows as it counts those.


SOURCE_NAME: Final = "fluvial-kafka"
_QUERY_ID: Final = "sql.streaming.queryId"
_SAME_IN_SPARK: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


def scan_of(frame: DataFrame) -> SourceScan | ParquetScan | None:
    """The scan of a micro-batch whose rows are those of a known source, unmodified; None: Spark computes the batch.

    Args:
        frame: as ``foreachBatch`` was given it. One that is kept in memory for several readers is Spark's.
    """
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if query_id is None or frame.is_cached or not all(map(_is_same, frame.schema.fields)):
        return None
    try:
        scan = batch_scan(frame, query_id)
    except JvmError:  # another release of Spark: its plans have other members
        return None
    return None if isinstance(scan, SourceScan) and scan.source != SOURCE_NAME else scan


def _is_same(field: T.StructField) -> bool:
    """Whether Spark gives the values of a column as the source does."""
    given = field.dataType
    if isinstance(given, T.CharType | T.VarcharType):
        return False
    return isinstance(given, _SAME_IN_SPARK) or field.name == UNAVAILABLE_COLUMN


def read_rows(
    scan: SourceScan | ParquetScan, schema: T.StructType, *, threads: int, most_bytes: int, letters: str | None = None
) -> list[pa.RecordBatch] | None:
    """All rows in their order; None when they are more than allowed: then no bad record of them was sent away.

    Args:
        scan: of the batch.
        schema: of the batch.
        threads: that read and decode, each a partition or a file at a time.
        most_bytes: of all rows.
        letters: which bad records are sent away: value of a ``LettersPart``; None: all.

    Raises:
        NotAsTheyAreError: see ``read_files``.
        FluvialError: as the source's tasks do.
    """
    from pyspark.sql.datasource import CaseInsensitiveDict

    from engine.checkpoint.admission import without_checkpoint

    if isinstance(scan, ParquetScan):
        return read_files(scan, schema, threads=threads, most_bytes=most_bytes)
    from engine.kafka.options import KafkaSourceOptions
    from engine.kafka.readers import KafkaStreamReader

    reader = KafkaStreamReader(KafkaSourceOptions.parse(CaseInsensitiveDict(without_checkpoint(scan.options))), schema)
    budget = ByteBudget(most_bytes)
    parts = [pickle.loads(each) for each in scan.partitions]
    chosen = [reader.letters(letters, is_held=True) for _ in parts]

    def rows_of(partition: "InputPartition", bad: ChosenLetters) -> list[pa.RecordBatch]:
        return [*budget.within(reader.rows(partition, bad))]

    with ThreadPoolExecutor(max(1, min(threads, len(parts))), thread_name_prefix="fluvial-read") as pool:
        found = [*pool.map(rows_of, parts, chosen)]
    if budget.is_over:
        return None
    for each in chosen:
        reader.flush(each)
    batches = [pa.concat_batches(rows) for rows in found if rows]
    scan.count(sum(each.num_rows for each in batches))
    return batches


# ---- Which runner writes the micro-batches of a sink


_FEW_ROWS: Final = 10_000

_DRIVER: Final = "driver"
_TASKS: Final = "tasks"
_MOST_CORES: Final = 8
"""Up to which threads of one Python process keep the cores busy: what is not in Arrow's kernels has one at a time."""


def runner_of_sink(
    spark: SparkSession, options: WriterOptions, table: str, *, refuse: Refuse | None = None
) -> Runner[DataFrame]:
    """The runner for a session's master, or the one that is asked for; the log says which and why.

    Args:
        spark: the session.
        options: of the sink.
        table: its name, for the log.
        refuse: see ``BatchSpec``.

    Raises:
        InvalidInputError: ``sink.writer=driver`` where rows are on other machines.
    """
    master = spark.sparkContext.master
    cores = spark.sparkContext.defaultParallelism
    writer, reason = choose_writer(options.sink_writer, master, cores, can_collect=has_arrow_results())
    logger.info("micro-batches are written by the %s: table=%s reason='%s'", writer, table, reason)
    return DriverRunner(spark, refuse=refuse) if writer == _DRIVER else SparkRunner(spark, refuse=refuse)


def runner_of_batch(rows: DataFrame) -> Runner[DataFrame]:
    """The runner for the rows of a statement, which is one batch and no stream.

    On a local master the driver writes rows of which Spark knows that they are few, as those of VALUES are: what may be
    any number would be computed once more if it were too large.
    """
    spark, most_rows = rows.sparkSession, most_rows_of(rows)
    is_small = most_rows is not None and most_rows <= _FEW_ROWS
    is_driver = is_small and on_this_machine(spark.sparkContext.master) and has_arrow_results()
    return DriverRunner(spark) if is_driver else SparkRunner(spark)


def on_this_machine(master: str) -> bool:
    """Whether no other machine computes anything."""
    return master.startswith("local") and not master.startswith("local-cluster")


def choose_writer(wanted: str, master: str, cores: int, *, can_collect: bool = True) -> tuple[str, str]:
    """The writer, and why.

    Args:
        wanted: option ``sink.writer``.
        master: of the session.
        cores: of the master, if it is local.
        can_collect: whether this PySpark gives the driver the rows of a frame in bounded memory.

    Raises:
        InvalidInputError: see ``runner_of_sink``.
    """
    if wanted == _DRIVER and not on_this_machine(master):
        raise InvalidInputError(
            f"the driver writes on a local master only: sink.writer={wanted} master={master} "
            "fix='leave sink.writer out: on a cluster rows stay where they are'"
        )
    if wanted == _DRIVER and not can_collect:
        raise InvalidInputError(
            f"this PySpark does not give its driver rows in bounded memory: sink.writer={wanted} "
            f"spark={pyspark.__version__} fix='leave sink.writer out: tasks write'"
        )
    if wanted in (_DRIVER, _TASKS):
        return wanted, f"sink.writer={wanted}"
    if not on_this_machine(master):
        return _TASKS, f"master={master}: rows stay where they are"
    if not can_collect:
        return _TASKS, f"pyspark={pyspark.__version__}: it does not give its driver rows in bounded memory"
    if cores > _MOST_CORES:
        return _TASKS, f"master={master}: more than {_MOST_CORES} cores, for which one Python process is too slow"
    return _DRIVER, f"master={master}: neither a shuffle nor other processes"
