"""The line of history of a branch: its newest snapshot, and those that it descends from. All else is a fork.

A writer that was overtaken may create its snapshot in a number that an expiry or a rollback has freed, and die before
it takes it back. Such a fork is a snapshot file like any other, but shows nothing of the history. Numbers inside of the
line are never free: an expiry frees the lowest, a rollback the highest. So where the numbers up to the newest have no
gap, a snapshot is on the line if the next one follows it: one look proves it, however long the line is.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from filestore.snapshot.snapshot import Snapshot


class SnapshotLine:
    """One listing of a branch's snapshots. A snapshot that is read later may have expired, and then proves nothing."""

    def __init__(
        self,
        listed: Sequence[int],
        *,
        first: int | None,
        newest: int | None,
        find: Callable[[int], Snapshot | None],
        follows: Callable[[Snapshot, Snapshot], bool],
    ) -> None:
        """Nothing is read yet.

        Args:
            listed: ids of all snapshot files, ascending.
            first: the oldest that is no fork, and is not about to expire; None: there is none.
            newest: the newest that is no fork; None: there is none.
            find: looks a snapshot up.
            follows: whether a snapshot was made on top of the one before. Raises: FileNotFoundError.
        """
        self.first = first
        self.newest = newest
        late = range(listed[-1] + 1, (newest or 0) + 1) if listed else ()  # published behind the listing
        self._listed = [*listed, *late]
        self._find, self._follows = find, follows
        self._known: dict[int, bool] = {}
        self._lowest: int | None = None

    @property
    def ids(self) -> Sequence[int]:
        """The numbers of the line, ascending, without what is about to expire; a fork between them counts."""
        if self.first is None or self.newest is None:
            return ()
        return self._listed[bisect_left(self._listed, self.first) : bisect_left(self._listed, self.newest + 1)]

    def reaches(self, snapshot_id: int) -> bool:
        """Whether a number is not behind the newest; what is behind it is no part of the line. Reads nothing."""
        return self.newest is not None and snapshot_id <= self.newest

    def has_no_gap(self, since: int) -> bool:
        """Whether there is a snapshot, of the line or a fork, with every number from this one to the newest."""
        return self.newest is not None and self._lowest_without_gap() <= since

    def has(self, snapshot_id: int) -> bool:
        """Whether the snapshot of this number is proved to be on the line, perhaps about to expire."""
        if snapshot_id not in self._known:
            self._known[snapshot_id] = self._is_proved(snapshot_id)
        return self._known[snapshot_id]

    def is_fork(self, snapshot_id: int) -> bool:
        """Whether the snapshot of this number, which is there, is certainly not on the line: it is before or behind."""
        is_before = self.first is not None and snapshot_id < self.first
        return (is_before or not self.reaches(snapshot_id)) and not self.has(snapshot_id)

    def has_state(self, snapshot: Snapshot) -> bool | None:
        """Whether a snapshot, which may have expired, is or was on the line; None: nothing that is there shows it."""
        if not self.reaches(snapshot.id):
            return False
        there = self._find(snapshot.id)
        if there is not None and there.identity == snapshot.identity:
            return self.has(snapshot.id)
        if there is not None and self.has(snapshot.id):
            return False  # another one has its number
        if self.has(snapshot.id + 1):
            following = self._find(snapshot.id + 1)
            return following is not None and self._is_next(following, snapshot)
        return None if self.first is not None and snapshot.id < self.first else False

    def _is_proved(self, snapshot_id: int) -> bool:
        if self.newest is None or snapshot_id > self.newest or not self.has_no_gap(snapshot_id):
            return False
        if snapshot_id == self.newest:
            return True
        if self.first is not None and snapshot_id < self.first and not self.has(snapshot_id + 1):
            return False  # numbers below were free, perhaps more than one
        one, following = self._find(snapshot_id), self._find(snapshot_id + 1)
        return one is not None and following is not None and self._is_next(following, one)

    def _is_next(self, following: Snapshot, snapshot: Snapshot) -> bool:
        try:
            return self._follows(following, snapshot)
        except FileNotFoundError:
            return False  # it is about to expire

    def _lowest_without_gap(self) -> int:
        """The lowest number from which there is a snapshot with every number up to the newest."""
        if self._lowest is None:
            assert self.newest is not None
            known, self._lowest = {*self._listed}, self.newest
            while self._lowest - 1 in known or self._is_unlisted(self._lowest - 1):
                self._lowest -= 1
        return self._lowest

    def _is_unlisted(self, snapshot_id: int) -> bool:
        """Whether a number is missing between those of a listing, and there: it was published while it was listed."""
        return bool(self._listed) and snapshot_id > self._listed[0] and self._find(snapshot_id) is not None
