"""Finds and repairs what paused or killed processes, and older versions, left in the history of a branch.

A history is one chain: each snapshot names the one before. A fork is a snapshot beside it, of a writer that was paused
and died before it could take its snapshot back, or of a version that did not look. Repair keeps the chain, moves each
readable fork to a tag, and sets the hints right.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from filestore.layout.branch_state import read_work
from filestore.layout.paths import MAIN_BRANCH
from filestore.maintenance.rollback import finish_without_target, plan_rollback, roll_back
from filestore.maintenance.rollback_run import RollbackRun, end_run, find_run, removed_snapshots, take_back_notes
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.file_references import data_files, metadata_files
from filestore.refs.live_references import FORK_TAG_PREFIX, branch_names, on_branch, tag_references
from filestore.refs.pending_tags import held_snapshots
from filestore.refs.savepoint_files import find_savepoint, savepoint_ids
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError

# ---- Tags, savepoints and snapshots that a process created when what they name had ended, and died before it saw
# that
#
# Who creates one looks behind its creation whether its snapshot, branch and table are still there, and takes it back
# otherwise. One that dies between the two, or whose request arrives after its sender gave up, leaves a name without
# files, which nothing else needs.


@dataclass(frozen=True, slots=True)
class LateReference:
    """A reference that keeps nothing."""

    branch: str
    kind: str  # tag, savepoint, or snapshot of a branch that is not there
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.branch == MAIN_BRANCH else f"{self.kind} {self.name} of {self.branch}"


def late_references(store: TableStore) -> Iterator[LateReference]:
    """The tags and savepoints of a branch that are of a former table, or of what a rollback removed.

    Those that cannot be decoded are not among them: ``verify`` names them.
    """
    for found, snapshot in _named(store):
        if not found.name.startswith(FORK_TAG_PREFIX) and _has_ended(store, snapshot):
            yield found


def references_of_gone_branches(store: TableStore) -> Iterator[LateReference]:
    """References left in directories of deleted branches, also of a former main branch, whose files are missing."""
    for branch in branch_names(store):
        there = on_branch(store, branch)
        if there.schemas.ids() or (branch != MAIN_BRANCH and read_work(store.io, there.paths) is not None):
            continue  # it is there, or about to be
        for snapshot_id in there.snapshots.ids():
            snapshot = there.snapshots.find(snapshot_id)
            if snapshot is not None and not has_all_files(store, snapshot):
                yield LateReference(branch, "snapshot", str(snapshot_id), there.paths.snapshot(snapshot_id))
        for found, snapshot in _named(there):
            if not has_all_files(store, snapshot):
                yield found


def remove_late_reference(store: TableStore, late: LateReference) -> None:
    """Delete its file, and directories that are empty then. Raises: UnavailableError."""
    paths = store.paths.with_branch(late.branch)
    store.io.delete(late.path)
    for directory in (late.path.rpartition("/")[0], paths.branch_root):
        if directory == store.paths.root or not store.io.delete_empty_directory(directory):
            break


def has_all_files(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether all files of a snapshot are there."""
    try:
        paths = metadata_files(store, snapshot, with_changelog=False).all | {
            each.path for each in data_files(store, snapshot)
        }
    except (FileNotFoundError, FluvialError):
        return False
    return all(store.io.exists(path) for path in sorted(paths))


def _named(store: TableStore) -> Iterator[tuple[LateReference, Snapshot]]:
    """The tags and savepoints of a branch, with their snapshots."""
    branch = store.paths.branch
    for name in store.snapshots.tag_names():
        with suppress(CorruptDataError):
            tag = store.snapshots.find_tag(name)
            if tag is not None:
                yield LateReference(branch, "tag", name, store.paths.tag(name)), tag
    for savepoint_id in savepoint_ids(store):
        with suppress(CorruptDataError):
            saved = find_savepoint(store, savepoint_id)
            if saved is not None:
                path = store.paths.savepoint(savepoint_id)
                yield LateReference(branch, "savepoint", str(savepoint_id), path), saved.snapshot


def _has_ended(store: TableStore, snapshot: Snapshot) -> bool:
    if not store.snapshots.removed.has(snapshot.identity) and not store.snapshots.is_of_other_table(snapshot):
        return False
    return not has_all_files(store, snapshot)


# ---- Finds and repairs what paused or killed processes, and older versions, left in the history of a branch


