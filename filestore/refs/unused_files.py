"""Finds and deletes files used only by references that are being deleted: tags and savepoints."""

import logging
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from filestore.refs.deciding import DecidingReferences
from filestore.refs.file_references import FileReferences, FileSize, data_files, metadata_files
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references
from filestore.refs.pending_tags import check_gone, check_open, leaving
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

logger = logging.getLogger("fluvial.tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedFiles:
    """Files to delete."""

    data: tuple[FileSize, ...] = ()
    metadata: frozenset[str] = frozenset()  # paths


class SparedFiles:
    """The files of all other references, for what deletes its own ones only behind their files.

    Who lets go of another reference meanwhile sees these still there, and leaves what both use: see ``released``.
    """

    def __init__(self, store: TableStore, own: Set[LiveReference]) -> None:
        """Look now. Raises: CorruptDataError: another live reference lacks files, so the files it uses are unknown."""
        self._store, self._own = store, own
        self._asked: set[LiveReference] = set()  # every reference for which a file may have been spared
        self.used = FileReferences(store).all_used(self._listed)

    def released(self, files: Set[str]) -> Iterator[str]:
        """Which of the own files were spared for references that have ended since; called behind the own ones' end."""
        while not self._asked <= self._others():
            self._asked.clear()
            before, self.used = self.used, FileReferences(self._store).all_used(self._listed)
            yield from sorted(files & (before - self.used))

    def _listed(self) -> set[LiveReference]:
        found = self._others()
        self._asked |= found
        return found

    def _others(self) -> set[LiveReference]:
        return {*all_references(self._store)} - self._own


def unused_files(
    store: TableStore, snapshot: Snapshot, *, is_deleted: Callable[[LiveReference], bool], source: str
) -> UnusedFiles:
    """The files that are unused once the references to a snapshot of the table's branch are deleted.

    Others commit and expire meanwhile. What they commit shares files only with what was there; but where a reference
    goes before its files are known, a later commit may use them: then all is looked up again.

    Args:
        store: the table, on the branch of the snapshot.
        snapshot: the snapshot that these references keep.
        is_deleted: whether a reference is one of those to delete.
        source: path of the reference to delete, for messages.

    Raises:
        CorruptDataError: another live reference has missing files, so the files it uses are unknown.
    """
    while True:
        left = [reference for reference in all_references(store) if not is_deleted(reference)]
        if any(_is_of(store, reference, snapshot) for reference in left):
            return UnusedFiles()  # the snapshot itself, or another reference to it
        try:
            candidates = data_files(store, snapshot)
            metadata = metadata_files(store, snapshot, with_changelog=False)
        except FileNotFoundError as error:
            missing = error.filename or error
            logger.warning("a tag refers to files that are missing: tag=%s missing=%s", source, missing)
            return UnusedFiles()
        references = FileReferences(store, partitions={file.partition for file in candidates})
        used = references.used_about(DecidingReferences.of(store, left).about_state(snapshot))
        if references.lost <= {*all_references(store)}:
            data = tuple(each for each in candidates if each.path not in used)
            return UnusedFiles(data=data, metadata=metadata.all - used)


def _is_of(store: TableStore, reference: LiveReference, snapshot: Snapshot) -> bool:
    """Whether a reference of the table's branch keeps all files of a snapshot."""
    if (reference.branch, reference.snapshot_id) != (store.paths.branch, snapshot.id):
        return False
    found = store.snapshots.find(snapshot.id) if reference.snapshot is None else reference.snapshot
    return reference.kind is not ReferenceKind.CHANGELOG and found is not None and found.identity == snapshot.identity


def delete_unreferenced(
    store: TableStore,
    name: str,
    snapshot: Snapshot,
    *,
    is_deleted: Callable[[LiveReference], bool],
    source: str,
    remove: Callable[[TableStore], None],
    dry_run: bool,
) -> UnusedFiles:
    """Delete a tag and references that go with it, and the files that nothing else uses.

    The references are deleted first: after an interruption, the remaining files are found as orphans.

    Args:
        store: the table, on the branch of the snapshot.
        name: of the tag.
        snapshot: the snapshot that these references keep.
        is_deleted: whether a reference is one of those to delete.
        source: path of the reference to delete, for messages.
        remove: checks for branches, and deletes the references. It gets the table as found by its path; a check that
            this is the opened table follows.
        dry_run: only find the files.

    Raises:
        ConflictError: the branch is sealed; nothing is deleted.
        OutcomeUnknownError: the table or branch ended meanwhile, or the tag may be there again: see ``check_gone``.
        CorruptDataError: another live reference lacks files, so the files it uses are unknown; nothing is deleted.
    """
    check_open(store, name, "deleted")
    unused = unused_files(store, snapshot, is_deleted=is_deleted, source=source)
    if not dry_run:
        store = store.as_found
        with leaving(store, name, snapshot):
            remove(store)
            check_gone(store, name, "deleted")
        unused = delete_unused_of(store, snapshot, source=source)
    return unused


def delete_unused_of(store: TableStore, snapshot: Snapshot, *, source: str) -> UnusedFiles:
    """Delete the files of a snapshot that nothing uses. Its reference was deleted, so no other can be made from it.

    Raises: see ``unused_files``.
    """
    store = store.as_found
    unused = unused_files(store, snapshot, is_deleted=lambda reference: False, source=source)
    for path in (*(each.path for each in unused.data), *sorted(unused.metadata)):  # metadata refers to data
        store.delete_file(path)
    return unused
