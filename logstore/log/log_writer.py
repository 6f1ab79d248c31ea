"""Writes one batch into one bucket of the log, exactly once.

The protocol survives a crash of the task, the driver or the broker between any two steps:

1. `fence`: a new producer under the bucket's transactional id. Kafka fences every older one and completes or aborts its
   open transaction. Then the newest marker shows whether this batch is in the log already (`marker.next_step`).
2. `append` any number of times. The last row is always held back, so that data files can be finished before it is sent.
3. `commit`: the held-back row is sent with the marker of the batch in its header, and the transaction is committed.
   This is the point of no return: log slice and data files now belong together.

A writer serves one attempt. After any error it must be discarded: the next attempt starts at 1 with a new one, and
finds out there how this one ended. After a batch that was committed it may be renewed instead: see ``kept_writers``.

Consistency ``eventual`` commits in chunks, visible to readers at once. Only the last one completes the batch,
so a retry repeats rows, and readers deduplicate by key. Writers are fenced all the same: an unfenced producer of a dead
task could write an old value last.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import Right, topic_right
from logstore.kafka.transactions import (
    LogRecord,
    Transaction,
    close_producer,
    initialize,
    record_pieces,
    transaction_error,
)
from logstore.log.control_record import HEADER, encode_genesis
from logstore.log.marker import CommitMarker, LogTail, encode_marker, read_tail, settled_tail
from logstore.log.marker_key import MarkerKey
from logstore.offsets import LogSlice
from lsm.errors import ConflictError, FluvialError, OpenTransactionError, OutcomeUnknownError

CHUNK_ROWS: Final = 50_000
CHUNK_S: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTarget:
    """One bucket of a table's log. Small and picklable."""

    properties: KafkaProperties
    topic: str
    table_uuid: str
    bucket: int
    key: MarkerKey | None = None  # of the topic: signs markers; None: the table has none
    topic_id: str | None = None  # None: not known; else a topic of this name that was made again is another target

    @property
    def transactional_id(self) -> str:
        """The id shared by all writers of this bucket, so that each fences the one before."""
        return f"fluvial.{self.table_uuid}.{self.bucket}"

    @property
    def rights(self) -> tuple[Right, ...]:
        """The rights of a writer, reading the log's end apart."""
        ids = Right(operation="Write", resource="transactional-id", name=f"fluvial.{self.table_uuid}.", is_prefix=True)
        return (topic_right("Write", self.topic), ids)

    def __str__(self) -> str:
        return f"topic={self.topic} bucket={self.bucket}"


