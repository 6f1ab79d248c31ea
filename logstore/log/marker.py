"""The marker: what the last record of a batch says about the whole batch, in its header ``fluvial``.

Records and marker become visible in one Kafka transaction. Whoever reads the last committed record of a bucket, after
fencing its writers, therefore knows which batch came last, all of it, and which data files belong to it.

Header value: one line of JSON (two here), a line feed, the payload as it is::

    {"version": 1, "query": "<id>", "batch": 7, "rows": 500, "start": 4100, "final": true, "pointer": false,
     "schema": 3}

``rows`` counts those of the batch up to this record. ``start`` is the offset of the first one where it is known before
the last is written (null: the slice is one transaction, so it began ``rows - 1`` records earlier). ``final`` is false
on the marker of a chunk that is not the last of its batch (eventual consistency only). ``pointer`` says that the
payload is the name of the place where the commit message is, not the message. ``schema`` is the version of the table's
schema that the rows were written with (``log.header.schema-id``; left out where that is off, and by older writers).
"""

import json
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logstore.kafka.clients import ErrorNotes, KafkaProperties, error_of_kafka, leader_moved
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

HEADER: Final = "fluvial"
MARKER_VERSION: Final = 1
# a commit message at least this large goes into a file, and its name into the marker
INLINE_PAYLOAD_BYTES: Final = 48 * 1024

_FIRST_LOOK: Final = 2  # the last record and the commit marker of its transaction
_WIDENING: Final = 8
_TAIL_TIMEOUT_S: Final = 30.0
_LEADER_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMarker:
    """The newest batch of one bucket's log, or the newest chunk of one that was not finished."""

    query: str  # stable id of the streaming query
    batch: int
    row_count: int
    start_offset: int
    end_offset: int  # of the record that carries the marker, plus one
    payload: bytes  # the writer's commit message, or the name of its place
    is_pointer: bool
    is_final: bool  # False: a chunk; its batch must be written again
    schema_id: int | None = None  # of the table's schema; None: not told


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The stable end of a fenced bucket."""

    bucket: int
    marker: CommitMarker | None  # None: no committed record is left (or ever was)
    end_offset: int  # the marker's; without one, where the next record will be written
    earliest_offset: int  # the first offset that retention has left

    def check_follows(self, snapshot_end: int | None) -> None:
        """Make sure that this log is the one of a snapshot, and that nothing but the snapshot's own batches is in it.

        Args:
            snapshot_end: the snapshot's next offset of this bucket; None when it has none.

        Raises:
            CorruptDataError: the log is shorter (it was recreated), or longer by records of a batch that the snapshot
                does not hold. A caller that expects such a batch (the one after the snapshot's) recognizes it by its
                marker and does not ask.
        """
        if self.marker is None:
            if snapshot_end is None or self.earliest_offset >= snapshot_end:
                return  # never written, or all expired
        elif self.end_offset == snapshot_end:
            return
        raise CorruptDataError(
            f"log does not end where the snapshot says: bucket={self.bucket} log_end={self.end_offset}"
            f" snapshot_end={snapshot_end} earliest={self.earliest_offset} last_batch={_name(self.marker)}"
            " cause=the topic was recreated, someone else writes to it, or a batch was orphaned with its checkpoint"
        )


class NextStep(Enum):
    """What a task does about its batch after fencing the bucket."""

    WRITE = "write"  # the log does not hold it
    ADOPT = "adopt"  # the log holds it: take slice and files from the marker
    STOP = "stop"  # the log holds a later one: this task belongs to the past


def next_step(marker: CommitMarker | None, *, query: str, batch: int) -> NextStep:
    """What to do about `batch` of `query`, from the newest marker. A marker of another query decides nothing here."""
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
    """The header's value.

    Raises:
        InvalidInputError: the payload is too large to be inline.
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
        CorruptDataError: it is no marker, or one of a newer Fluvial.
    """
    line, _, payload = value.partition(b"\n")
    try:
        fields = json.loads(line)
        if fields["version"] != MARKER_VERSION:
            raise CorruptDataError(
                f"marker is of a newer Fluvial: offset={record_offset} version={fields['version']} "
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
    """The last committed record of a bucket, as what its marker says. Fence the bucket's writers first.

    Without the fence the answer may wait for an open transaction of a dead writer, and be outdated by one that lives.

    Raises:
        CorruptDataError: the last record carries no marker: somebody else writes to the topic.
        UnavailableError: the broker does not answer in time.
    """
    notes = ErrorNotes()
    deadline = time.monotonic() + timeout_s
    doing = f"end of the log cannot be read: topic={topic} bucket={bucket}"
    look_back = _FIRST_LOOK
    while True:
        # A new consumer for each look: a kept one would first wait for its old fetch. And no wait at the log's end,
        # which is what is looked for.
        consumer = properties.consumer(notes, **{"fetch.wait.max.ms": 1})
        try:
            earliest, stable_end = consumer.get_watermark_offsets(
                TopicPartition(topic, bucket), timeout=_left(deadline)
            )
            start = max(earliest, stable_end - look_back)
            last = _last_record(consumer, TopicPartition(topic, bucket, start), stable_end, deadline, doing, notes)
        except KafkaException as error:
            if not leader_moved(error) or time.monotonic() > deadline:
                raise error_of_kafka(error, doing, notes) from error
            time.sleep(_LEADER_POLL_S)
            continue
        finally:
            consumer.close()
        if last is not None:
            marker = _marker_of(last, topic, bucket)
            return LogTail(bucket=bucket, marker=marker, end_offset=marker.end_offset, earliest_offset=earliest)
        if start == earliest:
            return LogTail(bucket=bucket, marker=None, end_offset=stable_end, earliest_offset=earliest)
        look_back *= _WIDENING  # only markers and aborted records up to here


def _last_record(
    consumer: Consumer, start: TopicPartition, stable_end: int, deadline: float, doing: str, notes: ErrorNotes
) -> Any | None:
    if start.offset >= stable_end:
        return None
    consumer.assign([start])
    last = None
    while True:
        message = consumer.poll(min(1.0, _left(deadline)))
        if message is None:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"{doing} cause=no answer in time{notes.text}")
            continue
        error = message.error()
        if error is None:
            last = message
        elif error.code() == KafkaError._PARTITION_EOF:
            return last
        else:
            raise KafkaException(error)


def _marker_of(record: Any, topic: str, bucket: int) -> CommitMarker:
    for name, value in record.headers() or ():
        if name == HEADER:
            return decode_marker(value, record_offset=record.offset())
    raise CorruptDataError(
        f"last record of the log has no marker: topic={topic} bucket={bucket} offset={record.offset()}"
        " cause=someone else writes to the topic fix=let only Fluvial write to it, or give the table a new log"
    )


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _name(marker: CommitMarker | None) -> str:
    return f"{marker.query}/{marker.batch}" if marker else "none"
