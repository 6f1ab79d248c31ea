"""Tags, savepoints and snapshots that a process created when what they name had ended, and died before it saw that.

Who creates one looks behind its creation whether its snapshot, branch and table are still there, and takes it back
otherwise. One that dies between the two, or whose request arrives after its sender gave up, leaves a name
without files, which nothing else needs.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from filestore.layout.branch_state import read_work
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.file_references import data_files, metadata_files
from filestore.refs.live_references import FORK_TAG_PREFIX, branch_names, on_branch
from filestore.refs.savepoint_files import find_savepoint, savepoint_ids
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError


@dataclass(frozen=True, slots=True)
class LateReference:
    """A reference that keeps nothing."""

    branch: str
    kind: str  # tag, savepoint, or snapshot of a branch that is not there
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.branch == MAIN_BRANCH else f"{self.kind} {self.name} of {self.branch}"


def late_references(store: TableStore) -> Iterator[LateReference]:
    """The tags and savepoints of a branch that are of a former table, or of what a rollback removed.

    Those that cannot be decoded are not among them: ``verify`` names them.
    """
    for found, snapshot in _named(store):
        if not found.name.startswith(FORK_TAG_PREFIX) and _has_ended(store, snapshot):
            yield found


def references_of_gone_branches(store: TableStore) -> Iterator[LateReference]:
    """References left in directories of deleted branches, also of a former main branch, whose files are missing."""
    for branch in branch_names(store):
        there = on_branch(store, branch)
        if there.schemas.ids() or (branch != MAIN_BRANCH and read_work(store.io, there.paths) is not None):
            continue  # it is there, or about to be
        for snapshot_id in there.snapshots.ids():
            snapshot = there.snapshots.find(snapshot_id)
            if snapshot is not None and not has_all_files(store, snapshot):
                yield LateReference(branch, "snapshot", str(snapshot_id), there.paths.snapshot(snapshot_id))
        for found, snapshot in _named(there):
            if not has_all_files(store, snapshot):
                yield found


def remove_late_reference(store: TableStore, late: LateReference) -> None:
    """Delete its file, and directories that are empty then. Raises: UnavailableError."""
    paths = store.paths.with_branch(late.branch)
    store.io.delete(late.path)
    for directory in (late.path.rpartition("/")[0], paths.branch_root):
        if directory == store.paths.root or not store.io.delete_empty_directory(directory):
            break


def has_all_files(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether all files of a snapshot are there."""
    try:
        paths = metadata_files(store, snapshot, with_changelog=False).all | {
            each.path for each in data_files(store, snapshot)
        }
    except (FileNotFoundError, FluvialError):
        return False
    return all(store.io.exists(path) for path in sorted(paths))


def _named(store: TableStore) -> Iterator[tuple[LateReference, Snapshot]]:
    """The tags and savepoints of a branch, with their snapshots."""
    branch = store.paths.branch
    for name in store.snapshots.tag_names():
        with suppress(CorruptDataError):
            tag = store.snapshots.find_tag(name)
            if tag is not None:
                yield LateReference(branch, "tag", name, store.paths.tag(name)), tag
    for savepoint_id in savepoint_ids(store):
        with suppress(CorruptDataError):
            saved = find_savepoint(store, savepoint_id)
            if saved is not None:
                path = store.paths.savepoint(savepoint_id)
                yield LateReference(branch, "savepoint", str(savepoint_id), path), saved.snapshot


def _has_ended(store: TableStore, snapshot: Snapshot) -> bool:
    if not store.snapshots.removed.has(snapshot.identity) and not store.snapshots.is_of_other_table(snapshot):
        return False
    return not has_all_files(store, snapshot)
