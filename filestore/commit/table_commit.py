"""Publishing a snapshot: the optimistic loop that makes a set of files visible at once, exactly once.

Nothing is locked. A commit writes its manifests, then creates ``snapshot-<n>`` exclusively: the only atomic point.
Whoever comes second looks at what the first one published, and either follows it or reports a conflict. Source:
paimon-format.md section 7; FL-72, FL-89 to FL-92, FL-163 to FL-165.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.conflicts import (
    bucket_count_conflict,
    find_conflict,
    is_in_place,
    is_numbered,
    sequence_conflict,
    superseded_by,
)
from filestore.commit.guards import check_safe, check_time
from filestore.commit.history import CommitHistory
from filestore.commit.snapshot_writer import changes_nothing, entries_of, write_snapshot
from filestore.index.index_manifest import index_conflict, missing_delete_target
from filestore.layout.branch_state import is_gone
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.scan.snapshot_files import changes_since, live_files, live_files_of_partitions
from filestore.schema.validation import check_writable
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError

PartitionTest = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a commit left behind."""

    snapshot: Snapshot | None  # None: an empty batch commit on a table without snapshots
    already_committed: bool = False  # an earlier attempt, perhaps of another process, had published it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    kind: CommitKind
    committable: Committable
    replaces: PartitionTest | None = None  # OVERWRITE: the partitions whose files go
    recounts: bool = False  # how many rows the newest snapshot says it has is not true any more
    only_after: int | None = None  # the snapshot that must be the newest; 0: none


@dataclass(slots=True)
class _Progress:
    """What the attempts of one request left on disk."""

    scratch: list[str] = field(default_factory=list)  # metadata files that no snapshot refers to
    unknown: Snapshot | None = None  # an attempt that may have become visible


class _BranchGoneError(OutcomeUnknownError):
    """What was published may be nowhere, or in a branch of another name."""


