"""Tags that are being created or removed, beside others that end their snapshot, their branch or their table.

A tag that is being created keeps the files of its snapshot before it has its name.

A tag is created in three steps: a pending file, which live references include; the check that no expiry had claimed the
snapshot before; the tag's own file. So a name exists only with its files, wherever the creating process dies. What it
leaves is a hidden file, which keeps files until orphan cleaning finds it old enough, and which nothing waits for: when
its own files are missing, an expiry had claimed them before, and the check fails.

What ends a branch, or replaces main, seals it before it looks for tags and savepoints; what creates or removes one
looks for a seal after it did. So one of the two sees the other. Likewise what replaces a tag looks for it behind its
pending file, which says so, and what takes a tag's name away looks for such files after it did. What takes it away says
so before, by a pending file too, and then looks for branches; what creates a branch looks for such files at its end.

A rollback to a snapshot that only a tag keeps holds that one by a pending file of its own until it ends, which no
cleaning deletes: whatever becomes of the tag behind it, the files stay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from filestore.io.file_io import delete_leftover
from filestore.layout.branch_state import is_gone
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError, UnavailableError
from lsm.undo import undoing

_PREFIX: Final = ".pending-"  # hidden from engines that parse every name of the directory
_SUFFIX: Final = ".tmp"  # what orphan cleaning deletes when it is old
_HELD: Final = ".held"  # instead: of a rollback that has not ended
_REPLACING: Final = "replacing-"  # an existing tag, not a new one
_LEAVING: Final = "leaving-"  # of a tag that is deleted or renamed


def pending_path(paths: TablePaths, name: str) -> str:
    """Path of a pending tag, by the name of its file."""
    return f"{paths.tag_dir}/{name}"


def pending_tags(store: TableStore) -> Iterator[tuple[str, str]]:
    """File names of the pending tags of the table's branch, with the tags that they become."""
    for name in store.io.list_names(store.paths.tag_dir):
        if name.startswith(_PREFIX) and name.endswith((_SUFFIX, _HELD)):
            yield name, _parts(name)[0]


def held_path(paths: TablePaths, name: str, snapshot: Snapshot) -> str:
    """Path of the file by which a rollback holds the snapshot of a tag."""
    return pending_path(paths, f"{_PREFIX}{name}.{snapshot.identity}{_HELD}")


def held_snapshots(store: TableStore) -> Iterator[tuple[str, Snapshot]]:
    """The snapshots that rollbacks of the table's branch hold, by path."""
    for name, _ in pending_tags(store):
        if name.endswith(_HELD) and (snapshot := find_pending(store, name)) is not None:
            yield pending_path(store.paths, name), snapshot


def find_pending(store: TableStore, name: str) -> Snapshot | None:
    """The snapshot of a pending tag, by the name of its file; None: it is no longer pending, or is incomplete."""
    path = pending_path(store.paths, name)
    with suppress(FileNotFoundError):
        body = store.io.read_bytes(path)
        return Snapshot.from_json(body, source=path) if body else None
    return None


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
    file_name = f"{_PREFIX}{name}.{_REPLACING if replaces else ''}{store.names.uuid()}{_SUFFIX}"
    path = pending_path(store.paths, file_name)
    with undoing(lambda: remove_leftover(store, path), unless=OutcomeUnknownError):
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


@contextmanager
def leaving(store: TableStore, name: str, snapshot: Snapshot) -> Iterator[None]:
    """Delete or rename a tag inside, behind a look for branches: one that is created from it meanwhile is refused."""
    path = pending_path(store.paths, f"{_PREFIX}{name}.{_LEAVING}{store.names.uuid()}{_SUFFIX}")
    store.io.write_new(path, snapshot.to_json().encode())
    try:
        yield
    finally:
        remove_leftover(store, path)


def is_leaving(store: TableStore, name: str) -> bool:
    """Whether a tag is being deleted, renamed or moved, or who did so has died."""
    named = (_parts(file_name)[1] for file_name, tag in pending_tags(store) if tag == name)
    return any(unique.startswith((_LEAVING, _REPLACING)) for unique in named)


