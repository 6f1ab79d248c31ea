"""What roots use: the files that must stay. Expiry, the deletion of tags and the search for orphans all ask here.

Source: design.md section 5; paimon-format.md sections 1, 4.4, 7.3 and 8; SP-20, TAG-46 to TAG-57.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.refs.live_references import LiveReference, ReferenceKind, on_branch
from filestore.scan.snapshot_files import delta_entries, live_files, live_files_of_partitions
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFiles:
    """Files of a snapshot that are not its data. Whoever deletes takes the leaves first: they are found by the rest."""

    leaves: frozenset[str] = frozenset()  # manifests, index files, statistics
    lists: frozenset[str] = frozenset()  # manifest lists and the index manifest

    @property
    def all(self) -> frozenset[str]:
        """Every path."""
        return self.leaves | self.lists


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSize:
    """A data or changelog file that may go."""

    partition: bytes
    path: str
    size_bytes: int  # 0 of what belongs to another file


def metadata_files(
    store: TableStore, snapshot: Snapshot, *, is_partial: bool = False, with_changelog: bool = True
) -> MetadataFiles:
    """Lists, manifests, index files and statistics of a snapshot.

    Args:
        store: whose.
        snapshot: gone or not.
        is_partial: take what is there, of a snapshot that is being deleted.
        with_changelog: its changelog too.

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
        # a branch that was made from a tag begins with a snapshot whose changelog may be long gone
        named.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size, True))
    for name, size_bytes, may_be_missing in named:
        try:
            leaves |= {store.paths.manifest(each.file_name) for each in store.manifests.read_list(name, size_bytes)}
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
    """The data files that a commit took away; one that it moved to another level stays. Raises: FileNotFoundError."""
    entries = delta_entries(store, snapshot)
    kept = {path for entry in entries if entry.kind is EntryKind.ADD for path in _paths(store, entry)}
    removed = (entry for entry in entries if entry.kind is EntryKind.DELETE)
    return [each for entry in removed for each in _sizes(store, entry) if each.path not in kept]


def added_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The data files that a commit brought, not those that it moved to another level. Raises: FileNotFoundError."""
    entries = delta_entries(store, snapshot)
    known = {path for entry in entries if entry.kind is EntryKind.DELETE for path in _paths(store, entry)}
    added = (entry for entry in entries if entry.kind is EntryKind.ADD)
    return [each for entry in added for each in _sizes(store, entry) if each.path not in known]


def changelog_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The changelog files of a commit, as far as their manifests are there."""
    return [each for entry in _changelog(store, snapshot) for each in _sizes(store, entry)]


def data_files(store: TableStore, snapshot: Snapshot) -> list[FileSize]:
    """The live data files of a snapshot. Raises: FileNotFoundError."""
    return [each for entry in live_files(store, snapshot) for each in _sizes(store, entry)]


