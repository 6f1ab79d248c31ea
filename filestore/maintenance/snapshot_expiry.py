"""Snapshot expiry: deletes old snapshots and the files that only they use.

``expiry_end`` decides which, ``expire_snapshots`` deletes them. Snapshots are deleted one by one,
oldest first, and each remains until all its files are deleted: so an interrupted expiry
is completed by the next one, and several processes may expire concurrently. The newest snapshot is never deleted.

Before any deletion, a claim is written: tagging one of the snapshots fails afterwards, and tags created before are seen
here. Source: Paimon ExpireSnapshotsImpl, SnapshotDeletion.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from filestore.commit.expired_commits import ExpiredCommits, expired_commits_directory
from filestore.layout.branch_state import keeps_snapshots
from filestore.maintenance.changelog_expiry import delete_changelogs, keep_changelogs
from filestore.refs.deciding import DecidingReferences
from filestore.refs.file_references import (
    FileReferences,
    FileSize,
    MetadataFiles,
    changelog_files,
    data_files,
    metadata_files,
    removed_files,
)
from filestore.refs.live_references import (
    LiveReference,
    ReferenceKind,
    changelog_reference,
    other_references,
    snapshot_references,
)
from filestore.snapshot.commit_times import CommitTimes
from filestore.snapshot.retention import Retention, expiry_end
from filestore.snapshot.snapshot import Snapshot, SnapshotRef, with_befores
from filestore.snapshot.snapshot_line import SnapshotLine
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryStep:
    """A snapshot to delete with its files."""

    snapshot: Snapshot
    data: tuple[FileSize, ...]
    changelog: tuple[FileSize, ...]
    metadata: MetadataFiles
    left: tuple[FileSize, ...] = ()  # data that an earlier expiry left, until it is decided about

    @property
    def size_bytes(self) -> int:
        """Total size of data and changelog files."""
        return sum(each.size_bytes for each in (*self.data, *self.changelog))

    @property
    def paths(self) -> list[str]:
        """All files, each before those by which it is found."""
        files = [each.path for each in (*self.data, *self.changelog)]
        return [*files, *sorted(self.metadata.leaves), *sorted(self.metadata.lists)]


def expire_snapshots(
    store: TableStore,
    retention: Retention,
    *,
    before_ms: int | None = None,
    keeps_changelogs: bool = True,
    dry_run: bool = False,
) -> Iterator[ExpiryStep]:
    """Delete old snapshots of a branch, and the files that nothing else uses.

    Args:
        store: the table, on the branch to expire.
        retention: what to keep.
        before_ms: epoch milliseconds; replaces ``retention.age_ms``, see ``expiry_end``.
        keeps_changelogs: whether changes stay as long as the options ``changelog.*`` say; else they go too.
        dry_run: delete nothing.

    Yields:
        Each snapshot, oldest first, after its deletion.

    Raises:
        CorruptDataError: a tag or another live reference has missing files, so the files it uses are unknown.
        UnavailableError: a file system error; run it again.
    """
    found = _proved(store, retention, before_ms, keeps_changelogs=keeps_changelogs)
    planned = None if found is None else store.snapshots.find(found.end_id)
    if found is None or planned is None:
        return
    seen, changes_from = store.as_found, found.changes_from
    basis = _basis(seen, planned, found)
    try:  # what is in use and cannot be read is an error before anything says that snapshots are gone
        expiry = _Expiry(seen, planned, found)
        steps: Iterable[ExpiryStep] = [*expiry.steps()]
    except _RolledBackError:
        return  # nothing is claimed yet: what is left expires the next time
    if dry_run:
        yield from steps
        return
    members = seen.snapshots.back_from(planned, is_exact=True)
    changes = [each for each in members if changes_from <= each.id < planned.id]
    take_back = keep_changelogs(seen, changes[::-1])
    first_kept = _claimed(store, planned.id)
    if not store.is_as_opened():
        take_back()
        return
    if first_kept is None:
        return
    if _basis(seen, first_kept, found) != basis:  # others made tags or snapshots before the claim
        expiry = _Expiry(seen, first_kept, found)
        steps = expiry.steps()
    commits = ExpiredCommits(seen)
    notes = commits.note(_before(seen, first_kept), following=first_kept)
    if not seen.is_as_opened():
        commits.withdraw(notes)
        _withdraw(seen, first_kept.ref)
        return  # some of what was found may be of a table that was made again under the name
    if found.has_hole:
        deque(delete_changelogs(seen, before=changes_from), maxlen=0)
    for step in steps:
        _delete(seen, step)
        yield step
    for paths in expiry.released():
        _delete_files(seen, paths)
    if (seen.snapshots.hints()[1] or first_kept.id) < first_kept.id:  # set by a writer that was paused
        seen.snapshots.repair_latest_hint()


def expiry_of_all(store: TableStore, is_gone: Callable[[LiveReference], bool]) -> list[ExpiryStep]:
    """The files that the expiry of every snapshot of a branch would delete, after a commit that keeps none of them.

    Args:
        store: the table, on the branch.
        is_gone: whether a tag, savepoint or changelog will be deleted before the expiry.

    Raises:
        CorruptDataError: a live reference has missing files, so the files it uses are unknown.
    """
    latest = store.snapshots.latest()
    if latest is None:
        return []
    members = list(store.snapshots.back_from(latest))[::-1]
    metadata = metadata_files(store, latest)
    last = ExpiryStep(
        snapshot=latest,
        data=tuple(data_files(store, latest)),
        changelog=tuple(changelog_files(store, latest)),
        metadata=MetadataFiles(leaves=metadata.leaves, lists=metadata.lists),
    )
    steps = [*_candidates(store, members), last]
    left = [each for each in other_references(store) if not is_gone(each)]
    remaining = DecidingReferences.of(store, left, line=store.snapshots.line())
    references = FileReferences(store, partitions={file.partition for step in steps for file in step.data})
    return [_spared(step, remaining, references) for step in steps]


def _before(store: TableStore, first_kept: Snapshot) -> list[Snapshot]:
    """The snapshots that expire, oldest first."""
    return list(store.snapshots.back_from(first_kept, is_exact=True))[:0:-1]


def _members(store: TableStore, first_kept: Snapshot) -> list[Snapshot]:
    """The expiring snapshots before the first one that stays, oldest first; other engines may have added older ones."""
    return [*_before(store, first_kept), first_kept]


def _basis(store: TableStore, first_kept: Snapshot, found: "_Ends") -> tuple[object, ...]:
    """All that an ``_Expiry`` depends on but the contents of files, which never change."""
    members = _members(store, first_kept)
    return [each.ref for each in members], _distinct(_remaining(store, members, found))


def _distinct(references: Iterable[LiveReference]) -> set[object]:
    """The references by all that distinguishes them, also those of two snapshots that had one number."""
    return {(each, each.snapshot and each.snapshot.ref) for each in references}


class _Expiry:
    """One expiry: the snapshots before the first one that stays, with the files that nothing else uses."""

    def __init__(self, store: TableStore, first_kept: Snapshot, found: "_Ends") -> None:
        self._store, self._found = store, found
        self._members = _members(store, first_kept)
        self._candidates = list(_candidates(store, self._members))
        self._partitions = {file.partition for step in self._candidates for file in (*step.data, *step.left)}
        self._deleted: set[str] = set()
        self._asked: set[object] = set()  # every reference for which a file may have been spared
        self._look()

    def steps(self) -> Iterator[ExpiryStep]:
        """Each snapshot, oldest first, with its files: what the references use is found when it is asked for."""
        for step in self._candidates:
            spared = self._spared(step)
            self._deleted |= {*spared.paths}
            yield spared

    def released(self) -> Iterator[list[str]]:
        """Files that were spared for references which have ended since, behind the deletion of the snapshots.

        Who let go of such a reference may have seen one of the snapshots still there, and left the files to it.
        """
        while not self._asked <= _distinct(_remaining(self._store, self._members, self._found)):
            self._asked.clear()
            self._look()
            for step in self._candidates:
                spared = self._spared(step)
                yield [path for path in spared.paths if path not in self._deleted]
                self._deleted |= {*spared.paths}

    def _look(self) -> None:
        """The references as they are now."""
        remaining = _remaining(self._store, self._members, self._found)
        self._asked |= _distinct(remaining)
        self._deciding = DecidingReferences.of(self._store, remaining, line=self._found.line)
        self._references = FileReferences(self._store, partitions=self._partitions)

    def _spared(self, step: ExpiryStep) -> ExpiryStep:
        while True:
            spared = _spared(step, self._deciding, self._references)
            lost = self._references.lost
            if not lost or lost <= {*_remaining(self._store, self._members, self._found)}:
                return spared
            self._look()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The snapshots that expire."""

    line: SnapshotLine
    oldest_id: int
    end_id: int  # of the first snapshot to keep
    changes_from: int  # the first one whose changes are kept, up to ``end_id``

    @property
    def has_hole(self) -> bool:
        """Whether older changelogs go with the snapshots behind them: nothing before those is to be kept either."""
        return self.changes_from > self.oldest_id


