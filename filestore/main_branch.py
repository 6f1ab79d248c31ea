"""Which branch of a table is main.

A file in the table's directory holds its name. Without the file, and that is the rule, main is the branch whose
schemas, snapshots and tags lie in the table's directory itself, where every reader of the layout looks. BR-18 to BR-21,
BR-50.
"""

from typing import Final

from filestore.effects import FileIO
from filestore.paths import MAIN_BRANCH
from lsm.errors import CorruptDataError

MAIN_BRANCH_FILE: Final = "MAIN-BRANCH"


_SEALED: Final = "sealed"


def main_branch(io: FileIO, root: str) -> str:
    """Name of the main branch; ``main`` when it lies in the table's directory. Raises: CorruptDataError."""
    return _lines(io, root)[0]


def is_open_main(io: FileIO, root: str) -> bool:
    """Whether what is committed in the table's directory itself is a commit to main, and stays.

    Raises: CorruptDataError.
    """
    return _lines(io, root) == [MAIN_BRANCH]


def is_sealed_main(io: FileIO, root: str) -> bool:
    """Whether main lies in the table's directory itself and is sealed. Raises: CorruptDataError."""
    return _lines(io, root) == [MAIN_BRANCH, _SEALED]


def set_main_branch(io: FileIO, root: str, name: str) -> None:
    """Make a branch the main one, in one step."""
    path = f"{root}/{MAIN_BRANCH_FILE}"
    if name == MAIN_BRANCH:
        io.delete(path)
    else:
        io.replace(path, name.encode())


def seal_main(io: FileIO, root: str) -> None:
    """Main stays in the table's directory; whoever commits to it is told that it may not stay, until it is opened."""
    io.replace(f"{root}/{MAIN_BRANCH_FILE}", f"{MAIN_BRANCH}\n{_SEALED}".encode())


def _lines(io: FileIO, root: str) -> list[str]:
    path = f"{root}/{MAIN_BRANCH_FILE}"
    try:
        lines = io.read_bytes(path).decode(errors="replace").strip().split("\n")
    except FileNotFoundError:
        return [MAIN_BRANCH]
    if not lines[0] or "/" in lines[0]:
        raise CorruptDataError(f"name of the main branch cannot be read: file={path} name={lines[0]!r}")
    return lines
