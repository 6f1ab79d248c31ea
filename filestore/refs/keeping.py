"""Tags and savepoints that begin to keep the files of a snapshot, or are refused and let go of them.

Two operations that let go of the same files at once each see the other one's reference still there, and neither deletes
the files. So an operation looks for unused files after its own reference has ended, never only before: of two, the last
one sees that it is alone. An expiry, whose snapshots stay until their files are deleted, looks again for the files that
it had spared: see ``snapshot_expiry``.
"""

import logging
from collections.abc import Callable

from filestore.io.file_io import delete_leftover
from filestore.refs.pending_tags import check_open, check_still_open, new_pending_path, remove_leftover
from filestore.refs.unused_files import delete_unused_of
from filestore.snapshot.snapshot import Snapshot
from filestore.snapshot.snapshot_line import SnapshotLine
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, OutcomeUnknownError
from lsm.undo import undoing

logger = logging.getLogger("fluvial.tags")


def with_pending_tag(
    store: TableStore,
    name: str,
    snapshot: Snapshot,
    create: Callable[[TableStore], None],
    *,
    undo: Callable[[TableStore], None],
    purpose: str = "tagged",
    replaces: bool = False,
) -> None:
    """Create something that keeps the files of a snapshot, while a pending tag keeps them.

    Args:
        store: the table, on the branch of the snapshot.
        name: of the tag.
        snapshot: that is kept.
        create: creates the file that keeps them from now on; an error ends the creation. It gets the table as found
            by its path: afterwards a check that this is the opened table follows, and else the creation is undone.
        undo: deletes that file again.
        purpose: for the message.
        replaces: whether ``create`` replaces a tag; it looks whether the tag is there still.

    Raises:
        ConflictError: the snapshot expired, was rolled back or is of another table by now; or the branch is sealed.
            Nothing was created.
        OutcomeUnknownError: the table was dropped or renamed meanwhile: look under its new name. Or the branch was
            deleted, renamed, replaced as main or sealed meanwhile: look there.
    """
    store = store.as_found
    check_open(store, name, purpose)
    line = store.snapshots.line()
    check_unclaimed(store, name, snapshot, purpose)  # so that an expiry spares nothing for what is refused anyway
    _check_no_fork(store, name, snapshot, line, purpose)
    is_of_history = line.has_state(snapshot) is True
    path = new_pending_path(store, name, replaces=replaces)
    with undoing(lambda: _let_go(store, path, snapshot, is_of_history=is_of_history), unless=OutcomeUnknownError):
        store.io.write_new(path, snapshot.to_json().encode())
        check_unclaimed(store, name, snapshot, purpose)
        create(store)
        is_kept = store.io.exists(path)
        try:
            check_still_open(store, name, purpose)
        except OutcomeUnknownError:
            undo(store)  # where the table was renamed, what was created moved with it
            remove_leftover(store, path)
            raise
        if not is_kept:
            undo(store)
            raise _expired(store, name, snapshot, purpose)
    delete_leftover(store.io, path)


def _let_go(store: TableStore, path: str, snapshot: Snapshot, *, is_of_history: bool) -> None:
    """Delete the pending file of what was refused, and what an expiry spared because of it.

    Only for a snapshot of the history that no rollback removes: the writer of any other may publish its files again.
    """
    remove_leftover(store, path)
    if is_of_history and store.is_as_opened() and not store.snapshots.removed.has(snapshot.identity):
        try:
            delete_unused_of(store, snapshot, source=path)
        except (FluvialError, OSError) as error:  # the caller gets the reason of the refusal; orphan cleaning the files
            logger.warning("files of a refused tag may be left: table=%s path=%s error=%s", store.name, path, error)


def check_unclaimed(store: TableStore, name: str, snapshot: Snapshot, purpose: str) -> None:
    """Check that no expiry or rollback has claimed a snapshot, and that it is the same one. Raises: ConflictError."""
    found = store.snapshots.find_ref(snapshot.ref)
    is_leaving = found is None or store.snapshots.removed.has(snapshot.identity)
    if is_leaving or store.snapshots.claimed_up_to() > snapshot.id:
        raise _expired(store, name, snapshot, purpose)


def _check_no_fork(store: TableStore, name: str, snapshot: Snapshot, line: SnapshotLine, purpose: str) -> None:
    """Check that a snapshot is no fork of the line, which it never becomes later. Raises: ConflictError.

    What a fork holds may be committed again by its writer: so no file of it would have one line of references.
    """
    if line.is_fork(snapshot.id) and store.snapshots.find_committed(snapshot.id) is None:
        raise ConflictError(
            f"the snapshot is not in the history, its writer takes it back or has died, so it was not {purpose}: "
            f"table={store.name} tag={name} snapshot={snapshot.id} fix='take another one; if its writer has died, "
            "run repair on the table, which makes it a tag'"
        )


def _expired(store: TableStore, name: str, snapshot: Snapshot, purpose: str) -> ConflictError:
    return ConflictError(
        f"the snapshot expired while it was {purpose}: table={store.name} tag={name} snapshot={snapshot.id} "
        f"earliest={store.snapshots.earliest_id()} fix='take a newer one; or an older one, if a rollback removes it'"
    )
