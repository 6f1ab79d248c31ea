"""The topic of a table's log, with one partition per bucket.

A topic is identified by its id, not its name: one deleted and recreated under the same name has different records
at the same offsets, and only the id differs.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from logstore.kafka.clients import (
    FIRST_CONTACT_S,
    NEW_LOG,
    OPERATION_TIMEOUT_S,
    ErrorNotes,
    KafkaProperties,
    error_of_kafka,
    leader_moved,
)
from logstore.kafka.refusals import Right, topic_right
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

RETENTION: Final = "retention.ms"

_TAKEN_NAME: Final = "collides with existing topic"  # names that differ in "." and "_" only share their metrics
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID})
_POLL_S: Final = 0.05


class TopicExistsError(InvalidInputError):
    """The name of a topic is in use, or the cluster takes it for one that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTopic:
    """The description of a topic by the cluster."""

    name: str
    topic_id: str  # a new one each time the topic is created
    bucket_count: int  # number of partitions
    replication: int  # replicas of the partition with the fewest
    is_complete: bool  # every partition has a leader: all can be written and read


class LogTopics:
    """The topics of one cluster. Holds an admin client; not picklable.

    Every method raises UnavailableError when the cluster does not answer in time and InvalidInputError when it rejects
    the user.
    """

    def __init__(self, properties: KafkaProperties, *, timeout_s: float = OPERATION_TIMEOUT_S) -> None:
        self._notes = ErrorNotes()
        self._admin = properties.admin(self._notes)
        self._clock = properties.environment
        self._timeout_s = timeout_s
        self._servers = properties.by_name["bootstrap.servers"]

    def check_reachable(self) -> None:
        """Fail within seconds when no broker accepts connections; a slow one gets the full request timeout.

        Raises:
            UnavailableError: connection refused, unknown host, or no answer in time.
            InvalidInputError: the brokers reject the user.
        """
        doing = f"brokers cannot be reached: bootstrap.servers={self._servers}"
        answer = self._admin.describe_cluster(request_timeout=self._timeout_s)
        try:
            self._await_contact(answer)
            self._wait(answer, doing)
        except KafkaException as error:
            raise error_of_kafka(error, doing, self._notes) from error

    def create_topic(
        self,
        name: str,
        *,
        bucket_count: int,
        replication: int = 1,
        retention_ms: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> LogTopic:
        """Create a topic and wait until it is fully writable. One that exists is never changed.

        Args:
            name: name of the topic.
            bucket_count: partitions, > 0.
            replication: replicas of each partition.
            retention_ms: None keeps the cluster's setting; -1 keeps records permanently.
            config: additional topic settings under Kafka's names (``max.message.bytes``).

        Raises:
            TopicExistsError: the name is in use.
            InvalidInputError: the cluster rejects the request.
        """
        settings = {**(config or {}), **({} if retention_ms is None else {RETENTION: str(retention_ms)})}
        new = NewTopic(name, num_partitions=bucket_count, replication_factor=replication, config=settings)
        doing = f"topic cannot be created: topic={name} partitions={bucket_count} replication={replication}"
        try:
            self._wait(self._admin.create_topics([new], request_timeout=self._timeout_s)[name], doing)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS or _TAKEN_NAME in cause.str():
                raise TopicExistsError(f"topic exists: topic={name} kafka_error={cause.str()}") from error
            raise error_of_kafka(error, doing, self._notes, needs=[topic_right("Create", name)]) from error
        return self._until_complete(name)

    def partition_counts(self) -> dict[str, int]:
        """The partitions of each topic that the user may see, by its name; not those of Kafka itself."""
        try:
            listed = self._admin.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise error_of_kafka(error, "topics cannot be listed:", self._notes, needs=[]) from error
        return {name: len(topic.partitions) for name, topic in listed.items() if not name.startswith("__")}

    def find_topic(self, name: str) -> LogTopic | None:
        """The topic, or None when it does not exist."""
        found = self._description(name)
        if found is None:
            return None
        return LogTopic(
            name=name,
            topic_id=str(found.topic_id),
            bucket_count=len(found.partitions),
            replication=min((len(partition.replicas) for partition in found.partitions), default=0),
            is_complete=all(
                partition.leader is not None and partition.leader.id >= 0 for partition in found.partitions
            ),
        )

    def describe_topic(self, name: str, *, topic_id: str | None = None, bucket_count: int | None = None) -> LogTopic:
        """The topic, checked against the metadata of the table.

        Raises:
            CorruptDataError: it is missing, was recreated, or has a different number of partitions.
        """
        topic = self.find_topic(name)
        if topic is None:
            raise CorruptDataError(f"topic is missing: topic={name} topic_id={topic_id} fix=restore it, or {NEW_LOG}")
        if topic_id is not None and topic.topic_id != topic_id:
            raise CorruptDataError(
                f"topic was deleted and recreated: topic={name} wanted_topic_id={topic_id} topic_id={topic.topic_id}"
                f" cause=its offsets refer to other records now fix={NEW_LOG}"
            )
        if bucket_count is not None and topic.bucket_count != bucket_count:
            raise CorruptDataError(
                f"topic does not have one partition per bucket: topic={name} partitions={topic.bucket_count}"
                f" buckets={bucket_count} cause=partitions were added, which cannot be removed fix={NEW_LOG}"
            )
        return topic

    def delete_topic(self, name: str, *, topic_id: str | None = None) -> bool:
        """Delete a topic and wait until its name is free; a missing one is ignored.

        Args:
            name: name of the topic.
            topic_id: of the topic that is meant; None is whichever has the name.

        Returns:
            False when the name is that of another topic now, which stays.
        """
        found = self.find_topic(name)
        if found is not None and topic_id is not None and found.topic_id != topic_id:
            return False
        doing = f"topic cannot be deleted: topic={name}"
        try:
            self._wait(self._admin.delete_topics([name], request_timeout=self._timeout_s)[name], doing)
        except KafkaException as error:
            if error.args[0].code() not in _ABSENT:
                raise error_of_kafka(error, doing, self._notes, needs=[topic_right("Delete", name)]) from error
        deadline = self._clock.monotonic() + self._timeout_s
        while (left := self.find_topic(name)) is not None and (found is None or left.topic_id == found.topic_id):
            self._pause(deadline, f"topic still exists after its deletion: topic={name}")
        return True

    def check_deletable(self, name: str) -> None:
        """Check that `delete_topic` is allowed, before anything else is deleted. Raises: InvalidInputError."""
        found = self._description(name)
        allowed = [] if found is None else found.authorized_operations or []
        if allowed and not {AclOperation.DELETE, AclOperation.ALL} & set(allowed):
            denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "deletion is not allowed")
            doing = f"topic cannot be deleted: topic={name}"
            raise error_of_kafka(denied, doing, self._notes, needs=[topic_right("Delete", name)])

    def written_offsets(self, name: str, buckets: Iterable[int]) -> LogOffsets:
        """The next offset per bucket, whatever was written before it: records that are aborted, open or expired, too.

        Raises:
            CorruptDataError: the topic or a partition of it is missing.
        """
        requested = {TopicPartition(name, bucket): OffsetSpec.latest() for bucket in buckets}
        return LogOffsets(self._listed(name, requested, IsolationLevel.READ_UNCOMMITTED))

    def end_offsets(self, name: str, buckets: Iterable[int]) -> LogOffsets:
        """The last stable offset per bucket: records below it are committed or aborted.

        Right after a commit it may still be behind the end of that commit's slice.

        Raises:
            CorruptDataError: the topic or a partition of it is missing.
        """
        return self._offsets(name, buckets, OffsetSpec.latest())

    def earliest_offsets(self, name: str, buckets: Iterable[int]) -> LogOffsets:
        """The earliest retained offset per bucket; the end of the log when no record is left.

        Raises:
            CorruptDataError: the topic or a partition of it is missing.
        """
        return self._offsets(name, buckets, OffsetSpec.earliest())

    def offsets_at(self, name: str, buckets: Iterable[int], time_ms: int) -> LogOffsets:
        """The offset of the first record at or after a timestamp, per bucket; the end where there is none.

        Raises:
            CorruptDataError: the topic or a partition of it is missing.
        """
        ends = self.end_offsets(name, buckets)
        requested = {TopicPartition(name, bucket): OffsetSpec.for_timestamp(time_ms) for bucket in ends}
        found = self._listed(name, requested)
        return LogOffsets({bucket: ends[bucket] if offset < 0 else offset for bucket, offset in found.items()})

    def set_retention(self, name: str, retention_ms: int | None) -> None:
        """Change the retention time: -1 is unlimited, None the cluster's default. Other settings do not change."""
        change = (AlterConfigOpType.DELETE, "") if retention_ms is None else (AlterConfigOpType.SET, str(retention_ms))
        self._alter(name, {RETENTION: change})

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The effective settings, under Kafka's names."""
        return {key: entry.value for key, entry in self._config_entries(name).items()}

    def own_config(self, name: str) -> Mapping[str, str]:
        """The settings of this topic itself, without the cluster's defaults."""
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {key: entry.value for key, entry in self._config_entries(name).items() if entry.source == own}

    def _config_entries(self, name: str) -> Mapping[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        future = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource]
        doing = f"settings of a topic cannot be read: topic={name}"
        entries: Mapping[str, Any] = self._answer(future, doing, topic_right("DescribeConfigs", name))
        return entries

    def _alter(self, name: str, changes: Mapping[str, tuple[AlterConfigOpType, str]]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=operation) for key, (operation, value) in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        future = self._admin.incremental_alter_configs([resource], request_timeout=self._timeout_s)[resource]
        doing = f"settings of a topic cannot be changed: topic={name} settings={sorted(changes)}"
        self._answer(future, doing, topic_right("AlterConfigs", name))

    def _offsets(self, name: str, buckets: Iterable[int], spec: OffsetSpec) -> LogOffsets:
        return LogOffsets(self._listed(name, {TopicPartition(name, bucket): spec for bucket in buckets}))

    def _listed(
        self,
        name: str,
        requested: Mapping[TopicPartition, OffsetSpec],
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        """The requested offset of every partition; -1 where no record is at or after the requested time."""
        if not requested:
            return {}
        doing = (
            f"offsets of a topic cannot be listed: topic={name} buckets={sorted(each.partition for each in requested)}"
        )
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            futures = self._admin.list_offsets(
                dict(requested), isolation_level=isolation, request_timeout=self._timeout_s
            )
            try:
                found = {spot.partition: self._wait(future, doing).offset for spot, future in futures.items()}
                if OFFSET_INVALID not in found.values():
                    return found
                # a request that timed out is no error of the client, but an answer without an offset
                if self._clock.monotonic() > deadline:
                    raise UnavailableError(f"{doing} timeout_s={self._timeout_s:g}{self._notes.text}")
            except KafkaException as error:
                no_leader = error.args[0].code() == KafkaError._NOENT
                if no_leader:  # no leader at present, or no such topic
                    self.describe_topic(name)
                if not (no_leader or leader_moved(error)) or self._clock.monotonic() > deadline:
                    raise error_of_kafka(error, doing, self._notes, needs=[topic_right("Describe", name)]) from error
            self._clock.sleep(_POLL_S)

    def _description(self, name: str) -> Any | None:
        futures = self._admin.describe_topics(
            TopicCollection([name]), request_timeout=self._timeout_s, include_authorized_operations=True
        )
        doing = f"topic cannot be described: topic={name}"
        try:
            return self._wait(futures[name], doing)
        except KafkaException as error:
            if error.args[0].code() in _ABSENT:
                return None
            raise error_of_kafka(error, doing, self._notes, needs=[topic_right("Describe", name)]) from error

    def _until_complete(self, name: str) -> LogTopic:
        """The topic once every partition has a leader: a new topic propagates after its creation is confirmed."""
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            topic = self.find_topic(name)
            if topic is not None and topic.is_complete:
                return topic
            self._pause(deadline, f"topic has partitions without a leader: topic={name}")

    def _answer(self, future: "Future[Any]", doing: str, *needs: Right) -> Any:
        try:
            return self._wait(future, doing)
        except KafkaException as error:
            raise error_of_kafka(error, doing, self._notes, needs=needs) from error

    def _wait(self, future: "Future[Any]", doing: str) -> Any:
        deadline = self._clock.monotonic() + self._timeout_s + 5  # the client times out first with a better message
        while True:
            try:
                result = future.result(_POLL_S)
            except TimeoutError as error:
                self._admin.poll(0)  # delivers pending error callbacks
                self._notes.check_accepted()
                if self._clock.monotonic() > deadline:
                    raise UnavailableError(f"{doing} timeout_s={self._timeout_s:g}{self._notes.text}") from error
            except KafkaException:
                self._admin.poll(0)
                raise
            else:
                self._notes.forget()
                return result

    def _await_contact(self, answer: "Future[Any]") -> None:
        patience = self._clock.monotonic() + min(FIRST_CONTACT_S, self._timeout_s)
        while not answer.done():
            self._admin.poll(_POLL_S)  # delivers error callbacks
            self._notes.check_accepted()
            if self._notes.all_brokers_down and self._clock.monotonic() > patience:
                raise KafkaException(self._notes.last)

    def _pause(self, deadline: float, problem: str) -> None:
        if self._clock.monotonic() > deadline:
            raise UnavailableError(f"{problem} timeout_s={self._timeout_s:g}{self._notes.text}")
        self._clock.sleep(_POLL_S)
