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
from engine.write.log_sync import follow_overwrite
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
    """Base of the accessors: each call is about the table that was opened."""

    def __init__(self, table: TableWithFiles) -> None:
        """Made by the table."""
        self._table = table

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.files.name!r})"

    @property
    def _store(self) -> TableStore:
        """The stored table. Raises: InvalidInputError: the opened table was dropped or renamed."""
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
        """One tag. Raises: InvalidInputError: there is no such tag; the message names the existing ones."""
        return tags.read_tag(self._store, name)

    def create(self, name: str, *, snapshot_id: int | None = None, time_retained: timedelta | None = None) -> Tag:
        """Give a snapshot a name; its files are kept until the tag is deleted.

        Args:
            name: up to 160 bytes; neither a number nor another word of a version, such as ``latest``.
            snapshot_id: id of the snapshot; None: the newest.
            time_retained: how long the tag lives. None: ``tag.default-time-retained``, else until it is deleted.

        Returns:
            The tag.

        Raises:
            InvalidInputError: the name is taken or cannot be one, or there is no such snapshot.
            ConflictError: the snapshot expired at this moment.
        """
        return tags.create_tag(self._store, name, snapshot_id=snapshot_id, retained_ms=_ms(time_retained))

    def replace(self, name: str, *, snapshot_id: int | None = None, time_retained: timedelta | None = None) -> Tag:
        """Move a tag to another snapshot, and delete the files that only the former one used.

        Args:
            name: of the tag.
            snapshot_id: as in ``create``.
            time_retained: as in ``create``.

        Returns:
            The moved tag.

        Raises:
            InvalidInputError: there is no such tag or snapshot, or a branch or savepoint needs the tag.
            ConflictError: the snapshot expired at this moment.
        """
        return tags.replace_tag(self._store, name, snapshot_id=snapshot_id, retained_ms=_ms(time_retained))

    def rename(self, name: str, target: str) -> Tag:
        """Rename a tag; for a moment both names exist.

        Args:
            name: of the tag.
            target: the new name.

        Returns:
            The renamed tag.

        Raises:
            InvalidInputError: there is no such tag, or the new name is taken or cannot be one.
        """
        return tags.rename_tag(self._store, name, target)

    def delete(self, name: str, *, dry_run: bool = False) -> DeletedTag:
        """Delete a tag, and the files that only it used.

        Args:
            name: of the tag.
            dry_run: only return what would be deleted.

        Returns:
            The tag, with the deleted files and their sizes in bytes.

        Raises:
            InvalidInputError: there is no such tag, or a branch was made from it.
        """
        return tags.delete_tag(self._store, name, dry_run=dry_run)

    def expire(self, *, older_than_ms: int | None = None, dry_run: bool = False) -> Sequence[DeletedTag]:
        """Delete the tags whose retention has passed, and the files that only they used.

        Args:
            older_than_ms: also delete tags that were created before this time, in epoch milliseconds.
            dry_run: only return what would be deleted.

        Returns:
            The deleted tags, with their files.

        Raises:
            CorruptDataError: a tag cannot be read.
            UnavailableError: a file system error.
        """
        return tags.expire_tags(self._store, older_than_ms=older_than_ms, dry_run=dry_run)

    def previous(self, name: str) -> Tag | None:
        """The tag of the nearest earlier snapshot; None: there is none."""
        return self._neighbour(previous_tag(self._store, name))

    def next(self, name: str) -> Tag | None:
        """The tag of the nearest later snapshot; None: there is none."""
        return self._neighbour(next_tag(self._store, name))

    def rollback(self, name: str, *, force: bool = False, dry_run: bool = False) -> RollbackPlan:
        """Reset the table to a tag; later snapshots and tags are deleted permanently. See ``roll_back_to``.

        Args:
            name: of the tag.
            force: also when a stream has just written, or named readers have read later snapshots: these are set back.
            dry_run: only return what would be deleted.

        Returns:
            What was deleted, or would be.

        Raises:
            InvalidInputError: there is no such tag, or the rollback needs ``force``; the message says why.
            ConflictError: others committed meanwhile: nothing was removed, run it again.
        """
        return roll_back_to(self._table.files, self._store.snapshots.tag(name), force=force, dry_run=dry_run)

    def diff(self, name: str, after: str | int = LATEST) -> Difference:
        """The difference between a tag and another state, by key; see ``Table.diff``.

        Args:
            name: of the tag.
            after: the other state as one word, see ``version`` of ``Table.read``.

        Returns:
            The changes that turn the rows of the tag into the rows of the other state.

        Raises:
            InvalidInputError: there is no such tag or state, or the keys of both differ.
        """
        return self._difference(name, after)

    def _neighbour(self, name: str | None) -> Tag | None:
        return None if name is None else self.get(name)


