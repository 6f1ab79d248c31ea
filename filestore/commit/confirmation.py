"""The second half of a publication: after the exclusive creation of a snapshot, and before it is acknowledged.

``confirm`` takes back what is not part of the history after all. Only its writer takes a snapshot back: as long as the
file exists, no other writer can use its number, so a snapshot of another writer is never deleted.
"""

from collections.abc import Sequence
from typing import Final

from filestore.commit.committable import Committable
from filestore.commit.snapshot_writer import check_opened_schema
from filestore.commit.succession import Parent, Standing, remove_strays, standing, surroundings
from filestore.layout.branch_state import is_gone
from filestore.manifest.commit_message import CommitMessage
from filestore.snapshot.snapshot import EMPTY_TABLE, FIRST_SNAPSHOT_ID, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, OutcomeUnknownError
from lsm.retry import LostRaceError

_LATE_MS: Final = 1_800_000  # half of the least age of a file that orphan cleaning deletes


class GoneError(OutcomeUnknownError):
    """The published snapshot may have been removed, or be in a table or branch of another name."""


def confirm(store: TableStore, snapshot: Snapshot, parent: SnapshotRef, *, commit_user: str) -> None:
    """Accept a created snapshot and move the hints, or take the snapshot back.

    Args:
        store: table, on its branch.
        snapshot: created by this process.
        parent: the snapshot that it follows; EMPTY_TABLE: none.
        commit_user: for messages.

    Raises:
        LostRaceError: the history that the snapshot continues has expired, or is being rolled back; the snapshot was
            taken back, and nothing is visible.
        ConflictError: the history was rolled back; the snapshot was taken back, and its files must not be committed
            again.
        GoneError: the snapshot was visible, and was removed with its branch or table, or by a rollback.
        OutcomeUnknownError, UnavailableError: the snapshot may be visible.
    """
    store = store.as_found
    snapshots = store.snapshots
    if is_gone(store.io, store.paths, schema_id=snapshot.schema_id):
        # a rename of the branch may have copied the snapshot; only this one is deleted
        store.delete_snapshot(snapshot)
        raise GoneError(
            f"the branch was deleted, renamed, replaced as main, or is being taken back: table={store.name} "
            f"branch={store.paths.branch} snapshot={snapshot.id} user={commit_user} "
            "fix=open the table again and look whether it has this commit; verify names what is at work on it"
        )
    found = surroundings(store, snapshot, parent)
    if standing(found) is Standing.PUBLISHED:
        snapshots.raise_latest_hint(snapshot.id)
        if snapshot.id == FIRST_SNAPSHOT_ID and snapshots.claimed_up_to() == FIRST_SNAPSHOT_ID:
            snapshots.write_earliest_hint(snapshot.id)
        if snapshots.find_ref(snapshot.ref) is not None:
            return
        snapshots.repair_latest_hint()  # this process was paused, and the hint may be too low by now
        found = surroundings(store, snapshot, parent, with_own=True)
    match standing(found):
        case Standing.REMOVED:
            raise _gone(store, snapshot, commit_user)
        case Standing.FORKED if found.parent is Parent.LEAVING and found.is_same_table:
            if take_back_unless_followed(store, snapshot):
                check_not_removed(store, snapshot, commit_user=commit_user)  # else a rollback finds it gone, and ends
                raise LostRaceError(
                    f"a rollback removes the snapshots before this commit, so it was taken back: table={store.name} "
                    f"planned_on={parent.id} user={commit_user}: commit again; if the rollback has died, which verify "
                    "says, run repair on the table"
                )
            snapshots.raise_latest_hint(snapshot.id)  # the rollback was refused, and another commit follows
        case Standing.FORKED if not found.is_same_table and (
            found.is_followed or not take_back_unless_followed(store, snapshot)
        ):
            raise GoneError(
                f"the table was made again while this process was paused, and another commit follows the one that came "
                f"into it: table={store.name} snapshot={snapshot.id} user={commit_user} "
                "fix=open the table again and look; roll it back if this commit is not wanted there"
            )
        case Standing.FORKED:
            if not take_back_unless_followed(store, snapshot):
                snapshots.raise_latest_hint(snapshot.id)  # another commit follows since the look around
                return
            check_not_removed(store, snapshot, commit_user=commit_user)
            text = (
                f"snapshots were removed while this process was paused, so its commit was taken back: "
                f"table={store.name} planned_on={parent.id} user={commit_user}"
            )
            if found.has_older:  # a rollback may have seen the snapshot, and delete its files: they are not used again
                raise ConflictError(f"{text}: write the rows again")
            raise LostRaceError(f"{text}: commit again")


