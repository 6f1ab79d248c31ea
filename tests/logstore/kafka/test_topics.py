"""Laws of topics, against a real broker."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from logstore.kafka import topics as topics_module
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics, TopicExistsError
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.broker


def produce(kafka: KafkaProperties, topic: str, partition: int, count: int) -> None:
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for _ in range(count):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(20) == 0
    producer.close()


def test_a_bucket_is_a_partition(topics: LogTopics) -> None:
    """FL-120"""
    made = topics.create_topic("shape", bucket_count=5)
    assert (made.name, made.bucket_count, made.replication, made.is_complete) == ("shape", 5, 1, True)
    assert topics.describe_topic("shape", topic_id=made.topic_id, bucket_count=5) == made


def test_retention_is_the_clusters_until_it_is_set_and_again_when_it_is_unset(topics: LogTopics) -> None:
    """FL-55"""
    topics.create_topic("kept", bucket_count=1, config={"max.message.bytes": "7000"})
    clusters = topics.topic_config("kept")["retention.ms"]
    eventually(lambda: topics.own_config("kept"), {"max.message.bytes": "7000"})
    topics.set_retention("kept", 3_600_000)
    eventually(lambda: topics.own_config("kept"), {"max.message.bytes": "7000", "retention.ms": "3600000"})
    topics.set_retention("kept", None)
    eventually(lambda: topics.own_config("kept"), {"max.message.bytes": "7000"})
    eventually(lambda: topics.topic_config("kept")["retention.ms"], clusters)


def test_retention_can_be_set_from_the_start(topics: LogTopics) -> None:
    """FL-55"""
    topics.create_topic("short", bucket_count=1, retention_ms=60_000)
    eventually(lambda: topics.own_config("short"), {"retention.ms": "60000"})


def test_a_topic_that_exists_is_never_taken_or_changed(topics: LogTopics) -> None:
    """FL-120: of any content and shape, or of a name that the cluster takes for the same."""
    topics.create_topic("a_gain.x", bucket_count=2, retention_ms=60_000)
    for name in ("a_gain.x", "a.gain_x"):
        with pytest.raises(TopicExistsError, match=f"topic exists: topic={name} "):
            topics.create_topic(name, bucket_count=2, retention_ms=1234)
    eventually(lambda: topics.own_config("a_gain.x"), {"retention.ms": "60000"})


def test_only_the_topic_that_is_meant_is_deleted(topics: LogTopics) -> None:
    """FL-17"""
    first = topics.create_topic("meant", bucket_count=1)
    assert topics.delete_topic("meant", topic_id=first.topic_id)
    second = topics.create_topic("meant", bucket_count=1)
    assert not topics.delete_topic("meant", topic_id=first.topic_id)
    assert topics.find_topic("meant") == second


def test_what_was_ever_written_is_counted(
    topics: LogTopics, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """Also what no reader sees: a transaction that is still open."""
    topic = new_topic(bucket_count=2)
    producer = kafka.producer(ErrorNotes(), transactional_id="open")
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=1)
    assert producer.flush(20) == 0
    eventually(lambda: topics.written_offsets(topic, [0, 1]), {0: 0, 1: 1})
    assert topics.end_offsets(topic, [0, 1]) == {0: 0, 1: 0}
    producer.abort_transaction(20)


def test_what_the_cluster_cannot_make_is_the_users_input(topics: LogTopics) -> None:
    with pytest.raises(InvalidInputError, match="topic=bad/name"):
        topics.create_topic("bad/name", bucket_count=1)
    with pytest.raises(InvalidInputError, match="replication=3"):
        topics.create_topic("copies", bucket_count=1, replication=3)


def test_a_deleted_topic_is_gone_and_its_name_free(topics: LogTopics) -> None:
    first = topics.create_topic("phoenix", bucket_count=1)
    topics.delete_topic("phoenix")
    topics.delete_topic("phoenix")
    assert topics.find_topic("phoenix") is None
    with pytest.raises(CorruptDataError, match="topic is missing: topic=phoenix"):
        topics.describe_topic("phoenix", topic_id=first.topic_id)


def test_a_topic_that_was_made_again_is_not_the_tables_topic(topics: LogTopics) -> None:
    first = topics.create_topic("twice", bucket_count=1)
    topics.delete_topic("twice")
    second = topics.create_topic("twice", bucket_count=1)
    assert second.topic_id != first.topic_id
    with pytest.raises(
        CorruptDataError, match=re.escape(f"wanted_topic_id={first.topic_id} topic_id={second.topic_id}")
    ):
        topics.describe_topic("twice", topic_id=first.topic_id)


def test_a_topic_with_other_partitions_than_buckets_is_corrupt(topics: LogTopics) -> None:
    topics.create_topic("four", bucket_count=4)
    with pytest.raises(CorruptDataError, match="partitions=4 buckets=5"):
        topics.describe_topic("four", bucket_count=5)


def test_offsets_tell_where_each_bucket_begins_and_ends(
    topics: LogTopics, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(bucket_count=3)
    produce(kafka, topic, 2, 7)
    assert topics.end_offsets(topic, [0, 1, 2]) == {0: 0, 1: 0, 2: 7}
    assert topics.earliest_offsets(topic, [2, 0]) == {0: 0, 2: 0}
    assert topics.end_offsets(topic, []) == {}


def test_offsets_of_a_missing_topic_are_corrupt_data(topics: LogTopics) -> None:
    with pytest.raises(CorruptDataError, match="topic=nowhere"):
        topics.end_offsets("nowhere", [0])


def test_a_broker_that_is_away_is_unavailable() -> None:
    nobody = LogTopics(KafkaProperties.parse({"bootstrap.servers": "127.0.0.1:1"}), timeout_s=1)
    with pytest.raises(UnavailableError, match=r"topic=t .*Connection refused"):
        nobody.find_topic("t")
    with pytest.raises(UnavailableError, match=r"topic=t buckets=.0. .*Connection refused"):
        nobody.end_offsets("t", [0])


@pytest.mark.parametrize(
    ("servers", "said"),
    [("127.0.0.1:1,127.0.0.1:2", "Connection refused"), ("no-such-host.invalid:9092", "Failed to resolve")],
)
def test_where_nobody_listens_the_first_contact_fails_soon(
    monkeypatch: pytest.MonkeyPatch, servers: str, said: str
) -> None:
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 1.0)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=rf"cannot be reached: bootstrap\.servers={servers} .*{said}"):
        LogTopics(KafkaProperties.parse({"bootstrap.servers": servers})).check_reachable()
    assert time.monotonic() - began < 20


@contextmanager
def slow_road(address: str, delay_s: float) -> Iterator[str]:
    """A port that leads to a broker, and lets nothing through for a while."""
    host, port = address.split(":")
    door, roads = socket.create_server(("127.0.0.1", 0)), ExitStack()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while body := source.recv(65536):
                target.sendall(body)

    def serve() -> None:
        with suppress(OSError):
            while True:
                inside = roads.enter_context(door.accept()[0])
                time.sleep(delay_s)
                outside = roads.enter_context(socket.create_connection((host, int(port))))
                for pair in ((inside, outside), (outside, inside)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    serving = threading.Thread(target=serve)
    serving.start()
    yield f"127.0.0.1:{door.getsockname()[1]}"
    door.shutdown(socket.SHUT_RDWR)
    serving.join()
    roads.close()
    door.close()


def test_a_slow_broker_is_not_taken_for_a_missing_one(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 0.5)
    with slow_road(broker.bootstrap_servers, 2.0) as address:
        began = time.monotonic()
        LogTopics(KafkaProperties.parse({"bootstrap.servers": address})).check_reachable()
        assert time.monotonic() - began >= 2


def test_offsets_that_a_broker_does_not_give_in_time_are_unavailable(
    broker: Broker, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """The client has no error for this: it gives an offset that is none."""
    topic, impatient = new_topic(), LogTopics(kafka, timeout_s=0.3)
    process = broker.status().pid
    assert process is not None

    def is_known() -> bool:
        with suppress(UnavailableError):  # a busy machine is slower than so impatient a client
            return impatient.end_offsets(topic, [0]) == {0: 0}
        return False

    def is_stopped() -> bool:
        states = [
            each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{process}/task").glob("*/stat")
        ]
        return {*states} == {"T"}

    wait_until(is_known, "from now on the client knows the leader")
    os.kill(process, signal.SIGSTOP)
    try:
        wait_until(is_stopped, "a thread that runs may still answer")
        for look in (impatient.end_offsets, impatient.earliest_offsets, partial(impatient.offsets_at, time_ms=0)):
            with pytest.raises(UnavailableError, match=f"offsets of a topic cannot be listed: topic={topic}"):
                look(topic, [0])
    finally:
        os.kill(process, signal.SIGCONT)
