"""The environment of this room: clients, a monotonic clock and threads.

They are those of librdkafka and of this machine, unless an address was given to an environment of its own: a simulation
gives one to each of its processes, and everything that is opened with that address works there.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


class KafkaEnvironment(Protocol):
    """Makes clients, as the classes of ``confluent_kafka`` do, and keeps their time."""

    @property
    def max_threads(self) -> int:
        """Threads that one call may use beside its caller's; 0: the caller does everything itself, in order."""

    @property
    def look_s(self) -> float:
        """Seconds without progress after which a writer checks that its topic exists; inf: brokers report deletions."""

    def producer(self, properties: Mapping[str, Any]) -> Any:
        """A producer."""

    def consumer(self, properties: Mapping[str, Any]) -> Any:
        """A consumer."""

    def admin(self, properties: Mapping[str, Any]) -> Any:
        """An admin client."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class _Machine:
    """The clients of librdkafka, and this machine's clock and threads."""

    max_threads = 16
    look_s = 5.0

    def producer(self, properties: Mapping[str, Any]) -> Producer:
        return Producer(dict(properties))

    def consumer(self, properties: Mapping[str, Any]) -> Consumer:
        return Consumer(dict(properties))

    def admin(self, properties: Mapping[str, Any]) -> AdminClient:
        return AdminClient(dict(properties))

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


MACHINE: Final[KafkaEnvironment] = _Machine()
_BY_ADDRESS: Final[dict[str, KafkaEnvironment]] = {}


def environment_of(address: str) -> KafkaEnvironment:
    """The environment for clients of these ``bootstrap.servers``."""
    return _BY_ADDRESS.get(address, MACHINE)


@contextmanager
def serving(address: str, environment: KafkaEnvironment) -> Iterator[None]:
    """Within the block, clients of this address are made by an environment. For this process alone."""
    assert address not in _BY_ADDRESS, address
    _BY_ADDRESS[address] = environment
    try:
        yield
    finally:
        del _BY_ADDRESS[address]
