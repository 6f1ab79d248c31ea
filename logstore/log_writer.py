"""Write one batch into one bucket of the log, exactly once.

The protocol, with the crash of a task, of the driver and of the broker between any two steps:

1. `fence`: a new producer under the bucket's transactional id. Kafka shuts out every older one and settles what it
left open. Then the
   newest marker says whether this batch is in the log already (`marker.next_step`).
2. `append` any number of times. The last record is always held back, so that data files can be finished in between.
3. `commit`: the held-back record goes out with the marker of the batch in its header, and the transaction is
committed. This is the
   point of no return: log slice and data files now belong together.

A writer serves one attempt. After any error it is used up: the next attempt starts at 1 with a new one, and learns
there how this one ended.

Consistency ``eventual`` commits chunks along the way, seen at once by readers. Only the last one completes the batch,
so a repeated attempt repeats rows, and readers fold by key. It is fenced all the same: a plain producer of a dead task
could put an old value last.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from logstore.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, fluvial_error
from logstore.marker import HEADER, CommitMarker, LogTail, encode_marker, read_tail
from logstore.offsets import LogSlice
from lsm.errors import ConflictError, FluvialError, OutcomeUnknownError, UnavailableError

CHUNK_ROWS: Final = 50_000
CHUNK_S: Final = 0.15
FENCING_THREADS: Final = 16

_PIECE_ROWS: Final = 10_000
_PIECE_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 32 << 20  # in the client, waiting for the broker
_BUFFER_ROWS: Final = 200_000
_WAIT_S: Final = 0.1
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTarget:
    """One bucket of a table's log. Small and picklable."""

    properties: KafkaProperties
    topic: str
    table_uuid: str
    bucket: int

    @property
    def transactional_id(self) -> str:
        """The id that all writers of this bucket share, so that each shuts out the one before."""
        return f"fluvial.{self.table_uuid}.{self.bucket}"

    def __str__(self) -> str:
        return f"topic={self.topic} bucket={self.bucket}"


