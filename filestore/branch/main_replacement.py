"""Making another branch the main one.

The branch gets what it lacks of main's history, then one small file changes, and with it what everybody who names no
branch reads and writes. After that the old main is dropped. Nothing of the branch moves, so its readers and writers go
on. Whoever still writes to the old main is told after his next commit. Other engines do not look at that file: they
find the table by the name of the branch only (``t$branch_b``), until main is moved back into the table's directory.
Source: BR-16, BR-18, BR-29 to BR-32, BR-37, BR-47, BR-50.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from filestore.branch.branches import origin_of, read_branch
from filestore.branch.creation import off_log
from filestore.branch.files import clear_branch, copy_files, delete_unused, files_only_of, size_of
from filestore.branch.merge import common_snapshot
from filestore.commit.expired_commits import expired_commits_directory
from filestore.io.file_io import FileIO
from filestore.layout.branch_log import branch_options, read_branch_log
from filestore.layout.branch_state import (
    Operation,
    Work,
    begin_work,
    end_work,
    main_branch,
    read_work,
    replace_work,
    set_main_branch,
    working,
)
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.refs.live_references import all_references, branch_names, on_branch
from filestore.refs.savepoint_files import savepoint_ids
from filestore.schema.schema_store import SchemaStore
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

_WAS: Final = "was"
_TO_MAIN: Final = Work(operation=Operation.REWRITE, arguments={"to": MAIN_BRANCH})
_AFTER_MOVE: Final = Work(operation=Operation.DELETE, arguments={"replaced": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class MainReplaced:
    """What became of the branch that was main."""

    main: str  # the main branch now
    dropped: str  # the one before
    snapshot_count: int = 0  # that were dropped
    data: frozenset[str] = frozenset()  # paths of data and changelog files that only it used
    size_bytes: int = 0


def replace_main(store: TableStore, name: str, *, force: bool = False) -> MainReplaced:
    """Make a branch the main one and drop the old main; when this dies, run it again.

    Args:
        store: on any branch.
        name: of the branch. ``main``, when another branch took its place: that one moves into the table's directory, so
            that other engines find the table again by its name; its writers have to open the table again.
        force: also when the old main has a log and the branch has none: streams of the table go on without it.

    Raises:
        InvalidInputError: no such branch, it is main already, or main has a log or a savepoint that would be lost.
        ConflictError: another operation is at work on the branch.
    """
    main = main_branch(store.io, store.paths.root)
    now = replace(store, main_branch=main)
    if name == main:
        return _completed(now, main)
    if name == MAIN_BRANCH:
        return _moved_back(now, main)
    read_branch(now, name)
    old, branch = on_branch(now, main), on_branch(now, name)
    with working(store.io, branch.paths, Work(operation=Operation.REPLACE_MAIN, arguments={_WAS: main})):
        read_branch(now, name)  # it may have been deleted before this was begun
        _check_nothing_is_lost(old, branch, force=force)
        _complete_history(old, branch)
        set_main_branch(store.io, store.paths.root, name)
        return _dropped(replace(now, main_branch=name), main)


def _completed(store: TableStore, main: str) -> MainReplaced:
    """What is left to do of a replacement that died after the switch."""
    for name in branch_names(store):
        paths = store.paths.with_branch(name)
        work = None if name == MAIN_BRANCH else read_work(store.io, paths)
        if name == main and work is not None and work.operation is Operation.REPLACE_MAIN:
            done = _dropped(store, str(work.arguments[_WAS]))
            end_work(store.io, paths)
            return done
        if name != main and work in (_TO_MAIN, _AFTER_MOVE):
            return _dropped(store, name)
    raise InvalidInputError(f"this is the main branch already: table={store.name} branch={main}")


# ---- before


def _check_nothing_is_lost(old: TableStore, branch: TableStore, *, force: bool) -> None:
    facts = f"table={old.name} main={old.paths.branch} branch={branch.paths.branch}"
    if savepoint_ids(old):
        raise InvalidInputError(f"main has savepoints: {facts} savepoints={savepoint_ids(old)} fix=delete them first")
    if _has_log(old) and not _has_log(branch) and not force:
        raise InvalidInputError(
            f"main has a log and the branch has none: {facts} fix=make the branch with a log of its own; or force: "
            "then streams of the table read files only"
        )


def _has_log(store: TableStore) -> bool:
    schema = store.schemas.latest()
    if schema is None:
        return False
    in_force = replace(schema, options=branch_options(store.io, store.paths, schema.options))
    return in_force.table_options.log_system != "none"


def _complete_history(old: TableStore, branch: TableStore) -> None:
    """Give the branch the snapshots, tags and notes of main from before it began, without the offsets of main's log."""
    try:
        common = common_snapshot(old, branch, origin_of(branch, branch.paths.branch))
    except InvalidInputError:
        return  # they have no history in common
    if common is None:
        return
    io, has_log = old.io, read_branch_log(old.io, branch.paths) is not None

    def taken_over(path: str) -> bytes:
        return off_log(io.read_bytes(path), old.options.bucket if has_log else None)

    _copy_snapshots(old, branch, common, taken_over)
    for name in old.snapshots.tag_names():
        ours = old.snapshots.find_tag(name)
        if ours is not None and ours.id <= common.id and branch.snapshots.find_tag(name) is None:
            with suppress(FileNotFoundError):
                io.replace(branch.paths.tag(name), taken_over(old.paths.tag(name)))
            if old.snapshots.find_tag(name) is None:  # deleted meanwhile, perhaps with its files
                io.delete(branch.paths.tag(name))
    earliest = old.snapshots.earliest_id()
    if earliest is not None and earliest <= common.id:  # else what expired may not be in the branch
        copy_files(io, expired_commits_directory(old.paths), expired_commits_directory(branch.paths))


