"""The log of one table, as its options describe it.

A small picklable value: clients are made where they are used. What is remembered of the topic when the table is made,
its id and the table's own id, is in the table's options, because a topic that was deleted and created again must not
be taken for the old one.
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Final

from engine.log.table_codec import record_codec, registered
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from filestore.io.places import is_inside
from filestore.layout.branch_log import branch_options
from filestore.layout.file_names import EXTERNAL_OPTIONS, external_roots
from filestore.layout.log_key import LogKeyPlace, read_log_key
from filestore.options.log_login import address_of, openers_of, trusted_options, with_given
from filestore.options.log_place import in_other_place, log_place
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.format.record_codec import RecordCodec
from logstore.kafka.clients import OPERATION_TIMEOUT_S, KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.control_record import CLAIM_END
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import LogTail, read_tail
from logstore.log.marker_key import MarkerKey
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.log")

_LEAST_WAIT_S: Final = 1.0  # for the first answer of brokers that are there
_OF_ENGINE: Final = frozenset({"topic", "topic-id", "topic-is-adopted"})  # behind log.kafka., but not the client's


class OrphanPolicy(Enum):
    """How to treat a batch of another query that is in the log and in no snapshot."""

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
    codec: RecordCodec
    is_exact: bool  # the writer looks up the rows it changes and logs exact changes
    is_eventual: bool
    orphans: OrphanPolicy = OrphanPolicy.FAIL
    generation: int = 0  # which of the table's logs, see ``Snapshot.log_generation``
    is_adopted: bool = False  # the topic existed before the table, and begins with its claim
    key: MarkerKey | None = None  # None: an older table, see ``sys.sign_log``
    key_place: LogKeyPlace | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, table: TableView, writer: WriterOptions = NO_OPTIONS) -> "TableLog | None":
        """The log of an opened table; None when it has none, or when ``change-tracking`` is off for this write.

        Args:
            table: the table.
            writer: its ``change-tracking``, ``log.on-orphan-batch`` and client properties.

        Raises:
            InvalidInputError: client properties are wrong.
        """
        if not writer.tracks_changes(table.options) or not table.store.has_log:
            return None
        options = log_options(table.store, writer, of=table.options)
        topic = options.log_topic or default_topic(table.name)
        return cls(
            topic=topic,
            topic_id=options.log_topic_id,
            bucket_count=options.bucket,
            properties=KafkaProperties.parse(client_options(options)),
            table_id=options.log_transactional_id_prefix or table.name,
            codec=record_codec(table.schema, options, topic),
            is_exact=options.log_is_exact and bool(table.schema.primary_keys),
            is_eventual=options.log_is_eventual,
            orphans=OrphanPolicy(writer.on_orphan_batch),
            generation=options.log_generation,
            is_adopted=options.log_topic_is_adopted,
            key=_key(table.store, options.log_marker_key),
            key_place=_key_place(table.store, options.log_marker_key),
        )

    @property
    def first_offset(self) -> int:
        """Offset of the first row of each bucket, also of one that has no row yet."""
        return CLAIM_END if self.is_adopted else 0

    def position(self, offsets: Mapping[int, int]) -> LogOffsets:
        """Next offsets with those of buckets that have no rows yet, where it matters: see ``first_offset``."""
        first = range(self.bucket_count) if self.is_adopted else ()
        return LogOffsets(offsets).joined(dict.fromkeys(first, self.first_offset))

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
        return BucketLogWriter(self.target(bucket), eventual=self.is_eventual)

    def fence_all(self) -> Mapping[int, LogTail]:
        """Fence all other writers of this log and return the end of each bucket.

        Raises:
            InvalidInputError: the table's directory is a copy; the log is the original's, and no writer was fenced.
            CorruptDataError: the topic is not the table's original one.
            UnavailableError: the brokers cannot be reached.
        """
        self.check_not_copied()
        self.checked_topics()
        return fence_all(self.target(bucket) for bucket in range(self.bucket_count))

    @property
    def original(self) -> str | None:
        """The directory of the table that has this log, if this one is a copy of it. Raises: UnavailableError."""
        return None if self.key_place is None else self.key_place.original()

    def check_not_copied(self) -> None:
        """Before the log is written: refuse a copy of the table's directory, which would take the log from the table.

        Raises: InvalidInputError.
        """
        original = self.original
        if original is None or self.key_place is None:
            return
        is_there = self.key_place.original_is_there(original)
        raise InvalidInputError(
            f"the table's directory is a copy, and its log belongs to the original: directory={self.key_place.root} "
            f"original={original} is_there={str(is_there).lower()} topic={self.topic} "
            f"fix='give the copy a topic of its own, CALL sys.reset_log; "
            + ("delete one of the two'" if is_there else "or, if the original is gone for good, CALL sys.adopt_copy'")
        )

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

    def tail(self, bucket: int) -> LogTail:
        """The end of a bucket and its last marker, if the table's key has signed that. Fences no writer.

        Raises:
            CorruptDataError: the last record is another table's.
            UnavailableError: the brokers do not answer.
        """
        return read_tail(
            self.properties, topic=self.topic, bucket=bucket, table_id=self.table_id, key=self.key, allows_foreign=True
        )

    def end_offsets(self) -> Mapping[int, int]:
        """The committed next offset of each bucket. Raises: UnavailableError."""
        return self.reached_topics().end_offsets(self.topic, range(self.bucket_count))

    def reached_topics(self, within_s: float = OPERATION_TIMEOUT_S) -> LogTopics:
        """A connection to brokers that answer. Raises: UnavailableError, within seconds, or earlier if asked for."""
        topics = LogTopics(self.properties, timeout_s=min(max(_LEAST_WAIT_S, within_s), OPERATION_TIMEOUT_S))
        topics.check_reachable()
        return topics

    def checked_topics(self, within_s: float = OPERATION_TIMEOUT_S) -> LogTopics:
        """A connection to brokers that have the table's topic.

        Args:
            within_s: how long to wait for them, at least a second.

        Raises:
            UnavailableError: the brokers cannot be reached.
            CorruptDataError: the topic is not the table's original one.
        """
        topics = self.reached_topics(within_s)
        topics.describe_topic(self.topic, topic_id=self.topic_id, bucket_count=self.bucket_count)
        return topics

    def target(self, bucket: int) -> LogTarget:
        """The topic partition, and client properties, of a bucket's writer."""
        return LogTarget(
            properties=self.properties, topic=self.topic, table_uuid=self.table_id, bucket=bucket, key=self.key,
            topic_id=self.topic_id,
        )  # fmt: skip


