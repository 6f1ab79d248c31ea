"""Roots: everything from which somebody may still read a table, on every branch.

A root is a snapshot, a tag, a savepoint, or a changelog that another engine keeps longer than its snapshot. What no
root refers to is not part of the table. Source: design.md section 5; paimon-format.md sections 1, 7.4 and 9.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from filestore.layout.paths import BRANCH_PREFIX, CHANGELOG_PREFIX, MAIN_BRANCH
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore


class ReferenceKind(Enum):
    """What keeps the files."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    SAVEPOINT = "savepoint"
    CHANGELOG = "changelog"  # what one commit changed, without the rest of its snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReference:
    """One state of one branch that can be asked for."""

    kind: ReferenceKind
    branch: str
    name: str  # of a tag; else the number
    snapshot_id: int
    snapshot: Snapshot | None = field(default=None, compare=False)  # None: in the snapshot directory, not read yet
    files: frozenset[str] = field(default=frozenset(), compare=False)  # of a savepoint: paths of its own beside these

    def __str__(self) -> str:
        where = "" if self.branch == MAIN_BRANCH else f"{self.branch}."
        return f"{self.kind.value} {where}{self.name}"


def branch_names(store: TableStore) -> list[str]:
    """Main, and every other branch that has a directory."""
    names = store.io.list_names(store.paths.branch_dir)
    others = [name.removeprefix(BRANCH_PREFIX) for name in names if name.startswith(BRANCH_PREFIX)]
    return [MAIN_BRANCH, *others]


def on_branch(store: TableStore, branch: str) -> TableStore:
    """The same table with the snapshots and tags of another branch; its schema stays that of the opened one."""
    if branch == store.paths.branch:
        return store
    return replace(store, paths=store.paths.with_branch(branch), _schemas={})


def snapshot_references(store: TableStore) -> list[LiveReference]:
    """The snapshots of the table's own branch, oldest first; none of them is read."""
    branch = store.paths.branch
    return [
        LiveReference(kind=ReferenceKind.SNAPSHOT, branch=branch, name=str(each), snapshot_id=each)
        for each in store.snapshots.ids()
    ]


def tag_references(store: TableStore) -> list[LiveReference]:
    """The tags of the table's own branch, by snapshot. Raises: CorruptDataError for a tag that cannot be read."""
    roots = []
    for name in store.snapshots.tag_names():
        snapshot = store.snapshots.find_tag(name)
        if snapshot is not None:  # else it was deleted since the listing
            roots.append(_root(ReferenceKind.TAG, store, name, snapshot))
    return sorted(roots, key=lambda root: root.snapshot_id)


def savepoint_references(store: TableStore) -> list[LiveReference]:
    """The savepoints of the table's own branch. Raises: CorruptDataError for one that cannot be read."""
    return [
        replace(
            _root(ReferenceKind.SAVEPOINT, store, str(each.id), each.snapshot),
            files=frozenset(each.own_paths(store.paths)),
        )
        for each in list_savepoints(store)
    ]


def changelog_references(store: TableStore) -> list[LiveReference]:
    """The changelogs of the table's own branch that outlived their snapshots."""
    return [_root(ReferenceKind.CHANGELOG, store, str(each.id), each) for each in _changelogs(store)]


def other_references(store: TableStore) -> list[LiveReference]:
    """All roots but the snapshots of the table's own branch: what an expiry of these has to spare."""
    roots = _lasting_references(store)
    for branch in branch_names(store):
        if branch != store.paths.branch:
            other = on_branch(store, branch)
            roots += [*snapshot_references(other), *_lasting_references(other)]
    return roots


def all_references(store: TableStore) -> list[LiveReference]:
    """Every root of every branch."""
    return [*snapshot_references(store), *other_references(store)]


class DecidingReferences:
    """The roots that decide whether a file may go: if none of these uses it, none at all does.

    A file is in a branch from the commit that adds it to the one that takes it away, without a gap, because a name is
    never used again. So of the roots of that branch, only the nearest on each side of a snapshot that has the file can
    have it too. Other branches took over what they found when they were made: all of theirs are asked.
    """

    def __init__(self, roots: Sequence[LiveReference], *, branch: str) -> None:
        """Sort them once.

        Args:
            roots: what is left.
            branch: that has had the files.
        """
        is_own = [root.branch == branch and root.kind is not ReferenceKind.CHANGELOG for root in roots]
        self._own = sorted((root for root, own in zip(roots, is_own, strict=True) if own), key=_by_id)
        self._others = [root for root, own in zip(roots, is_own, strict=True) if not own]

    def about(self, snapshot_id: int, *, is_last: bool) -> list[LiveReference]:
        """The roots to ask, in no order.

        Args:
            snapshot_id: of a snapshot of that branch, gone or going, that has the file.
            is_last: the next snapshot does not have the file any more.
        """
        newer = bisect_right(self._own, snapshot_id, key=_by_id)
        near = self._own[max(newer - 1, 0) : newer if is_last else newer + 1]
        return [*near, *self._others]


def _lasting_references(store: TableStore) -> list[LiveReference]:
    return [*tag_references(store), *savepoint_references(store), *changelog_references(store)]


def _by_id(root: LiveReference) -> int:
    return root.snapshot_id


def _root(kind: ReferenceKind, store: TableStore, name: str, snapshot: Snapshot) -> LiveReference:
    return LiveReference(kind=kind, branch=store.paths.branch, name=name, snapshot_id=snapshot.id, snapshot=snapshot)


def _changelogs(store: TableStore) -> Iterator[Snapshot]:
    paths = store.paths
    for name in store.io.list_names(paths.changelog_dir):
        number = name.removeprefix(CHANGELOG_PREFIX)
        if name.startswith(CHANGELOG_PREFIX) and number.isascii() and number.isdigit():
            try:
                body = store.io.read_bytes(paths.changelog(int(number)))
            except FileNotFoundError:
                continue
            yield Snapshot.from_json(body, source=paths.changelog(int(number)))
