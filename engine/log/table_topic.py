"""The topic of a table and its key: made for it, or claimed by it, and deleted with it.

A table has its topic alone. A topic by default is made, never found: where its name is in use, the table's own id makes
another one. A topic that a user names may exist already, as one that an administrator made: it is adopted if nothing
was ever written to it, keeps its settings, and stays when the table goes.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine.log.table_log import TableLog, default_topic
from filestore.io.file_io import FileIO
from filestore.layout.log_key import make_log_key, remove_log_key
from filestore.options.log_place import ADOPTED_KEY, MARKER_KEY_KEY, SYSTEM_KEY, TABLE_ID_KEY, TOPIC_ID_KEY, TOPIC_KEY
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopic, LogTopics, TopicExistsError
from logstore.log.marker import read_tail
from logstore.log.topic_claim import check_claimable, claim_topic, empty_value
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from lsm.undo import undoing

logger = logging.getLogger("fluvial.catalog")

_LONGEST_NAME: Final = 249
_ID_DIGITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTopic:
    """A topic that belongs to one table, or to one branch."""

    name: str
    topic_id: str
    table_id: str
    is_adopted: bool  # it existed before: it is not deleted with the table

    @property
    def options(self) -> Mapping[str, str]:
        """The options by which the table finds the topic."""
        return {
            TOPIC_KEY: self.name,
            TOPIC_ID_KEY: self.topic_id,
            TABLE_ID_KEY: self.table_id,
            ADOPTED_KEY: str(self.is_adopted).lower(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A topic and the key of its markers, which no table names yet."""

    topic: TableTopic
    properties: KafkaProperties  # of its brokers
    key: str
    io: FileIO
    root: str  # directory of the table

    @classmethod
    def keyed(cls, topic: TableTopic, properties: KafkaProperties, io: FileIO, root: str) -> "NewLog":
        """Make the key of a new topic; without it the topic goes again. Raises: UnavailableError."""
        with undoing(lambda: undo_topic(properties, topic)):
            return cls(topic=topic, properties=properties, key=make_log_key(io, root), io=io, root=root)

    @property
    def options(self) -> Mapping[str, str]:
        """The options by which the table, or the branch, finds the log."""
        return {SYSTEM_KEY: "kafka", **self.topic.options, MARKER_KEY_KEY: self.key}

    def undo(self) -> None:
        """Delete what can be deleted of both; a warning names the rest, so that an error before this one counts."""
        with _warning(f"topic={self.topic.name}"):
            undo_topic(self.properties, self.topic)
        with _warning(f"directory={self.root} key={self.key}"):
            remove_log_key(self.io, self.root, self.key)


def make_topic(
    properties: KafkaProperties,
    *,
    table_id: str,
    default_name: str,
    wanted_name: str | None,
    bucket_count: int,
    replication: int = 1,
    retention_ms: int | None = None,
    sets_retention: bool = True,
    log_format: str = "debezium-json",
    is_used: bool = False,
) -> TableTopic:
    """Make a topic for a table, or claim the one that the user names.

    Args:
        properties: client properties of the cluster.
        table_id: id of the table, new with each topic: it is part of the transactional ids and in every marker.
        default_name: used where the user names none; ``<default_name>.<first 8 digits of the id>`` where it is in use.
        wanted_name: ``log.kafka.topic``; None: the user names none.
        bucket_count: partitions.
        replication: replicas of a topic that is made.
        retention_ms: see ``LogTopics.create_topic``.
        log_format: of its records.
        is_used: the table had a topic of the default name.
        sets_retention: whether a topic that is adopted gets that retention, too: where the user gave the option.

    Raises:
        InvalidInputError: the named topic cannot be claimed, or the cluster refuses what is asked for.
        UnavailableError: the brokers do not answer.
        OutcomeUnknownError: the claim of the named topic was not confirmed; it is lost for other tables.
    """
    topics = LogTopics(properties)
    topics.check_reachable()

    def created(name: str) -> TableTopic:
        made = topics.create_topic(name, bucket_count=bucket_count, replication=replication, retention_ms=retention_ms)
        return TableTopic(name=name, topic_id=made.topic_id, table_id=table_id, is_adopted=False)

    if wanted_name is None and is_used:
        return created(_with_id(default_name, table_id))
    if wanted_name is None:
        try:
            return created(default_name)
        except TopicExistsError:
            own_name = _with_id(default_name, table_id)
            logger.info("the name of a topic is in use: topic=%s instead=%s", default_name, own_name)
            return created(own_name)
    found = topics.find_topic(wanted_name)
    if found is None:
        try:
            return created(wanted_name)
        except TopicExistsError:  # for a moment brokers do not show a new one
            found = topics.find_topic(wanted_name)
            if found is None:
                raise
    adopted = _adopted(topics, properties, found, table_id, bucket_count, log_format)
    if sets_retention and retention_ms is not None:
        with undoing(lambda: undo_topic(properties, adopted)):
            topics.set_retention(wanted_name, retention_ms)
    return adopted


def default_names(table_name: str, table_id: str) -> tuple[str, str]:
    """The topics that a table with this name and id may have got where the user named none."""
    name = default_topic(table_name)
    return name, _with_id(name, table_id)


