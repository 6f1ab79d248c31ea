"""What a table refers to, found the long way: every live reference of every branch, read whole."""

from collections.abc import Iterator

from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable


def branches_of(table: FileTable) -> list[FileTable]:
    """The table on each of its branches."""
    io, directory = table.store.io, table.store.paths.branch_dir
    found = [table]
    for name in io.list_names(directory):
        branch = name.removeprefix("branch-")
        if branch == table.store.paths.branch or not io.list_names(f"{directory}/{name}"):
            continue  # an empty directory is of a creation that was killed
        found.append(
            FileTable.open(
                table.name,
                table.store.paths.root,
                branch=branch,
                io=table.store.io,
                clock=table.store.clock,
                names=table.store.names,
            )
        )
    return found


def roots_of(table: FileTable) -> Iterator[tuple[FileTable, Snapshot, bool]]:
    """Branch, snapshot, and whether its changelog counts."""
    for branch in branches_of(table):
        for snapshot_id in branch.store.snapshots.ids():
            yield branch, branch.store.snapshots.read(snapshot_id), True
        for name in branch.store.snapshots.tag_names():
            yield branch, branch.store.snapshots.tag(name), False
        for savepoint in list_savepoints(branch.store):
            yield branch, savepoint.snapshot, False


def used_by(table: FileTable, snapshot: Snapshot, *, with_changelog: bool) -> set[str]:
    """Every file that one snapshot refers to."""
    paths, found, entries = table.store.paths, set(), []
    for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
        found.add(paths.manifest(name))
        for manifest in table.store.manifests.read_list(name, None):
            found.add(paths.manifest(manifest.file_name))
            entries += table.store.manifests.read_manifest(manifest)
    live = live_entries(entries)
    changelog = paths.manifest(snapshot.changelog_manifest_list or "")
    if with_changelog and table.store.io.exists(changelog) and not table.store.io.is_directory(changelog):
        assert snapshot.changelog_manifest_list is not None
        found.add(changelog)
        for manifest in table.store.manifests.read_list(snapshot.changelog_manifest_list, None):
            found.add(paths.manifest(manifest.file_name))
            live += table.store.manifests.read_manifest(manifest)
    if snapshot.index_manifest is not None:
        found.add(paths.manifest(snapshot.index_manifest))
        found |= {
            paths.index(each.file_name) for each in table.store.manifests.read_index_manifest(snapshot.index_manifest)
        }
    return found | {path for entry in live for path in _paths(table, entry)}


KnownUse = dict[tuple[object, ...], frozenset[str]]
"""What each snapshot that was read before refers to: its files never change, except that a changelog may go."""


def used_files(table: FileTable, known: KnownUse | None = None) -> set[str]:
    """Data, changelog, index, manifest and list files that anything refers to."""
    known = {} if known is None else known
    found: set[str] = set()
    for branch, snapshot, with_changelog in roots_of(table):
        changelog = snapshot.changelog_manifest_list
        has_changelog = (
            with_changelog and changelog is not None and table.store.io.exists(table.store.paths.manifest(changelog))
        )
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, changelog, snapshot.index_manifest)
        if (*lists, has_changelog) not in known:
            known[*lists, has_changelog] = frozenset(used_by(branch, snapshot, with_changelog=with_changelog))
        found |= known[*lists, has_changelog]
    return found


def files_there(table: FileTable) -> set[str]:
    """Data, changelog, index, manifest and list files of a table in memory."""
    inside = (path.removeprefix(f"{table.store.paths.root}/") for path in table.store.io.files)  # type: ignore[attr-defined]
    return {
        f"{table.store.paths.root}/{path}"
        for path in inside
        if path.startswith(("manifest/", "index/")) or "bucket-" in path
    }


def _paths(table: FileTable, entry: ManifestEntry) -> list[str]:
    assert entry.kind is EntryKind.ADD
    directory = table.store.bucket_dir(entry.partition, entry.bucket)
    return [f"{directory}/{name}" for name in (entry.file.file_name, *entry.file.extra_files)]


def check_orphans_go(table: FileTable) -> None:
    """Once orphans are removed, the files that are there are those that the table refers to."""
    delete_orphans(table.store, find_orphans(table.store, before_ms=10**15), progress=lambda done, of: None)
    assert files_there(table) == used_files(table)
