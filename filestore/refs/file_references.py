"""The files used by live references, for expiry, deletion of tags and orphan cleanup.

Source: Paimon SnapshotDeletion, TagDeletion, OrphanFilesClean.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from filestore.layout.branch_state import is_hidden
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import ManifestFileMeta
from filestore.refs.deciding import Deciders
from filestore.refs.live_references import LiveReference, ReferenceKind, in_order, on_branch
from filestore.scan.snapshot_files import changelog_of, delta_entries, live_files, live_files_of_partitions
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFiles:
    """Metadata files of a snapshot. Leaves must be deleted first, since they are found through the lists."""

    leaves: frozenset[str] = frozenset()  # manifests, index files, statistics
    lists: frozenset[str] = frozenset()  # manifest lists and the index manifest

    @property
    def all(self) -> frozenset[str]:
        """All paths."""
        return self.leaves | self.lists


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSize:
    """A data or changelog file that may be deleted."""

    partition: bytes
    path: str
    size_bytes: int  # 0 for extra files of a data file


def metadata_files(
    store: TableStore, snapshot: Snapshot, *, is_partial: bool = False, with_changelog: bool = True
) -> MetadataFiles:
    """Lists, manifests, index files and statistics of a snapshot.

    Args:
        store: the table.
        snapshot: the snapshot, existing or deleted.
        is_partial: ignore missing files, for a snapshot that is being deleted.
        with_changelog: include its changelog.

    Raises:
        FileNotFoundError: a list is missing, unless ``is_partial``.
    """
    leaves: set[str] = set()
    lists: set[str] = set()
    named = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size, is_partial),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size, is_partial),
    ]
    if with_changelog and snapshot.changelog_manifest_list is not None:
        # the first snapshot of a branch created from a tag may lack its changelog
        named.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size, True))
    for name, size_bytes, may_be_missing in named:
        try:
            leaves |= _manifest_paths(store, store.manifests.read_list(name, size_bytes))
            lists.add(store.paths.manifest(name))
        except FileNotFoundError:
            if not may_be_missing:
                raise
    if snapshot.index_manifest is not None:
        try:
            entries = store.manifests.read_index_manifest(snapshot.index_manifest)
            leaves |= {store.index_path(each) for each in entries if each.kind is EntryKind.ADD}
            lists.add(store.paths.manifest(snapshot.index_manifest))
        except FileNotFoundError:
            if not is_partial:
                raise
    if snapshot.statistics is not None:
        leaves.add(store.paths.statistics(snapshot.statistics))
    return MetadataFiles(leaves=frozenset(leaves), lists=frozenset(lists))


def removed_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The data files that a commit removed, not those moved to another level. Raises: FileNotFoundError."""
    entries = delta_entries(store, snapshot)
    kept = {path for entry in entries if entry.kind is EntryKind.ADD for path in _paths(store, entry)}
    removed = (entry for entry in entries if entry.kind is EntryKind.DELETE)
    return [each for entry in removed for each in _sizes(store, entry) if each.path not in kept]


def added_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The data files that a commit added, not those moved to another level. Raises: FileNotFoundError."""
    entries = delta_entries(store, snapshot)
    known = {path for entry in entries if entry.kind is EntryKind.DELETE for path in _paths(store, entry)}
    added = (entry for entry in entries if entry.kind is EntryKind.ADD)
    return [each for entry in added for each in _sizes(store, entry) if each.path not in known]


def changelog_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The changelog files of a commit in existing manifests."""
    return [each for entry in changelog_of(store, snapshot) for each in _sizes(store, entry)]


def data_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The live data files of a snapshot. Raises: FileNotFoundError."""
    return [each for entry in live_files(store, snapshot) for each in _sizes(store, entry)]


def changes_list(store: TableStore, snapshot: Snapshot) -> tuple[str, int | None] | None:
    """Name and size of the only list that the changelog of an expired snapshot needs; None: it has no changes.

    Commits without a changelog producer change a table by the files that they added, and compactions do not.
    Source: Paimon SnapshotDeletion, which deletes all other lists.
    """
    if snapshot.changelog_manifest_list is not None:
        return snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
    if _has_producer(store, snapshot) or snapshot.commit_kind is CommitKind.COMPACT:
        return None
    return snapshot.delta_manifest_list, snapshot.delta_manifest_list_size


def _has_producer(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether a changelog producer was set when a snapshot was committed, whatever the table has by now."""
    return store.options_of(store.schema_of(snapshot.schema_id)).changelog_producer != "none"


