"""Verifies the consistency of a table's files: snapshots, manifests, data files and hints.

Nothing is changed and no row is read. What cannot be read is a finding, and the rest is verified all the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.index.index_manifest import index_files
from filestore.layout.branch_state import Operation, read_work, seal_of_main
from filestore.layout.paths import MAIN_BRANCH
from filestore.maintenance.history_repair import read_history
from filestore.maintenance.rollback_run import find_run
from filestore.manifest.entries import DataFileMeta, EntryKind
from filestore.refs.file_references import changes_list, metadata_files
from filestore.refs.live_references import LiveReference, ReferenceKind, branch_names, on_branch, readable_references
from filestore.refs.savepoint_files import find_savepoint, savepoint_ids
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import delta_entries
from filestore.snapshot.lost_files import MissingFileError
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An inconsistency."""

    check: str  # name of the check
    subject: str  # snapshot, tag, branch or other object
    problem: str


def verify_files(store: TableStore, *, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    """The inconsistencies of a table's files, on all branches.

    Args:
        store: the table to verify.
        progress: called with the numbers of checked and of all live references.
    """
    store = replace(store)  # manifests that were read before are read again
    for branch in branch_names(store):
        there = on_branch(store, branch)
        yield from _guarded("branch", branch, _operation(there, branch))
        yield from _schemas(there, branch)
        yield from _savepoints(there)
        if there.snapshots.ids():
            yield from _guarded("history", branch, _history(there, branch))
            yield from _guarded("consumer", branch, _consumers(there))
    references, unreadable = readable_references(store)
    whole_from = {branch: _whole_from(on_branch(store, branch)) for branch in {each.branch for each in references}}
    references = [each for each in references if _is_whole(each, whole_from[each.branch])]
    for name, error in unreadable:
        yield Finding(check="unreadable", subject=name, problem=str(error))
    sizes: dict[str, int | None] = {}
    for done, reference in enumerate(references):
        progress(done, len(references))
        yield from _guarded("snapshots", str(reference), _reference(store, reference, sizes))
    progress(len(references), len(references))


def _reference(store: TableStore, reference: LiveReference, sizes: dict[str, int | None]) -> Iterator[Finding]:
    there = on_branch(store, reference.branch)
    snapshot = reference.snapshot or there.snapshots.find(reference.snapshot_id)
    if snapshot is not None and reference.kind is ReferenceKind.CHANGELOG:
        yield from _changelog(there, str(reference), snapshot, sizes)
    elif snapshot is not None:
        yield from _snapshot(there, str(reference), snapshot, sizes, has_delta=reference.snapshot is None)


def _guarded(check: str, subject: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of one check, and what stopped it."""
    try:
        yield from findings
    except FluvialError as error:
        yield Finding(check=check, subject=subject, problem=str(error))


def _schemas(store: TableStore, branch: str) -> Iterator[Finding]:
    for schema_id in store.schemas.ids():
        try:
            store.schemas.read(schema_id)
        except FluvialError as error:
            yield Finding(check="schemas", subject=f"{branch} schema {schema_id}", problem=str(error))


def _whole_from(store: TableStore) -> int | None:
    """The first snapshot that no expiry has claimed; None: the branch is being deleted, and its files go one by one."""
    return None if _is_being_deleted(store) else store.snapshots.claimed_up_to()


def _is_whole(reference: LiveReference, whole_from: int | None) -> bool:
    """Whether all files of a reference must be there."""
    if whole_from is None:
        return False
    return reference.kind is not ReferenceKind.SNAPSHOT or reference.snapshot_id >= whole_from


def _is_being_deleted(store: TableStore) -> bool:
    if store.paths.branch == MAIN_BRANCH:
        return False
    try:
        work = read_work(store.io, store.paths)
    except FluvialError:  # reported with its branch
        return False
    return work is not None and work.operation is Operation.DELETE


def _operation(store: TableStore, branch: str) -> Iterator[Finding]:
    """An operation on a branch that is in progress or was interrupted."""
    if branch == MAIN_BRANCH:
        work: object = seal_of_main(store.io, store.paths.root)
    else:
        work = read_work(store.io, store.paths)
    if work is not None:
        problem = f"operation={work} fix=wait for it; if it was interrupted, run it again"
        yield Finding(check="branch", subject=branch, problem=problem)
    run = find_run(store)
    if run is not None:
        problem = f"rollback to={run.target.id} run={run.run} fix=wait for it; if its process has ended, run repair"
        yield Finding(check="rollback", subject=branch, problem=problem)


def _history(store: TableStore, branch: str) -> Iterator[Finding]:
    """Forks, gaps and wrong hints."""
    try:
        state = read_history(store)
    except FluvialError as error:
        yield Finding(check="snapshots", subject=branch, problem=str(error))
        return
    for fork in state.forks:
        problem = (
            f"not part of the history: user={fork.commit_user} identifier={fork.commit_identifier} "
            "cause='its writer was paused, and died before it took it back; or a version that did not look' fix=repair"
        )
        yield Finding(check="fork", subject=f"{branch} snapshot {fork.id}", problem=problem)
    for late in state.late:
        problem = "its snapshot, branch or table had ended when it was created, and its process died fix=repair"
        yield Finding(check=late.kind, subject=f"{late.branch} {late.name}", problem=problem)
    if state.expiring:
        problem = (
            f"first={state.expiring[0].id} last={state.expiring[-1].id} fix=wait for it; or expire snapshots again"
        )
        yield Finding(check="expiry", subject=f"{branch} snapshots", problem=f"an expiry has not ended: {problem}")
    if state.missing_ids:
        problem = f"missing={list(state.missing_ids[:10])} count={len(state.missing_ids)}"
        yield Finding(check="snapshots", subject=branch, problem=problem)
    if not state.chain:
        return
    for name, hint, expected in (
        ("LATEST", state.latest_hint, state.chain[-1].id),
        ("EARLIEST", state.earliest_hint, state.chain[0].id),
    ):
        if hint not in (None, expected):  # without a hint readers list the directory
            yield Finding(
                check="hint", subject=f"{branch} {name}", problem=f"hint={hint} snapshot={expected} fix=repair"
            )


def _consumers(store: TableStore) -> Iterator[Finding]:
    earliest = store.snapshots.earliest_id() or 0
    for name, next_snapshot in store.consumers.next_snapshots().items():
        if next_snapshot < earliest:
            problem = f"wants={next_snapshot} earliest={earliest} fix=reset it"
            yield Finding(check="consumer", subject=name, problem=problem)


def _savepoints(store: TableStore) -> Iterator[Finding]:
    for savepoint_id in savepoint_ids(store):
        try:
            savepoint = find_savepoint(store, savepoint_id)
            tag = None if savepoint is None else store.snapshots.find_tag(savepoint.tag_name)
        except FluvialError:
            continue  # reported as unreadable
        if savepoint is None:
            continue
        if tag is None or tag.id != savepoint.saved_snapshot_id:
            problem = "other engines do not know that its files are kept fix=run repair"
            yield Finding(check="savepoint", subject=f"tag {savepoint.tag_name}", problem=problem)
        missing = [path for path in savepoint.own_paths(store.paths) if not store.io.exists(path)]
        if missing:
            yield Finding(check="savepoint", subject=f"savepoint {savepoint.id}", problem=f"missing={missing[0]}")


def _snapshot(
    store: TableStore, subject: str, snapshot: Snapshot, sizes: dict[str, int | None], *, has_delta: bool
) -> Iterator[Finding]:
    try:
        live = LiveFiles(store, snapshot)
        metadata = metadata_files(store, snapshot, with_changelog=has_delta)
        delta = delta_entries(store, snapshot) if has_delta else []
    except (FileNotFoundError, FluvialError) as error:
        broken = list(_broken_manifests(store, snapshot, with_changelog=has_delta))
        for problem in broken or [str(error)]:
            yield Finding(check="manifests", subject=subject, problem=problem)
        return
    for path in sorted(metadata.leaves):
        if _size(store, path, sizes) is None:
            yield Finding(check="manifests", subject=subject, problem=f"missing={path}")
    yield from _files(store, subject, live, sizes)
    yield from _vectors(store, subject, live, sizes)
    rows = sum(file.row_count for key in live.all_buckets() for file in live.files(key))
    if snapshot.total_record_count not in (None, rows):
        problem = f"says={snapshot.total_record_count} files={rows}"
        yield Finding(check="total_record_count", subject=subject, problem=problem)
    changed = sum(entry.file.row_count * (1 if entry.kind is EntryKind.ADD else -1) for entry in delta)
    if has_delta and snapshot.delta_record_count not in (None, changed):
        problem = f"says={snapshot.delta_record_count} files={changed}"
        yield Finding(check="delta_record_count", subject=subject, problem=problem)


def _changelog(store: TableStore, subject: str, snapshot: Snapshot, sizes: dict[str, int | None]) -> Iterator[Finding]:
    """Check the files that a changelog needs; other files of its snapshot were deleted on expiry."""
    needed = changes_list(store, snapshot)
    try:
        manifests = [] if needed is None else store.manifests.read_list(*needed)
        entries = [entry for each in manifests for entry in store.manifests.read_manifest(each)]
    except FluvialError as error:
        yield Finding(check="manifests", subject=subject, problem=_missing_or(error))
        return
    for entry in entries:
        if entry.kind is EntryKind.ADD:
            yield from _file(store, subject, BucketKey(entry.partition, entry.bucket), entry.file, sizes)


def _broken_manifests(store: TableStore, snapshot: Snapshot, *, with_changelog: bool) -> Iterator[str]:
    """The problem of each manifest list and manifest that cannot be read."""
    lists = [
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ]
    if with_changelog and snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    for name, size_bytes in lists:
        try:
            manifests = store.manifests.read_list(name, size_bytes)
        except FluvialError as error:
            yield _missing_or(error)
            continue
        for manifest in manifests:
            try:
                store.manifests.read_manifest(manifest)
            except FluvialError as error:
                yield _missing_or(error)
    if snapshot.index_manifest is not None:
        try:
            store.manifests.read_index_manifest(snapshot.index_manifest)
        except FluvialError as error:
            yield _missing_or(error)


def _missing_or(error: FluvialError) -> str:
    if isinstance(error, MissingFileError) and error.role is not None:
        return f"missing={error.filename} fix={error.role.repair('TABLE')}"
    return str(error)


def _files(store: TableStore, subject: str, live: LiveFiles, sizes: dict[str, int | None]) -> Iterator[Finding]:
    for key in live.all_buckets():
        for file in live.files(key):
            yield from _file(store, subject, key, file, sizes)
        if store.has_key:
            try:
                live.levels(key)
            except CorruptDataError as error:
                yield Finding(check="key ranges", subject=subject, problem=str(error))


def _file(
    store: TableStore, subject: str, key: BucketKey, file: DataFileMeta, sizes: dict[str, int | None]
) -> Iterator[Finding]:
    path = store.file_path(key.partition, key.bucket, file)
    size_bytes = _size(store, path, sizes)
    if size_bytes is None:
        yield Finding(check="data files", subject=subject, problem=f"missing={path}")
    elif size_bytes != file.size_bytes:
        problem = f"file={path} size_bytes={size_bytes} manifest={file.size_bytes}"
        yield Finding(check="data files", subject=subject, problem=problem)


def _vectors(store: TableStore, subject: str, live: LiveFiles, sizes: dict[str, int | None]) -> Iterator[Finding]:
    """Deletion vectors that are unreadable, or refer to missing rows.

    One of a file that is none of the snapshot is no problem: no reader looks for it, and Java's compactions leave some.
    """
    counts = {(key, file.file_name): file.row_count for key in live.all_buckets() for file in live.files(key)}
    for entry in index_files(store, live.snapshot):
        if _size(store, store.index_path(entry), sizes) is None:
            continue  # reported as a missing file
        try:
            deleted = read_deletion_vectors(store, [entry])
        except FluvialError as error:
            yield Finding(check="deletion vectors", subject=subject, problem=str(error))
            continue
        for name, positions in deleted.items():
            count = counts.get((BucketKey(entry.partition, entry.bucket), name))
            if count is not None and len(positions) and positions[-1] >= count:
                problem = f"index={entry.file_name} file={name} rows={count} last_deleted={positions[-1:].tolist()}"
                yield Finding(check="deletion vectors", subject=subject, problem=problem)


def _size(store: TableStore, path: str, sizes: dict[str, int | None]) -> int | None:
    """Size of a file, cached; None: the file is missing."""
    if path not in sizes:
        try:
            sizes[path] = store.io.size_bytes(path)
        except FileNotFoundError:
            sizes[path] = None
    return sizes[path]
