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


def main_branch(io: FileIO, root: str) -> str:
    """Name of the main branch; ``main`` when it lies in the table's directory. Raises: CorruptDataError."""
    path = f"{root}/{MAIN_BRANCH_FILE}"
    try:
        name = io.read_bytes(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return MAIN_BRANCH
    if not name or "/" in name:
        raise CorruptDataError(f"name of the main branch cannot be read: file={path} name={name!r}")
    return name


def set_main_branch(io: FileIO, root: str, name: str) -> None:
    """Make a branch the main one, in one step."""
    path = f"{root}/{MAIN_BRANCH_FILE}"
    if name == MAIN_BRANCH:
        io.delete(path)
    else:
        io.replace(path, name.encode())
