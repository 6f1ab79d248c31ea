"""Fast-forward: main takes over a branch's snapshots, tags and schemas, under the same numbers and without their files.

Only safe when main stands where the branch began; then each snapshot is published like a commit, and a writer of main
that comes between stops it. With force main's newer snapshots are taken back first, which loses the commits in them.
Files are shared from then on: of two branches that share files, only Fluvial may expire either. Source:
paimon-format.md section 9 (Paimon BranchManager.fastForward); BR-15, BR-26 to BR-28, BR-36; Trap 6.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from filestore.branch.branches import opened_on_main, origin_of, read_branch
from filestore.branch.files import delete_unused, files_only_of
from filestore.branch.merge import common_snapshot, data_commits_since
from filestore.branch.merged_schemas import merged_schemas
from filestore.commit.expired_commits import ExpiredCommits
from filestore.layout.branch_log import read_branch_log
from filestore.layout.branch_state import (
    BranchOrigin,
    Operation,
    Work,
    begin_work,
    end_work,
    is_sealed_main,
    main_branch,
    read_work,
    seal_main,
    set_main_branch,
    working,
)
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, on_branch
from filestore.refs.savepoint_files import is_savepoint_tag
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import check_no_branch
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError


@dataclass(frozen=True, slots=True, kw_only=True)
class FastForward:
    """What a fast-forward did to main."""

    branch: str
    published: tuple[int, ...]  # snapshots, ascending
    removed: tuple[int, ...] = ()  # snapshots of main that were taken back


def fast_forward(store: TableStore, name: str, *, force: bool = False) -> FastForward:
    """Make a branch's snapshots, tags and schemas main's too. The branch stays as it is.

    When this dies, run it again.

    Args:
        store: on any branch.
        name: of the branch.
        force: take back what main did since the branch began: its snapshots, tags and schemas are deleted.

    Raises:
        ConflictError: main has snapshots of its own since the branch began, or got one meanwhile; says what is
            published.
        InvalidInputError: the branch has a log of its own, or has expired snapshots that main would need; or, with
            force, main's commits cannot be taken back.
    """
    main = opened_on_main(store)
    read_branch(main, name)
    branch = on_branch(main, name)
    with working(store.io, branch.paths, Work(operation=Operation.FAST_FORWARD)), _opening(main):
        read_branch(main, name)  # it may have been deleted before this was begun
        origin = origin_of(main, name)
        common = common_snapshot(main, branch, origin)
        floor = 0 if common is None else common.id
        wanted = [each for each in branch.snapshots.ids() if each > floor]
        _check_tags(main, branch, floor, force=force)
        removed: tuple[int, ...] = ()
        if wanted:
            _check_takes_all(branch, wanted[0], needed=floor + 1)
            removed = _make_way(main, branch, common, origin, force=force)
            merged_schemas(main, branch, origin, keeps_ids=True).publish()
            _publish(main, branch, wanted, is_sealed=force)
        for tag in _tags_of(branch):
            main.io.create_exclusive(main.paths.tag(tag), branch.io.read_bytes(branch.paths.tag(tag)))
    return FastForward(branch=name, published=tuple(wanted), removed=removed)


def _check_takes_all(branch: TableStore, first: int, *, needed: int) -> None:
    facts = f"table={branch.name} branch={branch.paths.branch}"
    if read_branch_log(branch.io, branch.paths) is not None:
        raise InvalidInputError(
            f"the branch has a log of its own, whose offsets mean nothing in main: {facts} fix=merge it"
        )
    if first != needed or branch.snapshots.claimed_up_to() > needed:
        raise InvalidInputError(
            f"snapshots of the branch have expired that main would need: {facts} first={first} needed={needed} "
            "fix=merge it"
        )


def _tags_of(branch: TableStore) -> list[str]:
    """The tags that main takes over; those of savepoints belong to them."""
    return [name for name in branch.snapshots.tag_names() if not is_savepoint_tag(branch, name)]


def _check_tags(main: TableStore, branch: TableStore, floor: int, *, force: bool) -> None:
    for name in _tags_of(branch):
        ours, theirs = main.snapshots.find_tag(name), branch.snapshots.find_tag(name)
        if ours is None or theirs is None or ours.id == theirs.id or (force and ours.id > floor):
            continue
        raise InvalidInputError(
            f"main has another tag of this name: table={main.name} tag={name} snapshot={ours.id} "
            f"branch_snapshot={theirs.id} fix=rename one of them"
        )


def _publish(main: TableStore, branch: TableStore, wanted: Sequence[int], *, is_sealed: bool) -> None:
    if main.snapshots.claimed_up_to() > wanted[0]:  # what was claimed there has been taken back
        ExpiredCommits(main.io, main.paths).forget_after(wanted[0] - 1)
        main.io.replace(main.paths.earliest_hint, str(wanted[0]).encode())
    for done, snapshot_id in enumerate(wanted):
        if not main.snapshots.publish(branch.snapshots.read(snapshot_id)):
            raise ConflictError(
                f"somebody committed to main meanwhile: table={main.name} branch={branch.paths.branch} "
                f"published={list(wanted[:done])} left={list(wanted[done:])} fix=merge it"
            )
    if is_sealed:  # a writer that was told to go may have been slow to take its own one away
        for snapshot_id in wanted:
            main.snapshots.publish(branch.snapshots.read(snapshot_id))
    main.snapshots.write_latest_hint(wanted[-1])
    if wanted[0] == FIRST_SNAPSHOT_ID:
        main.snapshots.write_earliest_hint(FIRST_SNAPSHOT_ID)
    if main_branch(main.io, main.paths.root) != main.paths.branch:
        raise OutcomeUnknownError(f"main was replaced meanwhile: table={main.name} fix=look at the newest snapshots")


# ---- with force


def _make_way(
    main: TableStore, branch: TableStore, common: Snapshot | None, origin: BranchOrigin, *, force: bool
) -> tuple[int, ...]:
    """Take back what main did since the common snapshot."""
    floor = 0 if common is None else common.id
    newer = [each for each in main.snapshots.ids() if each > floor]
    if not force:
        if newer:
            raise ConflictError(
                f"main has snapshots of its own since the branch began: table={main.name} "
                f"branch={branch.paths.branch} common={floor} newer={newer[:10]} count={len(newer)} "
                "fix=merge the branch; or force, then these are lost"
            )
        return ()
    # what an expiry has claimed is not to be relied upon, so it goes as well
    lowest = floor if main.snapshots.claimed_up_to() <= floor else 0
    roots = {
        root
        for root in all_references(main)
        if root.branch == main.paths.branch
        and root.snapshot_id > (lowest if root.kind is ReferenceKind.SNAPSHOT else floor)
    }
    _check_may_go(main, common, roots)
    _seal(main)

    def remove() -> None:
        main.snapshots.write_latest_hint(floor)
        for root in roots:
            if root.kind is ReferenceKind.TAG:
                main.io.delete(main.paths.tag(root.name))
        while left := [each for each in reversed(main.snapshots.ids()) if each > lowest]:
            for each in left:
                main.io.delete(main.paths.snapshot(each))
        for schema_id in reversed(main.schemas.ids()):
            if schema_id > origin.schema_id:
                main.io.delete(main.paths.schema(schema_id))

    delete_unused(main.io, files_only_of(main, roots, remove=remove))
    return tuple(newer)


def _check_may_go(main: TableStore, common: Snapshot | None, roots: set[LiveReference]) -> None:
    if main.has_log and data_commits_since(main, common) != []:
        raise InvalidInputError(
            f"main's log holds what it did since the branch began, and cannot be taken back: table={main.name} "
            "fix=merge the branch with force"
        )
    for root in roots:
        if root.kind is ReferenceKind.SAVEPOINT:
            raise InvalidInputError(
                f"main has a savepoint since the branch began: table={main.name} savepoint={root.name} "
                "fix=delete it first"
            )
        if root.kind is ReferenceKind.TAG and root.snapshot is not None:
            check_no_branch(main, root.name, root.snapshot)


def _seal(main: TableStore) -> None:
    """From now on commits to main are told that they may not stay."""
    if main.paths.branch == MAIN_BRANCH:
        seal_main(main.io, main.paths.root)
    else:
        begin_work(main.io, main.paths, Work(operation=Operation.REWRITE))


@contextmanager
def _opening(main: TableStore) -> Iterator[None]:
    """Let writers at main again, if it was sealed: when all is done, or refused."""
    try:
        yield
    except (InvalidInputError, ConflictError):
        _open(main)
        raise
    _open(main)


def _open(main: TableStore) -> None:
    if main.paths.branch != MAIN_BRANCH:
        work = read_work(main.io, main.paths)
        if work is not None and work.operation is Operation.REWRITE:
            end_work(main.io, main.paths)
    elif is_sealed_main(main.io, main.paths.root):
        set_main_branch(main.io, main.paths.root, MAIN_BRANCH)
