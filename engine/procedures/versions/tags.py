"""Procedures about tags."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import Duration, MomentText, existing_names, moment_ms, parse_duration_ms
from engine.runtime.times import sql_time_text
from engine.table import Table
from filestore.options.tag_schedule import TagSchedule
from filestore.tag.automatic_tags import create_due_tags
from filestore.tag.tags import DeletedTag, Tag
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError

_NAME: Final = {"name": "tag"}

_TAGS: Final = parse_columns("tag_name string, tagged_snapshot_id int64, commit_time string, time_retained_ms int64?")
_AUTOMATIC: Final = parse_columns(
    "tag_name string, action string, "  # made or deleted
    "tagged_snapshot_id int64?"
)
_DELETED: Final = parse_columns(
    "tag_name string, tagged_snapshot_id int64, data_files int64, metadata_files int64, size_bytes int64"
)


@procedure(_TAGS, aliases=_NAME)
def create_tag(table: Table, tag: str, snapshot: int | None = None, time_retained: Duration | None = None) -> pa.Table:
    """Give a snapshot a name, which keeps it until the tag is deleted.

    Args:
        table: the table.
        tag: the name, up to 160 bytes; not a number or another word of a version, and without
            slashes, colons and commas.
        snapshot: id of the snapshot. Default: the newest.
        time_retained: how long the tag lives, as "30 d". Default: tag.default-time-retained of the table, else until it
            is deleted.

    Returns:
        One row.

    Raises:
        InvalidInputError: the name is taken or cannot be one, or there is no such snapshot.
        ConflictError: the snapshot expired at this moment.
    """
    return _made(table.tags.create(tag, snapshot_id=snapshot, time_retained=_retained(time_retained)))


@procedure(_TAGS, aliases=_NAME)
def create_tag_from_timestamp(
    table: Table, tag: str, timestamp: MomentText, time_retained: Duration | None = None
) -> pa.Table:
    """Give a name to the snapshot that readers saw at a time.

    Args:
        table: the table.
        tag: the name, up to 160 bytes; not a number or another word of a version, and without
            slashes, colons and commas.
        timestamp: as "2024-01-31 12:30:00", in UTC; the last snapshot committed then or before is tagged.
        time_retained: how long the tag lives, as "30 d". Default: as of create_tag.

    Returns:
        One row.

    Raises:
        InvalidInputError: no snapshot is so old, or as create_tag.
    """
    time_ms = moment_ms("timestamp", timestamp)
    found = table.store.snapshots.as_of(time_ms, now_ms=table.store.clock.now_ms())
    if found is None:
        raise InvalidInputError(
            f"no snapshot is so old: table={table.name} timestamp={timestamp} "
            f"earliest={table.store.snapshots.earliest_id()}"
        )
    return create_tag(table, tag, snapshot=found.id, time_retained=time_retained)


@procedure(_TAGS, aliases=_NAME)
def replace_tag(table: Table, tag: str, snapshot: int | None = None, time_retained: Duration | None = None) -> pa.Table:
    """Give the name of a tag to another snapshot, and delete the files that only the old one used.

    Args:
        table: the table.
        tag: its name.
        snapshot: id of the snapshot. Default: the newest.
        time_retained: how long the tag lives from now, as "30 d". Default: as of create_tag.

    Returns:
        One row: the tag as it is now.
    """
    return _made(table.tags.replace(tag, snapshot_id=snapshot, time_retained=_retained(time_retained)))


@procedure(_TAGS, aliases=_NAME)
def rename_tag(table: Table, tag: str, target_tag: str) -> pa.Table:
    """Give a tag another name.

    Args:
        table: the table.
        tag: its name.
        target_tag: the new name.

    Returns:
        One row: the tag as it is now.
    """
    return _made(table.tags.rename(tag, target_tag))


@procedure(_DELETED, aliases=_NAME)
def delete_tag(table: Table, tag: str, dry_run: bool = False) -> pa.Table:
    """Delete tags, and the files that only they used.

    Args:
        table: the table.
        tag: name of the tag, or several with commas between them; a tag of exactly this name comes first.
        dry_run: only show what would go.

    Returns:
        One row for each tag.

    Raises:
        InvalidInputError: there is no such tag, or a branch was made from it.
    """
    names = existing_names("tag", tag, table.store.snapshots.tag_names())
    for name in names:
        table.tags.get(name)  # all or none
    return _gone([table.tags.delete(name, dry_run=dry_run) for name in names])


@procedure(_AUTOMATIC)
def trigger_tag_automatic_creation(table: Table, force: bool = False) -> pa.Table:
    """Make the tags that the table's options ask for and that are due; streams do it by themselves.

    Args:
        table: with tag.automatic-creation, or tag.create-time and tag.create-interval.
        force: also the tag of the last period, if it was created before and then deleted.

    Returns:
        One row for each tag that was made, or that went because there were too many.

    Raises:
        InvalidInputError: the options ask for no tags by the clock, or contradict each other.
    """
    if TagSchedule.of(table.options) is None:
        raise InvalidInputError(
            f"the table makes no tags by itself: table={table.name} "
            f"tag.automatic-creation={table.options.tag_automatic_creation} "
            "fix=set tag.automatic-creation=process-time or watermark, or tag.create-time"
        )
    done = create_due_tags(table.store, force=force)
    rows: list[dict[str, Any]] = [
        {"tag_name": tag.name, "action": "made", "tagged_snapshot_id": tag.snapshot.id} for tag in done.created
    ]
    rows += [{"tag_name": name, "action": "deleted", "tagged_snapshot_id": None} for name in done.deleted]
    return rows_table(_AUTOMATIC, rows)


@procedure(_DELETED)
def expire_tags(table: Table, older_than: MomentText | None = None, dry_run: bool = False) -> pa.Table:
    """Delete the tags that have outlived their retention.

    Args:
        table: the table.
        older_than: also those made before this time, whatever their retention, as "2024-01-31 12:30:00" in UTC.
        dry_run: only show what would go.

    Returns:
        One row for each tag.
    """
    before_ms = None if older_than is None else moment_ms("older_than", older_than)
    return _gone(table.tags.expire(older_than_ms=before_ms, dry_run=dry_run))


def _made(tag: Tag) -> pa.Table:
    row: dict[str, Any] = {
        "tag_name": tag.name,
        "tagged_snapshot_id": tag.snapshot.id,
        "commit_time": sql_time_text(tag.snapshot.time_ms),
        "time_retained_ms": tag.retained_ms,
    }
    return rows_table(_TAGS, [row])


def _retained(value: Duration | None) -> timedelta | None:
    return None if value is None else timedelta(milliseconds=parse_duration_ms("time_retained", value))


def _gone(deleted: Sequence[DeletedTag]) -> pa.Table:
    return rows_table(
        _DELETED,
        [
            {
                "tag_name": each.tag.name,
                "tagged_snapshot_id": each.tag.snapshot.id,
                "data_files": len(each.data),
                "metadata_files": len(each.metadata),
                "size_bytes": sum(file.size_bytes for file in each.data),
            }
            for each in deleted
        ],
    )
