"""The branch that was main: what goes with it when another one takes its place, and how it goes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from filestore.branch.files import UnusedBranchFiles, clear_branch, delete_unused, files_only_of, size_of
from filestore.branch.table_directory import clear_table_directory
from filestore.layout.branch_names import is_merge_tag
from filestore.layout.branch_state import (
    Operation,
    Work,
    complete_work,
    creation_id,
    main_branch,
    read_origin,
    replace_work,
)
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.branch_origins import branch_made_from
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, on_branch
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

WAS: Final = "was"
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


def drop(store: TableStore, was: str) -> MainReplaced:
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
    store.refs_changed()
    return done


def planned_drop(store: TableStore, was: str, common: Snapshot | None) -> MainReplaced:
    """What ``drop`` would delete; nothing is changed.

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
    """What a branch of a table that was made again does not share."""
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