def _proved(
    store: TableStore, retention: Retention, before_ms: int | None, *, keeps_changelogs: bool, looks: int = 2
) -> _Ends | None:
    """The snapshots that expire, up to one on the line of history; None: none.

    Raises: CorruptDataError: there are gaps or forks, so what would be deleted may be in use.
    """
    line = store.snapshots.line()
    oldest, end_id, changes_from = _ends(store, line, retention, before_ms, keeps_changelogs=keeps_changelogs)
    if oldest is None or oldest.id >= end_id:
        return None
    if line.has(end_id) and line.has_no_gap(oldest.id):
        return _Ends(line=line, oldest_id=oldest.id, end_id=end_id, changes_from=changes_from)
    if store.snapshots.find_ref(oldest.ref) is None:
        return None  # others expire it
    if looks > 1:  # a rollback may have ended within this one
        return _proved(store, retention, before_ms, keeps_changelogs=keeps_changelogs, looks=looks - 1)
    raise CorruptDataError(
        f"a file of the table is missing, so its snapshots cannot expire: table={store.name} snapshot={end_id} "
        f"oldest={oldest.id} newest={line.newest} cause='there is a gap or a fork between them' "
        f"fix='fluvial verify {store.name}'"
    )


def _claimed(store: TableStore, end_id: int) -> Snapshot | None:
    """The first snapshot to keep, after all earlier ones were claimed; None: another process claims or prevents it."""
    claimed = store.snapshots.claim_up_to(end_id)
    if not store.is_as_opened():
        _withdraw(store, claimed)
        return None
    first_kept = None if claimed is None else store.snapshots.find_ref(claimed)
    if claimed is not None and first_kept is None:
        store.snapshots.withdraw_claim(claimed)  # a rollback took it away; or another expiry, which has claimed more
    if first_kept is None or keeps_snapshots(store.io, store.paths):
        return None  # operations that copy snapshots check for the claim after announcing themselves: one side yields
    return None if store.snapshots.removed.has(first_kept.identity) else first_kept  # by a rollback, which does so too


