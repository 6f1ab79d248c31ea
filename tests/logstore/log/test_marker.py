"""Laws of the marker and of reading it back."""

import json
from collections.abc import Callable
from functools import partial
from unittest.mock import create_autospec

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.broker.broker import Broker
from engine.log.table_log import fence_all
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.log.control_record import HEADER, encode_genesis
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import (
    CommitMarker,
    NextStep,
    decode_marker,
    encode_marker,
    next_step,
    read_marker,
    read_tail,
)
from lsm.errors import CorruptDataError, UnavailableError
from tests.support.clients import delete_records

law = settings(max_examples=100, deadline=None, derandomize=True)


@law
@given(
    st.text(),
    st.integers(0, 2**40),
    st.integers(1, 10**6),
    st.booleans(),
    st.binary(max_size=300),
    st.booleans(),
    st.integers(0, 9),
    st.none() | st.integers(0, 2**31),
    st.none() | st.text(),
)
def test_what_is_encoded_is_decoded(
    query: str,
    batch: int,
    rows: int,
    is_final: bool,
    payload: bytes,
    is_pointer: bool,
    gap: int,
    schema_id: int | None,
    table_id: str | None,
) -> None:
    offset = rows + 1_000
    start = None if gap == 0 else offset + 1 - rows - gap
    encoded = encode_marker(
        query=query,
        batch=batch,
        row_count=rows,
        start_offset=start,
        is_final=is_final,
        payload=payload,
        is_pointer=is_pointer,
        schema_id=schema_id,
        table_id=table_id,
    )
    assert decode_marker(encoded, record_offset=offset) == CommitMarker(
        query=query,
        batch=batch,
        row_count=rows,
        start_offset=offset + 1 - rows - gap,
        end_offset=offset + 1,
        payload=payload,
        is_pointer=is_pointer,
        is_final=is_final,
        schema_id=schema_id,
        table_id=table_id,
    )


def test_the_bytes_of_version_1_stay_what_they_are() -> None:
    written = encode_marker(
        query="q-1", batch=7, row_count=500, start_offset=None, is_final=True, payload=b"\x00files", is_pointer=False
    )
    assert written == (
        b'{"version": 1, "query": "q-1", "batch": 7, "rows": 500, "start": null, "final": true, "pointer": false}\n'
        b"\x00files"
    )


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"not json\n", b'{"version": 1}\n', b'{"version": 2, "query": "q"}\n', b"[1]\n", b"\xff\xfe\n"],
)
def test_what_is_no_marker_of_ours_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptDataError, match="offset=41"):
        decode_marker(value, record_offset=41)


def marker(query: str = "q", batch: int = 5, is_final: bool = True, end: int = 20) -> CommitMarker:
    return CommitMarker(
        query=query,
        batch=batch,
        row_count=3,
        start_offset=end - 3,
        end_offset=end,
        payload=b"",
        is_pointer=False,
        is_final=is_final,
    )


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (None, NextStep.WRITE),
        (marker(batch=4), NextStep.WRITE),
        (marker(batch=5), NextStep.ADOPT),
        (marker(batch=5, is_final=False), NextStep.WRITE),
        (marker(batch=6), NextStep.STOP),
        (marker(batch=6, is_final=False), NextStep.STOP),
        (marker(query="other", batch=6), NextStep.WRITE),
    ],
)
def test_the_marker_decides_what_an_attempt_does(found: CommitMarker | None, step: NextStep) -> None:
    assert next_step(found, query="q", batch=5) is step


