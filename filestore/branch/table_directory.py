"""The directories of a main branch in the table's directory itself, and their end when another branch is main.

A table that was dropped and made again has the same names. So nothing is deleted there by name behind a look: each
directory is moved into a new one in the directory of the branch that replaced it, which fails if one of the two is
missing, and is deleted there. Both are in one table at that moment, and the new name is unique: so what a process moves
that was paused behind its look is of the table that it looked at. Object stores move nothing: there a file is deleted
behind a look, and a drop takes away its table in as many steps.
"""

from operator import attrgetter
from typing import Final

from filestore.commit.expired_commits import expired_commits_directory
from filestore.io.file_io import MovesDirectories
from filestore.layout.branch_state import Work, main_branch, read_work
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.table_store import TableStore

_MOVED: Final = "replaced-"


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
    """Delete what a former main has left; not of a table that was made again under the name.

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
