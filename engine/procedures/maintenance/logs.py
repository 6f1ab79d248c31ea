"""Procedures for a table's log."""

from typing import Final

import pyarrow as pa

from engine.log.replacement import give_log
from engine.log.table_topic import remove_topic
from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from engine.write.unlogged.log_sync import complete_log, wants_changes
from filestore.changelog.log_gap import log_gap
from lsm.errors import InvalidInputError

_RESET: Final = pa.schema(
    [
        pa.field("former_topic", pa.string()),  # null: the table had no log
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("buckets", pa.int32(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("former_is_deleted", pa.bool_(), nullable=False),
    ]
)
_SYNCED: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("wants_changes", pa.bool_(), nullable=False),  # log.overwrite=changes
        pa.field("snapshot_id", pa.int64()),  # null: the table has none
        pa.field("missing_snapshot_id", pa.int64()),  # null: the topic has every change of the table
    ]
)


@procedure(_SYNCED)
def sync_log(table: Table) -> pa.Table:
    """Write what bypassed a table's log into it, as the next batch would: see log.overwrite.

    With log.overwrite=changes the topic gets the difference, else a control record that says that the table has
    changed without it.

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
    """Give a table a new, empty topic: its topic is gone, was made again, lacks partitions or holds foreign records.

    Rows, snapshots, tags and branches stay. Streams and writers that run cross over by themselves: streams read from
    the former topic up to a snapshot if they can, and what follows from files. Other consumers of the former topic
    find no more records there; they read the table, or the new topic from its start.

    Args:
        table: a table with a log, on its main branch.
        topic: name of the new topic. Default: that of the former one if it is free, else one like it.
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


def _no_log(table: Table) -> InvalidInputError:
    return InvalidInputError(
        f"the table has no log: table={table.name} fix='ALTER TABLE {table.name} SET (log.system=kafka)'"
    )
