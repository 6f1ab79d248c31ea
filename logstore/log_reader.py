"""Read ranges of the log: committed records only, in order, as Arrow batches, in bounded memory."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logstore.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, fluvial_error
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, FluvialError, UnavailableError

LOG_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.binary()),  # null: the record has no key
        pa.field("value", pa.binary()),  # null: a tombstone
    ]
)
BATCH_ROWS: Final = 32_768
BATCH_BYTES: Final = 16 << 20

_CONSUME: Final = 1000  # more at once is slower: the messages leave the processor's cache
_WAIT_S: Final = 0.2


def read_range(
    properties: KafkaProperties,
    *,
    topic: str,
    log_range: LogRange,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    timeout_s: float = OPERATION_TIMEOUT_S,
) -> Iterator[pa.RecordBatch]:
    """Committed records of one bucket in the order of their offsets, as batches of `LOG_SCHEMA` that are never empty.

    Aborted records, transaction markers and what compaction removed are gaps. The end may lie beyond what brokers show
    already, as it does for a moment after a commit: then the iterator waits for it.

    Args:
        properties: of the cluster.
        topic: checked by id with `LogTopics.describe_topic` before: offsets of another topic of this name mean other
            records.
        log_range: bucket and offsets.
        batch_rows: most rows of a batch.
        batch_bytes: a batch ends after the row whose value reaches it.
        timeout_s: for progress, not for the whole.

    Raises:
        CorruptDataError: the first offset is lost (retention) or was never written, or the topic is gone. Names
            bucket, wanted and earliest offset, and the fix.
        UnavailableError: no progress in time: the broker is away, or the log ends before the range does.
    """
    if log_range.is_empty:
        return
    notes = ErrorNotes()
    consumer = properties.consumer(notes)
    reading = _Reading(consumer, topic, log_range, notes, timeout_s)
    try:
        yield from _batches(reading.records(), batch_rows, batch_bytes)
    except KafkaException as error:
        raise reading.explained(error) from error
    finally:
        consumer.close()


class _Reading:
    """One consumer on its way through one range."""

    def __init__(
        self, consumer: Consumer, topic: str, log_range: LogRange, notes: ErrorNotes, timeout_s: float
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._range = log_range
        self._notes = notes
        self._timeout_s = timeout_s
        self._next_offset = log_range.start_offset

    def records(self) -> Iterator[list[Any]]:
        """Messages of the range, as they come from the client: some hundreds at a time."""
        end = self._range.end_offset
        start = TopicPartition(self._topic, self._range.bucket, self._next_offset)
        self._consumer.assign([start])
        progress = time.monotonic()
        while self._next_offset < end:
            # consume() waits its full time for a full list: so wait for one, and take what is there already
            first = self._consumer.poll(_WAIT_S)
            before = self._next_offset
            if first is not None:
                messages = [first, *self._consumer.consume(min(_CONSUME, end - before), 0)]
                taken = self._taken(messages)
                if taken:
                    yield taken
            if self._notes.is_missing_topic:
                raise KafkaException(self._notes.last)  # said beside the messages, not among them
            if self._next_offset > before:
                progress = time.monotonic()
            elif time.monotonic() - progress > self._timeout_s:
                raise self._stuck()

    def _taken(self, messages: list[Any]) -> list[Any]:
        taken = []
        for message in messages:
            error = message.error()
            if error is None:
                self._next_offset = message.offset() + 1
                if self._next_offset > self._range.end_offset:
                    break
                taken.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # the stable end as of now; below our end it will move, as the commit's markers are written
                self._next_offset = max(self._next_offset, message.offset())
            else:
                raise KafkaException(error)
        return taken

    def explained(self, error: KafkaException) -> FluvialError:
        """The error for what the client said, with the offsets that it does not tell."""
        doing = f"log cannot be read: {self._place()}"
        if error.args[0].code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return fluvial_error(error, doing, self._notes)
        try:
            partition = TopicPartition(self._topic, self._range.bucket)
            earliest, latest = self._consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
        except KafkaException as nested:
            return fluvial_error(nested, doing, self._notes)
        if self._next_offset < earliest:
            return CorruptDataError(
                f"records of the log are lost: {self._place()} wanted_offset={self._next_offset}"
                f" earliest_offset={earliest}"
                " cause=retention removed them before they were read"
                " fix=start again from a snapshot of the table; raise log.retention above the longest pause of a reader"
            )
        return CorruptDataError(
            f"log is shorter than it was: {self._place()} wanted_offset={self._next_offset} earliest_offset={earliest}"
            f" end_offset={latest} cause=the topic was deleted and made again fix=give the table a new log"
        )

    def _stuck(self) -> UnavailableError:
        return UnavailableError(
            f"log does not go on: {self._place()} reached_offset={self._next_offset}"
            f" timeout_s={self._timeout_s:g}{self._notes.text}"
            " cause=the broker does not answer, or a transaction below the wanted end is still open"
        )

    def _place(self) -> str:
        range_ = self._range
        return f"topic={self._topic} bucket={range_.bucket} range={range_.start_offset}..{range_.end_offset}"


def _batches(records: Iterator[list[Any]], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    waiting: list[Any] = []
    waiting_bytes = 0
    for messages in records:
        for message in messages:
            waiting.append(message)
            waiting_bytes += len(message)
            if len(waiting) >= batch_rows or waiting_bytes >= batch_bytes:
                yield _batch(waiting)
                waiting, waiting_bytes = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(messages: list[Any]) -> pa.RecordBatch:
    # One pass per column: the client has rows only, and a comprehension over one method is the cheapest way across
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], LOG_SCHEMA.field("timestamp").type),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
        ],
        schema=LOG_SCHEMA,
    )
