"""Readers of topics for Spark: of a batch, and of a stream.

Only committed records are read. Each topic partition is one Spark partition, read in bounded memory. Positions in
Spark's checkpoint are those of ``engine.kafka.offsets``, and a repeated batch covers the same offsets.

Source: Spark's "Structured Streaming + Kafka Integration Guide" for options and columns.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from engine.checkpoint.admission import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from engine.kafka.dead_letters import LETTERS, ChosenLetters, DeadLetters, LettersPart
from engine.kafka.offsets import (
    LOSS_ADVICE,
    UNSTARTED_OFFSET,
    OffsetRange,
    TopicIds,
    TopicPosition,
    begin_of,
    checked_start,
    from_json,
    limited,
    ranges,
    recreated_topics,
    to_json,
    topic_ids_of,
    with_begin,
    without_begin,
    without_topics,
)
from engine.kafka.options import (
    KafkaSourceOptions,
    OnBadRecord,
    Truncates,
    UnavailableValues,
    ValueFormat,
    with_source_option_names,
)
from engine.kafka.rows import decoder, raw_rows, spark_rows, without_repeated_deletes
from engine.kafka.source_topics import SourceTopics
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.types.spark_types import spark_arrow_schema
from logstore.log.log_reader import LOG_SCHEMA, OLD_KEY, RecordsLostError, read_range
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, NewColumnsError
from lsm.row_kind import RowKind

RAW_SCHEMA: Final = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
"""Columns of undecoded records, those of Spark's own connector."""


_LOOK_BACK: Final = 4  # offsets: the record before another one, and markers of transactions between them

