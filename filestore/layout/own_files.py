"""Deleting a file whose name is not unique: a table that was created again under a table's name has such names, too.

A process that is paused between its look at a snapshot or tag and the deletion may find the file of another table under
the path. So the file is moved first, into a new directory with a unique name, and it is looked at behind the creation
of that directory. A move fails if one of the two is missing, so both are in one table at that moment: the one that was
looked at, also when the path leads to another one by then. Object stores move nothing: there a file is deleted right
behind the look.
"""

from collections.abc import Callable
from typing import Final

from filestore.io.file_io import FileIO, MovesDirectories, NameSource
from lsm.errors import UnavailableError

GONE_PREFIX: Final = ".gone-"
"""Of a directory in that of a branch; what a process leaves there that died is deleted as an orphan."""

_ATTEMPTS: Final = 5  # orphan cleaning deletes empty directories of this kind


def delete_own(io: FileIO, directory: str, path: str, names: NameSource, *, is_own: Callable[[bytes], bool]) -> bool:
    """Delete the file that is meant, if it is there.

    Args:
        io: file system.
        directory: of the branch that has the file.
        path: of the file.
        names: gives the new directory its name.
        is_own: by its contents, whether a file is the one that is meant.

    Returns:
        Whether it was there.

    Raises: UnavailableError.
    """
    if not isinstance(io, MovesDirectories):
        if not _is_there(io, path, is_own):
            return False
        io.delete(path)
        return True
    for _ in range(_ATTEMPTS):
        gone = f"{directory}/{GONE_PREFIX}{names.uuid()}"
        if not io.make_inside(gone):
            return False
        is_there = _is_there(io, path, is_own)
        is_moved = is_there and io.move_into(path, gone)
        if is_moved:
            io.delete(f"{gone}/{path.rpartition('/')[2]}")
        io.delete_empty_directory(gone)
        if is_moved or not is_there:
            return is_moved
    raise UnavailableError(f"a file could not be deleted, because others delete what is beside it: path={path}")


def _is_there(io: FileIO, path: str, is_own: Callable[[bytes], bool]) -> bool:
    try:
        return is_own(io.read_bytes(path))
    except FileNotFoundError:
        return False
