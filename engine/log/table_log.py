"""The log of one table, as its options describe it.

A small picklable value: clients are created where they are used. The topic's id and the table's own id are stored in
the table's options when the table is created, so that a recreated topic is not mistaken for the original one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from filestore.table_store import TableStore
from logstore.format.changelog_json import LogFormat
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_writer import BucketLogWriter, LogTarget, fence_all
from logstore.log.marker import LogTail
from lsm.errors import InvalidInputError

TOPIC_KEY: Final = "log.kafka.topic"
TOPIC_ID_KEY: Final = "log.kafka.topic-id"
TABLE_ID_KEY: Final = "log.transactional-id.prefix"
ORPHANS_KEY: Final = "log.on-orphan-batch"
_TABLE_KEYS: Final = frozenset({"topic", "topic-id"})  # with the prefix log.kafka., but not properties of the client


class OrphanPolicy(Enum):
    """What to do about another query's batch that is in the log and in no snapshot."""

    FAIL = "fail"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLog:
    """Destination and format of a table's changes."""

    topic: str
    topic_id: str | None
    bucket_count: int
    properties: KafkaProperties
    table_id: str  # part of the transactional ids: a recreated table is another writer
    log_format: LogFormat
    keeps_update_before: bool  # log.changelog-mode=all
    is_exact: bool  # the writer looks up the rows it changes and logs exact changes
    is_eventual: bool
    key_names: tuple[str, ...]  # () for a table without a key
    orphans: OrphanPolicy = OrphanPolicy.FAIL

    @classmethod
    def of(cls, store: TableStore, overrides: Mapping[str, str] | None = None) -> "TableLog | None":
        """The log of an opened table; None when it has none, or when ``change-tracking`` is off for this write.

        Args:
            store: the table.
            overrides: options of this writer: ``change-tracking``, ``log.on-orphan-batch``, client properties.

        Raises:
            InvalidInputError: an override has an invalid value, or client properties are wrong.
        """
        options, given = store.options, dict(overrides or {})
        if not tracks_changes(store, given) or not store.has_log:
            return None
        policy = given.get(ORPHANS_KEY, options.raw.get(ORPHANS_KEY, OrphanPolicy.FAIL.value))
        if policy not in {each.value for each in OrphanPolicy}:
            raise InvalidInputError(f"option is fail or adopt: {ORPHANS_KEY}={policy}")
        client = {name: value for name, value in options.log_kafka.items() if name not in _TABLE_KEYS}
        prefix = "log.kafka."
        client |= {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
        return cls(
            topic=options.log_topic or default_topic(store.name),
            topic_id=options.raw.get(TOPIC_ID_KEY),
            bucket_count=options.bucket,
            properties=KafkaProperties.parse(client),
            table_id=options.raw.get(TABLE_ID_KEY, store.name),
            log_format=options.log_format,
            keeps_update_before=options.log_changelog_mode == "all",
            is_exact=options.log_is_exact and bool(store.schema.primary_keys),
            is_eventual=options.log_consistency == "eventual",
            key_names=tuple(store.schema.primary_keys),
            orphans=OrphanPolicy(policy),
        )

    def writer(self, bucket: int) -> BucketLogWriter:
        """A new writer of a bucket, with its own producer: close it."""
        return BucketLogWriter(self._target(bucket), eventual=self.is_eventual)

    def fence_all(self) -> Mapping[int, LogTail]:
        """Fence all other writers of this log and return the end of each bucket.

        Raises:
            CorruptDataError: the topic is not the table's original one.
            UnavailableError: the brokers cannot be reached.
        """
        self.checked_topics()
        return fence_all(self._target(bucket) for bucket in range(self.bucket_count))

    def end_offsets(self) -> Mapping[int, int]:
        """The committed next offset of each bucket. Raises: UnavailableError."""
        return self.reached_topics().end_offsets(self.topic, range(self.bucket_count))

    def reached_topics(self) -> LogTopics:
        """A connection to brokers that answer. Raises: UnavailableError, within seconds."""
        topics = LogTopics(self.properties)
        topics.check_reachable()
        return topics

    def checked_topics(self) -> LogTopics:
        """A connection to brokers that have the table's topic.

        Raises:
            UnavailableError: the brokers cannot be reached.
            CorruptDataError: the topic is not the table's original one.
        """
        topics = self.reached_topics()
        topics.describe_topic(self.topic, topic_id=self.topic_id, bucket_count=self.bucket_count)
        return topics

    def _target(self, bucket: int) -> LogTarget:
        return LogTarget(properties=self.properties, topic=self.topic, table_uuid=self.table_id, bucket=bucket)


def tracks_changes(store: TableStore, overrides: Mapping[str, str] | None = None) -> bool:
    """Whether writes are visible to streams: ``change-tracking`` of the writer, else of the table.

    Raises:
        InvalidInputError: the value is neither true nor false.
    """
    text = (overrides or {}).get("change-tracking", "true" if store.options.change_tracking else "false")
    if text not in ("true", "false"):
        raise InvalidInputError(f"option is true or false: change-tracking={text}")
    return text == "true"


def default_topic(table_name: str) -> str:
    """The default topic of a table: its name, with underscores for characters that Kafka does not allow."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in table_name)
