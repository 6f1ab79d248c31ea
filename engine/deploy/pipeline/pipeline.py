"""One running pipeline: a streaming query from a source into tables, its progress and results.

source → transforms → ``_row_kind`` and columns of the tables → ``engine.sink`` → log and files
"""

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from engine.checkpoint.checkpoint_files import is_readable, read_checkpoint
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.checkpoints import note_transform
from engine.deploy.pipeline.sources import check_whole_changes, kafka_options, source_frame, source_spec
from engine.deploy.pipeline.targets import BatchWrite, StopRequestedError
from engine.deploy.pipeline.transforms import transformed
from engine.kafka.offsets import OffsetRange, Offsets, from_json, waiting_count
from engine.kafka.options import KafkaSourceOptions, ValueFormat
from engine.kafka.source_columns import column_name
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.runtime.spark_messages import fluvial_error, is_raised_in
from engine.spark.session import checkpoint_settings
from engine.stream.position.position import Position
from engine.table import Table
from engine.write.schema_evolution import fields_of_rows, merge_rules
from filestore.evolution.schema_change import apply_changes
from filestore.evolution.schema_merge import MergeRules, merge_changes
from filestore.layout.locations import absolute_path
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import literal_value
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, DataField, DataType
from logstore.format.connect_types import DEFAULT_METADATA, value_schema
from logstore.format.schema_parts import split_payloads
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, NewColumnsError

_STOP_POLL_S: Final = 0.05
_INITIALIZING: Final = "Initializing"  # StreamExecution, then sources


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """Progress of a pipeline after a batch."""

    pipeline: str
    batch_count: int
    row_count: int  # changes processed since the start of this run
    rows_per_second: float  # of the last batch
    waiting_count: int | None  # records in the topics that are not yet processed; None: unknown for this source


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """The result for one table."""

    table: str
    snapshot_id: int | None  # newest of the table; None: it has none
    compaction_failure_count: int = 0  # no data is lost, but reads get slower
    last_compaction_failure: str | None = None
    broken_rows: Mapping[str, int] = field(default_factory=dict)  # by rule (expect), the rows that broke it


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The result of a pipeline's run."""

    pipeline: str
    targets: tuple[TargetResult, ...]
    batch_count: int
    row_count: int
    seconds: float  # from its start to its end
    is_complete: bool  # False: it was stopped before its end
    restart_count: int = 0


OnProgress = Callable[[PipelineProgress], None]


