"""Notes of the last commits of streaming writers whose snapshots have expired.

A writer finds its last commit in the snapshots. A query that was stopped for longer than snapshots are kept would not
find it, and would write its last batch again. So before an expiry deletes the last snapshot of a writer, it notes the
identifier: one small file for each writer, beside the snapshots, where no reader of the layout looks.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import quote, unquote

from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError

DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})
"""Kinds of commits that a writer numbers itself; compactions carry the identifiers of other commits."""
_DIRECTORY: Final = "expired-commits"
_LIFE_DIGITS: Final = 8


def expired_commits_directory(paths: TablePaths) -> str:
    """Directory of a branch's notes."""
    return f"{paths.branch_root}/{_DIRECTORY}"


class ExpiredCommits:
    """The notes of one branch of a table.

    Their names end in the id of the table, or of the branch's creation: so a note that an expiry left there that was
    paused while the table or the branch was dropped and created again is no note of the new one.
    """

    def __init__(self, store: TableStore) -> None:
        """The notes of a store's branch; create this before deciding anything from the present snapshots."""
        self._io = store.io
        self._directory = expired_commits_directory(store.paths)
        self._end = f".{store.life()[-_LIFE_DIGITS:]}"

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
        """Delete notes that were written into another table than their own, or where the table was dropped."""
        for path, body in written.items():
            with suppress(FileNotFoundError):
                if self._io.read_bytes(path) == body:
                    self._io.delete(path)

    def after(self, snapshot_id: int) -> list[str]:
        """Paths of the notes about commits after a snapshot; old notes without a snapshot id are among them."""
        found = []
        for name in self._names():
            path = f"{self._directory}/{name}"
            if json.loads(self._io.read_bytes(path)).get("snapshot", snapshot_id + 1) > snapshot_id:
                found.append(path)
        return found

    def adopt(self, before: "ExpiredCommits") -> None:
        """Copy the notes of a branch that this one continues, where this one knows no later commit of the writer."""
        for name in before._names():
            commit_user = unquote(name.removesuffix(before._end))
            with suppress(FileNotFoundError):
                body = before._io.read_bytes(f"{before._directory}/{name}")
                if (before.newest(commit_user) or 0) > (self.newest(commit_user) or -1):
                    self._io.replace(self._path(commit_user), body)

    def _names(self) -> list[str]:
        return [each for each in self._io.list_names(self._directory) if each.endswith(self._end)]

    def forget_after(self, snapshot_id: int) -> None:
        """Delete the notes of commits after a snapshot, which a rollback removed from the table."""
        for path in self.after(snapshot_id):
            self._io.delete(path)

    def _path(self, commit_user: str) -> str:
        return f"{self._directory}/{quote(commit_user, safe='')}{self._end}"


def _counts(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind in DATA_KINDS and snapshot.commit_identifier != BATCH_IDENTIFIER
