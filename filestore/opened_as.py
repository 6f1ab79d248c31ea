"""The identity of the table and branch that a user opened, and the check that they still exist.

A table may be dropped, renamed or created again while it is open, and a branch deleted, renamed or created again;
another branch may become main. Then a read finds nothing, or another table of the same name: neither is an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from filestore.io.file_io import FileIO
from filestore.layout.branch_names import split_branch
from filestore.layout.branch_state import main_branch, read_origin
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.schema.schema_store import SchemaStore
from filestore.schema.table_schema import FIRST_SCHEMA_ID, TableSchema, uuid_of
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.snapshot.snapshot_store import SnapshotStore
from lsm.errors import CorruptDataError, InvalidInputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedAs:
    """A table, or a branch of one, as it was found in a directory; it can be pickled."""

    name: str  # "db.table" or "db.table$branch_b"
    paths: TablePaths
    schema: TableSchema  # stored; its options do not matter
    creation_id: str | None  # of the branch; "": main, or nothing says it; None: any

    def is_there(self, io: FileIO) -> bool:
        """Whether the directory still is what was opened."""
        found = SchemaStore(io, self.paths).find(self.schema.id)
        if found is None or found.identity != self.schema.identity:
            return False
        # two tables may be made at the same time
        return uuid_of(found) == uuid_of(self.schema) and self._is_same_branch(io)

    def check(self, io: FileIO, found: Snapshot | None = None) -> None:
        """Look whether it is there, as far as what was found in its directory does not show it.

        Args:
            io: file system.
            found: has the id of its table. That of a branch may be a copy, in a branch that was created again.

        Raises: InvalidInputError: the table or branch was dropped.
        """
        is_of_table = found is not None and found.table_uuid is not None and found.table_uuid == uuid_of(self.schema)
        if not (self._is_same_branch(io) if is_of_table else self.is_there(io)):
            raise self.gone(io)

    def check_table(self, io: FileIO) -> None:
        """For what concerns all branches, whichever was opened, be it gone. Raises: InvalidInputError."""
        if not self._is_table_of(io, self.paths.with_branch(main_branch(io, self.paths.root))):
            raise self.gone(io)

    def has_traces(self, io: FileIO) -> bool:
        """Whether a table, perhaps another one, is in the directory, on this branch or as main."""
        branches = {
            self.paths.branch: self.paths,
            MAIN_BRANCH: self.paths.with_branch(main_branch(io, self.paths.root)),
        }
        return any(SchemaStore(io, paths).has_table() for paths in branches.values())

    def gone(self, io: FileIO, done: str = "") -> InvalidInputError:
        """The error of what is done with it; ``done``: what became of that."""
        since, facts = f"since it was opened{done}", f"table={self.name} path={self.paths.root}"
        branch, main = split_branch(self.name)[1], self.paths.with_branch(main_branch(io, self.paths.root))
        if branch is not None:
            return InvalidInputError(
                f"branch is gone, it was deleted, renamed, made again or moved into the table {since}: {facts} "
                f"branch={branch} fix='open it again, under its new name'"
            )
        if main.branch != self.paths.branch and self._is_table_of(io, main):
            return InvalidInputError(
                f"main is gone, another branch replaced it {since}: {facts} main={main.branch} "
                f"was={self.paths.branch} fix='open it again'"
            )
        return InvalidInputError(
            f"table is gone, it was dropped, renamed or made again {since}: {facts} "
            "fix='open it again, under its new name'"
        )

    def _is_same_branch(self, io: FileIO) -> bool:
        if self.creation_id is None or self.paths.branch == MAIN_BRANCH:  # main is made again with its table only
            return True
        try:
            origin = read_origin(io, self.paths)
        except CorruptDataError:
            return True
        return ("" if origin is None else origin.id) == self.creation_id

    def _is_table_of(self, io: FileIO, main: TablePaths) -> bool:
        first = SchemaStore(io, main).find(FIRST_SCHEMA_ID)
        return first is not None and uuid_of(first) == uuid_of(self.schema)


class OpenedSnapshots(SnapshotStore):
    """The snapshots of an opened table: each read of snapshots and tags raises InvalidInputError if it was dropped.

    A look that finds nothing looks at the table as well, and one that finds what does not show whose it is. What
    decides about a file that it has published itself uses ``TableStore.as_found``.
    """

    def __init__(self, files: SnapshotStore, check: Callable[[Snapshot | None], None]) -> None:
        """See the class.

        Args:
            files: what is in the directory, whatever table is there now.
            check: gets what was found, or None for nothing; raises if it is not of what was opened.
        """
        super().__init__(
            files._io, files._paths, lock=files._lock, table_uuid=files._table_uuid, extends=files._extends
        )
        self._files = files
        self._check = check

    def checked(self, snapshot: Snapshot) -> Snapshot:
        """See ``SnapshotStore``, as all others."""
        self._check(snapshot)
        return snapshot

    def ids(self) -> list[int]:
        """Checked where there is none."""
        return self._some(self._files.ids())

    def tag_names(self) -> list[str]:
        """Checked where there is none."""
        return self._some(self._files.tag_names())

    def earliest_id(self) -> int | None:
        """Checked where there is none."""
        found = self._files.earliest_id()
        if found is None:
            self._check(None)
        return found

    def latest_id(self) -> int | None:
        """Checked."""
        try:
            latest = self.latest()
        except CorruptDataError:  # it is there, whatever its file says
            return self._files.latest_id()
        return None if latest is None else latest.id

    def latest(self) -> Snapshot | None:
        """Checked."""
        found = self._files.latest()
        self._check(found)
        return found

    def read(self, snapshot_id: int) -> Snapshot:
        """Checked."""
        try:
            return self.checked(self._files.read(snapshot_id))
        except FileNotFoundError:
            self._check(None)
            raise

    def find_ref(self, ref: SnapshotRef) -> Snapshot | None:
        """What has another name is another one, of whichever table."""
        return self._files.find_ref(ref)

    def find_tag(self, name: str) -> Snapshot | None:
        """Checked."""
        found = self._files.find_tag(name)
        self._check(found)
        return found

    def _some(self, found: list[T]) -> list[T]:
        if not found:
            self._check(None)
        return found