logger = logging.getLogger("fluvial.kafka-source")


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns when the user gives no schema, which is possible for raw records only.

    Raises: InvalidInputError: for values that are decoded.
    """
    parsed = KafkaSourceOptions.parse(options)
    if parsed.value_format is not ValueFormat.RAW:
        raise InvalidInputError(
            f"columns to decode are missing: value.format={parsed.value_format.value} "
            f"fix=add .schema('id BIGINT, ..., {ROW_KIND_COLUMN} STRING')"
        )
    return RAW_SCHEMA


class _Reader:
    """Common to batch and stream readers: decoding a range of one partition, in a task."""

    def __init__(self, options: KafkaSourceOptions, schema: StructType) -> None:
        self._options = options
        self._arrow_schema = spark_arrow_schema(schema)
        _check_schema(options, schema)
        self._connected: SourceTopics | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        # tasks get a copy; a connection stays in the process that opened it
        return self.__dict__ | {"_connected": None}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in batches."""
        context = TaskContext.get()
        letters = self.letters(None if context is None else context.getLocalProperty(LETTERS))
        yield from self.rows(partition, letters)
        self.flush(letters)

    def letters(self, part: str | None, *, is_held: bool = False) -> ChosenLetters:
        """Writer of dead letters for the bad records of one range.

        Args:
            part: value of a ``LettersPart``; None: all.
            is_held: see ``DeadLetters``.
        """
        topic = DeadLetters(self._options.properties, self._options.dead_letter_topic, is_held=is_held)
        return ChosenLetters(topic, None if part is None else LettersPart(part))

    def flush(self, letters: ChosenLetters) -> None:
        """Wait, after the rows, until all letters are acknowledged. Raises: FluvialError."""
        try:
            letters.flush()
        except FluvialError as error:
            raise with_source_option_names(error) from None

    def rows(self, partition: InputPartition, letters: ChosenLetters) -> Iterator[pa.RecordBatch]:
        """As ``read``; ``letters`` get the bad records, and are flushed by the caller."""
        offset_range, timestamp_type, is_only = partition.value
        try:
            found = self._records(offset_range)
            if self._options.value_format in (ValueFormat.DEBEZIUM_JSON, ValueFormat.DEBEZIUM_AVRO):
                found = without_repeated_deletes(found, partial(self._record_before, offset_range), self._is_delete)
            for records in found:
                yield from self._rows(records, offset_range, timestamp_type, letters, is_only=is_only)
        except FluvialError as error:
            raise with_source_option_names(error) from None

    def _topics(self) -> SourceTopics:
        if self._connected is None:
            self._connected = SourceTopics(self._options)
            self._connected.check_dead_letters()
        return self._connected

    def _partitions(self, offset_ranges: Sequence[OffsetRange], position_count: int) -> list[InputPartition]:
        types: dict[str, int | None] = {}
        if self._options.value_format is ValueFormat.RAW and "timestampType" in self._arrow_schema.names:
            types = {each.topic: None for each in offset_ranges}
            types = {topic: self._topics().timestamp_type(topic) for topic in types}
        return [InputPartition((each, types.get(each.topic), position_count == 1)) for each in offset_ranges]

    def _records(self, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
        start_offset = offset_range.start_offset
        position = (offset_range.topic, offset_range.partition)
        try:
            yield from self._range(offset_range, start_offset)
        except RecordsLostError as lost:  # with this source it is an option whether reading continues behind them
            start, losses = checked_start(
                {position: lost.wanted_offset},
                {position: lost.earliest_offset},
                {position: lost.end_offset},
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            if not losses:
                raise
            logger.warning("%s", losses[0])
            yield from self._range(offset_range, start[position])

    def _range(self, offset_range: OffsetRange, start_offset: int) -> Iterator[pa.RecordBatch]:
        if start_offset < offset_range.end_offset:
            log_range = LogRange(
                bucket=offset_range.partition, start_offset=start_offset, end_offset=offset_range.end_offset
            )
            is_raw = self._options.value_format is ValueFormat.RAW
            yield from read_range(
                self._options.properties,
                topic=offset_range.topic,
                log_range=log_range,
                columns=LOG_SCHEMA.names if is_raw else [*LOG_SCHEMA.names, OLD_KEY.name],
            )

    def _record_before(self, source: OffsetRange, offset: int) -> pa.RecordBatch | None:
        """The record before an offset, also before markers of transactions; None: it has expired, or never existed."""
        source = replace(source, end_offset=offset)
        try:
            found = list(self._range(source, max(0, offset - _LOOK_BACK)))
        except RecordsLostError as lost:
            found = list(self._range(source, lost.earliest_offset))
        return found[-1].slice(found[-1].num_rows - 1) if found else None

    def _is_delete(self, record: pa.RecordBatch) -> bool:
        """Whether a record deletes a row; one that cannot be read does not."""
        if not record["value"][0].is_valid:
            return True
        keys = pa.schema([field for field in self._arrow_schema if field.name in self._options.key_columns])
        try:
            found = decoder(self._options, keys)(record["key"], record["value"], None)
        except NewColumnsError:
            return False
        return bool(found.kinds.to_pylist() == [int(RowKind.DELETE)])

    def _rows(
        self,
        records: pa.RecordBatch,
        source: OffsetRange,
        timestamp_type: int | None,
        letters: ChosenLetters,
        *,
        is_only: bool,
    ) -> Iterator[pa.RecordBatch]:
        options = self._options
        if options.value_format is ValueFormat.RAW:
            yield raw_rows(
                records,
                schema=self._arrow_schema,
                topic=source.topic,
                partition=source.partition,
                timestamp_type=timestamp_type,
            )
            return
        columns = pa.schema([field for field in self._arrow_schema if field.name != ROW_KIND_COLUMN])
        try:
            emits = is_only and options.truncates is Truncates.EMIT
            found = decoder(options, columns, emits_truncates=emits)(
                records["key"], records["value"], records[OLD_KEY.name]
            )
        except NewColumnsError as error:
            at = self._place_of(records, error.index, source)
            raise NewColumnsError(f"{error} {at}") from error
        if found.bad and options.on_bad_record is OnBadRecord.FAIL:
            first = found.bad[0]
            raise CorruptDataError(
                f"record cannot be decoded: topic={source.topic} partition={source.partition} "
                f"offset={records['offset'][first.index].as_py()} value.format={options.value_format.value} "
                f"reason={first.reason} "
                f"fix=correct the schema, or set on-bad-record={OnBadRecord.DEAD_LETTER.value} and dead-letter.topic"
            )
        letters.send(records, found.bad, source, found.first_truncate)
        if found.rows.num_rows or found.first_truncate is not None:
            yield spark_rows(found, self._arrow_schema)

    def _place_of(self, records: pa.RecordBatch, index: int, source: OffsetRange) -> str:
        """The record at an index of those with a value."""
        offsets = records["offset"].filter(records["value"].is_valid())
        return f"topic={source.topic} partition={source.partition} offset={offsets[index].as_py()}"


class KafkaBatchReader(_Reader, DataSourceReader):
    """Reads from ``startingOffsets`` to ``endingOffsets`` once."""

    def partitions(self) -> list[InputPartition]:
        """One for each topic partition with a non-empty range."""
        try:
            topics = self._topics()
            start = topics.positions(self._options.starting_offsets, option="startingOffsets")
            end = topics.positions(self._options.ending_offsets, option="endingOffsets")
            for position, offset in end.items():
                if offset < start[position]:
                    raise InvalidInputError(
                        f"the range ends before it starts: topic={position[0]} partition={position[1]} "
                        f"startingOffsets={start[position]} endingOffsets={offset}"
                    )
            return self._partitions(ranges(start, end), len(end))
        except FluvialError as error:
            raise with_source_option_names(error) from None


class KafkaStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. All methods but ``read`` run in one process that lives as long as the query."""

    def __init__(self, options: KafkaSourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: dict[TopicPosition, int] | None = None  # of a query with the trigger availableNow
        self._latest: dict[TopicPosition, int] | None = None  # when last checked

    def initialOffset(self) -> dict[str, Any]:
        """The start offset, equal for every new query: the actual start is stored in the end of its first batch."""
        return dict(UNSTARTED_OFFSET)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, if given."""
        count = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; equal to ``start`` when there is nothing to read.

        Raises:
            CorruptDataError: records at ``start`` have expired.
        """
        try:
            here = self._begin() if start == UNSTARTED_OFFSET else without_begin(start)
            self._latest, ids = self._topics().latest(), self._topics().ids()
            begin, losses = checked_start(
                from_json(here),
                self._topics().earliest(),
                self._latest,
                fail_on_data_loss=self._options.fail_on_data_loss,
                recreated=recreated_topics(topic_ids_of(here), ids),
            )
        except FluvialError as error:
            raise with_source_option_names(error) from None
        for loss in losses:
            logger.warning("%s", loss)
        end = self._latest
        if self._target is not None:
            end = {position: max(begin[position], self._target.get(position, 0)) for position in end}
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        reached = to_json(end, ids)
        if start != UNSTARTED_OFFSET:
            return start if reached == here else reached
        if reached == here and not self._options.starts_at_latest:
            return start  # a restart would begin there again
        return with_begin(reached, here)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the topics, for the progress report and its lag."""
        return None if self._latest is None else to_json(self._latest, self._topics().ids())

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the current ends of the topics, where the query will end."""
        try:
            self._target = self._topics().latest()
        except FluvialError as error:
            raise with_source_option_names(error) from None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each topic partition with records between two offsets.

        Raises:
            CorruptDataError: ``end`` was planned by an earlier run, for a topic that was deleted and recreated since.
        """
        try:
            if start == UNSTARTED_OFFSET:
                start = begin_of(end) or self._begin()
            self._check_same_topics(topic_ids_of(end))
            begin = without_topics(from_json(start), recreated_topics(topic_ids_of(start), topic_ids_of(end)))
            return self._partitions(ranges(begin, from_json(end)), len(from_json(end)))
        except FluvialError as error:
            raise with_source_option_names(error) from None

    def _begin(self) -> dict[str, Any]:
        topics = self._topics()
        return to_json(topics.positions(self._options.starting_offsets, option="startingOffsets"), topics.ids())

    def _check_same_topics(self, planned: TopicIds) -> None:
        for topic in sorted(recreated_topics(planned, self._topics().ids())):
            message = f"the topic was deleted and recreated since this batch was planned: topic={topic} {LOSS_ADVICE}"
            if self._options.fail_on_data_loss:
                raise CorruptDataError(message)
            logger.warning("%s", message)


def _check_schema(options: KafkaSourceOptions, schema: StructType) -> None:
    names = schema.fieldNames()
    if options.value_format is ValueFormat.RAW:
        for field in schema.fields:
            if field.name not in RAW_SCHEMA.names or RAW_SCHEMA[field.name].dataType != field.dataType:
                raise InvalidInputError(
                    f"raw records have no such column: column={field.name} type={field.dataType.simpleString()} "
                    f"known={RAW_SCHEMA.simpleString()} fix=set value.format to decode records"
                )
        return
    if ROW_KIND_COLUMN not in names or not isinstance(schema[ROW_KIND_COLUMN].dataType, StringType):
        raise InvalidInputError(
            f"without row kinds deletes would become inserts: value.format={options.value_format.value} "
            f"fix=add '{ROW_KIND_COLUMN} STRING' to the schema"
        )
    marks = schema[UNAVAILABLE_COLUMN].dataType if UNAVAILABLE_COLUMN in names else None
    if marks is not None and marks != ArrayType(StringType()):
        raise InvalidInputError(f"a list of names: column={UNAVAILABLE_COLUMN} fix=make it ARRAY<STRING>")
    wanted = options.unavailable_values
    if wanted is not None and (wanted is UnavailableValues.KEEP) != (marks is not None):
        raise InvalidInputError(
            f"the schema and the option contradict each other: unavailable-values={wanted.value} "
            f"fix='with keep, add {UNAVAILABLE_COLUMN} ARRAY<STRING> to the schema, which the writer needs; else not'"
        )
    for option, columns in (("key.columns", options.key_columns), ("epoch-units", options.epoch_units)):
        for name in columns:
            if name not in names:
                raise InvalidInputError(f"no such column: option={option} column={name} known={', '.join(names)}")
