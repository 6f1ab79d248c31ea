"""Removed snapshots and tags, with the files that nothing else uses."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from filestore.refs.deciding import DecidingReferences
from filestore.refs.file_references import (
    FileReferences,
    FileSize,
    MetadataFiles,
    added_files,
    changelog_files,
    data_files,
    metadata_files,
)
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

TAG_KINDS: Final = (ReferenceKind.TAG, ReferenceKind.PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A snapshot or tag to remove, and the files that nothing else uses."""

    reference: LiveReference
    snapshot: Snapshot
    data: tuple[FileSize, ...] = ()
    metadata: MetadataFiles = field(default_factory=MetadataFiles)

    @property
    def is_tag(self) -> bool:
        """Whether the reference is a tag, also one that is being created."""
        return self.reference.kind in TAG_KINDS

    @property
    def size_bytes(self) -> int:
        """Total size of data and changelog files."""
        return sum(each.size_bytes for each in self.data)


def unused_of(store: TableStore, target: Snapshot | None, removals: Sequence[Removal]) -> tuple[Removal, ...]:
    """The removals with the files that nothing uses, while others commit and expire.

    What is committed meanwhile shares files only with what was there. But where a reference expires while its files are
    looked up, they are not known, and a later commit may use them: then all are looked up again.
    """
    live = all_references(store)
    while True:
        found = with_unused_files(store, target, removals, live)
        later = all_references(store)
        if set(live) <= set(later):
            return found
        live = later


def with_unused_files(
    store: TableStore, target: Snapshot | None, removals: Sequence[Removal], live: Sequence[LiveReference]
) -> tuple[Removal, ...]:
    """The removals with the files that no live reference uses; each belongs to the oldest removal that has it.

    Args:
        store: the table, on the branch.
        target: the snapshot that stays as the newest; None: it has expired since.
        removals: newest first.
        live: the references that stay.
    """
    snapshots = [each.snapshot for each in reversed(removals) if each.reference.kind is ReferenceKind.SNAPSHOT]
    behind = _descendants(store, target, snapshots)
    candidates = [_candidates(store, each, behind) for each in removals]
    partitions = {file.partition for data, _ in candidates for file in data}
    references = FileReferences(store, partitions=partitions)
    deciding = DecidingReferences.of(store, live)
    seen: set[str] = set()
    found: list[Removal] = []
    for removal, (data, metadata) in zip(reversed(removals), reversed(candidates), strict=True):
        is_behind = target is not None and removal.snapshot.identity in behind
        # what is behind the target shares files with it, or with nothing up to it
        near = deciding.about(target.id, is_last=False) if target is not None and is_behind else deciding.all()
        used = references.used_about(near, with_data=bool(data)) | seen
        unused = {file.path: file for file in data if file.path not in used}
        own = MetadataFiles(leaves=metadata.leaves - used, lists=metadata.lists - used)
        found.append(replace(removal, data=tuple(unused.values()), metadata=own))
        seen |= unused.keys() | own.all
    return tuple(reversed(found))


def _descendants(store: TableStore, target: Snapshot | None, removed: Iterable[Snapshot]) -> frozenset[str]:
    """Identities of the removed snapshots, given ascending, that are proved to be made on top of the target."""
    found: set[str] = set()
    before = target
    for each in removed:
        with suppress(FileNotFoundError):  # its lists are deleted already
            if before is not None and store.snapshots.follows(each, before):
                found.add(each.identity)
                before = each
    return frozenset(found)


def _candidates(store: TableStore, removal: Removal, behind: Collection[str]) -> tuple[list[FileSize], MetadataFiles]:
    """Existing files of a snapshot or tag; none for a tag of a snapshot that is examined itself."""
    snapshot, is_tag = removal.snapshot, removal.is_tag
    is_behind = snapshot.identity in behind
    if is_tag and is_behind:
        return [], MetadataFiles()
    metadata = metadata_files(store, snapshot, is_partial=True, with_changelog=not is_tag)
    try:
        data = added_files(store, snapshot) if is_behind else data_files(store, snapshot)
    except FileNotFoundError:  # an interrupted rollback deleted its lists, after its files
        data = []
    return [*data, *([] if is_tag else changelog_files(store, snapshot))], metadata