def _withdraw(store: TableStore, claimed: SnapshotRef | None) -> None:
    """Delete files that were written after the table or branch was dropped: they are in no table, or in another one."""
    paths = store.paths
    if claimed is not None:
        store.snapshots.withdraw_claim(claimed)
    for directory in (expired_commits_directory(paths), paths.expiry_dir, paths.snapshot_dir):
        store.io.delete_empty_directory(directory)
    _delete_empty(store, paths.branch_root)
    store.io.delete_empty_directory(paths.root)


def _ends(
    store: TableStore, line: SnapshotLine, retention: Retention, before_ms: int | None, *, keeps_changelogs: bool
) -> tuple[Snapshot | None, int, int]:
    """The oldest snapshot on the line, also one left by an interrupted expiry, the id of the first to keep.

    The third is the id of the first one whose changes are kept; claimed ones have their changelog already, or none.
    """
    expires_ms = store.options.consumer_expiration_time_ms
    if expires_ms is not None:
        store.consumers.expire(expires_ms)
    first, latest = store.snapshots.find(line.first or 0), store.snapshots.find(line.newest or 0)
    oldest = min(store.snapshots.back_from(first), key=lambda each: each.id, default=None)
    if oldest is None or latest is None:
        return None, 0, 0
    holds = [each for each in (store.consumers.least_next_snapshot(), _offsets_at(store, latest)) if each is not None]
    now_ms = store.clock.now_ms()
    times = CommitTimes(store.snapshots, latest, now_ms)
    first_kept = expiry_end(
        earliest=oldest.id,
        latest=latest.id,
        retention=retention,
        before_ms=now_ms - retention.age_ms if before_ms is None else before_ms,
        held_from=min(holds, default=None),
        time_ms_of=lambda each: _time_ms(store, times, each),
    )
    # snapshots claimed by an earlier expiry must be deleted in any case: some of their files may be deleted already
    end_id = max(first_kept, min(line.first or 0, latest.id))
    of_changes = replace(retention.of_changes(store.options), limit=latest.id)
    if not keeps_changelogs or of_changes == replace(retention, limit=latest.id):
        return oldest, end_id, end_id
    since_ms = now_ms - of_changes.age_ms
    changes_from = expiry_end(
        earliest=oldest.id,
        latest=latest.id,
        retention=of_changes,
        before_ms=since_ms if before_ms is None else min(before_ms, since_ms),
        held_from=end_id,
        time_ms_of=lambda each: _time_ms(store, times, each),
    )
    return oldest, end_id, changes_from


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


