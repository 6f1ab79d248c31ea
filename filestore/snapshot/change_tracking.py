"""How the changes of a snapshot reach a stream: through the log, from files, or not at all.

Every snapshot of ours says it in its properties. One without them is another engine's: what it added or overwrote is
not in the log and has to be read from files. FL-29, FL-30, FL-33, FL-34.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from filestore.snapshot.snapshot import CommitKind, Snapshot
from lsm.errors import CorruptDataError

CHANGES_KEY: Final = "fluvial.changes"
"""Property of a snapshot: log, files or none."""
UNLOGGED_KEY: Final = "fluvial.unlogged-snapshot"
"""Property of a snapshot of a table with a log: the newest snapshot up to it whose changes are files; 0: none."""

SKIPPED_KEY: Final = "fluvial.skipped-log"
"""Property of a snapshot whose changes are files although it has records in the log: where these begin, by bucket."""

_DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


class ChangeSource(Enum):
    """Where the changes of a snapshot are."""

    LOG = "log"  # records from the previous snapshot's offsets to this one's
    FILES = "files"  # of the snapshot, see ``plan_changes``
    NONE = "none"  # there is nothing to deliver


def changes_of(snapshot: Snapshot, *, has_log: bool) -> ChangeSource:
    """Where the changes of a snapshot are.

    Args:
        snapshot: of any engine.
        has_log: whether the table has a log now; changes of a log that is gone are in the files as well.

    Raises:
        CorruptDataError: the property has a value that nobody writes.
    """
    text = snapshot.properties.get(CHANGES_KEY)
    if text is None:
        return ChangeSource.FILES if snapshot.commit_kind in _DATA_KINDS else ChangeSource.NONE
    try:
        changes = ChangeSource(text)
    except ValueError as error:
        raise CorruptDataError(
            f"snapshot property has an unknown value: snapshot={snapshot.id} {CHANGES_KEY}={text}"
        ) from error
    return ChangeSource.FILES if changes is ChangeSource.LOG and not has_log else changes


def is_external(snapshot: Snapshot) -> bool:
    """Whether another engine committed this snapshot (or a version of ours that did not say where changes are)."""
    return CHANGES_KEY not in snapshot.properties


def unlogged_snapshot(history: Iterable[Snapshot]) -> int:
    """Id of the newest snapshot of a table with a log whose changes are not in the log; 0 when there is none.

    Args:
        history: snapshots from newest to oldest without a gap, read no further than needed. When it ends before the
            first snapshot of the table, what has expired may have been unlogged: the newest expired id is the answer.
    """
    oldest = 1
    for snapshot in history:
        if changes_of(snapshot, has_log=True) is ChangeSource.FILES:
            return snapshot.id
        known = snapshot.properties.get(UNLOGGED_KEY)
        if known is not None:
            return int(known)
        oldest = snapshot.id
    return oldest - 1


def default_changes(kind: CommitKind, *, tracks_changes: bool) -> ChangeSource:
    """Where the changes of a commit of ours are that did not say so: it has written no log."""
    return ChangeSource.FILES if kind in _DATA_KINDS and tracks_changes else ChangeSource.NONE


def change_properties(
    changes: ChangeSource, *, snapshot_id: int, history: Iterable[Snapshot] | None
) -> Mapping[str, str]:
    """The properties that a snapshot of ours gets.

    Args:
        changes: of this snapshot.
        snapshot_id: its id.
        history: the snapshots before it, newest first; None for a table without a log.
    """
    properties = {CHANGES_KEY: changes.value}
    if history is not None:
        unlogged = snapshot_id if changes is ChangeSource.FILES else unlogged_snapshot(history)
        properties[UNLOGGED_KEY] = str(unlogged)
    return properties


def skipping(starts: Mapping[int, int]) -> Mapping[str, str]:
    """The property of a snapshot whose records streams skip.

    Args:
        starts: the offset of the first one, by bucket.
    """
    return {SKIPPED_KEY: ",".join(f"{bucket}={start}" for bucket, start in sorted(starts.items()))} if starts else {}


def offsets_before(snapshot: Snapshot, offsets: Mapping[int, int]) -> Mapping[int, int]:
    """Next offsets of the log before the changes of a snapshot that are read from its files.

    Args:
        snapshot: whose changes are files.
        offsets: those at it.

    Raises:
        CorruptDataError: the property is not what we write.
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
    """A snapshot of main as the beginning of a branch that has a log of its own.

    Nothing of it is in that log: it stands before the first record of every bucket, and its changes are in its files.
    """
    changes = changes_of(snapshot, has_log=False)
    kept = {key: value for key, value in snapshot.properties.items() if key != UNLOGGED_KEY}
    if changes is ChangeSource.FILES:
        kept |= {CHANGES_KEY: ChangeSource.FILES.value, UNLOGGED_KEY: str(snapshot.id)}
    return replace(snapshot, log_offsets=dict.fromkeys(range(bucket_count), 0), properties=kept)
