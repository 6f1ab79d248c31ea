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

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from filestore.io.file_io import delete_leftover
from filestore.layout.branch_state import is_gone
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError, UnavailableError

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


def new_pending_path(store: TableStore, name: str, *, replaces: bool) -> str:
    """Path of a new pending file of a tag. ``replaces``: the tag is there, and moves to another snapshot."""
    return pending_path(store.paths, f"{_PREFIX}{name}.{_REPLACING if replaces else ''}{store.names.uuid()}{_SUFFIX}")


def find_pending(store: TableStore, name: str) -> Snapshot | None:
    """The snapshot of a pending tag, by the name of its file; None: it is no longer pending, or is incomplete."""
    path = pending_path(store.paths, name)
    with suppress(FileNotFoundError):
        body = store.io.read_bytes(path)
        return Snapshot.from_json(body, source=path) if body else None
    return None


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
