"""The files that only some roots use, for those who take these roots away: tags and savepoints that are deleted."""

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
    """Files that may go."""

    data: tuple[FileSize, ...] = ()
    metadata: frozenset[str] = frozenset()  # paths


def unused_files(
    store: TableStore,
    snapshot: Snapshot,
    *,
    goes: Callable[[LiveReference], bool],
    source: str,
    roots: Sequence[LiveReference] | None = None,
) -> UnusedFiles:
    """The files that nothing needs once the roots go that keep a snapshot of the table's branch.

    Args:
        store: whose.
        snapshot: that is kept.
        goes: whether a root is one of those that go.
        source: path of what goes, for messages.
        roots: all there are; None: they are looked up.

    Raises:
        CorruptDataError: another root refers to files that are missing, so what it uses is not known.
    """
    known = all_references(store) if roots is None else roots
    left = [root for root in known if not goes(root)]
    asked = DecidingReferences(left, branch=store.paths.branch).about(snapshot.id, is_last=False)
    if any(root.branch == store.paths.branch and root.snapshot_id == snapshot.id for root in asked):
        return UnusedFiles()  # the snapshot itself, or another root of it
    try:
        candidates = data_files(store, snapshot)
        metadata = metadata_files(store, snapshot, with_changelog=False)
    except FileNotFoundError as error:
        logger.warning("a tag refers to files that are missing: tag=%s missing=%s", source, error.filename or error)
        return UnusedFiles()
    references = FileReferences(store, partitions={file.partition for file in candidates})
    used = references.data(asked)
    return UnusedFiles(
        data=tuple(each for each in candidates if each.path not in used),
        metadata=metadata.all - references.metadata(asked),
    )


def delete_unreferenced(
    store: TableStore,
    snapshot: Snapshot,
    *,
    goes: Callable[[LiveReference], bool],
    source: str,
    remove: Callable[[], None],
    dry_run: bool,
) -> UnusedFiles:
    """Take roots away, and delete the files that nothing else uses.

    The roots go first: when this is interrupted, what is left over is found by the search for orphans.

    Args:
        store: as of ``unused_files``, like the other arguments.
        snapshot: that is kept.
        goes: whether a root is one of those that go.
        source: path of what goes, for messages.
        remove: takes the roots away.
        dry_run: only say what would go.

    Raises:
        CorruptDataError: another root refers to files that are missing, so what it uses is not known; nothing is gone.
    """
    roots = all_references(store)
    unused = unused_files(store, snapshot, goes=goes, source=source, roots=roots)
    if not dry_run:
        remove()
        unused = _without_newer(store, unused, {*all_references(store)} - {*roots})
        delete_files(store, unused)
    return unused


def delete_files(store: TableStore, unused: UnusedFiles) -> None:
    """Delete them, what they are found by last."""
    for path in (*(each.path for each in unused.data), *sorted(unused.metadata)):
        store.io.delete(path)


def _without_newer(store: TableStore, unused: UnusedFiles, newer: Collection[LiveReference]) -> UnusedFiles:
    """What roots that came meanwhile do not use: a branch may just have been made from the tag."""
    references = FileReferences(store)
    data = references.data(newer) if unused.data else set()
    metadata = references.metadata(newer) if unused.metadata else set()
    kept = tuple(each for each in unused.data if each.path not in data)
    return replace(unused, data=kept, metadata=unused.metadata - metadata)
