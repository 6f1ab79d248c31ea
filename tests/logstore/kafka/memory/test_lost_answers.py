"""A producer in memory that gets no answer sends the same records again, and the others behind them, as librdkafka."""

from collections.abc import Callable
from typing import Any

import pytest

from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.memory.producer import MemoryProducer
from logstore.kafka.memory.requests import NoAnswerError


class LosesOneAnswer(MemoryEnvironment):
    """The first request with records is carried out, and its answer gets lost."""

    is_lost = False

    def request(self, name: str, target: str, change: Callable[[], Any], *, changes: bool, late: Any = None) -> Any:
        found = super().request(name, target, change, changes=changes, late=late)
        if name == "produce" and not self.is_lost:
            self.is_lost = True
            raise NoAnswerError
        return found


@pytest.mark.long
def test_a_record_behind_a_lost_answer_is_not_taken_for_a_repetition() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("t", 1)
    producer = MemoryProducer({"transactional.id": "p"}, LosesOneAnswer(cluster))
    producer.init_transactions()
    producer.begin_transaction()
    for value in (b"first", b"second"):
        producer.produce("t", value, partition=0)
        producer.poll(0)
    producer.commit_transaction()
    cluster.settle()
    assert [each.given.value for each in cluster.topic("t").partitions[0].committed(0)] == [b"first", b"second"]
