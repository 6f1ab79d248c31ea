"""How the changes of a snapshot reach those who follow a table: by the log, from files, or not at all.

A snapshot says it in its properties, which other engines keep nowhere: so a snapshot that does not say it is another
engine's, and what it changed is in its files only.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from filestore.snapshots import CommitKind, Snapshot

CHANGES_KEY: Final = "fluvial.changes"
UNLOGGED_KEY: Final = "fluvial.unlogged-snapshot"
"""Id of the newest snapshot, up to the one that says it, whose changes are not in the log; 0: all of them are."""


class Changes(StrEnum):
    """Where the changes of one snapshot are."""

    LOG = "log"  # between the log offsets of the snapshot before and its own
    FILES = "files"  # in its files
    NONE = "none"  # nowhere: the rows are the same, or nobody is to be told


def changes_of(snapshot: Snapshot, *, has_log: bool) -> Changes:
    """Where the changes of a snapshot are.

    Args:
        snapshot: of any engine.
        has_log: whether the table has one now.
    """
    said = snapshot.properties.get(CHANGES_KEY)
    if said == Changes.NONE.value:
        return Changes.NONE
    if said == Changes.LOG.value and has_log:
        return Changes.LOG
    rewrites = snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE)
    return Changes.NONE if rewrites else Changes.FILES


def tracking_properties(
    latest: Snapshot | None, *, kind: CommitKind, changes: Changes, find: Callable[[int], Snapshot | None]
) -> Mapping[str, str]:
    """What a new snapshot of a table with a log says about its own changes and those before it.

    Args:
        latest: the snapshot that it follows; None: it is the first.
        kind: of the new commit.
        changes: of the new commit.
        find: a snapshot by its id, None when it expired.
    """
    new_id = 1 if latest is None else latest.id + 1
    own = new_id if changes is Changes.FILES else 0
    told = {} if kind in (CommitKind.COMPACT, CommitKind.ANALYZE) else {CHANGES_KEY: changes.value}
    return {**told, UNLOGGED_KEY: str(own or newest_unlogged(latest, find))}


def newest_unlogged(latest: Snapshot | None, find: Callable[[int], Snapshot | None]) -> int:
    """Id of the newest snapshot whose changes are not in the log, up to `latest`; 0: there is none.

    Snapshots of other engines do not say it; they are walked back over, to one that does or to the oldest that is left.
    """
    snapshot = latest
    while snapshot is not None:
        if changes_of(snapshot, has_log=True) is Changes.FILES:
            return snapshot.id
        known = snapshot.properties.get(UNLOGGED_KEY)
        if known is not None:
            return int(known)
        snapshot = find(snapshot.id - 1) if snapshot.id > 1 else None
    return 0
