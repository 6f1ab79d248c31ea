"""Maintenance that rewrites files: rescaling buckets, restoring older rows, removing lost files.

Each is a single commit, which fails with a conflict if another writer changed the same files concurrently.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from filestore.changelog.snapshot_changes import changelog_level
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import CommitResult, TableCommit, replace_compacted
from filestore.compact.upgrade import compact_to_top
from filestore.evolution.older_states import folding_changes, obstacles
from filestore.index.deletion_vector_changes import change_index, copy_index
from filestore.index.index_manifest import bucket_index
from filestore.io.disk import DirectoryGoneError
from filestore.io.file_io import copy_file
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry
from filestore.read.split_read import read_stored
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import deletion_indexes
from filestore.scan.table_scan import TableScan
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.lost_files import FileRole, missing_file, naming_missing_files
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.table_write import TableWrite
from lsm.errors import InvalidInputError
from lsm.retry import retrying
from lsm.undo import undoing, undoing_unless_visible

RESTORED_KEY: Final = "fluvial.restored"
"""Property of a snapshot: the delta manifest list of the snapshot that it restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFile:
    """A data file of a snapshot that is missing."""

    path: str
    key: BucketKey
    total_buckets: int
    file: DataFileMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFiles:
    """The lost data files of one snapshot."""

    ref: SnapshotRef  # EMPTY_TABLE: there is no snapshot
    files: tuple[LostFile, ...]


def rescale(
    store: TableStore,
    rescaled: TableStore,
    *,
    keep: Callable[[bytes], bool],
    budget_bytes: int | None = None,
    dry_run: bool = False,
) -> tuple[CommitResult, int]:
    """Rewrite partitions with a different bucket count; without changes for streams.

    Args:
        store: the table.
        rescaled: the same table with the new bucket count in its options.
        keep: whether to rescale a partition (BinaryRow bytes).
        budget_bytes: memory budget of the writer.
        dry_run: rewrite nothing; refused where a run would be.

    Returns:
        The commit, and the number of changed partitions. Those with this bucket count already are skipped.

    Raises:
        ConflictError: these partitions were written concurrently: run it again. Nothing is visible.
        InvalidInputError: new rows of such tables are not visible before compaction; or compaction has yet to
            emit some rows to the changelog.
    """
    uses_vectors = store.options.deletion_vectors_enabled
    if TableScan(store).skips_level0 and not uses_vectors:
        raise InvalidInputError(
            f"new files of this table are not visible before they are compacted: table={store.name} "
            f"merge-engine={store.options.merge_engine}"
        )
    live = LiveFiles.latest(store)
    wanted = rescaled.options.bucket
    keys = [key for key in live.buckets() if keep(key.partition) and live.total_buckets(key) != wanted]
    partitions = {key.partition for key in keys}
    if live.snapshot is None or not partitions:
        return CommitResult(snapshot=live.snapshot), 0
    emitted_level = max(changelog_level(store), int(uses_vectors and store.has_key))
    if any(file.level < emitted_level for key in keys for file in live.files(key)):
        raise InvalidInputError(
            f"rows are not compacted and emitted to streams yet: table={store.name} "
            f"changelog-producer={store.options.changelog_producer} fix='compact the table fully first'"
        )
    if dry_run:
        return CommitResult(snapshot=None), len(partitions)
    writer = TableWrite(
        TableView(rescaled),
        max_sequence_numbers={},
        budget_bytes=budget_bytes,
        takes_stored_rows=True,
        takes_old_rows=True,
    )
    with undoing(writer.abort), live.reading():
        for batch in _rows(store, live.snapshot, partitions):
            writer.write(batch)
        written = writer.prepare_commit()
    outputs = compact_to_top(rescaled, written) if emitted_level else written
    outputs = [replace(each, new_files=(), compact_after=each.new_files) for each in outputs]
    inputs = [
        CommitMessage(
            partition=key.partition,
            bucket=key.bucket,
            total_buckets=live.total_buckets(key) or wanted,
            compact_before=live.files(key),
            index_before=live.indexes(key),
        )
        for key in keys
    ]
    return replace_compacted(rescaled, [*inputs, *outputs], live.ref), len(partitions)


def restore(store: TableStore, wanted: Snapshot) -> tuple[CommitResult, list[bytes]]:
    """Restore the rows of an older snapshot by a new commit; history and streams continue.

    Files of differing partitions are copied under new names, because names of deleted files must not be reused. The
    commit records what it restored, so repeating it while it is the newest has no effect.

    It follows exactly the snapshot that it was compared with: a partition that was as wanted may have other rows behind
    a later one. So where another writer was faster, it is compared again, and the copies of before serve.

    Returns:
        The commit, and the replaced partitions.

    Raises:
        ConflictError: the commit lost too many races: run it again.
        InvalidInputError: the table has been rescaled since, or its schema changed so that the files would have other
            rows; the message names the changes.
        SnapshotExpiredError: the tag that kept its files was deleted in the meantime; nothing changed.
    """
    copies = _Copies(store, wanted)
    with undoing_unless_visible(copies.discard):
        done, partitions = retrying(
            lambda: _restored_once(store, wanted, copies),
            attempts=store.options.commit_max_retries + 1,
            backoff=store.commit_backoff,
        )
        copies.discard(but=partitions)
    return done, partitions


