"""Which live references decide whether a file may be deleted: the one answer for all that delete files.

A file is on the line of history of a branch from the commit that adds it to the one that removes it, without a gap,
because names are never reused. So of the references on the line, only the nearest on each side of a snapshot with the
file can have it too. All others are asked always, as they show nothing of each other: those of other branches, which
share files from their creation, and what a branch has beside its line, forks and tags of forks.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from filestore.refs.live_references import FORK_TAG_PREFIX, LiveReference, ReferenceKind
from filestore.snapshot.snapshot import Snapshot, names_parent
from filestore.snapshot.snapshot_line import SnapshotLine
from filestore.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Deciders:
    """The live references that decide about the files of one snapshot; see ``DecidingReferences``."""

    own: Sequence[LiveReference]  # of the branch of the snapshot, by snapshot
    older: int  # in ``own``: the end of those up to the snapshot
    newer: int  # in ``own``: the start of those behind the snapshot, if they decide
    others: Sequence[LiveReference]  # all decide
    ends: Callable[[Sequence[LiveReference]], bool]  # whether one of those with a number is on the line

    def sides(self) -> Iterator[Iterator[Sequence[LiveReference]]]:
        """References before the snapshot, and references after it: each side by snapshot, the nearest first.

        The nearest one that is on the line decides, and all up to it. A reference that was deleted before its files
        are read, or that is being deleted and incomplete, does not decide: then the next one does.
        """
        yield self._down()
        yield self._up()

    # of several with one id all count: a fork may have got the id of a tagged snapshot

    def _down(self) -> Iterator[Sequence[LiveReference]]:
        end = self.older
        while end:
            start = bisect_left(self.own, self.own[end - 1].snapshot_id, key=_by_id)
            yield self.own[start:end]
            end = start

    def _up(self) -> Iterator[Sequence[LiveReference]]:
        start = self.newer
        while start < len(self.own):
            end = bisect_right(self.own, self.own[start].snapshot_id, key=_by_id)
            yield self.own[start:end]
            start = end


class BranchLine:
    """Which references of a table's branch are on its line of history, and which are beside it."""

    def __init__(self, store: TableStore, references: Iterable[LiveReference], line: SnapshotLine) -> None:
        """Start from the line of the table's branch. ``references``: the remaining ones of the table."""
        self._line = line
        self._removed = store.snapshots.removed.identities()
        self._named: defaultdict[int, list[Snapshot]] = defaultdict(list)
        for each in references:
            if each.branch == store.paths.branch and each.snapshot is not None and not self._is_of_fork(each):
                self._named[each.snapshot_id].append(each.snapshot)

    def is_beside(self, reference: LiveReference) -> bool:
        """Whether a reference is known not to be on the line, without a look at files."""
        if not self._line.reaches(reference.snapshot_id) or self._is_of_fork(reference):
            return True
        return reference.snapshot is not None and self._is_contradicted(reference.snapshot)

    def has(self, reference: LiveReference) -> bool:
        """Whether a reference is on the line."""
        if reference.snapshot is None:
            return self._line.has(reference.snapshot_id)
        return not self._is_of_fork(reference) and self.has_state(reference.snapshot)

    def has_state(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot, which may have expired, is or was on the line.

        What a tag keeps of those that expired was there when it was tagged, unless what others keep shows otherwise.
        """
        if snapshot.identity in self._removed:
            return False
        found = self._line.has_state(snapshot)
        return not self._is_contradicted(snapshot) if found is None else found

    def _is_of_fork(self, reference: LiveReference) -> bool:
        """Whether a repair or a rollback took it out of the history, or an earlier branch of its tag did."""
        if reference.kind is ReferenceKind.TAG and reference.name.startswith(FORK_TAG_PREFIX):
            return True
        return reference.snapshot is not None and reference.snapshot.identity in self._removed

    def _is_contradicted(self, snapshot: Snapshot) -> bool:
        """Whether what other tags keep with its number, or the ones beside, is not of the history of this one."""
        named, at = self._named, snapshot.id
        return (
            any(each.identity != snapshot.identity for each in named.get(at, ()))
            or any(not names_parent(each, snapshot) for each in named.get(at + 1, ()))
            or any(not names_parent(snapshot, each) for each in named.get(at - 1, ()))
        )


class DecidingReferences:
    """The live references that decide whether a file may be deleted: if none of these uses it, none does."""

    def __init__(self, references: Sequence[LiveReference], *, branch: str, line: BranchLine | None = None) -> None:
        """Index the references.

        Args:
            references: the remaining references.
            branch: the branch of the files.
            line: of that branch; None: all of its references are on it.
        """
        self._line = line
        own: list[LiveReference] = []
        self._others: list[LiveReference] = []
        for each in references:
            is_own = each.branch == branch and each.kind is not ReferenceKind.CHANGELOG
            is_beside = is_own and line is not None and line.is_beside(each)
            (own if is_own and not is_beside else self._others).append(each)
        self._own = sorted(own, key=_by_id)

    @classmethod
    def of(cls, store: TableStore, references: Sequence[LiveReference], *, line: SnapshotLine | None = None) -> Self:
        """Of the table's branch. ``line``: as it was seen; None: as it is now."""
        own = BranchLine(store, references, line or store.snapshots.line())
        return cls(references, branch=store.paths.branch, line=own)

    def about(self, snapshot_id: int, *, is_last: bool) -> Deciders:
        """The references to ask for a file of the line.

        Args:
            snapshot_id: a snapshot on the line of that branch with the file, deleted or about to be.
            is_last: the next snapshot on the line no longer has the file.
        """
        end = bisect_right(self._own, snapshot_id, key=_by_id)
        return Deciders(self._own, end, len(self._own) if is_last else end, self._others, self._ends)

    def about_state(self, snapshot: Snapshot) -> Deciders:
        """The references to ask for a file of a snapshot, wherever it is: beside the line, all."""
        is_on_line = self._line is None or self._line.has_state(snapshot)
        return self.about(snapshot.id, is_last=False) if is_on_line else self.all()

    def all(self) -> Deciders:
        """All references, to ask for files of what need not be on the line."""
        return Deciders((), 0, 0, [*self._own, *self._others], self._ends)

    def _ends(self, references: Sequence[LiveReference]) -> bool:
        return self._line is None or any(self._line.has(each) for each in references)


def _by_id(reference: LiveReference) -> int:
    return reference.snapshot_id
