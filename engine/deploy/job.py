"""A job file put to work: its tables made, its pipelines started and watched until they end.

source → transform → ``_row_kind`` and columns of the table → ``engine.sink`` → log and files
"""

import importlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming import StreamingQuery

from engine.catalog import Catalog
from engine.deploy.job_config import ColumnConfig, JobConfig, PipelineConfig, TableConfig
from engine.kafka_offsets import from_json, waiting_count
from engine.kafka_options import KafkaSourceOptions, check_reachable
from engine.kafka_source import RAW, KafkaSource
from engine.rows import ROW_KIND_COLUMN
from engine.session import checkpoint_settings, session
from engine.sink import StreamSink, sink
from engine.spark_errors import fluvial_error
from engine.spark_types import spark_schema
from engine.sql_types import parse_sql_type
from engine.table import Table
from filestore.datatypes import DataField
from filestore.options import canonical_options
from logstore.topics import LogTopics
from lsm.errors import InvalidInputError

SOURCE_VIEW: Final = "source"

_KAFKA: Final = "kafka"
_BROKERS: Final = "kafka.bootstrap.servers"
_POLL_S: Final = 0.2

logger = logging.getLogger("fluvial.job")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """Where a pipeline is after a batch."""

    pipeline: str
    batch_count: int
    row_count: int  # changes taken in since the start of this run
    rows_per_second: float  # of the last batch
    waiting_count: int | None  # records in the topics that are not taken in yet; None = the source does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """What a pipeline did in this run."""

    pipeline: str
    target: str
    batch_count: int
    row_count: int
    seconds: float  # from its start to its end
    snapshot_id: int | None  # newest of the table; None = nothing was ever committed
    compaction_failure_count: int = 0  # they cost no data, but reads get slower
    last_compaction_failure: str | None = None


OnProgress = Callable[[PipelineProgress], None]


def run_job(
    config: JobConfig, *, spark: SparkSession | None = None, on_progress: OnProgress = lambda _: None
) -> list[PipelineResult]:
    """Run every pipeline of a job until all have ended or one has failed.

    Args:
        config: of ``load_job``.
        spark: the session to use; None = one with the job's settings, stopped at the end.
        on_progress: called after every batch, in the calling thread.

    Returns:
        One result for each pipeline, in the order of the file. A job with a ``processing-time`` trigger never gets
        here.

    Raises:
        InvalidInputError: the job does not fit the tables or the sources: nothing was started.
        FluvialError: a pipeline failed; the others were stopped. Batches that were committed stay.
    """
    catalog = Catalog(config.warehouse, options=config.catalog)
    for name, table in config.tables.items():
        ensure_table(catalog, name, table)
    targets = {pipeline.target: catalog.table(pipeline.target) for pipeline in config.pipelines}
    _check_brokers(config, targets.values())
    own = spark is None
    running: list[_Running] = []
    spark = spark or session(config.name, config.spark.master, config.spark.conf)
    try:
        for pipeline in config.pipelines:
            running.append(_started(spark, config, pipeline, targets[pipeline.target]))
        _watch(running, on_progress)
    finally:
        for each in running:
            each.query.stop()
            each.write.close()
        if own:
            spark.stop()
    return [each.result(targets[each.pipeline.target]) for each in running]


def _check_brokers(config: JobConfig, targets: Iterable[Table]) -> None:
    """Before Spark is started, which takes longer. Raises: UnavailableError, InvalidInputError."""
    reached = [target.log.properties for target in targets if target.log is not None]
    for properties in reached:
        LogTopics(properties).check_reachable()
    for pipeline in config.pipelines:
        if pipeline.source.format == _KAFKA:
            properties = KafkaSourceOptions.parse(_kafka_options(config, pipeline)).properties
            if properties not in reached:
                check_reachable(properties)


def ensure_table(catalog: Catalog, name: str, wanted: TableConfig) -> Table:
    """The table of a job file, made if it does not exist.

    Raises:
        InvalidInputError: it exists with other columns or another key.
    """
    fields = table_fields(wanted)
    catalog.create_table(
        name,
        fields,
        primary_key=wanted.primary_key,
        partition_by=wanted.partition_by,
        options=wanted.options,
        comment=wanted.comment,
        if_not_exists=True,
    )
    table = catalog.table(name)
    _refuse_difference(table, wanted, fields)
    return table


