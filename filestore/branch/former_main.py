"""The branch that was main: what goes with it when another one takes its place, and how it goes.

A table that was dropped and created again has the same names. So nothing is deleted in the table's directory by name
behind a look: each directory is moved into a new one in the directory of the branch that replaced it, which fails if
one of the two is missing, and is deleted there. Both are in one table at that moment, and the new name is unique: so
what a process moves that was paused behind its look is of the table that it looked at. Object stores move nothing:
there a file is deleted behind a look, and a drop takes away its table in as many steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from filestore.branch.files import (
    UnusedBranchFiles,
    clear_branch,
    delete_released,
    delete_unused,
    files_only_of,
    size_of,
)
from filestore.commit.expired_commits import expired_commits_directory
from filestore.io.file_io import MovesDirectories
from filestore.layout.branch_names import is_merge_tag
from filestore.layout.branch_state import (
    Operation,
    Work,
    complete_work,
    creation_id,
    main_branch,
    read_origin,
    read_work,
    replace_work,
)
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.refs.branch_origins import branch_made_from
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, on_branch
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

WAS: Final = "was"
_MOVED: Final = "replaced-"
AFTER_MOVE: Final = Work(operation=Operation.DELETE, arguments={"replaced": True})
"""The former main, after the switch: it is hidden, and its writers fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MainReplaced:
    """The result of replacing the main branch."""

    main: str  # the new main branch
    dropped: str  # the previous main branch
    snapshot_count: int = 0  # dropped snapshots
    data: frozenset[str] = frozenset()  # paths of data and changelog files that only it used
    size_bytes: int = 0


def drop_former(store: TableStore, was: str) -> MainReplaced:
    """Delete the former main branch with its successor's tags as a branch, and the files that only these used."""
    old, new = on_branch(store, was), on_branch(store, store.main_branch)
    if was != MAIN_BRANCH:
        replace_work(store.io, old.paths, AFTER_MOVE)
    life, let_go = _life_of(new), set(_own_tags(old, new))
    unused, done = _found(store, old, let_go, kept=frozenset())
    if _life_of(new) != life or main_branch(store.io, store.paths.root) != store.main_branch:
        # what was found is not only the former main's; from here on each name is unique, whatever comes later
        raise InvalidInputError(
            f"table was dropped, renamed or made again, or has another main branch: table={store.name} "
            f"branch={store.main_branch} fix='open it again, and look which branch is main'"
        )
    for name in let_go:
        store.io.delete(new.paths.tag(name))
    delete_unused(store, unused)
    if was == MAIN_BRANCH:
        clear_table_directory(store, Work(operation=Operation.REPLACE_MAIN, arguments={WAS: was}))
    else:
        clear_branch(store.io, old.paths)
        complete_work(store.io, old.paths)
    delete_released(store, unused)
    store.refs_changed()
    return done


def planned_drop(store: TableStore, was: str, common: Snapshot | None) -> MainReplaced:
    """The files that ``drop_former`` would delete; nothing is changed.

    Args:
        store: of the table, with its future main branch.
        was: the main branch of now.
        common: the last snapshot of both: what main has up to it stays, as the branch's.
    """
    old, new = on_branch(store, was), on_branch(store, store.main_branch)
    first = next(iter(new.snapshots.ids()), None)
    keeps_history = common is not None and first is not None and first <= common.id
    last = 0 if common is None else common.id
    kept = {
        each
        for each in all_references(store)
        if each.branch == was
        and each.snapshot_id <= last
        and (keeps_history or each.kind in (ReferenceKind.TAG, ReferenceKind.SAVEPOINT))
    }
    return _found(store, old, set(_own_tags(old, new)), kept=frozenset(kept))[1]


def _found(
    store: TableStore, old: TableStore, let_go: set[str], *, kept: frozenset[LiveReference]
) -> tuple[UnusedBranchFiles, MainReplaced]:
    """The files that only the former main uses and tags of its successor, and the result of deleting them."""
    was = old.paths.branch
    gone = {
        each
        for each in all_references(store)
        if each.branch == was
        or (each.branch == store.main_branch and each.kind is ReferenceKind.TAG and each.name in let_go)
    }
    unused = files_only_of(store, gone - kept)
    done = MainReplaced(
        main=store.main_branch,
        dropped=was,
        snapshot_count=len(old.snapshots.ids()),
        data=unused.data,
        size_bytes=size_of(store.io, unused),
    )
    return unused, done


def _life_of(branch: TableStore) -> tuple[object, ...]:
    """References that a branch of a table that was created again does not share."""
    first = next(iter(branch.schemas.ids()), None)
    schema = None if first is None else branch.schemas.find(first)
    return creation_id(branch.io, branch.paths), None if schema is None else (schema.table_uuid, schema.identity)


def _own_tags(old: TableStore, new: TableStore) -> Iterator[str]:
    """The tags that kept what was merged from a branch, and where it began, unless another branch began there.

    Without merge tags that were tags of the old main too.
    """
    origin = read_origin(new.io, new.paths)
    start = origin.tag if origin is not None and origin.owns_tag else None
    for name in new.snapshots.tag_names():
        kept, before = new.snapshots.find_tag(name), old.snapshots.find_tag(name)
        is_merge = is_merge_tag(name) and not (before is not None and kept is not None and before.ref == kept.ref)
        if kept is not None and (is_merge or name == start) and branch_made_from(new, name, kept) is None:
            yield name


def matching_directories(source: TablePaths, target: TablePaths) -> list[tuple[str, str]]:
    """The directories of two branches; schemas last, because they make the table visible to others."""
    kinds = attrgetter(
        "snapshot_dir", "tag_dir", "changelog_dir", "consumer_dir", "savepoint_dir", "expiry_dir", "removed_dir"
    )
    return [
        *zip(kinds(source), kinds(target), strict=True),
        (expired_commits_directory(source), expired_commits_directory(target)),
        (source.schema_dir, target.schema_dir),
    ]


def clear_table_directory(store: TableStore, work: Work) -> None:
    """Delete what a former main has left; not of a table that was created again under the name.

    Args:
        store: names the branch that is main.
        work: the operation on that branch for which this is done: another run may have ended it.
    """
    there = store.paths.with_branch(MAIN_BRANCH)
    for directory, _ in reversed(matching_directories(there, there)):
        if isinstance(store.io, MovesDirectories):
            _clear_by_move(store, store.io, directory, work)
        else:
            _clear_by_name(store, directory, work)
    here = store.paths.with_branch(store.main_branch).branch_root
    for name in store.io.list_names(here):
        if name.startswith(_MOVED):  # also what a run has left that died
            store.io.delete_tree(f"{here}/{name}")


def _clear_by_move(store: TableStore, files: MovesDirectories, directory: str, work: Work) -> None:
    here = store.paths.with_branch(store.main_branch).branch_root
    if not store.io.is_directory(directory):
        return
    moved = f"{here}/{_MOVED}{store.names.uuid()}"
    if not files.make_inside(moved):
        return  # the table is not there any more
    if _is_at_work(store, work):
        files.move_into(directory, moved)
    store.io.delete_tree(moved)


def _clear_by_name(store: TableStore, directory: str, work: Work) -> None:
    for name in store.io.list_names(directory):
        if not _is_at_work(store, work):
            return
        path = f"{directory}/{name}"
        (store.io.delete_tree if store.io.is_directory(path) else store.io.delete)(path)


def _is_at_work(store: TableStore, work: Work) -> bool:
    branch = store.paths.with_branch(store.main_branch)
    return main_branch(store.io, store.paths.root) == store.main_branch and read_work(store.io, branch) == work