def remove_topic(topics: LogTopics, log: TableLog) -> str | None:
    """Delete the topic of a dropped table, if the table created it and it has not been created again since.

    Args:
        topics: connection to its brokers.
        log: the table's log.

    Returns:
        Why the topic stays; None: it was deleted.

    Raises:
        UnavailableError: the brokers do not answer.
        InvalidInputError: this user may not delete it.
    """
    reason = _reason_to_keep(topics, log)
    if reason is None and not topics.delete_topic(log.topic, topic_id=log.topic_id):
        reason = "it was deleted and made again"
    if reason is not None:
        logger.warning("a topic stays: topic=%s table_id=%s reason='%s'", log.topic, log.table_id, reason)
    return reason


def dropped_logs(
    known: Callable[[], tuple[list[TableLog], list[TableLog]]], name: str, *, exists: bool, force: bool
) -> tuple[list[TableLog], list[TableLog]]:
    """The logs of a table that is to be dropped, and its former ones, without those of a table whose copy it is.

    Args:
        known: gives both, with those.
        name: its name.
        exists: whether there is such a table.
        force: give none, where the table cannot be decoded.

    Raises: as ``known``; the message of a table that cannot be decoded says what drops it.
    """
    try:
        logs, former = known()
        return [each for each in logs if is_own(each)], [each for each in former if is_own(each)]
    except (InvalidInputError, CorruptDataError) as error:
        if not exists and isinstance(error, InvalidInputError):
            raise
        if force:
            logger.warning("a topic may be left, the table cannot be decoded: table=%s cause='%s'", name, error)
            return [], []
        raise type(error)(
            f"{error} table={name} fix='DROP TABLE {name} FORCE, or drop_table(force=True), which leaves topics'"
        ) from error


def reached_topics(log: TableLog, table: str, *, force: bool) -> LogTopics | None:
    """The brokers of a log of a table that is dropped; with ``force`` None when they do not answer.

    Raises: UnavailableError; InvalidInputError: this user may not delete the topic.
    """
    try:
        topics = log.reached_topics()
    except UnavailableError as error:
        if force:
            return None
        raise UnavailableError(
            f"{error} table={table} topic={log.topic} fix='where the brokers are gone for good: DROP TABLE {table} "
            "FORCE, or drop_table(force=True)'"
        ) from error
    if not force and not log.is_adopted:
        topics.check_deletable(log.topic)
    return topics


def is_removed(topics: LogTopics, log: TableLog, *, force: bool) -> bool:
    """``remove_topic``; with ``force``, False instead of an error: the topic may or may not exist."""
    try:
        remove_topic(topics, log)
    except (UnavailableError, InvalidInputError):
        if not force:
            raise
        return False
    return True


def is_own(log: TableLog) -> bool:
    """Whether a log is that of the table itself; a warning says that it belongs to what the table is a copy of."""
    original = log.original
    if original is not None:
        logger.warning("a topic stays, because the table is a copy: topic=%s original=%s", log.topic, original)
    return original is None


def undo_topic(properties: KafkaProperties, topic: TableTopic) -> None:
    """Delete a topic that was made for a table that was not made then. Raises: FluvialError."""
    if topic.is_adopted:
        logger.warning(
            "a topic keeps the claim of a table that was not made: topic=%s table_id=%s fix='make the topic again, or "
            "choose another one'",
            topic.name, topic.table_id,
        )  # fmt: skip
    else:
        LogTopics(properties).delete_topic(topic.name, topic_id=topic.topic_id)


def _adopted(
    topics: LogTopics, properties: KafkaProperties, found: LogTopic, table_id: str, bucket_count: int, log_format: str
) -> TableTopic:
    check_claimable(topics, found, bucket_count=bucket_count)
    claim_topic(properties, found, table_id=table_id, value=empty_value(log_format))
    logger.info("a topic is adopted: topic=%s topic_id=%s table_id=%s", found.name, found.topic_id, table_id)
    return TableTopic(name=found.name, topic_id=found.topic_id, table_id=table_id, is_adopted=True)


def _with_id(name: str, table_id: str) -> str:
    digits = table_id.replace("-", "")[:_ID_DIGITS]
    return f"{name[: _LONGEST_NAME - _ID_DIGITS - 1]}.{digits}"


def _reason_to_keep(topics: LogTopics, log: TableLog) -> str | None:
    if log.is_adopted:
        return "it was there before the table"
    if not is_own(log):
        return "the table is a copy, and the log belongs to the original"
    found = topics.find_topic(log.topic)
    if found is None or (log.topic_id is not None and found.topic_id != log.topic_id):
        return None  # nothing to delete, or recognized by its id
    written = [bucket for bucket, end in topics.end_offsets(log.topic, range(found.bucket_count)).items() if end > 0]
    for bucket in written[:1]:
        try:
            read_tail(log.properties, topic=log.topic, bucket=bucket, table_id=log.table_id)
        except CorruptDataError as error:
            return str(error)
        except InvalidInputError:
            return None  # this user may delete the topic, and not read it
    return None


@contextlib.contextmanager
def _warning(place: str) -> Iterator[None]:
    try:
        yield
    except (FluvialError, OSError) as error:
        logger.warning("what was made for a log is left: %s cause='%s'", place, error)
