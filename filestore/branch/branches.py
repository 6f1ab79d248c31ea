"""Branches: alternative histories of a table, each with its own snapshots, schemas and tags.

Data files and manifests are shared, so creating a branch copies a tag, its snapshot and the schemas up to it, but no
rows. Another engine's expiry of main respects only main's tags: so the tag that a branch was created from is kept as
long as the branch, and one is created for a branch that starts at a plain snapshot. A branch becomes visible once it
is complete. Source: Paimon BranchManager.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from filestore.branch.creation import create_origin, fill_branch, own_tag
from filestore.branch.files import (
    branch_entries,
    clear_branch,
    copy_files,
    delete_released,
    delete_unused,
    files_only_of,
    size_of,
)
from filestore.commit.succession import check_is_same_table
from filestore.io.file_io import FileIO
from filestore.layout.branch_names import split_branch
from filestore.layout.branch_state import (
    NEEDING_A_BRANCH,
    OPERATION_FILE,
    BranchOrigin,
    Operation,
    Work,
    begin_work,
    complete_work,
    end_leftover_work,
    end_work,
    is_hidden,
    main_branch,
    read_origin,
    read_work,
    replace_work,
    write_origin,
)
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.layout.version_names import check_branch_name
from filestore.refs.branch_origins import children_of, origin_of, parent_by, parent_of, start_of
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, branch_names, on_branch
from filestore.schema.schema_store import SchemaStore
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag.tags import delete_tag
from lsm.errors import ConflictError, InvalidInputError
from lsm.nearest_names import names_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch and its origin."""

    name: str
    tag: str | None  # tag of main
    snapshot_id: int | None  # None: created empty


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBranch:
    """A deleted branch, and the files that only it used."""

    branch: Branch
    data: frozenset[str]  # paths of data and changelog files
    metadata: frozenset[str]
    size_bytes: int  # of data files


def create_branch(
    store: TableStore,
    name: str,
    *,
    tag: str | None = None,
    snapshot_id: int | None = None,
    options: Mapping[str, str] | None = None,
    log: Callable[[], Mapping[str, str]] | None = None,
    ignore_if_exists: bool = False,
) -> Branch:
    """Create a branch of main, or of another branch. Idempotent: rerun it after a crash.

    Args:
        store: opened on main, or on the branch that becomes the parent.
        name: see ``check_branch_name``.
        tag: tag of the parent to start at.
        snapshot_id: snapshot of the parent to start at; gets a tag ``branch-<name>``. Neither: the branch is empty.
        options: options of the branch that differ from main's.
        log: makes an empty topic and returns the options of the branch's own log, see ``branch_log``; called once
            nothing is in the way of the branch, before anything is written. None: the branch has no log.
        ignore_if_exists: return an existing branch, whatever its origin.

    Raises:
        InvalidInputError: the name is invalid or taken, or there is no such tag or snapshot.
        ConflictError: the tag was deleted or the snapshot expired concurrently; or another operation creates or deletes
            a branch of this name.
    """
    check_branch_name(name)
    store = current(store)
    _check_parent(store)
    if tag is not None and snapshot_id is not None:
        raise InvalidInputError(
            f"a branch starts at a tag or a snapshot, not both: branch={name} tag={tag} snapshot={snapshot_id}"
        )
    there = on_branch(store, name)
    if _exists(store, name):
        if ignore_if_exists:
            return read_branch(store, name)
        raise InvalidInputError(
            f"branch exists already: table={store.name} branch={name} fix=choose another name, or delete it first"
        )
    arguments = {"tag": tag, "snapshot": snapshot_id, "options": dict(options or {}), "has_log": log is not None}
    work = Work(operation=Operation.CREATE, arguments=arguments)
    _check_no_leftovers(store, there.paths, work)
    place = None if log is None else log()
    store = store.as_found  # what is gone is found behind the act, which is then undone
    if not begin_work(store.io, there.paths, work):
        clear_branch(store.io, there.paths)
    try:
        origin = create_origin(store, name, tag, snapshot_id, options or {})
        fill_branch(store, there.paths, origin, place)
        _check_parent(store)  # it may have been deleted before it could see the origin
        check_is_same_table(store)  # it may have been dropped or renamed, and perhaps made again
    except (InvalidInputError, ConflictError):
        clear_branch(store.io, there.paths)
        if snapshot_id is not None and store.snapshots.find_tag(own_tag(name)) is not None:
            with suppress(ConflictError):  # main is sealed
                delete_tag(store, own_tag(name))
        end_work(store.io, there.paths)
        raise
    complete_work(store.io, there.paths)
    store.refs_changed()
    return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)


