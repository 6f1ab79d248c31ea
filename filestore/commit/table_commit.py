"""Publishing a snapshot: the optimistic loop that makes a set of files visible at once, exactly once.

Nothing is locked. A commit writes its manifests, then creates ``snapshot-<n>`` exclusively: the only atomic point.
The writer that comes second looks at what the first one published, and either follows it or reports a conflict.

==================== ============ ======================================= ==============================================
Commit               Kind         Lost race                               ConflictError when another writer ...
==================== ============ ======================================= ==============================================
commit               APPEND       tried again                             used its sequence numbers, changed the number
                                                                          of buckets, or the rows its log's changes
                                                                          were looked up in
commit_distribution  APPEND       tried again                             as ``commit``, or took the postponed files
commit_compaction    COMPACT      tried again                             took an input, or deleted rows of it
overwrite            OVERWRITE    tried again, replaces what came         never, but for too many lost races
                                  meanwhile in its partitions as well
replace_rows         OVERWRITE    tried again                             rewrote files of the rows, deleted such rows,
                                                                          or used its sequence numbers
replace_files        OVERWRITE or conflict                                committed anything
                     APPEND
merge_manifests      COMPACT      tried again                             never, but for too many lost races
==================== ============ ======================================= ==============================================

A commit deletes its own manifests when it fails. The files of its messages are the caller's: after a ConflictError the
caller deletes them (``discard``) or numbers them again; after an OutcomeUnknownError they stay. Only APPEND and
OVERWRITE look whether (user, identifier) is committed already.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from filestore.commit.committable import BATCH_IDENTIFIER, Committable, StatisticsFile, clear_old_name, discard
from filestore.commit.confirmation import (
    GoneError,
    check_files,
    check_no_fork,
    check_not_removed,
    check_rescaled,
    confirm,
)
from filestore.commit.conflicts import Candidate, discard_changes, find_published, why_not
from filestore.commit.guards import check_not_between, check_safe, check_time, published_buckets
from filestore.commit.history import CommitHistory
from filestore.commit.snapshot_writer import changes_nothing, entries_of, write_snapshot
from filestore.commit.succession import check_is_same_table, remove_strays
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import snapshot_is_gone
from filestore.scan.snapshot_files import live_files
from filestore.schema.validation import check_writable
from filestore.snapshot.snapshot import EMPTY_TABLE, CommitKind, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError
from lsm.retry import LostRaceError, retrying
from lsm.undo import undoing_unless_visible

PartitionTest = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitResult:
    """The result of a commit."""

    snapshot: Snapshot | None  # None: an empty batch commit on a table without snapshots
    already_committed: bool = False  # an earlier attempt, perhaps of another process, had published it

    def __repr__(self) -> str:
        snapshot = self.snapshot
        what = "None" if snapshot is None else f"{snapshot.id}, {snapshot.commit_kind}"
        return f"CommitResult(snapshot={what}{', already_committed=True' if self.already_committed else ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    kind: CommitKind
    committable: Committable
    replaces: PartitionTest | None = None  # OVERWRITE: the partitions whose files go
    recounts: bool = False  # the row count of the newest snapshot is not right any more
    only_after: int | None = None  # the snapshot that must be the newest; 0: none


@dataclass(slots=True)
class _Progress:
    """The files on disk of the attempts of one request."""

    count: int = 0  # attempts that were begun
    scratch: list[str] = field(default_factory=list)  # metadata files that no snapshot refers to
    unknown: Snapshot | None = None  # an attempt that may have become visible
    parent: SnapshotRef = EMPTY_TABLE  # the snapshot that this attempt followed


class TableCommit:
    """Commits of one user, one after the other. Not for use by several threads."""

    def __init__(
        self, store: TableStore, commit_user: str, *, history_start: int = 0, check: Callable[[], object] = lambda: None
    ) -> None:
        """Commit as ``commit_user``.

        Args:
            store: to commit to.
            commit_user: stable for one streaming query (its identifiers rise), fresh for each batch write.
            history_start: no snapshot up to this id is by this user; saves a fresh user the walk through the whole
                history.
            check: called by each attempt once it has read the newest snapshot; what it raises ends the commit.
        """
        check_writable(store.schema)
        store.check_commits()
        self._table = store
        self._commit_user = commit_user
        self._check_writer = check
        self._history = CommitHistory(store, commit_user, start=history_start)
        self._own = EMPTY_TABLE  # the newest commit

    @property
    def commit_user(self) -> str:
        """Who commits."""
        return self._commit_user

    def commit(self, committable: Committable) -> CommitResult:
        """Make new files visible. A committed (user, identifier) is not committed again.

        Raises:
            ConflictError: another writer used its sequence numbers, changed the number of buckets, or changed rows
                after the changes in the log were looked up: write the rows again.
            OutcomeUnknownError: it may be visible: keep every file and call again with the same committable.
            UnavailableError: nothing is visible: call again later.
        """
        if any(each.compact_before or each.compact_after for each in committable.messages):
            raise InvalidInputError("compacted files in a data commit: use commit_compaction for them")
        return self._run(_Request(kind=CommitKind.APPEND, committable=committable))

    def commit_compaction(self, messages: Sequence[CommitMessage], *, base: SnapshotRef) -> CommitResult:
        """Replace compacted files.

        Args:
            messages: what was read and what was written instead.
            base: the snapshot in which the compaction found its inputs.

        Raises:
            ConflictError: another writer removed an input: abandon the compaction, see ``discard``.
            OutcomeUnknownError: it may be visible: keep every file and call again.
            UnavailableError: nothing is visible: call again later.
        """
        if any(each.new_files for each in messages):
            raise InvalidInputError("new files in a compaction commit: use commit for them")
        committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages, base=base)
        return self._run(_Request(kind=CommitKind.COMPACT, committable=committable))

    def commit_distribution(self, messages: Sequence[CommitMessage], *, base: SnapshotRef) -> CommitResult:
        """Move postponed rows to their buckets: streams get the rows of the new files now.

        Args:
            messages: ``compact_before`` are the postponed files, ``new_files`` hold their rows.
            base: the snapshot in which they were found.

        Raises: as ``commit_compaction``.
        """
        committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages, base=base)
        return self._run(_Request(kind=CommitKind.APPEND, committable=committable))

    def overwrite(
        self, committable: Committable, *, replaces: PartitionTest, only_after: int | None = None
    ) -> CommitResult:
        """Replace all files of the partitions for which ``replaces`` (of the partition's bytes) is true.

        Raises:
            ConflictError: the commit lost too many races, or the newest snapshot is not ``only_after``: call again.
            OutcomeUnknownError: it may be visible: keep every file and call again with the same committable.
        """
        kind = CommitKind.OVERWRITE
        return self._run(_Request(kind=kind, committable=committable, replaces=replaces, only_after=only_after))

    def replace_rows(self, committable: Committable) -> CommitResult:
        """Delete rows by deletion vectors, and add files with others.

        Raises:
            ConflictError: files with these rows were rewritten, or rows deleted, since: find the rows again.
            OutcomeUnknownError: the commit may be visible: keep every file and read the newest snapshots.
        """
        return self._run(_Request(kind=CommitKind.OVERWRITE, committable=committable))

    def replace_files(self, committable: Committable, *, only_after: int) -> CommitResult:
        """Replace files by others, as rows that changed, of exactly one state.

        Args:
            committable: ``compact_before`` are removed, ``compact_after`` are added.
            only_after: id of the snapshot that this was planned on; 0: there was none.

        Raises:
            ConflictError: another writer committed since: plan again. Nothing is visible.
            OutcomeUnknownError: it may be visible: keep every file and look at the newest snapshots.
        """
        is_append = not any(each.compact_before for each in committable.messages) and not self._table.has_key
        kind = CommitKind.APPEND if is_append else CommitKind.OVERWRITE
        return self._run(_Request(kind=kind, committable=committable, only_after=only_after))

    def merge_manifests(self, properties: Mapping[str, str], *, recounts: bool = False) -> CommitResult:
        """Publish a snapshot of the same files, so that its manifests are merged if that is due.

        Args:
            properties: of the snapshot, at least one.
            recounts: count the rows of its files; else the count of the snapshot before is taken.
        """
        committable = Committable(identifier=BATCH_IDENTIFIER, properties=properties)
        return self._run(_Request(kind=CommitKind.COMPACT, committable=committable, recounts=recounts))

    def commit_statistics(self, found: StatisticsFile) -> CommitResult:
        """Publish a file of statistics with a snapshot of the same rows. Raises: as ``commit``; also after ALTER."""
        committable = Committable(identifier=BATCH_IDENTIFIER, statistics=found)
        return self._run(_Request(kind=CommitKind.ANALYZE, committable=committable))

    def filter_committed(self, identifiers: Iterable[int]) -> list[int]:
        """The identifiers that still have to be committed, in the given order."""
        latest = self._table.snapshots.latest()
        return [each for each in identifiers if self._history.find(latest, each) is None]

    def find_committed(self, identifier: int) -> Snapshot | None:
        """The snapshot that made this identifier visible; None when it is not committed."""
        return self._history.find(self._table.snapshots.latest(), identifier)

    def abort(self, committable: Committable) -> bool:
        """Delete the files of a committable that was not committed; False, and nothing is deleted, when it was.

        Never call it after OutcomeUnknownError while the first attempt may still be running.
        """
        if self.find_committed(committable.identifier) is not None:
            return False
        discard(self._table, committable.messages)
        return True

    def _run(self, request: _Request) -> CommitResult:
        progress, options, clock = _Progress(), self._table.options, self._table.clock
        began_ms = clock.now_ms()
        try:
            return retrying(
                lambda: self._attempt_again(request, progress),
                attempts=options.commit_max_retries + 1,
                on=LostRaceError,
                replan=lambda _: check_time(self._table, began_ms, attempts=progress.count),
                backoff=self._table.commit_backoff,
            )
        except GoneError:
            clear_old_name(self._table, progress.scratch)
            raise
        except (FluvialError, OSError) as error:
            clear_old_name(self._table, progress.scratch)
            if progress.unknown is not None:
                raise self._unknown(request, progress.unknown) from error
            self._delete(progress.scratch)
            if isinstance(error, LostRaceError):
                raise ConflictError(str(error)) from None
            raise

    def _attempt_again(self, request: _Request, progress: _Progress) -> CommitResult:
        """Try once. Raises: LostRaceError when another attempt is needed."""
        latest = self._table.snapshots.latest()
        try:
            return self._attempt(request, progress, latest)
        except FileNotFoundError as error:
            if latest is None or not snapshot_is_gone(self._table, latest.ref):
                raise
            raise LostRaceError(
                f"the newest snapshot was removed meanwhile: table={self._table.name} snapshot={latest.id} "
                f"user={self._commit_user}: commit again"
            ) from error

    def _attempt(self, request: _Request, progress: _Progress, latest: Snapshot | None) -> CommitResult:
        progress.count += 1
        table, committable = self._table, request.committable
        settled = self._settle(request, progress, latest)
        if settled is not None:
            return settled
        self._check_writer()
        if latest is not None and latest.ref != self._own:  # what follows an own commit is not another one's
            check_not_between(table, latest)
        if latest is None:
            remove_strays(table, table.snapshots.ids())
        if progress.unknown is None:
            self._delete(progress.scratch)  # the attempt before is known to have lost
        progress.scratch.clear()
        done = None if request.kind is CommitKind.COMPACT else self._history.find(latest, committable.identifier)
        if done is not None:
            return CommitResult(snapshot=done, already_committed=True)
        published = published_buckets(table, latest, committable)
        if published and published >= committable.log_ends.keys():
            return CommitResult(snapshot=latest, already_committed=True)
        if published:
            raise ConflictError(
                f"another writer has published a part of the commit: table={table.name} user={self._commit_user} "
                f"buckets={sorted(published)}: commit the other buckets"
            )
        self._check_newest(request, latest)
        check_safe(self._table, latest, commit_user=self._commit_user, kind=request.kind)
        replaced = live_files(table, latest, keep_partition=request.replaces) if request.replaces else []
        delta = entries_of(committable.messages, replaced)
        if changes_nothing(committable, delta, request.kind, table.options):
            return CommitResult(snapshot=latest)
        if latest is not None and request.only_after is None:
            candidate = Candidate(
                store=table,
                kind=request.kind,
                committable=committable,
                latest=latest,
                delta=delta,
                replaced=replaced if request.replaces else None,
            )
            if (done := find_published(candidate)) is not None:
                discard_changes(candidate, done)
                return CommitResult(snapshot=done, already_committed=True)
            self._check(candidate)
        snapshot = write_snapshot(
            table,
            replace(latest, total_record_count=None) if request.recounts and latest is not None else latest,
            kind=request.kind,
            commit_user=self._commit_user,
            committable=committable,
            delta=delta,
            new_files=progress.scratch,
            replaces=request.replaces,
        )
        return self._publish(snapshot, EMPTY_TABLE if latest is None else latest.ref, request, progress)

    def _publish(self, snapshot: Snapshot, parent: SnapshotRef, request: _Request, progress: _Progress) -> CommitResult:
        progress.parent = parent
        try:
            won = self._table.snapshots.publish(snapshot)
        except OutcomeUnknownError:
            progress.unknown = snapshot
            won = False  # the next attempt looks; when nothing is there it takes the same id again
        if won:
            return self._finish(snapshot, request, progress)
        check_not_removed(self._table, snapshot, commit_user=self._commit_user)  # it may have won, and lost it since
        check_no_fork(self._table, snapshot.id, parent)
        raise LostRaceError(
            f"lost {progress.count} commit races: table={self._table.name} user={self._commit_user} "
            f"identifier={request.committable.identifier}: commit again"
        )

    def _settle(self, request: _Request, progress: _Progress, latest: Snapshot | None) -> CommitResult | None:
        """The attempt of unknown outcome if it is visible; it is forgotten when its id belongs to another snapshot."""
        mine = progress.unknown
        if mine is None:
            return None
        check_not_removed(self._table, mine, commit_user=self._commit_user)
        if latest is None or latest.id < mine.id:
            return None
        found = self._table.snapshots.find(mine.id)
        if found is not None and found.ref == mine.ref:
            return self._finish(found, request, progress)
        if found is None:  # its id has expired, perhaps with it
            done = self._history.find(latest, request.committable.identifier)
            if done is None:
                raise self._unknown(request, mine)
            return CommitResult(snapshot=done, already_committed=True)
        progress.unknown = None
        return None

    def _finish(self, snapshot: Snapshot, request: _Request, progress: _Progress) -> CommitResult:
        progress.unknown = snapshot  # it is visible, so its files stay, whatever fails now
        try:
            check_files(self._table, snapshot, request.committable.messages)
            if request.replaces is not None:  # appends to a rescaled partition conflict with its files
                check_rescaled(self._table, snapshot, request.committable)
            confirm(self._table, snapshot, progress.parent, commit_user=self._commit_user)
        except ConflictError:
            progress.unknown = None
            check_is_same_table(self._table)
            raise
        self._own = snapshot.ref
        for observe in self._table.after_commit:
            observe(self._table, snapshot)
        return CommitResult(snapshot=snapshot)

    def _check(self, candidate: Candidate) -> None:
        reason = why_not(candidate)
        if reason is not None:
            raise ConflictError(
                f"{reason}: table={self._table.name} user={self._commit_user} snapshot={candidate.latest.id} "
                f"base={None if candidate.base is None else candidate.base.id}"
            )

    def _check_newest(self, request: _Request, latest: Snapshot | None) -> None:
        newest = 0 if latest is None else latest.id
        if request.only_after not in (None, newest):
            raise ConflictError(
                f"another writer committed meanwhile: table={self._table.name} planned_on={request.only_after} "
                f"newest={newest} fix=run it again"
            )

    def _unknown(self, request: _Request, snapshot: Snapshot) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"snapshot may or may not be visible: table={self._table.name} snapshot={snapshot.id} "
            f"user={self._commit_user} identifier={request.committable.identifier}: keep every file and commit again"
        )

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FluvialError, OSError):  # an orphan costs space only
                self._table.io.delete(path)


def replace_compacted(
    store: TableStore, messages: Sequence[CommitMessage], base: SnapshotRef, check: Callable[[], object] = lambda: None
) -> CommitResult:
    """``TableCommit.commit_compaction`` by a commit user of its own. Raises: as there.

    The new files are deleted when nothing is visible, as after a ConflictError; after an OutcomeUnknownError they stay.
    """
    with undoing_unless_visible(lambda: discard(store, messages)):
        commit = TableCommit(store, store.new_commit_user(), history_start=base.id, check=check)
        return commit.commit_compaction(messages, base=base)
