"""Reads ranges of the log: committed records in order, as Arrow batches, in bounded memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from logstore.kafka.clients import NEW_LOG, OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.environment import KafkaEnvironment
from logstore.kafka.refusals import hidden_refusal, is_of_group, topic_right
from logstore.log.batch_rows import BatchRows
from logstore.log.control_record import header_of
from logstore.log.kept_consumers import KeptConsumer, RangeConsumers
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
OLD_KEY: Final = pa.field("old_key", pa.binary())
"""Debezium's header ``__debezium.oldkey``: the key that the row has had until now. Null: it has no such header."""
DELETED_KEY: Final = pa.field("deleted_key", pa.binary())
"""The key of a tombstone. Null: the record has a value."""
MARKER: Final = pa.field("marker", pa.binary())
"""The header that a table's writers use, of markers and control records. Null: the record has none."""

LOG_BATCH_ROWS: Final = 32_768
BATCH_BYTES: Final = 16 << 20

_CONSUME: Final = 1000  # more at once is slower: messages no longer fit the CPU cache
_PIECES_PER_BATCH: Final = 8  # a batch may exceed the requested size by less than this fraction
_LOOK: Final[Mapping[str, Any]] = {
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1 << 16,
    "fetch.wait.max.ms": 20,
}
_WAIT_S: Final = 0.2
_EXPLAIN_S: Final = 1.0  # without progress: may this client see the topic?


class RecordsLostError(CorruptDataError):
    """The broker no longer has the first record of a range, or never had it."""

    def __init__(self, message: str, *, wanted_offset: int = 0, earliest_offset: int = 0, end_offset: int = 0) -> None:
        """The next offset of the reader, and those between which the partition has records now; they survive pickling.

        Every record before the wanted offset has been returned.
        """
        super().__init__(message)
        self.wanted_offset = wanted_offset
        self.earliest_offset = earliest_offset
        self.end_offset = end_offset


