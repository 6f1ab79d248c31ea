"""Symbolic links in a table's directory: who may write there could lead its readers, and what deletes, elsewhere."""

import os

from filestore.io.disk import check_link
from filestore.io.file_io import FileIO
from filestore.io.places import allowed_roots, is_inside, local_path


def real_roots(allowed: str | None) -> list[str]:
    """Real paths of the directories that an opener allows, see ``check_link``."""
    return [os.path.realpath(local_path(each)) for each in allowed_roots(allowed)]


class LinksOut:
    """The links below a directory, each directory looked at once."""

    def __init__(self, io: FileIO, root: str, allowed: str | None) -> None:
        """Below a root; ``allowed`` are the directories outside of it where who opens it allows files."""
        self._io, self._root, self._allowed = io, root.rstrip("/"), allowed
        self._targets: dict[str, str | None] = {self._root: None}

    def target(self, path: str) -> str | None:
        """The real place of a path below the root, where a link on the way leads out of the root; None: none does."""
        if path in self._targets:
            return self._targets[path]
        parent, _, name = path.rpartition("/")
        if not path.startswith(f"{self._root}/") or name in {".", ".."}:
            return None  # such paths are another check's
        found = self.target(parent)
        if found is not None or self._io.is_link(path):
            real = os.path.realpath(local_path(path))
            found = None if is_inside(real, [os.path.realpath(local_path(self._root))]) else real
        return found

    def directory(self, path: str) -> str | None:
        """``target`` of a directory, which is kept."""
        if path not in self._targets:
            self._targets[path] = self.target(path)
        return self._targets[path]

    def check(self, path: str) -> None:
        """Refuse a path below the root that a link leads to where its opener allows no files.

        Raises: InvalidInputError naming the option that allows it.
        """
        self.directory(path.rpartition("/")[0])
        target = self.target(path)
        if target is not None:
            check_link(path, target, real_roots(self._allowed))
