"""The changes that a table's log lacks: of commits that bypassed it, as overwrites and commits of other engines.

Streams read these changes from files. A consumer of the topic alone gets them if a later record of the log has them:
with ``log.overwrite=changes`` a writer adds the difference to the log, and a snapshot of its own, without files, says
up to which snapshot the log is complete, and which of its records streams skip.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from filestore.changelog.snapshot_changes import ChangeSplit, plan_changes, plan_diff
from filestore.snapshot.change_tracking import (
    SKIPPED_KEY,
    ChangeSource,
    changes_of,
    known_unlogged,
    synced_snapshot,
    unlogged_snapshot,
)
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

SYNC_USER = "fluvial.sync."
"""Start of the commit user of a snapshot that adds nothing but log records of what bypassed the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGap:
    """Commits up to a snapshot are in the log, some after it are not."""

    newest_id: int  # the newest commit that is not in the log
    synced_id: int  # every change up to this snapshot is in the log; 0: up to the first one that is not

    def is_noted(self, store: TableStore, snapshot: Snapshot) -> bool:
        """Whether a batch was logged behind the gap, whose writer has noted it in the log; reads some snapshots."""
        for each in store.snapshots.back_from(snapshot):
            if each.id <= self.newest_id:
                return False
            if location(store, each) is ChangeSource.LOG:
                return True
        return True


def log_gap(store: TableStore, snapshot: Snapshot | None) -> LogGap | None:
    """The changes that a table's log lacks at a snapshot; None: none, or there is no log."""
    if snapshot is None or not store.has_log:
        return None
    generation = store.options.log_generation
    newest_id = unlogged_snapshot(store.snapshots.back_from(snapshot), generation)
    synced_id = synced_snapshot(store.snapshots.back_from(snapshot), generation)
    if newest_id <= synced_id:
        return None
    if generation and not synced_id:  # what was there before this log is no gap of it
        found = store.snapshots.find(newest_id)
        if found is None or found.schema_id < generation:
            return None
    return LogGap(newest_id=newest_id, synced_id=synced_id)


def missing_changes(store: TableStore, gap: LogGap, target: Snapshot) -> tuple[ChangeSplit, ...] | None:
    """The changes that bring a log to a snapshot, in the order in which they are to be logged.

    Of a table with a key they lead from each state before such commits to the snapshot, because later batches are in
    the log already: a key may occur several times, each time with what becomes of it. Of one without they are the
    changes of each commit.

    Args:
        store: opened with the schema to read rows with.
        gap: of the snapshot or a later one.
        target: the snapshot.

    Returns:
        Splits; those of one bucket in order. None: they are not known, because snapshots have expired, or because a
        batch of an exact log was overtaken by a commit that it had not looked up.
    """
    unlogged = _unlogged(store, gap, target)
    if unlogged is None:
        return None
    splits: list[ChangeSplit] = []
    if store.has_key and not store.counts_rows:
        for first in _first_of_each_run(store, unlogged):
            before = _before(store, first)
            if before is None and first.id > FIRST_SNAPSHOT_ID:
                return None
            splits += plan_diff(store, before, target)
        return tuple(splits)
    for each in unlogged:
        try:
            splits += plan_changes(store, _before(store, each), each)
        except InvalidInputError:  # it needs the snapshot before
            return None
    return tuple(splits)


def is_sync(snapshot: Snapshot) -> bool:
    """Whether a snapshot adds nothing but log records of what bypassed the log."""
    return is_sync_user(snapshot.commit_user)


def is_sync_user(commit_user: str) -> bool:
    """Whether a commit user, of a snapshot or of a marker in the log, is of such a commit."""
    return commit_user.startswith(SYNC_USER)


def location(store: TableStore, snapshot: Snapshot) -> ChangeSource:
    """Location of a snapshot's changes; the log counts only if it is the table's present one."""
    before = _before(store, snapshot) if snapshot.is_external else None
    has_log = snapshot.is_of_log(store.options.log_generation, before)
    return changes_of(snapshot, has_log=has_log, before=before)


def _unlogged(store: TableStore, gap: LogGap, target: Snapshot) -> list[Snapshot] | None:
    """The commits that are not in the log, oldest first; None: not known."""
    found: list[Snapshot] = []
    for each in _candidates(store, gap, target):
        if each is None:
            return None
        if location(store, each) is not ChangeSource.FILES or is_sync(each):
            continue
        if SKIPPED_KEY in each.properties:
            return None  # the log has other rows of this batch than the table
        found.append(each)
    return found[::-1]


def _candidates(store: TableStore, gap: LogGap, target: Snapshot) -> Iterator[Snapshot | None]:
    """Snapshots that may not be in the log, newest first; None at last if they have expired."""
    generation = store.options.log_generation
    at: Snapshot | None = target
    while at is not None and at.schema_id >= generation:
        yield at
        is_in_files = location(store, at) is ChangeSource.FILES
        known = None if is_in_files else known_unlogged(at, generation)
        next_id = at.id - 1 if known is None else known
        if next_id <= gap.synced_id:
            return
        at = store.snapshots.find(next_id)
        if at is None:
            yield None


def _first_of_each_run(store: TableStore, unlogged: list[Snapshot]) -> Iterator[Snapshot]:
    """Of commits, oldest first, the first one, and those that have logged batches between them and the one before."""
    for index, each in enumerate(unlogged):
        if index == 0 or _is_logged_between(store, unlogged[index - 1], each):
            yield each


def _is_logged_between(store: TableStore, earlier: Snapshot, later: Snapshot) -> bool:
    for each in store.snapshots.back_from(_before(store, later)):
        if each.id <= earlier.id:
            return False
        if location(store, each) is ChangeSource.LOG:
            return True
    return True  # expired


def _before(store: TableStore, snapshot: Snapshot) -> Snapshot | None:
    return store.snapshots.find(snapshot.id - 1) if snapshot.id > FIRST_SNAPSHOT_ID else None
