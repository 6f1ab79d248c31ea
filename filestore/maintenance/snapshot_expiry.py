"""Snapshot expiry: which snapshots go, and with them which files.

``expiry_end`` decides, ``plan_step`` finds the files of one snapshot, ``expire_snapshots`` deletes. Snapshots go one
after the other, oldest first, and each is found by what it refers to until its last file is gone: so an expiry that
dies is finished by the next one, and several processes may expire at once. The newest snapshot is never touched.

Before anything goes, the hint EARLIEST claims the snapshots that will: whoever tags one of them sees that it is too
late, whoever tagged one before is seen here. Source: paimon-format.md section 7.3 (Paimon ExpireSnapshotsImpl,
SnapshotDeletion); FL-101 to FL-104; TAG-54 to TAG-57.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from filestore.commit.expired_commits import ExpiredCommits
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
from filestore.refs.live_references import DecidingReferences, other_references
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long snapshots stay. The newest one always does."""

    min_count: int  # so many stay, however old
    max_count: int  # no more than so many stay, however young
    age_ms: int  # until then they stay, between these numbers
    limit: int  # at most so many go at once

    def __post_init__(self) -> None:
        if not 1 <= self.min_count <= self.max_count:
            raise InvalidInputError(
                f"snapshots cannot be kept: retain_min={self.min_count} retain_max={self.max_count} "
                "fix=keep at least 1, and at most no fewer than at least"
            )

    @classmethod
    def of(cls, options: TableOptions) -> "Retention":
        """What the options say; a changelog lives as long as its snapshot, so the longer of both lives counts."""
        least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
        return cls(
            min_count=max(least, options.changelog_num_retained_min or 0),
            max_count=max(most, options.changelog_num_retained_max or 0),
            age_ms=max(options.snapshot_time_retained_ms, options.changelog_time_retained_ms or 0),
            limit=options.snapshot_expire_limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryStep:
    """A snapshot that goes, and the files that go with it."""

    snapshot: Snapshot
    data: tuple[FileSize, ...]
    changelog: tuple[FileSize, ...]
    metadata: MetadataFiles

    @property
    def size_bytes(self) -> int:
        """Of data and changelog files."""
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
    """The first snapshot that stays.

    A snapshot is as old as the next one is: until then it was what readers saw.

    Args:
        earliest: the oldest snapshot there is.
        latest: the newest.
        retention: how many stay.
        before_ms: snapshots that were replaced before this time are old enough.
        held_from: somebody needs this snapshot and all after it.
        time_ms_of: when a snapshot was committed.
    """
    end = min(latest - retention.min_count + 1, earliest + retention.limit)
    if held_from is not None:
        end = min(end, held_from)
    first_by_count = latest - retention.max_count + 1
    stays = earliest
    while stays < end and (stays < first_by_count or time_ms_of(stays + 1) < before_ms):
        stays += 1
    return stays


def expire_snapshots(
    store: TableStore, retention: Retention, *, before_ms: int | None = None, dry_run: bool = False
) -> Iterator[ExpiryStep]:
    """Delete old snapshots of a branch, and the files that nothing else uses.

    Args:
        store: whose; its branch counts.
        retention: what stays.
        before_ms: epoch milliseconds: instead of ``retention.age_ms``, what was replaced before this time is old.
        dry_run: delete nothing.

    Yields:
        Each snapshot, oldest first, after it is gone.

    Raises:
        CorruptDataError: a tag, or another root, refers to files that are missing, so what it uses is not known.
        UnavailableError: the file system refused; run it again.
    """
    span = _span(store, retention, before_ms)
    if not span:
        return
    if not dry_run:
        store.snapshots.claim_up_to(span.stop)
        if keeps_snapshots(store.io, store.paths):
            return  # whoever copies them looks for the claim after saying so, so one of both gives way
    roots = DecidingReferences(other_references(store), branch=store.paths.branch)
    steps = list(_candidates(store, span))
    if not dry_run:
        following = store.snapshots.find(span.stop)
        ExpiredCommits(store.io, store.paths).note((step.snapshot for step in steps), following=following)
    references = FileReferences(store, partitions={file.partition for step in steps for file in step.data})
    for step in steps:
        spared = _spared(step, roots, references)
        if not dry_run:
            _delete(store, spared)
        yield spared


def _span(store: TableStore, retention: Retention, before_ms: int | None) -> range:
    """The snapshots that go."""
    expires_ms = store.options.consumer_expiration_time_ms
    if expires_ms is not None:
        store.consumers.expire(expires_ms)
    earliest, latest = store.snapshots.oldest_left(), store.snapshots.latest()
    if earliest is None or latest is None:
        return range(0)
    holds = [each for each in (store.consumers.least_next_snapshot(), _offsets_at(store, latest)) if each is not None]
    stays = expiry_end(
        earliest=earliest,
        latest=latest.id,
        retention=retention,
        before_ms=store.clock.now_ms() - retention.age_ms if before_ms is None else before_ms,
        held_from=min(holds, default=None),
        time_ms_of=lambda each: _time_ms(store, each),
    )
    # what an earlier expiry has claimed goes, whatever has changed since: part of its files may be gone
    return range(earliest, max(stays, min(store.snapshots.claimed_up_to(), latest.id)))


def _time_ms(store: TableStore, snapshot_id: int) -> int:
    snapshot = store.snapshots.find(snapshot_id)
    return 0 if snapshot is None else snapshot.time_ms  # gone meanwhile, so it was old enough


def _offsets_at(store: TableStore, latest: Snapshot) -> int | None:
    """The newest snapshot that knows the log's offsets, when the latest does not: without them the log has no start."""
    snapshot: Snapshot | None = latest
    if not store.has_log:
        return None
    while snapshot is not None and not snapshot.log_offsets:
        snapshot = store.snapshots.find(snapshot.id - 1)
    return None if snapshot is None else snapshot.id


@dataclass(frozen=True, slots=True)
class _Known:
    """A snapshot and its metadata, which are looked at twice: as what follows, and as what goes."""

    snapshot: Snapshot
    metadata: MetadataFiles
    removed: tuple[FileSize, ...] = ()  # the data files that its commit took away; of the first one not asked for


def _candidates(store: TableStore, span: range) -> Iterator[ExpiryStep]:
    """What each snapshot and those before it alone use; those that another process has deleted are left out."""
    known: _Known | None = None
    for snapshot_id in span:
        if known is None or known.snapshot.id != snapshot_id:
            snapshot = store.snapshots.find(snapshot_id)
            if snapshot is None:
                continue
            known = _Known(snapshot, metadata_files(store, snapshot, is_partial=True))
        following = _following(store, snapshot_id)
        if following is not None:
            own, kept = known.metadata, following.metadata.all
            yield ExpiryStep(
                snapshot=known.snapshot,
                data=following.removed,
                changelog=tuple(changelog_files(store, known.snapshot)),
                metadata=MetadataFiles(leaves=own.leaves - kept, lists=own.lists - kept),
            )
        known = following


def _following(store: TableStore, snapshot_id: int) -> _Known | None:
    """The snapshot after one that goes, whole; None: another process has deleted that one."""
    try:
        following = store.snapshots.read(snapshot_id + 1)
        return _Known(following, metadata_files(store, following), tuple(removed_files(store, following)))
    except FileNotFoundError as error:
        # the next snapshot can only be incomplete when another process is at it, and is done with this one
        if not store.snapshots.exists(snapshot_id):
            return None
        raise CorruptDataError(
            f"a file of the table is missing, so its snapshots cannot expire: table={store.name} "
            f"snapshot={snapshot_id + 1} missing={error.filename or error}"
        ) from error


def _spared(step: ExpiryStep, roots: DecidingReferences, references: FileReferences) -> ExpiryStep:
    asked = roots.about(step.snapshot.id, is_last=True)
    data = references.data(asked) if step.data or step.changelog else set()
    metadata = references.metadata(asked)
    return replace(
        step,
        data=tuple(each for each in step.data if each.path not in data),
        changelog=tuple(each for each in step.changelog if each.path not in data),
        metadata=MetadataFiles(leaves=step.metadata.leaves - metadata, lists=step.metadata.lists - metadata),
    )


def _delete(store: TableStore, step: ExpiryStep) -> None:
    files = [each.path for each in (*step.data, *step.changelog)]
    for path in (*files, *sorted(step.metadata.leaves), *sorted(step.metadata.lists)):
        store.io.delete(path)
    if store.options.snapshot_clean_empty_directories:
        for directory in sorted({path.rpartition("/")[0] for path in files}):
            _delete_empty(store, directory)
    store.io.delete(store.paths.snapshot(step.snapshot.id))


def _delete_empty(store: TableStore, directory: str) -> None:
    """A bucket's directory, then those of its partition, as long as nothing is in them."""
    while directory.startswith(f"{store.paths.root}/") and store.io.delete_empty_directory(directory):
        directory = directory.rpartition("/")[0]