class BucketLogWriter:
    """One attempt to write one batch into one bucket. Not thread-safe, not picklable, made where it is used.

    As a context manager it is closed at the end, which aborts what was not committed.

    Args:
        target: the bucket.
        eventual: commit chunks along the way (see the module).
        timeout_s: for each wait on the broker.
    """

    def __init__(self, target: LogTarget, *, eventual: bool = False, timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        self._target = target
        self._eventual = eventual
        self._timeout_s = timeout_s
        self._notes = ErrorNotes()
        self._producer: Producer | None = None
        self._tail: LogTail | None = None
        self._batch: tuple[str, int] | None = None
        self._in_transaction = False
        self._held: dict[str, bytes | None] | None = None
        self._unsent_bytes: deque[tuple[int, int]] = deque()  # (rows produced up to a piece's end, bytes of the piece)
        self._buffered_bytes = 0
        self._produced = 0  # rows given to the client in this attempt
        self._chunk = _Chunk()
        self._first_offset: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def tail(self) -> LogTail:
        """The log's end as `fence` found it, also without a marker: compare it with the snapshot's."""
        assert self._tail is not None, "fence() first"
        return self._tail

    def fence(self) -> CommitMarker | None:
        """Shut out every other writer of the bucket and read its newest marker; None when no record is left in it.

        Raises:
            ConflictError: another writer fenced this one meanwhile.
            UnavailableError: the broker does not answer.
            CorruptDataError: the topic is gone, or somebody else writes to it.
        """
        assert self._producer is None, "a writer serves one attempt"
        doing = f"log cannot be fenced: {self._target}"
        self._producer = self._target.properties.producer(self._notes, transactional_id=self._target.transactional_id)
        deadline = time.monotonic() + self._timeout_s
        try:
            _resumed(self._producer.init_transactions, deadline)
        except KafkaException as error:
            raise self._error(error, doing) from error
        self._tail = read_tail(
            self._target.properties, topic=self._target.topic, bucket=self._target.bucket, timeout_s=self._timeout_s
        )
        return self._tail.marker

    def begin(self, *, query: str, batch: int) -> None:
        """Name the batch that the coming rows belong to. Local: nothing is sent."""
        assert self._tail is not None, "fence() first"
        assert self._batch is None, "a writer serves one batch"
        self._batch = (query, batch)

    def append(self, keys: pa.Array | None, values: pa.Array) -> None:
        """Send rows, all but the last one. Waits while much is on its way, so memory stays bounded.

        Args:
            keys: (n,) binary, null = record without a key; None = all without (FL-122).
            values: (n,) binary, in the order of the log; null = tombstone.

        Raises:
            ConflictError: another writer took over: fence again and look at the marker. With eventual consistency
                earlier chunks stay visible.
            UnavailableError: the broker does not take the rows in time.
            InvalidInputError: a record is larger than the client or the topic allows.
        """
        producer, _ = self._ready()
        assert keys is None or len(keys) == len(values), "a key for each value"
        for piece, size_bytes in _pieces(keys, values):
            try:
                self._send(producer, piece, size_bytes)
            except (KafkaException, SystemError) as error:
                raise self._error(error, f"rows cannot be written to the log: {self._target}") from error

    def commit(self, payload: bytes, *, is_pointer: bool = False) -> LogSlice:
        """Send the last row with the marker and make the batch visible.

        A batch without rows leaves nothing in the log, no marker either: it gets an empty slice at the log's end.

        Args:
            payload: what a repeated attempt must find: the commit message.
            is_pointer: the payload is the name of where the message is.

        Raises:
            OutcomeUnknownError: the batch may or may not be visible. Keep its files; the next attempt's `fence` tells.
            ConflictError: another writer took over before the commit was sent.
            UnavailableError: the broker did not take the rows.
            InvalidInputError: payload or record is too large.
        """
        producer, (query, batch) = self._ready()
        if self._held is None:
            return LogSlice(start_offset=self.tail.end_offset, end_offset=self.tail.end_offset, row_count=0)
        marker = encode_marker(
            query=query,
            batch=batch,
            row_count=self._produced + 1,
            start_offset=self._first_offset,
            is_final=True,
            payload=payload,
            is_pointer=is_pointer,
        )
        try:
            self._begin_transaction(producer)
            self._produce_marked(producer, self._held, marker)
            self._held = None
            self._flush(producer)
        except (KafkaException, SystemError) as error:
            raise self._error(error, f"rows cannot be written to the log: {self._target}") from error
        self._commit_transaction(producer)
        assert self._first_offset is not None
        return LogSlice(start_offset=self._first_offset, end_offset=self._chunk.end_offset, row_count=self._produced)

    def close(self) -> None:
        """End the attempt; what was not committed is aborted. Never raises: what the abort misses, the next fence does."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            if self._in_transaction:
                producer.abort_transaction(_CLOSE_S)
        except (KafkaException, SystemError):
            pass
        finally:
            producer.close()  # explicitly: left to the garbage collector, its callbacks would run anywhere

    abort = close

    def _ready(self) -> tuple[Producer, tuple[str, int]]:
        assert self._producer is not None, "the writer is closed"
        assert self._batch is not None, "begin() first"
        return self._producer, self._batch

    def _send(self, producer: Producer, piece: list[dict[str, bytes | None]], size_bytes: int) -> None:
        self._begin_transaction(producer)
        if self._held is not None:
            piece.insert(0, self._held)
        self._held = piece.pop()
        if self._eventual and self._is_chunk_due(len(piece)) and piece:
            *unmarked, last = piece
            self._produce(producer, unmarked, size_bytes)
            self._commit_chunk(producer, last)
        else:
            self._produce(producer, piece, size_bytes)
        self._drain(producer)

    def _is_chunk_due(self, coming_rows: int) -> bool:
        return self._chunk.row_count + coming_rows >= CHUNK_ROWS or time.monotonic() - self._chunk.began >= CHUNK_S

    def _commit_chunk(self, producer: Producer, last: dict[str, bytes | None]) -> None:
        _, (query, batch) = self._ready()
        marker = encode_marker(
            query=query,
            batch=batch,
            row_count=self._produced + 1,
            start_offset=self._first_offset,
            is_final=False,
            payload=b"",
            is_pointer=False,
        )
        self._produce_marked(producer, last, marker)
        self._flush(producer)
        self._commit_transaction(producer)

    def _begin_transaction(self, producer: Producer) -> None:
        if self._in_transaction:
            return
        producer.begin_transaction()
        self._in_transaction = True
        self._chunk = _Chunk(began=time.monotonic())

    def _produce(self, producer: Producer, records: list[dict[str, bytes | None]], size_bytes: int) -> None:
        if not records:
            return
        if self._chunk.row_count == 0:  # the first record of a transaction says where it is
            first, *records = records
            producer.produce(
                self._target.topic, partition=self._target.bucket, on_delivery=self._chunk.delivered, **first
            )
            self._count(1, 0)
        queued = producer.produce_batch(self._target.topic, records, partition=self._target.bucket) if records else 0
        if queued != len(records):
            # A hole: later records may be in the queue. The transaction is lost, and with it the writer.
            refused = next(record for record in records if "_error" in record)["_error"]
            raise KafkaException(refused)
        self._count(len(records), size_bytes)

    def _produce_marked(self, producer: Producer, record: dict[str, bytes | None], marker: bytes) -> None:
        producer.produce(
            self._target.topic,
            partition=self._target.bucket,
            headers=[(HEADER, marker)],
            on_delivery=self._chunk.delivered,
            **record,
        )
        self._count(1, 0)

    def _count(self, row_count: int, size_bytes: int) -> None:
        self._produced += row_count
        self._chunk.row_count += row_count
        self._unsent_bytes.append((self._produced, size_bytes))
        self._buffered_bytes += size_bytes

    def _drain(self, producer: Producer) -> None:
        """Wait until little enough is on its way."""
        deadline = time.monotonic() + self._timeout_s
        producer.poll(0)
        while self._waiting(producer) > _BUFFER_ROWS or self._buffered_bytes > _BUFFER_BYTES:
            self._raise_delivery_error()
            if time.monotonic() > deadline:
                raise self._too_slow(len(producer))
            producer.poll(_WAIT_S)

    def _waiting(self, producer: Producer) -> int:
        waiting = len(producer)
        while self._unsent_bytes and self._unsent_bytes[0][0] <= self._produced - waiting:
            self._buffered_bytes -= self._unsent_bytes.popleft()[1]
        return waiting

    def _flush(self, producer: Producer) -> None:
        left = producer.flush(self._timeout_s)
        self._raise_delivery_error()
        _check_transaction(producer)
        if left:
            raise self._too_slow(left)
        chunk = self._chunk
        if chunk.end_offset - chunk.first_offset != chunk.row_count:
            raise ConflictError(
                f"rows of a transaction are not side by side: {self._target} first_offset={chunk.first_offset}"
                f" end_offset={chunk.end_offset} rows={chunk.row_count} cause=someone else writes to the topic"
            )
        if self._first_offset is None:
            self._first_offset = chunk.first_offset

    def _raise_delivery_error(self) -> None:
        if self._chunk.error is not None:
            raise KafkaException(self._chunk.error)

    def _commit_transaction(self, producer: Producer) -> None:
        try:
            _resumed(producer.commit_transaction, time.monotonic() + self._timeout_s)
        except (KafkaException, SystemError) as error:
            producer_error = self._error(error, f"commit of a batch was sent and not confirmed: {self._target}")
            # Even "fenced" does not mean "not committed": the next writer's fence completes a commit whose answer was
            # lost.
            raise OutcomeUnknownError(str(producer_error)) from error
        self._in_transaction = False

    def _too_slow(self, left: int) -> UnavailableError:
        return UnavailableError(
            f"broker does not take rows in time: {self._target} waiting_rows={left} timeout_s={self._timeout_s:g}{self._notes.text}"
        )

    def _error(self, error: KafkaException | SystemError, doing: str) -> FluvialError:
        return fluvial_error(error, doing, self._notes)


def fence_all(targets: Iterable[LogTarget], *, timeout_s: float = OPERATION_TIMEOUT_S) -> dict[int, LogTail]:
    """Fence every bucket, many at a time, and say how each log ends: what a driver does before the first batch of a
    run.

    Afterwards no writer of an earlier run can commit any more.

    Raises:
        As `BucketLogWriter.fence` for the first bucket that fails; the others are fenced all the same.
    """

    def tail(target: LogTarget) -> LogTail:
        with BucketLogWriter(target, timeout_s=timeout_s) as writer:
            writer.fence()
            return writer.tail

    with ThreadPoolExecutor(max_workers=FENCING_THREADS, thread_name_prefix="fluvial-fence") as threads:
        return {found.bucket: found for found in threads.map(tail, targets)}


class _Chunk:
    """One transaction: what was sent in it, and what the broker said of its first and last record."""

    def __init__(self, began: float = 0.0) -> None:
        self.began = began
        self.row_count = 0
        self.first_offset = -1
        self.end_offset = -1
        self.error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.error = self.error or error
            return
        if self.first_offset < 0:
            self.first_offset = message.offset()
        self.end_offset = message.offset() + 1


def _pieces(keys: pa.Array | None, values: pa.Array) -> Iterator[tuple[list[dict[str, bytes | None]], int]]:
    """Rows as the client wants them, in pieces of bounded rows and bytes, with the bytes of each piece.

    Rows become Python objects here, because the client takes nothing else.
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


def _check_transaction(producer: Producer) -> None:
    """Raise the error that has spoiled the open transaction, if one has.

    Only few records report their delivery, and the commit's own errors come too late: they leave the outcome open.
    To begin what is begun does nothing, and is refused with the transaction's error where there is one.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        if error.args[0].code() != KafkaError._STATE:
            raise


def _resumed(call: Any, deadline: float) -> None:
    """Call something of the transaction API, and again while Kafka says that it goes on where it was."""
    while True:
        left = deadline - time.monotonic()
        try:
            call(max(0.1, left))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= deadline:
                raise
        else:
            return
