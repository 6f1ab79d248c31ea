"""The snapshots of a table as a stream needs them, cached, because a snapshot never changes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from engine.stream.position.plan import SnapshotFacts, SplitPlan, SplitSize
from engine.stream.position.position import Phase, Position
from filestore.changelog.snapshot_changes import (
    ChangeSplit,
    changelog_level,
    compaction_emits_changes,
    plan_changelog,
    plan_changes,
    plan_diff,
    plan_kept_changes,
)
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.io.byte_cache import ByteCache
from filestore.predicate.predicate import Predicate
from filestore.scan.data_split import DataSplit, split_bytes
from filestore.scan.row_expiry import RowExpiry, moment_of
from filestore.scan.snapshot_files import live_files
from filestore.scan.table_scan import TableScan
from filestore.snapshot.change_tracking import ChangeSource, changes_of, known_unlogged, offsets_before
from filestore.snapshot.changelogs import find_changelog
from filestore.snapshot.lost_files import LostFileError, SnapshotExpiredError
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot, back_from, carried_offsets
from filestore.table_store import TableStore
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError

_MOST_BYTES: Final = 16 << 20  # of each cache; of plans the newest is kept in any case
_BUCKET_BYTES: Final = 120  # of an offset

S = TypeVar("S", DataSplit, ChangeSplit)


class TableHistory:
    """A plan's view of a table's snapshots. Caches what it reads; not picklable."""

    def __init__(
        self,
        store: TableStore,
        *,
        reads_log: bool,
        log_generation: int | None = None,
        is_exact: bool = False,
        filter: Predicate | None = None,
    ) -> None:
        """Create an empty cache.

        Args:
            store: the table, opened with the schema of the stream's rows.
            reads_log: read changes from the log where it has them; else read all changes from files.
            log_generation: which of the table's logs is read; None: the one that it was opened with.
            is_exact: changes from files include what they replace, as those of a normalized log do.
            filter: on key columns, for whole snapshots.
        """
        options = store.options
        self.is_eventual = reads_log and options.log_is_eventual
        self.store = store
        self._reads_log = reads_log
        self._generation = options.log_generation if log_generation is None else log_generation
        self._is_exact = is_exact
        self._has_exact_log = options.log_is_exact and store.has_key
        # from 1 on, rows come with the changelogs of compactions; exact changes are those of each commit
        self._changelog_level = 0 if reads_log or is_exact else changelog_level(store)
        self._filter = filter
        self._skips_overwrites = not (
            options.streaming_read_overwrite if store.has_key else options.streaming_read_append_overwrite
        )
        self._snapshots: ByteCache[Snapshot] = ByteCache(_MOST_BYTES, size_of=_bytes_of_snapshot)
        self._newest: Snapshot | None = None  # of those that were read
        self._offsets: ByteCache[LogOffsets] = ByteCache(_MOST_BYTES, size_of=_bytes_of_offsets)
        self._snapshot_plans: ByteCache[_Planned[DataSplit]] = _plans()
        self._change_plans: ByteCache[_Planned[ChangeSplit]] = _plans()

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None before the first commit. What was read before a rollback is forgotten."""
        self.forget_after_rollback()
        latest_id = self.store.snapshots.latest_id()
        return None if latest_id is None else self._find(latest_id) or self.store.snapshots.latest()

    def forget_after_rollback(self) -> None:
        """Clear the caches when the table was rolled back, because snapshot ids are then reused."""
        if self._newest is None:
            return
        still = self.store.snapshots.find(self._newest.id)
        has_expired = still is None and (self.store.snapshots.latest_id() or 0) > self._newest.id
        if not has_expired and (still is None or _commit_of(still) != _commit_of(self._newest)):
            self._newest = None
            for cache in (self._snapshots, self._offsets, self._snapshot_plans, self._change_plans):
                cache.clear()

    def commit_of(self, snapshot_id: int) -> str | None:
        """An identifier of the commit that made a snapshot; None: the snapshot has expired, or is 0."""
        snapshot = self._find(snapshot_id) if snapshot_id else None
        return None if snapshot is None else _commit_of(snapshot)

    @property
    def reads_by_difference(self) -> bool:
        """True when a snapshot scan returns other rows than the stream starts with, because of level 0."""
        return self._changelog_level > 0 or TableScan(self.store).skips_level0

    def waiting_rows(self, snapshot_id: int) -> int:
        """Rows of a snapshot that a stream gets only when they are compacted."""
        least = max(self._changelog_level, int(TableScan(self.store).skips_level0))
        if self._reads_log or not least:
            return 0
        try:
            entries = live_files(self.store, self._read(snapshot_id))
        except FileNotFoundError:
            return 0  # what is lost or has expired is an error where it is read
        return sum(each.file.row_count for each in entries if each.bucket >= 0 and each.file.level < least)

    def exists(self, snapshot_id: int) -> bool:
        """Whether a snapshot can still be read, as a snapshot or through a tag."""
        return self.store.snapshots.exists(snapshot_id) or self.store.snapshots.find_kept(snapshot_id) is not None

    def is_known(self, snapshot_id: int) -> bool:
        """Whether the changes after a snapshot can be read: the snapshot, or its kept changelog, still exists."""
        return self._find(snapshot_id) is not None

    def has_changes(self, snapshot_id: int) -> bool:
        """Whether a commit has changes for a stream, in the log or in files."""
        snapshot = self._read(snapshot_id)
        is_logged = self._location(snapshot, has_log=True) is ChangeSource.LOG
        return is_logged or self._is_from_files(snapshot)

    def facts(self, snapshot_id: int) -> SnapshotFacts:
        """Implements ``History.facts``."""
        snapshot = self._read(snapshot_id)
        offsets = self._offsets_at(snapshot)
        before = self._log_before(snapshot, offsets)
        return SnapshotFacts(
            id=snapshot.id,
            offsets=offsets,
            log_before=None if before == offsets else LogOffsets(before),
            schema_id=snapshot.schema_id,
            time_ms=snapshot.time_ms,
            changed_rows=abs(snapshot.delta_record_count or 0),
        )

    def kept_facts(self, snapshot_id: int) -> SnapshotFacts:
        """Facts of a snapshot that is still to be read. Raises: SnapshotExpiredError."""
        if not self.exists(snapshot_id):
            raise self._expired(snapshot_id)
        return self.facts(snapshot_id)

    def base_of(self, snapshot_id: int, bucket: int) -> tuple[int, int]:
        """The snapshot and the bucket's log offset in it; both are 0 before the first commit."""
        return snapshot_id, self.facts(snapshot_id).offsets.get(bucket, 0) if snapshot_id else 0

    def next_from_files(self, after_id: int, until_id: int) -> int | None:
        """Implements ``History.next_from_files``."""
        if after_id >= until_id:
            return None
        if not self._reads_log:
            return self._first_from_files(after_id + 1, until_id)
        # Fluvial's commits record the last snapshot that is not in the log; other engines' commits do not.
        other_engines: list[int] = []
        for snapshot_id in range(until_id, after_id, -1):
            snapshot = self._read(snapshot_id)
            known = known_unlogged(snapshot, self._generation)
            if known is not None:
                if known > after_id:
                    return self._first_from_files(after_id + 1, known)
                break
            if self._is_from_files(snapshot):
                other_engines.append(snapshot_id)
        return other_engines[-1] if other_engines else None

    def splits(self, here: Position) -> SplitPlan:
        """Implements ``History.splits``."""
        if here.phase is Phase.SNAPSHOT:
            return self._planned_snapshot(here.snapshot_id, here.moment_ms).plan
        return self._planned_changes(here.snapshot_id, here.newest_id).plan

    def planned_snapshot(self, snapshot_id: int, moment_ms: int | None) -> tuple[DataSplit, ...]:
        """The splits of a snapshot, deterministic; ``moment_ms``: see ``Position``. Raises: SnapshotExpiredError."""
        return self._planned_snapshot(snapshot_id, moment_ms).splits

    def planned_changes(self, before_id: int, after_id: int) -> tuple[ChangeSplit, ...]:
        """The splits of the changes between two snapshots, deterministic. Raises: SnapshotExpiredError."""
        return self._planned_changes(before_id, after_id).splits

    def moment_of(self, snapshot_id: int) -> int | None:
        """The moment at which expiry of a snapshot's rows is evaluated, as reads of now do; None: they never expire.

        Raises: SnapshotExpiredError.
        """
        if RowExpiry.of(self.store.schema, self.store.options) is None:
            return None
        return moment_of(self.store, self._read(snapshot_id))

    def _planned_snapshot(self, snapshot_id: int, moment_ms: int | None) -> "_Planned[DataSplit]":
        return self._snapshot_plans.get(
            (snapshot_id, moment_ms), lambda: _Planned.of(self._plan_snapshot(snapshot_id, moment_ms))
        )

    def _planned_changes(self, before_id: int, after_id: int) -> "_Planned[ChangeSplit]":
        return self._change_plans.get(
            (before_id, after_id), lambda: _Planned.of(self._plan_changes(before_id, after_id))
        )

    def _plan_snapshot(self, snapshot_id: int, moment_ms: int | None) -> tuple[DataSplit, ...]:
        snapshot = self._read(snapshot_id)
        try:
            return TableScan(self.store).plan(snapshot=snapshot, filter=self._filter, moment_ms=moment_ms).splits
        except LostFileError:
            raise
        except FileNotFoundError as error:
            raise self._expired(snapshot_id) from error

    def _plan_changes(self, before_id: int, after_id: int) -> tuple[ChangeSplit, ...]:
        after = self._read(after_id)
        before = self.store.snapshots.find_kept(before_id) if before_id else None
        try:
            if self._is_exact or after_id != before_id + 1:
                return plan_diff(
                    self.store, self._read(before_id) if before_id else None, after, least_level=self._changelog_level
                )
            if self._changelog_level:
                return plan_changelog(self.store, before, after)
            if after.changelog_manifest_list is not None and not self.exists(after_id):
                return plan_kept_changes(self.store, after)
            return plan_changes(self.store, before, after)
        except LostFileError:
            raise
        except FileNotFoundError as error:
            raise self._expired(after_id if before is None else before_id) from error
        except InvalidInputError as error:
            lost_id = before_id if before is None and before_id else after_id
            if self.exists(lost_id):
                raise
            raise SnapshotExpiredError(f"{self._expired(lost_id)}: {error}") from error

    def _first_from_files(self, first_id: int, last_id: int) -> int | None:
        for snapshot_id in range(first_id, last_id + 1):
            if self._is_from_files(self._read(snapshot_id)):
                return snapshot_id
        return None

    def _is_from_files(self, snapshot: Snapshot) -> bool:
        if self._changelog_level and snapshot.commit_kind is not CommitKind.OVERWRITE:
            return compaction_emits_changes(snapshot)
        changes = self._location(snapshot, has_log=self.store.has_log)
        if changes is ChangeSource.NONE or (changes is ChangeSource.LOG and self._reads_log):
            return False
        return not (snapshot.commit_kind is CommitKind.OVERWRITE and self._skips_overwrites)

    def _location(self, snapshot: Snapshot, *, has_log: bool) -> ChangeSource:
        """Location of a snapshot's changes; the log counts only if it is this one, not a former or later one."""
        before = self._find(snapshot.id - 1) if snapshot.is_external and snapshot.id > FIRST_SNAPSHOT_ID else None
        is_of_log = snapshot.is_of_log(self._generation, before) and not self._log_is_wrong_of(snapshot)
        return changes_of(snapshot, has_log=has_log and is_of_log, before=before)

    def _log_before(self, snapshot: Snapshot, offsets: LogOffsets) -> Mapping[int, int]:
        """Offsets of the first records that a stream skips, because it reads their rows from the snapshot's files."""
        if self._log_is_wrong_of(snapshot):
            before = self._find(snapshot.id - 1) if snapshot.id > FIRST_SNAPSHOT_ID else None
            return LogOffsets() if before is None else self._offsets_at(before)
        return offsets_before(snapshot, offsets)

    def _log_is_wrong_of(self, snapshot: Snapshot) -> bool:
        """Whether the log may have other changes: those of other engines are not exact, of batch jobs not whole."""
        return snapshot.is_external and (self._has_exact_log or snapshot.commit_identifier == BATCH_IDENTIFIER)

    def _offsets_at(self, snapshot: Snapshot) -> LogOffsets:
        """The snapshot's own offsets, or those of the newest one before: other engines do not carry them over."""
        if not self._reads_log:
            return LogOffsets()
        return self._offsets.get(snapshot.id, partial(self._offsets_of, snapshot.id))

    def _offsets_of(self, snapshot_id: int) -> LogOffsets:
        return LogOffsets(carried_offsets(back_from(self._read(snapshot_id), self._find), self._generation))

    def _read(self, snapshot_id: int) -> Snapshot:
        snapshot = self._find(snapshot_id)
        if snapshot is None:
            raise self._expired(snapshot_id)
        return snapshot

    def _expired(self, snapshot_id: int) -> SnapshotExpiredError:
        self._snapshots.drop(snapshot_id)
        return SnapshotExpiredError(
            f"a snapshot that the stream needs is gone: table={self.store.name} wanted_snapshot={snapshot_id} "
            f"earliest_snapshot={self.store.snapshots.earliest_id()} cause=it expired before it was read"
        )

    def _find(self, snapshot_id: int) -> Snapshot | None:
        snapshot = self._snapshots.find(snapshot_id)
        if snapshot is None:
            store = self.store
            snapshot = store.snapshots.find_kept(snapshot_id) or find_changelog(store.io, store.paths, snapshot_id)
            if snapshot is not None:
                self._snapshots.keep(snapshot_id, snapshot)
                if self._newest is None or snapshot.id >= self._newest.id:
                    self._newest = snapshot
        return snapshot