def list_branches(store: TableStore) -> list[Branch]:
    """All branches except main, by name. Raises: CorruptDataError for one that cannot be read."""
    names = (name for name in branch_names(store) if name != store.main_branch and _exists(store, name))
    return [_branch(store, name) for name in sorted(names)]


def read_branch(store: TableStore, name: str) -> Branch:
    """One branch. Raises: InvalidInputError naming the existing branches."""
    if name == store.main_branch or not _exists(store, name):
        known = names_text("branches", name, (each.name for each in list_branches(store)))
        raise InvalidInputError(f"no such branch: table={store.name} branch={name} {known}")
    return _branch(store, name)


def branch_to_work_on(store: TableStore, name: str, operation: Operation) -> Branch:
    """``read_branch``; removes the traces of an operation on a branch that was deleted before it began."""
    try:
        return read_branch(store, name)
    except InvalidInputError:
        end_leftover_work(store.io, operation, on_branch(store, name).paths)
        raise


def delete_branch(store: TableStore, name: str, *, dry_run: bool = False) -> DeletedBranch:
    """Delete a branch, and the files that nothing else uses. Idempotent: rerun it after a crash.

    Hidden from the first step on, except from other engines. Also removes a branch with an incomplete creation.

    Raises:
        InvalidInputError: there is no such branch, or it is main.
        ConflictError: another operation on the branch is in progress.
        CorruptDataError: another live reference lacks files, so the files it uses are unknown; nothing is deleted.
    """
    store = current(store)
    there = on_branch(store, name).paths
    _check_not_main(store, name, Operation.DELETE)
    if not branch_entries(store.io, there):
        read_branch(store, name)
    branch = _branch(store, name)
    _check_not_read(store, name)
    _check_no_children(store, name)
    if not dry_run:
        _claim_to_delete(store, there)
        with _ending_on_refusal(store.io, there):
            _check_not_main(current(store), name, Operation.DELETE)  # it may have become main before this began
            _check_no_children(store, name)
    unused = files_only_of(store, _references_of(store, name))
    deleted = DeletedBranch(
        branch=branch, data=unused.data, metadata=unused.metadata.all, size_bytes=size_of(store.io, unused)
    )
    if not dry_run:
        origin = read_origin(store.io, there)
        if origin is not None and _owns_unshared_tag(store, origin, name) and origin.tag is not None:
            store.io.delete(store.paths.with_branch(parent_of(store, name)).tag(origin.tag))
        delete_unused(store, unused)
        clear_branch(store.io, there)
        delete_released(store, unused)
        complete_work(store.io, there)
        store.refs_changed()
    return deleted