class BucketLogWriter:
    """One attempt to write one batch into one bucket. Not thread-safe, not picklable.

    As a context manager it is closed on exit, which aborts an uncommitted transaction.

    Args:
        target: the bucket to write to.
        eventual: commit in chunks (see the module docstring).
        timeout_s: timeout of each wait for the broker.
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
        self._committed_rows = 0  # rows of earlier chunks
        self._first_offset: int | None = None  # first offset of the batch, known after the first chunk
        self._committed: CommitMarker | None = None  # of the whole batch
        self._next_offset = 0  # where the first record of a transaction comes, unless another program writes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> LogTarget:
        """The bucket."""
        return self._target

    @property
    def is_renewable(self) -> bool:
        """Whether the writer has committed a batch, in one transaction, and is open."""
        return self.left_offset is not None

    @property
    def left_offset(self) -> int | None:
        """The next offset behind the batch that it has committed; None: it is not renewable."""
        is_whole = self._producer is not None and self._committed is not None and not self._eventual
        return self._committed.end_offset if is_whole and self._committed is not None else None

    def renew(self) -> bool:
        """Begin another batch without `fence`: the committed batch is the bucket's end unless another writer has come.

        Another writer fences this one: then sending or committing fails; see `is_accepted`.

        Returns: False: this writer cannot be renewed; close it.
        """
        if not self.is_renewable:
            return False
        end, self._committed = self._committed, None
        assert end is not None
        self._tail = LogTail(
            bucket=self._target.bucket, marker=end, end_offset=end.end_offset, earliest_offset=self.tail.earliest_offset
        )
        self._batch, self._schema_id, self._committed_rows, self._first_offset = None, None, 0, None
        try:
            self._open()
        except (KafkaException, SystemError):  # an error came while nothing was written
            return False
        return True

    @property
    def tail(self) -> LogTail:
        """The log's end found by `fence`, with or without a marker, to compare with the snapshot's."""
        assert self._tail is not None, "fence() first"
        return self._tail

    def fence(self) -> CommitMarker | None:
        """Fence every other writer of the bucket and read its newest marker.

        None when the bucket holds no record, or when the last one is another engine's (`tail.is_foreign`), which the
        caller refuses unless a snapshot has it.

        Raises:
            ConflictError: another writer fenced this one in the meantime.
            UnavailableError: the broker does not answer.
            CorruptDataError: the topic is missing, or another producer or table writes to it.
        """
        assert self._producer is None, "a writer serves one attempt"
        try:
            self._tail = self._fenced_tail()
        except OpenTransactionError:  # of a writer that has fenced this one meanwhile, and is paused? a fence ends that
            self.close()
            self._tail = self._fenced_tail()
        self._next_offset = self._tail.next_offset
        return self._tail.marker

    def _fenced_tail(self) -> LogTail:
        """Fence with a new producer, and read the end of the log. Raises: see ``fence``."""
        target = self._target
        self._producer = target.properties.producer(self._notes, transactional_id=target.transactional_id)
        try:
            initialize(self._producer, self._notes, self._timeout_s, target.properties.environment)
        except KafkaException as error:
            raise self._error(error, "log cannot be fenced") from error
        read = partial(
            read_tail,
            target.properties,
            topic=target.topic,
            bucket=target.bucket,
            table_id=target.table_uuid,
            key=target.key,
            allows_foreign=True,
            timeout_s=self._timeout_s,
        )
        return settled_tail(read, str(target), target.properties.environment)

    def note_leaving(self, left: Mapping[str, object], *, value: bytes | None = None) -> None:
        """Write a control record, after `fence`: the table has changed without its log. Visible on return.

        Args:
            left: see `encode_genesis`.
            value: see `empty_value`.

        Raises:
            InvalidInputError: the topic takes no records without a key, or a right is missing.
            ConflictError: another writer took over.
            UnavailableError: the broker does not answer; the record may be there.
        """
        assert self._tail is not None, "fence() first"
        header = encode_genesis(self._target.table_uuid, left)
        try:
            transaction = self._open()
            transaction.send_with_marker({"value": value}, HEADER, header)
            transaction.flush()
            transaction.commit()
        except (KafkaException, SystemError) as error:
            raise self._error(error, "a control record cannot be written to the log") from error
        self._transaction, self._next_offset = None, transaction.end_offset + 1

    def begin(self, *, query: str, batch: int, schema_id: int | None = None) -> None:
        """Set the batch and the schema id of the rows to be appended. Local: nothing is sent."""
        assert self._tail is not None, "fence() first"
        assert self._batch is None, "a writer serves one batch"
        self._batch = (query, batch)
        self._schema_id = schema_id

    def append(self, keys: pa.Array | None, values: pa.Array) -> None:
        """Send all rows but the last one. Blocks while too many are in flight, so memory stays bounded.

        Args:
            keys: (n,) binary, null = record without a key; None = all without.
            values: (n,) binary, in the order of the log; null = tombstone.

        Raises:
            ConflictError: another writer took over: fence again and check the marker. With eventual consistency
                earlier chunks stay visible.
            UnavailableError: the broker does not accept the rows in time.
            InvalidInputError: a record is larger than the client or the topic allows.
        """
        assert self._batch is not None, "begin() first"
        assert keys is None or len(keys) == len(values), "a key for each value"
        try:
            for records, size_bytes in record_pieces(keys, values):
                self._send(records, size_bytes)
        except (KafkaException, SystemError) as error:
            raise self._error(error, "rows cannot be written to the log") from error

    def is_accepted(self, *, waits: bool = False) -> bool:
        """Whether brokers have taken a row of this batch: no other writer has come until then.

        Args:
            waits: for them, if a row was sent.

        Raises:
            ConflictError: another writer took over, or something else is behind what this one wrote last; nothing of
                the batch is visible.
            UnavailableError: the broker does not accept the rows in time.
        """
        if self._transaction is None or self._transaction.row_count == 0:
            return False
        try:
            is_taken = self._transaction.has_first(waits=waits)
        except (KafkaException, SystemError) as error:
            raise self._error(error, "rows cannot be written to the log") from error
        if is_taken:
            self._check_unbroken(self._transaction)
        return is_taken

    def end_chunk(self) -> int | None:
        """Commit the rows so far as a chunk of a batch that has not ended; the next offset. None: there are none.

        Raises: as ``commit``.
        """
        assert self._eventual, "a chunk of a batch is visible to readers at once"
        if self._held is None:
            return None
        last, self._held = self._held, None
        return self._commit_with_marker(last, is_final=False, payload=b"", is_pointer=False)

    def commit(self, payload: bytes, *, is_pointer: bool = False) -> LogSlice:
        """Send the last row with the marker and make the batch visible.

        A batch without rows writes nothing to the log, not even a marker: it gets an empty slice at the log's end.

        Args:
            payload: the commit message, which a retry reads back.
            is_pointer: the payload is the location of the message, not the message.

        Raises:
            OutcomeUnknownError: the batch may or may not be visible. Keep its files; the next `fence` finds out.
            ConflictError: another writer took over before the commit was sent, or the topic is another one of its name.
            UnavailableError: the broker did not accept the rows.
            InvalidInputError: the payload or a record is too large.
        """
        assert self._batch is not None, "begin() first"
        if self._held is None:
            return LogSlice(start_offset=self.tail.end_offset, end_offset=self.tail.end_offset, row_count=0)
        last, self._held = self._held, None
        end_offset = self._commit_with_marker(last, is_final=True, payload=payload, is_pointer=is_pointer)
        assert self._first_offset is not None
        query, batch = self._batch
        self._committed = CommitMarker(
            query=query,
            batch=batch,
            row_count=self._committed_rows,
            start_offset=self._first_offset,
            end_offset=end_offset,
            payload=payload,
            is_pointer=is_pointer,
            is_final=True,
            schema_id=self._schema_id,
            table_id=self._target.table_uuid,
            after=None if self._target.key is None else self.tail.end_offset,
        )
        return LogSlice(start_offset=self._first_offset, end_offset=end_offset, row_count=self._committed_rows)

    def close(self) -> None:
        """Abort the open transaction and close the producer. Never raises: the next fence aborts the rest."""
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
        """Commit the open transaction with `last` as its last row; returns the offset after it."""
        assert self._batch is not None
        transaction = self._open()
        marker = encode_marker(
            query=self._batch[0],
            batch=self._batch[1],
            row_count=self._committed_rows + transaction.row_count + 1,
            start_offset=self._first_offset,
            is_final=is_final,
            payload=payload,
            is_pointer=is_pointer,
            schema_id=self._schema_id,
            table_id=self._target.table_uuid,
            end_offset=self._next_offset + transaction.row_count + 1,  # checked below, before the commit
            after=self.tail.end_offset,
            key=self._target.key,
            bucket=self._target.bucket,
        )
        try:
            transaction.send_with_marker(last, HEADER, marker)
            transaction.flush()
        except (KafkaException, SystemError) as error:
            raise self._error(error, "rows cannot be written to the log") from error
        if transaction.first_offset < self.tail.end_offset:  # offsets of a topic only grow
            raise ConflictError(
                f"the topic was deleted and made again while rows were sent to it, and nothing of them is visible: "
                f"{self._target} offset={transaction.first_offset} log_end={self.tail.end_offset}: write it again"
            )
        self._check_unbroken(transaction)
        try:
            transaction.commit()
        except (KafkaException, SystemError) as error:
            # Even "fenced" may mean "committed": another writer's fence completes a commit that lost its response
            known = self._error(error, "commit was sent and not confirmed")
            raise OutcomeUnknownError(str(known)) from error
        self._transaction, self._next_offset = None, transaction.end_offset + 1
        self._committed_rows += transaction.row_count
        if self._first_offset is None:
            self._first_offset = transaction.first_offset
        return transaction.end_offset

    def _check_unbroken(self, transaction: Transaction) -> None:
        """Check that a transaction begins at the offset that followed the writer's fence, or its last transaction.

        So a batch is all records from there to its marker, and none of another program is among them.
        """
        if transaction.first_offset != self._next_offset:
            raise ConflictError(
                f"something else is in the log behind what this writer wrote last, and nothing of its rows is visible: "
                f"{self._target} offset={transaction.first_offset} expected={self._next_offset}: write it again"
            )

    def _open(self) -> Transaction:
        assert self._producer is not None, "the writer is closed"
        if self._transaction is None:
            self._transaction = Transaction(
                self._producer,
                topic=self._target.topic,
                partition=self._target.bucket,
                timeout_s=self._timeout_s,
                environment=self._target.properties.environment,
            )
        return self._transaction

    def _error(self, error: KafkaException | SystemError, problem: str) -> FluvialError:
        cause: KafkaError | KafkaException | SystemError = error
        if self._producer is not None:
            with contextlib.suppress(KafkaException, SystemError):
                self._producer.poll(0)  # delivers pending error callbacks
            if self._transaction is not None:
                cause = transaction_error(self._producer) or error
        open_s = None if self._transaction is None else self._transaction.age_s
        expired_s = open_s if open_s is not None and open_s >= self._target.properties.transaction_timeout_s else None
        return error_of_kafka(
            cause, f"{problem}: {self._target}", self._notes, needs=self._target.rights, expired_s=expired_s
        )
