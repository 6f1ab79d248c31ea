"""Files that stored metadata names and that are not there: lost, or deleted because their snapshot expired.

Code that reads a file knows only its path, and raises ``MissingFileError``. Code that knows for which snapshot the file
was read finds out which of the two it was, with ``naming_missing_files``. All of them are also ``FileNotFoundError``:
code that runs beside an expiry treats missing files and missing snapshots alike.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Protocol, TypeVar

from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from lsm.errors import CorruptDataError

ErrorT = TypeVar("ErrorT", bound="MissingFileError")


class Snapshots(Protocol):
    """Finds snapshots of a table."""

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot."""

    def is_hidden(self) -> bool:
        """Whether their branch is being deleted, renamed or created."""

    def claimed_up_to(self) -> int:
        """Snapshots before this id are deleted, or claimed for deletion."""

    def earliest_id(self) -> int | None:
        """The oldest snapshot."""

    def tag_names(self) -> Sequence[str]:
        """All tags."""

    def find_tag(self, name: str) -> Snapshot | None:
        """The snapshot of a tag."""


class FileRole(Enum):
    """The role of a file in its table, and the command that removes a lost file of this role from the table."""

    DATA = "data file"
    MANIFEST = "manifest"
    INDEX = "index file"

    def repair(self, table: str) -> str:
        """The command for a table."""
        return {
            FileRole.DATA: f"fluvial remove-unexisting-files {table}",
            FileRole.MANIFEST: f"fluvial remove-unexisting-manifests {table}",
            FileRole.INDEX: f"fluvial rollback {table} --snapshot AN_OLDER_ONE",
        }[self]


class MissingFileError(CorruptDataError, FileNotFoundError):
    """A file that a snapshot names is not there."""

    role: FileRole | None = None

    def __str__(self) -> str:
        """The message; an ``OSError`` with a file name would make its own."""
        return str(self.args[0])


class LostFileError(MissingFileError):
    """The snapshot or tag that needs the file is still there: the table is damaged."""


class SnapshotExpiredError(MissingFileError):
    """A snapshot expired while it was read, or before: read a newer one."""


def missing_file(path: str, role: FileRole) -> MissingFileError:
    """The error for a file that cannot be found, where its snapshot is not known."""
    return _error(
        MissingFileError,
        f"a {role.value} is missing: file={path} reason='it is lost, or its snapshot expired while it was read' "
        f"fix='try again; if it is still missing: fluvial verify names what needs it, then {role.repair('TABLE')}'",
        path,
        role,
    )


@contextmanager
def naming_missing_files(snapshots: Snapshots, table: str, snapshot: SnapshotRef | int) -> Iterator[None]:
    """Distinguishes lost files from an expired snapshot, in what is read for a snapshot.

    Args:
        snapshots: of the table, on the snapshot's branch.
        table: name of the table.
        snapshot: for which files are read; of an id alone, any that has it.

    Raises:
        LostFileError: a file is missing, and the snapshot or a tag of it is still there.
        SnapshotExpiredError: the snapshot expired, or was taken back, meanwhile.
    """
    try:
        yield
    except MissingFileError as error:
        if type(error) is not MissingFileError:
            raise
        wanted = SnapshotRef(snapshot, "") if isinstance(snapshot, int) else snapshot
        raise _explained(error, snapshots, table, wanted) from error


def _explained(error: MissingFileError, snapshots: Snapshots, table: str, wanted: SnapshotRef) -> MissingFileError:
    path, role = str(error.filename), error.role or FileRole.DATA
    if snapshots.is_hidden():
        return _error(
            SnapshotExpiredError,
            f"the branch is being deleted or renamed: table={table} snapshot={wanted.id} file={path} "
            "fix='open it again; an operation that was interrupted is named by verify'",
            path,
            role,
        )
    holder = _holder(snapshots, wanted)
    if holder is None:
        earliest = snapshots.earliest_id()
        facts = f"table={table} snapshot={wanted.id} earliest={earliest} file={path}"
        if earliest is not None and max(earliest, snapshots.claimed_up_to()) <= wanted.id:
            says = (
                "the snapshot was taken back, by a rollback or by a branch that was moved into this one, since it was "
                f"opened: {facts} fix='read the table again, which is another state now, or keep one by a tag'"
            )
        else:
            says = f"the snapshot expired while it was read: {facts} fix='read a newer one, or keep it by a tag'"
        return _error(SnapshotExpiredError, says, path, role)
    return lost_file(path, role, table=table, needed_by=holder)


def lost_file(path: str, role: FileRole, *, table: str, needed_by: str) -> LostFileError:
    """The error for a file that is known to be in use."""
    return _error(
        LostFileError,
        f"a {role.value} is lost: table={table} file={path} needed_by='{needed_by}' "
        f"fix='restore the file; otherwise fluvial verify {table} lists what is lost, and {role.repair(table)} "
        "gives up its rows'",
        path,
        role,
    )


def _holder(snapshots: Snapshots, wanted: SnapshotRef) -> str | None:
    """The snapshot or tag that needs the files; None: the snapshot is no longer there and no tag keeps it."""

    def is_wanted(found: Snapshot | None) -> bool:
        return found is not None and found.id == wanted.id and wanted.identity in ("", found.identity)

    if snapshots.claimed_up_to() <= wanted.id and is_wanted(snapshots.find(wanted.id)):
        return f"snapshot {wanted.id}"
    return next((f"tag {name}" for name in snapshots.tag_names() if is_wanted(snapshots.find_tag(name))), None)


def _error(kind: type[ErrorT], message: str, path: str, role: FileRole) -> ErrorT:
    error = kind(message)
    error.filename, error.role = path, role
    return error
