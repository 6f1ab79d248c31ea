"""Branches: the same table with snapshots, schemas and tags of its own.

Data files and manifests are shared, so making a branch copies a tag, its snapshot and the schemas up to it, and no
rows. Another engine's expiry of main looks at main's tags only: the tag that a branch was made from stays as long as
the branch, and one is made for a branch that begins at a plain snapshot. A branch is there from the moment that all of
it is. Source: paimon-format.md section 9 (Paimon BranchManager); BR-05 to BR-08, BR-17 to BR-25, BR-33 to BR-35, BR-41.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from filestore.branch.creation import fill_branch, new_origin, own_tag
from filestore.branch.files import branch_entries, clear_branch, copy_branch, delete_unused, files_only_of, size_of
from filestore.io.file_io import FileIO
from filestore.layout.branch_names import split_branch
from filestore.layout.branch_state import (
    OPERATION_FILE,
    BranchOrigin,
    Operation,
    Work,
    begin_work,
    end_work,
    is_hidden,
    main_branch,
    read_origin,
    read_work,
    replace_work,
    write_origin,
)
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, branch_names, on_branch
from filestore.schema.schema_store import SchemaStore
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag.tags import delete_tag
from lsm.errors import ConflictError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch and where it began."""

    name: str
    tag: str | None  # of main
    snapshot_id: int | None  # None: made empty


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBranch:
    """A branch that went, and the files that only it used."""

    branch: Branch
    data: frozenset[str]  # paths of data and changelog files
    metadata: frozenset[str]
    size_bytes: int  # of data


def create_branch(
    store: TableStore,
    name: str,
    *,
    tag: str | None = None,
    snapshot_id: int | None = None,
    options: Mapping[str, str] | None = None,
    log: Mapping[str, str] | None = None,
    ignore_if_exists: bool = False,
) -> Branch:
    """Make a branch of main; when this dies, run it again.

    Args:
        store: opened on its main branch.
        name: without ``.`` and ``/``, not a number and not ``main``.
        tag: of main, to begin at.
        snapshot_id: of main, to begin at; a tag ``branch-<name>`` is made for it. None of both: the branch is empty.
        options: of the branch, where they differ from main's.
        log: the options that say where the branch's own log is, of an empty topic; None: it has no log, see
            ``branch_log``.
        ignore_if_exists: return the branch that is there, wherever it began.

    Raises:
        InvalidInputError: a name that no branch can have or that is taken, or no such tag or snapshot.
        ConflictError: the tag was deleted, or the snapshot expired, at this moment; or somebody else makes or deletes a
            branch of this name.
    """
    check_branch_name(name)
    store = current(store)
    _check_on_main(store)
    if tag is not None and snapshot_id is not None:
        raise InvalidInputError(
            f"a branch begins at a tag or a snapshot: branch={name} tag={tag} snapshot={snapshot_id}"
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
    if not begin_work(store.io, there.paths, work):
        clear_branch(store.io, there.paths)
    try:
        origin = new_origin(store, name, tag, snapshot_id, options or {})
        fill_branch(store, there.paths, origin, log)
    except (InvalidInputError, ConflictError):
        clear_branch(store.io, there.paths)
        if snapshot_id is not None and store.snapshots.find_tag(own_tag(name)) is not None:
            delete_tag(store, own_tag(name))
        end_work(store.io, there.paths)
        raise
    end_work(store.io, there.paths)
    return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)


def list_branches(store: TableStore) -> list[Branch]:
    """All branches but main, by name. Raises: CorruptDataError for one that cannot be read."""
    names = (name for name in branch_names(store) if name != store.main_branch and _exists(store, name))
    return [_branch(store, name) for name in sorted(names)]


def read_branch(store: TableStore, name: str) -> Branch:
    """One branch. Raises: InvalidInputError naming the branches there are."""
    if name == store.main_branch or not _exists(store, name):
        raise InvalidInputError(
            f"no such branch: table={store.name} branch={name} branches={[each.name for each in list_branches(store)]}"
        )
    return _branch(store, name)


