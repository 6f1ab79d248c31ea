"""Automatic tags: at period ends by processing time or watermark, and with each batch write.

``filestore.options.tag_schedule`` decides which are due; this module finds the snapshots and creates the tags. A
period's tag is the state at its end: the last snapshot before it, independent of when this runs and of whether
anything is written. By watermark, it is the first snapshot that is complete up to the end. Progress is stored
in ``automatic-tags/``, so that an expired tag is not recreated. Source: Paimon
TagAutoCreation, TagBatchCreation.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

from filestore.options.tag_schedule import TagClock, TagSchedule, due_ends, too_many
from filestore.refs.branch_origins import branch_made_from
from filestore.refs.versions import at_watermark
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import Tag, create_tag, delete_tag, read_tag, replace_tag
from lsm.errors import ConflictError, InvalidInputError

logger = logging.getLogger("fluvial.tags")

BATCH_PREFIX: Final = "batch-write-"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticTags:
    """The created and deleted tags of one run."""

    created: tuple[Tag, ...] = ()
    deleted: tuple[str, ...] = ()  # names


def creates_tags(store: TableStore) -> bool:
    """Whether the table's options enable automatic tags."""
    options = store.options
    by_day = (options.tag_create_time, options.tag_create_interval_ms)
    return options.tag_automatic_creation != "none" or by_day != (None, None)


def create_due_tags(store: TableStore, *, force: bool = False) -> AutomaticTags:
    """Create the tags of completed periods, and delete surplus ones.

    Args:
        store: the table, on the branch of the tags.
        force: recreate the tag of the last period if it was created before and deleted.

    Raises:
        InvalidInputError: the options contradict each other.
    """
    schedule = TagSchedule.of(store.options)
    clock_ms = None if schedule is None else _clock_ms(store, schedule)
    if schedule is None or clock_ms is None:
        return AutomaticTags()
    names = store.snapshots.tag_names()
    ends = due_ends(schedule, clock_ms=clock_ms, tags=names, noted_ms=_noted_ms(store), again=force)
    created: list[Tag] = []
    for end_ms in ends:
        name, snapshot = schedule.name_of(end_ms), _state_at(store, schedule, end_ms)
        if snapshot is not None and name not in names:
            tag = _create_tag(store, name, snapshot)
            if tag is None and not store.io.exists(store.paths.tag(name)):
                break  # the snapshot expired concurrently: retry later
            created += [] if tag is None else [tag]
        store.io.replace(_note(store), json.dumps({"end": end_ms}).encode())
    names = [*names, *(tag.name for tag in created)]
    return AutomaticTags(created=tuple(created), deleted=_delete_tags(store, too_many(schedule, names)))


def create_batch_tag(store: TableStore, snapshot: Snapshot) -> AutomaticTags:
    """Tag the snapshot of a batch write, if ``tag.automatic-creation`` is batch; moves an existing tag of the day.

    A tag from which a branch was created stays where it is; the tag of later writes has a number behind its name.
    """
    options = store.options
    if options.tag_automatic_creation != "batch":
        return AutomaticTags()
    day = _EPOCH + timedelta(milliseconds=options.sink_process_time_zone.local_ms(snapshot.time_ms))
    name = _movable_name(store, options.tag_batch_customized_name or f"{BATCH_PREFIX}{day:%Y-%m-%d}")
    if store.snapshots.find_tag(name) is None:
        tag = _create_tag(store, name, snapshot)
    else:
        replace_tag(store, name, snapshot_id=snapshot.id)
        tag = read_tag(store, name)
    own = sorted(name for name in store.snapshots.tag_names() if name.startswith(BATCH_PREFIX))
    max_count = options.tag_num_retained_max
    deleted = _delete_tags(store, own[:-max_count] if max_count else [])
    return AutomaticTags(created=() if tag is None else (tag,), deleted=deleted)


def _movable_name(store: TableStore, name: str) -> str:
    """The name, or with the first number behind it for which no branch keeps its tag in place."""
    wanted = name
    for number in count(2):
        existing = store.snapshots.find_tag(wanted)
        if existing is None or branch_made_from(store, wanted, existing) is None:
            break
        wanted = f"{name}-{number}"
    return wanted


def _clock_ms(store: TableStore, schedule: TagSchedule) -> int | None:
    if schedule.clock is TagClock.PROCESS_TIME:
        return schedule.zone.local_ms(store.clock.now_ms())
    latest = store.snapshots.latest()
    return None if latest is None else latest.watermark


def _state_at(store: TableStore, schedule: TagSchedule, end_ms: int) -> Snapshot | None:
    """The snapshot at the end of a period; the oldest remaining one if that has expired."""
    if schedule.clock is TagClock.WATERMARK:
        found = at_watermark(store, end_ms + schedule.delay_ms)
        return None if found is None else found[0]
    time_ms = schedule.zone.epoch_ms(end_ms + schedule.delay_ms) - 1
    snapshot = store.snapshots.as_of(time_ms, now_ms=store.clock.now_ms())
    if snapshot is None:
        earliest = store.snapshots.earliest_id()
        if earliest is not None and earliest > FIRST_SNAPSHOT_ID:
            return store.snapshots.find(earliest)
    return snapshot


def _create_tag(store: TableStore, name: str, snapshot: Snapshot) -> Tag | None:
    try:
        tag = create_tag(store, name, snapshot_id=snapshot.id)
    except (InvalidInputError, ConflictError) as error:  # another process was faster, or the snapshot is expiring
        logger.warning("automatic tag was not created: table=%s tag=%s error=%s", store.name, name, error)
        return None
    logger.info("tag created: table=%s tag=%s snapshot=%d", store.name, name, snapshot.id)
    return tag


def _delete_tags(store: TableStore, names: Sequence[str]) -> tuple[str, ...]:
    deleted = []
    for name in names:
        tagged = store.snapshots.find_tag(name)
        if tagged is None or branch_made_from(store, name, tagged) is not None:
            continue  # deleted concurrently; or it goes when the branch is gone
        try:
            delete_tag(store, name)
        except InvalidInputError as error:  # deleted concurrently, or a branch was created from it
            logger.warning("tag cannot be deleted: table=%s tag=%s error=%s", store.name, name, error)
            continue
        deleted.append(name)
        logger.info("surplus tag deleted: table=%s tag=%s", store.name, name)
    return tuple(deleted)


def _noted_ms(store: TableStore) -> int | None:
    try:
        return int(json.loads(store.io.read_bytes(_note(store)))["end"])
    except FileNotFoundError:
        return None


def _note(store: TableStore) -> str:
    return f"{store.paths.branch_root}/automatic-tags/last"