class FileReferences:
    """The files of live references. Caches what it reads, so use one object per run."""

    def __init__(self, store: TableStore, *, partitions: Collection[bytes] | None = None) -> None:
        """Create an empty cache.

        Args:
            store: the table.
            partitions: only data files of these partitions are needed; None: of all.
        """
        self._table = store
        self._partitions = partitions
        self._known: dict[tuple[LiveReference, _FilesOf], frozenset[str] | None] = {}
        self._snapshots: dict[LiveReference, Snapshot | None] = {}

    @property
    def lost(self) -> set[LiveReference]:
        """References that were deleted before their files were read, or that are being deleted and incomplete.

        Commits and references that were created since the listing may have their files: list the references again and
        repeat the search, unless all of these are still listed.
        """
        return {reference for (reference, _), files in self._known.items() if files is None}

    def all_used(self, live: Callable[[], Collection[LiveReference]]) -> set[str]:
        """Data and metadata files of all live references, while others commit and expire. Raises: see ``data``.

        Args:
            live: lists them. It is asked until none of those that are listed was lost.
        """
        while True:
            references = live()
            used = self.data(references) | self.metadata(references)
            if self.lost <= {*live()}:
                return used
            self._known = {key: files for key, files in self._known.items() if files is not None}
            self._snapshots = {key: found for key, found in self._snapshots.items() if found is not None}

    def used_about(self, deciders: Deciders, *, with_data: bool = True) -> set[str]:
        """All files, or all metadata files, that any of these references uses. Raises: see ``data``."""
        kinds: list[_FilesOf] = [self._data, _metadata] if with_data else [_metadata]
        found = self.metadata(deciders.others) | (self.data(deciders.others) if with_data else set())
        for files_of in kinds:
            for side in deciders.sides():
                for group in side:
                    used = [self._read(each, files_of) for each in group]
                    found |= {path for paths in used for path in paths or ()}
                    if None not in used and deciders.ends(group):
                        break
        return found

    def data(self, references: Iterable[LiveReference]) -> set[str]:
        """Data and changelog files used by any of these references.

        Raises: CorruptDataError for a reference with missing metadata.
        """
        found: set[str] = set()
        previous: LiveReference | None = None  # its files are among those found
        for reference in in_order(references):
            # consecutive snapshots use the files of the first one, and those added by the others
            follows = (
                previous is not None
                and reference.kind is previous.kind is ReferenceKind.SNAPSHOT
                and (reference.branch, reference.snapshot_id) == (previous.branch, previous.snapshot_id + 1)
                and self._continues(reference, previous)
            )
            files = self._read(reference, _added_data if follows else self._data)
            found |= files or set()
            previous = None if files is None else reference
        return found

    def metadata(self, references: Iterable[LiveReference]) -> set[str]:
        """Manifests, manifest lists, index files and statistics used by any of these references.

        Raises: CorruptDataError for a reference with missing metadata.
        """
        return {path for reference in in_order(references) for path in self._read(reference, _metadata) or ()}

    def _read(self, reference: LiveReference, files_of: "_FilesOf") -> frozenset[str] | None:
        """The files; None: the reference was deleted, or is being deleted and incomplete."""
        if (reference, files_of) not in self._known:
            self._known[reference, files_of] = self._read_again(reference, files_of)
        return self._known[reference, files_of]

    def _read_again(self, reference: LiveReference, files_of: "_FilesOf") -> frozenset[str] | None:
        table, snapshot = on_branch(self._table, reference.branch), self._snapshot(reference)
        if snapshot is None:
            return None  # expired since it was listed
        try:
            return frozenset(files_of(table, reference, snapshot))
        except FileNotFoundError as error:
            if not _is_live(table, reference) or table.snapshots.is_of_other_table(snapshot):
                return None
            now = table.snapshots.find(snapshot.id)
            if (
                reference.kind is ReferenceKind.SNAPSHOT
                and reference.snapshot is None
                and now
                and now.ref != snapshot.ref
            ):
                self._snapshots[reference] = now  # it was taken back or removed, and its number used again
                return self._read_again(reference, self._data if files_of is _added_data else files_of)
            raise CorruptDataError(
                "a file in use is missing, so it is unknown which other files are in use: "
                f"table={table.name} reference={reference} missing={error.filename or error} {_fix(reference)}"
            ) from error

    def _continues(self, reference: LiveReference, previous: LiveReference) -> bool:
        """Whether a snapshot was made on top of the one before; a fork was not."""
        snapshot, before = self._snapshot(reference), self._snapshot(previous)
        if snapshot is None or before is None:
            return False
        try:
            return on_branch(self._table, reference.branch).snapshots.follows(snapshot, before)
        except FileNotFoundError:
            return False  # about to expire

    def _snapshot(self, reference: LiveReference) -> Snapshot | None:
        if reference.snapshot is not None:
            return reference.snapshot
        if reference not in self._snapshots:
            table = on_branch(self._table, reference.branch)
            self._snapshots[reference] = table.snapshots.find(reference.snapshot_id)
        return self._snapshots[reference]

    def _data(self, store: TableStore, reference: LiveReference, snapshot: Snapshot) -> set[str]:
        if reference.kind is ReferenceKind.CHANGELOG:
            is_own = snapshot.changelog_manifest_list is not None or changes_list(store, snapshot) is None
            entries = changelog_of(store, snapshot) if is_own else _added(store, snapshot)
        elif self._partitions is None:
            entries = live_files(store, snapshot)
        else:
            entries = live_files_of_partitions(store, snapshot, self._partitions)
        if reference.kind is ReferenceKind.SNAPSHOT:
            entries = [*entries, *changelog_of(store, snapshot)]
        return {path for entry in entries for path in _paths(store, entry)}


