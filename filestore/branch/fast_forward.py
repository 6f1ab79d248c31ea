"""Fast-forward: publishes a branch's snapshots, tags and schemas in main, under the same ids, sharing their files.

Safe only if main has not advanced since the branch's origin; then the first snapshot is published like a commit, and a
concurrent writer of main stops it. The others follow without a commit between them: several are announced before.
With force, main's newer snapshots are removed first, and their commits are lost.
Files are shared from then on: of two branches that share files, only Fluvial may expire either.
Source: Paimon BranchManager.fastForward.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from filestore.branch.branches import branch_to_work_on, opened_on_main, read_branch
from filestore.branch.files import delete_unused, files_only_of
from filestore.branch.merge_history import common_snapshot, data_commits_since, hold_merged, note_merged
from filestore.branch.merged_schemas import merged_schemas, take_back
from filestore.commit.confirmation import confirm
from filestore.commit.expired_commits import ExpiredCommits
from filestore.commit.succession import check_is_same_table
from filestore.layout.branch_log import read_branch_log
from filestore.layout.branch_names import is_merge_tag
from filestore.layout.branch_state import (
    FAST_FORWARD_SEAL,
    BranchOrigin,
    Operation,
    Work,
    main_branch,
    seal,
    unseal,
    working,
)
from filestore.layout.former_mains import history_id
from filestore.layout.publication import Publication, announce, end_publication, read_publication
from filestore.refs.branch_origins import origin_of, parent_of
from filestore.refs.live_references import (
    FORK_TAG_PREFIX,
    LiveReference,
    ReferenceKind,
    all_references,
    in_order,
    on_branch,
)
from filestore.refs.pending_tags import pending_path
from filestore.refs.savepoint_files import is_savepoint_tag
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import EMPTY_TABLE, FIRST_SNAPSHOT_ID, Snapshot, SnapshotRef
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag.tags import check_no_branch
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError
from lsm.retry import LostRaceError
from lsm.undo import undoing_unless_visible

_LOOKS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FastForward:
    """The result of a fast-forward."""

    branch: str
    published: tuple[int, ...]  # snapshot ids, ascending
    removed: tuple[int, ...] = ()  # removed snapshots of main
    common_id: int = field(default=0, compare=False)  # the last snapshot that both had before; 0: none


def fast_forward(store: TableStore, name: str, *, force: bool = False, dry_run: bool = False) -> FastForward:
    """Publish a branch's snapshots, tags and schemas in main. The branch does not change.

    Idempotent: rerun it after a crash.

    Args:
        store: table on any branch.
        name: name of the branch.
        force: delete main's snapshots, tags and schemas since the branch's origin, also when the branch has no commits
            of its own: then main is as it was when the branch began.
        dry_run: change nothing; the result is that of the fast-forward, and it is refused where that would be.

    Raises:
        ConflictError: main has newer snapshots than the branch's origin, or got one concurrently; nothing is published.
        InvalidInputError: the branch has its own log, or has expired snapshots that main would need; or, with
            force, main's commits cannot be undone.
        OutcomeUnknownError: a part may be published, and writers of main wait for the rest: run it again.
    """
    main = opened_on_main(store)
    if dry_run:
        read_branch(main, name)
    else:
        branch_to_work_on(main, name, Operation.FAST_FORWARD)
    if parent_of(main, name) != main.paths.branch:
        raise InvalidInputError(
            f"the branch was created from another branch: table={main.name} branch={name} "
            f"parent={parent_of(main, name)} fix=merge it"
        )
    branch = on_branch(main, name)
    if dry_run:
        return _planned(main, branch, force=force)
    with working(store.io, branch.paths, Work(operation=Operation.FAST_FORWARD)), _unsealing(main, name):
        read_branch(main, name)  # it may have been deleted before this operation began
        origin = origin_of(main, name)
        plan = _plan(main, branch, origin, force=force)
        if not force and _has_several(main, branch, origin, plan):
            plan = _announced(main, branch, origin, plan)
        wanted, common = plan.wanted, plan.common
        removed: tuple[int, ...] = ()
        created: list[TableSchema] = []
        last = branch.snapshots.read(wanted[-1]) if wanted else common
        with _holding(main, name, origin, last):
            if wanted or force:
                if force:
                    removed = _remove_newer(main, branch, common, origin)
                schemas = merged_schemas(main, branch, origin, keeps_ids=True)
                schemas.publish(created)
            if wanted:
                try:
                    _publish(main, branch, EMPTY_TABLE if common is None else common.ref, wanted, is_sealed=force)
                except ConflictError:
                    if not force and main.snapshots.find_ref(branch.snapshots.read(wanted[0]).ref) is None:
                        take_back(main, created)
                    raise
            elif force and common is not None and not main.snapshots.exists(common.id):
                _publish(main, branch, EMPTY_TABLE, (common.id,), is_sealed=True)  # it had expired in main
        _copy_tags(main, branch)
    main.refs_changed()
    floor = 0 if common is None else common.id
    return FastForward(branch=name, published=wanted, removed=removed, common_id=floor)


def _planned(main: TableStore, branch: TableStore, *, force: bool) -> FastForward:
    """The result of a fast-forward that is not begun. Raises: as ``fast_forward``."""
    origin = origin_of(main, branch.paths.branch)
    plan = _plan(main, branch, origin, force=force)
    newer = _Newer.of(main, plan.common) if force else None
    if plan.wanted and not force:
        merged_schemas(main, branch, origin, keeps_ids=True)  # may refuse
    return FastForward(
        branch=branch.paths.branch,
        published=plan.wanted,
        removed=() if newer is None else newer.ids,
        common_id=0 if plan.common is None else plan.common.id,
    )


@contextmanager
def _holding(main: TableStore, name: str, origin: BranchOrigin, last: Snapshot | None) -> Iterator[None]:
    """Keep the newest state that main gets, from which a later merge begins, also when its snapshots have expired."""
    branch = FileTable(main).on_branch(name).store  # with its own schema and options
    merged = [branch.snapshots.tag(each).id for each in filter(is_merge_tag, branch.snapshots.tag_names())]
    if last is None or last.id <= (origin.snapshot_id or 0) or any(each > last.id for each in merged):
        yield
        return
    history = history_id(main.io, main.paths, main.main_branch)
    with undoing_unless_visible(hold_merged(branch, last)):
        yield
    note_merged(branch, last, last, main=main, history=history)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The snapshots, tags and schemas to publish."""

    common: Snapshot | None
    wanted: tuple[int, ...]  # ids of snapshots of the branch behind the common one, ascending


