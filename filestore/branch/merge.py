"""Merging a branch into main: one commit, with a decision per bucket, and per key where both sides changed a bucket.

A merge is an ordinary commit: atomic for readers, concurrent with live writers of main as these are with each
other, and streams get its exact difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from filestore.branch.branches import branch_to_work_on, opened_on_parent, read_branch
from filestore.branch.key_merge import MergedKeys, delete_merged, merge_keys
from filestore.branch.key_places import Conflicts, KeyConflict, KeyPlace, MergeTables
from filestore.branch.merge_files import CopiedFiles
from filestore.branch.merge_history import (
    CommitReader,
    MergeStart,
    hold_merged,
    merge_properties,
    merge_start,
    note_merged,
)
from filestore.branch.merge_places import MergePlaces
from filestore.branch.merge_plan import BucketPlace, MergeOutcome, TableRules, outcomes
from filestore.branch.merged_schemas import MergedSchemas, merged_schemas, take_back
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.diff.columns import column_changes
from filestore.layout.branch_state import BranchOrigin, Operation, Work, read_work, working
from filestore.layout.former_mains import history_id
from filestore.layout.paths import MAIN_BRANCH
from filestore.manifest.commit_message import CommitMessage
from filestore.refs.branch_origins import origin_of
from filestore.refs.live_references import branch_names, on_branch
from filestore.scan.table_scan import TableScan
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.lost_files import LostFileError
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import ConflictError
from lsm.retry import LostRaceError, retrying
from lsm.undo import following_a_commit, undoing_unless_visible

_ATTEMPTS: Final = 30
_CONFLICTS_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a merge."""

    branch: str
    snapshot: Snapshot | None  # of main; None: the branch had no new changes, or it was a dry run; the rest is the same
    bucket_count: int = 0  # changed buckets
    file_count: int = 0  # new files of main
    size_bytes: int = 0  # of these files
    conflict_count: int = (
        0  # keys, and buckets without a key, that both sides changed differently; forced, or a dry run
    )
    conflicts: tuple[KeyConflict, ...] = ()  # the first of these keys
    conflicting_buckets: tuple[BucketPlace, ...] = ()  # without a key
    schema_changes: tuple[str, ...] = ()  # of main's columns, as "renamed v to w"


def merge_branch(
    store: TableStore, name: str, *, force: bool = False, dry_run: bool = False, only_at: int | None = None
) -> MergeResult:
    """Merge the changes of a branch since its origin, or since its last merge, into main by one commit.

    For a branch of another branch, that one is meant by main.

    A bucket changed by one side gets that side's state; compactions are not changes. Where both changed it, main gets
    the keys that the branch changed (for tables that count their rows: the counts of rows); without a key the files
    that the branch added and removed. The branch does not change. Idempotent: rerun it after a crash.

    Args:
        store: table on any branch.
        name: name of the branch.
        force: keys that both changed differently get the branch's row; other rows of main stay. Without a key: buckets
            of which the files cannot be kept apart get the branch's state.
        dry_run: change nothing: what changed keys would become is written, counted and removed.
        only_at: expected newest snapshot of the branch; None: any.

    Raises:
        ConflictError: both sides changed keys differently (the first are named), or both changed the schema, the branch
            was written concurrently, or all retries lost against writers of main; nothing is visible.
        InvalidInputError: no such branch, or one that shares no history with main.
        OutcomeUnknownError: the merge may be visible: run it again.
        CommittedError: it is visible, and its operation has not ended: run it again, which merges nothing twice.
    """
    if not dry_run:
        branch_to_work_on(store, name, Operation.MERGE)
    main = opened_on_parent(store, name)
    merge = _Merge(main=main, branch=on_branch(main, name), force=force, dry_run=dry_run, only_at=only_at)
    if dry_run:
        try:
            return retrying(merge.attempt, attempts=_ATTEMPTS, on=LostRaceError)
        finally:
            merge.undo()
    with working(store.io, merge.branch.paths, Work(operation=Operation.MERGE)) as is_new:
        merge.is_repeated = not is_new
        read_branch(main, name)  # it may have been deleted before this operation began
        with undoing_unless_visible(merge.undo):
            return retrying(merge.attempt, attempts=_ATTEMPTS, on=LostRaceError)