def rename_branch(store: TableStore, name: str, target: str) -> Branch:
    """Rename a branch; not atomic, for a moment neither name exists. Its readers and writers must reopen it.

    Idempotent: rerun it after a crash, until then neither branch exists.

    Raises:
        InvalidInputError: there is no such branch, it is main, or the new name is invalid or taken.
        ConflictError: another operation on one of them is in progress.
    """
    check_branch_name(target)
    store = current(store)
    io, old, new = store.io, on_branch(store, name).paths, on_branch(store, target).paths
    source_work = Work(operation=Operation.RENAME, arguments={"target": target})
    target_work = Work(operation=Operation.RENAME, arguments={"source": name})
    claimed = [new] if read_work(io, new) == target_work else []
    _check_not_main(store, name, Operation.RENAME, *claimed)
    if branch_entries(io, old) == [OPERATION_FILE] and read_work(io, old) == source_work:
        end_work(io, old)  # interrupted before the last step
        return read_branch(store, target)
    if read_work(io, old) != source_work:  # else it has begun before
        read_branch(store, name)
        _check_not_read(store, name)
        _check_no_children(store, name)
        _claim_name(store, new, target_work)
        with _ending_on_refusal(io, new):
            begin_work(io, old, source_work)
        with _ending_on_refusal(io, new), _ending_on_refusal(io, old):
            _check_not_main(current(store), name, Operation.RENAME)
            _check_no_children(store, name)
    origin = origin_of(store, name)
    write_origin(io, old, origin)  # branches of other engines have none
    if read_work(io, new) == target_work:
        clear_branch(io, new)
        copy_files(io, old.branch_root, new.branch_root, besides=OPERATION_FILE)
        _rename_own_tag(store, new, origin, target, old=name)
        end_work(io, new)
    elif _identity(read_origin(io, new)) != _identity(origin):
        raise ConflictError(f"the renamed branch no longer exists: table={store.name} branch={target} was={name}")
    clear_branch(io, old)
    complete_work(io, old)
    store.refs_changed()
    return read_branch(store, target)


def current(store: TableStore) -> TableStore:
    """The table with its current main branch, which may have changed since it was opened."""
    main = main_branch(store.io, store.paths.root)
    return store if main == store.main_branch else replace(store, main_branch=main)


def opened_on_main(store: TableStore) -> TableStore:
    """The table on its main branch, with the options effective there. Raises: InvalidInputError."""
    now = current(store)
    if now.paths.branch == now.main_branch:
        return now
    return FileTable.open(
        split_branch(store.name)[0],
        store.paths.root,
        io=store.io,
        clock=store.clock,
        names=store.names,
        lock_factory=store.lock_factory,
        registry=store.registry,
        catalog=store.catalog,
    ).store


def opened_on_parent(store: TableStore, name: str) -> TableStore:
    """The table on the branch that a branch was created from, with the options effective there.

    Raises: InvalidInputError, also when there is no such branch.
    """
    main = opened_on_main(store)
    read_branch(main, name)
    parent = parent_of(main, name)
    return main if parent == main.paths.branch else FileTable(main).on_branch(parent).store


def _check_no_leftovers(store: TableStore, there: TablePaths, work: Work) -> None:
    """Raises: ConflictError unless the directory is empty or was left by the same call."""
    found = branch_entries(store.io, there)
    if found and read_work(store.io, there) != work:
        raise ConflictError(
            f"directory of an incomplete branch: table={store.name} branch={there.branch} found={found[:5]} "
            f"operation={read_work(store.io, there)} fix=wait for a running operation; else delete the branch"
        )


def _claim_to_delete(store: TableStore, there: TablePaths) -> None:
    """Hide the branch. Takes over an incomplete creation, and operations that died on a deleted branch."""
    work = Work(operation=Operation.DELETE)
    known = read_work(store.io, there)
    is_only = branch_entries(store.io, there) == [OPERATION_FILE]
    taken_over = {Operation.CREATE} | (NEEDING_A_BRANCH if is_only else set())
    if known is not None and known.operation in taken_over:
        replace_work(store.io, there, work)
    else:
        begin_work(store.io, there, work)


def _references_of(store: TableStore, name: str) -> set[LiveReference]:
    """The live references of a branch: its own, and the tag of its parent that was created for it."""
    parent = parent_of(store, name)
    origin = read_origin(store.io, store.paths.with_branch(name))
    created_tag = origin.tag if origin is not None and _owns_unshared_tag(store, origin, name) else None
    return {
        reference
        for reference in all_references(store)
        if reference.branch == name
        or (reference.branch, reference.kind, reference.name) == (parent, ReferenceKind.TAG, created_tag)
    }


