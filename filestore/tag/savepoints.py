"""Creation and deletion of savepoints.

A savepoint is created from a compacted state: the table is compacted, a snapshot with all data in its base list is
published, and the savepoint file, created exclusively, makes it a live reference. Only then the snapshot is tagged,
so that engines without savepoints keep its files; if the tag is missing, the next savepoint recreates it. So
after any crash, an existing savepoint is readable.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import compact_buckets
from filestore.layout.paths import SAVEPOINT_PREFIX
from filestore.manifest.commit_message import PURPOSE_KEY
from filestore.refs.branch_origins import record_origin
from filestore.refs.file_references import FileSize
from filestore.refs.keeping import with_pending_tag
from filestore.refs.live_references import LiveReference, ReferenceKind
from filestore.refs.pending_tags import remove_leftover
from filestore.refs.savepoint_files import (
    FIRST_SAVEPOINT_ID,
    SavedCheckpoint,
    Savepoint,
    list_savepoints,
    read_savepoint,
    savepoint_exists,
    savepoint_ids,
)
from filestore.refs.unused_files import delete_unreferenced
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import check_no_branch, is_tag_reference
from lsm.errors import ConflictError, InvalidInputError

logger = logging.getLogger("fluvial.tags")

PURPOSE: Final = "savepoint"
_LATEST: Final = "LATEST"  # the highest id ever used, so that none is reused

KeepCheckpoints = Callable[[Snapshot], Sequence[SavedCheckpoint]]
"""Copies checkpoints next to the savepoint that is being created from a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSavepoint:
    """A deleted savepoint, and the files that only it used."""

    savepoint: Savepoint
    data: tuple[FileSize, ...] = ()
    metadata: frozenset[str] = frozenset()


def create_savepoint(
    store: TableStore, *, compact: bool = True, keep_checkpoints: KeepCheckpoints = lambda _: ()
) -> Savepoint:
    """Save the newest state of a table.

    Args:
        store: the table, on the branch to save.
        compact: merge every bucket into one run first; concurrent appends are saved uncompacted.
        keep_checkpoints: called with the saved snapshot before the savepoint is created.

    Raises:
        InvalidInputError: the table has no snapshot.
        ConflictError: other writers kept replacing the same files, or the saved snapshot expired concurrently: there
            is no savepoint.
        OutcomeUnknownError: the savepoint may exist; or main was replaced meanwhile, and it does not.
    """
    _newest(store)
    if compact:
        _compact(store)
    snapshot = _self_contained_snapshot(store)
    checkpoints = tuple(keep_checkpoints(snapshot))
    created: list[Savepoint] = []
    record_origin(store)

    def create(store: TableStore) -> None:
        created.append(_create(store, snapshot, checkpoints))
        renew_tags(store)

    def undo(store: TableStore) -> None:
        for path in (store.paths.tag(created[0].tag_name), store.paths.savepoint(created[0].id)):
            remove_leftover(store, path)

    with_pending_tag(store, PURPOSE, snapshot, create, undo=undo, purpose="saved")
    return created[0]


def delete_savepoint(store: TableStore, savepoint_id: int, *, dry_run: bool = False) -> DeletedSavepoint:
    """Delete a savepoint, its tag, and the files that nothing else uses.

    Idempotent: rerun it after a crash; files that remain after the savepoint's deletion are found as
    orphans.

    Raises:
        InvalidInputError: there is no such savepoint, or a branch was created from its tag.
        ConflictError: main is being replaced; nothing is deleted.
        OutcomeUnknownError: the table or branch was dropped, renamed or replaced meanwhile: look there.
        CorruptDataError: another live reference lacks files, so the files it uses are unknown; nothing is deleted.
    """
    savepoint = read_savepoint(store, savepoint_id)
    check_no_branch(store, savepoint.tag_name, savepoint.snapshot)
    branch = store.paths.branch

    def is_deleted(reference: LiveReference) -> bool:
        named = (reference.branch, reference.name) == (branch, str(savepoint.id))
        is_own = reference.kind is ReferenceKind.SAVEPOINT and named
        return is_own or is_tag_reference(reference, branch, savepoint.tag_name, savepoint.snapshot)

    source = store.paths.savepoint(savepoint_id)

    def remove(store: TableStore) -> None:
        check_no_branch(store, savepoint.tag_name, savepoint.snapshot)
        record_origin(store)
        if savepoint_id == max(savepoint_ids(store), default=0):
            store.io.replace(_latest_path(store), str(savepoint_id).encode())
        tag = store.snapshots.find_tag(savepoint.tag_name)
        if tag is not None and tag.id == savepoint.saved_snapshot_id:
            store.delete_as_opened(store.paths.tag(savepoint.tag_name))
        store.delete_as_opened(source)
        if not store.is_as_opened():
            remove_leftover(store, _latest_path(store))

    unused = delete_unreferenced(
        store,
        savepoint.tag_name,
        savepoint.snapshot,
        is_deleted=is_deleted,
        source=source,
        remove=remove,
        dry_run=dry_run,
    )
    if not dry_run:
        for each in savepoint.checkpoints:
            store.io.delete_tree(f"{store.paths.savepoint_dir}/{each.directory}")
    own = frozenset(savepoint.own_paths(store.paths))
    return DeletedSavepoint(savepoint=savepoint, data=unused.data, metadata=unused.metadata | own)


def renew_tags(store: TableStore, *, dry_run: bool = False) -> list[Savepoint]:
    """Create missing tags of savepoints again, after a crash or a deletion by another engine; those without one."""
    names = set(store.snapshots.tag_names())
    missing = [savepoint for savepoint in list_savepoints(store) if savepoint.tag_name not in names]
    for savepoint in () if dry_run else missing:
        store.io.create_exclusive(store.paths.tag(savepoint.tag_name), savepoint.snapshot.to_json().encode())
    return missing


