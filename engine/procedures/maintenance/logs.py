"""Procedures for a table's log."""

from typing import Final

import pyarrow as pa

from engine.log.replacement import give_log
from engine.log.table_log import TableLog, at_log_of, at_newest_log
from engine.log.table_topic import remove_topic
from engine.procedures.registry import procedure, rows_table
from engine.request.writer_options import EVEN_UNTRACKED
from engine.table import Table
from engine.write.log_sync import complete_log, wants_changes
from engine.write.ticket_queue import TicketQueue
from filestore.changelog.log_gap import log_gap
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import SignLog
from filestore.layout.log_key import make_log_key, note_places, remove_log_key
from filestore.layout.paths import MAIN_BRANCH
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.data_types import parse_columns
from lsm.errors import ConflictError, InvalidInputError
from lsm.undo import undoing_unless_visible

_RESET: Final = parse_columns(
    "former_topic string?, "  # null: the table had no log
    "topic string, topic_id string, buckets int32, schema_id int64, former_is_deleted bool"
)
_SIGNED: Final = parse_columns(
    "topic string, key string, "  # the file log-key/<key>
    "is_new bool"
)
_ADOPTED: Final = parse_columns(
    "topic string, original string?, "  # null: the table was no copy
    "directory string"
)
_SYNCED: Final = parse_columns(
    "topic string, wants_changes bool, "  # log.overwrite=changes
    "snapshot_id int64?, "  # null: the table has none
    "missing_snapshot_id int64?"  # null: the topic has every change of the table
)


@procedure(_SYNCED)
def sync_log(table: Table) -> pa.Table:
    """Write what bypassed a table's log into it, as the next batch would: see log.overwrite.

    With log.overwrite=changes the topic gets the difference, else a control record that says that the table has
    changed without it. With log.consistency=eventual rows that a dead writer left there are followed by the table's.

    Args:
        table: a table with a log.

    Returns:
        One row: the newest snapshot, and the newest commit whose changes the topic still lacks. They stay lacking
        without log.overwrite=changes, while a batch of a dead writer awaits its query, and when snapshots that the
        difference needs have expired: then reset_log makes a topic that is whole.

    Raises:
        InvalidInputError: the table has no log.
        ConflictError: other writers of the log took longer than log.turn-timeout.
        UnavailableError: the brokers do not answer; the next batch or call completes it.
    """
    if table.log is None:
        raise _no_log(table)
    table.log.reached_topics()  # whose patience is that of a person, other than a writer's
    complete_log(table.files)
    newest = table.latest_snapshot()
    gap = log_gap(table.store, newest)
    row = {
        "topic": table.log.topic,
        "wants_changes": wants_changes(table.store),
        "snapshot_id": None if newest is None else newest.id,
        "missing_snapshot_id": None if gap is None else gap.newest_id,
    }
    return rows_table(_SYNCED, [row])


@procedure(_RESET)
def reset_log(table: Table, topic: str | None = None, delete_former: bool = False) -> pa.Table:
    """Give a table a new empty topic: its topic was deleted or created again, lacks partitions, or has foreign rows.

    Rows, snapshots, tags and branches stay. Streams and writers that run cross over by themselves: streams read from
    the former topic up to a snapshot if they can, and what follows from files. Other consumers of the former topic
    find no more records there; they read the table, or the new topic from its start.

    Args:
        table: a table with a log, on its main branch.
        topic: name of the new topic. Default: one like that of the former one.
        delete_former: delete the former topic; running streams lose what they have not read of it, see
            log.on-offset-lost.

    Returns:
        One row.

    Raises:
        InvalidInputError: the table has no log: ALTER TABLE … SET ('log.system'='kafka'); or a branch is named.
        UnavailableError: the brokers do not answer; nothing has changed.
    """
    if not table.store.has_log:
        raise _no_log(table)
    done = give_log(table.store, topic=topic)
    former, log = done.former, done.log
    assert log is not None
    assert log.topic_id is not None
    is_deleted = delete_former and former is not None and former.topic != log.topic
    if is_deleted and former is not None:
        is_deleted = remove_topic(former.reached_topics(), former) is None
    row = {
        "former_topic": None if former is None else former.topic,
        "topic": log.topic,
        "topic_id": log.topic_id,
        "buckets": log.bucket_count,
        "schema_id": done.schema.id,
        "former_is_deleted": is_deleted,
    }
    return rows_table(_RESET, [row])