def table_fields(wanted: TableConfig) -> list[DataField]:
    """The columns of a table of a job file; those of the primary key are never null."""
    return [
        DataField(
            id=index,
            name=column,
            type=parse_sql_type(f"{spec.type} NOT NULL" if _is_key(column, wanted) else spec.type),
            description=spec.comment,
        )
        for index, (column, spec) in enumerate(wanted.columns.items())
    ]


def _is_key(column: str, table: TableConfig) -> bool:
    """True when NOT NULL is to be added to its type."""
    return column in table.primary_key and not table.columns[column].type.upper().endswith("NOT NULL")


def _refuse_difference(table: Table, wanted: TableConfig, fields: Sequence[DataField]) -> None:
    schema = table.schema
    found = {field.name: str(field.type) for field in schema.fields}
    for field in fields:
        if found.get(field.name) != str(field.type):
            raise InvalidInputError(
                f"the table exists with another column: table={table.name} column={field.name} "
                f"table_has={found.get(field.name, 'no such column')} job_has={field.type} "
                f"fix=change the job file, or write to another table"
            )
    keys = (tuple(schema.primary_keys), tuple(schema.partition_keys))
    if keys != (wanted.primary_key, wanted.partition_by):
        raise InvalidInputError(
            f"the table exists with other keys: table={table.name} primary_key={list(keys[0])} "
            f"partition_by={list(keys[1])} fix=change the job file, or write to another table"
        )
    for key, value in canonical_options(wanted.options).items():
        has = table.options.raw.get(key)
        if has != value:
            message = "the table exists with another option, which stays: table=%s option=%s table_has=%s job_has=%s"
            logger.warning(message, table.name, key, has, value)


def _started(spark: SparkSession, config: JobConfig, pipeline: PipelineConfig, target: Table) -> "_Running":
    checkpoint = _absolute(pipeline.checkpoint)
    try:
        frame = _transformed(spark, pipeline, _source_frame(spark, config, pipeline, target))
        write = sink(target, options=pipeline.options)
        writer = frame.writeStream.queryName(pipeline.name).foreachBatch(write).option("checkpointLocation", checkpoint)
        interval = pipeline.trigger.processing_time
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        with checkpoint_settings(spark, checkpoint):
            query = writer.start()
    except PySparkException as error:
        raise fluvial_error(error, f"pipeline cannot start: pipeline={pipeline.name}") from error
    return _Running(pipeline, query, write)


def _source_frame(spark: SparkSession, config: JobConfig, pipeline: PipelineConfig, target: Table) -> DataFrame:
    source = pipeline.source
    if source.format != _KAFKA:
        reader = spark.readStream.format(source.format).options(**source.options)
        if source.columns:
            reader = reader.schema(_columns_schema(source.columns))
        return reader.load()

    options = _kafka_options(config, pipeline)
    reader = spark.readStream.format(KafkaSource.name()).options(**options)
    if options.get("value.format", RAW) != RAW:
        columns = _columns_schema(source.columns) if source.columns else spark_schema(target.schema.fields)
        # a delete may carry its key alone, so what a record says may be null even where the table's column may not
        fields = [T.StructField(field.name, field.dataType) for field in columns.fields]
        reader = reader.schema(T.StructType([*fields, T.StructField(ROW_KIND_COLUMN, T.StringType())]))
    return reader.load()


def _kafka_options(config: JobConfig, pipeline: PipelineConfig) -> dict[str, str]:
    """Those of the source; its brokers are the log's where it names none."""
    options = dict(pipeline.source.options)
    log_brokers = config.catalog.get(f"log.{_BROKERS}")
    if log_brokers is not None:
        options.setdefault(_BROKERS, log_brokers)
    return options


def _columns_schema(columns: Mapping[str, ColumnConfig]) -> T.StructType:
    return spark_schema(
        [
            DataField(id=index, name=name, type=parse_sql_type(spec.type))
            for index, (name, spec) in enumerate(columns.items())
        ]
    )