def _plan(main: TableStore, branch: TableStore, origin: BranchOrigin, *, force: bool) -> _Plan:
    """Look at both sides, and decide everything that can be refused. Nothing is changed.

    Raises: as ``fast_forward``.
    """
    common = common_snapshot(main, branch, origin)
    floor = 0 if common is None else common.id
    wanted = tuple(each for each in branch.snapshots.line().ids if each > floor)
    _check_tags(main, branch, floor, force=force)
    if wanted:
        _check_no_gap(branch, wanted[0], needed=floor + 1)
    elif force:
        _check_not_empty(branch, common)
    newer = [each for each in main.snapshots.ids() if each > floor] if wanted and not force else []
    if newer:
        raise ConflictError(
            f"main has advanced since the branch began: table={main.name} "
            f"branch={branch.paths.branch} common={floor} newer={newer[:10]} count={len(newer)} "
            "fix=merge the branch; or force, which loses these snapshots"
        )
    return _Plan(common, wanted)


def _has_several(main: TableStore, branch: TableStore, origin: BranchOrigin, plan: _Plan) -> bool:
    """Whether another commit could come in between: there are several snapshots, or schema versions with one."""
    if len(plan.wanted) != 1:
        return bool(plan.wanted)
    return bool(merged_schemas(main, branch, origin, keeps_ids=True).missing)


def _announced(main: TableStore, branch: TableStore, origin: BranchOrigin, plan: _Plan) -> _Plan:
    """Announce a publication of several snapshots; returns what is to be published, by a look behind it.

    Raises: ConflictError: main is sealed, or the branch or main changed at each look.
    """
    for _ in range(_LOOKS):
        if not _has_begun(main, branch):
            first = branch.snapshots.read(plan.wanted[0])
            publication = Publication(branch=branch.paths.branch, first_id=first.id, identity=first.identity)
            announce(main.io, main.paths, publication)
        check_is_same_table(main)
        before, plan = plan, _plan(main, branch, origin, force=False)
        if plan == before or not plan.wanted:
            return plan
    raise ConflictError(
        f"main and the branch change at each look: table={main.name} branch={branch.paths.branch} fix=run it again"
    )


