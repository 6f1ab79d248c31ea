"""The topics that a source subscribes to: their partitions, offsets and ids at the moment."""

import time
from collections.abc import Mapping
from typing import Final

from engine.kafka.offsets import TopicIds, TopicPosition, positioned
from engine.kafka.options import EARLIEST_WORD, KafkaSourceOptions, StartPositions
from logstore.kafka.clients import OPERATION_TIMEOUT_S
from logstore.kafka.topics import LogTopics
from lsm.errors import CorruptDataError, InvalidInputError, MissingTopicError

_TOPIC_CHECK_S: Final = 30.0  # how soon new partitions are found
_TIMESTAMP_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}


class SourceTopics:
    """The current state of the subscribed topics. Keeps a connection; not picklable."""

    def __init__(self, options: KafkaSourceOptions, *, timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        """``timeout_s``: of each request."""
        self._names = options.topics
        self._dead_letters = options.dead_letter_topic
        self._topics = LogTopics(options.properties, timeout_s=timeout_s)
        self._ids: dict[str, str] = {}
        self._partition_counts: dict[str, int] = {}
        self._checked_s = float("-inf")

    def check_dead_letters(self) -> None:
        """Refuse a topic of dead letters that does not exist. Raises: InvalidInputError, UnavailableError."""
        if self._dead_letters is not None and self._topics.find_topic(self._dead_letters) is None:
            raise InvalidInputError(f"topic does not exist: option=dead-letter.topic value={self._dead_letters}")

    def earliest(self) -> dict[TopicPosition, int]:
        """First record that is left in every partition."""
        return {
            (name, partition): offset
            for name, count in self._counts().items()
            for partition, offset in self._topics.earliest_offsets(name, range(count)).items()
        }

    def latest(self) -> dict[TopicPosition, int]:
        """Committed end offset of every partition."""
        return {
            (name, partition): offset
            for name, count in self._counts().items()
            for partition, offset in self._topics.end_offsets(name, range(count)).items()
        }

    def ids(self) -> TopicIds:
        """The id of every topic."""
        self._counts()
        return dict(self._ids)

    def positions(self, wanted: StartPositions, *, option: str) -> dict[TopicPosition, int]:
        """The offsets for an option's value."""
        if isinstance(wanted, str):
            return self.earliest() if wanted == EARLIEST_WORD else self.latest()
        return positioned(wanted, self.earliest(), self.latest(), option=option)

    def timestamp_type(self, name: str) -> int | None:
        """The timestamp type of a topic; None when access to its configuration is denied."""
        try:
            return _TIMESTAMP_TYPES.get(self._topics.topic_config(name).get("message.timestamp.type", ""))
        except InvalidInputError:  # access denied, which is no reason to fail
            return None

    def _counts(self) -> Mapping[str, int]:
        if time.monotonic() - self._checked_s < _TOPIC_CHECK_S:
            return self._partition_counts
        if not self._partition_counts:  # later a broker may take its time
            self._topics.check_reachable()
        for name in self._names:
            topic = self._topics.find_topic(name)
            if topic is None:
                raise MissingTopicError(
                    f"topic does not exist: option=subscribe topic={name} fix=create it, or check the name"
                )
            if self._ids.setdefault(name, topic.topic_id) != topic.topic_id:
                raise CorruptDataError(
                    f"topic was deleted and recreated while it was read: topic={name} "
                    f"cause=its offsets now refer to other records fix=start with a new checkpoint"
                )
            self._partition_counts[name] = topic.bucket_count
        self._checked_s = time.monotonic()
        return self._partition_counts
