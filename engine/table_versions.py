"""What a table keeps besides its newest state, as objects: ``table.tags``, ``table.branches``, ``table.savepoints``.

A method has the word of its command and procedure: ``table.tags.create("eod")``, ``fluvial tag create``,
``CALL sys.create_tag``. Procedures call these methods and turn what they return into rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from engine.checkpoint.saved_checkpoints import CheckpointPlace, keeping
from engine.read.difference import Difference
from engine.versions import branches
from engine.write.unlogged.log_sync import follow_overwrite
from filestore.branch.branches import Branch, DeletedBranch, list_branches, read_branch, rename_branch
from filestore.branch.fast_forward import FastForward, fast_forward
from filestore.branch.former_main import MainReplaced
from filestore.branch.merge import MergeResult, merge_branch
from filestore.commit.table_commit import CommitResult
from filestore.diff.table_diff import open_diff
from filestore.layout.branch_state import main_branch
from filestore.maintenance.rewriting import restore
from filestore.maintenance.rollback import RollbackPlan, plan_rollback, roll_back
from filestore.maintenance.rollback_run import find_run
from filestore.refs import savepoint_files
from filestore.refs.savepoint_files import Savepoint
from filestore.refs.versions import LATEST
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.tag import savepoints, tags
from filestore.tag.neighbours import next_tag, previous_tag
from filestore.tag.savepoints import DeletedSavepoint
from filestore.tag.tags import DeletedTag, Tag
from lsm.errors import InvalidInputError


class TableWithFiles(Protocol):
    """The part of a table that is needed: another schema may be in force at each call."""

    files: FileTable


TableT = TypeVar("TableT")


class _Kept:
    """Common to all: each call is about the table that was opened."""

    def __init__(self, table: TableWithFiles) -> None:
        """Made by the table."""
        self._table = table

    @property
    def _store(self) -> TableStore:
        """Raises: InvalidInputError: the table that was opened is gone."""
        store = self._table.files.store
        store.as_opened.check_table(store.io)
        return store

    def _difference(self, before: str, after: str | int) -> Difference:
        return Difference(open_diff(self._table.files, before, str(after)))


class Tags(_Kept):
    """Names of snapshots, which keep them."""

    def list(self) -> Sequence[Tag]:
        """The tags of the table's branch, by name."""
        return tags.list_tags(self._store)

    def get(self, name: str) -> Tag:
        """One of them. Raises: InvalidInputError: there is no such tag; names those that there are."""
        return tags.read_tag(self._store, name)

    def create(self, name: str, *, snapshot_id: int | None = None, time_retained: timedelta | None = None) -> Tag:
        """Give a snapshot a name, which keeps it until the tag is deleted.

        Args:
            name: up to 160 bytes; no number or other word of a version.
            snapshot_id: None: the newest.
            time_retained: how long the tag lives. None: ``tag.default-time-retained``, else until it is deleted.

        Raises:
            InvalidInputError: the name is taken or cannot be one, or there is no such snapshot.
            ConflictError: the snapshot expired at this moment.
        """
        return tags.create_tag(self._store, name, snapshot_id=snapshot_id, retained_ms=_ms(time_retained))

    def replace(self, name: str, *, snapshot_id: int | None = None, time_retained: timedelta | None = None) -> Tag:
        """Give the name to another snapshot; files that only the old one used go. For arguments see ``create``."""
        return tags.replace_tag(self._store, name, snapshot_id=snapshot_id, retained_ms=_ms(time_retained))

    def rename(self, name: str, target: str) -> Tag:
        """Give a tag another name. Raises: InvalidInputError: there is no such tag, or the name is taken."""
        return tags.rename_tag(self._store, name, target)

    def delete(self, name: str, *, dry_run: bool = False) -> DeletedTag:
        """Delete a tag, and the files that only it used; a dry run only says which.

        Raises: InvalidInputError: there is no such tag, or a branch was made from it.
        """
        return tags.delete_tag(self._store, name, dry_run=dry_run)

    def expire(self, *, older_than_ms: int | None = None, dry_run: bool = False) -> Sequence[DeletedTag]:
        """Delete the tags that have outlived their retention, and those made before a time in epoch milliseconds."""
        return tags.expire_tags(self._store, older_than_ms=older_than_ms, dry_run=dry_run)

    def previous(self, name: str) -> Tag | None:
        """The tag of the nearest earlier snapshot; None: there is none."""
        return self._neighbour(previous_tag(self._store, name))

    def next(self, name: str) -> Tag | None:
        """The tag of the nearest later snapshot; None: there is none."""
        return self._neighbour(next_tag(self._store, name))

    def rollback(self, name: str, *, force: bool = False, dry_run: bool = False) -> RollbackPlan:
        """Reset the table to a tag; later snapshots and tags are deleted permanently. See ``roll_back_to``."""
        return roll_back_to(self._table.files, self._store.snapshots.tag(name), force=force, dry_run=dry_run)

    def diff(self, name: str, after: str | int = LATEST) -> Difference:
        """What differs between a tag and another state, by key; see ``Table.diff``."""
        return self._difference(name, after)

    def _neighbour(self, name: str | None) -> Tag | None:
        return None if name is None else self.get(name)


