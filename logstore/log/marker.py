"""The marker: metadata of a whole batch in the header ``fluvial`` of its last record.

Records and marker become visible in one Kafka transaction. So the last committed record of a bucket, read after
fencing its writers, identifies the last batch, which is complete, and the data files that belong to it.

Header value: one line of JSON (two here), a line feed, the raw payload::

    {"version": 1, "query": "<id>", "batch": 7, "rows": 500, "start": 4100, "final": true, "pointer": false,
     "schema": 3}

``rows`` counts the rows of the batch up to this record. ``start`` is the offset of the first one if it is known before
the last is written (null: the slice is one transaction, so it began ``rows - 1`` records earlier). ``final`` is false
on the marker of a chunk that is not the last of its batch (eventual consistency only). ``pointer`` means that the
payload is the location of the commit message, not the message. ``schema`` is the version of the table's
schema that the rows were written with (``log.header.schema-id``; absent if that is off, and from older writers).
``table`` is the id of the table (absent from older writers).

``end`` is the offset behind this record: with another one it is a copy (absent from older writers).
With a key (``marker_key``) the line also has ``after``, the end of the bucket that its writer had found, and at last
``mac``. A last record whose marker is not signed by the key is treated as another program's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logstore.kafka.clients import NEW_LOG, ErrorNotes, KafkaProperties, error_of_kafka, leader_moved
from logstore.kafka.environment import KafkaEnvironment
from logstore.kafka.refusals import hidden_refusal, is_of_group, topic_right
from logstore.log.control_record import MARKER_VERSION, claimant_of, header_of, is_claim, left_in
from logstore.log.marker_key import MarkerKey
from lsm.errors import CorruptDataError, InvalidInputError, OpenTransactionError, UnavailableError

# a commit message of at least this size is stored in a file, and its name in the marker
INLINE_PAYLOAD_BYTES: Final = 48 * 1024

_FIRST_LOOK_BACK: Final = 2  # the last record and the commit marker of its transaction
_WIDENING: Final = 8
_TAIL_TIMEOUT_S: Final = 30.0
# records were deleted between the look at the ends and the first fetch
_RETENTION_WAS_FASTER: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_LEADER_POLL_S: Final = 0.05
_MARKER_WAIT_MS: Final = 20
_OPEN_S: Final = 2.0  # a transaction that ends within is nothing to speak of
_OPEN_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMarker:
    """The newest batch of one bucket's log, or the newest chunk of an incomplete one."""

    query: str  # stable id of the streaming query
    batch: int
    row_count: int
    start_offset: int
    end_offset: int  # offset of the record with the marker, plus one
    payload: bytes  # the writer's commit message, or its location
    is_pointer: bool
    is_final: bool  # False: a chunk; its batch must be written again
    schema_id: int | None = None  # id of the table's schema; None: not recorded
    table_id: str | None = None  # None: not recorded
    after: int | None = None  # the bucket's end that its writer had found; None: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The last stable offset and last marker of a fenced bucket."""

    bucket: int
    marker: CommitMarker | None  # None: no committed row exists (never written, or expired)
    end_offset: int  # the marker's; without one, the offset of the next record
    earliest_offset: int  # the earliest retained offset
    is_foreign: bool = False  # the last record is another program's, and ends at ``end_offset``
    is_unsigned: bool = False  # and it has a marker, without the signature of the table's key
    left_snapshot: int = 0  # of the newest control record behind the marker; 0: there is none
    stable_end: int = field(default=0, compare=False)  # no record before it is in an open transaction
    next_offset: int = field(default=0, compare=False)  # where the next record of any program comes

    def has_unended_batch(self, known_end: int) -> bool:
        """Whether rows behind a snapshot's next offset end with a chunk of a batch (log.consistency=eventual)."""
        return self.marker is not None and not self.marker.is_final and self.end_offset > known_end


class NextStep(Enum):
    """The action of a task for its batch after fencing the bucket."""

    WRITE = "write"  # the log does not hold it
    ADOPT = "adopt"  # the log holds it: reuse the slice and files of the marker
    STOP = "stop"  # the log holds a later one: this task is stale


