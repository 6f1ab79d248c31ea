"""Removed snapshots and tags, with the files that nothing else uses."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from filestore.refs.file_references import (
    FileReferences,
    FileSize,
    MetadataFiles,
    added_files,
    changelog_files,
    data_files,
    metadata_files,
)
from filestore.refs.live_references import DecidingReferences, LiveReference, ReferenceKind, all_references
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
    def size_bytes(self) -> int:
        """Total size of data and changelog files."""
        return sum(each.size_bytes for each in self.data)


def unused_of(store: TableStore, target_id: int, removals: Sequence[Removal]) -> tuple[Removal, ...]:
    """The removals with the files that nothing uses, while others commit and expire.

    What is committed meanwhile shares files only with what was there. But where a reference expires while its files are
    looked up, they are not known, and a later commit may use them: then all are looked up again.
    """
    live = all_references(store)
    while True:
        found = with_unused_files(store, target_id, removals, live)
        later = all_references(store)
        if set(live) <= set(later):
            return found
        live = later


def with_unused_files(
    store: TableStore, target_id: int, removals: Sequence[Removal], live: Sequence[LiveReference]
) -> tuple[Removal, ...]:
    """The removals with the files that no live reference uses; each belongs to the oldest removal that has it."""
    known = {target_id, *(each.snapshot.id for each in removals if each.reference.kind is ReferenceKind.SNAPSHOT)}
    candidates = [_candidates(store, each, known) for each in removals]
    partitions = {file.partition for data, _ in candidates for file in data}
    noted = {each.snapshot.identity for each in removals if each.reference.kind is ReferenceKind.SNAPSHOT}
    forks = store.snapshots.removed.identities() - noted
    references = FileReferences(store, partitions=partitions)
    deciding = DecidingReferences(live, branch=store.paths.branch, removed=forks)
    seen: set[str] = set()
    found: list[Removal] = []
    for removal, (data, metadata) in zip(reversed(removals), reversed(candidates), strict=True):
        near = deciding.about(removal.snapshot.id, is_last=False, identity=removal.snapshot.identity)
        used = references.used_about(near, with_data=bool(data)) | seen
        unused = {file.path: file for file in data if file.path not in used}
        own = MetadataFiles(leaves=metadata.leaves - used, lists=metadata.lists - used)
        found.append(replace(removal, data=tuple(unused.values()), metadata=own))
        seen |= unused.keys() | own.all
    return tuple(reversed(found))


def _candidates(store: TableStore, removal: Removal, known: Collection[int]) -> tuple[list[FileSize], MetadataFiles]:
    """Existing files of a snapshot or tag; none for a tag of a ``known`` snapshot, which is examined itself."""
    snapshot, is_tag = removal.snapshot, removal.reference.kind in TAG_KINDS
    if is_tag and snapshot.id in known:
        return [], MetadataFiles()
    metadata = metadata_files(store, snapshot, is_partial=True, with_changelog=not is_tag)
    try:
        data = added_files(store, snapshot) if snapshot.id - 1 in known else data_files(store, snapshot)
    except FileNotFoundError:  # an interrupted rollback deleted its lists, after its files
        data = []
    return [*data, *([] if is_tag else changelog_files(store, snapshot))], metadata