def _claim_name(store: TableStore, there: TablePaths, work: Work) -> None:
    """Reserve a free name. Raises: InvalidInputError when it is taken."""
    begin_work(store.io, there, work)
    if SchemaStore(store.io, there).ids():
        end_work(store.io, there)
        raise InvalidInputError(
            f"branch exists already: table={store.name} branch={there.branch} fix=choose another name"
        )


@contextmanager
def _ending_on_refusal(io: FileIO, there: TablePaths) -> Iterator[None]:
    """End the work when it is refused: another operation on the branch is in progress, or it is main."""
    try:
        yield
    except (ConflictError, InvalidInputError):
        end_work(io, there)
        raise


def _owns_unshared_tag(store: TableStore, origin: BranchOrigin, *names: str) -> bool:
    """Whether the tag of its parent was created for a branch (of these names), and no other branch has it."""
    others = {*branch_names(store)} - {store.main_branch, MAIN_BRANCH, *names}
    start, parent = (origin.tag, origin.snapshot_id), parent_by(store, origin)
    return origin.owns_tag and all(
        start_of(store, each) != start or parent_of(store, each) != parent for each in others
    )


def _rename_own_tag(store: TableStore, there: TablePaths, origin: BranchOrigin, name: str, *, old: str) -> None:
    """Rename the tag of main that was created for a branch, since it contains the branch's name."""
    renamed = origin
    if origin.tag is not None and _owns_unshared_tag(store, origin, name, there.branch, old):
        renamed = replace(origin, tag=own_tag(name))
        for paths in (store.paths.with_branch(parent_of(store, there.branch)), there):
            with suppress(FileNotFoundError):
                store.io.replace(paths.tag(own_tag(name)), store.io.read_bytes(paths.tag(origin.tag)))
                store.io.delete(paths.tag(origin.tag))
    write_origin(store.io, there, renamed)


def _identity(origin: BranchOrigin | None) -> BranchOrigin | None:
    """The part of an origin that a rename preserves."""
    return None if origin is None else replace(origin, tag=None)


# ---- lookup


def _exists(store: TableStore, name: str) -> bool:
    paths = store.paths.with_branch(name)
    return bool(SchemaStore(store.io, paths).ids()) and not is_hidden(store.io, paths)


def _branch(store: TableStore, name: str) -> Branch:
    origin = origin_of(store, name)
    return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)


def _check_not_main(store: TableStore, name: str, operation: Operation, *claimed: TablePaths) -> None:
    if name in (MAIN_BRANCH, store.main_branch):
        end_leftover_work(store.io, operation, *claimed, on_branch(store, name).paths)
        raise InvalidInputError(f"the main branch cannot be deleted or renamed: table={store.name} branch={name}")


def _check_parent(store: TableStore) -> None:
    """Raises: InvalidInputError, unless the table is opened on main, or on a branch that exists."""
    branch = store.paths.branch
    if branch != store.main_branch and (branch == MAIN_BRANCH or not _exists(store, branch)):
        raise InvalidInputError(
            f"no such branch to create another one from: table={store.name} opened_on={branch} "
            f"main={store.main_branch} fix=open the table again"
        )


def _check_no_children(store: TableStore, name: str) -> None:
    """Raises: InvalidInputError when other branches were created from a branch."""
    children = children_of(on_branch(store, name))
    if children:
        raise InvalidInputError(
            f"branches were created from this branch: table={store.name} branch={name} branches={sorted(children)[:5]} "
            "fix=delete them first"
        )


def _check_not_read(store: TableStore, name: str) -> None:
    """Raises: InvalidInputError when batch reads of another branch take partitions from this one."""
    for branch in [store.main_branch, *(each.name for each in list_branches(store) if each.name != name)]:
        schema = on_branch(store, branch).schemas.latest()
        for key in (
            [key for key, other in schema.table_options.read_branches.items() if other == name] if schema else ()
        ):
            raise InvalidInputError(
                f"batch reads take partitions from this branch: table={store.name} branch={name} of={branch} "
                f"option={key} fix=ALTER TABLE ... RESET ('{key}') first"
            )
