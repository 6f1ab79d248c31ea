"""The announcement of a publication: several snapshots of a branch that a fast-forward creates in main, as one commit.

Each is created exclusively, so the first number decides: main either has this snapshot there, or that of a writer, and
then the publication is refused. From the first one on no other commit may come between: a writer that plans on one of
them finds the announcement, and waits. It stays when its process dies, and the same fast-forward completes it.

It is kept where main is sealed, so that a replacement of main and a fast-forward exclude each other.
"""

import re
from dataclasses import dataclass
from typing import Final

from filestore.io.file_io import FileIO
from filestore.layout.branch_state import Operation, Work, read_work, replace_seal, seal, seal_of_main, unseal
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from lsm.errors import ConflictError

_TEXT: Final = re.compile(rf"{Operation.FAST_FORWARD} to=(.*) first=(\d+) identity=(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Snapshots of a branch that are being published, from this one on."""

    branch: str
    first_id: int
    identity: str  # of the first

    @property
    def work(self) -> Work:
        """As a seal of main."""
        arguments = {"to": self.branch, "first": self.first_id, "identity": self.identity}
        return Work(operation=Operation.FAST_FORWARD, arguments=arguments)


def read_publication(io: FileIO, main: TablePaths) -> Publication | None:
    """What is being published in a main branch, perhaps by a process that died. Raises: CorruptDataError."""
    work: object = seal_of_main(io, main.root) if main.branch == MAIN_BRANCH else read_work(io, main)
    found = None if work is None else _TEXT.fullmatch(str(work))
    return None if found is None else Publication(branch=found[1], first_id=int(found[2]), identity=found[3])


def check_not_published(io: FileIO, main: TablePaths) -> None:
    """No other schema version comes beside those of a publication; asked for behind the look at the newest one.

    Raises: ConflictError.
    """
    known = read_publication(io, main)
    if known is not None:
        raise ConflictError(
            f"a fast-forward is publishing its snapshots, so the schema cannot be changed: path={main.root} "
            f"branch={known.branch} fix='try again; if it was interrupted, which verify says, run it again'"
        )


def announce(io: FileIO, main: TablePaths, publication: Publication) -> None:
    """Announce a publication, in place of an earlier one of the same branch.

    Raises: ConflictError: main is sealed, or another branch is being published.
    """
    known = read_publication(io, main)
    if known is not None and known != publication and known.branch == publication.branch:
        replace_seal(io, main, publication.work)
    else:
        seal(io, main, publication.work)


def end_publication(io: FileIO, main: TablePaths, branch: str) -> None:
    """Take back the announcement of a branch's publication, if there is one."""
    known = read_publication(io, main)
    if known is not None and known.branch == branch:
        unseal(io, main, known.work)
