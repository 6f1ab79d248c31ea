"""What streaming writers committed, as far as its snapshots have expired.

A writer finds its last commit in the snapshots; a query that was stopped for longer than they are kept would not, and
would write its last batch again. So before an expiry deletes the last snapshot of a writer, it notes the identifier:
one small file for each writer, beside the snapshots, where no reader of the layout looks.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.io.file_io import FileIO
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import CommitKind, Snapshot
from lsm.errors import CorruptDataError

DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})
"""Kinds of commits that a writer numbers itself; compactions carry the identifiers of other commits."""
_DIRECTORY: Final = "expired-commits"


def expired_commits_directory(paths: TablePaths) -> str:
    """Where the notes of a branch are."""
    return f"{paths.branch_root}/{_DIRECTORY}"


class ExpiredCommits:
    """The notes of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._directory = expired_commits_directory(paths)

    def newest(self, commit_user: str) -> int | None:
        """The highest identifier among a writer's expired snapshots; None: there are none. Raises: CorruptDataError."""
        path = self._path(commit_user)
        try:
            return int(json.loads(self._io.read_bytes(path))["identifier"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"note of a writer cannot be decoded: file={path} error={error!r}") from error

    def note(self, expiring: Iterable[Snapshot], *, following: Snapshot | None) -> dict[str, bytes]:
        """Note the newest identifier of each writer.

        Args:
            expiring: snapshots that are about to be deleted, oldest first.
            following: the first that stays: its writer needs no note.

        Returns:
            The notes that were written, by path.
        """
        written = {}
        kept = None if following is None or not _counts(following) else following.commit_user
        newest = {each.commit_user: each for each in expiring if _counts(each)}
        for commit_user, snapshot in newest.items():
            if commit_user != kept and snapshot.commit_identifier > (self.newest(commit_user) or -1):
                body = {"identifier": snapshot.commit_identifier, "snapshot": snapshot.id}
                path = self._path(commit_user)
                written[path] = json.dumps(body).encode()
                self._io.replace(path, written[path])
        return written

    def withdraw(self, written: Mapping[str, bytes]) -> None:
        """Delete notes that came into another table than the one that they are about, or where none is any more."""
        for path, body in written.items():
            with suppress(FileNotFoundError):
                if self._io.read_bytes(path) == body:
                    self._io.delete(path)

    def after(self, snapshot_id: int) -> list[str]:
        """Paths of the notes about commits after a snapshot; old notes without a snapshot id are among them."""
        found = []
        for name in self._io.list_names(self._directory):
            path = f"{self._directory}/{name}"
            if json.loads(self._io.read_bytes(path)).get("snapshot", snapshot_id + 1) > snapshot_id:
                found.append(path)
        return found

    def forget_after(self, snapshot_id: int) -> None:
        """Delete the notes of commits after a snapshot, which the table does not have any more."""
        for path in self.after(snapshot_id):
            self._io.delete(path)

    def _path(self, commit_user: str) -> str:
        return f"{self._directory}/{quote(commit_user, safe='')}"


def _counts(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind in DATA_KINDS and snapshot.commit_identifier != BATCH_IDENTIFIER