class Branches(_Kept, Generic[TableT]):
    """The same table with snapshots, schemas and tags of its own, under a name."""

    def __init__(self, table: TableWithFiles, opened: Callable[[FileTable], TableT]) -> None:
        """``opened`` makes a table of the files of one."""
        super().__init__(table)
        self._opened = opened

    @property
    def main(self) -> str:
        """The name of the main branch: another than ``main`` since ``replace_main``."""
        store = self._store
        return main_branch(store.io, store.paths.root)

    def list(self) -> Sequence[Branch]:
        """The branches besides main, by name."""
        return list_branches(self._store)

    def get(self, name: str) -> Branch:
        """One of them. Raises: InvalidInputError: there is no such branch; names those that there are."""
        return read_branch(self._store, name)

    def open(self, name: str) -> TableT:
        """The table on a branch, to read and to write. Raises: InvalidInputError: there is no such branch."""
        self._store.check_is_there()
        return self._opened(self._table.files.on_branch(name))

    def create(
        self,
        name: str,
        *,
        tag: str | None = None,
        snapshot_id: int | None = None,
        log: bool = False,
        ignore_if_exists: bool = False,
    ) -> Branch:
        """Make a branch; no row is copied.

        Args:
            name: up to 153 bytes, without dots; no number or other word of a version.
            tag: of main, to begin at, which then cannot be deleted before the branch.
            snapshot_id: of main, to begin at. None of both: the branch is empty.
            log: give it a log of its own, if the table has one.
            ignore_if_exists: nothing is done when there is such a branch, wherever it began.

        Raises:
            InvalidInputError: the name is taken or cannot be one, or there is no such tag or snapshot.
            ConflictError: the tag was deleted, or the snapshot expired, at this moment.
        """
        return branches.create_branch(
            self._store, name, tag=tag, snapshot_id=snapshot_id, log=log, ignore_if_exists=ignore_if_exists
        )

    def rename(self, name: str, target: str) -> Branch:
        """Give a branch another name; its readers and writers open it again."""
        return rename_branch(self._store, name, target)

    def delete(self, name: str, *, dry_run: bool = False) -> DeletedBranch:
        """Delete a branch, the files that only it used, and its log; a dry run only says which.

        Raises:
            InvalidInputError: there is no such branch, or it is main.
            ConflictError: another operation is at work on it, or died at it.
        """
        return branches.delete_branch(self._store, name, dry_run=dry_run)

    def merge(self, name: str, *, force: bool = False, dry_run: bool = False) -> MergeResult:
        """Bring what a branch did into main by one commit, key by key; the branch stays.

        Args:
            name: of the branch.
            force: keys that both changed differently get the branch's row.
            dry_run: change nothing; the result is that of the merge, with the conflicts, and without a snapshot.

        Raises:
            ConflictError: both changed the keys that are named, or both changed the schema; nothing is visible.
        """
        done = merge_branch(self._store, name, force=force, dry_run=dry_run)
        if not dry_run:
            follow_overwrite(self._table.files)
        return done

    def fast_forward(self, name: str, *, force: bool = False) -> FastForward:
        """Make a branch's snapshots, tags and schemas main's too, under the same numbers.

        With ``force`` main's own since the branch began go.

        Raises:
            ConflictError: main has snapshots of its own since the branch began.
            InvalidInputError: the branch has a log of its own, or has expired snapshots that main would need.
        """
        done = fast_forward(self._store, name, force=force)
        follow_overwrite(self._table.files)
        return done

    def replace_main(self, name: str, *, force: bool = False, dry_run: bool = False) -> MainReplaced:
        """Make a branch the main one; the old main and its log go. Jobs on the branch continue.

        A dry run changes nothing, and has the result of the replacement.

        Raises:
            InvalidInputError: no such branch, it is main already, or, without ``force``, main has a log and the branch
                has none; a savepoint would be lost.
        """
        return branches.replace_main(self._store, name, force=force, dry_run=dry_run)

    def diff(self, name: str, before: str | int = LATEST) -> Difference:
        """What differs between a state of the opened table and a branch's newest, by key; see ``Table.diff``."""
        return self._difference(str(before), f"{name}.{LATEST}")


