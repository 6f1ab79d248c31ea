"""Tasks of one process read the log with two consumers at most, closed when no task comes any more."""

import gc
import os
import signal
import time
from typing import Any

import pytest

from engine.broker.broker import Broker
from engine.stream import reader
from engine.stream.reader import TaskConsumers
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.log.kept_consumers import IdleConsumers
from tests.engine.stream.conftest import NewTable
from tests.support.streams import ids, query, rows
from tests.support.waiting import wait_until


def login(user: str) -> KafkaProperties:
    return KafkaProperties.parse({"bootstrap.servers": "127.0.0.1:1", "sasl.username": user})


def closings(monkeypatch: pytest.MonkeyPatch) -> list[IdleConsumers]:
    found = list[IdleConsumers]()
    monkeypatch.setattr(IdleConsumers, "close", lambda each: found.append(each))
    return found


def test_a_cluster_under_a_login_has_its_own_and_the_one_used_last_of_four_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = closings(monkeypatch)
    held = TaskConsumers()
    first = [held.of(login(user)) for user in "abcd"]
    assert [held.of(login(user)) for user in "abcd"] == first
    assert len({*map(id, first)}) == 4
    held.of(login("a"))
    held.of(login("e"))
    assert closed == [first[1]]
    assert held.of(login("a")) is first[0]
    held.close()
    assert len(closed) == 5


def test_another_cluster_behind_the_same_address_has_its_own() -> None:
    held, address = TaskConsumers(), KafkaProperties.parse({"bootstrap.servers": "memory:1"})
    found = []
    for _ in range(2):
        with serving("memory:1", MemoryEnvironment(MemoryCluster())):
            found.append(held.of(address))
    assert found[0] is not found[1]


@pytest.mark.sweep
def test_unused_ones_are_closed_and_used_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = closings(monkeypatch)
    now_s = [0.0]
    held = TaskConsumers(idle_s=0.01, now_s=lambda: now_s[0])
    found = held.of(login("a"))
    time.sleep(0.1)  # many looks, and no time went by
    assert held.of(login("a")) is found
    assert closed == []
    now_s[0] = 0.01
    wait_until(lambda: closed == [found], "unused ones are closed")
    assert held.of(login("a")) is not found
    now_s[0] = 0.02
    wait_until(lambda: len(closed) == 2, "the next ones are watched too")


@pytest.mark.broker
def test_batches_of_all_buckets_are_read_with_two_consumers_at_most_and_a_forked_process_has_none(
    new_table: NewTable, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets and threads of a worker do not grow with batches and buckets."""
    held, made, new_consumer = TaskConsumers(), list[Any](), KafkaProperties.consumer
    monkeypatch.setattr(reader, "_HERE", held)

    def counted(self: KafkaProperties, *given: Any, **more: Any) -> Any:
        made.append(new_consumer(self, *given, **more))
        return made[-1]

    table = new_table(bucket="4")
    stream = query(table, **{"log.scan": "latest"})
    assert stream.batch() == []  # it begins here
    for first in range(0, 50, 10):
        table.write(rows(range(first, first + 10)))
        with monkeypatch.context() as patched:
            patched.setattr("engine.stream.log.StreamLog.record_bytes", lambda *_: 256)  # the planner's own consumer
            patched.setattr(KafkaProperties, "consumer", counted)
            assert ids(stream.available()) == [*range(first, first + 10)]
    assert len(made) <= 2, "one at a time, and the next may begin while the last one ends"
    assert table.log is not None
    found = held.of(table.log.properties)
    child = os.fork()
    if not child:
        signal.alarm(30)  # destroying the parent's client would wait for threads that are not here
        is_found = held.of(table.log.properties) is found
        del made, found
        gc.collect()
        os._exit(is_found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held.of(table.log.properties) is found
    held.close()
    with pytest.raises(RuntimeError, match="closed"):
        made[-1].poll(0)