def _restored_once(store: TableStore, wanted: Snapshot, copies: "_Copies") -> tuple[CommitResult, list[bytes]]:
    """One attempt. Raises: ConflictError: another writer was faster."""
    latest = store.snapshots.latest()
    partitions = _differing(store, wanted, latest)
    if latest is None or not partitions:
        is_done = latest is not None and is_restored(latest, wanted)
        return CommitResult(snapshot=latest, already_committed=is_done), []
    committable = Committable(
        identifier=BATCH_IDENTIFIER,
        messages=copies.of(partitions),
        properties={RESTORED_KEY: wanted.delta_manifest_list},
        changes=ChangeSource.FILES if store.options.change_tracking else ChangeSource.NONE,
    )
    commit = TableCommit(store, store.new_commit_user(), history_start=latest.id)
    done = commit.overwrite(committable, replaces=frozenset(partitions).__contains__, only_after=latest.id)
    return done, partitions


class _Copies:
    """Copies of the files of one snapshot, of each partition once."""

    def __init__(self, store: TableStore, wanted: Snapshot) -> None:
        self._store, self._wanted, self._old = store, wanted, LiveFiles(store, wanted)
        self._made: dict[bytes, list[CommitMessage]] = {}

    def of(self, partitions: Iterable[bytes]) -> list[CommitMessage]:
        """Those of some partitions; what is missing is copied. Raises: SnapshotExpiredError; then no copy is left."""
        store, wanted = self._store, self._wanted
        new = {*partitions} - self._made.keys()
        with naming_missing_files(store.snapshots, store.name, wanted.ref), undoing(self.discard):
            indexes = deletion_indexes(store, wanted) if new else {}
            for key in (each for each in self._old.all_buckets() if each.partition in new):
                self._copy(key, indexes.get(key, ()))
        return [each for partition in partitions for each in self._made.get(partition, ())]

    def _copy(self, key: BucketKey, vectors: Sequence[IndexManifestEntry]) -> None:
        store, old = self._store, self._old
        total = old.total_buckets(key) or store.options.bucket
        made = self._made.setdefault(key.partition, [])
        made.append(CommitMessage(partition=key.partition, bucket=key.bucket, total_buckets=total))
        names: dict[str, str] = {}
        for file in old.files(key):
            copied = copy_data_file(store, key, file)
            names[file.file_name] = copied.file_name
            made[-1] = replace(made[-1], new_files=(*made[-1].new_files, copied))
        made[-1] = replace(made[-1], index_after=copy_index(store, key.partition, key.bucket, vectors, names))
        hashes = _copy_hash_index(store, self._wanted, made[-1])
        made[-1] = replace(made[-1], index_after=(*made[-1].index_after, *hashes))

    def discard(self, *, but: Collection[bytes] = ()) -> None:
        """Delete those that no snapshot has: all, but those of some partitions."""
        gone = [partition for partition in self._made if partition not in but]
        discard(self._store, [each for partition in gone for each in self._made.pop(partition)])


def partitions_to_restore(store: TableStore, wanted: Snapshot) -> list[bytes]:
    """The partitions that ``restore`` would replace. Raises: InvalidInputError when it is not possible."""
    return _differing(store, wanted, store.snapshots.latest())


def _differing(store: TableStore, wanted: Snapshot, latest: Snapshot | None) -> list[bytes]:
    newest, then = store.schemas.latest(), store.schemas.read(wanted.schema_id)
    if latest is None or newest is None:
        return []
    _check_same_rows(store, wanted, obstacles(then, newest), newest.id)
    if is_restored(latest, wanted):
        return []
    old, now = LiveFiles(store, wanted), LiveFiles(store, latest)
    partitions = {
        key.partition for key in {*old.all_buckets(), *now.all_buckets()} if _names(old, key) != _names(now, key)
    }
    totals = {old.total_buckets(key) for key in old.buckets() if key.partition in partitions} - {store.options.bucket}
    if totals and store.options.bucket > 0:
        raise InvalidInputError(
            f"the table has been rescaled since: table={store.name} snapshot={wanted.id} bucket={store.options.bucket} "
            f"then={sorted(total for total in totals if total is not None)}"
        )
    if any(_is_folded(store, old, key) for key in old.buckets() if key.partition in partitions):
        _check_same_rows(store, wanted, folding_changes(then, newest), newest.id)
    return sorted(partitions)


