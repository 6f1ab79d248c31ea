"""Branches that were made the main one: commits of main may have been made under their names.

One line each in ``FORMER-MAIN`` in the table's directory, which other readers ignore: the name and, behind a tab, the
id of the branch's creation. A line stays when its branch has moved into the table's directory, because lineage knows
those commits by it.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.file_names import checked_name
from lsm.errors import CorruptDataError

FORMER_MAIN_FILE: Final = "FORMER-MAIN"
_BETWEEN: Final = "\t"


@dataclass(frozen=True, slots=True)
class FormerMain:
    """A branch that became main."""

    name: str
    creation_id: str = ""  # see ``BranchOrigin.id``

    def __str__(self) -> str:
        return f"{self.name}{_BETWEEN}{self.creation_id}" if self.creation_id else self.name


def former_mains(io: FileIO, root: str) -> tuple[FormerMain, ...]:
    """The branches that became main, oldest first. Raises: CorruptDataError."""
    path = f"{root}/{FORMER_MAIN_FILE}"
    try:
        lines = (each.partition(_BETWEEN) for each in io.read_bytes(path).decode(errors="replace").split("\n"))
        return tuple(FormerMain(checked_name(name), creation_id) for name, _, creation_id in lines)
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise CorruptDataError(f"names of former main branches cannot be read: file={path} error={error}") from error


def add_former_main(io: FileIO, root: str, branch: FormerMain) -> None:
    """Note a branch that is about to become main. Idempotent."""
    known = former_mains(io, root)
    if branch not in known:
        io.replace(f"{root}/{FORMER_MAIN_FILE}", "\n".join(map(str, (*known, branch))).encode())


def table_id_on_branch(table_id: str, branch: FormerMain) -> str:
    """What identifies a branch of a table: that of the table, then a digest of the creation, or of the name."""
    own = branch.creation_id or branch.name
    return f"{table_id.partition('/')[0]}/{blake2b(own.encode(), digest_size=8).hexdigest()}"