def _has_begun(main: TableStore, branch: TableStore) -> bool:
    """Whether main has the first snapshot of a publication of the branch that was announced and has not ended."""
    known = read_publication(main.io, main.paths)
    if known is None or known.branch != branch.paths.branch:
        return False
    first = main.snapshots.find(known.first_id)
    return first is not None and first.identity == known.identity


def _check_no_gap(branch: TableStore, first: int, *, needed: int) -> None:
    facts = f"table={branch.name} branch={branch.paths.branch}"
    if read_branch_log(branch.io, branch.paths) is not None:
        raise InvalidInputError(
            f"the branch has its own log, with offsets that are invalid in main: {facts} fix=merge it"
        )
    if first != needed or branch.snapshots.claimed_up_to() > needed:
        raise InvalidInputError(
            f"snapshots of the branch have expired that main would need: {facts} first={first} needed={needed} "
            "fix=merge it"
        )


def _check_not_empty(branch: TableStore, common: Snapshot | None) -> None:
    if common is None:
        raise InvalidInputError(
            f"the branch is empty, so force would delete every commit of main: table={branch.name} "
            f"branch={branch.paths.branch} fix=write to the branch first"
        )


def _tags_of(branch: TableStore) -> list[str]:
    """The tags to publish in main, without those of savepoints, merges and forks."""
    return [
        name
        for name, snapshot in branch.snapshots.tagged()
        if not is_savepoint_tag(branch, name)
        and not is_merge_tag(name)
        and not name.startswith(FORK_TAG_PREFIX)
        and not branch.snapshots.removed.has(snapshot.identity)
    ]


def _copy_tags(main: TableStore, branch: TableStore) -> None:
    created = []
    for tag in _tags_of(branch):
        if main.io.create_exclusive(main.paths.tag(tag), branch.io.read_bytes(branch.paths.tag(tag))):
            created.append(tag)
    try:
        check_is_same_table(main)  # else they are in a table that was made again under this name
    except InvalidInputError:
        for tag in created:
            main.io.delete(main.paths.tag(tag))
        raise


def _check_tags(main: TableStore, branch: TableStore, floor: int, *, force: bool) -> None:
    for name in _tags_of(branch):
        in_main, in_branch = main.snapshots.find_tag(name), branch.snapshots.find_tag(name)
        if in_main is None or in_branch is None or in_main.id == in_branch.id or (force and in_main.id > floor):
            continue
        raise InvalidInputError(
            f"main has another tag of this name: table={main.name} tag={name} snapshot={in_main.id} "
            f"branch_snapshot={in_branch.id} fix=rename one of them"
        )


def _publish(
    main: TableStore, branch: TableStore, parent: SnapshotRef, wanted: Sequence[int], *, is_sealed: bool
) -> None:
    earliest_hint, _ = main.snapshots.hints()
    if (
        max(main.snapshots.claims.highest_id(), earliest_hint or 0) > wanted[0]
    ):  # the claimed snapshots have been removed
        ExpiredCommits(main).forget_after(wanted[0] - 1)
        main.snapshots.release_claims(wanted[0])
    for done, snapshot_id in enumerate(wanted):
        snapshot = branch.snapshots.read(snapshot_id)
        if main.snapshots.removed.has(snapshot.identity):  # published before, then taken back: commits follow it again
            main.snapshots.removed.remove(snapshot.identity)
        try:
            if not main.snapshots.publish(snapshot):
                raise LostRaceError("its number is taken")
            if not is_sealed:
                confirm(main, snapshot, parent, commit_user=snapshot.commit_user)
        except ConflictError as error:
            raise ConflictError(
                f"another writer changed main concurrently: table={main.name} branch={branch.paths.branch} "
                f"published={list(wanted[:done])} left={list(wanted[done:])} fix=merge it reason={error}"
            ) from error
        parent = snapshot.ref
    if is_sealed:  # a rejected writer may have removed its own snapshot late
        for snapshot_id in wanted:
            main.snapshots.publish(branch.snapshots.read(snapshot_id))
    main.snapshots.raise_latest_hint(wanted[-1])
    if wanted[0] == FIRST_SNAPSHOT_ID:
        main.snapshots.write_earliest_hint(FIRST_SNAPSHOT_ID)
    if main_branch(main.io, main.paths.root) != main.paths.branch:
        raise OutcomeUnknownError(f"main was replaced concurrently: table={main.name} fix=check the newest snapshots")


