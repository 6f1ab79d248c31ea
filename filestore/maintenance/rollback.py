"""Rollback: resets a table to a snapshot or tag, and permanently deletes everything committed after it.

``plan_rollback`` finds what to remove, ``roll_back`` removes it, newest first, so that every intermediate state is one
that the table once had. Removed snapshot files are kept in ``rollback/`` until their data files are deleted: so an
interrupted rollback is completed by the next one, see ``rollback_run``. Snapshot ids are reused, so callers must
compare more than ids.
Source: Paimon RollbackHelper.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import orjson

from filestore.commit.committable import BATCH_IDENTIFIER, clear_old_name
from filestore.commit.expired_commits import ExpiredCommits
from filestore.maintenance.bucket_count import align_bucket_count
from filestore.maintenance.rollback_run import (
    RollbackRun,
    abandon_run,
    begin_run,
    delete_note,
    directory_of,
    end_run,
    find_run,
    keep_run,
    left_over,
    noted_references,
    own_paths,
    reference_path,
    write_note,
)
from filestore.refs.branch_origins import branch_made_from
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, tag_references
from filestore.refs.pending_tags import held_path, held_snapshots
from filestore.refs.removals import TAG_KINDS, Removal, unused_of, with_unused_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import (
    ConflictError,
    CorruptDataError,
    FluvialError,
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
)

_ACTIVE_MS: Final = 600_000  # streams that committed since then are considered running
_OF_TAGS: Final = ("tagCreateTime", "tagTimeRetained")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """The effects of a rollback."""

    target: Snapshot
    target_tag: str | None  # the tag that keeps it, if the snapshot itself has expired
    previous_id: int | None  # the newest snapshot before the rollback
    removals: tuple[Removal, ...]  # newest first; tags before their snapshot
    current_id: int  # the newest snapshot behind it: the target, or the commit of a table with a log
    objections: tuple[str, ...]  # reasons against it, unless forced
    elsewhere: frozenset[LiveReference] = frozenset()  # of other branches, which may share what is removed


def plan_rollback(store: TableStore, target: Snapshot) -> RollbackPlan:
    """Plan the rollback to a snapshot, without effects; of a table with a log only later tags go.

    Args:
        store: the table, on the branch to roll back.
        target: a snapshot of that branch, or one kept by a tag.

    Raises:
        InvalidInputError: it is not possible: a branch or savepoint is newer than the target.
        CorruptDataError: another live reference has missing files, so the files it uses are unknown.
    """
    live = all_references(store)
    later = [each for each in live if each.branch == store.paths.branch and each.snapshot_id > target.id]
    for reference in later:
        branch = _branch_of(store, reference)
        if branch is not None or reference.kind not in (
            ReferenceKind.SNAPSHOT,
            ReferenceKind.TAG,
            ReferenceKind.PENDING,
            ReferenceKind.CHANGELOG,
        ):
            fix = f"delete the branch {branch}" if branch is not None else f"delete the {reference.kind.value}"
            raise InvalidInputError(
                f"a newer branch or savepoint prevents the rollback: table={store.name} "
                f"snapshot={target.id} later={reference} fix='{fix} first, or use rollback_to_as_latest'"
            )
    if store.has_log:
        later = [each for each in later if each.kind in TAG_KINDS]
    run, line = find_run(store), store.snapshots.line()
    is_begun = run is not None and run.is_decided and run.goes_to(target.ref)  # then expiries wait for it
    target_tag = _tag_of(store, target)
    if not is_begun and target_tag is None and not (line.first or 0) <= target.id <= (line.newest or 0):
        raise ConflictError(
            f"the snapshot is not in the history, or is about to expire: table={store.name} snapshot={target.id} "
            f"earliest={line.first} latest={line.newest} fix='roll back to one of these, or to a tag'"
        )
    removed = _newest_first(store, [*later, *left_over(store, later)])
    removals = tuple(Removal(reference=reference, snapshot=snapshot) for reference, snapshot in removed)
    kept = [reference for reference in live if reference not in later]
    if store.snapshots.find_ref(target.ref) is None:
        kept.append(_reference_to(store, target))
    removals = with_unused_files(store, target, removals, kept)
    return RollbackPlan(
        target=target,
        target_tag=None if store.snapshots.find_ref(target.ref) is not None else target_tag,
        previous_id=store.snapshots.latest_id(),
        removals=removals,
        current_id=(store.snapshots.latest_id() or 0) + 1 if store.has_log else target.id,
        objections=() if store.has_log else tuple(_objections(store, target, [each.snapshot for each in removals])),
        elsewhere=frozenset(each for each in live if each.branch != store.paths.branch),
    )


def roll_back(store: TableStore, plan: RollbackPlan, *, dead_run: str | None = None) -> None:
    """Execute a plan, despite its objections. After an error, plan and run again.

    Nothing is removed before the rollback is decided, see ``rollback_run``. If its process dies after that, commits are
    refused until ``repair_rollback`` completes the rollback.

    Args:
        store: the table, on the branch.
        plan: of this branch.
        dead_run: the run of a process that has ended; it is completed.

    Raises:
        ConflictError: another writer committed or tagged concurrently, or another rollback is in progress; nothing was
            removed: plan again.
        OutcomeUnknownError: the table was dropped or renamed meanwhile: plan again under its new name.
        UnavailableError: a file system error: plan again, or run repair where the message says so.
    """
    if store.has_log:
        raise InvalidInputError(
            f"records in a log cannot be undone: table={store.name} snapshot={plan.target.id} "
            "fix='write the older rows by a new commit: rollback_to_as_latest'"
        )
    store = store.as_found
    mine = RollbackRun(run=store.names.uuid(), target=plan.target.ref)
    try:
        run = begin_run(store, mine, dead_run=dead_run)
        if run.is_decided:
            plan = replace(plan, removals=tuple(_noted(store)))
        else:
            _announce(store, plan)
            run = keep_run(store, replace(run, is_decided=True))
        _carry_out(store, plan, run)
    except (FluvialError, OSError) as error:
        _abandon(store, mine, error)
        raise
    store.refs_changed()


def _abandon(store: TableStore, mine: RollbackRun, reason: Exception) -> None:
    """Undo what was refused. When that fails, its notes refuse commits, and the reason does not say what is to do.

    Raises:
        UnavailableError: files cannot be changed.
        OutcomeUnknownError: the table was dropped, or renamed with the notes.
    """
    is_refused = isinstance(reason, ConflictError | InvalidInputError)
    try:
        abandon_run(store, mine)
    except (FluvialError, OSError) as error:
        if is_refused:
            raise UnavailableError(
                f"its notes could not be deleted, so the refused rollback is not undone, and no commit is possible: "
                f"table={store.name} branch={store.paths.branch} reason='{reason}' cause='{error}' "
                "fix='run repair on the table'"
            ) from reason
        return
    if is_refused and not store.is_as_opened():
        raise OutcomeUnknownError(
            f"the table was dropped or renamed while a rollback was refused, which may not be undone: "
            f"table={store.name} branch={store.paths.branch} reason='{reason}' "
            "fix='run repair on it under its new name'"
        ) from reason


def _noted(store: TableStore) -> Iterator[Removal]:
    """References that a decided rollback removes, newest first; their numbers may have been reused."""
    for reference, snapshot in _newest_first(store, [*noted_references(store)]):
        yield Removal(reference=reference, snapshot=snapshot)


def _announce(store: TableStore, plan: RollbackPlan) -> None:
    """Write notes of the references to remove, and then check for commits, tags and expiries since the plan.

    Raises:
        ConflictError: a commit, tag or expiry came first.
        OutcomeUnknownError: the table was dropped or renamed.
    """
    if plan.target_tag is not None:
        _hold_target(store, plan, plan.target_tag)
    snapshots = [each for each in plan.removals if each.reference.kind is ReferenceKind.SNAPSHOT]
    new = [each for each in snapshots if not store.snapshots.removed.has(each.snapshot.identity)]
    for removal in plan.removals:
        write_note(store, removal.reference, removal.snapshot)
    _check_same_table(store, plan, ())
    for removal in new:
        if store.snapshots.find_ref(removal.snapshot.ref) is None:
            # its writer has taken it back, and commits its files again unless it has seen the note
            delete_note(store, removal.reference)
            store.snapshots.removed.remove(removal.snapshot.identity)
            raise _is_superseded(store, removal.snapshot.id)
    planned = {each.reference.snapshot_id: each.snapshot for each in snapshots}
    for snapshot_id in store.snapshots.ids():
        if snapshot_id > plan.target.id:
            found = store.snapshots.find(snapshot_id)
            known = planned.get(snapshot_id)
            if found is not None and (known is None or found.ref != known.ref):
                raise _is_superseded(store, snapshot_id)
    is_kept = store.snapshots.find_ref(plan.target.ref) is not None
    if plan.target_tag is None and (not is_kept or store.snapshots.claimed_up_to() > plan.target.id):
        raise _is_superseded(store, plan.target.id)
    _check_not_referenced(store, plan)


def _hold_target(store: TableStore, plan: RollbackPlan, tag: str) -> None:
    """Hold a target that only a tag keeps, and then check that the tag still keeps the target.

    Raises: ConflictError: the tag was deleted, renamed or moved.
    """
    with suppress(FileNotFoundError):
        body = orjson.loads(store.io.read_bytes(store.paths.tag(tag)))
        kept = {key: value for key, value in body.items() if key not in _OF_TAGS}
        text = orjson.dumps(kept, option=orjson.OPT_INDENT_2)
        if Snapshot.from_json(text, source=store.paths.tag(tag)).ref == plan.target.ref:
            store.io.replace(held_path(store.paths, tag, plan.target), text)
    found = store.snapshots.find_tag(tag)
    if found is None or found.ref != plan.target.ref:
        raise ConflictError(
            f"the tag that keeps the target was deleted, renamed or moved during the rollback: table={store.name} "
            f"tag={tag} snapshot={plan.target.id} fix='run it again'"
        )


def _body_of_target(store: TableStore, plan: RollbackPlan) -> bytes:
    """The file of a target that has expired."""
    held = (path for path, snapshot in held_snapshots(store) if snapshot.ref == plan.target.ref)
    path = next(held, None)
    if path is None:
        raise CorruptDataError(
            f"a rollback was interrupted, and its target is not there any more: table={store.name} "
            f"snapshot={plan.target.id} fix='roll back to a tag'"
        )
    return store.io.read_bytes(path)


def _carry_out(store: TableStore, plan: RollbackPlan, run: RollbackRun) -> None:
    io, paths, snapshots, target = store.io, store.paths, store.snapshots, plan.target
    if snapshots.removed.has(target.identity):  # a tag of it was left: commits follow it again
        snapshots.removed.remove(target.identity)
    there = snapshots.find(target.id)
    if there is not None and there.ref != target.ref:  # a fork, in the number of a target that has expired
        snapshots.removed.add(there.identity)
        store.delete_snapshot(there)
        there = None
    if there is None:
        io.create_exclusive(paths.snapshot(target.id), _body_of_target(store, plan))
    # the hint must never be ahead: readers trust it when there is no next snapshot
    io.replace(paths.latest_hint, str(target.id).encode())
    for consumer, next_id in store.consumers.next_snapshots().items():
        if next_id > target.id + 1:
            store.consumers.write(consumer, target.id + 1, may_go_back=True)
    removed: list[tuple[str, bytes]] = []
    try:
        for removal in plan.removals:
            _remove(store, removal, removed)
    except ConflictError:
        _put_back(store, plan, run, removed)
        raise
    _check_same_table(store, plan, removed)
    if max(snapshots.claims.highest_id(), snapshots.hints()[0] or 0) > target.id:
        ExpiredCommits(store).forget_after(target.id)
        snapshots.release_claims(target.id)
    # from here on nothing new can refer to the removed snapshots
    _delete_files(store, target, plan.removals)
    _check_same_table(store, plan, removed)
    align_bucket_count(store)
    end_run(store)


def _check_same_table(store: TableStore, plan: RollbackPlan, removed: Sequence[tuple[str, bytes]]) -> None:
    """Look whether the removals were in the table that was opened; else delete what was left under its old name.

    Raises: OutcomeUnknownError.
    """
    if store.is_as_opened():
        return
    paths = store.paths
    notes = own_paths(store, (replace(each.reference, snapshot=each.snapshot) for each in plan.removals))
    if plan.target_tag is not None:
        notes.append(held_path(paths, plan.target_tag, plan.target))
    clear_old_name(
        store, [*notes, *(path for path, _ in removed)], [directory_of(store), paths.removed_dir, paths.tag_dir]
    )
    raise OutcomeUnknownError(
        f"table was dropped or renamed during the rollback: table={store.name} snapshot={plan.target.id} "
        "fix='open it again under its new name and run it again'"
    )


def _remove(store: TableStore, removal: Removal, removed: list[tuple[str, bytes]]) -> None:
    """Delete the file of a snapshot or tag, and append it to what was removed.

    Commits that find the notes take themselves back. Other engines do not look for notes: what they commit on top of
    the newest snapshot stops the rollback as long as it has removed nothing else.

    Raises: ConflictError: another engine follows the snapshot.
    """
    path, following = reference_path(store, removal.reference), removal.reference.snapshot_id + 1
    is_snapshot = removal.reference.kind is ReferenceKind.SNAPSHOT
    if is_snapshot and _is_followed_by_others(store, following):
        raise _is_superseded(store, following)
    with suppress(FileNotFoundError):  # removed by an interrupted rollback
        body = store.io.read_bytes(path)
        if is_snapshot and Snapshot.from_json(body, source=path).ref != removal.snapshot.ref:
            return  # removed by an interrupted rollback, and its number was used again
        removed.append((path, body))
        store.delete_own(path, body)
    if is_snapshot and _is_followed_by_others(store, following):
        raise _is_superseded(store, following)


def _is_followed_by_others(store: TableStore, following: int) -> bool:
    found = store.snapshots.find(following)
    return found is not None and found.parent is None


def _check_not_referenced(store: TableStore, plan: RollbackPlan) -> None:
    """Tags and savepoints are visible before they look for notes: so one that found none is seen here.

    Raises: ConflictError.
    """
    removed = {each.snapshot.identity for each in plan.removals if each.reference.kind is ReferenceKind.SNAPSHOT}
    planned = {each.reference for each in plan.removals} | plan.elsewhere
    for reference in all_references(store):
        if reference.snapshot is not None and reference.snapshot.identity in removed and reference not in planned:
            raise ConflictError(
                f"a snapshot was tagged during the rollback: table={store.name} snapshot={reference.snapshot_id} "
                f"reference={reference} fix='run it again'"
            )


def _put_back(store: TableStore, plan: RollbackPlan, run: RollbackRun, removed: Sequence[tuple[str, bytes]]) -> None:
    """Undo the removals of a rollback that another engine overtook; oldest first, so that there is never a gap.

    Raises: OutcomeUnknownError: the table of the removals was dropped or renamed.
    """
    for path, body in reversed(removed):
        store.io.create_exclusive(path, body)
    store.snapshots.repair_latest_hint()
    keep_run(store, replace(run, is_decided=False))
    if removed:
        _check_same_table(store, plan, removed)


def _is_superseded(store: TableStore, snapshot_id: int) -> ConflictError:
    return ConflictError(
        f"another writer committed during the rollback, or an expiry began: table={store.name} snapshot={snapshot_id} "
        "fix='stop its writers and run it again'"
    )


def _objections(store: TableStore, target: Snapshot, removed: Sequence[Snapshot]) -> Iterator[str]:
    since_ms = store.clock.now_ms() - _ACTIVE_MS
    writers = sorted(
        {each.commit_user for each in removed if each.commit_identifier != BATCH_IDENTIFIER and each.time_ms > since_ms}
    )
    if writers:
        minutes = _ACTIVE_MS // 60_000
        yield f"a stream committed in the last {minutes} minutes and may be running: commit_user={writers[0]}"
    for consumer, next_id in store.consumers.next_snapshots().items():
        if next_id > target.id + 1:
            yield f"a reader has advanced further: consumer={consumer} next_snapshot={next_id}"
    earliest = store.snapshots.earliest_id() or 0
    if target.id < earliest and ExpiredCommits(store).after(target.id):
        yield "streams with expired commits wrote after it, and would not detect the loss of these commits"


def _newest_first(store: TableStore, references: Sequence[LiveReference]) -> list[tuple[LiveReference, Snapshot]]:
    found = []
    for reference in sorted(references, key=lambda each: (each.snapshot_id, each.kind in TAG_KINDS), reverse=True):
        snapshot = reference.snapshot or store.snapshots.find(reference.snapshot_id)
        if snapshot is not None:
            found.append((replace(reference, snapshot=snapshot), snapshot))
    return found


def finish_without_target(store: TableStore, run: RollbackRun) -> bool:
    """Complete a decided rollback that died behind its removals, when others expire its target, or have expired it.

    Returns: False: what it removes is still there.
    """
    removals = tuple(_noted(store))
    snapshots = (each.snapshot for each in removals if each.reference.kind is ReferenceKind.SNAPSHOT)
    if any(store.snapshots.find_ref(each.ref) is not None for each in snapshots):
        return False
    _delete_files(store, None, removals)
    align_bucket_count(store)
    end_run(store)
    return True


def _delete_files(store: TableStore, target: Snapshot | None, removals: Sequence[Removal]) -> None:
    """Delete what only removed snapshots and tags use, and their notes."""
    for done in unused_of(store, target, removals):
        files = (file.path for file in done.data)
        for path in (*files, *sorted(done.metadata.leaves), *sorted(done.metadata.lists)):
            store.delete_file(path)
        delete_note(store, done.reference)


def _reference_to(store: TableStore, target: Snapshot) -> LiveReference:
    name = str(target.id)
    return LiveReference(
        kind=ReferenceKind.SNAPSHOT, branch=store.paths.branch, name=name, snapshot_id=target.id, snapshot=target
    )


def _branch_of(store: TableStore, reference: LiveReference) -> str | None:
    """The branch that was created from a tag."""
    if reference.kind is not ReferenceKind.TAG or reference.snapshot is None:
        return None
    return branch_made_from(store, reference.name, reference.snapshot)


def _tag_of(store: TableStore, target: Snapshot) -> str | None:
    found = (each.name for each in tag_references(store) if each.snapshot and each.snapshot.ref == target.ref)
    return next(found, None)
