"""The environment of clients of a cluster in memory: how a request reaches it, and the time that passes."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from logstore.kafka.memory.admin import MemoryAdmin
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.consumer import MemoryConsumer
from logstore.kafka.memory.producer import MemoryProducer

T = TypeVar("T")


class MemoryEnvironment:
    """Clients of one cluster, which answers every request. Its time passes only by waiting. Without threads."""

    max_threads = 0
    look_s = math.inf

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self._passed_s = 0.0

    def producer(self, properties: Mapping[str, Any]) -> MemoryProducer:
        """A producer."""
        return MemoryProducer(properties, self)

    def consumer(self, properties: Mapping[str, Any]) -> MemoryConsumer:
        """A consumer."""
        return MemoryConsumer(properties, self)

    def admin(self, properties: Mapping[str, Any]) -> MemoryAdmin:
        """An admin client."""
        return MemoryAdmin(self)

    def monotonic(self) -> float:
        """Seconds that have passed."""
        return self._passed_s

    def now_ms(self) -> int:
        """Epoch milliseconds, for the timestamps of records."""
        return 1_700_000_000_000 + round(self._passed_s * 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._passed_s += seconds

    def request(self, name: str, target: str, change: Callable[[], T], *, changes: bool, late: Any = None) -> T:
        """Send a request and wait for its answer.

        Args:
            name: of the request.
            target: topic and partition, transactional id, or nothing.
            change: carries it out.
            changes: whether it changes anything.
            late: carries it out after the client gave up waiting; None: as ``change``.

        Raises:
            NoAnswerError: none came.
            RefusedError: the brokers refuse it.
        """
        self.cluster.tick()
        return change()