# ---- with force


@dataclass(frozen=True, slots=True)
class _Newer:
    """The snapshots and references that main has behind the common snapshot."""

    ids: tuple[int, ...]  # of its snapshots, ascending
    lowest: int  # snapshots behind it go: those that an expiry has claimed may be incomplete
    references: set[LiveReference]

    @classmethod
    def of(cls, main: TableStore, common: Snapshot | None) -> "_Newer":
        """Raises: InvalidInputError: it cannot be removed."""
        floor = 0 if common is None else common.id
        lowest = floor if main.snapshots.claimed_up_to() <= floor else 0
        references = {
            each
            for each in all_references(main)
            if each.branch == main.paths.branch
            and each.snapshot_id > (lowest if each.kind is ReferenceKind.SNAPSHOT else floor)
        }
        _check_removable(main, common, references)
        return cls(tuple(each for each in main.snapshots.ids() if each > floor), lowest, references)


def _remove_newer(
    main: TableStore, branch: TableStore, common: Snapshot | None, origin: BranchOrigin
) -> tuple[int, ...]:
    """Remove main's snapshots after the common one (with force). Returns their ids."""
    floor = 0 if common is None else common.id
    newer = _Newer.of(main, common)
    lowest, removed = newer.lowest, newer.references
    seal(main.io, main.paths, FAST_FORWARD_SEAL)  # from now on commits to main fail, because they may be removed

    def remove() -> None:
        main.snapshots.write_latest_hint(floor)
        for reference in in_order(removed):
            if reference.kind is ReferenceKind.TAG:
                main.io.delete(main.paths.tag(reference.name))
            if reference.kind is ReferenceKind.PENDING:  # its creation fails
                main.io.delete(pending_path(main.paths, reference.name))
        while left := [each for each in reversed(main.snapshots.ids()) if each > lowest]:
            for each in left:
                if each > floor and (snapshot := main.snapshots.find(each)) is not None:
                    main.snapshots.removed.add(snapshot.identity)  # a merge that is undone counts no more
                main.io.delete(main.paths.snapshot(each))
        for schema_id in reversed(main.schemas.ids()):
            if schema_id > origin.schema_id:
                main.io.delete(main.paths.schema(schema_id))

    delete_unused(main, files_only_of(main, removed, remove=remove))
    return newer.ids


def _check_removable(main: TableStore, common: Snapshot | None, references: Collection[LiveReference]) -> None:
    if main.has_log and data_commits_since(main, common) != []:
        raise InvalidInputError(
            f"main's log holds its commits since the branch began, and cannot be undone: table={main.name} "
            "fix=merge the branch with force"
        )
    for reference in in_order(references):
        if reference.kind is ReferenceKind.SAVEPOINT:
            raise InvalidInputError(
                f"main has a savepoint since the branch began: table={main.name} savepoint={reference.name} "
                "fix=delete it first"
            )
        if reference.kind is ReferenceKind.TAG and reference.snapshot is not None:
            check_no_branch(main, reference.name, reference.snapshot)


@contextmanager
def _unsealing(main: TableStore, name: str) -> Iterator[None]:
    """Unseal main, if it was sealed, when all is done or refused; take back what was announced."""
    try:
        yield
    except InvalidInputError as error:
        if _has_begun(main, on_branch(main, name)):  # by a run that died, or still runs
            raise OutcomeUnknownError(
                f"a part of the branch is published, and no one can write main before the rest is: table={main.name} "
                f"branch={name} fix='see the reason, then run it again' reason='{error}'"
            ) from error
        _end(main, name)
        raise
    except ConflictError:
        _end(main, name)
        raise
    _end(main, name)


def _end(main: TableStore, name: str) -> None:
    unseal(main.io, main.paths, FAST_FORWARD_SEAL)
    end_publication(main.io, main.paths, name)