def _copy_snapshots(old: TableStore, branch: TableStore, common: Snapshot, taken_over: Callable[[str], bytes]) -> None:
    """Downwards, so that there is never a gap; what an expiry of main claims meanwhile goes again."""
    first = next(iter(branch.snapshots.ids()), None)
    if first is None or first > common.id or branch.snapshots.claimed_up_to() > first:
        return  # the branch has expired what would come between
    lowest = first
    for snapshot_id in range(first - 1, FIRST_SNAPSHOT_ID - 1, -1):
        try:
            body = taken_over(old.paths.snapshot(snapshot_id))
        except FileNotFoundError:
            break
        old.io.replace(branch.paths.snapshot(snapshot_id), body)
        lowest = snapshot_id
    claimed = min(first, old.snapshots.claimed_up_to())
    for snapshot_id in range(lowest, claimed):
        old.io.delete(branch.paths.snapshot(snapshot_id))
    branch.snapshots.write_earliest_hint(max(lowest, claimed))


# ---- after


def _dropped(store: TableStore, was: str) -> MainReplaced:
    """Remove a branch that is not main any more, and the files that only it used."""
    old = on_branch(store, was)
    if was != MAIN_BRANCH:
        replace_work(store.io, old.paths, _AFTER_MOVE)  # hides it, and tells its writers
    unused = files_only_of(store, {root for root in all_references(store) if root.branch == was})
    done = MainReplaced(
        main=store.main_branch,
        dropped=was,
        snapshot_count=len(old.snapshots.ids()),
        data=unused.data,
        size_bytes=size_of(store.io, unused),
    )
    delete_unused(store.io, unused)
    if was == MAIN_BRANCH:
        _clear_table_directory(store.io, old.paths)
    else:
        clear_branch(store.io, old.paths)
        end_work(store.io, old.paths)
    return done


def _moved_back(store: TableStore, main: str) -> MainReplaced:
    """Move the main branch into the table's directory."""
    io, here, there = store.io, store.paths.with_branch(main), store.paths.with_branch(MAIN_BRANCH)
    begin_work(io, here, _TO_MAIN)  # from now on its writers are told that it goes
    _clear_table_directory(io, there)  # of writers who did not know yet that main had been replaced
    for source, target in _directories(here, there):
        copy_files(io, source, target)
    schema = SchemaStore(io, there).latest()
    assert schema is not None
    options = branch_options(io, here, schema.options)
    if options != schema.options:  # the branch's log becomes the table's
        after = replace(schema, id=schema.id + 1, options=options, time_ms=store.clock.now_ms())
        io.replace(there.schema(after.id), after.to_json().encode())
    set_main_branch(io, store.paths.root, MAIN_BRANCH)
    return _dropped(replace(store, main_branch=MAIN_BRANCH), main)


def _directories(source: TablePaths, target: TablePaths) -> list[tuple[str, str]]:
    """What belongs to a branch; its schemas last, because they make others see a table."""
    kinds = attrgetter("snapshot_dir", "tag_dir", "changelog_dir", "consumer_dir", "savepoint_dir")
    return [
        *zip(kinds(source), kinds(target), strict=True),
        (expired_commits_directory(source), expired_commits_directory(target)),
        (source.schema_dir, target.schema_dir),
    ]


def _clear_table_directory(io: FileIO, paths: TablePaths) -> None:
    for directory, _ in reversed(_directories(paths, paths)):
        io.delete_tree(directory)