def _transformed(spark: SparkSession, pipeline: PipelineConfig, frame: DataFrame) -> DataFrame:
    transform = pipeline.transform
    if transform is None:
        return frame
    if transform.sql is not None:
        frame.createOrReplaceTempView(SOURCE_VIEW)
        result = spark.sql(transform.sql)
    else:
        result = _function(transform.python or "")(frame)
        if not isinstance(result, DataFrame):
            raise InvalidInputError(
                f"a transform returns a frame: pipeline={pipeline.name} function={transform.python} "
                f"returned={type(result).__name__}"
            )
    if ROW_KIND_COLUMN in frame.columns and ROW_KIND_COLUMN not in result.columns:
        raise InvalidInputError(
            f"the transform loses the row kinds, so that deletes would become inserts: pipeline={pipeline.name} "
            f"fix=select {ROW_KIND_COLUMN} too, or '+I' AS {ROW_KIND_COLUMN} if that is meant"
        )
    return result


def _function(name: str) -> Callable[[DataFrame], Any]:
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), function_name, None)
    except ImportError as error:
        raise InvalidInputError(
            f"module of a transform does not import: module={module_name} reason={error}"
        ) from error
    if not callable(found):
        raise InvalidInputError(f"no such function: module={module_name} function={function_name}")
    return found  # type: ignore[no-any-return]


def _absolute(location: str) -> str:
    """Spark would look for a relative path where the JVM was started, which need not be here."""
    return location if urlsplit(location).scheme else str(Path(os.getcwd()) / location)


class _Running:
    """A started query and what it has told so far."""

    def __init__(self, pipeline: PipelineConfig, query: StreamingQuery, write: StreamSink) -> None:
        self.pipeline = pipeline
        self.query = query
        self.write = write
        self._start_s = self._end_s = time.monotonic()
        self._last_batch_id = -1
        self._batch_count = 0
        self._row_count = 0

    def is_active(self, wait_s: float) -> bool:
        """Wait a moment for the end; False when it has come.

        Raises:
            FluvialError: the query has failed.
        """
        try:
            ended = bool(self.query.awaitTermination(wait_s))
        except PySparkException as error:
            raise fluvial_error(error, f"pipeline failed: pipeline={self.pipeline.name}") from error
        self._end_s = time.monotonic()
        return not ended

    def take_progress(self) -> PipelineProgress | None:
        """What has happened since the last call; None = nothing."""
        last = self.query.lastProgress
        if last is None or last["batchId"] <= self._last_batch_id:
            return None
        # Spark keeps the last 100: more than can happen between two calls
        news = [
            each
            for each in self.query.recentProgress
            if each["batchId"] > self._last_batch_id and each["numInputRows"]  # idle, it tells of the next batch
        ]
        if not news:
            return None
        self._last_batch_id = news[-1]["batchId"]
        self._batch_count += len(news)
        self._row_count += sum(each["numInputRows"] for each in news)
        return PipelineProgress(
            pipeline=self.pipeline.name,
            batch_count=self._batch_count,
            row_count=self._row_count,
            rows_per_second=float(news[-1].get("processedRowsPerSecond") or 0.0),
            waiting_count=_waiting_count(news[-1]["sources"]),
        )

    def result(self, target: Table) -> PipelineResult:
        """What the query has done, once it has ended."""
        latest = target.latest_snapshot()
        return PipelineResult(
            pipeline=self.pipeline.name,
            target=self.pipeline.target,
            batch_count=self._batch_count,
            row_count=self._row_count,
            seconds=self._end_s - self._start_s,
            snapshot_id=None if latest is None else latest.id,
            compaction_failure_count=self.write.compaction_failures.count,
            last_compaction_failure=self.write.compaction_failures.last,
        )


def _watch(running: Sequence[_Running], on_progress: OnProgress) -> None:
    active = list(running)
    while active:
        for each in list(active):
            is_active = each.is_active(_POLL_S / len(active))
            progress = each.take_progress()
            if progress is not None:
                on_progress(progress)
            if not is_active:
                active.remove(each)


def _waiting_count(sources: Sequence[Any]) -> int | None:
    total = 0
    for source in sources:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        try:
            total += waiting_count(from_json(_parsed(end)), from_json(_parsed(latest)))
        except (ValueError, AttributeError, TypeError):
            return None  # not offsets of ours
    return total


def _parsed(offsets: Any) -> Any:
    return json.loads(offsets) if isinstance(offsets, str) else offsets
