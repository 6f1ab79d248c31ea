"""Snapshot expiry: deletes old snapshots and the files that only they use.

``expiry_end`` decides which, ``expire_snapshots`` deletes them. Snapshots are deleted one by one,
oldest first, and each remains until all its files are deleted: so an interrupted expiry
is completed by the next one, and several processes may expire concurrently. The newest snapshot is never deleted.

Before any deletion, a claim is written: tagging one of the snapshots fails afterwards, and tags created before are seen
here. Source: Paimon ExpireSnapshotsImpl, SnapshotDeletion.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.commit.expired_commits import ExpiredCommits, expired_commits_directory
from filestore.layout.branch_state import keeps_snapshots
from filestore.options.table_options import TableOptions
from filestore.refs.file_references import (
    FileReferences,
    FileSize,
    MetadataFiles,
    changelog_files,
    metadata_files,
    removed_files,
)
from filestore.refs.live_references import DecidingReferences, LiveReference, other_references
from filestore.snapshot.commit_times import CommitTimes
from filestore.snapshot.snapshot import Snapshot, SnapshotRef, with_befores
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many snapshots to keep and how long. The newest one is always kept."""

    min_count: int  # at least this many are kept, whatever their age
    max_count: int  # at most this many are kept, whatever their age
    age_ms: int  # minimum age of deleted ones, between these counts
    limit: int  # maximum deletions at once

    def __post_init__(self) -> None:
        if not 1 <= self.min_count <= self.max_count:
            raise InvalidInputError(
                f"invalid snapshot retention: retain_min={self.min_count} retain_max={self.max_count} "
                "fix=set retain_min to 1 or more, and retain_max not below it"
            )

    @classmethod
    def of(cls, options: TableOptions) -> "Retention":
        """The retention of a table's options; changelogs live as long as their snapshots, so the longer one applies."""
        least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
        return cls(
            min_count=max(least, options.changelog_num_retained_min or 0),
            max_count=max(most, options.changelog_num_retained_max or 0),
            age_ms=max(options.snapshot_time_retained_ms, options.changelog_time_retained_ms or 0),
            limit=options.snapshot_expire_limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryStep:
    """A snapshot to delete with its files."""

    snapshot: Snapshot
    data: tuple[FileSize, ...]
    changelog: tuple[FileSize, ...]
    metadata: MetadataFiles

    @property
    def size_bytes(self) -> int:
        """Total size of data and changelog files."""
        return sum(each.size_bytes for each in (*self.data, *self.changelog))


def expiry_end(
    *,
    earliest: int,
    latest: int,
    retention: Retention,
    before_ms: int,
    held_from: int | None,
    time_ms_of: Callable[[int], int],
) -> int:
    """The id of the first snapshot to keep.

    The age of a snapshot is the age of its successor: until then it was the current one.

    Args:
        earliest: id of the oldest snapshot.
        latest: id of the newest snapshot.
        retention: what to keep.
        before_ms: snapshots with a successor committed before this time may be deleted.
        held_from: this snapshot and all after it are needed.
        time_ms_of: commit time by snapshot id.
    """
    end = min(latest - retention.min_count + 1, earliest + retention.limit)
    if held_from is not None:
        end = min(end, held_from)
    first_by_count = latest - retention.max_count + 1
    first_kept = earliest
    while first_kept < end and (first_kept < first_by_count or time_ms_of(first_kept + 1) < before_ms):
        first_kept += 1
    return first_kept


def expire_snapshots(
    store: TableStore, retention: Retention, *, before_ms: int | None = None, dry_run: bool = False
) -> Iterator[ExpiryStep]:
    """Delete old snapshots of a branch, and the files that nothing else uses.

    Args:
        store: the table, on the branch to expire.
        retention: what to keep.
        before_ms: epoch milliseconds; replaces ``retention.age_ms``, see ``expiry_end``.
        dry_run: delete nothing.

    Yields:
        Each snapshot, oldest first, after its deletion.

    Raises:
        CorruptDataError: a tag or another live reference has missing files, so the files it uses are unknown.
        UnavailableError: a file system error; run it again.
    """
    span = _span(store, retention, before_ms)
    if not span:
        return
    store = store.as_found
    claimed: SnapshotRef | None = None
    commits, notes = ExpiredCommits(store), dict[str, bytes]()
    if not dry_run:
        claimed = store.snapshots.claim_up_to(span.stop)
        if not store.is_as_opened():
            _withdraw(store, claimed, commits, notes)
            return
        first_kept = store.snapshots.find(span.stop)
        if keeps_snapshots(store.io, store.paths) or first_kept is None:
            return  # operations that copy snapshots check for the claim after announcing themselves, so one side yields
        if store.snapshots.removed.has(first_kept.identity):
            return  # by a rollback, which does so as well
        oldest = store.snapshots.oldest_left()  # one that ended meanwhile may have put older ones before these
        span = range(span.start if oldest is None else min(oldest, span.start), span.stop)
    remaining = _deciding(store, other_references(store))
    steps = list(_candidates(store, span))
    if not dry_run:
        following = store.snapshots.find(span.stop)
        notes = commits.note((step.snapshot for step in steps), following=following)
    if not dry_run and not store.is_as_opened():
        _withdraw(store, claimed, commits, notes)
        return  # some of what was found may be of a table that was made again under the name
    partitions = {file.partition for step in steps for file in step.data}
    references = FileReferences(store, partitions=partitions)
    for step in steps:
        spared = _spared(step, remaining, references)
        while (lost := references.lost) and not lost <= {*(now := other_references(store))}:
            remaining = _deciding(store, now)
            references = FileReferences(store, partitions=partitions)
            spared = _spared(step, remaining, references)
        if not dry_run:
            _delete(store, spared)
        yield spared
    if not dry_run and (store.snapshots.hints()[1] or span.stop) < span.stop:  # set by a writer that was paused
        store.snapshots.repair_latest_hint()


def _withdraw(
    store: TableStore, claimed: SnapshotRef | None, commits: ExpiredCommits, notes: Mapping[str, bytes]
) -> None:
    """Behind a pause in which the table or branch was dropped: what was written is in no table, or in another one."""
    paths = store.paths
    commits.withdraw(notes)
    if claimed is not None:
        store.snapshots.withdraw_claim(claimed)
    for directory in (expired_commits_directory(paths), paths.expiry_dir, paths.snapshot_dir):
        store.io.delete_empty_directory(directory)
    _delete_empty(store, paths.branch_root)
    store.io.delete_empty_directory(paths.root)


def _span(store: TableStore, retention: Retention, before_ms: int | None) -> range:
    """The snapshot ids to delete."""
    expires_ms = store.options.consumer_expiration_time_ms
    if expires_ms is not None:
        store.consumers.expire(expires_ms)
    earliest, latest = store.snapshots.oldest_left(), store.snapshots.latest()
    if earliest is None or latest is None:
        return range(0)
    holds = [each for each in (store.consumers.least_next_snapshot(), _offsets_at(store, latest)) if each is not None]
    now_ms = store.clock.now_ms()
    times = CommitTimes(store.snapshots, latest, now_ms)
    first_kept = expiry_end(
        earliest=earliest,
        latest=latest.id,
        retention=retention,
        before_ms=now_ms - retention.age_ms if before_ms is None else before_ms,
        held_from=min(holds, default=None),
        time_ms_of=lambda each: _time_ms(store, times, each),
    )
    # snapshots claimed by an earlier expiry must be deleted in any case: some of their files may be deleted already
    return range(earliest, max(first_kept, min(store.snapshots.claimed_up_to(), latest.id)))


def _time_ms(store: TableStore, times: CommitTimes, snapshot_id: int) -> int:
    snapshot = store.snapshots.find(snapshot_id)
    if snapshot is None:
        return 0  # deleted concurrently, so it was old enough
    try:
        return times.age_time_of(snapshot, lambda: store.io.modified_ms(store.paths.snapshot(snapshot_id)))
    except FileNotFoundError:
        return 0


def _offsets_at(store: TableStore, latest: Snapshot) -> int | None:
    """The newest snapshot with log offsets, without which the log has no start; None for tables without a log."""
    if not store.has_log:
        return None
    generation = store.options.log_generation
    for snapshot, look_up in with_befores(store.snapshots.back_from(latest)):
        before = look_up() if snapshot.is_external else None
        if snapshot.log_offsets and snapshot.is_of_log(generation, before):
            return snapshot.id
    return None


@dataclass(frozen=True, slots=True)
class _Known:
    """A snapshot and its metadata, used twice: as successor, then as snapshot to delete."""

    snapshot: Snapshot
    metadata: MetadataFiles
    removed: tuple[FileSize, ...] = ()  # the data files removed by its commit; empty for the first one


def _candidates(store: TableStore, span: range) -> Iterator[ExpiryStep]:
    """The files used only by each snapshot and those before it; skips snapshots deleted by another process."""
    known: _Known | None = None
    for snapshot_id in span:
        if known is None or known.snapshot.id != snapshot_id:
            snapshot = store.snapshots.find(snapshot_id)
            if snapshot is None:
                continue
            known = _Known(snapshot, metadata_files(store, snapshot, is_partial=True))
        following = _following(store, snapshot_id)
        if following is not None and following.snapshot.parent in (None, known.snapshot.identity):  # else it is a fork
            own, kept = known.metadata, following.metadata.all
            yield ExpiryStep(
                snapshot=known.snapshot,
                data=following.removed,
                changelog=tuple(changelog_files(store, known.snapshot)),
                metadata=MetadataFiles(leaves=own.leaves - kept, lists=own.lists - kept),
            )
        known = following


def _following(store: TableStore, snapshot_id: int) -> _Known | None:
    """The complete successor of a snapshot to delete; None: another process has deleted that snapshot."""
    try:
        following = store.snapshots.read(snapshot_id + 1)
        return _Known(following, metadata_files(store, following), tuple(removed_files(store, following)))
    except FileNotFoundError as error:
        # the successor can only be incomplete if another process is deleting it, after this one
        if not store.snapshots.exists(snapshot_id):
            return None
        raise CorruptDataError(
            f"a file of the table is missing, so its snapshots cannot expire: table={store.name} "
            f"snapshot={snapshot_id + 1} missing={error.filename or error} fix='fluvial verify {store.name}'"
        ) from error


def _deciding(store: TableStore, references: Sequence[LiveReference]) -> DecidingReferences:
    return DecidingReferences(references, branch=store.paths.branch, removed=store.snapshots.removed.identities())


def _spared(step: ExpiryStep, remaining: DecidingReferences, references: FileReferences) -> ExpiryStep:
    deciders = remaining.about(step.snapshot.id, is_last=True)
    used = references.used_about(deciders, with_data=bool(step.data or step.changelog))
    return replace(
        step,
        data=tuple(each for each in step.data if each.path not in used),
        changelog=tuple(each for each in step.changelog if each.path not in used),
        metadata=MetadataFiles(leaves=step.metadata.leaves - used, lists=step.metadata.lists - used),
    )


def _delete(store: TableStore, step: ExpiryStep) -> None:
    files = [each.path for each in (*step.data, *step.changelog)]
    for path in (*files, *sorted(step.metadata.leaves), *sorted(step.metadata.lists)):
        store.io.delete(path)
    if store.options.snapshot_clean_empty_directories:
        for directory in sorted({path.rpartition("/")[0] for path in files}):
            _delete_empty(store, directory)
    store.delete_snapshot(step.snapshot)


def _delete_empty(store: TableStore, directory: str) -> None:
    """Delete a bucket's directory and its parents up to the table's, as long as they are empty."""
    while directory.startswith(f"{store.paths.root}/") and store.io.delete_empty_directory(directory):
        directory = directory.rpartition("/")[0]
