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
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logstore.kafka.clients import ErrorNotes, KafkaProperties, error_of_kafka, leader_moved
from logstore.kafka.environment import KafkaEnvironment
from logstore.kafka.refusals import hidden_refusal, is_of_group, topic_right
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

HEADER: Final = "fluvial"
MARKER_VERSION: Final = 1
# a commit message of at least this size is stored in a file, and its name in the marker
INLINE_PAYLOAD_BYTES: Final = 48 * 1024

_FIRST_LOOK_BACK: Final = 2  # the last record and the commit marker of its transaction
_WIDENING: Final = 8
_TAIL_TIMEOUT_S: Final = 30.0
# records were deleted between the look at the ends and the first fetch
_RETENTION_WAS_FASTER: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_LEADER_POLL_S: Final = 0.05


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The last stable offset and last marker of a fenced bucket."""

    bucket: int
    marker: CommitMarker | None  # None: no committed record exists (never written, or expired)
    end_offset: int  # the marker's; without one, the offset of the next record
    earliest_offset: int  # the earliest retained offset

    def check_follows(self, snapshot_end: int | None) -> None:
        """Check that this log belongs to a snapshot and holds only the snapshot's batches.

        Args:
            snapshot_end: the snapshot's next offset of this bucket; None when it has none.

        Raises:
            CorruptDataError: the log is shorter (it was recreated), or longer by a batch that the snapshot
                does not contain. A caller that expects such a batch (the one after the snapshot's) recognizes it by its
                marker and skips this check.
        """
        if self.marker is None:
            if snapshot_end is None or self.earliest_offset >= snapshot_end:
                return  # never written, or all expired
        elif self.end_offset == snapshot_end:
            return
        raise CorruptDataError(
            f"log end differs from the snapshot: bucket={self.bucket} log_end={self.end_offset}"
            f" snapshot_end={snapshot_end} earliest={self.earliest_offset} last_batch={_name(self.marker)}"
            " cause=the topic was recreated, another producer writes to it, or a batch was orphaned with its checkpoint"
        )


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
) -> bytes:
    """The header value of a marker.

    Raises:
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
    }
    return json.dumps(fields).encode() + b"\n" + payload


def decode_marker(value: bytes, *, record_offset: int) -> CommitMarker:
    """The marker in the header of the record at `record_offset`.

    Raises:
        CorruptDataError: the value is not a marker, or from a newer version of Fluvial.
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
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"marker cannot be read: offset={record_offset} header={value[:200]!r}") from error


def read_tail(properties: KafkaProperties, *, topic: str, bucket: int, timeout_s: float = _TAIL_TIMEOUT_S) -> LogTail:
    """The marker of the last committed record of a bucket, and its offsets. Fence the bucket's writers first.

    Without fencing, the call may wait for the open transaction of a dead writer, and the result may be stale.

    Raises:
        CorruptDataError: the last record has no marker: another producer writes to the topic.
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
            last = _last_record(consumer, first, stable_end, clock, deadline, doing, notes)
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
            marker = _marker_of(last, topic, bucket)
            return LogTail(bucket=bucket, marker=marker, end_offset=marker.end_offset, earliest_offset=earliest)
        if start == earliest:
            return LogTail(bucket=bucket, marker=None, end_offset=stable_end, earliest_offset=earliest)
        look_back *= _WIDENING  # only control records and aborted records so far


def _last_record(
    consumer: Consumer,
    start: TopicPartition,
    stable_end: int,
    clock: KafkaEnvironment,
    deadline: float,
    doing: str,
    notes: ErrorNotes,
) -> Any | None:
    if start.offset >= stable_end:
        return None
    consumer.assign([start])
    last = None
    while True:
        message = consumer.poll(min(1.0, _left(clock, deadline)))
        if message is None:
            if clock.monotonic() >= deadline:
                raise UnavailableError(f"{doing} cause=no answer in time{notes.text}")
            continue
        error = message.error()
        if error is None:
            last = message
        elif error.code() == KafkaError._PARTITION_EOF:
            return last
        elif not is_of_group(error):
            raise KafkaException(error)


def _marker_of(record: Any, topic: str, bucket: int) -> CommitMarker:
    for name, value in record.headers() or ():
        if name == HEADER:
            return decode_marker(value, record_offset=record.offset())
    raise CorruptDataError(
        f"last record of the log has no marker: topic={topic} bucket={bucket} offset={record.offset()}"
        " cause=another producer writes to the topic fix=let only Fluvial write to it, or give the table a new log"
    )


def _left(clock: KafkaEnvironment, deadline: float) -> float:
    return max(0.001, deadline - clock.monotonic())


def _name(marker: CommitMarker | None) -> str:
    return f"{marker.query}/{marker.batch}" if marker else "none"
