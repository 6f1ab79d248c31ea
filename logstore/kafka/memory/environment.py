"""The environment of clients of a cluster in memory: how a request reaches it, and the time that passes."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from logstore.kafka.memory.admin import MemoryAdmin
from logstore.kafka.memory.cluster import MemoryCluster, MemoryPartition, RefusedError, StoredRecord
from logstore.kafka.memory.producer import MemoryProducer
from logstore.kafka.memory.requests import NoAnswerError, Requests, error_of, timed_out

# ---- A consumer of a cluster in memory


_LOST: Final = (
    "fetch failed due to requested offset not available on the broker: Broker: Offset out of range (broker 1)"
)


class MemoryConsumer:
    """A consumer with assigned positions, as ``confluent_kafka.Consumer`` with ``auto.offset.reset=error``."""

    def __init__(self, properties: Mapping[str, Any], requests: Requests) -> None:
        self._on_error: Callable[[KafkaError], None] = properties.get("error_cb", lambda error: None)
        self._requests = requests
        self._is_committed = properties.get("isolation.level", "read_committed") == "read_committed"
        self._place: tuple[str, int] | None = None
        self._position = 0
        self._ended_at = -1  # the end that was reported last
        self._fetched: deque[Message] = deque()
        self._is_closed = False
        self._seen = (-1001, -1001)  # nothing yet

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin at a position of one partition."""
        self._check_open()
        (wanted,) = partitions
        self._place, self._position, self._ended_at = (wanted.topic, wanted.partition), wanted.offset, -1
        self._fetched.clear()

    def unassign(self) -> None:
        """Fetch nothing until the next position is assigned."""
        self._check_open()
        self._place = None
        self._fetched.clear()

    def poll(self, timeout: float = -1) -> Message | None:
        """The next record, the end of the partition, or an error as a message; None: nothing came in time."""
        self._check_open()
        if not self._fetched:
            self._fetch()
        if self._fetched:
            return self._fetched.popleft()
        self._requests.sleep(max(timeout, 0.001))
        return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """What was fetched already, up to a number."""
        self._check_open()
        return [self._fetched.popleft() for _ in range(min(num_messages, len(self._fetched)))]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The earliest offset and the last stable one, uncommitted: the end. Raises: KafkaException.

        Cached: what the last fetch said, with the end in place of the last stable offset.
        """
        self._check_open()
        if cached:
            return self._seen
        topic, number = partition.topic, partition.partition

        def look() -> tuple[int, int]:
            found = self._requests.cluster.partition(topic, number)
            return found.start, self._end_of(found)

        try:
            return self._requests.request("get_watermark_offsets", f"{topic}/{number}", look, changes=False)
        except NoAnswerError:
            self._requests.sleep(timeout)
            raise timed_out("Failed to get watermark offsets: Local: Timed out") from None
        except RefusedError:
            text = "Failed to get watermark offsets: Local: Unknown partition"
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, text)) from None

    def list_topics(self, topic: str, timeout: float = -1) -> Any:
        """What is known of a topic: ``topics[topic].error`` and ``.partitions``. Raises: KafkaException."""
        self._check_open()

        def look() -> Any:
            found = self._requests.cluster.topic(topic)
            return SimpleNamespace(error=None, partitions=dict.fromkeys(range(len(found.partitions))))

        try:
            known = self._requests.request("list_topics", topic, look, changes=False)
        except NoAnswerError:
            self._requests.sleep(timeout)
            raise timed_out("Failed to get metadata: Local: Timed out") from None
        except RefusedError as refused:
            known = SimpleNamespace(error=error_of(refused), partitions={})
        return SimpleNamespace(topics={topic: known})

    def close(self) -> None:
        """End the client."""
        self._is_closed = True

    def _fetch(self) -> None:
        if self._place is None:
            return
        topic, number = self._place

        def fetch() -> tuple[list[StoredRecord], int]:
            found = self._requests.cluster.partition(topic, number)
            if not found.start <= self._position <= found.end:
                raise RefusedError(KafkaError.OFFSET_OUT_OF_RANGE)
            records = found.committed(self._position) if self._is_committed else found.all_from(self._position)
            self._seen = (found.start, found.end)
            return records, self._end_of(found)

        try:
            records, stable_end = self._requests.request("fetch", f"{topic}/{number}", fetch, changes=False)
        except NoAnswerError:
            return
        except RefusedError as refused:
            self._refused(refused)
            return
        for each in records:
            given = each.given
            self._fetched.append(
                Message(
                    topic=topic, partition=number, offset=each.offset, key=given.key, value=given.value,
                    headers=list(given.headers) or None, timestamp=(1, given.timestamp_ms),
                )
            )  # fmt: skip
        self._position = max(self._position, stable_end)
        if self._position != self._ended_at and self._position == stable_end:
            self._ended_at = self._position
            self._fetched.append(self._event(KafkaError._PARTITION_EOF, "reached end of partition", self._position))

    def _end_of(self, partition: MemoryPartition) -> int:
        return partition.stable_end if self._is_committed else partition.end

    def _refused(self, refused: RefusedError) -> None:
        if refused.code == KafkaError.OFFSET_OUT_OF_RANGE:
            self._fetched.append(self._event(KafkaError._AUTO_OFFSET_RESET, _LOST, self._position))
            self._place = None
        else:
            self._on_error(error_of(refused))

    def _event(self, code: int, text: str, offset: int) -> Message:
        assert self._place is not None
        topic, number = self._place
        return Message(topic=topic, partition=number, offset=offset, error=KafkaError(code, text))

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Consumer closed")


# ---- The environment of clients of a cluster in memory: how a request reaches it, and the time that passes


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
