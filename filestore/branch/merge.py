"""Merging a branch into main: one commit, with a decision per bucket.

A merge is an ordinary commit: atomic for readers, concurrent with live writers of main as these are with each
other, and streams get its exact difference. Files of the branch are copied under new names, so no file is shared
afterwards: expiring either, by any engine, does not affect the other.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from filestore.branch.branches import opened_on_main, read_branch
from filestore.branch.merge_plan import (
    BucketPlace,
    MergeCommit,
    MergeOutcome,
    PlaceChange,
    SideChanges,
    bucket_counts,
    outcomes,
    place_changes,
    side_changes,
    unknown_changes,
)
from filestore.branch.merged_schemas import MergedSchemas, merged_schemas
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.layout.branch_state import BranchOrigin, Operation, Work, working
from filestore.maintenance.rewriting import copy_data_file
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.refs.branch_origins import origin_of
from filestore.refs.live_references import on_branch
from filestore.scan.live_files import BucketKey
from filestore.scan.snapshot_files import delta_entries, live_files, live_files_of_partitions
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from lsm.retry import LostRaceError, retrying
from lsm.undo import undoing_unless_visible

MERGED_BRANCH_KEY: Final = "fluvial.merged-branch"
"""Property of a merge snapshot: name of the branch."""
MERGED_SNAPSHOT_KEY: Final = "fluvial.merged-snapshot"
"""Property of a merge snapshot: the newest merged snapshot of the branch."""
MERGED_ORIGIN_KEY: Final = "fluvial.merged-origin"
"""Property of a merge snapshot: creation time of the branch, epoch milliseconds."""
_ATTEMPTS: Final = 10
_CONFLICTS_LISTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a merge."""

    branch: str
    snapshot: Snapshot | None  # of main; None: the branch had no new changes
    bucket_count: int = 0  # changed buckets
    file_count: int = 0  # files from the branch
    size_bytes: int = 0  # of these files


def merge_branch(store: TableStore, name: str, *, force: bool = False, only_at: int | None = None) -> MergeResult:
    """Merge the changes of a branch since its origin, or since its last merge, into main by one commit.

    A bucket changed by one side gets that side's state; compactions are not changes. Where both changed, tables
    without a key get the new rows of both. The branch does not change. Idempotent: rerun it after a crash.

    Args:
        store: table on any branch.
        name: name of the branch.
        force: where both changed a bucket and the rows cannot be combined, the branch's state wins.
        only_at: expected newest snapshot of the branch; None: any.

    Raises:
        ConflictError: both sides changed the named buckets, or both changed the schema, the branch was
            written concurrently, or all retries lost against writers of main; nothing is visible.
        InvalidInputError: no such branch, or one that shares no history with main.
        OutcomeUnknownError: the merge may be visible: run it again.
    """
    main = opened_on_main(store)
    read_branch(main, name)
    branch = on_branch(main, name)
    copies: dict[tuple[BucketPlace, str], DataFileMeta] = {}
    with working(store.io, branch.paths, Work(operation=Operation.MERGE)):
        read_branch(main, name)  # it may have been deleted before this operation began
        origin = origin_of(main, name)
        with undoing_unless_visible(lambda: _delete_copies(main, copies)):
            return retrying(
                lambda: _commit_merge(main, branch, origin, copies, force=force, only_at=only_at),
                attempts=_ATTEMPTS,
                on=LostRaceError,
            )


def common_snapshot(main: TableStore, branch: TableStore, origin: BranchOrigin) -> Snapshot | None:
    """The newest snapshot that main and a branch share; None: the branch was created empty.

    Raises: InvalidInputError when there is none although the branch was created from one.
    """
    if origin.snapshot_id is None:
        return None
    newest = min(main.snapshots.latest_id() or 0, branch.snapshots.latest_id() or 0)
    for snapshot_id in range(newest, origin.snapshot_id, -1):
        there = branch.snapshots.find(snapshot_id)
        if there is not None and _is_same(main.snapshots.find(snapshot_id), there):
            return there
    kept = branch.snapshots.find_tag(origin.tag or "") or branch.snapshots.find(origin.snapshot_id)
    known = main.snapshots.find_tag(origin.tag or "") or main.snapshots.find(origin.snapshot_id)
    if kept is None or not _is_same(known, kept):
        raise InvalidInputError(
            f"the branch no longer shares a snapshot with main: table={main.name} branch={branch.paths.branch} "
            f"origin={origin.snapshot_id} fix=read it and write its rows to main, or make it main"
        )
    return kept