_NOTHING_MORE: Final = Retention(min_count=1, max_count=2**62, age_ms=0, limit=1)
"""Only what an interrupted expiry has claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """The history of one branch, as read from its files."""

    chain: tuple[Snapshot, ...]  # the snapshots of the table, ascending
    forks: tuple[Snapshot, ...] = ()
    expiring: tuple[Snapshot, ...] = ()  # before it: an expiry has claimed them, and has not ended
    missing_ids: tuple[int, ...] = ()  # inside the chain
    late: tuple[LateReference, ...] = ()  # without files, of processes that died
    earliest_hint: int | None = None
    latest_hint: int | None = None

    @property
    def has_wrong_hint(self) -> bool:
        """Whether a hint names another snapshot than the first or last of the chain; a missing hint is not wrong."""
        if not self.chain:
            return False
        return self.earliest_hint not in (None, self.chain[0].id) or self.latest_hint not in (None, self.chain[-1].id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that a repair does."""

    action: str  # complete or take back rollback, restore snapshot, tag or remove fork, remove tag or claim, ...
    subject: str
    detail: str


def read_history(store: TableStore) -> HistoryState:
    """Read every snapshot of a branch, and separate its chain from forks. Raises: CorruptDataError."""
    found = [each for each in map(store.snapshots.find, store.snapshots.ids()) if each is not None]
    strays = [each for each in found if store.snapshots.is_of_other_table(each)]
    earliest, latest = store.snapshots.hints()
    kept = {*store.snapshots.claims.refs()}
    segments = _segments(store, [each for each in found if each not in strays])
    state = history_of(segments, first_kept=kept, earliest_hint=earliest, latest_hint=latest)
    forks = tuple(sorted((*state.forks, *strays), key=lambda each: each.id))
    return replace(state, forks=forks, late=tuple(_late(store)))


def history_of(
    segments: Sequence[Sequence[Snapshot]],
    *,
    first_kept: set[SnapshotRef],
    earliest_hint: int | None,
    latest_hint: int | None,
) -> HistoryState:
    """Decide which segments are the chain.

    A segment has a root when nothing is below it, or when an expiry kept its first snapshot. The chain begins with the
    highest root, or with the last snapshot in it that an expiry kept: what is before is being deleted. A segment above
    it is a fork, unless it was acknowledged, for which the hint LATEST is moved, or other engines wrote it, which name
    no parents: then the snapshots between are lost.

    Args:
        segments: runs of snapshots that follow each other, ascending.
        first_kept: the snapshots that claims of expiries name.
        earliest_hint: the hint EARLIEST, which names a root too.
        latest_hint: the hint LATEST.
    """
    if not segments:
        return HistoryState(chain=(), earliest_hint=earliest_hint, latest_hint=latest_hint)
    roots = [
        number
        for number, segment in enumerate(segments)
        if number == 0 or segment[0].ref in first_kept or segment[0].id == earliest_hint
    ]
    chain, forks = [*segments[roots[-1]]], [each for segment in segments[: roots[-1]] for each in segment]
    for segment in segments[roots[-1] + 1 :]:
        is_lost = segment[0].parent is None or (latest_hint is not None and latest_hint >= segment[0].id)
        (chain if is_lost else forks).extend(segment)
    kept = next((index for index, each in reversed([*enumerate(chain)]) if each.ref in first_kept), 0)
    expiring, chain = chain[:kept], chain[kept:]
    ids = {each.id for each in chain}
    return HistoryState(
        chain=tuple(chain),
        forks=tuple(forks),
        expiring=tuple(expiring),
        missing_ids=tuple(sorted({*range(min(ids), max(ids) + 1)} - ids)),
        earliest_hint=earliest_hint,
        latest_hint=latest_hint,
    )


def repair_history(store: TableStore, *, dry_run: bool = False) -> Iterator[Repair]:
    """Repair the history of a branch; no process may be paused in a commit to it, or in a rollback.

    Args:
        store: the table, on the branch.
        dry_run: change nothing.

    Yields:
        Each thing that was done.

    Raises:
        CorruptDataError: a snapshot cannot be decoded.
        UnavailableError: a file system error; run it again.
    """
    run = find_run(store)
    if run is not None:
        if not dry_run:
            complete_rollback(store)
        action = "complete rollback" if run.is_decided else "take back rollback"
        yield Repair(action=action, subject=f"snapshot {run.target.id}", detail=f"run={run.run}")
    yield from _restored(store, dry_run=dry_run)
    state = read_history(store)
    for fork in state.forks:
        yield from _without(store, fork, dry_run=dry_run)
    for late in state.late:
        if not dry_run:
            remove_late_reference(store, late)
        detail = "cause='its snapshot, branch or table had ended when it was created' fix='create another one'"
        yield Repair(action=f"remove {late.kind}", subject=str(late), detail=detail)
    yield from _unclaimed(store, dry_run=dry_run)
    if not state.chain:
        return
    first, last = state.chain[0].id, state.chain[-1].id
    if state.earliest_hint != first:
        if not dry_run:
            store.snapshots.write_earliest_hint(first)
        yield Repair(action="set hint", subject="EARLIEST", detail=f"from={state.earliest_hint} to={first}")
    if state.latest_hint != last:
        if not dry_run:
            store.snapshots.write_latest_hint(last)
        yield Repair(action="set hint", subject="LATEST", detail=f"from={state.latest_hint} to={last}")
    yield from _expired(store, state, dry_run=dry_run)