def _commit_of(snapshot: Snapshot) -> str:
    return snapshot.delta_manifest_list  # unique per commit, in all engines


@dataclass(frozen=True, slots=True)
class _Planned(Generic[S]):
    """Splits, with the facts that positions store of them."""

    splits: tuple[S, ...]
    plan: SplitPlan

    @classmethod
    def of(cls, splits: Sequence[S]) -> "_Planned[S]":
        sizes, digest = [], hashlib.blake2s(digest_size=8)
        for split in splits:
            sizes.append(SplitSize(rows=split.row_count, size_bytes=split.size_bytes, files=len(split.files)))
            digest.update(_boundaries(split).encode())
        return cls(tuple(splits), SplitPlan(sizes=sizes, digest=digest.hexdigest()))


def _boundaries(split: DataSplit | ChangeSplit) -> str:
    """A key of each split that no other split of its plan has, for given snapshots."""
    files = [file.file_name for file in split.files]
    if isinstance(split, DataSplit):
        span = None if split.span is None else (split.span.low, split.span.high)
        return repr((split.partition, split.bucket, files, split.needs_merge, span))
    return repr((split.partition, split.bucket, files, len(split.added), split.is_changelog, len(split.before)))


def _plans() -> ByteCache[Any]:
    return ByteCache(_MOST_BYTES, size_of=lambda planned: split_bytes(planned.splits), keeps_newest=True)


def _bytes_of_snapshot(snapshot: Snapshot) -> int:
    texts = (*snapshot.properties.keys(), *snapshot.properties.values())
    return 2000 + sum(map(len, texts)) + _BUCKET_BYTES * len(snapshot.log_offsets or ())


def _bytes_of_offsets(offsets: LogOffsets) -> int:
    return 200 + _BUCKET_BYTES * len(offsets)