def _key(store: TableStore, name: str | None) -> MarkerKey | None:
    if name is None:
        return None
    secret = read_log_key(store.io, store.paths.root, name)
    return MarkerKey(secret=secret, place=f"table={store.name} log.marker-key={name}")


def _key_place(store: TableStore, name: str | None) -> LogKeyPlace | None:
    return None if name is None else LogKeyPlace(io=store.io, root=store.paths.root, name=name)


def log_options(
    store: TableStore, writer: WriterOptions = NO_OPTIONS, *, of: TableOptions | None = None
) -> TableOptions:
    """The options by which a table's log is opened: its own, but for what is only its opener's, see ``log_login``.

    Args:
        store: the table.
        writer: its client properties.
        of: the options of the table as its users see it, whose rows may be counted; None: those of its files.

    Raises: InvalidInputError: a login is given without the address that it is for.
    """
    own = writer.client_properties
    options = store.options if of is None else of
    texts = {**options.texts_by_key(), **own}
    trusted = trusted_options(texts, with_given(store.given, own))
    if unused := tuple(key for key in openers_of(texts) if key not in trusted):
        _warn_of(store.name, unused)
    return options.with_only(trusted)


def ignored_options(store: TableStore) -> dict[str, str]:
    """Stored options of a table that have no effect for the catalog that opened it: the reason, by key."""
    options = store.schema.options
    try:
        trusted = trusted_options(options, store.given)
    except InvalidInputError:  # a login without the address that it is for
        trusted = {}
    found = {key: f"only who opens the table gives it, beside {address_of(key)}" for key in openers_of(options)}
    ignored = {key: reason for key, reason in found.items() if key not in trusted}
    for key in EXTERNAL_OPTIONS:
        if not all(is_inside(each, external_roots(store.allowed_outside)) for each in external_roots(options.get(key))):
            ignored[key] = "read only below external-paths.allowed, which who opens the table gives to the catalog"
    return ignored