def _check_same_rows(store: TableStore, wanted: Snapshot, changes: Sequence[str], newest_id: int) -> None:
    """Compare schemas. Raises: InvalidInputError: by a schema change, files of the wanted snapshot have other rows."""
    if changes:
        raise InvalidInputError(
            f"the older rows are not rows of the table as it is now: table={store.name} snapshot={wanted.id} "
            f"schema={wanted.schema_id} newest_schema={newest_id} cause='{'; '.join(changes)}' "
            "fix=read the older state and overwrite the table with its rows; or undo that change of an option"
        )


def _is_folded(store: TableStore, live: LiveFiles, key: BucketKey) -> bool:
    """Whether the rows of a bucket are made by merging its files, or by leaving out deleted ones."""
    runs = live.levels(key).runs if store.has_key else ()
    return len(runs) > 1 or any(run.delete_count for run in runs)


def is_restored(latest: Snapshot, wanted: Snapshot) -> bool:
    """Whether a snapshot already restored the wanted one."""
    return latest.properties.get(RESTORED_KEY) == wanted.delta_manifest_list


def lost_files(store: TableStore) -> LostFiles:
    """The missing data files of the newest snapshot."""
    live = LiveFiles.latest(store)
    found = []
    for key in live.all_buckets():
        for file in live.files(key):
            path = store.file_path(key.partition, key.bucket, file)
            if not store.io.exists(path):
                total = live.total_buckets(key) or store.options.bucket
                found.append(LostFile(path=path, key=key, total_buckets=total, file=file))
    return LostFiles(ref=live.ref, files=tuple(found))


def remove_lost_files(store: TableStore, lost: LostFiles) -> CommitResult:
    """Remove lost files, and thereby their rows, from the table, without a change for streams.

    Raises: ConflictError when these files were replaced concurrently: find lost files again.
    """
    groups: dict[BucketKey, list[LostFile]] = {}
    for each in lost.files:
        groups.setdefault(each.key, []).append(each)
    indexes = deletion_indexes(store, store.snapshots.find_ref(lost.ref))
    messages = []
    for key, group in groups.items():
        removed = {each.file.file_name for each in group}
        change = change_index(store, key.partition, key.bucket, indexes.get(key, ()), removed=removed)
        messages.append(
            CommitMessage(
                partition=key.partition,
                bucket=key.bucket,
                total_buckets=group[0].total_buckets,
                compact_before=tuple(each.file for each in group),
                index_before=change.before,
                index_after=change.after,
            )
        )
    return replace_compacted(store, messages, lost.ref)


def _rows(store: TableStore, snapshot: Snapshot, partitions: set[bytes]) -> Iterator[pa.RecordBatch]:
    for split in TableScan(store).plan(snapshot=snapshot, partitions=partitions).splits:
        yield from read_stored(store, split, columns=store.schema.column_names)


def _names(live: LiveFiles, key: BucketKey) -> set[object]:
    """The names that determine the rows: files, and the locations of their deletion vectors."""
    vectors = ((entry.file_name, each) for entry in live.indexes(key) for each in entry.index_vectors)
    return {*vectors, *((file.file_name, file.level) for file in live.files(key))}


def copy_data_file(store: TableStore, key: BucketKey, file: DataFileMeta) -> DataFileMeta:
    """Copy a file under a new name, without its index files, which are optional."""
    source = store.file_path(key.partition, key.bucket, file)
    suffix = file.file_name.rpartition(".")[2]
    name = f"{store.options.data_file_prefix}{store.names.uuid()}-0.{suffix}"
    external_path = store.new_files(key.partition, key.bucket).external_path(name)
    copied = replace(file, file_name=name, extra_files=(), external_path=external_path)
    _copy(store, source, store.file_path(key.partition, key.bucket, copied), FileRole.DATA)
    return copied


def _copy(store: TableStore, source: str, target: str, role: FileRole) -> None:
    """Copy a file of a snapshot, which may expire. Raises: MissingFileError, DirectoryGoneError."""
    try:
        copy_file(store.io, source, target)
    except DirectoryGoneError:
        raise
    except FileNotFoundError as error:
        raise missing_file(source, role) from error


def _copy_hash_index(store: TableStore, wanted: Snapshot, message: CommitMessage) -> tuple[IndexManifestEntry, ...]:
    """Copy the hash index of a bucket for this commit."""
    copies = []
    for entry in bucket_index(store, wanted):
        if (entry.partition, entry.bucket) == (message.partition, message.bucket):
            name = f"index-{store.names.uuid()}-0"
            _copy(store, store.index_path(entry), store.paths.index(name), FileRole.INDEX)
            copies.append(replace(entry, file_name=name, external_path=None))
    return tuple(copies)
