"""Finds and deletes files used only by references that are being deleted: tags and savepoints."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from filestore.refs.file_references import FileReferences, FileSize, data_files, metadata_files
from filestore.refs.live_references import DecidingReferences, LiveReference, all_references
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

logger = logging.getLogger("fluvial.tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedFiles:
    """Files to delete."""

    data: tuple[FileSize, ...] = ()
    metadata: frozenset[str] = frozenset()  # paths


def unused_files(
    store: TableStore,
    snapshot: Snapshot,
    *,
    is_deleted: Callable[[LiveReference], bool],
    source: str,
    references: Sequence[LiveReference] | None = None,
) -> UnusedFiles:
    """The files that are unused once the references to a snapshot of the table's branch are deleted.

    Args:
        store: the table, on the branch of the snapshot.
        snapshot: the snapshot that these references keep.
        is_deleted: whether a reference is one of those to delete.
        source: path of the reference to delete, for messages.
        references: all live references; None: they are listed.

    Raises:
        CorruptDataError: another live reference has missing files, so the files it uses are unknown.
    """
    known = all_references(store) if references is None else references
    left = [reference for reference in known if not is_deleted(reference)]
    deciding = DecidingReferences(left, branch=store.paths.branch).about(snapshot.id, is_last=False)
    if any(reference.branch == store.paths.branch and reference.snapshot_id == snapshot.id for reference in deciding):
        return UnusedFiles()  # the snapshot itself, or another reference to it
    try:
        candidates = data_files(store, snapshot)
        metadata = metadata_files(store, snapshot, with_changelog=False)
    except FileNotFoundError as error:
        logger.warning("a tag refers to files that are missing: tag=%s missing=%s", source, error.filename or error)
        return UnusedFiles()
    used_files = FileReferences(store, partitions={file.partition for file in candidates})
    used = used_files.data(deciding)
    return UnusedFiles(
        data=tuple(each for each in candidates if each.path not in used),
        metadata=metadata.all - used_files.metadata(deciding),
    )


def delete_unreferenced(
    store: TableStore,
    snapshot: Snapshot,
    *,
    is_deleted: Callable[[LiveReference], bool],
    source: str,
    remove: Callable[[], None],
    dry_run: bool,
) -> UnusedFiles:
    """Delete references, and the files that nothing else uses.

    The references are deleted first: after an interruption, the remaining files are found as orphans.

    Args:
        store: the table, on the branch of the snapshot.
        snapshot: the snapshot that these references keep.
        is_deleted: whether a reference is one of those to delete.
        source: path of the reference to delete, for messages.
        remove: deletes the references.
        dry_run: only find the files.

    Raises:
        CorruptDataError: another live reference lacks files, so the files it uses are unknown; nothing is deleted.
    """
    known = all_references(store)
    unused = unused_files(store, snapshot, is_deleted=is_deleted, source=source, references=known)
    if not dry_run:
        remove()
        unused = _without_newer(store, unused, {*all_references(store)} - {*known})
        delete_files(store, unused)
    return unused


def delete_files(store: TableStore, unused: UnusedFiles) -> None:
    """Delete the files, data before the metadata that refers to it."""
    for path in (*(each.path for each in unused.data), *sorted(unused.metadata)):
        store.io.delete(path)


def _without_newer(store: TableStore, unused: UnusedFiles, newer: Collection[LiveReference]) -> UnusedFiles:
    """The files without those of concurrently created references, such as a new branch from the tag."""
    references = FileReferences(store)
    data = references.data(newer) if unused.data else set()
    metadata = references.metadata(newer) if unused.metadata else set()
    kept = tuple(each for each in unused.data if each.path not in data)
    return replace(unused, data=kept, metadata=unused.metadata - metadata)