def adopt_savepoints(source: TableStore, target: TableStore, *, up_to: int, adopted: Callable[[bytes], bytes]) -> None:
    """Copy the savepoints of a branch that its successor has the history of; idempotent.

    A number that the successor has used for another savepoint is replaced by its next one.

    Args:
        source: the table, on the branch that ends, where savepoints can no longer be created.
        target: on the branch that follows it.
        up_to: the last snapshot that both have.
        adopted: the contents of a snapshot file as the target has it.

    """
    for savepoint in list_savepoints(source):
        known = {_origin_of(each) for each in list_savepoints(target)}
        if savepoint.saved_snapshot_id <= up_to and _origin_of(savepoint) not in known:
            following = max(_next_id(source), _next_id(target))
            _adopt(source, target, savepoint, _free_number(target, savepoint, following), adopted)
    highest = max(_next_id(source), _next_id(target)) - 1
    if highest >= FIRST_SAVEPOINT_ID:
        target.io.replace(_latest_path(target), str(highest).encode())


def _free_number(store: TableStore, savepoint: Savepoint, following: int) -> int:
    number = savepoint.id
    while True:
        tagged = store.snapshots.find_tag(f"{SAVEPOINT_PREFIX}{number}")
        is_others = tagged is not None and tagged.id != savepoint.saved_snapshot_id
        if not is_others and not savepoint_exists(store, number):
            return number
        logger.warning(
            "savepoint gets another number, its own is taken: table=%s branch=%s savepoint=%d new_number=%d",
            store.name, store.paths.branch, savepoint.id, following,
        )  # fmt: skip
        number, following = following, following + 1


def _adopt(
    source: TableStore, target: TableStore, savepoint: Savepoint, number: int, adopted: Callable[[bytes], bytes]
) -> None:
    for each in savepoint.checkpoints:
        for name in each.files:
            body = source.io.read_bytes(f"{source.paths.savepoint_dir}/{each.directory}/{name}")
            target.io.replace(f"{target.paths.savepoint_dir}/{each.directory}/{name}", body)
    body = adopted(savepoint.snapshot.to_json().encode())
    path = target.paths.savepoint(number)
    copied = replace(savepoint, id=number, snapshot=Snapshot.from_json(body, source=path))
    target.io.create_exclusive(path, copied.to_json().encode())
    if savepoint_exists(source, savepoint.id):
        target.io.create_exclusive(target.paths.tag(copied.tag_name), body)
    else:  # deleted concurrently, possibly with its files
        target.io.delete(path)


def _origin_of(savepoint: Savepoint) -> tuple[int, int, str]:
    """The origin that copies of a savepoint on other branches share."""
    return savepoint.saved_snapshot_id, savepoint.save_time_ms, savepoint.full_manifest_list


def _newest(store: TableStore) -> Snapshot:
    """The newest snapshot. Raises: InvalidInputError: there is none, or the table has another name by now."""
    latest = store.snapshots.latest()
    if latest is None:
        raise InvalidInputError(f"the table has no snapshot to save: table={store.name}")
    return latest


def _compact(store: TableStore) -> None:
    try:
        compact_buckets(store, full=True)
    except ConflictError as error:
        raise ConflictError(
            f"other writers kept compacting the same files, so there is no savepoint: table={store.name} cause={error} "
            "fix='run it again, let the stream create it (savepoint.create-interval), or save it with compact=false'"
        ) from error


def _self_contained_snapshot(store: TableStore) -> Snapshot:
    """The newest snapshot if all data is in its base list, else a new snapshot with the same files.

    The schema of the table is saved too: a newest snapshot of an older one is followed by one of the newest.
    """
    while True:
        latest = _newest(store)
        try:
            delta = store.manifests.read_list(latest.delta_manifest_list, latest.delta_manifest_list_size)
            if not delta and latest.schema_id >= store.schema.id:
                return latest
            break
        except FileNotFoundError:
            is_there = store.snapshots.find_ref(latest.ref) is not None
            if is_there and store.snapshots.claimed_up_to() <= latest.id:
                raise
            # others committed, and it expired: a newer one is saved
    commit = TableCommit(store, store.new_commit_user(), history_start=latest.id)
    snapshot = commit.merge_manifests({PURPOSE_KEY: PURPOSE}).snapshot
    assert snapshot is not None
    return snapshot


def _create(store: TableStore, snapshot: Snapshot, checkpoints: tuple[SavedCheckpoint, ...]) -> Savepoint:
    records = snapshot.total_record_count
    if records is None:  # written by a very old version
        records = sum(entry.file.row_count for entry in live_files(store, snapshot))
    savepoint_id = _next_id(store)
    while True:
        savepoint = Savepoint.of(
            snapshot,
            savepoint_id=savepoint_id,
            record_count=records,
            save_time_ms=store.clock.now_ms(),
            checkpoints=checkpoints,
        )
        is_free = not store.io.exists(store.paths.tag(savepoint.tag_name))  # else a user's tag
        if is_free and store.io.create_exclusive(store.paths.savepoint(savepoint_id), savepoint.to_json().encode()):
            return savepoint
        savepoint_id += 1


def _next_id(store: TableStore) -> int:
    try:
        hinted = int(store.io.read_bytes(_latest_path(store)))
    except (FileNotFoundError, ValueError):
        hinted = 0
    return max(hinted, FIRST_SAVEPOINT_ID - 1, *savepoint_ids(store)) + 1


def _latest_path(store: TableStore) -> str:
    return f"{store.paths.savepoint_dir}/{_LATEST}"