def _expired(store: TableStore, state: HistoryState, *, dry_run: bool) -> Iterator[Repair]:
    """Complete an expiry that died behind its claim."""
    if state.expiring:
        if not dry_run:
            deque(expire_snapshots(store, _NOTHING_MORE, before_ms=0), maxlen=0)
        detail = f"first={state.expiring[0].id} last={state.expiring[-1].id}"
        yield Repair(action="complete expiry", subject=f"snapshot {state.chain[0].id}", detail=detail)


def complete_rollback(store: TableStore, *, run: str | None = None) -> RollbackRun | None:
    """Complete a rollback that died behind its decision, or take back what it announced before.

    Args:
        store: the table, on the branch. The process of the rollback must have ended.
        run: only this one; None: any.

    Returns:
        What was found; None: nothing, or another run.

    Raises: as ``roll_back``.
    """
    found = find_run(store)
    if found is None or run not in (None, found.run):
        return None
    if not found.is_decided:
        take_back_notes(store)
        end_run(store)
        return found
    held = (snapshot for _, snapshot in held_snapshots(store))
    known = chain([store.snapshots.find(found.target.id)], (each.snapshot for each in tag_references(store)), held)
    target = next((each for each in known if each is not None and found.goes_to(each.ref)), None)
    is_leaving = target is None or target.id < store.snapshots.claimed_up_to()
    if is_leaving and finish_without_target(store, found):
        return found
    if target is None:
        raise CorruptDataError(
            f"a rollback was interrupted, and its target is not there any more: table={store.name} "
            f"snapshot={found.target.id} fix='roll back to a tag'"
        )
    roll_back(store, plan_rollback(store, target), dead_run=found.run)
    return found


def _late(store: TableStore) -> Iterator[LateReference]:
    yield from late_references(store)
    if store.paths.branch == store.main_branch:
        yield from references_of_gone_branches(store)


def _segments(store: TableStore, snapshots: Sequence[Snapshot]) -> list[list[Snapshot]]:
    segments: list[list[Snapshot]] = []
    for snapshot in snapshots:
        before = segments[-1][-1] if segments else None
        if before is not None and store.snapshots.leads(snapshot, before):
            segments[-1].append(snapshot)
        else:
            segments.append([snapshot])
    return segments


def _restored(store: TableStore, *, dry_run: bool) -> Iterator[Repair]:
    """Put back snapshots that an interrupted rollback removed under a commit that follows them."""
    for body, removed in removed_snapshots(store):
        following = store.snapshots.find(removed.id + 1)
        if following is None or following.parent != removed.identity or store.snapshots.exists(removed.id):
            continue
        if not dry_run:
            store.io.create_exclusive(store.paths.snapshot(removed.id), body)
            store.snapshots.removed.remove(removed.identity)
        detail = f"followed_by={following.id} cause='a rollback was interrupted'"
        yield Repair(action="restore snapshot", subject=f"snapshot {removed.id}", detail=detail)


def _without(store: TableStore, fork: Snapshot, *, dry_run: bool) -> Iterator[Repair]:
    """Move a fork out of the history: to a tag, if its files are there; a rollback may have deleted its parents'."""
    subject, user = f"snapshot {fork.id}", f"user={fork.commit_user} identifier={fork.commit_identifier}"
    name = f"{FORK_TAG_PREFIX}{fork.id}-{fork.identity[:8]}"
    if not store.snapshots.is_of_other_table(fork) and has_all_files(store, fork):
        if not dry_run:
            store.io.create_exclusive(store.paths.tag(name), fork.to_json().encode())
        yield Repair(action="tag fork", subject=subject, detail=f"tag={name} {user} fix=write its rows again")
    if not dry_run:
        store.snapshots.removed.add(fork.identity)
        store.delete_snapshot(fork)
    yield Repair(action="remove fork", subject=subject, detail=user)


def _unclaimed(store: TableStore, *, dry_run: bool) -> Iterator[Repair]:
    """Remove claims of expiries that were paused over a drop, or overtaken by another engine."""
    for claim in store.snapshots.claims.refs():
        if store.snapshots.find_ref(claim) is None:
            if not dry_run:
                store.snapshots.claims.remove(claim)
            yield Repair(action="remove claim", subject=f"snapshot {claim.id}", detail=f"identity={claim.identity}")
