"""The cluster in memory answers as a real one: the same calls of clients, on both.

Each sequence runs in memory first. A real broker shows some things a moment later (the control records of a commit,
new topics and settings), so a look there is repeated until it equals what memory says, or a deadline has passed.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from engine.broker.broker import Broker
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.memory.requests import NoAnswerError

_DEADLINE_S = 20.0
_numbers = count(1)


def said(error: BaseException | KafkaError | None) -> Any:
    """What callers see of an error: its code and flags."""
    if isinstance(error, SystemError):
        return "SystemError"  # with the fatal error as its cause, or not
    if isinstance(error, KafkaException):
        return (type(error).__name__, *said(error.args[0]))
    if isinstance(error, KafkaError):
        return error.name(), error.retriable(), error.fatal(), error.txn_requires_abort()
    return error if error is None else type(error).__name__


def stop(pid: int) -> None:
    """Freeze a process; each of its threads has stopped when this returns."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _DEADLINE_S
    while any(
        each.read_text().rpartition(")")[2].split()[0] != "T" for each in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Clients:
    """The clients of one cluster, and what they said."""

    def __init__(
        self, properties: KafkaProperties, expected: list[Any] | None = None, memory: MemoryCluster | None = None
    ) -> None:
        self.properties = properties
        self.said: list[Any] = []
        self._expected = expected
        self._memory = memory
        self.pause: Callable[[], object] = lambda: None
        self.resume: Callable[[], object] = lambda: None
        self._names = f"contract-{next(_numbers)}"
        self._kept: list[Any] = []
        self.admin = properties.admin(ErrorNotes())

    def name(self, name: str) -> str:
        return f"{self._names}-{name}"

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic that is ready."""
        self.admin.create_topics([NewTopic(self.name(name), partitions, 1)])[self.name(name)].result(30)
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                found = self.admin.describe_topics(TopicCollection([self.name(name)]))[self.name(name)].result(30)
                if all(each.leader is not None and each.leader.id >= 0 for each in found.partitions):
                    return self.name(name)
            except KafkaException:
                pass
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def producer(self, name: str) -> Any:
        made = self.properties.producer(
            ErrorNotes(), transactional_id=self.name(name), **{"topic.metadata.propagation.max.ms": 100}
        )
        self._kept.append(made)
        return made

    def do(self, call: Callable[[], Any]) -> None:
        """Make a call and keep what it says."""
        self.said.append(self._answer(call))

    def see(self, look: Callable[[], Any]) -> None:
        """Look, until it is as expected."""
        if self._memory is not None:
            self._memory.settle()
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            answer = self._answer(look)
            at = len(self.said)
            wanted = self._expected[at] if self._expected and at < len(self._expected) else answer
            if answer == wanted or time.monotonic() > deadline:
                self.said.append(answer)
                return
            time.sleep(0.02)

    def reported(self, error: KafkaError | None, message: Any) -> None:
        """For ``on_delivery``."""
        self.said.append(("report", said(error), None if error is not None else message.offset()))

    def ends(self, topic: str, partition: int = 0, **more: str) -> Callable[[], Any]:
        def look() -> Any:
            consumer = self.properties.consumer(ErrorNotes(), **more)
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            finally:
                consumer.close()

        return look

    def records(self, topic: str, start: int = 0, partition: int = 0, **more: str) -> Callable[[], Any]:
        """All messages up to the first that is no record."""

        def look() -> Any:
            consumer = self.properties.consumer(ErrorNotes(), **more)
            found: list[Any] = []
            try:
                consumer.assign([TopicPartition(topic, partition, start)])
                for _ in range(100):
                    message = consumer.poll(0.1)
                    if message is not None:
                        error = message.error()
                        body = said(error) if error else (message.key(), message.value(), message.headers())
                        kind = message.timestamp()[0] if error is None else None
                        found.append((message.topic() == topic, message.partition(), message.offset(), kind, body))
                        if error:
                            break
                return found
            finally:
                consumer.close()

        return look

    def offset(self, topic: str, spec: OffsetSpec, partition: int = 0, timeout_s: float = 10) -> Callable[[], Any]:
        def look() -> Any:
            place = TopicPartition(topic, partition)
            answers = self.admin.list_offsets(
                {place: spec}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
            )
            return answers[place].result(30).offset

        return look

    def _answer(self, call: Callable[[], Any]) -> Any:
        try:
            answer = call()
        except (KafkaException, SystemError, RuntimeError) as error:
            return said(error)
        return answer if isinstance(answer, int | str | tuple | list | bool | None) else type(answer).__name__


def a_transaction_is_committed(on: Clients) -> None:
    topic, producer = on.topic("t"), on.producer("p")
    on.do(lambda: producer.init_transactions(10))
    on.do(producer.begin_transaction)
    on.do(lambda: producer.produce(topic, partition=0, value=b"v", key=b"k", on_delivery=on.reported,
                                   headers=[("h", b"1")]))  # fmt: skip
    on.do(lambda: producer.produce_batch(topic, [{"value": b"w"}, {"value": None, "key": b"z"}], partition=0))
    on.do(lambda: producer.flush(10))
    on.do(on.ends(topic))
    on.do(lambda: producer.commit_transaction(10))
    on.see(on.ends(topic))
    on.see(on.records(topic))
    on.see(on.records(topic, 2))
    on.do(producer.begin_transaction)
    on.do(lambda: producer.produce(topic, partition=0, value=b"x", on_delivery=on.reported))
    on.do(lambda: producer.commit_transaction(10))  # without a flush
    on.do(producer.begin_transaction)
    on.do(lambda: producer.commit_transaction(10))  # nothing
    on.see(on.records(topic, 4))
    on.do(lambda: len(producer))
    on.do(producer.close)
    on.do(producer.begin_transaction)


def a_transaction_is_aborted(on: Clients) -> None:
    topic, producer = on.topic("t"), on.producer("p")
    on.do(lambda: producer.init_transactions(10))
    for value in (b"gone", b"gone too"):
        on.do(producer.begin_transaction)
        on.do(lambda value=value: producer.produce(topic, partition=0, value=value, on_delivery=on.reported))
        on.do(lambda: producer.flush(10))
        on.do(lambda: producer.abort_transaction(10))
        on.see(on.ends(topic))
    on.do(producer.begin_transaction)
    on.do(lambda: producer.produce(topic, partition=0, value=b"kept"))
    on.do(lambda: producer.flush(10))
    on.do(lambda: producer.commit_transaction(10))
    on.see(on.records(topic))


def a_producer_is_fenced(on: Clients) -> None:
    topic, first, second = on.topic("t"), on.producer("p"), on.producer("p")
    on.do(lambda: first.init_transactions(10))
    on.do(first.begin_transaction)
    on.do(lambda: first.produce(topic, partition=0, value=b"open", on_delivery=on.reported))
    on.do(lambda: first.flush(10))
    on.do(on.ends(topic))
    on.do(lambda: second.init_transactions(10))
    on.see(on.ends(topic))
    on.do(lambda: first.commit_transaction(10))
    on.do(first.begin_transaction)
    on.do(lambda: first.abort_transaction(10))
    on.do(lambda: first.produce(topic, partition=0, value=b"late", on_delivery=on.reported))
    on.do(lambda: first.flush(10))
    on.do(lambda: first.flush(10))
    on.see(on.records(topic))


def a_fenced_producer_sends(on: Clients) -> None:
    topic = on.topic("t")
    first, second, third = (on.producer("p") for _ in range(3))
    on.do(lambda: first.init_transactions(10))
    on.do(first.begin_transaction)
    on.do(lambda: first.produce(topic, partition=0, value=b"open", on_delivery=on.reported))
    on.do(lambda: first.flush(10))
    on.do(lambda: second.init_transactions(10))
    on.do(lambda: first.produce(topic, partition=0, value=b"late", on_delivery=on.reported))
    on.do(lambda: first.flush(10))
    on.do(first.begin_transaction)
    on.do(lambda: first.flush(10))
    on.do(lambda: first.commit_transaction(10))
    on.do(first.purge)
    on.do(lambda: first.abort_transaction(10))
    on.do(lambda: third.init_transactions(10))
    on.do(second.begin_transaction)  # fenced before its first record: it learns of it with that
    on.do(lambda: second.produce(topic, partition=0, value=b"late", on_delivery=on.reported))
    on.do(lambda: second.flush(10))
    on.do(lambda: second.commit_transaction(10))
    on.do(lambda: second.abort_transaction(10))
    on.do(lambda: second.poll(0))
    on.see(on.records(topic))


def a_fenced_producer_commits_nothing(on: Clients) -> None:
    first, second = on.producer("p"), on.producer("p")
    on.do(lambda: first.init_transactions(10))
    on.do(first.begin_transaction)
    on.do(lambda: second.init_transactions(10))
    on.do(lambda: first.commit_transaction(10))
    on.do(first.begin_transaction)


def calls_come_in_the_wrong_state(on: Clients) -> None:
    topic, producer = on.topic("t"), on.producer("p")
    calls: tuple[Callable[[], Any], ...] = (
        producer.begin_transaction,
        lambda: producer.commit_transaction(10),
        lambda: producer.abort_transaction(10),
        lambda: producer.produce(topic, partition=0, value=b"v", on_delivery=on.reported),
        lambda: producer.produce_batch(topic, [{"value": b"v"}], partition=0),
        lambda: producer.flush(10),
    )
    for call in calls:
        on.do(call)
    on.do(lambda: producer.init_transactions(10))
    on.do(lambda: producer.init_transactions(10))
    for call in calls[1:]:
        on.do(call)
    on.do(producer.begin_transaction)
    on.do(producer.begin_transaction)
    on.do(lambda: producer.init_transactions(10))
    on.do(lambda: producer.abort_transaction(10))
    on.do(lambda: producer.abort_transaction(10))
    on.see(on.ends(topic))


def a_record_has_no_place(on: Clients) -> None:
    topic, producer = on.topic("t"), on.producer("p")
    on.do(lambda: producer.init_transactions(10))
    for where in ((on.name("none"), 0), (topic, 9)):
        on.do(producer.begin_transaction)
        on.do(lambda where=where: producer.produce(where[0], partition=where[1], value=b"v", on_delivery=on.reported))
        on.do(lambda: producer.flush(10))
        on.do(producer.begin_transaction)
        on.do(lambda: producer.commit_transaction(10))
        on.do(lambda: producer.abort_transaction(10))


def transactions_interleave(on: Clients) -> None:
    topic, first, second = on.topic("t", 2), on.producer("p"), on.producer("q")
    for producer in (first, second):
        on.do(lambda producer=producer: producer.init_transactions(10))
        on.do(producer.begin_transaction)
        for partition in (0, 1):
            on.do(lambda producer=producer, partition=partition: producer.produce(
                topic, partition=partition, value=b"x", on_delivery=on.reported))  # fmt: skip
            on.do(lambda producer=producer: producer.flush(10))
    on.do(lambda: second.commit_transaction(10))
    on.see(on.ends(topic))
    on.see(on.records(topic))
    on.do(on.offset(topic, OffsetSpec.latest()))
    on.see(on.ends(topic, **{"isolation.level": "read_uncommitted"}))
    on.see(on.records(topic, **{"isolation.level": "read_uncommitted"}))
    on.do(lambda: first.abort_transaction(10))
    for partition in (0, 1):
        on.see(on.ends(topic, partition))
        on.see(on.records(topic, partition=partition))
        on.see(on.offset(topic, OffsetSpec.latest(), partition))


def topics_are_made_and_deleted(on: Clients) -> None:
    topic, admin = on.topic("t", 3), on.admin
    on.do(lambda: admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30))
    on.do(lambda: type(admin.describe_cluster().result(30)) is not None)

    def described(name: str) -> Any:
        found = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True)[name].result(30)
        return [(each.id, each.leader.id, len(each.replicas)) for each in found.partitions]

    def topic_id() -> str:
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)

    on.do(lambda: described(topic))
    on.do(lambda: described(on.name("none")))
    before = topic_id()
    on.do(lambda: admin.delete_topics([topic])[topic].result(30))
    on.do(lambda: admin.delete_topics([on.name("none")])[on.name("none")].result(30))
    on.see(lambda: described(topic))
    on.see(lambda: admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30))
    on.see(lambda: described(topic))
    on.do(lambda: topic_id() != before)


def settings_are_changed(on: Clients) -> None:
    topic, admin = on.topic("t"), on.admin

    def setting() -> Any:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(30)["retention.ms"]
        return found.value, found.source

    def alter(name: str, operation: AlterConfigOpType, value: str) -> Any:
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource].result(30)

    on.do(setting)
    on.do(lambda: alter(topic, AlterConfigOpType.SET, "77000"))
    on.see(setting)
    on.do(lambda: alter(topic, AlterConfigOpType.DELETE, ""))
    on.see(setting)
    none = ConfigResource(ResourceType.TOPIC, on.name("none"))
    on.do(lambda: admin.describe_configs([none])[none].result(30))


def records_are_deleted(on: Clients) -> None:
    topic, producer = on.topic("t"), on.producer("p")
    on.do(lambda: producer.init_transactions(10))
    for value in (b"a", b"b"):
        on.do(producer.begin_transaction)
        on.do(lambda value=value: producer.produce(topic, partition=0, value=value))
        on.do(lambda: producer.commit_transaction(10))
    on.see(on.ends(topic))
    for spec in (OffsetSpec.latest(), OffsetSpec.earliest(), OffsetSpec.for_timestamp(0),
                 OffsetSpec.for_timestamp(2**42)):  # fmt: skip
        on.see(on.offset(topic, spec))

    def delete(before: int) -> Any:
        place = TopicPartition(topic, 0, before)
        return on.admin.delete_records([place])[place].result(30).low_watermark

    on.do(lambda: delete(2))
    on.see(on.ends(topic))
    on.see(on.offset(topic, OffsetSpec.earliest()))
    on.do(lambda: delete(99))
    on.see(on.records(topic, 0))
    on.see(on.records(topic, 2))
    on.see(on.records(topic, 4))
    on.see(on.records(topic, 77))


def what_is_not_there_is_looked_for(on: Clients) -> None:
    topic = on.topic("t")
    for name, partition in ((topic, 5), (on.name("none"), 0)):
        on.do(on.ends(name, partition))
        on.do(on.offset(name, OffsetSpec.latest(), partition))
    consumer = on.properties.consumer(ErrorNotes())
    on.see(lambda: [*consumer.list_topics(topic, timeout=10).topics[topic].partitions])
    on.see(lambda: said(consumer.list_topics(on.name("none"), timeout=10).topics[on.name("none")].error))
    on.do(consumer.close)
    on.do(lambda: consumer.poll(0))


def brokers_do_not_answer(on: Clients) -> None:
    topic, first, second = on.topic("t"), on.producer("p"), on.producer("p")
    on.do(lambda: first.init_transactions(10))
    on.do(first.begin_transaction)
    on.do(lambda: first.produce(topic, partition=0, value=b"sent"))
    on.do(lambda: first.flush(10))
    consumer = on.properties.consumer(ErrorNotes())
    on.do(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10))
    on.do(on.offset(topic, OffsetSpec.latest()))
    on.pause()
    on.do(lambda: first.commit_transaction(0.2))
    on.do(first.begin_transaction)
    on.do(lambda: first.abort_transaction(0.2))
    on.do(lambda: first.produce(topic, partition=0, value=b"unsent"))
    on.do(lambda: first.commit_transaction(0.2))
    on.do(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=0.2))
    on.do(lambda: consumer.list_topics(topic, timeout=0.2))
    on.do(on.offset(topic, OffsetSpec.latest(), timeout_s=0.2))
    on.do(lambda: on.admin.describe_topics(TopicCollection([topic]), request_timeout=0.2)[topic].result(30))
    on.do(lambda: consumer.assign([TopicPartition(topic, 0, 0)]))
    on.do(lambda: consumer.poll(0.2))
    on.resume()
    on.do(lambda: first.commit_transaction(10))
    on.see(on.ends(topic))
    on.do(first.begin_transaction)
    on.pause()
    on.do(lambda: first.produce(topic, partition=0, value=b"unsent", on_delivery=on.reported))
    on.do(lambda: first.flush(0.2))
    on.do(lambda: len(first))
    on.do(lambda: first.commit_transaction(0.2))
    on.do(first.begin_transaction)
    on.resume()
    on.do(lambda: first.commit_transaction(10))
    on.see(on.records(topic))
    on.do(lambda: second.init_transactions(10))
    on.do(second.begin_transaction)
    on.do(lambda: second.produce(topic, partition=0, value=b"gone"))
    on.do(lambda: second.flush(10))
    on.pause()
    on.do(lambda: second.abort_transaction(0.2))
    on.do(lambda: second.commit_transaction(0.2))
    on.do(second.begin_transaction)
    on.resume()
    on.do(lambda: second.abort_transaction(10))
    third = on.producer("p")
    on.pause()
    on.do(lambda: third.init_transactions(0.2))
    on.do(third.begin_transaction)
    on.resume()
    on.do(lambda: third.init_transactions(10))
    on.do(third.begin_transaction)
    on.see(on.records(topic))
    on.do(consumer.close)


SEQUENCES = (
    a_transaction_is_committed, a_transaction_is_aborted, a_producer_is_fenced, a_fenced_producer_sends,
    a_fenced_producer_commits_nothing, calls_come_in_the_wrong_state, a_record_has_no_place, transactions_interleave,
    topics_are_made_and_deleted, settings_are_changed, records_are_deleted, what_is_not_there_is_looked_for,
    brokers_do_not_answer,
)  # fmt: skip


class PausedEnvironment(MemoryEnvironment):
    """Requests to brokers that stand still are carried out when these continue."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self._waiting: list[Callable[[], object]] | None = None

    def pause(self) -> None:
        self._waiting = []

    def resume(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for change in waiting:
            change()

    def request(self, name: str, target: str, change: Callable[[], Any], *, changes: bool, late: Any = None) -> Any:
        if self._waiting is None:
            return super().request(name, target, change, changes=changes, late=late)
        if changes:
            self._waiting.append(change)
        raise NoAnswerError


@pytest.fixture
def memory() -> Iterator[Clients]:
    cluster = MemoryCluster()
    environment = PausedEnvironment(cluster)
    with serving("contract.memory:9092", environment):
        made = Clients(KafkaProperties.parse({"bootstrap.servers": "contract.memory:9092"}), memory=cluster)
        made.pause, made.resume = environment.pause, environment.resume
        yield made


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda each: each.__name__)
def test_memory_and_broker_answer_alike(
    sequence: Callable[[Clients], None], memory: Clients, kafka: KafkaProperties, broker: Broker
) -> None:
    sequence(memory)
    process = broker.status().pid
    found = Clients(kafka, memory.said)
    found.pause, found.resume = partial(stop, process), partial(os.kill, process, signal.SIGCONT)
    try:
        sequence(found)
    finally:
        found.resume()
    assert found.said == memory.said
