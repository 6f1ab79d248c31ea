"""Records that could not be decoded, and rows that could not be completed, sent to a dead-letter topic."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from engine.kafka.offsets import OffsetRange
from logstore.json.reading import BadRecord
from logstore.kafka.clients import OPERATION_TIMEOUT_S, TOO_LARGE, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import Right, topic_right
from lsm.errors import FluvialError, UnavailableError
from lsm.undo import undoing

TOPIC_HEADER: Final = "fluvial.topic"
PARTITION_HEADER: Final = "fluvial.partition"
OFFSET_HEADER: Final = "fluvial.offset"
REASON_HEADER: Final = "fluvial.reason"
TABLE_HEADER: Final = "fluvial.table"
CUT_HEADER: Final = "fluvial.cut-from"
"""How many bytes key and value had, of a letter that was larger than the topic takes."""
_LEAST_BYTES: Final = 1024  # what every topic takes
_SHOWN_CHARACTERS: Final = 200
_SHOWN_BYTES: Final = 1 << 20  # of one fetch of a partition
_POLL_S: Final = 0.1
_HELD_BYTES: Final = 16 << 20  # of letters that wait until it is known that their reading counts


_Letter = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
"""Key, value and headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLetters:
    """Where a table's writer puts updates that it cannot complete. Picklable; a repeated batch sends them again."""

    properties: KafkaProperties
    topic: str
    table: str
    key_names: Sequence[str]

    def __call__(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Send rows as JSON under their keys, with null for what is missing, and wait until they are acknowledged.

        Raises:
            FluvialError: some are not. Run the batch again.
        """
        letters = DeadLetters(self.properties, self.topic)
        keys = rows.select(list(self.key_names)).to_pylist()
        for key, row, reason in zip(keys, rows.to_pylist(), reasons, strict=True):
            headers = [(TABLE_HEADER, self.table.encode()), (REASON_HEADER, reason.encode())]
            letters.produce(json.dumps(key, default=str).encode(), json.dumps(row, default=str).encode(), headers)
        letters.flush()

    def send_once(self, letters: Iterable[tuple[Mapping[str, Any], str]], *, query: str, batch_id: int) -> None:
        """Send rows of a batch, each with its reason, unless an earlier run of the batch has.

        The letters and the number of the batch, as an offset of a consumer group, are one transaction. Consumers that
        read committed records only, as is usual, get each letter once.

        Args:
            letters: columns by name.
            query: that the batch is of; its batches come in ascending order.
            batch_id: of the batch.

        Raises:
            FluvialError: they were not accepted, and none is seen. Run the batch again.
        """
        group, notes = f"fluvial.letters.{query}.{self.table}", ErrorNotes()
        consumer = self.properties.consumer(notes, **{"group.id": group})
        producer = self.properties.producer(notes, transactional_id=group)
        try:
            producer.init_transactions(OPERATION_TIMEOUT_S)  # also ends what a dead run began
            (done,) = consumer.committed([TopicPartition(self.topic, 0)], OPERATION_TIMEOUT_S)
            if done.offset > batch_id:
                return
            producer.begin_transaction()
            with undoing(partial(producer.abort_transaction, OPERATION_TIMEOUT_S)):
                for row, reason in letters:
                    key = {name: row.get(name) for name in self.key_names}
                    headers = [(TABLE_HEADER, self.table.encode()), (REASON_HEADER, reason.encode())]
                    texts = [json.dumps(each, default=str).encode() for each in (key, row)]
                    _produced(producer, self.topic, texts[0], texts[1], headers)
                place = TopicPartition(self.topic, 0, batch_id + 1)
                producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), OPERATION_TIMEOUT_S)
                producer.commit_transaction(OPERATION_TIMEOUT_S)
        except KafkaException as error:
            needs = [
                topic_right("Write", self.topic),
                Right(operation="Write", resource="transactional-id", name=group),
                Right(operation="Read", resource="group", name=group),
            ]
            doing, absent = f"dead letters were refused: topic={self.topic}", f"create the topic {self.topic}"
            raise error_of_kafka(error, doing, notes, needs=needs, absent=absent) from error
        finally:
            consumer.close()


def _produced(
    producer: Producer,
    topic: str | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]],
    **options: Any,
) -> None:
    """Give a record to a producer, when its queue has room. Raises: KafkaException."""
    while True:
        try:
            producer.produce(topic, value, key, headers=list(headers), **options)
            producer.poll(0)
        except BufferError:  # the queue is full: give it time to drain
            producer.poll(0.1)
            continue
        return


LETTERS: Final = "fluvial.dead-letters"
"""Local property of Spark's jobs: the part that a reading sends."""


class LettersPart(Enum):
    """Which letters of a range a reading of it sends, where a truncate makes the sink read it again."""

    BEFORE = "before"  # up to the first truncate: then this reading fails, and two others follow
    NONE = "none"
    BEHIND = "behind"  # the first truncate


class DeadLetters:
    """The dead-letter topic of one task. The producer is created with the first record.

    A repeated batch sends its bad records again; the topic, partition and offset in their headers identify duplicates.
    """

    def __init__(self, properties: KafkaProperties, topic: str | None, *, is_held: bool = False) -> None:
        """``is_held``: nothing is sent before ``flush``, if it is not too much."""
        self._properties = properties
        self._held: list[_Letter] | None = [] if is_held else None
        self._held_bytes = 0
        self._topic = topic
        self._notes = ErrorNotes()
        self._producer: Producer | None = None
        self._refusal: KafkaError | None = None
        self._too_large: list[_Letter] = []

    def send(self, records: pa.RecordBatch, bad: Sequence[BadRecord], source: OffsetRange) -> None:
        """Send the bad records of a batch, with key and value unchanged."""
        if not bad:
            return
        for each in bad:
            record = {name: records[name][each.index].as_py() for name in ("offset", "key", "value")}
            headers = [
                (TOPIC_HEADER, source.topic.encode()),
                (PARTITION_HEADER, str(source.partition).encode()),
                (OFFSET_HEADER, str(record["offset"]).encode()),
                (REASON_HEADER, each.reason.encode()),
            ]
            self._take((record["key"], record["value"], headers))

    def _take(self, letter: _Letter) -> None:
        if self._held is None:
            self.produce(*letter)
            return
        self._held.append(letter)
        self._held_bytes += len(letter[0] or b"") + len(letter[1] or b"")
        if self._held_bytes > _HELD_BYTES:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held or [], None
        for letter in held:
            self.produce(*letter)

    def flush(self) -> None:
        """Wait until all records are acknowledged.

        Raises:
            FluvialError: some are not. Run the batch again.
        """
        self._release()
        if self._producer is None:
            return
        left = self._producer.flush(OPERATION_TIMEOUT_S)
        while self._too_large and not left and self._refusal is None:
            again, self._too_large = self._too_large, []
            for each in again:
                self.produce(*each, is_alone=True)
                left = left or self._producer.flush(OPERATION_TIMEOUT_S)
        if self._refusal is not None:
            raise self._error(self._refusal)
        if left:
            raise UnavailableError(
                f"dead letters were not accepted in time: topic={self._topic} left={left}{self._notes.text}"
            )

    def produce(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        *,
        is_alone: bool = False,  # in its batch: then brokers refuse it for its own size
    ) -> None:
        """Send one letter. Raises: FluvialError."""
        producer = self._producer = self._producer or self._properties.plain_producer(self._notes)
        done = partial(self._delivered, headers, is_alone)  # the client's report is without headers
        try:
            _produced(producer, self._topic, key, value, headers, on_delivery=done)
        except KafkaException as error:
            if not self._keeps(error.args[0], (key, value, headers), is_cut=True):
                raise self._error(error) from error

    def _error(self, error: KafkaError | KafkaException) -> FluvialError:
        needs = [topic_right("Write", str(self._topic))]
        doing, absent = f"dead letter was refused: topic={self._topic}", f"create the topic {self._topic}"
        return error_of_kafka(error, doing, self._notes, needs=needs, absent=absent)

    def _delivered(
        self, headers: Sequence[tuple[str, bytes]], is_alone: bool, error: KafkaError | None, message: Any
    ) -> None:
        if error is None:
            return
        if not self._keeps(error, (message.key(), message.value(), headers), is_cut=is_alone):
            self._refusal = error

    def _keeps(self, error: KafkaError, letter: _Letter, *, is_cut: bool) -> bool:
        """Keep a letter that is too large to be sent alone, or if it was, half of it; whether it can be sent so."""
        key, value, headers = letter
        size = len(key or b"") + len(value or b"")
        if error.code() not in TOO_LARGE or (is_cut and size < _LEAST_BYTES):
            return False
        if not is_cut:
            self._too_large.append(letter)
            return True
        if not any(name == CUT_HEADER for name, _ in headers):
            headers = [*headers, (CUT_HEADER, str(size).encode())]
        half = size // 2
        key = None if key is None else key[:half]
        value = None if value is None else value[: max(0, half - len(key or b""))]
        self._too_large.append((key, value, headers))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A letter as it is shown."""

    partition: int
    offset: int
    time_ms: int | None
    reason: str
    source: str  # the table, or topic, partition and offset of the record
    key: str  # at most 200 characters, as is the value
    value: str
    size_bytes: int  # of key and value, before the letter was cut


def newest_letters(properties: KafkaProperties, topic: str, *, last: int, timeout_s: float) -> list[DeadLetter]:
    """The newest letters of a topic, newest first: at most ``last`` of each partition are read.

    Args:
        properties: of the cluster.
        topic: of the letters.
        last: letters.
        timeout_s: for all of it; what has not come by then is left out.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: there is no such topic, or it must not be read.
    """
    notes = ErrorNotes()
    found: list[DeadLetter] = []
    consumer, clock = properties.consumer(notes, **{"fetch.message.max.bytes": _SHOWN_BYTES}), properties.environment
    deadline = clock.monotonic() + timeout_s
    try:
        for part in _partitions(consumer, topic, timeout_s):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, part), timeout_s)
            if low < high:
                consumer.assign([TopicPartition(topic, part, max(low, high - last))])
                found += _to_end(consumer, lambda: clock.monotonic() < deadline)
    except KafkaException as error:
        needs = [topic_right("Read", topic)]
        doing, absent = f"dead letters cannot be read: topic={topic}", f"there is none before the first: {topic}"
        raise error_of_kafka(error, doing, notes, needs=needs, absent=absent) from error
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (-(each.time_ms or 0), -each.offset))[:last]


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    """Raises: KafkaException."""
    known = consumer.list_topics(topic, timeout_s).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)


def _to_end(consumer: Consumer, has_time: Callable[[], bool]) -> Iterator[DeadLetter]:
    """The letters of the assigned partition from its position on. Raises: KafkaException."""
    while has_time():
        message = consumer.poll(_POLL_S)
        error = None if message is None else message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        if error is not None:
            raise KafkaException(error)
        if message is not None:
            yield _shown_letter(message)


def _shown_letter(message: Any) -> DeadLetter:
    headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers() or ()}
    key, value = message.key() or b"", message.value() or b""
    kind, time_ms = message.timestamp()
    place = (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER)
    cut = headers.get(CUT_HEADER, "")
    return DeadLetter(
        partition=message.partition(),
        offset=message.offset(),
        time_ms=time_ms if kind and time_ms >= 0 else None,
        reason=headers.get(REASON_HEADER, ""),
        source=headers.get(TABLE_HEADER) or "/".join(headers.get(name, "") for name in place),
        key=key[: 4 * _SHOWN_CHARACTERS].decode(errors="replace")[:_SHOWN_CHARACTERS],
        value=value[: 4 * _SHOWN_CHARACTERS].decode(errors="replace")[:_SHOWN_CHARACTERS],
        size_bytes=int(cut) if cut.isdecimal() and len(cut) < 20 else len(key) + len(value),
    )


class ChosenLetters:
    """The letters of one reading of a range: all, or one part of them. Batches come in the order of the range."""

    def __init__(self, letters: DeadLetters, part: LettersPart | None) -> None:
        """``part``: None is all."""
        self._letters, self._part = letters, part
        self._is_behind = False

    def send(
        self, records: pa.RecordBatch, bad: Sequence[BadRecord], source: OffsetRange, first_truncate: int | None
    ) -> None:
        """Send those of a batch; ``first_truncate``: index of the first truncate event among its records."""
        place = -1 if self._is_behind else first_truncate
        match self._part:
            case LettersPart.NONE:
                bad = ()
            case LettersPart.BEFORE:
                bad = [each for each in bad if place is None or each.index < place]
            case LettersPart.BEHIND:
                bad = [each for each in bad if place is not None and each.index > place]
        self._letters.send(records, bad, source)
        self._is_behind = self._is_behind or first_truncate is not None
        if self._part is LettersPart.BEFORE and first_truncate is not None:
            self._letters.flush()  # the rows end this reading

    def flush(self) -> None:
        """See ``DeadLetters.flush``."""
        self._letters.flush()
