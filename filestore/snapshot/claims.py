"""Which snapshots an expiry has claimed for deletion: one small file for each claim, named by the first snapshot kept.

A claim is created before anything is deleted and is never lowered, however long its process was paused: several
processes may expire at once, and the highest claim holds. It also proves that the expiry saw the snapshot that it names
as part of the history. Other readers of the layout do not look into this directory.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import SnapshotRef

_PREFIX: Final = "claim-"


class ExpiryClaims:
    """The claims on one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._directory = paths.expiry_dir

    def ids(self) -> list[int]:
        """For each claim the id of the first snapshot that it keeps, ascending."""
        names = self._io.list_names(self._directory)
        numbers = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return sorted(int(each) for each in numbers if each.isascii() and each.isdigit())

    def highest_id(self) -> int | None:
        """Snapshots before this id are claimed; None: there is no claim."""
        return max(self.ids(), default=None)

    def refs(self) -> Iterator[SnapshotRef]:
        """The first snapshot kept by each claim, ascending."""
        for each in self.ids():
            with suppress(FileNotFoundError):  # removed since
                yield SnapshotRef(each, self._io.read_bytes(self._path(each)).decode(errors="replace"))

    def add(self, first_kept: SnapshotRef) -> None:
        """Claim every snapshot before this one, and remove the lower claims. Raises: UnavailableError."""
        known = self.ids()
        if not known or known[-1] < first_kept.id:
            self._io.replace(self._path(first_kept.id), first_kept.identity.encode())
            known.append(first_kept.id)
        for each in known[:-1]:
            self._io.delete(self._path(each))

    def remove(self, first_kept: SnapshotRef) -> None:
        """Remove one claim, if it names this snapshot. Raises: UnavailableError."""
        if first_kept in self.refs():
            self._io.delete(self._path(first_kept.id))

    def remove_above(self, snapshot_id: int) -> None:
        """Remove the claims of snapshots from this one on. Raises: UnavailableError."""
        for each in self.ids():
            if each > snapshot_id:
                self._io.delete(self._path(each))

    def _path(self, snapshot_id: int) -> str:
        return f"{self._directory}/{_PREFIX}{snapshot_id}"