def check_files(store: TableStore, snapshot: Snapshot, messages: Sequence[CommitMessage]) -> None:
    """Check files that were written long before their commit: orphan cleaning may have deleted them.

    Raises:
        ConflictError: a file is missing; the snapshot was taken back.
        CorruptDataError: a file is missing, and other commits follow the snapshot, so it stays.
    """
    now_ms = store.clock.local_ms()
    for message in messages:
        inputs = {file.file_name for file in message.compact_before}
        for file in (*message.new_files, *message.compact_after, *message.changelog_files):
            if file.file_name in inputs:
                continue  # moved to another level
            path = store.file_path(message.partition, message.bucket, file)
            is_late = file.creation_time_ms is not None and now_ms - file.creation_time_ms > _LATE_MS
            if is_late and not store.io.exists(path):
                text = f"a file of the commit was removed while this process was paused: table={store.name} file={path}"
                if take_back_unless_followed(store, snapshot):
                    raise ConflictError(f"{text} cause='it was taken for an orphan': write the rows again")
                raise CorruptDataError(
                    f"{text} snapshot={snapshot.id} cause='it was taken for an orphan, and other commits follow' "
                    "fix='run remove_unexisting_files, then write the rows again'"
                )


def check_rescaled(store: TableStore, snapshot: Snapshot, committable: Committable) -> None:
    """A rescaling sets the bucket count, then looks at the files; an overwrite publishes, then looks at the count.

    A snapshot that others follow stays: most likely the rescaling follows it, and has rewritten its files.

    Raises: ConflictError; the snapshot was taken back.
    """
    newest = store.schemas.latest()
    if newest is None or newest.id == snapshot.schema_id:
        return
    try:
        check_opened_schema(store, newest, committable)
    except ConflictError:
        if take_back_unless_followed(store, snapshot):
            raise


def check_not_removed(store: TableStore, snapshot: Snapshot, *, commit_user: str) -> None:
    """Check that a missing snapshot was never created; if it was, its files must not be published again.

    Another snapshot under its number does not prove that: a rollback may have freed the number.

    Raises: GoneError.
    """
    if store.snapshots.removed.has(snapshot.identity):
        raise _gone(store, snapshot, commit_user)


def check_no_fork(store: TableStore, snapshot_id: int, parent: SnapshotRef) -> None:
    """After a lost race: another commit won it, or a fork has the number, whose writer will take it back.

    Raises: LostRaceError.
    """
    if remove_strays(store, [snapshot_id]):
        raise LostRaceError(
            f"a handle of a former table of this name had taken the number: table={store.name} "
            f"snapshot={snapshot_id}: commit again"
        )
    found = store.snapshots.find(snapshot_id)
    if found is not None and found.parent not in (None, parent.identity) and store.snapshots.latest_ref() == parent:
        raise LostRaceError(
            f"a snapshot that does not continue the history has the next number, and its writer has not taken it back "
            f"yet: table={store.name} snapshot={snapshot_id} fix=commit again; if its writer has died, run repair on "
            "the table"
        )


def _gone(store: TableStore, snapshot: Snapshot, commit_user: str) -> GoneError:
    return GoneError(
        f"the commit was visible, and was removed by a rollback, a drop or a rename of the table: "
        f"table={store.name} snapshot={snapshot.id} user={commit_user} "
        "fix=open the table again and look whether it has this commit"
    )


def take_back_unless_followed(store: TableStore, snapshot: Snapshot) -> bool:
    """Delete a snapshot of this process from the table's history; False: another commit follows it, so it stays.

    The history is read again after the deletion, so a commit in between is seen, as in a rollback. A snapshot with the
    next number that was built on another one does not follow: this snapshot's number was reused, or it is a fork.
    """
    store = store.as_found
    if _is_followed(store, snapshot):
        return False
    if not store.delete_snapshot(snapshot):  # it went since the look: with a rollback, or it and its followers expired
        return standing(surroundings(store, snapshot, EMPTY_TABLE, with_own=True)) is not Standing.PUBLISHED
    if not _is_followed(store, snapshot):
        return True
    # refused: another commit has the number, so what follows this one is taken back for its parent, as this one is
    return not store.io.create_exclusive(store.paths.snapshot(snapshot.id), snapshot.to_json().encode())


def _is_followed(store: TableStore, snapshot: Snapshot) -> bool:
    following = store.snapshots.find(snapshot.id + 1)
    return following is not None and store.snapshots.leads(following, snapshot)