class Branches(_Kept, Generic[TableT]):
    """The same table with snapshots, schemas and tags of its own, under a name."""

    def __init__(self, table: TableWithFiles, opened: Callable[[FileTable], TableT]) -> None:
        """Made by the table.

        Args:
            table: the table.
            opened: makes the result of ``open`` from the files of a branch.
        """
        super().__init__(table)
        self._opened = opened

    @property
    def main(self) -> str:
        """Name of the main branch; not ``main`` after ``replace_main``."""
        store = self._store
        return main_branch(store.io, store.paths.root)

    def list(self) -> Sequence[Branch]:
        """The branches besides main, by name."""
        return list_branches(self._store)

    def get(self, name: str) -> Branch:
        """One branch. Raises: InvalidInputError: there is no such branch; the message names the existing ones."""
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
        """Create a branch; no row is copied.

        Args:
            name: up to 153 bytes, without dots; neither a number nor another word of a version, such as ``latest``.
            tag: tag of main that the branch begins at; it cannot be deleted before the branch.
            snapshot_id: snapshot of main that the branch begins at. Neither tag nor snapshot: the branch is empty.
            log: give the branch a log of its own, if the table has a log.
            ignore_if_exists: return the existing branch of this name, wherever it began.

        Returns:
            The branch.

        Raises:
            InvalidInputError: the name is taken or cannot be one, or there is no such tag or snapshot.
            ConflictError: the tag was deleted, or the snapshot expired, at this moment.
        """
        return branches.create_branch(
            self._store, name, tag=tag, snapshot_id=snapshot_id, log=log, ignore_if_exists=ignore_if_exists
        )

    def rename(self, name: str, target: str) -> Branch:
        """Rename a branch; its readers and writers have to open it again.

        Args:
            name: of the branch.
            target: the new name.

        Returns:
            The renamed branch.

        Raises:
            InvalidInputError: there is no such branch, it is main, or the new name is taken or cannot be one.
            ConflictError: another operation on one of them is in progress.
        """
        return rename_branch(self._store, name, target)

    def delete(self, name: str, *, dry_run: bool = False) -> DeletedBranch:
        """Delete a branch, the files that only it used, and its log.

        Args:
            name: of the branch.
            dry_run: only return what would be deleted.

        Returns:
            The branch, with the paths of the deleted files and the size of the data files in bytes.

        Raises:
            InvalidInputError: there is no such branch, or it is main.
            ConflictError: another operation on the branch is in progress, or died before its end.
        """
        return branches.delete_branch(self._store, name, dry_run=dry_run)

    def merge(self, name: str, *, force: bool = False, dry_run: bool = False) -> MergeResult:
        """Merge the changes of a branch into main by one commit, key by key; the branch stays.

        Args:
            name: of the branch.
            force: keys that both changed differently get the branch's row.
            dry_run: change nothing, and return the result of the merge without a snapshot.

        Returns:
            The commit, and the keys in conflict.

        Raises:
            ConflictError: both changed the keys that are named, or both changed the schema; nothing is visible.
        """
        done = merge_branch(self._store, name, force=force, dry_run=dry_run)
        if not dry_run:
            follow_overwrite(self._table.files)
        return done

    def fast_forward(self, name: str, *, force: bool = False, dry_run: bool = False) -> FastForward:
        """Publish a branch's snapshots, tags and schemas in main, under the same numbers.

        Args:
            name: of the branch.
            force: remove the snapshots that main has committed since the branch began.
            dry_run: change nothing, and return the ids of a fast-forward of now.

        Returns:
            Ids of the published snapshots, ascending, and of the removed ones.

        Raises:
            ConflictError: main has snapshots of its own since the branch began.
            InvalidInputError: the branch has a log of its own, or has expired snapshots that main would need.
        """
        done = fast_forward(self._store, name, force=force, dry_run=dry_run)
        if not dry_run:
            follow_overwrite(self._table.files)
        return done

    def replace_main(self, name: str, *, force: bool = False, dry_run: bool = False) -> MainReplaced:
        """Make a branch the main branch; the old main and its log are dropped. Jobs on the branch continue.

        Args:
            name: of the branch.
            force: also when main has a log and the branch has none.
            dry_run: only return what would be dropped.

        Returns:
            Names of the new main and of the dropped branch, and the files that only the dropped one used.

        Raises:
            InvalidInputError: no such branch, it is main already, or, without ``force``, main has a log and the branch
                has none; a savepoint would be lost.
        """
        return branches.replace_main(self._store, name, force=force, dry_run=dry_run)

    def diff(self, name: str, before: str | int = LATEST) -> Difference:
        """The difference between a state of the opened table and a branch's newest, by key; see ``Table.diff``.

        Args:
            name: of the branch.
            before: the state of the opened table as one word, see ``version`` of ``Table.read``.

        Returns:
            The changes that turn the rows of the first state into the rows of the branch.

        Raises:
            InvalidInputError: there is no such branch or state, or the keys of both differ.
        """
        return self._difference(str(before), f"{name}.{LATEST}")