def interrupted_merges(store: TableStore) -> list[str]:
    """The branches of which a merge was begun and has not ended; it may be running. Raises: CorruptDataError."""
    branches = [name for name in branch_names(store) if name != MAIN_BRANCH]
    works = {name: read_work(store.io, store.paths.with_branch(name)) for name in branches}
    return [name for name, work in works.items() if work is not None and work.operation is Operation.MERGE]


@dataclass(slots=True, kw_only=True)
class _Merge:
    """The attempts of one merge, with what they wrote."""

    main: TableStore
    branch: TableStore
    force: bool
    dry_run: bool
    only_at: int | None
    reader: CommitReader = field(default_factory=CommitReader)
    copied: CopiedFiles = field(init=False)
    merged: dict[object, MergedKeys] = field(default_factory=dict)  # by version of the place
    is_repeated: bool = False  # of a process that died: what it published is this one's to take back
    is_committed: bool = False
    versions: list[TableSchema] = field(default_factory=list)  # that were published in main
    releases: dict[int, Callable[[], None]] = field(default_factory=dict)  # of held states, by snapshot

    def __post_init__(self) -> None:
        self.copied = CopiedFiles(main=self.main, branch=self.branch, writes=not self.dry_run)

    def attempt(self) -> MergeResult:
        """Try once. Raises: LostRaceError when another attempt may succeed; it reuses what was written."""
        name = self.branch.paths.branch
        lost = f"lost {_ATTEMPTS} races with writers of main: table={self.main.name} branch={name}: merge again"
        origin, history = origin_of(self.main, name), self._history()
        latest, newest = self.main.snapshots.latest(), self._newest()
        nothing = MergeResult(branch=name, snapshot=None)
        if newest is None:
            return nothing
        try:
            start = merge_start(self.reader, self.main, self.branch, origin, latest=latest, newest=newest)
            if start is None or not start.branch.changed:
                return nothing
            schemas = merged_schemas(self.main, self.branch, origin)
            if self.is_repeated:
                self.versions += [each for each in schemas.unused if each not in self.versions]
            result, messages = self._merged(start, schemas, latest, newest)
            if self.dry_run or not messages:
                return result
        except LostFileError:
            raise
        except FileNotFoundError as error:  # one side was compacted and expired concurrently
            raise LostRaceError(lost) from error
        schemas.publish(self.versions)
        try:
            if newest.id not in self.releases:
                self.releases[newest.id] = hold_merged(self._there(), newest)
            done = self._commit(messages, origin, latest, newest)
        except ConflictError as error:
            raise LostRaceError(lost) from error
        self.is_committed = True
        with following_a_commit(f"branch is merged: table={self.main.name} branch={name} snapshot={done.id}"):
            self._clear(messages)
            note_merged(self._there(), newest, done, main=self.main, history=history)
        return replace(result, snapshot=done)

    def undo(self) -> None:
        """Delete everything that was written, unless it is committed."""
        if self.is_committed:
            return
        self._clear(())
        take_back(self.main, self.versions)
        for release in self.releases.values():
            release()

    def _newest(self) -> Snapshot | None:
        newest = self.branch.snapshots.latest()
        if self.only_at is not None and (newest is None or newest.id != self.only_at):
            raise ConflictError(
                f"the branch was written during the merge: table={self.main.name} branch={self.branch.paths.branch} "
                f"wanted_snapshot={self.only_at} newest={None if newest is None else newest.id}"
            )
        return newest

    def _history(self) -> str:
        return history_id(self.main.io, self.main.paths, self.main.main_branch)

    def _there(self) -> TableStore:
        """The branch with its own schema and options."""
        return FileTable(self.main).on_branch(self.branch.paths.branch).store

    def _merged(
        self, start: MergeStart, schemas: MergedSchemas, latest: Snapshot | None, newest: Snapshot
    ) -> tuple[MergeResult, Sequence[CommitMessage]]:
        """The content of the merge commit; no messages when nothing changes, or visible conflicts are not forced."""
        target, there = schemas.target, self._there()
        rules = TableRules(
            has_key=target.has_key,
            adds=start.is_known and not TableScan(target).skips_level0,
            is_first=start.is_first,
            force=self.force,
        )
        decided = outcomes(start.main, start.branch, rules)
        places = MergePlaces(self.main, self.branch, start, latest=latest, newest=newest, decided=decided)
        places.check()
        without_force = outcomes(start.main, start.branch, replace(rules, force=False))
        unsolved = tuple(sorted(place for place, each in without_force.items() if each is MergeOutcome.CONFLICT))
        conflicts = Conflicts()
        before = self.main.with_schema(self.main.schemas.latest() or self.main.schema)
        tables = MergeTables(main=target, branch=_reading(there, target))
        merged = [self._keys(tables, each) for each in places.by_key(target)]
        for each in merged:
            conflicts.add(each.conflicts)
        result = MergeResult(
            branch=self.branch.paths.branch,
            snapshot=None,
            conflict_count=conflicts.count + len(unsolved),
            conflicts=tuple(conflicts.first),
            conflicting_buckets=unsolved,
            schema_changes=tuple(map(str, column_changes(FileTable(before), FileTable(target)))),
        )
        if MergeOutcome.CONFLICT in decided.values() or (conflicts.count and not self.force):
            if self.dry_run:
                return result, ()
            raise _conflict(self.main, result)
        messages = [message for each in merged for message in each.messages]
        for place, change, vectors in places.by_files():
            messages.append(self.copied.message(place, change, schemas, vectors))
        messages = [each for each in messages if not each.is_empty]
        files = [file for message in messages for file in message.compact_after]
        result = replace(
            result,
            bucket_count=len({(each.partition, each.bucket) for each in messages}),
            file_count=len(files),
            size_bytes=sum(file.size_bytes for file in files),
        )
        return result, messages

    def _keys(self, tables: MergeTables, place: KeyPlace) -> MergedKeys:
        """The merge of one place by key; done again only if main changed it."""
        if place.version not in self.merged:
            self.merged[place.version] = merge_keys(tables, place, force=self.force)
        return self.merged[place.version]

    def _commit(
        self, messages: Sequence[CommitMessage], origin: BranchOrigin, latest: Snapshot | None, newest: Snapshot
    ) -> Snapshot:
        planned_on = latest.id if latest else 0
        commit = TableCommit(self.main, self.main.new_commit_user(), history_start=planned_on)
        committable = Committable(
            identifier=BATCH_IDENTIFIER,
            messages=messages,
            watermark=newest.watermark,
            properties=merge_properties(self.branch, origin, newest),
            changes=ChangeSource.FILES if self.main.options.change_tracking else ChangeSource.NONE,
        )
        done = commit.replace_files(committable, only_after=planned_on).snapshot
        assert done is not None
        return done

    def _clear(self, messages: Sequence[CommitMessage]) -> None:
        """Delete what was written and is not in these messages."""
        self.copied.keep_only(messages)
        used = {file.file_name for message in messages for file in message.compact_after}
        for found in self.merged.values():
            if not any(file.file_name in used for each in found.messages for file in each.compact_after):
                delete_merged(self.main, found)
        self.merged.clear()


def _reading(there: TableStore, target: TableStore) -> TableStore:
    """The branch, reading its files with the schema that main has afterwards."""
    # not an existing schema id, so that files resolve their schemas in their own branch
    return there.with_schema(replace(target.schema, id=-1))


def _conflict(main: TableStore, result: MergeResult) -> ConflictError:
    facts = f"table={main.name} branch={result.branch}"
    if result.conflicts:
        keys = [dict(each.key) for each in result.conflicts[:_CONFLICTS_NAMED]]
        return ConflictError(
            f"main and the branch changed the same keys differently: {facts} keys={keys} "
            f"count={result.conflict_count} fix=look at them by a dry run; merge with force, then these keys get the "
            "branch's rows; or write them to main"
        )
    buckets = [
        f"{main.partition_values(partition)}/bucket-{bucket}"
        for partition, bucket in result.conflicting_buckets[:_CONFLICTS_NAMED]
    ]
    fix = (
        "compact both sides, so that waiting rows get their buckets"
        if main.has_key
        else "merge with force, then the branch's files win there; or write its rows to main"
    )
    return ConflictError(
        f"main and the branch both changed rows of the same buckets, which have no key: {facts} buckets={buckets} "
        f"count={result.conflict_count} fix={fix}"
    )
