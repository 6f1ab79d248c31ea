"""Replacing the main branch by another one.

The branch gets the missing snapshots of main, then main is sealed: commits, tags and savepoints that come later take
themselves back, and those that came before are found. Tags and savepoints of the common history are copied; a
savepoint of a commit that the branch does not have refuses it. Then one small file is switched, and with it the default
branch of readers and writers. After that the old main is dropped, with the tags that the branch had as one. The branch
is not moved: its readers and writers continue. Writers that still have the old main open get an error after their next
commit. Other engines ignore that file: they find the data only as ``t$branch_b``, until main is moved back.

A process that dies leaves ``OPERATION`` on the branch, and perhaps the seal. The same call, or a repair, completes it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from filestore.branch.branches import branch_to_work_on, read_branch
from filestore.branch.creation import without_main_log
from filestore.branch.files import clear_branch, copy_files
from filestore.branch.former_main import (
    AFTER_MOVE,
    WAS,
    MainReplaced,
    clear_table_directory,
    drop_former,
    matching_directories,
    planned_drop,
)
from filestore.branch.merge_history import common_snapshot
from filestore.commit.expired_commits import ExpiredCommits, expired_commits_directory
from filestore.commit.succession import check_is_same_table
from filestore.layout.branch_log import branch_options, read_branch_log
from filestore.layout.branch_state import (
    Operation,
    Work,
    begin_work,
    complete_work,
    creation_id,
    is_sealed,
    main_branch,
    read_work,
    seal,
    set_main_branch,
    unseal,
    working,
)
from filestore.layout.former_mains import FormerMain, add_former_main
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.table_options import TableOptions
from filestore.refs.branch_origins import origin_of, parent_of
from filestore.refs.live_references import branch_names, on_branch
from filestore.refs.savepoint_files import is_savepoint_tag, list_savepoints
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from filestore.tag.savepoints import adopt_savepoints
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError
from lsm.nearest_names import some_text

_TO_MAIN: Final = Work(operation=Operation.REWRITE, arguments={"to": MAIN_BRANCH})


def replace_main(store: TableStore, name: str, *, force: bool = False, dry_run: bool = False) -> MainReplaced:
    """Make a branch the main one and drop the old main. Idempotent: rerun it after a crash.

    Args:
        store: on any branch.
        name: name of the branch. ``main``, if another branch replaced it: moves that one into the table's directory, so
            that other engines find the data under the table's name again; its writers must reopen the table.
        dry_run: change nothing; the result is that of the replacement.
        force: allow it when the old main has a log and the branch has none: streams of the table continue without it.

    Raises:
        InvalidInputError: no such branch, it is main already, it was created from another branch, or main has a log, or
            a savepoint of a later commit, that would be lost. A dry run raises the same.
        ConflictError: another operation on the branch is in progress.
    """
    store, main = store.as_found, main_branch(store.io, store.paths.root)
    now = replace(store, main_branch=main)
    if name == main:
        return _complete(now, main, dry_run=dry_run)
    if dry_run:
        return _planned(now, name, force=force)
    if name == MAIN_BRANCH:
        return _move_back(now, main)
    branch_to_work_on(now, name, Operation.REPLACE_MAIN)
    old, branch = on_branch(now, main), on_branch(now, name)
    work = Work(operation=Operation.REPLACE_MAIN, arguments={WAS: main})
    with working(store.io, branch.paths, work), _sealing(old, branch) as sealer:
        read_branch(now, name)  # it may have been deleted before this operation began
        common = _common(old, branch)
        _check_nothing_is_lost(old, branch, common, force=force)
        _complete_history(old, branch, common)
        try:
            seal(store.io, old.paths, sealer)
        except ConflictError as error:
            _check_not_switched(now, name, error)
            raise
        check_is_same_table(old)  # the seal may be in another one
        _check_nothing_is_lost(old, branch, common, force=force)
        _copy_savepoints(old, branch, common)
        _copy_tags(old, branch, common, sealer)
        _check_sealed(old, sealer)
        common_id = 0 if common is None else common.id
        add_former_main(store.io, store.paths.root, FormerMain(name, creation_id(store.io, branch.paths), common_id))
        set_main_branch(store.io, store.paths.root, name)
        if not branch.schemas.ids():  # the table was made again under its name: nothing of it is dropped
            set_main_branch(store.io, store.paths.root, MAIN_BRANCH)
            check_is_same_table(old)
        return drop_former(replace(now, main_branch=name), main)


def check_can_be_main(store: TableStore, name: str, *, force: bool = False) -> None:
    """Find out whether a branch can become main, before that of any table of several does; see ``replace_main``.

    Raises: InvalidInputError.
    """
    main = main_branch(store.io, store.paths.root)
    now = replace(store, main_branch=main)
    read_branch(now, name)
    old, branch = on_branch(now, main), on_branch(now, name)
    _check_nothing_is_lost(old, branch, _common(old, branch), force=force)


def is_main(store: TableStore, name: str) -> bool:
    """Whether a branch is main, and no replacement is left to be completed."""
    return main_branch(store.io, store.paths.root) == name and not interrupted_replacements(store)


def interrupted_replacements(store: TableStore) -> list[tuple[Work, str]]:
    """Replacements of main that were begun and have not ended, each with the branch to call ``replace_main`` with.

    They may be running. Raises: CorruptDataError.
    """
    main, found = main_branch(store.io, store.paths.root), []
    for name in branch_names(store):
        work = None if name == MAIN_BRANCH else read_work(store.io, store.paths.with_branch(name))
        if work is not None and work.operation is Operation.REPLACE_MAIN:
            found.append((work, name))
        elif work in (_TO_MAIN, AFTER_MOVE):
            found.append((work, MAIN_BRANCH if name == main else main))
    return found


def _planned(store: TableStore, name: str, *, force: bool) -> MainReplaced:
    """The result of a replacement that is not begun."""
    main = store.main_branch
    old = on_branch(store, main)
    if name == MAIN_BRANCH:  # the same files, in another directory
        return MainReplaced(main=name, dropped=main, snapshot_count=len(old.snapshots.ids()))
    read_branch(store, name)
    branch = on_branch(store, name)
    common = _common(old, branch)
    _check_nothing_is_lost(old, branch, common, force=force)
    return planned_drop(replace(store, main_branch=name), main, common)


def _complete(store: TableStore, main: str, *, dry_run: bool) -> MainReplaced:
    """Complete a replacement that crashed after the switch."""
    for name in branch_names(store):
        paths = store.paths.with_branch(name)
        work = None if name == MAIN_BRANCH else read_work(store.io, paths)
        if name == main and work is not None and work.operation is Operation.REPLACE_MAIN:
            was = str(work.arguments[WAS])
            if dry_run:
                return planned_drop(store, was, None)
            done = drop_former(store, was)
            complete_work(store.io, paths)
            return done
        if name != main and work in (_TO_MAIN, AFTER_MOVE):
            return planned_drop(store, name, None) if dry_run else drop_former(store, name)
    raise InvalidInputError(f"this is the main branch already: table={store.name} branch={main}")


# ---- before


def _check_nothing_is_lost(old: TableStore, branch: TableStore, common: Snapshot | None, *, force: bool) -> None:
    facts = f"table={old.name} main={old.paths.branch} branch={branch.paths.branch}"
    parent = parent_of(old, branch.paths.branch)
    if parent != old.paths.branch:  # what main has in common with it would be found only as long as the parent is there
        raise InvalidInputError(
            f"the branch was created from another branch: {facts} parent={parent} "
            "fix='merge it into the parent; or make the parent the main branch first, then this one'"
        )
    lost = [each.id for each in list_savepoints(old) if common is None or each.saved_snapshot_id > common.id]
    if lost:
        raise InvalidInputError(
            f"main has savepoints of commits that the branch does not have: {facts} {some_text('savepoints', lost)} "
            "fix=delete them first"
        )
    if _has_log(old) and not _has_log(branch) and not force:
        raise InvalidInputError(
            f"main has a log and the branch has none: {facts} fix=create the branch with its own log; or force: "
            "then streams of the table read files only"
        )


def _has_log(store: TableStore) -> bool:
    return _options_of(store).log_system != "none"


def _options_of(store: TableStore) -> TableOptions:
    """The options in force on a branch."""
    schema = store.schemas.latest()
    if schema is None:
        return TableOptions({})
    return replace(schema, options=branch_options(store.io, store.paths, schema.options)).table_options


@contextmanager
def _sealing(old: TableStore, branch: TableStore) -> Iterator[Work]:
    """The operation that seals the old main in the block; a refusal unseals it, also one of a run that continues it.

    What was copied for the branch into a table that was created again under the name is removed.
    """
    operation = Operation.REPLACE_MAIN if old.paths.branch == MAIN_BRANCH else Operation.REWRITE
    sealer = Work(operation=operation, arguments={"to": branch.paths.branch})
    try:
        yield sealer
    except (InvalidInputError, ConflictError):
        unseal(old.io, old.paths, sealer)
        if not branch.schemas.ids() and read_work(branch.io, branch.paths) is None:
            clear_branch(branch.io, branch.paths)
        raise


def _check_sealed(old: TableStore, sealer: Work) -> None:
    """Check that the seal is still this run's; another run of the replacement may have ended, or been refused.

    Raises: ConflictError; or as ``_check_not_switched``.
    """
    if not is_sealed(old.io, old.paths, sealer):
        error = ConflictError(
            f"another run of the same replacement has ended or was refused: table={old.name} operation={sealer} "
            "fix=look which branch is main, and run it again"
        )
        _check_not_switched(old, str(sealer.arguments["to"]), error)
        raise error


def _check_not_switched(store: TableStore, name: str, error: ConflictError) -> None:
    """Check that no other run has switched main without dropping the former one: that run must be completed.

    Raises: OutcomeUnknownError: so the operation of the branch does not end with this run.
    """
    if main_branch(store.io, store.paths.root) == name:
        raise OutcomeUnknownError(
            f"another run of the same replacement has made the branch main, and may not have dropped the former main: "
            f"table={store.name} branch={name} fix='wait for it; if it was interrupted, run it again'"
        ) from error


def _common(old: TableStore, branch: TableStore) -> Snapshot | None:
    """The last snapshot of main from before the branch; None: they have no history in common."""
    try:
        common = common_snapshot(old, branch, origin_of(branch, branch.paths.branch))
    except InvalidInputError:
        common = None
    for name in old.snapshots.tag_names():  # one that a fast-forward published may be left of main's as a tag only
        tagged = old.snapshots.find_tag(name)
        if tagged is not None and (common is None or tagged.id > common.id):
            there = branch.snapshots.find(tagged.id)
            common = there if there is not None and there.identity == tagged.identity else common
    return common


def _complete_history(old: TableStore, branch: TableStore, common: Snapshot | None) -> None:
    """Copy the snapshots and expired-commit notes of main from before the branch, without log offsets."""
    if common is None:
        return
    _copy_snapshots(old, branch, common, _adopting(old, branch))
    earliest = old.snapshots.earliest_id()
    if earliest is not None and earliest <= common.id:  # else expired commits may not belong to the branch
        ExpiredCommits(branch).adopt(ExpiredCommits(old))


def _copy_savepoints(old: TableStore, branch: TableStore, common: Snapshot | None) -> None:
    """Copy the savepoints of main from before the branch, without log offsets."""
    if common is not None:
        adopt_savepoints(old, branch, up_to=common.id, adopted=_adopted(old, branch))


def _copy_tags(old: TableStore, branch: TableStore, common: Snapshot | None, sealer: Work) -> None:
    """Copy the tags of main from before the branch, without log offsets. Raises: as ``_check_sealed``."""
    if common is None:
        return
    adopted = _adopting(old, branch)
    for name in old.snapshots.tag_names():
        tagged = old.snapshots.find_tag(name)
        is_own = tagged is not None and is_savepoint_tag(old, name)  # copied with its savepoint
        if tagged is not None and tagged.id <= common.id and not is_own and branch.snapshots.find_tag(name) is None:
            with suppress(FileNotFoundError):
                old.io.replace(branch.paths.tag(name), adopted(old.paths.tag(name)))
            if old.snapshots.find_tag(name) is None:  # deleted concurrently, possibly with its files; or main is gone
                _check_sealed(old, sealer)
                old.io.delete(branch.paths.tag(name))


def _adopting(old: TableStore, branch: TableStore) -> Callable[[str], bytes]:
    """Reads the file of a snapshot or tag of main as the branch has it."""
    adopted = _adopted(old, branch)
    return lambda path: adopted(old.io.read_bytes(path))


def _adopted(old: TableStore, branch: TableStore) -> Callable[[bytes], bytes]:
    """Contents of a snapshot file of main as the branch has it."""
    bucket_count = None if read_branch_log(old.io, branch.paths) is None else old.options.bucket
    main = _options_of(old)
    return lambda body: without_main_log(body, main, bucket_count)


def _copy_snapshots(old: TableStore, branch: TableStore, common: Snapshot, adopted: Callable[[str], bytes]) -> None:
    """Copy in descending order, never leaving a gap; then delete those claimed by a concurrent expiry of main."""
    first = next(iter(branch.snapshots.ids()), None)
    if first is None or first > common.id or branch.snapshots.claimed_up_to() > first:
        return  # the branch has expired the snapshots in between
    lowest = first
    for snapshot_id in range(first - 1, FIRST_SNAPSHOT_ID - 1, -1):
        try:
            body = adopted(old.paths.snapshot(snapshot_id))
        except FileNotFoundError:
            break
        old.io.replace(branch.paths.snapshot(snapshot_id), body)
        lowest = snapshot_id
    claimed = min(first, old.snapshots.claimed_up_to())
    for snapshot_id in range(lowest, claimed):
        old.io.delete(branch.paths.snapshot(snapshot_id))
    branch.snapshots.release_claims(max(lowest, claimed))


# ---- after


def _move_back(store: TableStore, main: str) -> MainReplaced:
    """Move the main branch into the table's directory."""
    io, here, there = store.io, store.paths.with_branch(main), store.paths.with_branch(MAIN_BRANCH)
    begin_work(io, here, _TO_MAIN)  # from now on its writers fail
    clear_table_directory(store, _TO_MAIN)  # files of writers that had not noticed the replacement of main
    ExpiredCommits(on_branch(store, MAIN_BRANCH)).adopt(ExpiredCommits(on_branch(store, main)))
    for source, target in matching_directories(here, there):
        if target != expired_commits_directory(there):
            copy_files(io, source, target)
    schema = SchemaStore(io, there).latest()
    assert schema is not None
    options = branch_options(io, here, schema.options)
    if options != schema.options:  # the branch's log becomes the table's
        after = replace(schema, id=schema.id + 1, options=options, time_ms=store.clock.now_ms())
        io.replace(there.schema(after.id), after.to_json().encode())
    set_main_branch(io, store.paths.root, MAIN_BRANCH)
    return drop_former(replace(store, main_branch=MAIN_BRANCH), main)