@pytest.mark.broker
def test_the_tail_is_found_behind_any_number_of_aborted_rows(
    kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(bucket_count=2)
    targets = [LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=bucket) for bucket in (0, 1)]
    with BucketLogWriter(targets[0]) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, pa.array([b"a", b"b"]))
        kept = writer.commit(b"kept")
    for _ in range(3):
        for target in targets:
            with BucketLogWriter(target) as writer:
                writer.fence()
                writer.begin(query="q", batch=1)
                writer.append(None, pa.array([b"x"] * 300))
                writer._producer.flush(10)
    with BucketLogWriter(targets[0]) as writer:
        found = writer.fence()
    assert found is not None
    assert (found.batch, found.end_offset, found.payload) == (0, kept.end_offset, b"kept")
    with BucketLogWriter(targets[1]) as writer:
        assert writer.fence() is None
        assert writer.tail.end_offset > 800


@pytest.mark.broker
def test_a_log_whose_records_all_expired_still_follows_its_snapshot(
    broker: Broker, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """FL-55: retention takes the marker too; the offsets go on."""
    topic = new_topic()
    target = LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)
    slices = []
    for batch in range(2):
        with BucketLogWriter(target) as writer:
            assert writer.fence() is None
            assert writer.tail.end_offset >= (slices[-1].end_offset if slices else 0)
            writer.begin(query="q", batch=batch)
            writer.append(None, pa.array([b"a", b"b"]))
            slices.append(writer.commit(b""))
        fence_all([target])  # the commit's own marker is written, so that it can expire as well
        delete_records(broker.bootstrap_servers, topic, {0: -1})
    assert slices[1].start_offset > slices[0].end_offset


@pytest.mark.broker
def test_the_marker_of_any_batch_is_found_by_its_end(
    broker: Broker, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    target = LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)
    slices = []
    for batch in range(3):
        with BucketLogWriter(target) as writer:
            writer.fence()
            writer.begin(query="q", batch=batch)
            writer.append(None, pa.array([b"a"] * (batch + 1)))
            slices.append(writer.commit(b""))
    found = [read_marker(kafka, topic=topic, bucket=0, end_offset=each.end_offset) for each in slices]
    assert [each and (each.batch, each.start_offset, each.end_offset) for each in found] == [
        (batch, each.start_offset, each.end_offset) for batch, each in enumerate(slices)
    ]
    delete_records(broker.bootstrap_servers, topic, {0: slices[0].end_offset})
    assert read_marker(kafka, topic=topic, bucket=0, end_offset=slices[0].end_offset) is None
    with pytest.raises(CorruptDataError, match="no marker"):
        read_marker(kafka, topic=topic, bucket=0, end_offset=slices[2].end_offset - 1)
    assert read_marker(kafka, topic=topic, bucket=0, end_offset=99) is None
    with BucketLogWriter(target) as writer:  # its rows are there, and nobody knows yet whether they count
        writer.fence()
        writer.begin(query="q", batch=3)
        writer.append(None, pa.array([b"a", b"b"]))
        writer._producer.flush(10)
        end = slices[2].end_offset + 2
        with pytest.raises(UnavailableError, match=f"end_offset={end} cause=no answer in time"):
            read_marker(kafka, topic=topic, bucket=0, end_offset=end, timeout_s=0.5)


@pytest.mark.broker
def test_a_foreign_record_at_the_end_is_not_taken_for_a_batch(
    kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    foreign = kafka.producer(ErrorNotes(), transactional_id=None)
    foreign.produce(topic, b"{}", partition=0, headers=[("other", json.dumps({}).encode())])
    foreign.flush(10)
    foreign.close()
    with pytest.raises(CorruptDataError, match=f"no marker: topic={topic} bucket=0 offset=0 cause=another producer"):
        read_tail(kafka, topic=topic, bucket=0)


@pytest.mark.broker
def test_the_end_of_a_log_is_that_of_one_table(kafka: KafkaProperties, new_topic: Callable[..., str]) -> None:
    """Another one is refused before its first record."""
    topic = new_topic()
    with BucketLogWriter(LogTarget(properties=kafka, topic=topic, table_uuid="one", bucket=0)) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, pa.array([b"a"]))
        writer.commit(b"")
    said = f"topic={topic} bucket=0 offset=0 table_id=other record_table_id=one .* fix=give the table a new topic"
    other = LogTarget(properties=kafka, topic=topic, table_uuid="other", bucket=0)
    with BucketLogWriter(other) as writer, pytest.raises(CorruptDataError, match=said):
        writer.fence()
    found = read_tail(kafka, topic=topic, bucket=0).marker
    assert found is not None
    assert found.table_id == "one"


