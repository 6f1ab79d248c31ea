"""Live references: all states of a table that can still be read, on every branch.

A live reference is a snapshot, a tag, a savepoint, a tag that is being created, or a changelog that is kept longer than
its snapshot.
Files without a live reference are not part of the table.

A renamed tag has its new name before it loses the old one. So if a listed tag cannot be read, the listing is repeated,
and misses none.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final

from filestore.layout.branch_names import is_merge_tag
from filestore.layout.paths import BRANCH_PREFIX, MAIN_BRANCH
from filestore.refs.pending_tags import find_pending, pending_tags
from filestore.refs.savepoint_files import find_savepoint, savepoint_ids
from filestore.snapshot.changelogs import changelog_ids, find_changelog
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import FluvialError, UnavailableError

FORK_TAG_PREFIX: Final = "fork-of-snapshot-"
"""Prefix of the tags of forks, which repair has taken out of the history."""
_MOST_LOOKS: Final = 1000
"""Attempts at tags that others rename. A listing that permanently names a missing tag ends in an error."""


class ReferenceKind(Enum):
    """The kind of a live reference."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    SAVEPOINT = "savepoint"
    CHANGELOG = "changelog"  # the changes of one commit, without the rest of its snapshot
    PENDING = "pending tag"  # being created, or left by a process that died; see ``pending_tags``


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReference:
    """One readable state of one branch."""

    kind: ReferenceKind
    branch: str
    name: str  # name of a tag, of the file of a pending one, else the id
    snapshot_id: int
    snapshot: Snapshot | None = field(default=None, compare=False)  # None: in the snapshot directory, not read yet
    files: frozenset[str] = field(default=frozenset(), compare=False)  # of a savepoint: paths of its additional files

    def __str__(self) -> str:
        where = "" if self.branch == MAIN_BRANCH else f"{self.branch}."
        return f"{self.kind.value} {where}{self.name}"


def branch_names(store: TableStore) -> list[str]:
    """Main, and every other branch with a directory."""
    names = store.io.list_names(store.paths.branch_dir)
    others = [name.removeprefix(BRANCH_PREFIX) for name in names if name.startswith(BRANCH_PREFIX)]
    return [MAIN_BRANCH, *others]


def on_branch(store: TableStore, branch: str) -> TableStore:
    """A copy of the table with the snapshots and tags of another branch, but the schema of the opened one.

    Raises: InvalidInputError: a link leads out of the table, see ``TableStore.check_links``.
    """
    if branch == store.paths.branch:
        return store
    there = replace(store, paths=store.paths.with_branch(branch), opened=None, _schemas={})
    there.check_links()
    return there


def snapshot_references(store: TableStore) -> list[LiveReference]:
    """The snapshots of the table's own branch, oldest first, without reading them."""
    branch = store.paths.branch
    return [
        LiveReference(kind=ReferenceKind.SNAPSHOT, branch=branch, name=str(each), snapshot_id=each)
        for each in store.snapshots.ids()
    ]


def tag_references(store: TableStore) -> list[LiveReference]:
    """The tags of the table's own branch, by snapshot. Raises: CorruptDataError for a tag that cannot be read."""
    tags = (_tag(store, name, snapshot) for name, snapshot in _listed_tags(store).items())
    return sorted((each for each in tags if each is not None), key=_by_id)


def _listed_tags(store: TableStore) -> dict[str, Snapshot]:
    for _ in range(_MOST_LOOKS):
        found = {name: store.snapshots.find_tag(name) for name in store.snapshots.tag_names()}
        there = {name: snapshot for name, snapshot in found.items() if snapshot is not None}
        if len(there) == len(found):
            return there
    raise UnavailableError(
        f"tags are deleted or renamed as fast as they are listed: table={store.name} looks={_MOST_LOOKS} "
        "fix='try again'"
    )


def pending_references(store: TableStore) -> list[LiveReference]:
    """The tags of the table's own branch that are being created; those that get their name meanwhile, as tags."""
    references = []
    for name, tag in pending_tags(store):
        snapshot = find_pending(store, name)
        if snapshot is not None:
            references.append(_reference(ReferenceKind.PENDING, store, name, snapshot))
        elif (named := store.snapshots.find_tag(tag)) is not None:
            references.append(_reference(ReferenceKind.TAG, store, tag, named))
    return references


