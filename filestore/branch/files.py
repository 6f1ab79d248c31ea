"""The files of branches: what only one branch uses, and its own directory."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from filestore.io.file_io import FileIO
from filestore.layout.branch_state import OPERATION_FILE, ORIGIN_FILE
from filestore.layout.paths import TablePaths
from filestore.refs.file_references import FileReferences, MetadataFiles, metadata_files
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, on_branch
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedBranchFiles:
    """Files that go with some roots, because no other root uses them."""

    data: frozenset[str]  # paths of data and changelog files
    metadata: MetadataFiles


def files_only_of(
    store: TableStore, going: set[LiveReference], *, remove: Callable[[], None] = lambda: None
) -> UnusedBranchFiles:
    """What only these roots use.

    Args:
        store: on any branch.
        going: roots that nobody can add to any more. Part of their files may be gone already: their data goes first.
        remove: takes these roots away, as soon as it is known what they use.

    Raises:
        CorruptDataError: another root refers to missing files, so what it uses is not known.
    """
    references = FileReferences(store)
    try:
        data = references.data(going)
    except CorruptDataError:  # an interrupted deletion came as far as the manifests, so the data is gone
        data = set()
    leaves: set[str] = set()
    lists: set[str] = set()
    for root in going:
        there = on_branch(store, root.branch)
        snapshot = root.snapshot or there.snapshots.find(root.snapshot_id)
        if snapshot is not None:
            with_changelog = root.kind in (ReferenceKind.SNAPSHOT, ReferenceKind.CHANGELOG)
            found = metadata_files(store, snapshot, is_partial=True, with_changelog=with_changelog)
            leaves |= found.leaves
            lists |= found.lists | root.files
    known = {*all_references(store)} - going
    used = references.data(known) | references.metadata(known)
    remove()
    newer = {*all_references(store)} - going - known
    used |= references.data(newer) | references.metadata(newer)
    return UnusedBranchFiles(
        data=frozenset(data - used),
        metadata=MetadataFiles(leaves=frozenset(leaves - used), lists=frozenset(lists - used)),
    )


def delete_unused(io: FileIO, unused: UnusedBranchFiles) -> None:
    """Delete files so that an interrupted deletion can be completed: each is found by one that goes later."""
    for paths in (unused.data, unused.metadata.leaves, unused.metadata.lists):
        for path in sorted(paths):
            io.delete(path)


def size_of(io: FileIO, unused: UnusedBranchFiles) -> int:
    """Bytes of the data files, as far as they are there."""
    total = 0
    for path in unused.data:
        with suppress(FileNotFoundError):
            total += io.size_bytes(path)
    return total


def branch_entries(io: FileIO, paths: TablePaths) -> list[str]:
    """Names in the directory of a branch, without half-written files."""
    return [name for name in io.list_names(paths.branch_root) if not name.startswith(".")]


def clear_branch(io: FileIO, paths: TablePaths) -> None:
    """Remove everything in the directory of a branch, but what says that an operation is at work."""
    for name in io.list_names(paths.branch_root):
        path = f"{paths.branch_root}/{name}"
        if io.is_directory(path):
            io.delete_tree(path)
        elif name not in (ORIGIN_FILE, OPERATION_FILE):
            io.delete(path)
    io.delete(f"{paths.branch_root}/{ORIGIN_FILE}")  # which of these branches it was is known to the end


def copy_branch(io: FileIO, source: TablePaths, target: TablePaths) -> None:
    """Copy all files of a branch's directory to another, but what says that an operation is at work.

    What an expiry of the branch has claimed before it gave way, is claimed in the copy too.
    """
    copy_files(io, source.branch_root, target.branch_root, besides=OPERATION_FILE)


def copy_files(io: FileIO, source: str, target: str, *, besides: str | None = None) -> None:
    """Copy the small files in a directory and below; one of them may stay behind, half-written ones do."""
    for path in _tree(io, source):
        inside = path.removeprefix(f"{source}/")
        if inside != besides:
            with suppress(FileNotFoundError):  # a snapshot expires, or a reader forgets its place
                io.replace(f"{target}/{inside}", io.read_bytes(path))


def _tree(io: FileIO, directory: str) -> Iterator[str]:
    for name in io.list_names(directory):
        path = f"{directory}/{name}"
        if io.is_directory(path):
            yield from _tree(io, path)
        elif not name.startswith("."):
            yield path
