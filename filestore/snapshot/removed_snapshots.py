"""Which snapshots a rollback or a repair removed: an empty file for each, named by the identity of the snapshot.

The file is created before the snapshot is deleted, and stays. A writer that was paused after the creation of its
snapshot, or that got no answer, finds here that the snapshot was visible and was deleted with its files, and does not
publish these files again.
"""

from hashlib import blake2s

from filestore.io.file_io import FileIO, is_file
from filestore.layout.paths import TablePaths


class RemovedSnapshots:
    """The removed snapshots of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._directory = paths.removed_dir

    def add(self, identity: str) -> None:
        """Note that a snapshot is about to be deleted. Raises: UnavailableError; then it must not be."""
        self._io.replace(f"{self._directory}/{identity}", b"")

    def remove(self, identity: str) -> None:
        """Note that a snapshot is not removed after all. Raises: UnavailableError."""
        self._io.delete(f"{self._directory}/{identity}")

    def identities(self) -> frozenset[str]:
        """All that were removed, or are about to be."""
        return frozenset(self._io.list_names(self._directory))

    @property
    def digest(self) -> str:
        """Changes with every rollback, which removes at least the newest snapshot; "": none is removed."""
        names = sorted(self._io.list_names(self._directory))
        return blake2s("\n".join(names).encode(), digest_size=8).hexdigest() if names else ""

    def has(self, identity: str) -> bool:
        """Whether a snapshot was removed, or is about to be."""
        return is_file(self._io, f"{self._directory}/{identity}")