class Savepoints(_Kept):
    """Compacted states that are kept under a number, with the checkpoints of queries."""

    def list(self) -> Sequence[Savepoint]:
        """The savepoints, by number."""
        return savepoint_files.list_savepoints(self._store)

    def get(self, savepoint: int) -> Savepoint:
        """One savepoint. Raises: InvalidInputError: there is no such savepoint; the message names the existing ones."""
        return savepoint_files.read_savepoint(self._store, savepoint)

    def create(self, *, compact: bool = True, checkpoints: Sequence[str] = ()) -> Savepoint:
        """Compact the table, and keep that state until the savepoint is deleted.

        Args:
            compact: merge each bucket into one sorted run first.
            checkpoints: checkpoint directories of the streaming queries that write the table, as DIRECTORY or
                COMMIT_USER=DIRECTORY; the files that a query needs to continue from this state are copied.

        Returns:
            The savepoint; numbers ascend.

        Raises:
            InvalidInputError: nothing was committed yet, or a checkpoint cannot be kept.
            ConflictError: others kept compacting the same files: there is no savepoint, run it again.
            UnavailableError: Spark has not noted the last batch in a checkpoint yet: run it again.
        """
        store = self._store
        places = [CheckpointPlace.parse(each) for each in checkpoints]
        return savepoints.create_savepoint(store, compact=compact, keep_checkpoints=keeping(store, places))

    def delete(self, savepoint: int, *, dry_run: bool = False) -> DeletedSavepoint:
        """Delete a savepoint, its tag, and the files that only it used.

        Args:
            savepoint: number of the savepoint.
            dry_run: only return what would be deleted.

        Returns:
            The savepoint, with the deleted files.

        Raises:
            InvalidInputError: there is no such savepoint, or a branch was made from its tag.
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
        """The difference between a savepoint and another state, by key; see ``Table.diff``.

        Args:
            savepoint: number of the savepoint.
            after: the other state as one word, see ``version`` of ``Table.read``.

        Returns:
            The changes that turn the rows of the savepoint into the rows of the other state.

        Raises:
            InvalidInputError: there is no such savepoint or state, or the keys of both differ.
        """
        return self._difference(f"savepoint.{savepoint}", after)


def snapshot_history(store: TableStore, limit: int | None = None) -> Sequence[Snapshot]:
    """The snapshots of a table, newest first, at most ``limit`` of them. Raises: InvalidInputError: it is negative."""
    if limit is not None and limit < 0:
        raise InvalidInputError(f"a number of snapshots is 0 or more: limit={limit} fix='leave it out for all'")
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
