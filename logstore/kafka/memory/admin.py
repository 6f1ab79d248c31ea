"""An admin client of a cluster in memory: its answers are futures that are done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigResource, ConfigSource, NewTopic, OffsetSpec

from logstore.kafka.memory.cluster import MemoryPartition, RefusedError
from logstore.kafka.memory.requests import NoAnswerError, Requests, error_of, timed_out

T = TypeVar("T")

_DEFAULTS: Final = {"retention.ms": "604800000", "max.message.bytes": "1048588"}
_NO_LEADER: Final = "Failed to query partition leaders: No leaders found"


class MemoryAdmin:
    """As ``confluent_kafka.admin.AdminClient``, for what is used here."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def poll(self, timeout: float = -1) -> int:
        """Nothing: every future is done when it is returned."""
        return 0

    def describe_cluster(self, request_timeout: float = -1) -> "Future[Any]":
        """That there is one."""
        return self._ask("describe_cluster", "", lambda: SimpleNamespace(cluster_id="memory"), request_timeout)

    def describe_topics(
        self, topics: TopicCollection, request_timeout: float = -1, include_authorized_operations: bool = False
    ) -> dict[str, "Future[Any]"]:
        """Each topic's id and partitions."""

        def look(name: str) -> Any:
            found = self._requests.cluster.topic(name)
            leader = SimpleNamespace(id=1)
            return SimpleNamespace(
                name=name,
                topic_id=found.topic_id,
                partitions=[
                    SimpleNamespace(id=index, leader=leader, replicas=[leader])
                    for index in range(len(found.partitions))
                ],
                authorized_operations=[AclOperation.ALL] if include_authorized_operations else None,
            )

        return {
            name: self._ask("describe_topics", name, partial(look, name), request_timeout)
            for name in topics.topic_names
        }

    def list_topics(self, timeout: float = -1) -> Any:
        """The names of all topics, with their partitions."""

        def look() -> dict[str, Any]:
            return {
                name: SimpleNamespace(partitions=dict.fromkeys(range(len(topic.partitions))))
                for name, topic in self._requests.cluster.topics.items()
            }

        try:
            return SimpleNamespace(topics=self._requests.request("list_topics", "", look, changes=False))
        except NoAnswerError as error:
            self._requests.sleep(timeout)
            raise timed_out("list_topics") from error

    def list_offsets(
        self,
        requested: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float = -1,
    ) -> dict[TopicPartition, "Future[Any]"]:
        """An offset of each partition, all of one moment."""

        def look() -> dict[TopicPartition, Any]:
            return {each: self._offset(each, spec, isolation_level) for each, spec in requested.items()}

        target = ",".join(f"{each.topic}/{each.partition}" for each in requested)
        try:
            found = self._requests.request("list_offsets", target, look, changes=False)
        except NoAnswerError:
            self._requests.sleep(request_timeout)
            return {
                each: _done(SimpleNamespace(offset=OFFSET_INVALID)) for each in requested
            }  # no error, as librdkafka
        return {each: _done(answer) for each, answer in found.items()}

    def _offset(self, place: TopicPartition, spec: OffsetSpec, isolation: IsolationLevel) -> Any:
        try:
            found = self._requests.cluster.partition(place.topic, place.partition)
        except RefusedError:
            return KafkaException(KafkaError(KafkaError._NOENT, _NO_LEADER))
        return SimpleNamespace(offset=_offset_of(found, spec, isolation))

    def create_topics(self, topics: Sequence[NewTopic], request_timeout: float = -1) -> dict[str, "Future[Any]"]:
        """Make topics."""

        def create(each: NewTopic) -> None:
            self._requests.cluster.create_topic(each.topic, each.num_partitions, each.config)

        return {
            each.topic: self._ask("create_topics", each.topic, partial(create, each), request_timeout, changes=True)
            for each in topics
        }

    def delete_topics(self, topics: Iterable[str], request_timeout: float = -1) -> dict[str, "Future[Any]"]:
        """Delete topics."""
        cluster = self._requests.cluster
        return {
            name: self._ask("delete_topics", name, partial(cluster.delete_topic, name), request_timeout, changes=True)
            for name in topics
        }

    def delete_records(
        self, before: Sequence[TopicPartition], request_timeout: float = -1
    ) -> dict[TopicPartition, "Future[Any]"]:
        """Delete the records before these offsets."""

        def delete(each: TopicPartition) -> Any:
            low = self._requests.cluster.delete_records(each.topic, each.partition, each.offset)
            return SimpleNamespace(low_watermark=low)

        return {
            each: self._ask(
                "delete_records", f"{each.topic}/{each.partition}", partial(delete, each), request_timeout,
                changes=True,
            )
            for each in before
        }  # fmt: skip

    def describe_configs(
        self, resources: Sequence[ConfigResource], request_timeout: float = -1
    ) -> dict[ConfigResource, "Future[Any]"]:
        """The settings of topics."""

        def look(resource: ConfigResource) -> dict[str, Any]:
            own = self._requests.cluster.topic(resource.name).config
            dynamic, default = ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DEFAULT_CONFIG.value
            return {
                key: SimpleNamespace(name=key, value=value, source=dynamic if key in own else default)
                for key, value in {**_DEFAULTS, **own}.items()
            }

        return {
            each: self._ask("describe_configs", each.name, partial(look, each), request_timeout) for each in resources
        }

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], request_timeout: float = -1
    ) -> dict[ConfigResource, "Future[Any]"]:
        """Set or unset settings of topics."""

        def alter(resource: ConfigResource) -> None:
            own = self._requests.cluster.topic(resource.name).config
            for entry in resource.incremental_configs:
                if entry.incremental_operation is AlterConfigOpType.DELETE:
                    own.pop(entry.name, None)
                else:
                    own[entry.name] = entry.value

        return {
            each: self._ask("incremental_alter_configs", each.name, partial(alter, each), request_timeout, changes=True)
            for each in resources
        }

    def _ask(
        self, name: str, target: str, change: Callable[[], Any], timeout: float, *, changes: bool = False
    ) -> "Future[Any]":
        try:
            return _done(self._requests.request(name, target, change, changes=changes))
        except NoAnswerError:
            self._requests.sleep(timeout)
            return _failed(timed_out("Failed while waiting for response from broker: Local: Timed out"))
        except RefusedError as refused:
            return _failed(KafkaException(error_of(refused)))


def _offset_of(found: MemoryPartition, spec: OffsetSpec, isolation: IsolationLevel) -> int:
    end = found.stable_end if isolation is IsolationLevel.READ_COMMITTED else found.end
    if spec is OffsetSpec.latest():
        return end
    if spec is OffsetSpec.earliest():
        return found.start
    later = (
        each.offset
        for each in found.records[found.start : end]
        if not each.is_control and each.given.timestamp_ms >= spec._value
    )
    return next(later, -1)


def _done(answer: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def _failed(error: Exception) -> "Future[Any]":
    return _done(error)