def data_commits_since(store: TableStore, common: Snapshot | None) -> list[int] | None:
    """Ids of snapshots after a common one that changed rows; None: unknown, because some have expired."""
    history = _history(store, common, store.snapshots.latest())
    return None if history is None else [each.id for each, commit in history if side_changes([commit]).changed]


# ---- one merge


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """The changes to commit to main."""

    latest: Snapshot | None  # main's newest snapshot at the decision
    merged: Snapshot  # the branch's newest snapshot
    changes: Mapping[BucketPlace, PlaceChange]


def _commit_merge(
    main: TableStore,
    branch: TableStore,
    origin: BranchOrigin,
    copies: dict[tuple[BucketPlace, str], DataFileMeta],
    *,
    force: bool,
    only_at: int | None,
) -> MergeResult:
    """Try once. Raises: LostRaceError when another attempt may succeed; it reuses the files that were copied."""
    lost = f"lost {_ATTEMPTS} races with writers of main: table={main.name} branch={branch.paths.branch}: merge again"
    schemas = merged_schemas(main, branch, origin)
    decided = _decide(main, branch, origin, force=force, only_at=only_at)
    if decided is None:
        return MergeResult(branch=branch.paths.branch, snapshot=None)
    try:
        messages = [_message(main, place, each, schemas, copies) for place, each in sorted(decided.changes.items())]
    except FileNotFoundError as error:  # the branch was compacted and expired concurrently
        raise LostRaceError(lost) from error
    schemas.publish()
    commit = TableCommit(main, main.new_commit_user(), history_start=decided.latest.id if decided.latest else 0)
    committable = Committable(
        identifier=BATCH_IDENTIFIER,
        messages=messages,
        watermark=decided.merged.watermark,
        properties=_merge_properties(branch, origin, decided.merged),
        changes=ChangeSource.FILES if main.options.change_tracking else ChangeSource.NONE,
    )
    try:
        done = commit.replace_files(committable, only_after=decided.latest.id if decided.latest else 0)
    except ConflictError as error:
        raise LostRaceError(lost) from error
    used = {file.file_name for message in messages for file in message.compact_after}
    _delete_copies(main, {key: file for key, file in copies.items() if file.file_name not in used})
    return MergeResult(
        branch=branch.paths.branch,
        snapshot=done.snapshot,
        bucket_count=len(messages),
        file_count=len(used),
        size_bytes=sum(file.size_bytes for message in messages for file in message.compact_after),
    )


def _decide(
    main: TableStore, branch: TableStore, origin: BranchOrigin, *, force: bool, only_at: int | None
) -> _Decided | None:
    """The changes that a merge would make now; None: the branch has no changes since the last one."""
    latest, newest = main.snapshots.latest(), branch.snapshots.latest()
    if only_at is not None and (newest is None or newest.id != only_at):
        raise ConflictError(
            f"the branch was written during the merge: table={main.name} branch={branch.paths.branch} "
            f"wanted_snapshot={only_at} newest={None if newest is None else newest.id}"
        )
    common = common_snapshot(main, branch, origin)
    if newest is None or (common is not None and newest.id <= common.id):
        return None
    for snapshot in (latest, newest):
        if snapshot is not None and snapshot.index_manifest is not None:
            raise InvalidInputError(
                f"cannot merge a table with deletion vectors or an index: table={main.name} snapshot={snapshot.id} "
                "fix='compact both sides fully before, fast_forward, or replace_main_branch'"
            )
    history = _history(main, common, latest)
    merged_to, start = _last_merge(branch, origin, history), common
    if merged_to == newest.id:
        return None
    if merged_to is not None:
        start = branch.snapshots.find(merged_to) or common
    main_changes = _changes(main, common, latest, history, ignored=lambda each: _is_merge_of(each, branch, origin))
    branch_changes = _changes(branch, start, newest, _history(branch, start, newest))
    decided = outcomes(main_changes, branch_changes, can_unite=not main.has_key, force=force)
    _check_no_conflict(main, branch, decided)
    partitions = {partition for partition, _ in decided}
    here = live_files_of_partitions(main, latest, partitions)
    there = live_files_of_partitions(branch, newest, partitions)
    counts = {*main_changes.bucket_counts, *branch_changes.bucket_counts, *bucket_counts([*here, *there])}
    _check_not_rescaled(main, branch, partitions, counts)
    changes = place_changes(decided, main=here, branch=there, added=branch_changes.added)
    return _Decided(latest=latest, merged=newest, changes=changes)