@cache
def _warn_of(table: str, unused: tuple[str, ...]) -> None:
    logger.warning(
        "options have no effect, as only who opens the table may give them: table=%s options=%s"
        " fix='give them to the catalog, beside the address that they are for'",
        table, ",".join(unused),
    )  # fmt: skip


def client_options(options: TableOptions) -> dict[str, str]:
    """The properties of Kafka clients among the options of a log."""
    return {name: value for name, value in options.log_kafka.items() if name not in _OF_ENGINE}


def at_log_of(store: TableStore, schema: TableSchema) -> TableStore:
    """An opened table with the log that another version of its schema names; other options stay in force."""
    options = branch_options(store.io, store.paths, schema.options)
    opened = replace(store.schema, options=in_other_place(store.schema.options, log_place(options)))
    return replace(store, schema=opened, options=store.options_of(opened))


def at_newest_log(store: TableStore, known_schema_id: int) -> tuple[TableStore, int]:
    """An opened table with the log that it has now; ``store`` itself when that is the one it was opened with.

    Args:
        store: the table.
        known_schema_id: the newest version of the schema that this was asked about.

    Returns:
        the table, and the newest version of its schema.
    """
    newest_id = max(store.schemas.ids(), default=known_schema_id)
    if newest_id == known_schema_id:
        return store, known_schema_id
    found = at_log_of(store, store.schemas.read(newest_id))
    if _log_facts(found) == _log_facts(store):
        return store, newest_id
    logger.warning(
        "the table has another log: table=%s topic=%s former_topic=%s",
        store.name, found.options.log_topic, store.options.log_topic,
    )  # fmt: skip
    return found, newest_id


def _log_facts(store: TableStore) -> tuple[bool, int, str | None]:
    return store.has_log, store.options.log_generation, store.options.log_marker_key


def tracks_changes(store: TableStore, writer: WriterOptions = NO_OPTIONS) -> bool:
    """Whether streams get what is written: ``change-tracking`` of the writer, else of the table."""
    return writer.tracks_changes(store.options)


def default_topic(table_name: str) -> str:
    """The default topic of a table: its name, with underscores for characters that Kafka does not allow."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in table_name)


# ---- All buckets of a log fenced at once: no writer of an earlier run can commit afterwards


_FENCING_THREADS: Final = 16


def fence_all(targets: Iterable[LogTarget], *, timeout_s: float = OPERATION_TIMEOUT_S) -> dict[int, LogTail]:
    """Fence every bucket and return the end of its log; called by the driver before the first batch of a run.

    Afterwards no writer of an earlier run can commit. Buckets are fenced in parallel.

    Raises:
        FluvialError: see `BucketLogWriter.fence`; for the first bucket that fails. Buckets after it are fenced too.
    """

    def tail(target: LogTarget) -> LogTail:
        with BucketLogWriter(target, timeout_s=timeout_s) as writer:
            writer.fence()
            return writer.tail

    wanted = [*targets]
    if not all(target.properties.environment.max_threads for target in wanted):
        return {found.bucket: found for found in map(tail, wanted)}
    with ThreadPoolExecutor(max_workers=_FENCING_THREADS, thread_name_prefix="fluvial-fence") as threads:
        return {found.bucket: found for found in threads.map(tail, wanted)}
