"""Branches that were made the main one: commits of main may have been made under their names.

One line each in ``FORMER-MAIN`` in the table's directory, which other readers ignore: the name and, behind tabs, the id
of the branch's creation and the newest snapshot that it had in common with the main before. A line stays when its
branch has moved into the table's directory, because lineage knows those commits by it.

A branch that moves there is the same history under another name, and names come again. So the history of main has the
id of the branch that became main last.
"""

from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.branch_state import creation_id
from filestore.layout.file_names import checked_name
from filestore.layout.paths import TablePaths
from lsm.errors import CorruptDataError

FORMER_MAIN_FILE: Final = "FORMER-MAIN"
_BETWEEN: Final = "\t"


@dataclass(frozen=True, slots=True)
class FormerMain:
    """A branch that became main."""

    name: str
    creation_id: str = ""  # see ``BranchOrigin.id``
    common_id: int | None = field(default=None, compare=False)  # 0: nothing; None: not known

    @property
    def history(self) -> str:
        """What distinguishes it from others that became main."""
        return self.creation_id or self.name

    def __str__(self) -> str:
        common = "" if self.common_id is None else f"{_BETWEEN}{self.common_id}"
        return f"{self.name}{_BETWEEN}{self.creation_id}{common}" if self.creation_id or common else self.name


def former_mains(io: FileIO, root: str) -> tuple[FormerMain, ...]:
    """The branches that became main, oldest first. Raises: CorruptDataError."""
    path = f"{root}/{FORMER_MAIN_FILE}"
    try:
        return tuple(map(_decoded, io.read_bytes(path).decode(errors="replace").split("\n")))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise CorruptDataError(f"names of former main branches cannot be read: file={path} error={error}") from error


def add_former_main(io: FileIO, root: str, branch: FormerMain) -> None:
    """Note a branch that is about to become main. Idempotent."""
    known = former_mains(io, root)
    if branch not in (known if branch.creation_id else known[-1:]):  # another engine's may come again under its name
        io.replace(f"{root}/{FORMER_MAIN_FILE}", "\n".join(map(str, (*known, branch))).encode())


def _decoded(line: str) -> FormerMain:
    name, creation_id, common_id = [*line.split(_BETWEEN), "", ""][:3]
    return FormerMain(checked_name(name), creation_id, int(common_id) if common_id else None)


class Belonging(Enum):
    """Whether a snapshot that has been in a main branch is in the one of now."""

    HERE = "here"
    PERHAPS = "perhaps"  # what both histories have in common has its number; it may have been rolled back before
    ELSEWHERE = "elsewhere"


def history_id(io: FileIO, paths: TablePaths, main_branch: str) -> str:
    """What distinguishes the history of a branch, or of main; "": no branch has ever become main."""
    if paths.branch != main_branch:
        return creation_id(io, paths) or paths.branch
    known = former_mains(io, paths.root)
    return known[-1].history if known else ""


def belonging(io: FileIO, paths: TablePaths, main_branch: str, *, history: str, snapshot_id: int) -> Belonging:
    """Whether a branch, or main, has a snapshot of this number of a history, unless a rollback has removed it."""
    if history == history_id(io, paths, main_branch):
        return Belonging.HERE
    known = former_mains(io, paths.root) if paths.branch == main_branch else ()
    histories = ["", *(each.history for each in known)]
    if history not in histories:
        return Belonging.ELSEWHERE
    since = known[len(known) - histories[::-1].index(history) :]
    is_common = all(each.common_id is None or snapshot_id <= each.common_id for each in since)
    return Belonging.PERHAPS if is_common and since else Belonging.ELSEWHERE


def table_id_on_branch(table_id: str, branch: FormerMain) -> str:
    """The id of a branch: the id of the table, then a digest of the branch's creation, or of its name."""
    own = branch.creation_id or branch.name
    return f"{table_id.partition('/')[0]}/{blake2b(own.encode(), digest_size=8).hexdigest()}"
