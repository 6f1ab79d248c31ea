"""The changes of a snapshot read from its files, for streams over commits that are not in a log.

A change is a row and its kind. For an insert-only commit, the added rows are the changes.
Anything else (overwrites, merge engines that fold rows, rollbacks) is the exact difference of two states of a bucket.
Applying the changes of consecutive snapshots gives, at each snapshot, the rows of the table.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.changelog.compared_states import Changes, ComparedStates, diff_by_file, diff_by_key
from filestore.commit.conflicts import sequence_conflict
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.predicate.predicate import Predicate
from filestore.read.split_read import BucketFiles, read_stored
from filestore.scan.bucket_states import BucketState, differing_buckets
from filestore.scan.data_split import DataSplit
from filestore.scan.snapshot_files import deletion_indexes, delta_entries, live_files_of_partitions
from filestore.schema.row_counts import signed, with_count
from filestore.snapshot.lost_files import naming_missing_files
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.errors import InvalidInputError
from lsm.row_kind import VALUE_KIND, RowKind, repeated_kind

_DELETE: Final = pa.scalar(int(RowKind.DELETE), pa.int8())
_DATA_KINDS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """Changes that one task reads in order; picklable, needs only the table to be read.

    Either ``added`` or a difference of ``before`` and ``after``. No key is in two splits of one plan.
    """

    snapshot: SnapshotRef  # the snapshot with these changes, or the later one of a difference
    partition: bytes  # BinaryRow with arity prefix
    bucket: int  # the lowest if a rescaled partition's buckets are in one split
    added: tuple[DataFileMeta, ...] = ()  # files with the changed rows, oldest first
    is_changelog: bool = False  # these files hold every change, including -U
    before: tuple[BucketState, ...] = ()
    after: tuple[BucketState, ...] = ()

    @property
    def row_count(self) -> int:
        """Number of rows to read, an upper bound of the number of changes."""
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Total size of the files to read."""
        return sum(file.size_bytes for file in self.files)

    @property
    def file_count(self) -> int:
        """Number of files to read."""
        return len(self.files)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files that the split reads: added files, then the states before and after."""
        return (*self.added, *(file for state in (*self.before, *self.after) for file in state.files))


def plan_changes(store: TableStore, previous: Snapshot | None, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
    """Plan the changes of a snapshot.

    Args:
        store: opened with the schema to read rows with.
        previous: the preceding snapshot; None if there is none or it has expired.
        snapshot: by any engine and of any kind; compactions and statistics have no changes.

    Returns:
        Splits by partition bytes and bucket.

    Raises:
        InvalidInputError: the preceding snapshot is needed and has expired; restart from a full snapshot.
        SnapshotExpiredError: the snapshot itself has expired in the meantime.
        LostFileError: a manifest is lost.
    """
    if snapshot.commit_kind not in _DATA_KINDS:
        return ()
    delta = [entry for entry in delta_entries(store, snapshot) if entry.bucket >= 0]  # else postponed, not visible
    if is_insert_only(store, previous, snapshot, delta):
        if snapshot.changelog_manifest_list is not None:
            return _added_splits(snapshot, _changelog_entries(store, snapshot), is_changelog=True)
        return _added_splits(snapshot, delta, is_changelog=False)
    if previous is None and snapshot.id > FIRST_SNAPSHOT_ID:
        return plan_kept_changes(store, snapshot)
    same_vectors = deletion_indexes(store, previous) == deletion_indexes(store, snapshot)
    partitions = {entry.partition for entry in delta} if same_vectors else None
    return _diff_splits(store, previous, snapshot, partitions)


def plan_kept_changes(store: TableStore, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
    """Plan the changes of a snapshot by its changelog alone: the rows before, or the snapshot itself, have expired.

    The changes that writers gave (``changelog-producer=input``) are those of the table only where the last row of a key
    replaces the others. No changelog has the rows that an overwrite removed.

    Raises: InvalidInputError: there is no such changelog; restart from a full snapshot.
    """
    options = store.options
    is_whole = not store.has_key or options.changelog_producer != "input" or (
        options.merge_engine == "deduplicate" and not options.sequence_fields and not options.ignore_delete
    )  # fmt: skip
    is_whole = is_whole and (snapshot.commit_kind is not CommitKind.OVERWRITE or snapshot.id == FIRST_SNAPSHOT_ID)
    if snapshot.changelog_manifest_list is None or not is_whole:
        raise _previous_expired(store, snapshot)
    return _added_splits(snapshot, _changelog_entries(store, snapshot), is_changelog=True)


def changelog_level(store: TableStore) -> int:
    """Lowest level with rows that compactions have emitted as changelog; 0: compactions emit none."""
    levels = {"lookup": 1, "full-compaction": store.level_count - 1}
    return levels.get(store.options.changelog_producer, 0)


def compaction_emits_changes(snapshot: Snapshot) -> bool:
    """Whether a snapshot has changes for readers of compaction changelogs."""
    if snapshot.commit_kind is CommitKind.COMPACT:
        return snapshot.changelog_manifest_list is not None
    return snapshot.commit_kind is CommitKind.OVERWRITE


def plan_changelog(store: TableStore, previous: Snapshot | None, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
    """Plan the changes of a snapshot for readers of compaction changelogs; see ``plan_changes``.

    They see no rows above the changelog level: rows are emitted when they are compacted, not by data commits.
    """
    if not compaction_emits_changes(snapshot):
        return ()
    if snapshot.commit_kind is CommitKind.COMPACT:
        return _added_splits(snapshot, _changelog_entries(store, snapshot), is_changelog=True)
    if previous is None and snapshot.id > FIRST_SNAPSHOT_ID:
        raise _previous_expired(store, snapshot)
    partitions = {entry.partition for entry in delta_entries(store, snapshot)}
    return _diff_splits(store, previous, snapshot, partitions, least_level=changelog_level(store))


def plan_diff(
    store: TableStore,
    before: Snapshot | None,
    after: Snapshot,
    *,
    least_level: int = 0,
    shows_same: Callable[[DataFileMeta], bool] | None = None,
) -> tuple[ChangeSplit, ...]:
    """Plan the exact difference of any two snapshots, in either order.

    Args:
        store: opened with the schema to read rows with.
        before: None is the empty table.
        after: the state that the changes lead to.
        least_level: files of lower levels are ignored.
        shows_same: see ``differing_buckets``.

    Returns:
        Splits by partition bytes and bucket, only of buckets with different files.
    """
    return _diff_splits(store, before, after, None, least_level=least_level, shows_same=shows_same)


def read_changes(
    table: TableView,
    split: ChangeSplit,
    *,
    columns: Sequence[str] | None = None,
    compared: Sequence[str] | None = None,
    states: ComparedStates | None = None,
) -> Changes:
    """Read the changes of a split as users see them.

    Args:
        table: the table that the split was planned with.
        split: the split to read.
        columns: columns to return, in this order; None is all.
        compared: of a difference by key; a change of others is none. None: ``columns``.
        states: of a difference, how both states are read; None: with the table's columns.

    Yields:
        Non-empty batches and their (n,) int8 row kinds; rows of one key in order. With a primary key: upserts (+I +U
        -D) from ``added`` files that are no changelog, else all kinds. Without one: added (+I) and removed (-D) rows.
    """
    names = list(table.schema.column_names if columns is None else columns)
    tested = names if compared is None else compared
    both = ComparedStates.alike(table.store) if states is None else states
    if table.row_counts is None:
        yield from _stored_changes(table.store, both, split, names, tested)
    else:
        found = _stored_changes(table.store, both, split, with_count(names), with_count(tested))
        yield from signed(found, is_difference=not split.added)


def _stored_changes(
    store: TableStore, states: ComparedStates, split: ChangeSplit, names: Sequence[str], compared: Sequence[str]
) -> Changes:
    if split.added:
        changes = _added_rows(store, split, names)
    elif store.has_key:
        keys = store.schema.trimmed_primary_keys
        columns, ignored = _in_order(store, {*names, *compared, *keys}), {*names} - {*compared}
        sides = (split.before, split.after)
        changes = diff_by_key(states, split.partition, sides, columns, keys=keys, ignored=ignored)
    else:
        changes = diff_by_file(states, split.partition, (split.before, split.after), _in_order(store, names))
    schema = store.schema.arrow_schema_of(names)
    # A difference also reads files of an earlier snapshot, so a missing file may belong to either.
    of_one = nullcontext() if split.before else naming_missing_files(store.snapshots, store.name, split.snapshot)
    with of_one:
        for rows, kinds in changes:
            if rows.num_rows and names:
                yield pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=schema), kinds
            elif rows.num_rows:
                yield rows.select([]), kinds


def read_whole(
    table: TableView, split: DataSplit, *, columns: Sequence[str] | None = None, filter: Predicate | None = None
) -> Changes:
    """The rows of a snapshot as the initial changes of a stream, see ``split_read.read_split``.

    Rows with a negative count are emitted too, as -D, so that sums over the changes of a stream are right.
    """
    names = list(table.schema.column_names if columns is None else columns)
    shown = names if table.row_counts is None else with_count(names)
    found = read_stored(table.store, split, columns=shown, filter=filter)
    changes = ((rows, repeated_kind(RowKind.INSERT, rows.num_rows)) for rows in found)
    yield from changes if table.row_counts is None else signed(changes)


# ---- planning


def _previous_expired(store: TableStore, snapshot: Snapshot) -> InvalidInputError:
    return InvalidInputError(
        f"changes need the preceding snapshot, which has expired: table={store.name} "
        f"snapshot={snapshot.id} kind={snapshot.commit_kind.value} fix='restart from a full snapshot'"
    )


def is_insert_only(
    store: TableStore, previous: Snapshot | None, snapshot: Snapshot, delta: Sequence[ManifestEntry]
) -> bool:
    """Whether a commit only added rows, and none of them is merged with or superseded by others."""
    options = store.options
    if snapshot.commit_kind is not CommitKind.APPEND or any(entry.kind is EntryKind.DELETE for entry in delta):
        return False
    if snapshot.index_manifest is not None and deletion_indexes(store, previous) != deletion_indexes(store, snapshot):
        return False
    if not store.has_key or store.counts_rows:
        return True
    if options.merge_engine != "deduplicate" or options.sequence_fields or options.ignore_delete:
        return False
    # Independent writers may assign sequence numbers below existing ones: such rows change nothing.
    return not (store.has_log and snapshot.is_external) or numbers_follow(store, previous, snapshot, delta)


def numbers_follow(
    store: TableStore, previous: Snapshot | None, snapshot: Snapshot, delta: Sequence[ManifestEntry]
) -> bool:
    """Whether the rows that a commit added have higher sequence numbers than those that were there."""
    if previous is None:
        return snapshot.id == FIRST_SNAPSHOT_ID
    known = live_files_of_partitions(store, previous, {entry.partition for entry in delta})
    return sequence_conflict(known, delta, has_key=True) is None


def _changelog_entries(store: TableStore, snapshot: Snapshot) -> list[ManifestEntry]:
    name = snapshot.changelog_manifest_list
    assert name is not None
    with naming_missing_files(store.snapshots, store.name, snapshot.ref):
        manifests = store.manifests.read_list(name, snapshot.changelog_manifest_list_size)
        return [entry for each in manifests for entry in store.manifests.read_manifest(each)]


def _added_splits(
    snapshot: Snapshot, entries: Iterable[ManifestEntry], *, is_changelog: bool
) -> tuple[ChangeSplit, ...]:
    by_bucket: defaultdict[tuple[bytes, int], list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        by_bucket[entry.partition, entry.bucket].append(entry.file)
    return tuple(
        ChangeSplit(
            snapshot=snapshot.ref,
            partition=partition,
            bucket=bucket,
            added=tuple(sorted(files, key=lambda file: (file.min_sequence_number, file.max_sequence_number))),
            is_changelog=is_changelog,
        )
        for (partition, bucket), files in sorted(by_bucket.items())
    )


def _diff_splits(
    store: TableStore,
    before: Snapshot | None,
    after: Snapshot,
    partitions: Collection[bytes] | None,
    *,
    least_level: int = 0,
    shows_same: Callable[[DataFileMeta], bool] | None = None,
) -> tuple[ChangeSplit, ...]:
    differing = differing_buckets(
        store, before, after, partitions=partitions, least_level=least_level, shows_same=shows_same
    )
    return tuple(
        ChangeSplit(
            snapshot=after.ref,
            partition=each.partition,
            bucket=min(state.bucket for state in (*each.before, *each.after)),
            before=each.before,
            after=each.after,
        )
        for each in differing
    )


# ---- reading


def _added_rows(store: TableStore, split: ChangeSplit, names: Sequence[str]) -> Changes:
    files = BucketFiles(table=store, partition=split.partition, bucket=split.bucket, files=split.added)
    for file in split.added:
        for rows in files.read(file, _in_order(store, names), with_system=store.has_key):
            if not store.has_key:
                yield rows, repeated_kind(RowKind.INSERT, rows.num_rows)
                continue
            kinds = rows.column(VALUE_KIND)
            if not split.is_changelog:  # a -U as the newest row of its key is a delete
                kinds = pc.if_else(pc.equal(kinds, int(RowKind.UPDATE_BEFORE)), _DELETE, kinds)
            yield rows, kinds


def _in_order(store: TableStore, names: Iterable[str]) -> list[str]:
    wanted = {*names}
    return [name for name in store.schema.column_names if name in wanted]