@procedure(_ADOPTED)
def adopt_copy(table: Table) -> pa.Table:
    """Let a table that was moved or restored to another path continue with its log: the original was deleted.

    A copy of a table's directory has the table's id and topic, so its first write is refused: two tables in one topic
    destroy each other's batches. This declares that the directory is not a copy.

    Args:
        table: a table with a log.

    Returns:
        One row: the topic, the directory that it was written from until now, and the one that it is written from now.

    Raises:
        InvalidInputError: the table has no log; or the original is still there.
        UnavailableError: the files cannot be read or written.
    """
    log = table.log
    if log is None:
        raise _no_log(table)
    original = log.original
    if original is not None and log.key_place is not None and log.key_place.original_is_there(original):
        raise InvalidInputError(
            f"the original is still there: table={table.name} directory={table.store.paths.root} original={original} "
            f"topic={log.topic} fix='give the copy a topic of its own, CALL sys.reset_log; or delete the original'"
        )
    note_places(table.store.io, table.store.paths.root)
    return rows_table(_ADOPTED, [{"topic": log.topic, "original": original, "directory": table.store.paths.root}])


@procedure(_SIGNED)
def sign_log(table: Table) -> pa.Table:
    """Give the log of an older table a key: from then on only who may read the table's directory can bring files in.

    New tables with a log have a key, and so have topics of reset_log. Running writers are fenced; after a restart they
    use the key. Releases of Fluvial without keys can no longer write this log.

    Args:
        table: a table with a log, on its main branch.

    Returns:
        One row: the topic, the name of the key, and whether this call has made it.

    Raises:
        InvalidInputError: the table has no log; or a branch is named.
        ConflictError: a batch is in the log and not in the table: start its query first.
        UnavailableError: the brokers do not answer; nothing has changed.
    """
    store, _ = at_newest_log(table.store, table.store.schema.id)
    if store.paths.branch != MAIN_BRANCH:
        raise InvalidInputError(f"a branch keeps the log that it was made with: table={table.name} fix=name the table")
    if not store.has_log:
        raise _no_log(table)
    known, now = store.options.log_marker_key, store
    if known is None:
        with TicketQueue(store, store.new_commit_user()).turn(patience_s=store.options.log_turn_timeout_ms / 1000):
            _check_complete(store)
            made = make_log_key(store.io, store.paths.root)
            with undoing_unless_visible(lambda: remove_log_key(store.io, store.paths.root, made)):
                schema = publish_changes(store, lambda _: [SignLog(made)])
            now = at_log_of(store, schema)
            known = now.options.log_marker_key
            if known != made:  # another call was faster
                remove_log_key(store.io, store.paths.root, made)
            _log_of(now).fence_all()  # who has opened the table without the key
    row = {"topic": _log_of(now).topic, "key": known, "is_new": now is not store}
    return rows_table(_SIGNED, [row])


def _check_complete(store: TableStore) -> None:
    """Fence the writers of a log, and refuse one that holds what no snapshot has. Raises: ConflictError."""
    log = _log_of(store)
    tails = log.fence_all()
    ends = store.log_offsets_at(store.snapshots.latest()) or {}  # what they held may have been committed meanwhile
    for bucket, tail in tails.items():
        if (tail.marker is not None or tail.is_foreign) and tail.end_offset > ends.get(bucket, 0):
            raise ConflictError(
                f"a batch is in the log and not in the table: table={store.name} topic={log.topic} bucket={bucket} "
                f"log_end={tail.end_offset} table_end={ends.get(bucket, 0)} fix='start its query, or write to the "
                "table; then run it again'"
            )


def _log_of(store: TableStore) -> TableLog:
    log = TableLog.of(TableView(store), EVEN_UNTRACKED)
    assert log is not None
    return log


def _no_log(table: Table) -> InvalidInputError:
    return InvalidInputError(
        f"the table has no log: table={table.name} fix='ALTER TABLE {table.name} SET (log.system=kafka)'"
    )