def next_step(marker: CommitMarker | None, *, query: str, batch: int) -> NextStep:
    """The action for `batch` of `query`, given the newest marker. Markers of other queries are ignored."""
    if marker is None or marker.query != query or marker.batch < batch:
        return NextStep.WRITE
    if marker.batch > batch:
        return NextStep.STOP
    return NextStep.ADOPT if marker.is_final else NextStep.WRITE


def encode_marker(
    *,
    query: str,
    batch: int,
    row_count: int,
    start_offset: int | None,
    is_final: bool,
    payload: bytes,
    is_pointer: bool,
    schema_id: int | None = None,
    table_id: str | None = None,
    end_offset: int | None = None,
    after: int | None = None,
    key: MarkerKey | None = None,
    bucket: int = 0,
) -> bytes:
    """The header value of a marker; with a key it is signed for a bucket, and for the place of its record.

    Raises:
        CorruptDataError: the key is lost.
        InvalidInputError: the payload is too large for the header; store it in a file.
    """
    if len(payload) >= INLINE_PAYLOAD_BYTES:
        raise InvalidInputError(
            f"marker is too large: query={query} batch={batch} payload_bytes={len(payload)}"
            f" limit_bytes={INLINE_PAYLOAD_BYTES} fix=store the commit message in a file and give its name"
        )
    fields = {
        "version": MARKER_VERSION,
        "query": query,
        "batch": batch,
        "rows": row_count,
        "start": start_offset,
        "final": is_final,
        "pointer": is_pointer,
        **({} if schema_id is None else {"schema": schema_id}),
        **({} if table_id is None else {"table": table_id}),
        **({} if end_offset is None else {"end": end_offset}),
        **({} if key is None else {"after": after}),
    }
    line = json.dumps(fields).encode()
    return line + b"\n" + payload if key is None else key.signed(line, payload, bucket)