def delete_branch(store: TableStore, name: str, *, dry_run: bool = False) -> DeletedBranch:
    """Remove a branch, and the files that nothing else uses; when this dies, run it again.

    For everybody but another engine it is gone with the first step. A branch that could not be made is removed too.

    Raises:
        InvalidInputError: there is no such branch, or it is main.
        ConflictError: another operation is at work on it.
        CorruptDataError: another root refers to files that are missing, so what it uses is not known; no file is gone.
    """
    store = current(store)
    there = on_branch(store, name).paths
    _check_not_main(store, name)
    if not branch_entries(store.io, there):
        read_branch(store, name)
    branch = _branch(store, name)
    if not dry_run:
        _claim_to_delete(store, there)
        with _ending_if_refused(store.io, there):
            _check_not_main(current(store), name)  # it may have become main before this was begun
    unused = files_only_of(store, _roots_of(store, name))
    deleted = DeletedBranch(
        branch=branch, data=unused.data, metadata=unused.metadata.all, size_bytes=size_of(store.io, unused)
    )
    if not dry_run:
        origin = read_origin(store.io, there)
        if origin is not None and _own_tag_goes(store, origin, name) and origin.tag is not None:
            store.io.delete(store.paths.with_branch(store.main_branch).tag(origin.tag))
        delete_unused(store.io, unused)
        clear_branch(store.io, there)
        end_work(store.io, there)
    return deleted


def rename_branch(store: TableStore, name: str, target: str) -> Branch:
    """Give a branch another name; for a moment it has none. Its readers and writers have to open it again.

    When this dies, run it again: until then there is neither branch.

    Raises:
        InvalidInputError: there is no such branch, it is main, or the other name cannot be one or is taken.
        ConflictError: another operation is at work on one of them.
    """
    check_branch_name(target)
    store = current(store)
    io, old, new = store.io, on_branch(store, name).paths, on_branch(store, target).paths
    leaving = Work(operation=Operation.RENAME, arguments={"target": target})
    coming = Work(operation=Operation.RENAME, arguments={"source": name})
    if branch_entries(io, old) == [OPERATION_FILE] and read_work(io, old) == leaving:
        end_work(io, old)  # it died with its very last step
        return read_branch(store, target)
    if read_work(io, old) != leaving:  # else it was begun before
        _check_not_main(store, name)
        read_branch(store, name)
        _claim_name(store, new, coming)
        with _ending_if_refused(io, new):
            begin_work(io, old, leaving)
        with _ending_if_refused(io, new), _ending_if_refused(io, old):
            _check_not_main(current(store), name)
    origin = origin_of(store, name)
    write_origin(io, old, origin)  # another engine's branch has none
    if read_work(io, new) == coming:
        clear_branch(io, new)
        copy_branch(io, old, new)
        _rename_own_tag(store, new, origin, target, old=name)
        end_work(io, new)
    elif _identity(read_origin(io, new)) != _identity(origin):
        raise ConflictError(f"the renamed branch is not there any more: table={store.name} branch={target} was={name}")
    clear_branch(io, old)
    end_work(io, old)
    return read_branch(store, target)


def origin_of(store: TableStore, name: str) -> BranchOrigin:
    """Where a branch began. One of another engine begins with a copy of its tag."""
    there = on_branch(store, name)
    known = read_origin(store.io, there.paths)
    if known is not None:
        return known
    main = store.paths.with_branch(store.main_branch)
    tags = [(snapshot.id, tag) for tag in there.snapshots.tag_names() if (snapshot := there.snapshots.find_tag(tag))]
    first, tag = min(tags, default=(None, None))
    shared = [each for each in there.schemas.ids() if _is_same_file(store, main.schema(each), there.paths.schema(each))]
    newest = max(shared, default=0)
    made_ms = store.io.modified_ms(there.paths.schema(newest)) if shared else 0
    return BranchOrigin(tag=tag, snapshot_id=first, schema_id=newest, first_schema_id=newest, created_ms=made_ms)


def check_branch_name(name: str) -> None:
    """Refuse what cannot name a branch. Raises: InvalidInputError. Source: BR-41; Paimon BranchManager."""
    if name.strip().isdigit():
        raise InvalidInputError(f"a branch cannot be named by a number: branch={name!r} fix=add a word")
    if name == MAIN_BRANCH:
        raise InvalidInputError(f"this is what the main branch is called: branch={name!r} fix=choose another name")
    bad = sorted({char for char in name if char in "./\\$*?:" or not char.isprintable()})
    if not name.strip() or name != name.strip() or bad:
        raise InvalidInputError(
            f"not a name of a branch: branch={name!r} forbidden={bad} fix=use letters, digits, _ and -"
        )


def current(store: TableStore) -> TableStore:
    """The table as it is now: another branch may have become main since it was opened."""
    main = main_branch(store.io, store.paths.root)
    return store if main == store.main_branch else replace(store, main_branch=main)


