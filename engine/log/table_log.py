"""The log of one table, as its options describe it.

A small picklable value: clients are made where they are used. What is remembered of the topic when the table is made,
its id and the table's own id, is in the table's options, because a topic that was deleted and made again must not
be taken for the old one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from engine.request.writer_options import NO_OPTIONS, WriterOptions
from filestore.evolution.schema_change import SchemaChange, apply_changes
from filestore.options.table_options import TableOptions
from filestore.schema.log_names import other_names
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.format.record_codec import RecordCodec
from logstore.format.schema_registry import LOG_REGISTRY, SchemaRegistry
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_writer import BucketLogWriter, LogTarget, fence_all
from logstore.log.marker import LogTail

TOPIC_KEY: Final = TableOptions.log_topic.key
TOPIC_ID_KEY: Final = TableOptions.log_topic_id.key
TABLE_ID_KEY: Final = TableOptions.log_transactional_id_prefix.key
_OF_ENGINE: Final = frozenset({"topic", "topic-id"})  # behind log.kafka., but not the client's


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
    codec: RecordCodec
    is_exact: bool  # the writer looks up the rows it changes and logs exact changes
    is_eventual: bool
    orphans: OrphanPolicy = OrphanPolicy.FAIL

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
        topic = options.log_topic or default_topic(table.name)
        return cls(
            topic=topic,
            topic_id=options.log_topic_id,
            bucket_count=options.bucket,
            properties=KafkaProperties.parse(client),
            table_id=options.log_transactional_id_prefix or table.name,
            codec=record_codec(table.schema, options, topic),
            is_exact=options.log_is_exact and bool(table.schema.primary_keys),
            is_eventual=options.log_consistency == "eventual",
            orphans=OrphanPolicy(writer.on_orphan_batch),
        )

    @property
    def key_names(self) -> tuple[str, ...]:
        """The primary key; () for a table without one."""
        return self.codec.key_names

    @property
    def keeps_update_before(self) -> bool:
        """log.changelog-mode=all."""
        return self.codec.keeps_update_before

    def for_version(self, store: TableStore, version: int) -> "TableLog":
        """The log with the schemas of its records registered, for rows of a version of the table's schema.

        Raises:
            UnavailableError: the schema registry does not answer.
            InvalidInputError: it refuses the schema.
        """
        if not self.codec.is_avro or version in self.codec.schemas:
            return self
        versions = store.schema_versions()
        (schema,) = (each for each in versions if each.id == version)
        return replace(self, codec=registered(self.codec, schema, versions))

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


def record_codec(schema: TableSchema, options: TableOptions, topic: str) -> RecordCodec:
    """The format of a table's records, without schemas. Raises: InvalidInputError: the registry has no address."""
    registry = None
    if options.log_is_avro and options.log_registry_url is not None:
        registry = SchemaRegistry(
            url=options.log_registry_url,
            user_info=options.log_registry_user_info,
            token=options.log_registry_token,
            ca_file=options.log_registry_ca,
            keys=LOG_REGISTRY,
        )
    return RecordCodec(
        log_format=options.log_format,
        key_names=tuple(schema.primary_keys),
        keeps_update_before=options.log_changelog_mode == "all",
        topic=topic,
        registry=registry,
    )


def registered(codec: RecordCodec, schema: TableSchema, versions: Sequence[TableSchema]) -> RecordCodec:
    """The codec for rows of a version of the table's schema. See ``RecordCodec.registered``.

    Args:
        codec: of the table.
        schema: the version.
        versions: all that there are, for what columns were called.
    """
    seen = seen_schema(schema)
    earlier = [each for each in versions if each.id <= schema.id]  # a version has one schema, whatever follows it
    return codec.registered(schema.id, seen.arrow_schema, other_names=other_names(seen.fields, earlier))


def register_next(log: TableLog | None, store: TableStore, changes: Sequence[SchemaChange]) -> None:
    """Have the registry accept what a table's schema is after changes, before they are published.

    Raises:
        UnavailableError: the schema registry does not answer.
        InvalidInputError: it refuses the schema, or a change is refused.
    """
    if log is None or not log.codec.is_avro:
        return
    versions = store.schema_versions()
    after = apply_changes(
        versions[-1], changes, has_rows=store.snapshots.latest_id() is not None, history=versions[:-1]
    )
    registered(log.codec, after, [*versions, after])


def tracks_changes(store: TableStore, writer: WriterOptions = NO_OPTIONS) -> bool:
    """Whether streams get what is written: ``change-tracking`` of the writer, else of the table."""
    return writer.tracks_changes(store.options)


def default_topic(table_name: str) -> str:
    """The default topic of a table: its name, with underscores for characters that Kafka does not allow."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in table_name)
