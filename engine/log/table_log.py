"""The log of one table, as its options describe it.

A small picklable value: clients are made where they are used. What is remembered of the topic when the table is made,
its id and the table's own id, is in the table's options, because a topic that was deleted and made again must not
be taken for the old one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from engine.request.writer_options import NO_OPTIONS, WriterOptions
from filestore.options.table_options import TableOptions
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.format.changelog_json import LogFormat
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_writer import BucketLogWriter, LogTarget, fence_all
from logstore.log.marker import CLAIM_END, LogTail, read_tail
from logstore.offsets import LogOffsets

TOPIC_KEY: Final = TableOptions.log_topic.key
TOPIC_ID_KEY: Final = TableOptions.log_topic_id.key
TABLE_ID_KEY: Final = TableOptions.log_transactional_id_prefix.key
ADOPTED_KEY: Final = TableOptions.log_topic_is_adopted.key
OWN_LOG_KEYS: Final = frozenset({TOPIC_KEY, TOPIC_ID_KEY, TABLE_ID_KEY, ADOPTED_KEY})
"""Options of a table that no other table has: its topic's, and its id."""
_OF_ENGINE: Final = frozenset({"topic", "topic-id", "topic-is-adopted"})  # behind log.kafka., but not the client's


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
    table_id: str  # part of the transactional ids and in every marker: a recreated table is another writer
    log_format: LogFormat
    keeps_update_before: bool  # log.changelog-mode=all
    is_exact: bool  # the writer looks up the rows it changes and logs exact changes
    is_eventual: bool
    key_names: tuple[str, ...]  # () for a table without a key
    orphans: OrphanPolicy = OrphanPolicy.FAIL
    is_adopted: bool = False  # the topic existed before the table, and begins with its claim

    @classmethod
    def of(cls, table: TableView, writer: WriterOptions = NO_OPTIONS) -> "TableLog | None":
        """The log of an opened table; None when it has none, or when ``change-tracking`` is off for this write.

        Args:
            table: the table.
            writer: its ``change-tracking``, ``log.on-orphan-batch`` and client properties.

        Raises:
            InvalidInputError: client properties are wrong.
        """
        options = table.options
        if not writer.tracks_changes(options) or not table.store.has_log:
            return None
        client = {name: value for name, value in options.log_kafka.items() if name not in _OF_ENGINE}
        client |= writer.client_properties
        return cls(
            topic=options.log_topic or default_topic(table.name),
            topic_id=options.log_topic_id,
            bucket_count=options.bucket,
            properties=KafkaProperties.parse(client),
            table_id=options.log_transactional_id_prefix or table.name,
            log_format=options.log_format,
            keeps_update_before=options.log_changelog_mode == "all",
            is_exact=options.log_is_exact and bool(table.schema.primary_keys),
            is_eventual=options.log_consistency == "eventual",
            key_names=tuple(table.schema.primary_keys),
            orphans=OrphanPolicy(writer.on_orphan_batch),
            is_adopted=options.log_topic_is_adopted,
        )

    @property
    def first_offset(self) -> int:
        """Where the first row of each bucket is, or will be."""
        return CLAIM_END if self.is_adopted else 0

    def position(self, offsets: Mapping[int, int]) -> LogOffsets:
        """Next offsets with those of buckets that have no rows yet, where it matters: see ``first_offset``."""
        first = range(self.bucket_count) if self.is_adopted else ()
        return LogOffsets(offsets).joined(dict.fromkeys(first, self.first_offset))

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

    def check_owner(self, here: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Before the first records of a topic are read: refuse those of a table that has claimed the topic since.

        Args:
            here: what is known to be this table's, next offsets by bucket.
            ends: committed ends by bucket.

        Raises:
            CorruptDataError: another table has the topic.
            UnavailableError: the brokers do not answer.
        """
        first = next((bucket for bucket, end in ends.items() if end > 0), None)
        if first is not None and not any(here.values()):
            read_tail(self.properties, topic=self.topic, bucket=first, table_id=self.table_id)

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


def tracks_changes(store: TableStore, writer: WriterOptions = NO_OPTIONS) -> bool:
    """Whether streams get what is written: ``change-tracking`` of the writer, else of the table."""
    return writer.tracks_changes(store.options)


def default_topic(table_name: str) -> str:
    """The default topic of a table: its name, with underscores for characters that Kafka does not allow."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in table_name)