class RunningPipeline:
    """A pipeline of a running job, across all its restarts."""

    def __init__(self, config: JobConfig, pipeline: PipelineConfig, tables: Sequence[Table]) -> None:
        """``tables`` are those of ``pipeline.outputs``."""
        self.config = pipeline
        self._job = config
        self._tables = tables
        self._query: StreamingQuery | None = None
        self.write: BatchWrite | None = None
        self._start_s = self._end_s = time.monotonic()
        self._last_batch_id = -1
        self.batch_count = 0
        self.row_count = 0
        self.restart_count = 0
        self._delivered: Sequence[Any] = ()  # by source: the end of the last finished batch, as Spark has it
        self._failed: list[OffsetRange] = []  # records with columns that a run did not know
        self.has_ended = False  # on its own, while it was being stopped

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.config.name

    @property
    def has_end(self) -> bool:
        """Whether the pipeline's trigger ends once all present data has been read."""
        return self.config.trigger.processing_time is None

    def start(self, spark: SparkSession) -> None:
        """Start or restart the query.

        Raises:
            InvalidInputError: source, transforms or target do not fit together.
            FluvialError: Spark cannot start it.
        """
        pipeline, checkpoint = self.config, absolute_path(self.config.checkpoint)
        source = kafka_options(self._job, pipeline)
        write = BatchWrite.to(self.name, pipeline.outputs, self._tables, source)
        try:
            described = self._job.tables.get(pipeline.outputs[0].table)
            declared = () if described is None else tuple(described.columns)
            grown = grown_fields(pipeline, self._tables, source, failed=self._failed, declared=declared)
            rules = growth_rules(pipeline, self._tables)
            schemas = [table.schema for table in self._tables]
            spec = source_spec(self._job, pipeline, schemas, grown=grown, rules=rules)
            steps = [*pipeline.transform, *(step for output in pipeline.outputs for step in output.transform)]
            queries = [step.sql for step in steps if step.sql is not None]
            check_whole_changes(spec, queries, schemas)
            frame = transformed(source_frame(spark, spec, checkpoint), pipeline.transform, pipeline=self.name)
            for target in write.targets:  # Spark checks queries now, not in the first micro-batch
                transformed(frame, [step for step in target.steps if step.sql is not None], pipeline=self.name)
            writer = frame.writeStream.queryName(self.name).foreachBatch(write).option("checkpointLocation", checkpoint)
            interval = pipeline.trigger.processing_time
            writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
            with checkpoint_settings(spark, checkpoint):
                self._query, self.write = writer.start(), write
        except PySparkException as error:
            raise fluvial_error(error, f"pipeline cannot start: pipeline={self.name}") from error
        note_transform(checkpoint, pipeline)
        self._last_batch_id = -1
        self._delivered = self._delivered or _noted(checkpoint)

    def may_grow(self, error: FluvialError) -> bool:
        """Whether a failure is that of a record with new columns or types, which the next start will know.

        False for a record that was looked at before: then its columns cannot be added.
        """
        record = failed_record(error)
        if record is None or record in self._failed or growth_rules(self.config, self._tables) is None:
            return False
        self._failed.append(record)
        return True

    @property
    def delivered(self) -> Offsets | None:
        """Offsets at the end of the last finished batch; None: no batch yet, or the source is not of topics."""
        try:
            return {place: offset for each in self._delivered for place, offset in _offsets(each).items()} or None
        except (KeyError, ValueError, AttributeError, TypeError):
            return None

    @property
    def position(self) -> Position | None:
        """Position at the end of the last finished batch; None: no batch yet, or the source is not a table."""
        try:
            (given,) = self._delivered
            return Position.from_json(json.loads(given) if isinstance(given, str) else given).place
        except (CorruptDataError, ValueError, TypeError):
            return None

    def is_starting(self) -> bool:
        """Whether the query is still starting its source."""
        query = self._query
        return query is not None and query.isActive and str(query.status["message"]).startswith(_INITIALIZING)

    def is_active(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` for the end; False when the query has ended.

        Raises:
            FluvialError: the query has failed.
        """
        assert self._query is not None
        try:
            ended = bool(self._query.awaitTermination(wait_s))
        except PySparkException as error:
            raise fluvial_error(error, f"pipeline failed: pipeline={self.name}") from error
        self._end_s = time.monotonic()
        return not ended

    def take_progress(self) -> PipelineProgress | None:
        """Progress since the last call; None: no new batch."""
        if self._query is None:
            return None
        last = self._query.lastProgress
        if last is not None:
            self._delivered = [each["endOffset"] for each in last["sources"]]
        if last is None or last["batchId"] <= self._last_batch_id:
            return None
        # Spark keeps the last 100: more than can happen between two calls
        batches = [
            each
            for each in self._query.recentProgress
            if each["batchId"] > self._last_batch_id and each["numInputRows"]  # an idle query reports its next batch
        ]
        if not batches:
            return None
        self._last_batch_id = batches[-1]["batchId"]
        self.batch_count += len(batches)
        self.row_count += sum(each["numInputRows"] for each in batches)
        return PipelineProgress(
            pipeline=self.name,
            batch_count=self.batch_count,
            row_count=self.row_count,
            rows_per_second=float(batches[-1].get("processedRowsPerSecond") or 0.0),
            waiting_count=_waiting_count(batches[-1]["sources"]),
        )

    def end_after_batch(self, deadline_s: float) -> bool:
        """Let the running micro-batch finish and be recorded in the checkpoint, then stop the query.

        Args:
            deadline_s: on ``time.monotonic``; afterwards the micro-batch is cancelled, and repeated by the next run.

        Returns:
            False when a micro-batch was cancelled.

        Raises:
            FluvialError: the query has failed while this waited.
        """
        if self._query is None or self.write is None:
            return True
        self.write.refuse_new_batches()
        is_idle = False
        while not is_idle and time.monotonic() < deadline_s:
            is_idle = not (self._query.isActive and self._query.status["isTriggerActive"])
            if not is_idle:
                time.sleep(_STOP_POLL_S)
        failure = None if self._query.isActive else self._query.exception()
        self.has_ended = not self._query.isActive and failure is None
        self.stop()
        if failure is not None and not is_raised_in(failure, StopRequestedError):
            raise fluvial_error(failure, f"pipeline failed: pipeline={self.name}") from failure
        return is_idle

    def stop(self) -> None:
        """Stop the query now, wait for a running compaction, and start no other."""
        if self._query is not None:
            self._query.stop()
        self.close()
        self._end_s = time.monotonic()

    def close(self) -> None:
        """Wait for a running compaction, and start no other. Call it also when the query has ended by itself."""
        if self.write is not None:
            self.write.close()

    def result(self, *, is_complete: bool) -> PipelineResult:
        """The result of the pipeline, once it has ended."""
        return PipelineResult(
            pipeline=self.name,
            targets=tuple(self._target_result(index) for index in range(len(self._tables))),
            batch_count=self.batch_count,
            row_count=self.row_count,
            seconds=self._end_s - self._start_s,
            is_complete=is_complete,
            restart_count=self.restart_count,
        )

    def _target_result(self, index: int) -> TargetResult:
        latest = self._tables[index].latest_snapshot()
        failures = None if self.write is None else self.write.targets[index].write.compaction_failures
        return TargetResult(
            table=self._tables[index].name,
            snapshot_id=None if latest is None else latest.id,
            compaction_failure_count=0 if failures is None else failures.count,
            last_compaction_failure=None if failures is None else failures.last,
            broken_rows={} if self.write is None else dict(self.write.targets[index].broken),
        )


def _noted(checkpoint: str) -> Sequence[Any]:
    """The positions that an earlier run has delivered; () where this process cannot read the checkpoint."""
    try:
        state = read_checkpoint(checkpoint) if is_readable(checkpoint) else None
    except InvalidInputError:
        return ()
    return () if state is None else state.offsets


def _waiting_count(sources: Sequence[Mapping[str, Any]]) -> int | None:
    total = 0
    for source in sources:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        try:
            total += waiting_count(_offsets(end), _offsets(latest))
        except (ValueError, AttributeError, TypeError):
            return None  # not Fluvial's offsets
    return total


def _offsets(given: Any) -> Offsets:
    return from_json(json.loads(given) if isinstance(given, str) else given)


logger = logging.getLogger("fluvial.schema")

# ---- A table that grows with the columns of its source: ``write.merge-schema`` in a job file
#
# Spark fixes the columns of a stream when the query starts. So at its start, a pipeline reads the newest records of
# its topics: their schema part has the current columns and types of the source table. While the pipeline runs, a
# record with an unknown column or a wider type fails its micro-batch before anything is written
# (``new-fields=fail``). The pipeline then starts again, whatever ``on_failure`` says, and looks at that very record:
# it may be older than the newest ones, as after a column was dropped. Where records carry no types (plain JSON,
# Avro), columns cannot be added.


_RETYPED_ROOTS: Final = INTEGER_ROOTS | {"BOOLEAN", "FLOAT", "DOUBLE"}  # that become text with explicit-cast
_SAMPLE_SIZE: Final = 200  # newest records of each partition


_PLACE: Final = re.compile(r"topic=(\S+) partition=(\d+) offset=(\d+)\s*$")


def failed_record(error: FluvialError) -> OffsetRange | None:
    """The record whose columns or types a query did not know; None: it failed for another reason."""
    match = _PLACE.search(str(error)) if isinstance(error, NewColumnsError) else None
    if match is None:
        return None
    offset = int(match[3])
    return OffsetRange(topic=match[1], partition=int(match[2]), start_offset=offset, end_offset=offset + 1)


def grown_fields(
    pipeline: PipelineConfig,
    tables: Sequence[Table],
    source: KafkaSourceOptions | None,
    *,
    failed: Sequence[OffsetRange] = (),
    declared: Collection[str] = (),
) -> tuple[DataField, ...] | None:
    """The columns of a pipeline's first table, with those of the source's newest records added.

    Args:
        pipeline: the pipeline.
        tables: tables of its outputs.
        source: options of its source; None for sources other than topics.
        failed: records whose columns a run did not know, in the order in which they were met.
        declared: columns with a type in the job file, which must stay castable to it.

    Returns:
        None when no table grows, or the source carries no types.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: a source column cannot be a table column, or an option has an invalid value.
    """
    if source is None or source.value_format is not ValueFormat.DEBEZIUM_JSON or pipeline.source.columns:
        return None
    rules = growth_rules(pipeline, tables)
    if rules is None:
        return None
    table = tables[0].files
    schema = table.store.at_version(table.store.schemas.ids()[-1]).schema  # it may have grown since the job started
    for columns in (*_columns_of(source, failed), *_newest_columns(source)):
        schema = grown_schema(schema, columns, rules, declared=declared)
    return seen_schema(schema).fields


def grown_schema(
    stored: TableSchema, columns: pa.Schema, rules: MergeRules, *, declared: Collection[str] = ()
) -> TableSchema:
    """A schema with the columns of a source merged; of a table that counts rows it is the stored one, with its key."""
    seen = seen_schema(stored)
    known = {field.name: field.type for field in seen.fields}
    fields = [
        field
        for field in fields_of_rows(columns, seen)
        if field.name not in known or not _is_only_text(known[field.name], field.type, field.name in declared)
    ]
    if seen is stored:  # rows that are counted are known by all their values
        fields = [replace(field, initial_default=_initial_default(field, columns)) for field in fields]
    return apply_changes(stored, merge_changes(seen, fields, rules), has_rows=False)


def _is_only_text(known: DataType, given: DataType, is_declared: bool) -> bool:
    """Whether a source writes values as text, such as exact decimals, that the column takes; it stays what it is."""
    return given.root in TEXT_ROOTS and (is_declared or known.root not in _RETYPED_ROOTS)


def _initial_default(field: DataField, columns: pa.Schema) -> str | None:
    """The value of a new column in old rows of the source."""
    given = (columns.field(field.name).metadata or {}).get(DEFAULT_METADATA)
    if given is None:
        return None
    try:
        literal_value(given.decode(), field.type)
    except InvalidInputError as error:
        logger.warning("old rows of a new column are null: column=%s reason=%s", field.name, error)
        return None
    return str(given.decode())


def growth_rules(pipeline: PipelineConfig, tables: Sequence[Table]) -> MergeRules | None:
    """How the tables may grow; other types are left to the decoder, which checks every value. None: not at all."""
    found = [
        merge_rules(table.store, WriterOptions.parse(output.options, SINK_KEYS, "sink option"))
        for output, table in zip(pipeline.outputs, tables, strict=True)
    ]
    rules = next((each for each in found if each is not None), None)
    return None if rules is None else replace(rules, fitting=lambda known, given: True)


def _newest_columns(source: KafkaSourceOptions) -> Iterator[pa.Schema]:
    topics = LogTopics(source.properties)
    for name in source.topics:
        topic = topics.find_topic(name)
        partitions = range(0 if topic is None else topic.bucket_count)
        earliest, ends = topics.earliest_offsets(name, partitions), topics.end_offsets(name, partitions)
        newest = [
            OffsetRange(
                topic=name,
                partition=partition,
                start_offset=max(earliest[partition], end - _SAMPLE_SIZE),
                end_offset=end,
            )
            for partition, end in ends.items()
        ]
        yield from _columns_of(source, newest)


def _columns_of(source: KafkaSourceOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.Schema]:
    """The columns of records of these ranges, each once, in the order in which they are met."""
    found: dict[str, pa.Schema] = {}
    for each in ranges:
        log_range = LogRange(bucket=each.partition, start_offset=each.start_offset, end_offset=each.end_offset)
        for records in read_range(source.properties, topic=each.topic, log_range=log_range, columns=["value"]):
            groups, _ = split_payloads(records["value"].drop_null())
            for group in groups:
                columns = value_schema(group.schema_part)
                named = pa.schema([field.with_name(column_name(field.name)) for field in columns])
                found.setdefault(named.to_string(show_field_metadata=True), named)
    yield from found.values()
