"""Origins of branches: by the record of their creation, or for branches of other engines by the files they copied.

A tag of the same name and snapshot on both sides says nothing: both may have created it after the branch began. So
what changes the tags of such a branch records its origin first.
"""

from filestore.layout.branch_state import BranchOrigin, read_origin, write_origin
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.live_references import branch_names, on_branch
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore


def origin_of(store: TableStore, name: str) -> BranchOrigin:
    """The origin of a branch. Branches of other engines start with a copy of their tag."""
    there = on_branch(store, name)
    known = read_origin(store.io, there.paths)
    if known is not None:
        return known
    main = store.paths.with_branch(store.main_branch)
    tag, first = _first_tag(there)
    shared = [each for each in there.schemas.ids() if _is_same_file(store, main.schema(each), there.paths.schema(each))]
    newest = max(shared, default=0)
    created_ms = store.io.modified_ms(there.paths.schema(newest)) if shared else 0
    return BranchOrigin(tag=tag, snapshot_id=first, schema_id=newest, first_schema_id=newest, created_ms=created_ms)


def record_origin(store: TableStore) -> None:
    """Record where the table's branch began, before its tags change: those of another engine's branch alone say it."""
    if store.paths.branch in (MAIN_BRANCH, store.main_branch) or read_origin(store.io, store.paths) is not None:
        return
    write_origin(store.io, store.paths, origin_of(store, store.paths.branch))


def start_of(store: TableStore, name: str) -> tuple[str | None, int | None]:
    """Tag and snapshot of its parent at which a branch began; (None, None): it began empty."""
    known = read_origin(store.io, store.paths.with_branch(name))
    return _first_tag(on_branch(store, name)) if known is None else (known.tag, known.snapshot_id)


def branch_made_from(store: TableStore, name: str, snapshot: Snapshot) -> str | None:
    """A branch that was created from a tag of the table's branch, which must keep it. None: there is none."""
    return next((each for each in children_of(store) if start_of(store, each) == (name, snapshot.id)), None)


def children_of(store: TableStore) -> list[str]:
    """The branches that were created from the table's branch, also hidden ones."""
    others = (branch for branch in branch_names(store) if branch not in (MAIN_BRANCH, store.main_branch))
    return [each for each in others if each != store.paths.branch and parent_of(store, each) == store.paths.branch]


def parent_of(store: TableStore, name: str) -> str:
    """The branch that a branch was created from, under its present name."""
    return parent_by(store, read_origin(store.io, store.paths.with_branch(name)))


def parent_by(store: TableStore, origin: BranchOrigin | None) -> str:
    """The branch that an origin names as the parent.

    A parent that became main is main, also when it was moved into the table's directory or replaced, and another branch
    has got its name; no other goes before its children.
    """
    parent = None if origin is None else origin.parent
    if origin is None or parent is None:
        return store.main_branch
    there = store.paths.with_branch(parent)
    if not store.io.list_names(there.schema_dir):
        return store.main_branch
    known = read_origin(store.io, there) if origin.parent_id else None
    is_another = origin.parent_id != "" and (known is None or known.id != origin.parent_id)
    return store.main_branch if is_another else parent


def _first_tag(store: TableStore) -> tuple[str | None, int | None]:
    """The tag of the oldest snapshot: branches of other engines start with a copy of their tag."""
    names = store.snapshots.tag_names()
    tags = [(snapshot.id, tag) for tag in names if (snapshot := store.snapshots.find_tag(tag))]
    first, found = min(tags, default=(None, None))
    return found, first


def _is_same_file(store: TableStore, one: str, other: str) -> bool:
    try:
        return store.io.read_bytes(one) == store.io.read_bytes(other)
    except FileNotFoundError:
        return False