_FilesOf = Callable[[TableStore, LiveReference, Snapshot], set[str]]


def _added_data(store: TableStore, _reference: LiveReference, snapshot: Snapshot) -> set[str]:
    entries = [*_added(store, snapshot), *changelog_of(store, snapshot)]
    return {path for entry in entries for path in _paths(store, entry)}


def _metadata(store: TableStore, reference: LiveReference, snapshot: Snapshot) -> set[str]:
    if reference.kind is ReferenceKind.CHANGELOG:
        return _changelog_metadata(store, snapshot)
    with_changelog = reference.kind is ReferenceKind.SNAPSHOT
    return {*metadata_files(store, snapshot, with_changelog=with_changelog).all, *reference.files}


def _changelog_metadata(store: TableStore, snapshot: Snapshot) -> set[str]:
    needed, may_be_missing = changes_list(store, snapshot), snapshot.changelog_manifest_list is not None
    if needed is None:
        if _has_producer(store, snapshot):
            return set()
        # of a compaction: Java finds there what to delete with the changelog, and keeps it as well
        needed, may_be_missing = (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size), True
    try:
        manifests = store.manifests.read_list(*needed)
    except FileNotFoundError:
        if not may_be_missing:
            raise
        return set()  # as that of the first snapshot of a branch
    return {store.paths.manifest(needed[0]), *_manifest_paths(store, manifests)}


def _manifest_paths(store: TableStore, manifests: Iterable[ManifestFileMeta]) -> set[str]:
    return {store.paths.manifest(name) for each in manifests for name in each.file_names}


def _added(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    return [entry for entry in delta_entries(store, snapshot) if entry.kind is EntryKind.ADD]


def _paths(store: TableStore, entry: ManifestEntry) -> list[str]:
    """Paths of a data file and its extra files."""
    return store.file_paths(entry.partition, entry.bucket, entry.file)


def _sizes(store: TableStore, entry: ManifestEntry) -> list[FileSize]:
    first, *others = _paths(store, entry)
    own = FileSize(partition=entry.partition, path=first, size_bytes=entry.file.size_bytes)
    return [own, *(FileSize(partition=entry.partition, path=path, size_bytes=0) for path in others)]


def _is_live(store: TableStore, reference: LiveReference) -> bool:
    """Whether a reference exists, is not claimed by an expiry, no fork, and its branch is not being deleted."""
    if is_hidden(store.io, store.paths):
        return False  # its files go before its references
    match reference.kind:
        case ReferenceKind.SNAPSHOT:
            line = store.snapshots.line()
            is_leaving = reference.snapshot_id < (line.first or 0) or not line.reaches(
                reference.snapshot_id
            )  # or forks
            return not is_leaving and store.snapshots.exists(reference.snapshot_id)
        case ReferenceKind.TAG:
            named = store.snapshots.find_tag(reference.name)  # of another snapshot, when it was moved meanwhile
            return named is not None and named == reference.snapshot
        case ReferenceKind.SAVEPOINT:
            return store.io.exists(store.paths.savepoint(int(reference.name)))
        case ReferenceKind.CHANGELOG:
            first = store.snapshots.earliest_changelog()  # before it, an expiry deletes them
            return reference.snapshot_id >= first and store.io.exists(store.paths.changelog(reference.snapshot_id))
        case ReferenceKind.PENDING:
            return False  # an expiry had claimed its files before it was there: it never becomes a tag


def _fix(reference: LiveReference) -> str:
    if reference.kind is ReferenceKind.SNAPSHOT:
        return "fix='run verify, which names every missing file'"
    return f"fix=delete that {reference.kind.value}"
