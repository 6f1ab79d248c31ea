"""The exact changes of each of many versions: for every commit what differs from the state before it.

The law is that of a difference: the changes up to a version, applied to the state before the first, give that
version's rows, whatever the table's merge engine and changelog producer are. Commits that only add rows to a table with
a key are read together, in one merge: the files of the state before them, and then each file that they added.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.changelog.equal_rows import without_equal_rows
from filestore.changelog.snapshot_changes import ChangeSplit, numbers_follow, plan_changes, plan_diff, read_changes
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.read.split_read import BucketFiles
from filestore.scan.bucket_states import BucketState, states_under
from filestore.scan.row_expiry import RowExpiry
from filestore.scan.snapshot_files import deletion_indexes, delta_entries
from filestore.schema.merge_engine import composes, merge_function
from filestore.snapshot.lost_files import naming_missing_files
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.merge.version_diff import BEFORE_ALL, VersionDiff, with_age
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND

_MOST_TOGETHER: Final = 128  # versions whose files are open at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStep:
    """From a state to the next one that is kept."""

    before_id: int  # snapshot id; 0: the empty table
    before: Snapshot | None  # None: the empty table, or expired
    after: Snapshot

    @property
    def is_one_commit(self) -> bool:
        """Whether nothing else was committed in between."""
        return self.after.id == self.before_id + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFiles:
    """The files that one version added to a bucket."""

    version: int  # snapshot id
    files: tuple[DataFileMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSplit:
    """Changes of one bucket in one or several versions; picklable. Either ``step`` or ``added``."""

    last_version: int  # snapshot id
    step: ChangeSplit | None = None
    partition: bytes = b""
    bucket: int = 0
    under: tuple[BucketState, ...] = ()  # what was there before the first version, in the key ranges of the files
    added: tuple[AddedFiles, ...] = ()  # oldest first

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """All files that the split reads: what was there before the first version, then the added files."""
        if self.step is not None:
            return self.step.files
        return (
            *(file for each in self.under for file in each.files),
            *(file for each in self.added for file in each.files),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedChanges:
    """(n,) changes."""

    rows: pa.RecordBatch
    kinds: pa.Array  # (n,) int8: +I -U +U -D; without a key +I -D
    versions: pa.Array  # (n,) int64 snapshot ids


def plan_versions(store: TableStore, steps: Sequence[VersionStep]) -> tuple[VersionSplit, ...]:
    """Plan the changes of consecutive steps.

    Args:
        store: opened with the schema to read rows with.
        steps: each begins where the one before ends.

    Returns:
        Splits; those of a key in the order of the versions.

    Raises:
        InvalidInputError: a state before a step is needed and has expired.
        SnapshotExpiredError: a snapshot has expired in the meantime.
        LostFileError: a manifest is lost.
    """
    splits: list[VersionSplit] = []
    together: list[tuple[VersionStep, list[ManifestEntry]]] = []
    for step in steps:
        added = _only_added(store, step)
        goes_on = not together or (added is not None and _goes_on(store, together[-1][0], step))
        if not goes_on or len(together) == _MOST_TOGETHER:
            splits += _planned_together(store, together)
            together = []
        if added is None:
            splits += _planned_alone(store, step)
        else:
            together.append((step, added))
    return (*splits, *_planned_together(store, together))


def read_versions(
    table: TableView, split: VersionSplit, *, drops_carryovers: bool = True
) -> Iterator[VersionedChanges]:
    """The changes of a split, in all columns, as users see them.

    Args:
        table: the table that the split was planned with.
        split: the split to read.
        drops_carryovers: without a key, leave out pairs of a removed and an added row that are equal: a commit that
            rewrites a file removes and adds again what it keeps.

    Yields:
        Non-empty batches; the changes of a key in order, each key at most once in a version.
    """
    if split.step is None:
        yield from _read_together(table.store, split)
        return
    step = split.step
    changes = read_changes(table, step)
    if drops_carryovers and not table.store.has_key and step.before and step.after:
        changes = without_equal_rows(
            lambda: read_changes(table, step),
            table.schema.fields,
            row_count=step.row_count,
            budget_bytes=table.options.sort_spill_buffer_size_bytes,
        )
    for rows, kinds in changes:
        versions = pa.array(np.full(rows.num_rows, split.last_version, np.int64))
        yield VersionedChanges(rows=rows, kinds=kinds, versions=versions)


# ---- planning


def _only_added(store: TableStore, step: VersionStep) -> list[ManifestEntry] | None:
    """The files that a commit added to a table with a key, if it did nothing else; else None."""
    after = step.after
    if not store.has_key or store.counts_rows or not step.is_one_commit or after.commit_kind is not CommitKind.APPEND:
        return None
    delta = [entry for entry in delta_entries(store, after) if entry.bucket >= 0]
    if any(entry.kind is EntryKind.DELETE for entry in delta):
        return None
    if after.index_manifest is not None and deletion_indexes(store, step.before) != deletion_indexes(store, after):
        return None
    # Rows of independent writers may be older than what a compaction has folded into one.
    return delta if not after.is_external or numbers_follow(store, step.before, after, delta) else None


def _goes_on(store: TableStore, before: VersionStep, step: VersionStep) -> bool:
    """Whether a state is what the files before and the added ones hold, although files were compacted in between."""
    return step.before_id == before.after.id or _composes(store)


def _composes(store: TableStore) -> bool:
    return composes(store.schema, store.options) and RowExpiry.of(store.schema, store.options) is None


def _planned_alone(store: TableStore, step: VersionStep) -> Iterator[VersionSplit]:
    plan = plan_changes if step.is_one_commit else plan_diff
    for split in plan(store, step.before, step.after):
        yield VersionSplit(last_version=step.after.id, step=split)


def _planned_together(
    store: TableStore, steps: Sequence[tuple[VersionStep, Sequence[ManifestEntry]]]
) -> Iterator[VersionSplit]:
    added: defaultdict[tuple[bytes, int], list[AddedFiles]] = defaultdict(list)
    for step, delta in steps:
        of_step: defaultdict[tuple[bytes, int], list[DataFileMeta]] = defaultdict(list)
        for entry in delta:
            of_step[entry.partition, entry.bucket].append(entry.file)
        for place, files in of_step.items():
            added[place].append(AddedFiles(version=step.after.id, files=tuple(files)))
    if not added:
        return
    under = states_under(
        store,
        steps[0][0].before,
        {place: [file for each in found for file in each.files] for place, found in added.items()},
    )
    for (partition, bucket), found in sorted(added.items()):
        state = under.get((partition, bucket))
        yield VersionSplit(
            last_version=found[-1].version,
            partition=partition,
            bucket=bucket,
            under=() if state is None else (state,),
            added=tuple(found),
        )


# ---- reading


@dataclass(frozen=True, slots=True)
class _Place:
    """Of a file among versions."""

    age: int  # of its version among those of the split, or BEFORE_ALL
    shift: int  # added to sequence numbers: when a compaction drops the newest deletes, later ones are not above them


@dataclass(frozen=True, slots=True)
class _ByVersion:
    """See ``MarkedMerge``."""

    merge: VersionDiff
    places: Mapping[str, _Place]  # by file name

    def marked(self, rows: pa.RecordBatch, file: DataFileMeta) -> pa.RecordBatch:
        """The rows of a file with the age of the version that added it."""
        place = self.places[file.file_name]
        if place.shift:
            at = rows.schema.get_field_index(SEQUENCE_NUMBER)
            numbers = pc.add(rows.column(SEQUENCE_NUMBER), pa.scalar(place.shift, pa.int64()))
            rows = rows.set_column(at, SEQUENCE_NUMBER_FIELD, numbers)
        return with_age(rows, place.age)


def _places(split: VersionSplit) -> Mapping[str, _Place]:
    """Of each file of a split, so that rows of later versions have higher sequence numbers."""
    under = [file for each in split.under for file in each.files]
    found = {file.file_name: _Place(BEFORE_ALL, 0) for file in under}
    highest = max((file.max_sequence_number for file in under), default=-1)
    for age, each in enumerate(split.added, BEFORE_ALL + 1):
        shift = max(highest + 1 - min(file.min_sequence_number for file in each.files), 0)
        highest = shift + max(file.max_sequence_number for file in each.files)
        found |= {file.file_name: _Place(age, shift) for file in each.files}
    return found


def _read_together(store: TableStore, split: VersionSplit) -> Iterator[VersionedChanges]:
    names = store.schema.column_names
    merge = VersionDiff(
        inner=merge_function(store.schema, store.options),
        key_names=frozenset(store.schema.primary_keys),
        versions=(0, *(each.version for each in split.added)),
        composes=_composes(store),
    )
    by_version = _ByVersion(merge, _places(split))
    vectors = tuple(vector for each in split.under for vector in each.deletion_vectors)
    files = BucketFiles(
        table=store,
        partition=split.partition,
        bucket=split.bucket,
        files=split.files,
        deleted=read_deletion_vectors(store, vectors),
    )
    schema = store.schema.arrow_schema_of(names)
    with naming_missing_files(store.snapshots, store.name, split.last_version):
        for runs in files.sections():
            for table in files.merged(runs, names, drop_deletes=True, instead=by_version):
                for batch in table.to_batches():
                    yield VersionedChanges(
                        rows=pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema),
                        kinds=batch.column(VALUE_KIND),
                        versions=batch.column(SEQUENCE_NUMBER),
                    )