def opened_on_main(store: TableStore) -> TableStore:
    """The table on its main branch, with the options that are in force there. Raises: InvalidInputError."""
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
        catalog=store.catalog,
    ).store


# ---- making one


def _check_no_leftovers(store: TableStore, there: TablePaths, work: Work) -> None:
    """A directory of this name is empty, or was left by the same call."""
    found = branch_entries(store.io, there)
    if found and read_work(store.io, there) != work:
        raise ConflictError(
            f"directory of a branch that is not there: table={store.name} branch={there.branch} found={found[:5]} "
            f"operation={read_work(store.io, there)} fix=wait for whoever is at work on it; else delete the branch"
        )


# ---- removing and renaming one


def _claim_to_delete(store: TableStore, there: TablePaths) -> None:
    """Hide the branch. One that was being made belongs to whoever deletes it."""
    work = Work(operation=Operation.DELETE)
    known = read_work(store.io, there)
    if known is not None and known.operation is Operation.CREATE:
        replace_work(store.io, there, work)
    else:
        begin_work(store.io, there, work)


def _roots_of(store: TableStore, name: str) -> set[LiveReference]:
    """What goes with a branch: its own roots, and the tag of main that was made for it."""
    origin = read_origin(store.io, store.paths.with_branch(name))
    own_tag = origin.tag if origin is not None and _own_tag_goes(store, origin, name) else None
    return {
        root
        for root in all_references(store)
        if root.branch == name
        or (root.branch == store.main_branch and root.kind is ReferenceKind.TAG and root.name == own_tag)
    }


def _claim_name(store: TableStore, there: TablePaths, work: Work) -> None:
    """Make a free name ours. Raises: InvalidInputError when it is taken."""
    begin_work(store.io, there, work)
    if SchemaStore(store.io, there).ids():
        end_work(store.io, there)
        raise InvalidInputError(
            f"branch exists already: table={store.name} branch={there.branch} fix=choose another name"
        )


@contextmanager
def _ending_if_refused(io: FileIO, there: TablePaths) -> Iterator[None]:
    """Another operation is at work on a branch, or it is main: then this one has not begun."""
    try:
        yield
    except (ConflictError, InvalidInputError):
        end_work(io, there)
        raise


def _own_tag_goes(store: TableStore, origin: BranchOrigin, *names: str) -> bool:
    """Whether the tag of main was made for a branch (of these names), and no other one was made from it since."""
    others = {*branch_names(store)} - {store.main_branch, MAIN_BRANCH, *names}
    return origin.owns_tag and not any(on_branch(store, each).snapshots.find_tag(origin.tag or "") for each in others)


def _rename_own_tag(store: TableStore, there: TablePaths, origin: BranchOrigin, name: str, *, old: str) -> None:
    """The tag of main that was made for a branch has the branch's name in its own."""
    renamed = origin
    if origin.tag is not None and _own_tag_goes(store, origin, name, there.branch, old):
        renamed = replace(origin, tag=own_tag(name))
        for paths in (store.paths.with_branch(store.main_branch), there):
            with suppress(FileNotFoundError):
                store.io.replace(paths.tag(own_tag(name)), store.io.read_bytes(paths.tag(origin.tag)))
                store.io.delete(paths.tag(origin.tag))
    write_origin(store.io, there, renamed)


def _identity(origin: BranchOrigin | None) -> BranchOrigin | None:
    """What stays of an origin when its branch is renamed."""
    return None if origin is None else replace(origin, tag=None)


def _is_same_file(store: TableStore, one: str, other: str) -> bool:
    try:
        return store.io.read_bytes(one) == store.io.read_bytes(other)
    except FileNotFoundError:
        return False


# ---- looking


def _exists(store: TableStore, name: str) -> bool:
    paths = store.paths.with_branch(name)
    return bool(SchemaStore(store.io, paths).ids()) and not is_hidden(store.io, paths)


def _branch(store: TableStore, name: str) -> Branch:
    origin = origin_of(store, name)
    return Branch(name=name, tag=origin.tag, snapshot_id=origin.snapshot_id)


def _check_not_main(store: TableStore, name: str) -> None:
    if name in (MAIN_BRANCH, store.main_branch):
        raise InvalidInputError(f"the main branch cannot be deleted or renamed: table={store.name} branch={name}")


def _check_on_main(store: TableStore) -> None:
    if store.paths.branch != store.main_branch:
        raise InvalidInputError(
            f"branches are made from main: table={store.name} opened_on={store.paths.branch} fix=open the table on main"
        )