class Savepoints(_Kept):
    """Compacted states that are kept under a number, with the checkpoints of queries."""

    def list(self) -> Sequence[Savepoint]:
        """The savepoints, by number."""
        return savepoint_files.list_savepoints(self._store)

    def get(self, savepoint: int) -> Savepoint:
        """One of them. Raises: InvalidInputError: there is no such savepoint; names those that there are."""
        return savepoint_files.read_savepoint(self._store, savepoint)

    def create(self, *, compact: bool = True, checkpoints: Sequence[str] = ()) -> Savepoint:
        """Compact the table, and keep the state of then until the savepoint is deleted.

        Args:
            compact: merge each bucket into one run first.
            checkpoints: directories of the streaming queries that write the table, as DIRECTORY or
                COMMIT_USER=DIRECTORY; what is needed to continue from here is kept.

        Raises:
            InvalidInputError: nothing was committed yet, or a checkpoint cannot be kept.
            ConflictError: others kept compacting the same files: there is no savepoint, run it again.
            UnavailableError: Spark has not noted the last batch in a checkpoint yet: run it again.
        """
        store = self._store
        places = [CheckpointPlace.parse(each) for each in checkpoints]
        return savepoints.create_savepoint(store, compact=compact, keep_checkpoints=keeping(store, places))

    def delete(self, savepoint: int, *, dry_run: bool = False) -> DeletedSavepoint:
        """Delete a savepoint, its tag, and the files that only it used; a dry run only says which.

        Raises: InvalidInputError: there is no such savepoint, or a branch was made from its tag.
        """
        return savepoints.delete_savepoint(self._store, savepoint, dry_run=dry_run)

    def rollback(self, savepoint: int) -> CommitResult:
        """Make the rows of a savepoint the newest by a new commit; nothing of the history is lost.

        Raises:
            InvalidInputError: there is no such savepoint, or the table changed so that it cannot go back.
            ConflictError: the commit lost too many races: run it again.
        """
        done, _ = restore_rows(self._table.files, self.get(savepoint).snapshot)
        return done

    def diff(self, savepoint: int, after: str | int = LATEST) -> Difference:
        """What differs between a savepoint and another state, by key; see ``Table.diff``."""
        return self._difference(f"savepoint.{savepoint}", after)


def snapshot_history(store: TableStore, limit: int | None = None) -> Sequence[Snapshot]:
    """The snapshots of a table, newest first, at most ``limit`` of them."""
    ids = sorted(store.snapshots.line().ids, reverse=True)
    found = map(store.snapshots.find, ids if limit is None else ids[:limit])
    return [each for each in found if each is not None]  # one may expire meanwhile


def roll_back_to(table: FileTable, target: Snapshot, *, force: bool = False, dry_run: bool = False) -> RollbackPlan:
    """Reset a table to an older snapshot; later snapshots and tags, and files only they use, are deleted permanently.

    With a log, a commit restores the older rows, which readers of the log follow, since records of a log stay. Then
    later tags are deleted, and later snapshots stay until they expire.

    Args:
        table: the table.
        target: of the same branch.
        force: also when a stream has just written, or named readers have read later snapshots: these are set back.
        dry_run: only return what would be deleted.

    Returns:
        What was deleted, or would be.

    Raises:
        InvalidInputError: the rollback would cost another reader or writer its state, and ``force`` is not given.
        ConflictError: others committed meanwhile: nothing was removed, run it again.
    """
    store = table.store
    plan = plan_rollback(store, target)
    if plan.objections and not force and not dry_run:
        raise InvalidInputError(
            f"the rollback would cost another reader or writer its state: table={store.name} snapshot={target.id} "
            f"cause='{'; '.join(plan.objections)}' "
            "fix='use rollback_to_as_latest, which costs no one anything, or say force => true'"
        )
    if not dry_run and store.has_log:
        done, _ = restore_rows(table, target)  # first: a tag that is left says that the rollback is to be run again
        for each in plan.removals:
            tags.delete_tag(store, each.reference.name)
        return plan if done.snapshot is None else replace(plan, current_id=done.snapshot.id)
    if not dry_run and (plan.removals or find_run(store) is not None):
        roll_back(store, plan)
    return plan


def restore_rows(table: FileTable, wanted: Snapshot) -> tuple[CommitResult, Sequence[bytes]]:
    """Make the rows of an older snapshot the newest by a new commit, in files and log.

    Returns:
        The commit, and the partitions that were replaced.
    """
    done, partitions = restore(table.store, wanted)
    follow_overwrite(table)
    return done, partitions


def _ms(retained: timedelta | None) -> int | None:
    return None if retained is None else retained // timedelta(milliseconds=1)