@pytest.mark.broker
@pytest.mark.parametrize("table_id", ["one", "other"])
def test_a_claim_counts_at_the_beginning_only(
    kafka: KafkaProperties, new_topic: Callable[..., str], table_id: str
) -> None:
    """Elsewhere it is of a table that did not get the topic."""
    topic = new_topic()
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for owner in ("one", "two", "three"):
        producer.produce(topic, partition=0, headers=[(HEADER, encode_genesis(owner))])
    assert producer.flush(20) == 0
    producer.close()
    if table_id == "one":
        assert read_tail(kafka, topic=topic, bucket=0, table_id=table_id).marker is None
    else:
        with pytest.raises(CorruptDataError, match="table_id=other record_table_id=one "):
            read_tail(kafka, topic=topic, bucket=0, table_id=table_id)


@pytest.mark.broker
def test_a_leader_that_has_just_moved_is_asked_again(
    kafka: KafkaProperties, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that learns of a new topic late answers so: seen once in 3,400 tests."""
    topic = new_topic()
    answers = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
    made = KafkaProperties.consumer

    def consumer(properties: KafkaProperties, notes: ErrorNotes, **overrides: object) -> object:
        if not answers:
            return made(properties, notes, **overrides)
        refusing = create_autospec(Consumer, instance=True)
        refusing.get_watermark_offsets.side_effect = KafkaException(KafkaError(answers.pop()))
        return refusing

    monkeypatch.setattr(KafkaProperties, "consumer", consumer)
    assert read_tail(kafka, topic=topic, bucket=0).end_offset == 0
    assert answers == []


@pytest.mark.sweep
def test_a_leader_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = create_autospec(Consumer, instance=True)
    refusing.get_watermark_offsets.side_effect = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    monkeypatch.setattr(KafkaProperties, "consumer", lambda *_, **__: refusing)
    kafka = KafkaProperties.parse({"bootstrap.servers": "nowhere:1"})
    with pytest.raises(UnavailableError, match="topic=t bucket=3 kafka_error=NOT_LEADER_FOR_PARTITION"):
        read_tail(kafka, topic="t", bucket=3, timeout_s=0.2)


@pytest.mark.parametrize("read", [read_tail, partial(read_marker, end_offset=5)], ids=["tail", "marker"])
def test_a_topic_that_is_deleted_while_its_end_is_read_is_missing_at_once(
    read: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reports it beside its messages. A writer that waited would hold the turn of the table's log."""

    def client(_: KafkaProperties, notes: ErrorNotes, **__: object) -> Consumer:
        def poll(_: float) -> None:
            notes.last = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

        deleted = create_autospec(Consumer, instance=True)
        deleted.get_watermark_offsets.return_value = (0, 5)
        deleted.poll.side_effect = poll
        return deleted

    monkeypatch.setattr(KafkaProperties, "consumer", client)
    kafka = KafkaProperties.parse({"bootstrap.servers": "nowhere:1"})
    with pytest.raises(CorruptDataError, match=r"topic=t bucket=3 .*missing fix=.*CALL sys.reset_log"):
        read(kafka, topic="t", bucket=3, timeout_s=2)


@pytest.mark.broker
def test_the_tail_of_a_missing_partition_is_corrupt_data(kafka: KafkaProperties, new_topic: Callable[..., str]) -> None:
    with pytest.raises((CorruptDataError, UnavailableError), match="bucket=7"):
        read_tail(kafka, topic=new_topic(), bucket=7, timeout_s=5)
