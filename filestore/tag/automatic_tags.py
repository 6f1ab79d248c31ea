"""Tags that make themselves: by the clock or the watermark at the ends of periods, and with each batch write.

What is due is decided in ``filestore.options.tag_schedule``; here the snapshots are found and the tags made. A
period's tag is the state at its end: the last snapshot before it, whenever it is looked for, and whether anything is
written or not. By watermark, it is the first snapshot that is complete up to the end. How far it came is noted in
``automatic-tags/``, so that an expired tag is not made again.
Source: Paimon TagAutoCreation, TagBatchCreation and TagSuccessFileCallback.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from filestore.options.tag_schedule import TagClock, TagSchedule, due_ends, too_many
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
    """What one look did."""

    made: tuple[Tag, ...] = ()
    deleted: tuple[str, ...] = ()  # names


def makes_tags(store: TableStore) -> bool:
    """Whether the table's options ask for any tags."""
    options = store.options
    by_day = (options.tag_create_time, options.tag_create_interval_ms)
    return options.tag_automatic_creation != "none" or by_day != (None, None)


def make_due_tags(store: TableStore, *, force: bool = False) -> AutomaticTags:
    """Make the tags of periods that are over, and delete those that are too many.

    Args:
        store: opened on the branch that gets the tags.
        force: also the tag of the last period when it was made before and is gone.

    Raises:
        InvalidInputError: the options contradict each other.
    """
    schedule = TagSchedule.of(store.options)
    clock_ms = None if schedule is None else _clock_ms(store, schedule)
    if schedule is None or clock_ms is None:
        return AutomaticTags()
    names = store.snapshots.tag_names()
    ends = due_ends(schedule, clock_ms=clock_ms, tags=names, noted_ms=_noted_ms(store), again=force)
    made: list[Tag] = []
    for end_ms in ends:
        name, snapshot = schedule.name_of(end_ms), _state_at(store, schedule, end_ms)
        if snapshot is not None and name not in names:
            tag = _made(store, name, snapshot)
            if tag is None and not store.io.exists(store.paths.tag(name)):
                break  # the snapshot expired at this moment: look again later
            made += [] if tag is None else [tag]
        store.io.replace(_note(store), json.dumps({"end": end_ms}).encode())
    names = [*names, *(tag.name for tag in made)]
    return AutomaticTags(made=tuple(made), deleted=_deleted(store, too_many(schedule, names)))


def make_batch_tag(store: TableStore, snapshot: Snapshot) -> AutomaticTags:
    """Tag what a batch write left, if ``tag.automatic-creation`` is batch; the tag of the same day moves on."""
    options = store.options
    if options.tag_automatic_creation != "batch":
        return AutomaticTags()
    zone_ms = store.clock.local_ms() - store.clock.now_ms()
    day = _EPOCH + timedelta(milliseconds=snapshot.time_ms + zone_ms)
    name = options.tag_batch_customized_name or f"{BATCH_PREFIX}{day:%Y-%m-%d}"
    there = store.snapshots.find_tag(name)
    if there is None:
        tag = _made(store, name, snapshot)
    else:
        replace_tag(store, name, snapshot_id=snapshot.id)
        tag = read_tag(store, name)
    own = sorted(name for name in store.snapshots.tag_names() if name.startswith(BATCH_PREFIX))
    most = options.tag_num_retained_max
    gone = _deleted(store, own[:-most] if most else [])
    return AutomaticTags(made=() if tag is None else (tag,), deleted=gone)


def _clock_ms(store: TableStore, schedule: TagSchedule) -> int | None:
    if schedule.clock is TagClock.PROCESS_TIME:
        return store.clock.local_ms()
    latest = store.snapshots.latest()
    return None if latest is None else latest.watermark


def _state_at(store: TableStore, schedule: TagSchedule, end_ms: int) -> Snapshot | None:
    """The snapshot of the end of a period; the oldest one that is left, when that one has expired."""
    if schedule.clock is TagClock.WATERMARK:
        found = at_watermark(store, end_ms + schedule.delay_ms)
        return None if found is None else found[0]
    zone_ms = store.clock.local_ms() - store.clock.now_ms()
    snapshot = store.snapshots.as_of(end_ms + schedule.delay_ms - zone_ms - 1)
    if snapshot is None:
        earliest = store.snapshots.earliest_id()
        if earliest is not None and earliest > FIRST_SNAPSHOT_ID:
            return store.snapshots.find(earliest)
    return snapshot


def _made(store: TableStore, name: str, snapshot: Snapshot) -> Tag | None:
    try:
        tag = create_tag(store, name, snapshot_id=snapshot.id)
    except (InvalidInputError, ConflictError) as error:  # another process was faster, or the snapshot is expiring
        logger.warning("automatic tag was not made: table=%s tag=%s error=%s", store.name, name, error)
        return None
    logger.info("tag made: table=%s tag=%s snapshot=%d", store.name, name, snapshot.id)
    return tag


def _deleted(store: TableStore, names: Sequence[str]) -> tuple[str, ...]:
    gone = []
    for name in names:
        try:
            delete_tag(store, name)
        except InvalidInputError as error:  # another process deleted it, or a branch was made from it
            logger.warning("tag cannot go: table=%s tag=%s error=%s", store.name, name, error)
            continue
        gone.append(name)
        logger.info("tag deleted, there are newer ones: table=%s tag=%s", store.name, name)
    return tuple(gone)


def _noted_ms(store: TableStore) -> int | None:
    try:
        return int(json.loads(store.io.read_bytes(_note(store)))["end"])
    except FileNotFoundError:
        return None


def _note(store: TableStore) -> str:
    return f"{store.paths.branch_root}/automatic-tags/last"
