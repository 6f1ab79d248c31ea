"""One Kafka transaction: rows of one partition, sent in bounded memory and committed atomically."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from logstore.kafka.clients import ErrorNotes
from logstore.kafka.environment import MACHINE, KafkaEnvironment
from lsm.errors import ConflictError, UnavailableError

LogRecord: TypeAlias = dict[str, bytes | None]  # "value" and maybe "key", as ``produce_batch`` takes them

_PIECE_ROWS: Final = 10_000
_PIECE_BYTES: Final = 4 << 20
_BUFFER_ROWS: Final = 200_000  # in flight in the client
_BUFFER_BYTES: Final = 32 << 20
_WAIT_S: Final = 0.1
_CLOSE_S: Final = 5.0
_ASK_S: Final = 2.0
_LOOK_S: Final = 0.5  # how often a long call looks for a refusal


class Transaction:
    """An open transaction on an initialized producer. After any error only `close_producer` may be called.

    Methods raise KafkaException or SystemError as the client does, UnavailableError when the broker is too slow, and
    ConflictError when the rows are not contiguous in the log.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        topic: str,
        partition: int,
        timeout_s: float,
        environment: KafkaEnvironment = MACHINE,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._timeout_s = timeout_s
        self._environment = environment
        self._began = environment.monotonic()
        self._row_count = 0
        self._first_offset = -1
        self._end_offset = -1
        self._delivery_error: KafkaError | None = None
        self._sent: deque[tuple[int, int]] = deque()  # per piece in flight: rows up to its end, its bytes
        self._sent_bytes = 0
        producer.begin_transaction()

    @property
    def row_count(self) -> int:
        """Number of rows passed to the client so far."""
        return self._row_count

    @property
    def age_s(self) -> float:
        """Seconds since the transaction began."""
        return self._environment.monotonic() - self._began

    @property
    def first_offset(self) -> int:
        """Offset of the first row, known after `flush`."""
        return self._first_offset

    @property
    def end_offset(self) -> int:
        """Offset of the last row plus one, known after `flush`."""
        return self._end_offset

    def send(self, records: Sequence[LogRecord], size_bytes: int) -> None:
        """Pass rows to the client; blocks while too many are in flight."""
        if not records:
            return
        unreported = records
        if self._row_count == 0:
            self._send_reported(records[0])
            unreported = records[1:]
        # no callback per row, which would cost throughput: the first and the last row give the offsets, and a row that
        # is rejected in between fails the transaction
        queued = (
            self._producer.produce_batch(self._topic, list(unreported), partition=self._partition) if unreported else 0
        )
        if queued != len(unreported):
            # a gap, and later rows may be in flight: the transaction must not be committed
            raise KafkaException(next(record["_error"] for record in unreported if "_error" in record))
        self._row_count += queued
        self._sent.append((self._row_count, size_bytes))
        self._sent_bytes += size_bytes
        self._drain()

    def send_with_marker(self, record: LogRecord, header: str, marker: bytes) -> None:
        """Pass the last row to the client, with a header."""
        self._send_reported(record, headers=[(header, marker)])

    def has_first(self, *, waits: bool) -> bool:
        """Whether the first row is in the log, after `send`; ``waits`` until it is, or raises."""
        if self._first_offset < 0 and waits:
            left = self._flushed()
            if self._first_offset < 0:
                self._check()
                raise self._too_slow(left)
        return self._first_offset >= 0

    def flush(self) -> None:
        """Wait until every row is in the log, and check that they are contiguous."""
        left = self._flushed()
        if not left and self._delivery_error is None and self._is_contiguous:
            return  # the last row is in the log, and so is every one before it: nothing failed
        self._check()
        if left:
            raise self._too_slow(left)
        if not self._is_contiguous:
            raise ConflictError(
                f"rows of a transaction are not contiguous: topic={self._topic} bucket={self._partition}"
                f" first_offset={self._first_offset} end_offset={self._end_offset} rows={self._row_count}"
                " cause=another producer writes to the topic"
            )

    def commit(self) -> None:
        """Make the rows visible. After an error the outcome is unknown."""
        call_until_done(self._producer.commit_transaction, self._timeout_s, self._environment)

    @property
    def _is_contiguous(self) -> bool:
        return self._end_offset - self._first_offset == self._row_count

    def _send_reported(self, record: LogRecord, **more: Any) -> None:
        self._producer.produce(self._topic, partition=self._partition, on_delivery=self._delivered, **record, **more)
        self._row_count += 1

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._delivery_error = self._delivery_error or error
            return
        if self._first_offset < 0:
            self._first_offset = message.offset()
        self._end_offset = message.offset() + 1

    def _drain(self) -> None:
        self._producer.poll(0)
        began = looked = self._environment.monotonic()
        waiting = 0
        while self._is_full():
            if waiting == (waiting := len(self._producer)):
                self._check()
            now = self._environment.monotonic()
            if now > began + self._timeout_s:
                raise self._too_slow(waiting)
            if now > looked + self._environment.look_s:
                self._check_topic()
                looked = now
            self._producer.poll(_WAIT_S)

    def _flushed(self) -> int:
        """Wait until every row has a report; the number of rows without one, when it takes too long."""
        deadline = self._environment.monotonic() + self._timeout_s
        while True:
            left_s = deadline - self._environment.monotonic()
            left: int = self._producer.flush(min(left_s, self._environment.look_s))
            if not left or left_s <= self._environment.look_s:
                return left
            self._check_topic()

    def _check_topic(self) -> None:
        """A client that has written to a topic does not notice its deletion, and waits until its rows are too old.

        Asks for all topics: brokers may create one that is asked for by its name.
        """
        try:
            known = self._producer.list_topics(timeout=_ASK_S).topics
        except KafkaException:
            return  # brokers do not answer either
        if self._topic not in known:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def _is_full(self) -> bool:
        waiting = len(self._producer)
        while self._sent and self._sent[0][0] <= self._row_count - waiting:
            self._sent_bytes -= self._sent.popleft()[1]
        return waiting > _BUFFER_ROWS or self._sent_bytes > _BUFFER_BYTES

    def _check(self) -> None:
        """Raise the error that failed the transaction, if any: during the commit it would leave the outcome unknown."""
        failure = transaction_error(self._producer) or self._delivery_error
        if failure is not None:
            raise KafkaException(failure)

    def _too_slow(self, left: int) -> UnavailableError:
        return UnavailableError(
            f"broker does not accept rows in time: topic={self._topic} bucket={self._partition} waiting_rows={left}"
            f" timeout_s={self._timeout_s:g}"
        )


