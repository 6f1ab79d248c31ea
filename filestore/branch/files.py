"""The files of branches: data files used by only one branch, and its directory."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.branch_state import OPERATION_FILE, ORIGIN_FILE
from filestore.layout.paths import TablePaths
from filestore.refs.file_references import FileReferences, MetadataFiles, metadata_files
from filestore.refs.live_references import LiveReference, ReferenceKind, in_order, on_branch
from filestore.refs.unused_files import SparedFiles
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError

_MOST_PASSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedBranchFiles:
    """Files to delete with some live references, because no other reference uses them."""

    data: frozenset[str]  # paths of data and changelog files
    metadata: MetadataFiles
    released: Callable[[], Iterator[str]] = field(repr=False, compare=False)  # see ``SparedFiles``: behind their end


def files_only_of(
    store: TableStore, removed: set[LiveReference], *, remove: Callable[[], None] | None = None
) -> UnusedBranchFiles:
    """The files that only these live references use.

    Args:
        store: table on any branch.
        removed: references that no writer can extend. Some of their data files may be deleted already.
        remove: removes these references, called as soon as their files are known.

    Raises:
        CorruptDataError: another live reference has missing files, so the files it uses are unknown.
    """
    references = FileReferences(store)
    try:
        data = references.data(removed)
    except CorruptDataError:  # an interrupted deletion reached the manifests, so the data is deleted already
        data = set()
    leaves: set[str] = set()
    lists: set[str] = set()
    for reference in in_order(removed):
        there = on_branch(store, reference.branch)
        snapshot = reference.snapshot or there.snapshots.find(reference.snapshot_id)
        if snapshot is not None:
            with_changelog = reference.kind in (ReferenceKind.SNAPSHOT, ReferenceKind.CHANGELOG)
            found = metadata_files(store, snapshot, is_partial=True, with_changelog=with_changelog)
            leaves |= found.leaves
            lists |= found.lists | reference.files
    if remove is not None:
        SparedFiles(store, removed)  # what cannot be read is an error before anything is removed
        remove()
    spared = SparedFiles(store, removed)
    used = spared.used
    return UnusedBranchFiles(
        data=frozenset(data - used),
        metadata=MetadataFiles(leaves=frozenset(leaves - used), lists=frozenset(lists - used)),
        released=lambda: spared.released(data | leaves | lists),
    )


def delete_unused(store: TableStore, unused: UnusedBranchFiles) -> None:
    """Delete files in an order that can be resumed: each file is found through one that is deleted later."""
    for paths in (unused.data, unused.metadata.leaves, unused.metadata.lists):
        for path in sorted(paths):
            store.delete_file(path)


def delete_released(store: TableStore, unused: UnusedBranchFiles) -> None:
    """Delete, behind the end of the references, what was spared for others that have ended meanwhile."""
    for path in unused.released():
        store.delete_file(path)


def size_of(io: FileIO, unused: UnusedBranchFiles) -> int:
    """Total size of the data files that exist."""
    total = 0
    for path in sorted(unused.data):
        with suppress(FileNotFoundError):
            total += io.size_bytes(path)
    return total


def branch_entries(io: FileIO, paths: TablePaths) -> list[str]:
    """Names in the directory of a branch, without temporary files."""
    return [name for name in io.list_names(paths.branch_root) if not name.startswith(".")]


def clear_branch(io: FileIO, paths: TablePaths) -> None:
    """Delete everything in the directory of a branch except the file of the operation in progress."""
    for _ in range(_MOST_PASSES):
        names = [name for name in io.list_names(paths.branch_root) if name not in (ORIGIN_FILE, OPERATION_FILE)]
        if not names:
            break  # a concurrent expiry may have added its claim behind the first listing
        for name in names:
            path = f"{paths.branch_root}/{name}"
            if io.is_directory(path):
                io.delete_tree(path)
            else:
                io.delete(path)
    io.delete(f"{paths.branch_root}/{ORIGIN_FILE}")  # last, so that the origin identifies the branch until the end


def copy_files(io: FileIO, source: str, target: str, *, besides: str | None = None) -> None:
    """Copy the small files of a directory tree, except the one at `besides` and temporary files."""
    for path in _tree(io, source):
        inside = path.removeprefix(f"{source}/")
        if inside != besides:
            with suppress(FileNotFoundError):  # expired or deleted concurrently
                io.replace(f"{target}/{inside}", io.read_bytes(path))


def _tree(io: FileIO, directory: str) -> Iterator[str]:
    for name in io.list_names(directory):
        path = f"{directory}/{name}"
        if io.is_directory(path):
            yield from _tree(io, path)
        elif not name.startswith("."):
            yield path
