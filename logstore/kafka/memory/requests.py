"""What clients of a cluster in memory share: the way of their requests, and the errors that they make of answers."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

from logstore.kafka.memory.cluster import MemoryCluster, RefusedError

T = TypeVar("T")


class NoAnswerError(Exception):
    """No answer to a request came in time; it may have been carried out, or still be."""


class Requests(Protocol):
    """How clients reach a cluster, and their time."""

    cluster: MemoryCluster

    def request(self, name: str, target: str, change: Callable[[], T], *, changes: bool, late: Any = None) -> T:
        """Send a request; see ``MemoryEnvironment``."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def monotonic(self) -> float:
        """Seconds."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""


def error_of(refused: RefusedError) -> KafkaError:
    """The error of an answer."""
    return KafkaError(refused.code) if refused.text is None else KafkaError(refused.code, refused.text)


def timed_out(doing: str, *, is_retriable: bool = False) -> KafkaException:
    """The error of a call without an answer."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, doing, retriable=is_retriable))