def decode_marker(value: bytes, *, record_offset: int) -> CommitMarker:
    """The marker in the header of the record at `record_offset`.

    Raises:
        CorruptDataError: the value is not a marker, from a newer version of Fluvial, or a copy from another place.
    """
    line, _, payload = value.partition(b"\n")
    try:
        fields = json.loads(line)
        if fields["version"] != MARKER_VERSION:
            raise CorruptDataError(
                f"marker was written by a newer Fluvial: offset={record_offset} version={fields['version']} "
                f"known={MARKER_VERSION}"
                " fix=upgrade"
            )
        end_offset, start, row_count = record_offset + 1, fields["start"], int(fields["rows"])
        if fields.get("end", end_offset) != end_offset:
            raise copied_batch(f"offset={record_offset} written_at={int(fields['end']) - 1}")
        return CommitMarker(
            query=str(fields["query"]),
            batch=int(fields["batch"]),
            row_count=row_count,
            start_offset=end_offset - row_count if start is None else int(start),
            end_offset=end_offset,
            payload=payload,
            is_pointer=bool(fields["pointer"]),
            is_final=bool(fields["final"]),
            schema_id=None if fields.get("schema") is None else int(fields["schema"]),
            table_id=None if fields.get("table") is None else str(fields["table"]),
            after=None if fields.get("after") is None else int(fields["after"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"marker cannot be read: offset={record_offset} header={value[:200]!r}") from error


def read_tail(
    properties: KafkaProperties,
    *,
    topic: str,
    bucket: int,
    table_id: str | None = None,
    key: MarkerKey | None = None,
    allows_foreign: bool = False,
    timeout_s: float = _TAIL_TIMEOUT_S,
) -> LogTail:
    """The marker of the last committed record of a bucket, and its offsets. Fence the bucket's writers first.

    Without fencing, the call may wait for the open transaction of a dead writer, and the result may be stale.

    Args:
        properties: client properties of the cluster.
        topic: the topic.
        bucket: the partition.
        table_id: the table; a marker with another id is refused. None: any table.
        key: a record with a marker that it has not signed is another program's. None: the table has no key.
        allows_foreign: give a last record without a marker, too, for a caller that calls ``refuse_foreign``.
        timeout_s: timeout of the call.

    Raises:
        CorruptDataError: the last record has no marker, or the marker of another table.
        UnavailableError: the broker does not answer in time.
    """
    notes, clock = ErrorNotes(), properties.environment
    deadline = clock.monotonic() + timeout_s
    doing = f"end of the log cannot be read: topic={topic} bucket={bucket}"
    look_back = _FIRST_LOOK_BACK
    while True:
        # A new consumer per attempt: a reused one would first wait for its old fetch. And no wait at the log's end,
        # which is what this searches for.
        consumer = properties.consumer(notes, **{"fetch.wait.max.ms": 1})
        try:
            earliest, stable_end = consumer.get_watermark_offsets(
                TopicPartition(topic, bucket), timeout=_left(clock, deadline)
            )
            start = max(earliest, stable_end - look_back)
            first = TopicPartition(topic, bucket, start)
            last, left = _last_record(consumer, first, table_id, clock, deadline, doing, notes)
            next_offset = max(stable_end, consumer.get_watermark_offsets(first, cached=True)[1])
            found = partial(
                LogTail, bucket=bucket, earliest_offset=earliest, left_snapshot=left, stable_end=stable_end,
                next_offset=next_offset,
            )  # fmt: skip
        except KafkaException as error:
            again = leader_moved(error) or error.args[0].code() in _RETENTION_WAS_FASTER
            if not again or clock.monotonic() > deadline:
                consumer.poll(0)  # delivers pending error callbacks
                cause = hidden_refusal(consumer, topic) or error
                raise error_of_kafka(cause, doing, notes, needs=[topic_right("Read", topic)]) from error
            clock.sleep(_LEADER_POLL_S)
            continue
        finally:
            consumer.close()
        if last is not None:
            header = header_of(last)
            marker = None if header is None and allows_foreign else _marker_of(last, topic, bucket, table_id)
            is_unsigned = key is not None and marker is not None and not key.has_signed(header or b"", bucket)
            if header is None or is_unsigned:
                if not allows_foreign:
                    raise refuse_foreign(f"topic={topic} bucket={bucket} offset={last.offset()}", is_unsigned=True)
                end = last.offset() + 1
                return found(marker=None, end_offset=end, is_foreign=True, is_unsigned=is_unsigned)
            return found(marker=marker, end_offset=stable_end if marker is None else marker.end_offset)
        if start == earliest:
            return found(marker=None, end_offset=stable_end)
        look_back *= _WIDENING  # only control records and aborted records so far


def settled_tail(read: Callable[[], LogTail], place: str, clock: KafkaEnvironment) -> LogTail:
    """The tail that a writer reads behind its fence: what is in an open transaction could come to be among its rows.

    Raises: OpenTransactionError: another program, or a newer writer of the table, has a transaction open.
    """
    deadline = clock.monotonic() + _OPEN_S
    while (tail := read()).next_offset > tail.stable_end:
        if clock.monotonic() > deadline:
            raise OpenTransactionError(
                f"a transaction of another program is open in the log: {place} since_offset={tail.stable_end} "
                f"log_end={tail.next_offset} "
                "fix='wait until it ends, at most its transaction.timeout.ms; a job of Flink ends one by a checkpoint'"
            )
        clock.sleep(_OPEN_POLL_S)
    return tail


def read_marker(
    properties: KafkaProperties,
    *,
    topic: str,
    bucket: int,
    end_offset: int,
    table_id: str | None = None,
    timeout_s: float = _TAIL_TIMEOUT_S,
) -> CommitMarker | None:
    """The marker of the batch that ends at an offset; None when its last record is not in the log.

    Args:
        properties: client properties of the cluster.
        topic: topic of the log.
        bucket: the bucket.
        end_offset: the offset after the batch's last record, as a snapshot has it.
        table_id: see ``read_tail``.
        timeout_s: maximum wait: right after a commit, readers may not see its records yet.

    Raises:
        CorruptDataError: the record has no marker.
        UnavailableError: the broker does not answer in time.
    """
    notes, clock = ErrorNotes(), properties.environment
    deadline = clock.monotonic() + timeout_s
    doing = f"marker of a batch cannot be read: topic={topic} bucket={bucket} end_offset={end_offset}"
    consumer = properties.consumer(notes, **{"fetch.wait.max.ms": _MARKER_WAIT_MS})
    try:
        consumer.assign([TopicPartition(topic, bucket, end_offset - 1)])
        while clock.monotonic() < deadline:
            message = consumer.poll(min(1.0, _left(clock, deadline)))
            error = notes.missing_topic if message is None else message.error()
            if message is not None and error is None:
                return _marker_of(message, topic, bucket, table_id) if message.offset() == end_offset - 1 else None
            if error is not None and error.code() in _RETENTION_WAS_FASTER:
                return None
            if error is not None and error.code() != KafkaError._PARTITION_EOF and not is_of_group(error):
                raise error_of_kafka(error, doing, notes, needs=[topic_right("Read", topic)])
    finally:
        consumer.close()
    raise UnavailableError(f"{doing} cause=no answer in time{notes.text}")


def _last_record(
    consumer: Consumer,
    start: TopicPartition,
    table_id: str | None,
    clock: KafkaEnvironment,
    deadline: float,
    doing: str,
    notes: ErrorNotes,
) -> tuple[Any | None, int]:
    """The last record that is a row, or the log's first record; and the snapshot that later control records name."""
    consumer.assign([start])
    last, left = None, 0
    while True:
        message = consumer.poll(min(1.0, _left(clock, deadline)))
        if message is None:
            if notes.missing_topic is not None:
                raise KafkaException(notes.missing_topic)
            if clock.monotonic() >= deadline:
                raise UnavailableError(f"{doing} cause=no answer in time{notes.text}")
            continue
        error = message.error()
        if error is None:
            is_note = is_claim(message)
            left = max(left, left_in(message, table_id)) if is_note else 0
            last = message if message.offset() == 0 or not is_note else last
        elif error.code() == KafkaError._PARTITION_EOF:
            return last, left
        elif not is_of_group(error):
            raise KafkaException(error)


def _marker_of(record: Any, topic: str, bucket: int, table_id: str | None) -> CommitMarker | None:
    """The marker of the last record; None when this is the table's claim."""
    place = f"topic={topic} bucket={bucket} offset={record.offset()}"
    header = header_of(record)
    if header is None:
        raise refuse_foreign(place)
    claimant = claimant_of(header)
    marker = None if claimant is not None else decode_marker(header, record_offset=record.offset())
    owner = claimant if marker is None else marker.table_id
    if table_id is not None and owner is not None and owner != table_id:
        raise CorruptDataError(
            f"the topic has records of another table: {place} table_id={table_id} record_table_id={owner}"
            f" cause=two tables write to one topic fix={NEW_LOG}"
        )
    return marker


def copied_batch(place: str) -> CorruptDataError:
    """The error for a marker that its writer put elsewhere; ``place``: where."""
    return CorruptDataError(
        f"a batch in the log is not the table's, but a copy of an earlier one: {place} cause=another program writes to "
        f"the topic: nothing of it is used fix=let only writers of the table write to it, and {NEW_LOG}"
    )


def refuse_foreign(place: str, *, is_unsigned: bool = False) -> CorruptDataError:
    """The error for a last record that is another program's and in no snapshot; ``place``: topic, bucket, offset."""
    if is_unsigned:
        return CorruptDataError(
            f"last batch of the log is not the table's, its marker is not signed by the table's key: {place} "
            "cause=a program without the key writes to the topic, an earlier Fluvial or a stranger: nothing of it "
            f"is used fix=let only writers of the table write to it, and {NEW_LOG}"
        )
    return CorruptDataError(
        f"last record of the log has no marker: {place} cause=another producer writes to the topic"
        f" fix=let Flink's job end or be at a checkpoint; else let only Fluvial write to it, and {NEW_LOG}"
    )


def _left(clock: KafkaEnvironment, deadline: float) -> float:
    return max(0.001, deadline - clock.monotonic())
