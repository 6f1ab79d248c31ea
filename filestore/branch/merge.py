"""Merging a branch into main: one commit, with a decision per bucket, and per key where both sides changed a bucket.

A merge is an ordinary commit: atomic for readers, concurrent with live writers of main as these are with each
other, and streams get its exact difference.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from filestore.branch.branches import branch_to_work_on, opened_on_parent, read_branch
from filestore.branch.key_merge import MergedKeys, delete_merged, merge_keys, takes_changes
from filestore.branch.key_places import Conflicts, KeyConflict, KeyPlace, MergeTables
from filestore.branch.merge_files import CopiedFiles, Vectors
from filestore.branch.merge_history import (
    CommitReader,
    MergeStart,
    hold_merged,
    merge_properties,
    merge_start,
    note_merged,
)
from filestore.branch.merge_plan import (
    BucketPlace,
    MergeOutcome,
    PlaceChange,
    SideChanges,
    TableRules,
    bucket_counts,
    by_place,
    outcomes,
    place_change,
)
from filestore.branch.merged_schemas import MergedSchemas, merged_schemas, take_back
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.diff.columns import column_changes
from filestore.index.index_manifest import HASH, index_files
from filestore.layout.branch_state import BranchOrigin, Operation, Work, read_work, working
from filestore.layout.former_mains import history_id
from filestore.layout.paths import MAIN_BRANCH
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import ManifestEntry
from filestore.manifest.lists import DELETION_VECTORS, IndexManifestEntry, vectors_of
from filestore.refs.branch_origins import origin_of
from filestore.refs.live_references import branch_names, on_branch
from filestore.scan.bucket_states import BucketState
from filestore.scan.snapshot_files import live_files_of_partitions, vector_places
from filestore.scan.table_scan import TableScan
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.lost_files import LostFileError
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError
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


# ---- The buckets of a merge with their files on both sides and in the common state


_MOST_CHANGE_FILES = 200  # of a bucket that are merged at once; with more the states are compared


@dataclass(slots=True)
class _Side:
    """The state of one side in the partitions that the branch changed."""

    files: Mapping[BucketPlace, Sequence[ManifestEntry]]
    indexes: Mapping[BucketPlace, Sequence[IndexManifestEntry]]

    @classmethod
    def at(cls, store: TableStore, snapshot: Snapshot | None, partitions: set[bytes]) -> "_Side":
        indexes: defaultdict[BucketPlace, list[IndexManifestEntry]] = defaultdict(list)
        for entry in index_files(store, snapshot):
            if entry.index_type not in (DELETION_VECTORS, HASH):
                raise InvalidInputError(
                    f"cannot merge a table with an index of this type: table={store.name} type={entry.index_type} "
                    "fix=fast_forward, or replace_main_branch"
                )
            if entry.partition in partitions:
                indexes[entry.partition, entry.bucket].append(entry)
        files = by_place(live_files_of_partitions(store, snapshot, partitions)) if partitions else {}
        return cls(files, dict(indexes))

    def vectors(self, place: BucketPlace) -> tuple[IndexManifestEntry, ...]:
        return tuple(each for each in self.indexes.get(place, ()) if each.index_vectors)

    def state(self, place: BucketPlace) -> BucketState | None:
        entries = self.files.get(place, ())
        return None if not entries else state_of(place[1], entries, self.vectors(place))


def state_of(bucket: int, entries: Sequence[ManifestEntry], indexes: Sequence[IndexManifestEntry] = ()) -> BucketState:
    """The files of a bucket."""
    files = tuple(entry.file for entry in entries)
    return BucketState(
        bucket=bucket, total_buckets=entries[0].total_buckets, files=files, deletion_vectors=vectors_of(files, indexes)
    )


@dataclass(slots=True)
class MergePlaces:
    """The buckets and keys to merge, bucket by bucket."""

    main: TableStore
    branch: TableStore
    start: MergeStart
    latest: Snapshot | None = field(kw_only=True)
    newest: Snapshot = field(kw_only=True)
    decided: Mapping[BucketPlace, MergeOutcome] = field(kw_only=True)
    _main: _Side = field(init=False)
    _branch: _Side = field(init=False)
    _base: _Side = field(init=False)

    def __post_init__(self) -> None:
        partitions = {partition for partition, _ in self.decided}
        reads_base = any(each in (MergeOutcome.KEYS, MergeOutcome.FILES) for each in self.decided.values())
        reads_base = reads_base or self.main.has_dynamic_buckets
        self._main = _Side.at(self.main, self.latest, partitions)
        self._branch = _Side.at(self.branch, self.newest, partitions)
        self._base = _Side.at(self.branch, self.start.base, partitions if reads_base else set())

    def check(self) -> None:
        """Raises: InvalidInputError, ConflictError: some bucket cannot be merged."""
        partitions = {partition for partition, _ in self.decided}
        entries = [each for side in (self._main, self._branch) for group in side.files.values() for each in group]
        counts = {*self.start.main.bucket_counts, *self.start.branch.bucket_counts, *bucket_counts(entries)}
        known: dict[bytes, int] = {}
        for partition, count in counts:
            if partition in partitions and known.setdefault(partition, count) != count:
                raise InvalidInputError(
                    f"a partition was rescaled since the branch began: table={self.main.name} "
                    f"branch={self.branch.paths.branch} partition={self.main.partition_values(partition)} "
                    f"buckets={sorted({count, known[partition]})} fix=write the branch's rows to main"
                )
        needs_base = any(each is MergeOutcome.KEYS for each in self.decided.values()) or self.main.has_dynamic_buckets
        if needs_base and not self.start.is_known:
            raise ConflictError(
                f"both sides changed rows, and the state that was merged last has expired: table={self.main.name} "
                f"branch={self.branch.paths.branch} fix=write the branch's rows to main, or replace_main_branch"
            )

    def by_files(self) -> Iterator[tuple[BucketPlace, PlaceChange, Vectors]]:
        """The changes of buckets that are merged by files; unchanged ones are omitted."""
        added = by_place(self.start.branch.added)
        for place, outcome in sorted(self.decided.items()):
            if outcome in (MergeOutcome.KEYS, MergeOutcome.CONFLICT) or self.main.has_dynamic_buckets:
                continue
            here, there = self._main.files.get(place, ()), self._branch.files.get(place, ())
            if not here and not there:
                continue
            branch_vectors = vectors_of([each.file for each in there], self._branch.vectors(place))
            vectors = Vectors(main=self._main.vectors(place), branch=branch_vectors)
            deletes = bool(vector_places(branch_vectors)) and outcome is not MergeOutcome.ADD
            change = place_change(
                outcome,
                base=self._base.files.get(place, ()),
                main=here,
                branch=there,
                added=added.get(place, ()),
                deletes_rows=deletes,
            )
            if change:
                yield place, change, vectors

    def by_key(self, target: TableStore) -> Iterator[KeyPlace]:
        """The buckets that are merged by key."""
        if self.main.has_dynamic_buckets:
            for partition in sorted({partition for partition, _ in self.decided}):
                yield self._whole(partition)
            return
        for place, outcome in sorted(self.decided.items()):
            if outcome is MergeOutcome.KEYS:
                yield self._place(place, target)

    def _place(self, place: BucketPlace, target: TableStore) -> KeyPlace:
        changes = self._changes(place) if takes_changes(target) else None
        return KeyPlace(
            partition=place[0],
            base=_states([self._base.state(place)]),
            main=_states([self._main.state(place)]),
            branch=_states([self._branch.state(place)]),
            main_changes=None if changes is None else changes[0],
            branch_changes=None if changes is None else changes[1],
            indexes=self._main.vectors(place),
        )

    def _whole(self, partition: bytes) -> KeyPlace:
        """All buckets of a partition: a new key may have got different ones on both sides."""

        def states(side: _Side) -> tuple[BucketState, ...]:
            return _states(side.state(place) for place in sorted(side.files) if place[0] == partition)

        indexes = [each for place, group in self._main.indexes.items() if place[0] == partition for each in group]
        return KeyPlace(
            partition=partition,
            base=states(self._base),
            main=states(self._main),
            branch=states(self._branch),
            indexes=tuple(indexes),
        )

    def _changes(self, place: BucketPlace) -> tuple[tuple[BucketState, ...], tuple[BucketState, ...]] | None:
        """The files with the changed rows of both sides; None when the states must be compared."""
        start = self.start
        if start.since_merge is None or place in start.main.changed - start.since_merge.changed:
            return None
        sides = [_only_added(place, side) for side in (start.main, start.branch)]
        found = [each for each in sides if each is not None]
        base = self._base.files.get(place, ())
        if len(found) < 2 or len(_added_at(place, start.main)) != len(_added_at(place, start.since_merge)):
            return None
        highest = max((each.file.max_sequence_number for each in base), default=-1)
        rows = sum(each.file.row_count for group in found for each in group)
        states = sum(
            each.file.row_count for side in (self._base, self._main, self._branch) for each in side.files.get(place, ())
        )
        if rows > states or any(len(group) > _MOST_CHANGE_FILES or not _follow(group, highest) for group in found):
            return None
        one, two = ((state_of(place[1], group),) for group in found)
        return one, two


def _added_at(place: BucketPlace, side: SideChanges) -> list[ManifestEntry]:
    return [each for each in side.added if (each.partition, each.bucket) == place]


def _only_added(place: BucketPlace, side: SideChanges) -> list[ManifestEntry] | None:
    return _added_at(place, side) if place in side.only_added else None


def _follow(entries: Sequence[ManifestEntry], highest: int) -> bool:
    """Whether the rows of files are newer than all that was there before them."""
    for entry in entries:
        if entry.file.min_sequence_number <= highest:
            return False
        highest = max(highest, entry.file.max_sequence_number)
    return True


def _states(found: Iterable[BucketState | None]) -> tuple[BucketState, ...]:
    return tuple(each for each in found if each is not None)