class TableCommit:
    """Commits of one user, one after the other. Not for use by several threads."""

    def __init__(self, store: TableStore, commit_user: str, *, history_start: int = 0) -> None:
        """Commit as ``commit_user``.

        Args:
            store: to commit to.
            commit_user: stable for one streaming query (its identifiers rise), fresh for each batch write.
            history_start: no snapshot up to this id is by this user; saves a fresh user the walk through the whole
                history.
        """
        check_writable(store.schema)
        store.check_commit_lock()
        self._table = store
        self._commit_user = commit_user
        self._history = CommitHistory(store, commit_user, start=history_start)

    def commit(self, committable: Committable) -> CommitResult:
        """Make new files visible. A committed (user, identifier) is not committed again.

        Raises:
            ConflictError: another writer used our sequence numbers, changed the number of buckets, or changed what our
                changes were told against: write the rows again.
            OutcomeUnknownError: it may be visible: keep every file and call again with the same committable.
            UnavailableError: nothing is visible: call again later.
        """
        if any(each.compact_before or each.compact_after for each in committable.messages):
            raise InvalidInputError("compacted files in a data commit: use commit_compaction for them")
        return self._run(_Request(kind=CommitKind.APPEND, committable=committable))

    def commit_compaction(
        self, messages: Sequence[CommitMessage], *, base_snapshot_id: int, identifier: int = BATCH_IDENTIFIER
    ) -> CommitResult:
        """Replace compacted files.

        Args:
            messages: what was read and what was written instead.
            base_snapshot_id: the snapshot in which the compaction found its inputs.
            identifier: noted in the snapshot.

        Raises:
            ConflictError: somebody else removed an input: abandon the compaction, see ``discard``.
            OutcomeUnknownError: it may be visible: keep every file and call again.
            UnavailableError: nothing is visible: call again later.
        """
        if any(each.new_files for each in messages):
            raise InvalidInputError("new files in a compaction commit: use commit for them")
        committable = Committable(identifier=identifier, messages=messages, base_snapshot_id=base_snapshot_id)
        return self._run(_Request(kind=CommitKind.COMPACT, committable=committable))

    def commit_distribution(self, messages: Sequence[CommitMessage], *, base_snapshot_id: int) -> CommitResult:
        """Give postponed rows their buckets: streams get the new files' rows now.

        Args:
            messages: ``compact_before`` are the postponed files, ``new_files`` hold their rows.
            base_snapshot_id: the snapshot in which they were found.

        Raises: as ``commit_compaction``.
        """
        committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages, base_snapshot_id=base_snapshot_id)
        return self._run(_Request(kind=CommitKind.APPEND, committable=committable))

    def overwrite(self, committable: Committable, *, replaces: PartitionTest) -> CommitResult:
        """Replace all files of the partitions for which ``replaces`` (of the partition's bytes) is true.

        Raises:
            ConflictError: the commit lost too many races: call again.
            OutcomeUnknownError: it may be visible: keep every file and call again with the same committable.
        """
        return self._run(_Request(kind=CommitKind.OVERWRITE, committable=committable, replaces=replaces))

    def replace_rows(self, committable: Committable) -> CommitResult:
        """Mark rows as deleted, and add files with others.

        Raises:
            ConflictError: files with these rows were rewritten meanwhile, or rows of them were deleted: decide anew.
            OutcomeUnknownError: it may be visible: keep every file and look at the newest snapshots.
        """
        return self._run(_Request(kind=CommitKind.OVERWRITE, committable=committable))

    def replace_files(self, committable: Committable, *, only_after: int) -> CommitResult:
        """Take files out and put others in, as rows that changed, of exactly one state.

        Args:
            committable: ``compact_before`` goes, ``compact_after`` comes.
            only_after: id of the snapshot that this was decided on; 0: there was none.

        Raises:
            ConflictError: somebody else committed since: decide anew. Nothing is visible.
            OutcomeUnknownError: it may be visible: keep every file and look at the newest snapshots.
        """
        is_append = not any(each.compact_before for each in committable.messages) and not self._table.has_key
        kind = CommitKind.APPEND if is_append else CommitKind.OVERWRITE
        return self._run(_Request(kind=kind, committable=committable, only_after=only_after))

    def merge_manifests(self, properties: Mapping[str, str], *, recounts: bool = False) -> CommitResult:
        """Publish a snapshot of the same files, so that its manifests are merged if that is due.

        Args:
            properties: of the snapshot, at least one: what it was made for.
            recounts: count the rows of its files; else it has as many as the one before.
        """
        committable = Committable(identifier=BATCH_IDENTIFIER, properties=properties)
        return self._run(_Request(kind=CommitKind.COMPACT, committable=committable, recounts=recounts))

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
        progress = _Progress()
        options = self._table.options
        wait_ms, began_ms = options.commit_min_retry_wait_ms, self._table.clock.now_ms()
        try:
            for attempt in range(options.commit_max_retries + 1):
                if attempt:
                    check_time(self._table, began_ms, attempts=attempt)
                    self._table.clock.sleep(wait_ms / 1000)
                    wait_ms = min(2 * wait_ms, options.commit_max_retry_wait_ms)
                result = self._attempt(request, progress)
                if result is not None:
                    return result
        except _BranchGoneError:
            raise
        except (FluvialError, OSError) as error:
            if progress.unknown is not None:
                raise self._unknown(request, progress.unknown) from error
            self._delete(progress.scratch)
            raise
        if progress.unknown is not None:
            raise self._unknown(request, progress.unknown)
        self._delete(progress.scratch)
        raise ConflictError(
            f"lost {options.commit_max_retries + 1} commit races: table={self._table.name} user={self._commit_user} "
            f"identifier={request.committable.identifier}: commit again"
        )

    def _attempt(self, request: _Request, progress: _Progress) -> CommitResult | None:
        """Try once; None when another attempt is needed."""
        table, committable = self._table, request.committable
        latest = table.snapshots.latest()
        published = self._settle(progress, latest)
        if published is not None:
            return self._finish(published, progress)
        if progress.unknown is None:
            self._delete(progress.scratch)  # the attempt before lost for sure
        progress.scratch.clear()
        done = None if request.kind is CommitKind.COMPACT else self._history.find(latest, committable.identifier)
        if done is not None:
            return CommitResult(snapshot=done, already_committed=True)
        self._check_nothing_came(request, latest)
        check_safe(self._table, latest, commit_user=self._commit_user, kind=request.kind)
        replaced = live_files(table, latest, keep_partition=request.replaces) if request.replaces else []
        delta = entries_of(committable.messages, replaced)
        if changes_nothing(committable, delta, request.kind, table.options):
            return CommitResult(snapshot=latest)
        done = self._check(request, latest, delta, replaced)
        if done is not None:
            return CommitResult(snapshot=done, already_committed=True)
        candidate = write_snapshot(
            table,
            replace(latest, total_record_count=None) if request.recounts and latest is not None else latest,
            kind=request.kind,
            commit_user=self._commit_user,
            committable=committable,
            delta=delta,
            new_files=progress.scratch,
            replaces=request.replaces,
        )
        return self._publish(candidate, progress)

    def _publish(self, candidate: Snapshot, progress: _Progress) -> CommitResult | None:
        try:
            won = self._table.snapshots.publish(candidate)
        except OutcomeUnknownError:
            progress.unknown = candidate
            return None  # the next attempt looks; when nothing is there it takes the same id again
        return self._finish(candidate, progress) if won else None

    def _settle(self, progress: _Progress, latest: Snapshot | None) -> Snapshot | None:
        """Return the attempt of unknown outcome if it is visible; forget it when its id belongs to another snapshot."""
        mine = progress.unknown
        if mine is None or latest is None or latest.id < mine.id:
            return None
        found = self._table.snapshots.read(mine.id)
        if _is_same(found, mine):
            return found
        progress.unknown = None
        return None

    def _finish(self, snapshot: Snapshot, progress: _Progress) -> CommitResult:
        table = self._table
        progress.unknown = snapshot  # it is there, so its files stay, whatever comes now
        if is_gone(table.io, table.paths, schema_id=snapshot.schema_id):
            # whoever renames the branch may have copied the snapshot; it only goes here
            found = table.snapshots.find(snapshot.id)
            if found is not None and _is_same(found, snapshot):
                table.io.delete(table.paths.snapshot(snapshot.id))
            raise _BranchGoneError(
                f"the branch was deleted, renamed, replaced as main, or is being taken back: table={table.name} "
                f"branch={table.paths.branch} snapshot={snapshot.id} user={self._commit_user} "
                "fix=open the table again and look whether it has this commit; verify names what is at work on it"
            )
        self._table.snapshots.write_latest_hint(snapshot.id)
        if snapshot.id == FIRST_SNAPSHOT_ID:
            self._table.snapshots.write_earliest_hint(snapshot.id)
        return CommitResult(snapshot=snapshot)

    def _check(
        self,
        request: _Request,
        latest: Snapshot | None,
        delta: Sequence[ManifestEntry],
        replaced: Sequence[ManifestEntry],
    ) -> Snapshot | None:
        """Return the snapshot that already holds this compaction.

        Raises: ConflictError when the delta cannot follow.
        """
        if latest is None or request.only_after is not None:
            return None
        base_id = request.committable.base_snapshot_id
        reason: str | None
        if request.kind is CommitKind.OVERWRITE and request.replaces is None:
            changes = None if base_id is None else changes_since(self._table, base_id, latest)
            others = live_files(self._table, latest) if changes is None else [*chain.from_iterable(changes.values())]
            reason = missing_delete_target(others, request.committable.messages, is_all=changes is None)
            reason = reason or bucket_count_conflict(live_entries(others), delta)
            reason = reason or sequence_conflict(others, delta, has_key=self._table.has_key)
        elif request.kind is CommitKind.OVERWRITE:
            reason = self._find_conflict(replaced, delta, request.kind)
        elif request.kind is CommitKind.COMPACT:
            base, done, is_all = self._compaction_base(latest, base_id, delta)
            if done is not None:
                return done
            reason = self._find_conflict(base, delta, request.kind)
            reason = reason or missing_delete_target(base, request.committable.messages, is_all=is_all)
        else:
            others = self._others(latest, base_id, delta)
            reason = sequence_conflict(others, delta, has_key=self._table.has_key)
            reason = bucket_count_conflict(live_entries(others), delta) or reason
            reason = reason or superseded_by(self._table, request.committable.changelog_base_snapshot, latest)
            if reason is None and any(entry.kind is EntryKind.DELETE for entry in delta):
                base, done, _ = self._compaction_base(latest, base_id, delta)
                if done is not None:
                    return done
                reason = self._find_conflict(base, delta, request.kind)
        if request.replaces is None:
            reason = reason or index_conflict(self._table, latest, base_id, request.committable.messages)
        if reason is not None:
            raise ConflictError(
                f"{reason}: table={self._table.name} user={self._commit_user} snapshot={latest.id} base={base_id}"
            )
        return None

    def _check_nothing_came(self, request: _Request, latest: Snapshot | None) -> None:
        newest = 0 if latest is None else latest.id
        if request.only_after not in (None, newest):
            raise ConflictError(
                f"somebody committed meanwhile: table={self._table.name} decided_on={request.only_after} "
                f"newest={newest}"
            )

    def _others(self, latest: Snapshot, base_id: int | None, delta: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """What others may have numbered: the changes since the base; without one, all files of our partitions."""
        partitions = {each.partition for each in delta if is_numbered(each, has_key=self._table.has_key)}
        if not partitions:
            return []
        changes = None if base_id is None else changes_since(self._table, base_id, latest)
        if changes is None:
            return live_files_of_partitions(self._table, latest, partitions)
        return list(chain.from_iterable(changes.values()))

    def _compaction_base(
        self, latest: Snapshot, base_id: int | None, delta: Sequence[ManifestEntry]
    ) -> tuple[list[ManifestEntry], Snapshot | None, bool]:
        """The entries that a compaction must fit to, the snapshot that holds it already, and if these are all files.

        The inputs were live in the base snapshot, and nothing else in it overlaps the outputs: so the changes since are
        enough.
        """
        changes = None if base_id is None else changes_since(self._table, base_id, latest)
        if changes is None:
            live = live_files_of_partitions(self._table, latest, {entry.partition for entry in delta})
            return live, latest if is_in_place(live, delta) else None, True
        ours = {(entry.kind, entry.identity) for entry in delta}
        for snapshot_id, entries in changes.items():
            if ours <= {(entry.kind, entry.identity) for entry in entries}:
                return [], self._table.snapshots.read(snapshot_id), False
        inputs = [replace(entry, kind=EntryKind.ADD) for entry in delta if entry.kind is EntryKind.DELETE]
        return [*inputs, *chain.from_iterable(changes.values())], None, False

    def _find_conflict(
        self, base: Iterable[ManifestEntry], delta: Sequence[ManifestEntry], kind: CommitKind
    ) -> str | None:
        return find_conflict(base, delta, kind=kind, key_of=self._table.key_of if self._table.has_key else None)

    def _unknown(self, request: _Request, snapshot: Snapshot) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"snapshot may or may not be visible: table={self._table.name} snapshot={snapshot.id} "
            f"user={self._commit_user} identifier={request.committable.identifier}: keep every file and commit again"
        )

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FluvialError, OSError):  # an orphan costs space only
                self._table.io.delete(path)


def _is_same(found: Snapshot, mine: Snapshot) -> bool:
    return (found.uuid, found.delta_manifest_list) == (mine.uuid, mine.delta_manifest_list)
