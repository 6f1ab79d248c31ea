"""The source of a snapshot's changes for streams: the log, its files, or none.

Fluvial's snapshots record it in their properties. A snapshot without them is by another engine: its changes are
in the log if its offsets have moved on, as Flink's do, else they must be read from files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from itertools import tee
from typing import Final

from filestore.snapshot.snapshot import CHANGES_KEY, CommitKind, Snapshot, with_befores
from lsm.errors import CorruptDataError

UNLOGGED_KEY: Final = "fluvial.unlogged-snapshot"
"""Snapshot property of tables with a log: the newest snapshot up to this one with changes in files; 0: none."""

SKIPPED_KEY: Final = "fluvial.skipped-log"
"""Snapshot property if changes are in files despite records in the log: the records' start offsets by bucket."""

SYNCED_KEY: Final = "fluvial.log-synced"
"""Snapshot property of tables with a log: up to this snapshot the log has all changes, see ``log_gap``; absent: 0."""

_DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


class ChangeSource(Enum):
    """The location of a snapshot's changes."""

    LOG = "log"  # records from the previous snapshot's offsets to this one's
    FILES = "files"  # files of the snapshot, see ``plan_changes``
    NONE = "none"  # no changes for streams


def changes_of(snapshot: Snapshot, *, has_log: bool, before: Snapshot | None = None) -> ChangeSource:
    """The location of a snapshot's changes.

    Args:
        snapshot: a snapshot by any engine.
        has_log: whether the table has a log now; changes of a removed log are read from files.
        before: the snapshot before one of another engine; None: it is the first, or not known.

    Raises:
        CorruptDataError: the property has an unknown value.
    """
    text = snapshot.properties.get(CHANGES_KEY)
    if text is None:
        if has_log and snapshot.has_written_log(before):
            return ChangeSource.LOG
        return ChangeSource.FILES if snapshot.commit_kind in _DATA_KINDS else ChangeSource.NONE
    try:
        changes = ChangeSource(text)
    except ValueError as error:
        raise CorruptDataError(
            f"snapshot property has an unknown value: snapshot={snapshot.id} {CHANGES_KEY}={text}"
        ) from error
    return ChangeSource.FILES if changes is ChangeSource.LOG and not has_log else changes


def unlogged_snapshot(history: Iterable[Snapshot], generation: int = 0) -> int:
    """Id of the newest snapshot with changes in files rather than in the table's log; 0 when there is none.

    Args:
        history: snapshots from newest to oldest without gaps, consumed lazily. If it ends before the
            first snapshot of the table, the expired ones may be unlogged: the result is the newest expired id.
        generation: of the log; changes in a former one count as unlogged.
    """
    oldest = 1
    for snapshot, look_up in with_befores(history):
        before = look_up() if snapshot.is_external else None
        has_log = snapshot.is_of_log(generation, before)
        if changes_of(snapshot, has_log=has_log, before=before) is ChangeSource.FILES:
            return snapshot.id
        known = known_unlogged(snapshot, generation)
        if known is not None:
            return known
        oldest = snapshot.id
    return oldest - 1


def known_unlogged(snapshot: Snapshot, generation: int) -> int | None:
    """What a snapshot says of the newest one up to itself that is not in the log; None: nothing about this log."""
    known = snapshot.properties.get(UNLOGGED_KEY)
    return None if known is None or snapshot.log_generation != generation else int(known)


def synced_snapshot(history: Iterable[Snapshot], generation: int = 0) -> int:
    """Id of the snapshot up to which the log has every change, whether it bypassed the log or not; 0: not known of any.

    Args:
        history: see ``unlogged_snapshot``.
        generation: of the log.
    """
    for snapshot in history:
        if snapshot.schema_id < generation:
            return 0
        if snapshot.log_generation == generation:
            text = snapshot.properties.get(SYNCED_KEY)
            if text is not None:
                return int(text)
            if UNLOGGED_KEY in snapshot.properties:
                return 0  # by a writer with this log: it would have carried it on
    return 0


def default_changes(kind: CommitKind, *, tracks_changes: bool) -> ChangeSource:
    """The default for commits by Fluvial, which have written no log."""
    return ChangeSource.FILES if kind in _DATA_KINDS and tracks_changes else ChangeSource.NONE


def change_properties(
    changes: ChangeSource,
    *,
    snapshot_id: int,
    history: Iterable[Snapshot] | None,
    generation: int = 0,
    log_synced: int | None = None,
) -> Mapping[str, str]:
    """The change properties of a new snapshot.

    Args:
        changes: location of this snapshot's changes.
        snapshot_id: its id.
        history: the snapshots before it, newest first; None for a table without a log.
        generation: of the log.
        log_synced: see ``Committable``.
    """
    properties = {CHANGES_KEY: changes.value}
    if history is None:
        return properties
    for_synced, for_unlogged = tee(history)
    unlogged = snapshot_id
    if log_synced is not None or changes is not ChangeSource.FILES:
        before = unlogged_snapshot(for_unlogged, generation)
        unlogged = snapshot_id if changes is ChangeSource.FILES else before
    if log_synced is not None:  # this snapshot has no changes besides those, and another one may have come between
        synced = snapshot_id if before <= log_synced else log_synced
    else:
        synced = synced_snapshot(for_synced, generation)
    properties[UNLOGGED_KEY] = str(unlogged)
    if synced:
        properties[SYNCED_KEY] = str(synced)
    return properties


def skipped_log_property(starts: Mapping[int, int]) -> Mapping[str, str]:
    """The property of a snapshot with log records that streams must skip.

    Args:
        starts: offset of the first record by bucket.
    """
    return {SKIPPED_KEY: ",".join(f"{bucket}={start}" for bucket, start in sorted(starts.items()))} if starts else {}


def offsets_before(snapshot: Snapshot, offsets: Mapping[int, int]) -> Mapping[int, int]:
    """Next log offsets before a snapshot with changes that are read from its files.

    Args:
        snapshot: a snapshot with changes in files.
        offsets: next log offsets at the snapshot.

    Raises:
        CorruptDataError: the property is malformed.
    """
    text = snapshot.properties.get(SKIPPED_KEY)
    if text is None:
        return offsets
    try:
        starts = {int(bucket): int(start) for bucket, _, start in (each.partition("=") for each in text.split(","))}
    except ValueError as error:
        raise CorruptDataError(
            f"snapshot property cannot be read: snapshot={snapshot.id} {SKIPPED_KEY}={text}"
        ) from error
    return {bucket: min(offset, starts.get(bucket, offset)) for bucket, offset in offsets.items()}


def off_main_log(snapshot: Snapshot, *, bucket_count: int) -> Snapshot:
    """A snapshot of main as the start of a branch with its own log.

    None of it is in that log: its offsets are 0 for every bucket, and its changes are in its files.
    """
    changes = changes_of(snapshot, has_log=False)
    kept = {key: value for key, value in snapshot.properties.items() if key not in (UNLOGGED_KEY, SYNCED_KEY)}
    if changes is ChangeSource.FILES:
        kept |= {CHANGES_KEY: ChangeSource.FILES.value, UNLOGGED_KEY: str(snapshot.id)}
    kept[SYNCED_KEY] = str(snapshot.id)  # who follows that log begins with the rows of this snapshot
    return replace(snapshot, log_offsets=dict.fromkeys(range(bucket_count), 0), properties=kept)