def savepoint_references(store: TableStore) -> list[LiveReference]:
    """The savepoints of the table's own branch. Raises: CorruptDataError for one that cannot be read."""
    found = [_savepoint(store, each) for each in savepoint_ids(store)]
    return [each for each in found if each is not None]


def changelog_references(store: TableStore) -> list[LiveReference]:
    """The changelogs of the table's own branch that outlived their snapshots."""
    found = [_changelog(store, each) for each in changelog_ids(store.io, store.paths)]
    return [each for each in found if each is not None]


def changelog_reference(store: TableStore, snapshot: Snapshot) -> LiveReference:
    """The changelog of a snapshot of the table's own branch, whether it is there yet or not."""
    return _reference(ReferenceKind.CHANGELOG, store, str(snapshot.id), snapshot)


def other_references(store: TableStore) -> list[LiveReference]:
    """All live references except the snapshots of the table's own branch, which their expiry must respect."""
    references = _lasting_references(store)
    for branch in branch_names(store):
        if branch != store.paths.branch:
            other = on_branch(store, branch)
            references += [*snapshot_references(other), *_lasting_references(other)]
    return references


def in_order(references: Iterable[LiveReference]) -> list[LiveReference]:
    """References by kind, branch, snapshot and name, so that files are accessed in one order whatever process it is."""
    return sorted(references, key=lambda each: (each.kind.value, each.branch, each.snapshot_id, each.name))


def all_references(store: TableStore) -> list[LiveReference]:
    """Every live reference of every branch."""
    return [*snapshot_references(store), *other_references(store)]


def readable_references(store: TableStore) -> tuple[list[LiveReference], list[tuple[str, FluvialError]]]:
    """Every live reference that can be read, and what is wrong with each of the others, by its name."""
    found: list[LiveReference] = []
    unreadable: list[tuple[str, FluvialError]] = []
    for branch in branch_names(store):
        there = on_branch(store, branch)
        found += snapshot_references(there)
        reads: list[tuple[str, Callable[[], LiveReference | None]]] = [
            *((f"tag {name}", partial(_find_tag, there, name)) for name in there.snapshots.tag_names()),
            *((f"savepoint {each}", partial(_savepoint, there, each)) for each in savepoint_ids(there)),
            *((f"changelog {each}", partial(_changelog, there, each)) for each in changelog_ids(there.io, there.paths)),
        ]
        for name, read in reads:
            try:
                reference = read()
            except FluvialError as error:
                unreadable.append((name if branch == MAIN_BRANCH else f"{branch} {name}", error))
                continue
            found += [] if reference is None else [reference]
    return found, unreadable


def _lasting_references(store: TableStore) -> list[LiveReference]:
    pending = pending_references(store)  # before those that they become
    lasting = [*tag_references(store), *savepoint_references(store), *changelog_references(store)]
    return [*(each for each in pending if each not in lasting), *lasting]


def _by_id(reference: LiveReference) -> int:
    return reference.snapshot_id


def _reference(kind: ReferenceKind, store: TableStore, name: str, snapshot: Snapshot) -> LiveReference:
    return LiveReference(kind=kind, branch=store.paths.branch, name=name, snapshot_id=snapshot.id, snapshot=snapshot)


def _tag(store: TableStore, name: str, snapshot: Snapshot) -> LiveReference | None:
    """None: expired by another engine, which does not look at the tags of branches."""
    is_expired = is_merge_tag(name) and not has_manifests(store, snapshot)
    return None if is_expired else _reference(ReferenceKind.TAG, store, name, snapshot)


# None: deleted since the listing


def _find_tag(store: TableStore, name: str) -> LiveReference | None:
    snapshot = store.snapshots.find_tag(name)
    return None if snapshot is None else _tag(store, name, snapshot)


def has_manifests(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether the manifest lists of a snapshot are there; what deletes its files deletes these last."""
    names = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return all(store.io.exists(store.paths.manifest(name)) for name in names)


def _savepoint(store: TableStore, savepoint_id: int) -> LiveReference | None:
    found = find_savepoint(store, savepoint_id)
    if found is None:
        return None
    reference = _reference(ReferenceKind.SAVEPOINT, store, str(found.id), found.snapshot)
    return replace(reference, files=frozenset(found.own_paths(store.paths)))


def _changelog(store: TableStore, snapshot_id: int) -> LiveReference | None:
    snapshot = find_changelog(store.io, store.paths, snapshot_id)
    return None if snapshot is None else changelog_reference(store, snapshot)
