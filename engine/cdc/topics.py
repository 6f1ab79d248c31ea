"""Topics by pattern, and the ends of all their partitions in one request."""

import re
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from engine.kafka.offsets import TopicPosition
from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import topic_right

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # of brokers before 2.8
_LOOK_S: Final = 10.0
"""Seconds after which a new topic joins."""


class PatternTopics:
    """The topics of a cluster with matching names. Holds a client; not picklable."""

    def __init__(
        self, properties: KafkaProperties, pattern: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``pattern`` matches whole names; no topic needs to match yet."""
        self._notes = ErrorNotes()
        self._admin = properties.admin(self._notes)
        self._pattern = re.compile(pattern)
        self._clock = clock
        self._looked_s = float("-inf")
        self._positions: tuple[TopicPosition, ...] = ()

    def positions(self, *, fresh: bool = False) -> tuple[TopicPosition, ...]:
        """All partitions, at most ten seconds old; sorted. Raises: UnavailableError."""
        if fresh or self._clock() - self._looked_s >= _LOOK_S:
            self._looked_s, self._positions = self._clock(), self._found()
        return self._positions

    def ids(self, names: Collection[str]) -> dict[str, str]:
        """The ids of topics, without deleted topics and clusters without ids. Raises: UnavailableError."""
        if not names:
            return {}
        futures = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=OPERATION_TIMEOUT_S)
        found: dict[str, str] = {}
        for name, future in futures.items():
            try:
                topic_id = str(future.result(OPERATION_TIMEOUT_S + 5).topic_id)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                needs = [topic_right("Describe", name)]
                raise error_of_kafka(
                    error, f"topic cannot be described: topic={name}", self._notes, needs=needs
                ) from error
            if topic_id != _NO_ID:
                found[name] = topic_id
        return found

    def earliest(self, positions: Iterable[TopicPosition]) -> dict[TopicPosition, int]:
        """The first record that is left."""
        return self._offsets(positions, OffsetSpec.earliest())

    def latest(self, positions: Iterable[TopicPosition]) -> dict[TopicPosition, int]:
        """Committed end offsets. A deleted partition, or one without a leader at the moment, is missing."""
        return self._offsets(positions, OffsetSpec.latest())

    def _found(self) -> tuple[TopicPosition, ...]:
        doing = f"topics cannot be listed: pattern={self._pattern.pattern}"
        try:
            listed = self._admin.list_topics(timeout=OPERATION_TIMEOUT_S).topics
        except KafkaException as error:
            raise error_of_kafka(error, doing, self._notes, needs=[]) from error
        return tuple(
            sorted(
                (name, partition)
                for name, topic in listed.items()
                if self._pattern.fullmatch(name)
                for partition in topic.partitions
            )
        )

    def _offsets(self, positions: Iterable[TopicPosition], spec: OffsetSpec) -> dict[TopicPosition, int]:
        wanted = {TopicPartition(*each): spec for each in positions}
        if not wanted:
            return {}
        futures = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=OPERATION_TIMEOUT_S
        )
        found: dict[TopicPosition, int] = {}
        failed: list[tuple[str, KafkaException]] = []
        for spot, future in futures.items():
            try:
                offset = future.result(OPERATION_TIMEOUT_S + 5).offset
            except KafkaException as error:
                failed.append((spot.topic, error))
                continue
            if offset >= 0:
                found[spot.topic, spot.partition] = offset
        if failed and not found:
            topic, cause = failed[0]
            doing = f"offsets of topics cannot be listed: topic={topic}"
            raise error_of_kafka(cause, doing, self._notes, needs=[topic_right("Describe", topic)]) from cause
        return found
