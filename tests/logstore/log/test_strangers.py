"""Other programs that may write to the topic: no record of theirs is within a batch, no header breaks a reader."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.control_record import HEADER, claimant_of, encode_genesis
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import decode_marker, read_tail
from lsm.errors import ConflictError, CorruptDataError, UnavailableError
from tests.logstore.log.test_log_writer import log_of, text_values, write_texts
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def target(kafka: KafkaProperties, new_topic: Callable[..., str]) -> LogTarget:
    topic = new_topic()
    return LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)


@pytest.fixture
def stranger(kafka: KafkaProperties, target: LogTarget) -> Iterator[Producer]:
    """With the right to write to the topic, and a transactional id of its own."""
    producer = kafka.producer(ErrorNotes(), transactional_id=f"stranger.{target.topic}")
    producer.init_transactions(20)
    yield producer
    producer.purge()
    producer.abort_transaction(20)


def evil(producer: Producer, target: LogTarget, **given: Any) -> None:
    producer.produce(target.topic, partition=0, **{"value": b"evil", **given})
    assert producer.flush(20) == 0


def commit_and_begin(producer: Producer, target: LogTarget) -> None:
    """Commit, and begin the next transaction, once readers see it: brokers confirm before that."""
    topics = LogTopics(target.properties)
    before = topics.end_offsets(target.topic, [0])[0]
    producer.commit_transaction(20)
    wait_until(lambda: topics.end_offsets(target.topic, [0])[0] > before, "the transaction is not visible")
    producer.begin_transaction()


def test_an_open_transaction_of_another_program_is_waited_for_and_nothing_is_written(
    target: LogTarget, stranger: Producer
) -> None:
    """Before, the first batch was written around it, and the next was refused as "emptied or recreated"."""
    write_texts(target, 1, "a")
    stranger.begin_transaction()
    evil(stranger, target)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"of another program is open .*since_offset=[12] .*fix="):
            write_texts(target, 2, "b")
    stranger.abort_transaction(20)
    stranger.begin_transaction()
    write_texts(target, 2, "b")
    assert log_of(target) == [(None, b"a"), (None, b"b")]


def test_an_open_transaction_in_an_empty_topic_is_seen(target: LogTarget, stranger: Producer) -> None:
    stranger.begin_transaction()
    evil(stranger, target)
    with pytest.raises(UnavailableError, match="since_offset=0"):
        write_texts(target, 1, "a")


@pytest.mark.parametrize("when", ["before", "among", "before, and committed"])
@pytest.mark.parametrize("eventual", [False, True])
def test_a_batch_with_another_programs_record_in_it_is_not_committed(
    target: LogTarget, stranger: Producer, when: str, eventual: bool
) -> None:
    write_texts(target, 1, "a")
    stranger.begin_transaction()
    with BucketLogWriter(target, eventual=eventual) as writer:
        writer.fence()
        writer.begin(query="q", batch=2)
        if when == "among":
            writer.append(None, text_values("b", "c"))  # the last one is held back
            assert writer._transaction is not None
            assert writer._transaction.has_first(waits=True)
        evil(stranger, target)
        if when == "before, and committed":
            commit_and_begin(stranger, target)
        if when != "among":
            writer.append(None, text_values("b", "c"))
        with pytest.raises(
            ConflictError, match=r"something else is in the log|rows of a transaction are not contiguous"
        ):
            writer.commit(b"")
    if when != "before, and committed":
        stranger.abort_transaction(20)
        stranger.begin_transaction()
        write_texts(target, 2, "b", "c")
        assert log_of(target) == [(None, b"a"), (None, b"b"), (None, b"c")]


HOSTILE = {
    "nested": b"[" * 100_000,
    "nested members": b'{"a":' * 100_000,
    "infinite": b'{"version": 1, "query": "q", "batch": 1e999, "rows": 1, "start": 0, "final": true, "pointer": false}',
    "a list": b"[1]",
    "a number": b"5",
    "a word": b'{"version": 1, "query": "q", "batch": "x", "rows": 1, "start": 0, "final": true, "pointer": false}',
    "digits": b'{"version": 1, "query": "q", "batch": '
    + b"9" * 5000
    + b', "rows": 1, "start": 0, "final": 1, "pointer": 0}',
    "not text": b"\xff\xfe",
    "nothing": b"",
}


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_a_named_error(target: LogTarget, stranger: Producer, header: bytes) -> None:
    assert claimant_of(header) is None
    with pytest.raises(CorruptDataError, match="marker cannot be read: offset=3"):
        decode_marker(header, record_offset=3)
    stranger.begin_transaction()
    evil(stranger, target, headers=[(HEADER, header)])
    commit_and_begin(stranger, target)
    with pytest.raises(CorruptDataError, match="marker cannot be read: offset=0"):
        read_tail(target.properties, topic=target.topic, bucket=0, table_id=target.table_uuid)


@pytest.mark.parametrize("snapshot", ["abc", 1e999, None, [7], {"a": 1}, True, "7", -(10**30)])
@pytest.mark.parametrize("owner", ["own", "other"])
def test_what_a_note_says_of_another_table_or_without_a_number_says_nothing(
    target: LogTarget, stranger: Producer, snapshot: object, owner: str
) -> None:
    write_texts(target, 1, "a")
    table = target.table_uuid if owner == "own" else "another"
    stranger.begin_transaction()
    evil(stranger, target, value=None, headers=[(HEADER, encode_genesis(table, {"snapshot": snapshot}))])
    if owner == "other":
        evil(stranger, target, value=None, headers=[(HEADER, encode_genesis(table, {"snapshot": 10**12}))])
    commit_and_begin(stranger, target)
    with BucketLogWriter(target) as writer:
        writer.fence()
        assert writer.tail.left_snapshot <= 0
    write_texts(target, 2, "b")
    assert log_of(target)[-1] == (None, b"b")
