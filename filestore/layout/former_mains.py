"""Branches that were made the main one: commits of main may have been made under their names.

One line each in ``FORMER-MAIN`` in the table's directory, which other readers ignore. A name stays when its branch has
moved into the table's directory, because lineage knows those commits by it.
"""

from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.file_names import checked_name
from lsm.errors import CorruptDataError

FORMER_MAIN_FILE: Final = "FORMER-MAIN"


def former_mains(io: FileIO, root: str) -> tuple[str, ...]:
    """The branches that became main, oldest first. Raises: CorruptDataError."""
    path = f"{root}/{FORMER_MAIN_FILE}"
    try:
        return tuple(map(checked_name, io.read_bytes(path).decode(errors="replace").split("\n")))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise CorruptDataError(f"names of former main branches cannot be read: file={path} error={error}") from error


def add_former_main(io: FileIO, root: str, name: str) -> None:
    """Note a branch that is about to become main. Idempotent."""
    known = former_mains(io, root)
    if name not in known:
        io.replace(f"{root}/{FORMER_MAIN_FILE}", "\n".join((*known, name)).encode())
