"""Which commits of one user are published; every snapshot is read at most once."""

from itertools import islice

from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import DATA_KINDS, ExpiredCommits
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore


class CommitHistory:
    """Answers "was this identifier committed already?".

    Identifiers of one user rise, so everything up to the newest committed one is committed. Compactions and statistics
    do not count: they carry the identifiers of other commits.
    """

    def __init__(self, store: TableStore, commit_user: str, *, start: int = 0) -> None:
        """The history of a commit user that was created after snapshot ``start``; 0: all snapshots are searched."""
        self._table = store
        self._commit_user = commit_user
        self._start = start
        self._scanned: Snapshot | None = None
        self._newest: Snapshot | None = None
        self._expired: int | None = None  # highest identifier that an expiry has noted; -1: none

    def newest(self, latest: Snapshot | None) -> Snapshot | None:
        """The newest data commit of this user up to ``latest``, None when there is none or it has expired."""
        if latest is None or self._was_rewritten(latest):
            self._scanned = self._newest = None
        if latest is not None:
            done = self._scanned.id if self._scanned else self._start
            self._newest = self._find_downwards(latest, done) or self._newest
            self._scanned = latest
        return self._newest

    def find(self, latest: Snapshot | None, identifier: int) -> Snapshot | None:
        """The snapshot that made ``identifier`` visible; None when it is not committed.

        When that snapshot itself has expired, the newest one of the user, which proves it, or of the table when all of
        the user's have.
        """
        newest = self.newest(latest)
        if newest is None and latest is not None and self._has_expired(identifier):
            return latest
        if newest is None or identifier > newest.commit_identifier:
            return None
        snapshot: Snapshot | None = newest
        while snapshot is not None and snapshot.commit_identifier > identifier:
            snapshot = self._find_downwards(snapshot, self._start, skip_first=True)
        return snapshot if snapshot is not None and snapshot.commit_identifier == identifier else newest

    def _has_expired(self, identifier: int) -> bool:
        """Whether the snapshot of this identifier expired, or that of a later one."""
        if identifier == BATCH_IDENTIFIER:
            return False  # of a batch job: its user has no other commit
        if self._expired is None:
            noted = ExpiredCommits(self._table).newest(self._commit_user)
            self._expired = -1 if noted is None else noted
        return identifier <= self._expired

    def _find_downwards(self, latest: Snapshot, floor: int, *, skip_first: bool = False) -> Snapshot | None:
        for snapshot in islice(self._table.snapshots.back_from(latest), int(skip_first), None):
            if snapshot.id <= floor:
                return None
            if snapshot.commit_user == self._commit_user and snapshot.commit_kind in DATA_KINDS:
                return snapshot
        return None  # expired

    def _was_rewritten(self, latest: Snapshot) -> bool:
        """Whether a rollback removed scanned snapshots, so that the result of the scan is void."""
        if self._scanned is None:
            return False
        if latest.id < self._scanned.id:
            return True
        still = latest if latest.id == self._scanned.id else self._table.snapshots.find(self._scanned.id)
        return still is not None and still.delta_manifest_list != self._scanned.delta_manifest_list
