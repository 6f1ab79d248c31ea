"""Write one batch into one bucket of the log, exactly once.

The protocol, which survives a crash of the task, the driver or the broker between any two steps:

1. `fence`: a new producer under the bucket's transactional id. Kafka shuts out every older one and settles what it
   left open. Then the newest marker says whether this batch is in the log already (`marker.next_step`).
2. `append` any number of times. The last row is always held back, so that data files can be finished in between.
3. `commit`: the held-back row goes out with the marker of the batch in its header, and the transaction is committed.
   This is the point of no return: log slice and data files now belong together.

A writer serves one attempt. After any error it is used up: the next attempt starts at 1 with a new one, and learns
there how this one ended.

Consistency ``eventual`` commits chunks along the way, seen at once by readers. Only the last one completes the batch,
so a repeated attempt repeats rows, and readers fold by key. It is fenced all the same: a plain producer of a dead task
could put an old value last.
"""

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.transactions import (
    LogRecord,
    Transaction,
    close_producer,
    record_pieces,
    resumed,
    transaction_error,
)
from logstore.log.marker import HEADER, CommitMarker, LogTail, encode_marker, read_tail
from logstore.offsets import LogSlice
from lsm.errors import FluvialError, OutcomeUnknownError

CHUNK_ROWS: Final = 50_000
CHUNK_S: Final = 0.15

_FENCING_THREADS: Final = 16


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
        self._batch: tuple[str, int] | None = None  # query and batch id
        self._schema_id: int | None = None
        self._transaction: Transaction | None = None
        self._held: LogRecord | None = None
        self._committed_rows = 0  # of earlier chunks
        self._first_offset: int | None = None  # of the batch, once a chunk told it

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
        self._producer = self._target.properties.producer(self._notes, transactional_id=self._target.transactional_id)
        try:
            resumed(self._producer.init_transactions, self._timeout_s)
        except KafkaException as error:
            raise self._error(error, "log cannot be fenced") from error
        self._tail = read_tail(
            self._target.properties, topic=self._target.topic, bucket=self._target.bucket, timeout_s=self._timeout_s
        )
        return self._tail.marker

    def begin(self, *, query: str, batch: int, schema_id: int | None = None) -> None:
        """Name the batch that the coming rows belong to, and the version of their columns. Local: nothing is sent."""
        assert self._tail is not None, "fence() first"
        assert self._batch is None, "a writer serves one batch"
        self._batch = (query, batch)
        self._schema_id = schema_id

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
        assert self._batch is not None, "begin() first"
        assert keys is None or len(keys) == len(values), "a key for each value"
        try:
            for records, size_bytes in record_pieces(keys, values):
                self._send(records, size_bytes)
        except (KafkaException, SystemError) as error:
            raise self._error(error, "rows cannot be written to the log") from error

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
        assert self._batch is not None, "begin() first"
        if self._held is None:
            return LogSlice(start_offset=self.tail.end_offset, end_offset=self.tail.end_offset, row_count=0)
        last, self._held = self._held, None
        end_offset = self._commit_with_marker(last, is_final=True, payload=payload, is_pointer=is_pointer)
        assert self._first_offset is not None
        return LogSlice(start_offset=self._first_offset, end_offset=end_offset, row_count=self._committed_rows)

    def close(self) -> None:
        """End the attempt and abort what was not committed. Never raises: the next fence aborts what this misses."""
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer, is_idle=self._tail is not None and self._transaction is None)
            self._transaction = None

    abort = close

    def _send(self, records: list[LogRecord], size_bytes: int) -> None:
        if self._held is not None:
            records.insert(0, self._held)
        self._held = records.pop()
        transaction = self._open()
        is_chunk = transaction.row_count + len(records) >= CHUNK_ROWS or transaction.age_s >= CHUNK_S
        if not (self._eventual and is_chunk and records):
            transaction.send(records, size_bytes)
            return
        *unmarked, last = records
        transaction.send(unmarked, size_bytes)
        self._commit_with_marker(last, is_final=False, payload=b"", is_pointer=False)

    def _commit_with_marker(self, last: LogRecord, *, is_final: bool, payload: bytes, is_pointer: bool) -> int:
        """Commit the open transaction with `last` as its last row; gives the offset after it."""
        assert self._batch is not None
        query, batch = self._batch
        transaction = self._open()
        marker = encode_marker(
            query=query,
            batch=batch,
            row_count=self._committed_rows + transaction.row_count + 1,
            start_offset=self._first_offset,
            is_final=is_final,
            payload=payload,
            is_pointer=is_pointer,
            schema_id=self._schema_id,
        )
        try:
            transaction.send_with_marker(last, HEADER, marker)
            transaction.flush()
        except (KafkaException, SystemError) as error:
            raise self._error(error, "rows cannot be written to the log") from error
        try:
            transaction.commit()
        except (KafkaException, SystemError) as error:
            # Even "fenced" may mean "committed": another writer's fence completes a commit whose answer was lost
            known = self._error(error, "commit was sent and not confirmed")
            raise OutcomeUnknownError(str(known)) from error
        self._transaction = None
        self._committed_rows += transaction.row_count
        if self._first_offset is None:
            self._first_offset = transaction.first_offset
        return transaction.end_offset

    def _open(self) -> Transaction:
        assert self._producer is not None, "the writer is closed"
        if self._transaction is None:
            self._transaction = Transaction(
                self._producer, topic=self._target.topic, partition=self._target.bucket, timeout_s=self._timeout_s
            )
        return self._transaction

    def _error(self, error: KafkaException | SystemError, problem: str) -> FluvialError:
        cause: KafkaError | KafkaException | SystemError = error
        if self._producer is not None:
            with contextlib.suppress(KafkaException, SystemError):
                self._producer.poll(0)  # lets it say what it saw
            if self._transaction is not None:
                cause = transaction_error(self._producer) or error
        return error_of_kafka(cause, f"{problem}: {self._target}", self._notes)


def fence_all(targets: Iterable[LogTarget], *, timeout_s: float = OPERATION_TIMEOUT_S) -> dict[int, LogTail]:
    """How each bucket's log ends, after fencing it: what a driver does before the first batch of a run.

    Afterwards no writer of an earlier run can commit any more. Many buckets at a time.

    Raises:
        FluvialError: as `BucketLogWriter.fence`, for the first bucket that fails; the others are fenced all the same.
    """

    def tail(target: LogTarget) -> LogTail:
        with BucketLogWriter(target, timeout_s=timeout_s) as writer:
            writer.fence()
            return writer.tail

    with ThreadPoolExecutor(max_workers=_FENCING_THREADS, thread_name_prefix="fluvial-fence") as threads:
        return {found.bucket: found for found in threads.map(tail, targets)}
