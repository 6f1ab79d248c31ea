"""Compares the buckets of two snapshots: finds the files that can differ between them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.scan.snapshot_files import deletion_indexes, live_files, live_files_of_partitions
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.levels import sections


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketState:
    """The files of one bucket in one snapshot that are relevant for a difference."""

    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    deletion_vectors: tuple[IndexManifestEntry, ...] = ()  # of these files only


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingBuckets:
    """Buckets to compare together: a single one, or all of a rescaled partition."""

    partition: bytes
    before: tuple[BucketState, ...]
    after: tuple[BucketState, ...]


def differing_buckets(
    store: TableStore,
    before: Snapshot | None,
    after: Snapshot,
    *,
    partitions: Collection[bytes] | None,
    least_level: int = 0,
    shows_same: Callable[[DataFileMeta], bool] | None = None,
) -> Iterator[DifferingBuckets]:
    """The buckets that may differ between two snapshots, by partition and bucket.

    Args:
        store: the table.
        before: None is the empty table.
        after: the other snapshot.
        partitions: partitions to compare; None is all.
        least_level: files of lower levels are ignored.
        shows_same: of two states that are shown in other columns than their own, whether a file that both have gives
            equal rows. Rows without a key are equal wherever they are then. None: all files do.
    """
    old = _states(store, before, partitions, least_level)
    new = _states(store, after, partitions, least_level)
    for partition in sorted({*old, *new}):
        for one, two in _groups(
            old.get(partition, {}), new.get(partition, {}), moves=store.has_key or shows_same is not None
        ):
            removed, added = _differing(store, one, two, shows_same)
            if removed or added:
                yield DifferingBuckets(partition=partition, before=removed, after=added)


def states_under(
    store: TableStore, before: Snapshot | None, added: Mapping[tuple[bytes, int], Collection[DataFileMeta]]
) -> Mapping[tuple[bytes, int], BucketState]:
    """The files of a snapshot in the key ranges of files that are added to it.

    Args:
        store: a table with a primary key.
        before: None is the empty table.
        added: by partition and bucket.

    Returns:
        By partition and bucket, without those where nothing is under the files.
    """
    states = _states(store, before, {partition for partition, _ in added}, 0)
    found: dict[tuple[bytes, int], BucketState] = {}
    for (partition, bucket), files in added.items():
        state = states.get(partition, {}).get(bucket)
        if state is None:
            continue
        new = {file.file_name for file in files}
        under: set[str] = set()
        for runs in sections(store.sorted_file(file) for file in (*state.files, *files)):
            names = {file.file_name for run in runs for file in run.files}
            under |= names - new if names & new else set()
        for each in states_of_files([state], under):
            found[partition, bucket] = each
    return found


_States = Mapping[int, BucketState]
_Group = tuple[list[BucketState], list[BucketState]]


def _states(
    store: TableStore, snapshot: Snapshot | None, partitions: Collection[bytes] | None, least_level: int
) -> Mapping[bytes, _States]:
    """The buckets of a snapshot, by partition and bucket number."""
    if partitions is None:
        entries = live_files(store, snapshot)
    else:
        entries = live_files_of_partitions(store, snapshot, partitions)
    indexes = deletion_indexes(store, snapshot)
    by_bucket: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        if entry.file.level >= least_level and entry.bucket >= 0:  # else its rows are not visible yet
            by_bucket[entry.partition, entry.bucket].append(entry)
    states: defaultdict[bytes, dict[int, BucketState]] = defaultdict(dict)
    for (partition, bucket), group in by_bucket.items():
        files = tuple(entry.file for entry in group)
        states[partition][bucket] = BucketState(
            bucket=bucket,
            total_buckets=group[0].total_buckets,
            files=files,
            deletion_vectors=vectors_of(files, indexes.get((partition, bucket), ())),
        )
    return states


def _groups(old: _States, new: _States, *, moves: bool) -> Iterator[_Group]:
    """The buckets to compare together: one by one, or all if rows may have moved between buckets."""
    totals = {state.total_buckets for state in (*old.values(), *new.values())}
    if moves and len(totals) > 1:
        yield [old[bucket] for bucket in sorted(old)], [new[bucket] for bucket in sorted(new)]
        return
    for bucket in sorted({*old, *new}):
        yield [old[bucket]] if bucket in old else [], [new[bucket]] if bucket in new else []


def _differing(
    store: TableStore,
    old: Sequence[BucketState],
    new: Sequence[BucketState],
    shows_same: Callable[[DataFileMeta], bool] | None,
) -> tuple[tuple[BucketState, ...], tuple[BucketState, ...]]:
    """The states without files that cannot differ.

    With a primary key, these are the files of key ranges where both sides have the same files, and so the same
    rows.
    """
    one, two = _versions(old), _versions(new)
    files = {file.file_name: file for state in (*old, *new) for file in state.files}
    different = {name for name in files if one.get(name) != two.get(name)}
    if shows_same is not None:
        different |= {name for name, file in files.items() if not shows_same(file)}
    if store.has_key and different:
        for runs in sections(store.sorted_file(file) for file in files.values()):
            names = {file.file_name for run in runs for file in run.files}
            if names & different:
                different |= names
    return states_of_files(old, different), states_of_files(new, different)


def _versions(states: Sequence[BucketState]) -> Mapping[str, object]:
    """The version of each file's rows by name: the location of its deletion vector, or that it has none."""
    versions: dict[str, object] = {file.file_name: "whole" for state in states for file in state.files}
    for state in states:
        for index in state.deletion_vectors:
            for vector in index.deletion_vectors or ():
                versions[vector.data_file_name] = (index.file_name, vector)
    return versions


def states_of_files(states: Sequence[BucketState], names: Collection[str]) -> tuple[BucketState, ...]:
    """The states, reduced to files with these names; without empty ones."""
    kept = []
    for state in states:
        files = tuple(file for file in state.files if file.file_name in names)
        if files:
            kept.append(replace(state, files=files, deletion_vectors=vectors_of(files, state.deletion_vectors)))
    return tuple(kept)