def _candidates(store: TableStore, members: Sequence[Snapshot]) -> Iterator[ExpiryStep]:
    """The files used only by each snapshot but the last and those before it; without what another process deleted."""
    known: _Known | None = None
    for snapshot, next_one in pairwise(members):
        if known is None:
            known = _Known(snapshot, metadata_files(store, snapshot, is_partial=True))
        following = _following(store, snapshot, next_one)
        if following is not None:
            own, kept = known.metadata, following.metadata.all
            yield ExpiryStep(
                snapshot=snapshot,
                data=following.removed,
                changelog=tuple(changelog_files(store, snapshot)),
                left=_left(store, snapshot) if snapshot is members[0] else (),
                metadata=MetadataFiles(leaves=own.leaves - kept, lists=own.lists - kept),
            )
        known = following


def _left(store: TableStore, oldest: Snapshot) -> tuple[FileSize, ...]:
    """Files that the oldest snapshot's commit removed; Java keeps them for the changelog of the previous snapshot."""
    if not store.options.keeps_changelogs:
        return ()
    with suppress(FileNotFoundError):  # an interrupted expiry has begun with this one
        return tuple(each for each in removed_files(store, oldest) if store.io.exists(each.path))
    return ()


class _RolledBackError(ConflictError):
    """The snapshot after an expiring one is missing, although the expiring one still exists."""


def _following(store: TableStore, snapshot: Snapshot, following: Snapshot) -> _Known | None:
    """The complete successor of a snapshot to delete; None: another process has deleted that snapshot.

    Raises:
        CorruptDataError: it is there, and one of its files is missing.
    """
    try:
        return _Known(following, metadata_files(store, following), tuple(removed_files(store, following)))
    except FileNotFoundError as error:
        # the successor is incomplete if another process is deleting it: an expiry, after this one, or a rollback
        if store.snapshots.find_ref(snapshot.ref) is None:
            return None
        if store.snapshots.find_ref(following.ref) is None:
            raise _RolledBackError(
                f"a rollback took away what was about to expire: table={store.name} snapshot={following.id} "
                "fix='run it again'"
            ) from error
        raise CorruptDataError(
            f"a file of the table is missing, so its snapshots cannot expire: table={store.name} "
            f"snapshot={following.id} missing={error.filename or error} fix='fluvial verify {store.name}'"
        ) from error


def _remaining(store: TableStore, expiring: Sequence[Snapshot], found: "_Ends") -> list[LiveReference]:
    """The references that stay and may have files of what expires: those of others, forks, and the changelogs of some.

    Args:
        store: the table.
        expiring: oldest first, and the first one that stays.
        found: of which of them a changelog stays; older changelogs go as well.
    """
    own, first_id = snapshot_references(store), expiring[0].id
    newest_id = store.snapshots.latest_id() or 0  # behind the listing: what is newer there is no commit
    kept = [each for each in expiring[:-1] if each.id >= found.changes_from]
    return [
        *(each for each in own if each.snapshot_id < first_id or each.snapshot_id > newest_id),
        *(each for each in other_references(store) if not _goes_too(store, each, found)),
        *(changelog_reference(store, each) for each in kept),
    ]


def _goes_too(store: TableStore, reference: LiveReference, found: "_Ends") -> bool:
    """Whether it is a changelog that would be behind a hole."""
    is_own = reference.kind is ReferenceKind.CHANGELOG and reference.branch == store.paths.branch
    return is_own and reference.snapshot_id < found.changes_from and found.has_hole


def _spared(step: ExpiryStep, remaining: DecidingReferences, references: FileReferences) -> ExpiryStep:
    deciders = remaining.about(step.snapshot.id, is_last=True)
    used = references.used_about(deciders, with_data=bool(step.data or step.changelog))
    left = step.left
    if left:
        used_before = references.used_about(remaining.about(step.snapshot.id - 1, is_last=True))
        left = tuple(each for each in left if each.path not in used_before)
    return replace(
        step,
        data=(*left, *(each for each in step.data if each.path not in used)),
        changelog=tuple(each for each in step.changelog if each.path not in used),
        left=(),
        metadata=MetadataFiles(leaves=step.metadata.leaves - used, lists=step.metadata.lists - used),
    )


def _delete(store: TableStore, step: ExpiryStep) -> None:
    _delete_files(store, step.paths)
    store.delete_snapshot(step.snapshot)


def _delete_files(store: TableStore, paths: Sequence[str]) -> None:
    for path in paths:
        store.delete_file(path)
    if store.options.snapshot_clean_empty_directories:
        of_metadata = {store.paths.manifest_dir, store.paths.index_dir, store.paths.statistics_dir}
        for directory in sorted({path.rpartition("/")[0] for path in paths} - of_metadata):
            _delete_empty(store, directory)


def _delete_empty(store: TableStore, directory: str) -> None:
    """Delete a bucket's directory and its parents up to the table's, as long as they are empty."""
    while store.is_own(directory) and store.io.delete_empty_directory(directory):
        directory = directory.rpartition("/")[0]