def _message(
    main: TableStore,
    place: BucketPlace,
    change: PlaceChange,
    schemas: MergedSchemas,
    copies: dict[tuple[BucketPlace, str], DataFileMeta],
) -> CommitMessage:
    """The commit message of one bucket. Added files are copied once, even if the merge is decided several times."""
    partition, bucket = place
    added = []
    for entry in change.added:
        key = (place, entry.file.file_name)
        if key not in copies:
            copies[key] = copy_data_file(main, BucketKey(partition, bucket), entry.file)
        # same bytes, but a compaction in the branch may have moved the file to another level in the meantime
        name = copies[key].file_name
        schema_id = schemas.id_of(entry.file.schema_id)
        added.append(replace(entry.file, file_name=name, extra_files=(), external_path=None, schema_id=schema_id))
    return CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=(*change.added, *change.removed)[0].total_buckets,
        compact_before=tuple(each.file for each in change.removed),
        compact_after=tuple(added),
    )


def _merge_properties(branch: TableStore, origin: BranchOrigin, merged: Snapshot) -> Mapping[str, str]:
    return {
        MERGED_BRANCH_KEY: branch.paths.branch,
        MERGED_SNAPSHOT_KEY: str(merged.id),
        MERGED_ORIGIN_KEY: str(origin.created_ms),
    }


def _delete_copies(main: TableStore, copies: Mapping[tuple[BucketPlace, str], DataFileMeta]) -> None:
    for ((partition, bucket), _), file in copies.items():
        with suppress(FluvialError, OSError):  # an orphan only costs space
            main.io.delete(f"{main.bucket_dir(partition, bucket)}/{file.file_name}")


# ---- changes of both sides

_History = list[tuple[Snapshot, MergeCommit]]


def _history(store: TableStore, after: Snapshot | None, until: Snapshot | None) -> _History | None:
    """The commits after one snapshot up to another, oldest first; None when some have expired."""
    found: _History = []
    for snapshot_id in range(1 if after is None else after.id + 1, 1 if until is None else until.id + 1):
        try:
            snapshot = store.snapshots.read(snapshot_id)
            found.append((snapshot, MergeCommit(kind=snapshot.commit_kind, entries=delta_entries(store, snapshot))))
        except FileNotFoundError:
            return None
    return found


def _last_merge(branch: TableStore, origin: BranchOrigin, history: _History | None) -> int | None:
    """The snapshot of the branch that was merged last."""
    merges = [each for each, _ in history or () if _is_merge_of(each, branch, origin)]
    return int(merges[-1].properties[MERGED_SNAPSHOT_KEY]) if merges else None


def _is_merge_of(snapshot: Snapshot, branch: TableStore, origin: BranchOrigin) -> bool:
    return MERGED_BRANCH_KEY in snapshot.properties and snapshot.properties.get(MERGED_ORIGIN_KEY) == str(
        origin.created_ms
    )


def _is_same(one: Snapshot | None, other: Snapshot) -> bool:
    """Whether two branches have the same snapshot; copies may lack log offsets."""
    return one is not None and (one.id, one.delta_manifest_list, one.base_manifest_list) == (
        other.id, other.delta_manifest_list, other.base_manifest_list
    )  # fmt: skip


def _changes(
    store: TableStore,
    after: Snapshot | None,
    until: Snapshot | None,
    history: _History | None,
    ignored: Callable[[Snapshot], bool] = lambda _: False,
) -> SideChanges:
    if history is None:
        return unknown_changes(live_files(store, after), live_files(store, until))
    return side_changes(commit for snapshot, commit in history if not ignored(snapshot))


def _check_no_conflict(main: TableStore, branch: TableStore, decided: Mapping[BucketPlace, MergeOutcome]) -> None:
    both = sorted(place for place, outcome in decided.items() if outcome is MergeOutcome.CONFLICT)
    if both:
        buckets = [
            f"{main.partition_values(partition)}/bucket-{bucket}" for partition, bucket in both[:_CONFLICTS_LISTED]
        ]
        raise ConflictError(
            f"main and the branch both changed rows of the same buckets: table={main.name} "
            f"branch={branch.paths.branch} buckets={buckets} count={len(both)} "
            "fix=merge with force, then the branch's rows win; or write its rows to main"
        )


def _check_not_rescaled(
    main: TableStore, branch: TableStore, partitions: Collection[bytes], counts: Iterable[tuple[bytes, int]]
) -> None:
    """Refuse partitions with different bucket counts on both sides: their buckets cannot be compared."""
    known: dict[bytes, int] = {}
    for partition, count in counts:
        if partition in partitions and known.setdefault(partition, count) != count:
            raise InvalidInputError(
                f"a partition was rescaled since the branch began: table={main.name} branch={branch.paths.branch} "
                f"partition={main.partition_values(partition)} buckets={sorted({count, known[partition]})} "
                "fix=write the branch's rows to main"
            )