class FileReferences:
    """What roots use. Remembers what it has read: one object for one run."""

    def __init__(self, store: TableStore, *, partitions: Collection[bytes] | None = None) -> None:
        """Nothing is read yet.

        Args:
            store: whose roots.
            partitions: data files elsewhere are not asked for; None: of every partition.
        """
        self._table = store
        self._partitions = partitions
        self._known: dict[tuple[LiveReference, _FilesOf], frozenset[str]] = {}

    def data(self, roots: Iterable[LiveReference]) -> set[str]:
        """Data and changelog files that any of some roots uses.

        Raises: CorruptDataError for a root whose files cannot be read.
        """
        found: set[str] = set()
        previous: LiveReference | None = None
        for root in sorted(roots, key=lambda each: (each.kind.value, each.branch, each.snapshot_id)):
            # the files of neighbouring snapshots are those of the first, and what the others added
            follows = (
                previous is not None
                and root.kind is previous.kind is ReferenceKind.SNAPSHOT
                and (root.branch, root.snapshot_id) == (previous.branch, previous.snapshot_id + 1)
            )
            found |= self._read(root, _added_data if follows else self._data)
            previous = root
        return found

    def metadata(self, roots: Iterable[LiveReference]) -> set[str]:
        """Manifests and their lists, index files and statistics that any of some roots uses.

        Raises: CorruptDataError for a root whose files cannot be read.
        """
        return {path for root in roots for path in self._read(root, _metadata)}

    def _read(self, root: LiveReference, files_of: "_FilesOf") -> frozenset[str]:
        if (root, files_of) not in self._known:
            self._known[root, files_of] = frozenset(self._read_again(root, files_of))
        return self._known[root, files_of]

    def _read_again(self, root: LiveReference, files_of: "_FilesOf") -> set[str]:
        table = on_branch(self._table, root.branch)
        snapshot = root.snapshot or table.snapshots.find(root.snapshot_id)
        if snapshot is None:
            return set()  # it expired since it was listed
        try:
            return files_of(table, root, snapshot)
        except FileNotFoundError as error:
            if not _is_there(table, root):
                return set()
            raise CorruptDataError(
                f"a file that is still referred to is missing, so nothing can be told about others: "
                f"table={table.name} root={root} missing={error.filename or error} fix=delete that {root.kind.value}"
            ) from error

    def _data(self, store: TableStore, root: LiveReference, snapshot: Snapshot) -> set[str]:
        if root.kind is ReferenceKind.CHANGELOG:
            entries = _changelog(store, snapshot)
            if snapshot.changelog_manifest_list is None:
                entries = _added(store, snapshot)
        elif self._partitions is None:
            entries = live_files(store, snapshot)
        else:
            entries = live_files_of_partitions(store, snapshot, self._partitions)
        if root.kind is ReferenceKind.SNAPSHOT:
            entries = [*entries, *_changelog(store, snapshot)]
        return {path for entry in entries for path in _paths(store, entry)}


_FilesOf = Callable[[TableStore, LiveReference, Snapshot], set[str]]


def _added_data(store: TableStore, _root: LiveReference, snapshot: Snapshot) -> set[str]:
    entries = [*_added(store, snapshot), *_changelog(store, snapshot)]
    return {path for entry in entries for path in _paths(store, entry)}


def _metadata(store: TableStore, root: LiveReference, snapshot: Snapshot) -> set[str]:
    is_partial = root.kind is ReferenceKind.CHANGELOG
    with_changelog = root.kind in (ReferenceKind.SNAPSHOT, ReferenceKind.CHANGELOG)
    return {*metadata_files(store, snapshot, is_partial=is_partial, with_changelog=with_changelog).all, *root.files}


def _added(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    return [entry for entry in delta_entries(store, snapshot) if entry.kind is EntryKind.ADD]


def _changelog(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    if snapshot.changelog_manifest_list is None:
        return []
    entries: list[ManifestEntry] = []
    name, size_bytes = snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
    with suppress(FileNotFoundError):
        for manifest in store.manifests.read_list(name, size_bytes):
            with suppress(FileNotFoundError):
                entries += store.manifests.read_manifest(manifest)
    return entries


def _paths(store: TableStore, entry: ManifestEntry) -> list[str]:
    """Where a file is, and those that belong to it."""
    path = store.file_path(entry.partition, entry.bucket, entry.file)
    directory = path.rpartition("/")[0]
    return [path, *(f"{directory}/{name}" for name in entry.file.extra_files)]


def _sizes(store: TableStore, entry: ManifestEntry) -> list[FileSize]:
    first, *others = _paths(store, entry)
    own = FileSize(partition=entry.partition, path=first, size_bytes=entry.file.size_bytes)
    return [own, *(FileSize(partition=entry.partition, path=path, size_bytes=0) for path in others)]


def _is_there(store: TableStore, root: LiveReference) -> bool:
    """Whether a root is neither gone nor about to go."""
    match root.kind:
        case ReferenceKind.SNAPSHOT:
            is_claimed = root.snapshot_id < store.snapshots.claimed_up_to()
            return not is_claimed and store.snapshots.exists(root.snapshot_id)
        case ReferenceKind.TAG:
            return store.io.exists(store.paths.tag(root.name))
        case ReferenceKind.SAVEPOINT:
            return store.io.exists(store.paths.savepoint(int(root.name)))
        case ReferenceKind.CHANGELOG:
            return store.io.exists(store.paths.changelog(root.snapshot_id))