def check_unclaimed(store: TableStore, name: str, snapshot: Snapshot, purpose: str) -> None:
    """Check that no expiry or rollback has claimed a snapshot, that it is the same one, and no fork.

    What a fork holds may be committed again by its writer: so no file of it would have one line of references.

    Raises: ConflictError.
    """
    found = store.snapshots.find_ref(snapshot.ref)
    is_leaving = found is None or store.snapshots.removed.has(snapshot.identity)
    if is_leaving or store.snapshots.claimed_up_to() > snapshot.id:
        raise _expired(store, name, snapshot, purpose)
    if store.snapshots.line().is_fork(snapshot.id) and store.snapshots.find_committed(snapshot.id) is None:
        raise ConflictError(
            f"the snapshot is not in the history, its writer takes it back or has died, so it was not {purpose}: "
            f"table={store.name} tag={name} snapshot={snapshot.id} fix='take another one; if its writer has died, "
            "run repair on the table, which makes it a tag'"
        )


def check_open(store: TableStore, name: str, purpose: str) -> None:
    """Check before a tag or savepoint is created or removed that its branch is not sealed.

    Args:
        store: the table, on the branch.
        name: of the tag.
        purpose: for the message.

    Raises: ConflictError.
    """
    if is_gone(store.io, store.paths, schema_id=store.schema.id):
        raise ConflictError(
            f"the branch was deleted, renamed, replaced as main, or is sealed for that, so nothing was {purpose}: "
            f"table={store.name} branch={store.paths.branch} tag={name} fix='open the table again; if an operation on "
            "it was interrupted, which verify names, run repair'"
        )


def check_still_open(store: TableStore, name: str, purpose: str) -> None:
    """Check after a tag or savepoint was created or removed that its branch and table are those that were opened.

    Raises: OutcomeUnknownError.
    """
    facts = f"table={store.name} branch={store.paths.branch} tag={name}"
    if is_gone(store.io, store.paths, schema_id=store.schema.id):
        raise OutcomeUnknownError(
            f"the branch was deleted, renamed, replaced as main or sealed while a tag was {purpose}: {facts} "
            "fix='open the table again and look'"
        )
    if not store.is_as_opened():
        raise OutcomeUnknownError(
            f"table was dropped or renamed while a tag was {purpose}: {facts} "
            "fix='open it again under its new name and look'"
        )


def check_gone(store: TableStore, name: str, purpose: str) -> None:
    """``check_still_open``, and that no process replaces the tag that went, which saw it before and brings it back.

    Raises: OutcomeUnknownError, perhaps for a replacement that died.
    """
    check_still_open(store, name, purpose)
    named = (_parts(file_name) for file_name, tag in pending_tags(store) if tag == name)
    if any(unique.startswith(_REPLACING) for _, unique in named):
        raise OutcomeUnknownError(
            f"another process replaces the tag that was {purpose}, or died doing so, and it may be there again: "
            f"table={store.name} branch={store.paths.branch} tag={name} fix='look, and do it again if it is there'"
        )


def remove_foreign(store: TableStore, name: str) -> bool:
    """Delete a tag of a former table of this name, whose creator died before it took it back; whether there was one."""
    found = store.snapshots.find_tag(name)
    if found is None or not store.snapshots.is_of_other_table(found) or not store.is_as_opened():
        return False
    path = store.paths.tag(name)
    with suppress(FileNotFoundError):
        store.delete_own(path, store.io.read_bytes(path))
    return True


def remove_leftover(store: TableStore, path: str) -> None:
    """Delete a file, and the directories that it made where the table was dropped or renamed."""
    delete_leftover(store.io, path)
    with suppress(UnavailableError):
        for directory in (path.rpartition("/")[0], store.paths.branch_root):
            if not store.io.delete_empty_directory(directory):
                break


def _parts(file_name: str) -> tuple[str, str]:
    """The tag that a pending one becomes, and the rest of its name."""
    name, _, unique = file_name.removeprefix(_PREFIX).removesuffix(_SUFFIX).removesuffix(_HELD).rpartition(".")
    return name, unique


def _expired(store: TableStore, name: str, snapshot: Snapshot, purpose: str) -> ConflictError:
    return ConflictError(
        f"the snapshot expired while it was {purpose}: table={store.name} tag={name} snapshot={snapshot.id} "
        f"earliest={store.snapshots.earliest_id()} fix='take a newer one; or an older one, if a rollback removes it'"
    )