def transaction_error(producer: Producer) -> KafkaError | None:
    """The error that failed the open transaction, or None. Later calls report only a generic failure.

    Only for when something is wrong: confluent-kafka 2.16.1 never frees the error that a transactional call raises.
    """
    try:
        # beginning an open transaction has no effect, and raises the transaction's error if there is one
        producer.begin_transaction()
    except KafkaException as error:
        failure: KafkaError = error.args[0]
        return None if failure.code() == KafkaError._STATE else failure
    return None


def close_producer(producer: Producer, *, is_idle: bool) -> None:
    """Close a producer and abort its transaction. Never raises: the next initialization aborts what this could not.

    Args:
        producer: the caller drops its last reference afterwards.
        is_idle: the producer is initialized, without an open transaction and without an error.
    """
    if not is_idle:
        try:
            producer.purge()
            producer.abort_transaction(_CLOSE_S)
        except (KafkaException, SystemError):
            with contextlib.suppress(KafkaException, SystemError):
                producer.poll(0)  # delivers reports of purged rows here rather than in the destructor
            # Not close(): with an open transaction and no broker it blocks forever (confluent-kafka 2.16.1). The
            # destructor does not wait.
            return
    producer.close()


def initialize(
    producer: Producer, notes: ErrorNotes, timeout_s: float, environment: KafkaEnvironment = MACHINE
) -> None:
    """Fence older producers of the transactional id; ends early when brokers refuse the client permanently.

    Raises:
        KafkaException: not in time, or refused.
    """
    deadline = environment.monotonic() + timeout_s
    while True:
        try:
            producer.init_transactions(max(0.1, min(_LOOK_S, deadline - environment.monotonic())))
        except KafkaException as error:
            producer.poll(0)  # delivers pending error callbacks
            notes.check_accepted()
            if not error.args[0].retriable() or environment.monotonic() >= deadline:
                raise
        else:
            return


def call_until_done(call: Callable[[float], Any], timeout_s: float, environment: KafkaEnvironment = MACHINE) -> None:
    """Call a method of the transaction API, and retry while Kafka reports the error as retriable."""
    deadline = environment.monotonic() + timeout_s
    while True:
        try:
            call(max(0.1, deadline - environment.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or environment.monotonic() >= deadline:
                raise
        else:
            return


def record_pieces(keys: pa.Array | None, values: pa.Array) -> Iterator[tuple[list[LogRecord], int]]:
    """Rows as records for the client, in pieces of bounded rows and bytes, with the size of each piece.

    Rows become Python objects here, as the client requires.
    """
    size_bytes = values.nbytes + (keys.nbytes if keys is not None else 0)
    rows = min(_PIECE_ROWS, max(1, len(values) * _PIECE_BYTES // max(1, size_bytes)))
    for start in range(0, len(values), rows):
        piece = values.slice(start, rows)
        piece_bytes = size_bytes * len(piece) // len(values)
        if keys is None:
            yield [{"value": value} for value in piece.to_pylist()], piece_bytes
        else:
            pairs = zip(keys.slice(start, rows).to_pylist(), piece.to_pylist(), strict=True)
            yield [{"key": key, "value": value} for key, value in pairs], piece_bytes
