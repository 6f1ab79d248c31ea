"""Which snapshots an expiry has claimed for deletion: one empty file for each claim, named by the first snapshot kept.

A claim is created before anything is deleted. Several processes may expire at once; the highest claim of an existing
snapshot holds. So a claim that an expiry left in another history (its table or branch was dropped and created again
while it was paused) has no effect: no snapshot there has that identity. A claim also proves that the expiry saw the
snapshot that it names as part of the history. Other readers of the layout do not look into this directory.
"""

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

    def refs(self) -> list[SnapshotRef]:
        """The first snapshot kept by each claim, ascending, whether it is there or not."""
        names = self._io.list_names(self._directory)
        parts = (name.removeprefix(_PREFIX).partition("-") for name in names if name.startswith(_PREFIX))
        found = (SnapshotRef(int(number), identity) for number, _, identity in parts if number.isdecimal())
        return sorted(found, key=lambda each: (each.id, each.identity))

    def highest_id(self) -> int:
        """Highest snapshot id of all claims, whether they hold or not; 0: there is none."""
        return max((each.id for each in self.refs()), default=0)

    def add(self, first_kept: SnapshotRef) -> None:
        """Claim every snapshot before this one, and remove the claims of lower ones. Raises: UnavailableError."""
        known = self.refs()
        if first_kept not in known:
            self._io.replace(self._path(first_kept), b"")
        for each in known:
            if each.id < first_kept.id:
                self.remove(each)

    def remove(self, first_kept: SnapshotRef) -> None:
        """Remove one claim. Idempotent. Raises: UnavailableError."""
        self._io.delete(self._path(first_kept))

    def remove_above(self, snapshot_id: int) -> None:
        """Remove the claims of snapshots behind this one. Raises: UnavailableError."""
        for each in self.refs():
            if each.id > snapshot_id:
                self.remove(each)

    def _path(self, first_kept: SnapshotRef) -> str:
        return f"{self._directory}/{_PREFIX}{first_kept.id}-{first_kept.identity}"