def read_range(
    properties: KafkaProperties,
    *,
    topic: str,
    log_range: LogRange,
    columns: Sequence[str] = tuple(LOG_SCHEMA.names),
    batch_rows: int = LOG_BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    timeout_s: float = OPERATION_TIMEOUT_S,
    kept: RangeConsumers | None = None,
    rows: BatchRows | None = None,
    is_one: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Committed records of one bucket in offset order, as non-empty batches.

    Aborted records, transaction markers and records removed by compaction are gaps. The end may lie beyond the last
    stable offset, as it does for a moment after a commit: then the iterator waits for it.

    Args:
        properties: client properties of the cluster.
        topic: verify its id with `LogTopics.describe_topic` first: offsets of a recreated topic refer to other
            records.
        log_range: bucket and offsets.
        columns: the columns of `LOG_SCHEMA` to return, `OLD_KEY`, `DELETED_KEY`, `MARKER`; each costs a pass over
            the records.
        batch_rows: maximum rows of a batch.
        batch_bytes: a batch ends after the row that reaches it, or a little later when rows are small.
        timeout_s: maximum time without progress.
        kept: consumers of a reader of many ranges: one is taken, and put back after the range.
        rows: filter that removes records of other programs. None: the records of all programs.
        is_one: only one record is wanted, so nothing is fetched ahead.

    Raises:
        RecordsLostError: the first offset is lost (retention) or was never written. Names bucket, wanted and earliest
            offset, and the fix.
        CorruptDataError: the topic was deleted.
        UnavailableError: no progress in time: the broker does not answer, or the log ends before the range does.
    """
    if log_range.is_empty:
        return
    standing = None if kept is None else kept.take(topic, log_range.bucket, log_range.start_offset)
    if standing is None:
        notes = ErrorNotes()
        consumer = properties.consumer(notes, **(_LOOK if is_one else {} if kept is None else kept.properties))
        standing = KeptConsumer(consumer=consumer, notes=notes)
    reading = _Reading(standing, topic, log_range, timeout_s, properties.environment)
    is_read = False
    try:
        yield from _of_table(reading.records(), columns, batch_rows, batch_bytes, rows)
        is_read = True
    except KafkaException as error:
        raise reading.explained(error) from error
    finally:
        if kept is not None and is_read:
            kept.put(topic, log_range.bucket, standing, end_offset=log_range.end_offset)
        else:
            standing.consumer.close()


class _Reading:
    """The progress of one consumer through one range."""

    def __init__(
        self,
        standing: KeptConsumer,  # a new one, or one at the start of the range
        topic: str,
        log_range: LogRange,
        timeout_s: float,
        clock: KafkaEnvironment,
    ) -> None:
        self._clock = clock
        self._standing = standing
        self._consumer = standing.consumer
        self._topic = topic
        self._range = log_range
        self._notes = standing.notes
        self._timeout_s = timeout_s
        self._next_offset = max(log_range.start_offset, standing.known_end)

    def records(self) -> Iterator[list[Any]]:
        """Messages of the range as the client returns them: some hundreds at a time."""
        end = self._range.end_offset
        if self._standing.end_offset is None:
            self._consumer.assign([TopicPartition(self._topic, self._range.bucket, self._next_offset)])
        if self._standing.ahead:
            ahead, self._standing.ahead = self._standing.ahead, []
            taken = self._taken(ahead)
            if taken:
                yield taken
        progress = self._clock.monotonic()
        is_explained = False
        while self._next_offset < end:
            # consume() waits its full timeout for a full list: so wait for one message, then take those already fetched
            first = self._consumer.poll(_WAIT_S)
            before = self._next_offset
            if first is not None:
                messages = [first, *self._consumer.consume(min(_CONSUME, end - before), 0)]
                taken = self._taken(messages)
                if taken:
                    yield taken
            if self._notes.missing_topic is not None:
                raise KafkaException(self._notes.missing_topic)
            self._notes.check_accepted()
            if self._next_offset > before:
                progress = self._clock.monotonic()
            elif self._clock.monotonic() - progress > self._timeout_s:
                raise self._stuck()
            elif self._clock.monotonic() - progress > _EXPLAIN_S and not (is_explained or self._notes.all_brokers_down):
                is_explained = True
                self._check_allowed()

    def _check_allowed(self) -> None:
        refusal = hidden_refusal(self._consumer, self._topic)
        if refusal is not None:
            raise KafkaException(refusal)

    def _taken(self, messages: list[Any]) -> list[Any]:
        if not any(map(Message.error, messages)) and messages[-1].offset() < self._range.end_offset:
            self._next_offset = messages[-1].offset() + 1
            return messages
        taken = []
        for number, message in enumerate(messages):
            error = message.error()
            if error is None:
                self._next_offset = message.offset() + 1
                if self._next_offset > self._range.end_offset:
                    self._standing.ahead = messages[number:]
                    break
                taken.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                # the current last stable offset; if below the range's end it will advance as commit markers are written
                self._standing.known_end = message.offset()
                self._next_offset = max(self._next_offset, message.offset())
            elif not is_of_group(error):
                raise KafkaException(error)
        return taken

    def explained(self, error: KafkaException) -> FluvialError:
        """The error to raise for a client error, with the offsets that the client does not report."""
        doing = f"log cannot be read: {self._place()}"
        if error.args[0].code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return error_of_kafka(error, doing, self._notes, needs=[topic_right("Read", self._topic)])
        try:
            partition = TopicPartition(self._topic, self._range.bucket)
            earliest, latest = self._consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
        except KafkaException as nested:
            return error_of_kafka(nested, doing, self._notes, needs=[topic_right("Read", self._topic)])
        if self._next_offset < earliest:
            message = (
                f"records of the log are lost: {self._place()} wanted_offset={self._next_offset}"
                f" earliest_offset={earliest}"
                " cause=retention removed them before they were read"
                " fix=restart from a snapshot of the table; raise log.retention above the longest pause of a reader"
            )
        else:
            message = (
                f"log is shorter than it was: {self._place()} wanted_offset={self._next_offset}"
                f" earliest_offset={earliest} end_offset={latest}"
                f" cause=the topic was deleted and recreated fix={NEW_LOG}"
            )
        return RecordsLostError(message, wanted_offset=self._next_offset, earliest_offset=earliest, end_offset=latest)

    def _stuck(self) -> UnavailableError:
        return UnavailableError(
            f"log read makes no progress: {self._place()} reached_offset={self._next_offset}"
            f" timeout_s={self._timeout_s:g}{self._notes.text}"
            " cause=the broker does not answer, or a transaction below the range's end is still open"
        )

    def _place(self) -> str:
        range_ = self._range
        return f"topic={self._topic} bucket={range_.bucket} range={range_.start_offset}..{range_.end_offset}"


class _Columns:
    """Builds a batch from messages. The client returns objects only; a pass per column is the cheapest conversion."""

    def __init__(self, names: Sequence[str]) -> None:
        self._lists: dict[str, list[Any]] = {name: [] for name in names}
        self.row_count = 0
        self.size_bytes = 0

    def extend(self, messages: Sequence[Any], size_bytes: int) -> None:
        for name, column in self._lists.items():
            column += _READ[name](messages)
        self.row_count += len(messages)
        self.size_bytes += size_bytes

    def batch(self) -> pa.RecordBatch:
        schema = pa.schema([_FIELDS[name] for name in self._lists])
        arrays = [_array_of(column, _FIELDS[name].type) for name, column in self._lists.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_of(column: list[Any], data_type: pa.DataType) -> pa.Array:
    """A column of a batch; bytes are joined in one step, which is many times as fast as value by value."""
    if not pa.types.is_binary(data_type) or None in column:
        return pa.array(column, data_type)
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, column), np.int64, len(column)), out=offsets[1:])
    if offsets[-1] > _MAX_ARRAY_BYTES:
        return pa.array(column, data_type)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(column))]
    return pa.Array.from_buffers(data_type, len(column), buffers)


_MAX_ARRAY_BYTES: Final = 2**31 - 1
_FIELDS: Final = {field.name: field for field in (*LOG_SCHEMA, OLD_KEY, DELETED_KEY, MARKER)}
_OLD_KEY_HEADER: Final = "__debezium.oldkey"


def _old_keys(messages: Sequence[Any]) -> list[bytes | None]:
    """Most records have no headers."""
    found = [*map(Message.headers, messages)]
    if not any(found):
        return [None] * len(found)
    return [None if headers is None else dict(headers).get(_OLD_KEY_HEADER) for headers in found]


def _deleted_keys(messages: Sequence[Any]) -> list[bytes | None]:
    """Most records have a value."""
    values = [*map(Message.value, messages)]
    if None not in values:
        return [None] * len(values)
    return [message.key() if value is None else None for message, value in zip(messages, values, strict=True)]


_READ: Final[Mapping[str, Callable[[Sequence[Any]], Iterable[Any]]]] = {
    "offset": partial(map, Message.offset),
    "timestamp": lambda messages: map(itemgetter(1), map(Message.timestamp, messages)),
    "key": partial(map, Message.key),
    "value": partial(map, Message.value),
    OLD_KEY.name: _old_keys,
    DELETED_KEY.name: _deleted_keys,
    MARKER.name: partial(map, header_of),
}


def _of_table(
    records: Iterator[list[Any]], columns: Sequence[str], batch_rows: int, batch_bytes: int, rows: BatchRows | None
) -> Iterator[pa.RecordBatch]:
    """``_batches``, with the rows of one table only."""
    if rows is None:
        yield from _batches(records, columns, batch_rows, batch_bytes)
        return
    more = [name for name in ("offset",) if name not in columns]
    for batch in rows.of(_batches(rows.watched(records), [*columns, *more], batch_rows, batch_bytes)):
        yield batch.select([*columns]) if more else batch


def _batches(
    records: Iterator[list[Any]], columns: Sequence[str], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """All records in batches, also those that were read before an error: a reader may continue after them."""
    pending = _Columns(columns)
    failure = None
    try:
        for messages in records:
            while messages:
                room = batch_rows - pending.row_count
                for piece, size_bytes in _pieces(messages[:room], batch_bytes):
                    if pending.size_bytes >= batch_bytes:
                        yield pending.batch()
                        pending = _Columns(columns)
                    pending.extend(piece, size_bytes)
                messages = messages[room:]
                if pending.row_count == batch_rows:
                    yield pending.batch()
                    pending = _Columns(columns)
    except KafkaException as error:
        failure = error
    if pending.row_count:
        yield pending.batch()
    if failure is not None:
        raise failure


def _pieces(messages: list[Any], batch_bytes: int) -> Iterator[tuple[Sequence[Any], int]]:
    """All messages with their bytes, halved until a piece is small beside a batch."""
    size_bytes = sum(map(len, messages))
    if len(messages) == 1 or size_bytes < batch_bytes // _PIECES_PER_BATCH:
        yield messages, size_bytes
        return
    middle = len(messages) // 2
    for half in (messages[:middle], messages[middle:]):
        yield from _pieces(half, batch_bytes)
