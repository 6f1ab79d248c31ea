"""A table gets its first log, another one, or none; its rows, history, tags and branches stay.

The one step that counts is the next version of the schema, which names the new topic. Offsets in snapshots say which
log they are of (``Snapshot.log_generation``), so a writer that has not heard of it does no harm: what it commits is
read from its files. Streams cross over at the next snapshot, see ``engine.stream.log_views``.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.log.table_log import TableLog, at_log_of, client_options, default_topic, log_options
from engine.log.table_topic import NewLog, make_topic
from engine.request.writer_options import EVEN_UNTRACKED
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import ReplaceLog, SchemaChange, SetOption
from filestore.layout.paths import MAIN_BRANCH
from filestore.manifest.commit_message import PURPOSE_KEY
from filestore.options.log_place import BUCKET_KEY, SERVERS_KEY, SYSTEM_KEY, TOPIC_KEY, in_other_place
from filestore.options.table_options import TableOptions, canonical_options, check_option
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.change_tracking import ChangeSource
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.kafka.clients import KafkaProperties
from lsm.errors import InvalidInputError
from lsm.undo import undoing_unless_visible

_PURPOSE: Final = "replace_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReplaced:
    """The former and the new log of a table."""

    schema: TableSchema
    former: TableLog | None
    log: TableLog | None


def give_log(
    store: TableStore, *, servers: str | None = None, topic: str | None = None, bucket_count: int | None = None
) -> LogReplaced:
    """Give a table a new topic, whether or not its former topic still exists.

    All committed rows are in the files, also for streams that have not read them from the former log. A batch in the
    former log that is in no snapshot is written again by its query.

    Args:
        store: the table, on its main branch.
        servers: brokers; None: those of the table.
        topic: name of the topic; None: one like that of the former one. The name is not used again, because a writer
            of the former log would find the new topic by it.
        bucket_count: of the rows from now on; None: as before.

    Raises:
        InvalidInputError: a branch, a table that cannot have a log, no brokers, or the topic cannot be used: nothing
            has changed.
        UnavailableError: the brokers do not answer: nothing has changed.
        ConflictError: the schema was changed again and again, or others committed: run it again.
    """
    _check_main(store)
    former = TableLog.of(TableView(store), EVEN_UNTRACKED)
    newest = store.schemas.latest() or store.schema
    buckets = newest.table_options.bucket if bucket_count is None else bucket_count
    wanted = {SYSTEM_KEY: "kafka"}
    if servers is not None:
        wanted[SERVERS_KEY] = servers
    elif SERVERS_KEY in store.schema.options:
        wanted[SERVERS_KEY] = store.schema.options[SERVERS_KEY]
    _check_possible(store, newest, {**wanted, BUCKET_KEY: str(buckets)})
    at_brokers = store.with_options(wanted)
    properties = KafkaProperties.parse(client_options(log_options(at_brokers)))
    topic_made = make_topic(
        properties,
        table_id=str(uuid.uuid4()),
        default_name=default_topic(store.name),
        is_used=former is not None,
        wanted_name=topic,
        bucket_count=buckets,
        replication=at_brokers.options.log_replication,
        retention_ms=at_brokers.options.log_retention_ms,
        log_format=at_brokers.options.log_format,
    )
    made = NewLog.keyed(topic_made, properties, store.io, store.paths.root)
    place = {**wanted, **made.options} | ({} if bucket_count is None else {BUCKET_KEY: str(bucket_count)})
    with undoing_unless_visible(made.undo):
        schema = publish_changes(store, lambda _: [ReplaceLog(place)])
    return _settled(store, schema, former)


def remove_log(store: TableStore) -> LogReplaced:
    """Let a table have no log from now on. Its topic stays, for those who have not read it to its end.

    Raises:
        InvalidInputError: a branch.
        ConflictError: the schema was changed again and again: run it again.
    """
    _check_main(store)
    former = TableLog.of(TableView(store), EVEN_UNTRACKED)
    schema = publish_changes(store, lambda _: [ReplaceLog({SYSTEM_KEY: "none"})])
    return LogReplaced(schema=schema, former=former, log=None)


def former_logs(store: TableStore) -> list[TableLog]:
    """The logs that a table had before, oldest first, whether their topics still exist or not."""
    current = store.options.log_topic_id
    found: dict[str, TableLog] = {}
    for schema_id in store.schemas.ids():
        topic_id = store.options_of(schema := store.schemas.read(schema_id)).log_topic_id
        if topic_id is not None and topic_id != current and topic_id not in found:
            log = TableLog.of(TableView(at_log_of(store, schema)), EVEN_UNTRACKED)
            if log is not None:
                found[topic_id] = log
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """The log that ``ALTER TABLE … SET ('log.system'='…')`` asks for."""

    system: str
    servers: str | None
    topic: str | None

    @classmethod
    def of(cls, changes: Sequence[SchemaChange], store: TableStore) -> "LogWanted | None":
        """The log that changes of a table ask for; None: they do not change the log.

        Raises:
            InvalidInputError: no such system, or changes besides those of the log, which are not made in one step.
        """
        given = canonical_options({each.key: each.text for each in changes if isinstance(each, SetOption)})
        if SYSTEM_KEY not in given or given[SYSTEM_KEY] == store.options.log_system:
            return None
        check_option(SYSTEM_KEY, given[SYSTEM_KEY])
        others = [each for each in changes if not (isinstance(each, SetOption) and _is_of_log(each.key))]
        if others:
            raise InvalidInputError(
                f"a table gets or loses its log in a step of its own: table={store.name} {SYSTEM_KEY}="
                f"{given[SYSTEM_KEY]} other={others[0]} fix='make the other changes by another statement'"
            )
        return cls(system=given[SYSTEM_KEY], servers=given.get(SERVERS_KEY), topic=given.get(TOPIC_KEY))

    def apply(self, store: TableStore, *, servers: str | None) -> LogReplaced:
        """Do it; ``servers``: the brokers of the catalog. Raises: see ``give_log`` and ``remove_log``."""
        if self.system == "none":
            return remove_log(store)
        return give_log(
            store, servers=self.servers or store.schema.options.get(SERVERS_KEY) or servers, topic=self.topic
        )


def _is_of_log(key: str) -> bool:
    return next(iter(canonical_options({key: ""}))) in (SYSTEM_KEY, SERVERS_KEY, TOPIC_KEY)


def _settled(store: TableStore, schema: TableSchema, former: TableLog | None) -> LogReplaced:
    """Note in a snapshot that nothing is in the new log yet, so that its start stays known when others expire."""
    at_log = at_log_of(store, schema)
    log = TableLog.of(TableView(at_log), EVEN_UNTRACKED)
    if log is not None and store.snapshots.latest_id() is not None:
        nothing = Committable(
            identifier=BATCH_IDENTIFIER,
            log_offsets=dict.fromkeys(range(log.bucket_count), log.first_offset),
            changes=ChangeSource.NONE,
            log_synced=store.snapshots.latest_id(),  # who follows the new log begins with the rows of this moment
            properties={PURPOSE_KEY: _PURPOSE},
        )
        TableCommit(at_log, at_log.new_commit_user()).commit(nothing)
    return LogReplaced(schema=schema, former=former, log=log)


def check_replaceable(store: TableStore) -> None:
    """Check that a table can be given another log, before anything is done that needs one.

    Raises:
        InvalidInputError: it is opened on a branch.
        UnavailableError: the brokers do not answer.
    """
    _check_main(store)
    log = TableLog.of(TableView(store), EVEN_UNTRACKED)
    if log is not None:
        log.reached_topics()


def _check_main(store: TableStore) -> None:
    if store.paths.branch != MAIN_BRANCH:
        raise InvalidInputError(
            f"a branch keeps the log that it was made with: table={store.name} "
            "fix='delete the branch and make it again, with log => true for a log of its own'"
        )


def _check_possible(store: TableStore, newest: TableSchema, wanted: Mapping[str, str]) -> None:
    """Refuse what a table with a log cannot be, before there is a topic. Raises: InvalidInputError."""
    buckets = int(wanted[BUCKET_KEY])
    if buckets < 1:
        raise InvalidInputError(
            f"the buckets of a table with a log are the partitions of its topic, so their number is fixed: "
            f"table={store.name} bucket={buckets} fix='rescale the table to a fixed number first, or leave out the log'"
        )
    if SERVERS_KEY not in wanted:
        raise InvalidInputError(
            f"brokers are missing: table={store.name} {SYSTEM_KEY}=kafka fix='set {SERVERS_KEY}, too'"
        )
    TableOptions.parse(in_other_place(newest.options, wanted), primary_key=newest.primary_keys).check_together()
