"""Writes changes that bypassed a table's log, such as an overwrite, to the log before the next batch.

With ``log.overwrite=changes`` the difference is written like a batch: one transaction for each bucket, whose marker
names the snapshot that the log then equals. A snapshot without files follows. It makes the records known, and
makes streams skip them, since they read the difference from files. If the writer dies before this snapshot, the next
writer completes the same difference and adopts the buckets that are already written.

1. Fence every bucket. A marker that no snapshot knows is of such a difference, or of a batch: then stop.
2. Write the changes of each bucket up to the newest snapshot, or up to the one that markers name.
3. Commit the snapshot, and compare the log with the table again.

Otherwise, and where the difference can no longer be computed, each bucket gets one control record, which says that
the log lacks the changes.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from engine.log.bucket_log import BucketLog, check_not_repeated, check_not_shorter
from engine.log.table_log import TableLog, at_newest_log
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.write.dead_rows import correct_dead_rows
from engine.write.ticket_queue import TicketQueue
from filestore.changelog.compared_states import Changes
from filestore.changelog.log_gap import SYNC_USER, LogGap, is_sync_user, log_gap, missing_changes
from filestore.changelog.snapshot_changes import ChangeSplit, read_changes
from filestore.changelog.untracked import is_untracked
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.manifest.commit_message import PURPOSE_KEY
from filestore.snapshot.change_tracking import ChangeSource, skipped_log_property
from filestore.snapshot.lost_files import LostFileError
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.kafka.clients import NEW_LOG
from logstore.log.marker import CommitMarker
from logstore.log.topic_claim import empty_value
from logstore.offsets import LogSlice
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from lsm.undo import undoing

logger = logging.getLogger("fluvial.log")

_PURPOSE: Final = "log.overwrite"
_MOST_ROUNDS: Final = 5
"""How often others may bypass the log while it is brought up to the table; the next writer does the rest."""


class LogSync:
    """Brings the log of a table up to the table. For one writer, in its turn; not for use by several threads."""

    def __init__(self, table: TableView, log: TableLog, *, check: Callable[[], object] = lambda: None) -> None:
        """Nothing is read or written yet.

        Args:
            table: the table.
            log: its log.
            check: raises ConflictError once another writer has the turn; called before a bucket is written.
        """
        self._table, self._store, self._log = table, table.store, log
        self._check = check
        self._left: LogGap | None = None  # stays as it is

    def complete(self, latest: Snapshot | None) -> bool:
        """Log what bypassed the log, or that it did. Without such commits nothing is read.

        Args:
            latest: the newest snapshot; None: there is none.

        Returns:
            Whether there is another snapshot now.

        Raises:
            ConflictError: another writer has the turn.
            CorruptDataError: the log has a difference of a snapshot that the table has lost.
            OutcomeUnknownError: as a batch; the next call finds out.
            UnavailableError: the brokers do not answer.
        """
        for done in range(_MOST_ROUNDS):
            if done:
                latest = self._store.snapshots.latest()
            gap = log_gap(self._store, latest)
            if gap is None or latest is None or gap == self._left:
                return done > 0
            if not wants_changes(self._store):
                self._leave(gap, latest)
                return done > 0
            if not self._sync():
                return done > 0
        return True

    def correct(self, user: str) -> bool:
        """Have rows that dead writers left in an eventual log followed by what the table has; see ``dead_rows``.

        Args:
            user: of the snapshot that knows them.

        Returns:
            Whether there is another snapshot now.
        """
        store, log = self._store, self._log
        tails = log.fence_all()
        known = store.log_offsets_at(store.snapshots.latest()) or {}
        ends = correct_dead_rows(
            self._at_newest_schema(), log, tails, known, query=user, batch=BATCH_IDENTIFIER, check=self._check
        )
        if ends:
            changes = ChangeSource.LOG
            wanted = Committable(identifier=BATCH_IDENTIFIER, log_offsets={**known, **ends}, changes=changes)
            TableCommit(store, user, check=self._check).commit(wanted)
        return bool(ends)

    def _sync(self) -> bool:
        """One difference, and its snapshot. False: not now, or it is not known."""
        store, log = self._store, self._log
        tails = log.fence_all()
        self._check()
        latest = store.snapshots.latest()  # what the fenced writers held may have been committed meanwhile
        gap = log_gap(store, latest)
        if latest is None or gap is None:
            return False
        known = store.log_offsets_at(latest) or {}
        ahead: dict[int, CommitMarker] = {}
        for bucket, tail in tails.items():
            if tail.marker is None or tail.marker.end_offset <= known.get(bucket, 0):
                check_not_shorter(store, log, tail, known.get(bucket, 0))
            else:
                check_not_repeated(log, bucket, tail.marker, known.get(bucket, 0))
                ahead[bucket] = tail.marker
        if not all(is_sync_user(each.query) for each in ahead.values()):
            return False  # a batch comes first: its writer, or who takes it over, completes it
        target = self._target(latest, ahead)
        table = self._at_newest_schema()
        splits = None if target is None else _known_changes(table.store, gap, target)
        if target is None or splits is None:
            self._leave(gap, latest)
            if not ahead:
                return False
        slices = {bucket: _slice_of(marker) for bucket, marker in ahead.items()}
        if target is not None and splits is not None:
            part = _Part(table=table, log=log, target=target, known=known, check=self._check)
            for bucket in range(log.bucket_count):
                of_bucket = [each for each in splits if each.bucket == bucket]
                written = part.write(bucket, of_bucket) if of_bucket and bucket not in slices else None
                if written is not None:
                    slices[bucket] = written
        user = next(iter(ahead.values())).query if target is None else sync_user(target)
        wanted = Committable(
            identifier=BATCH_IDENTIFIER,
            log_offsets={**known, **{bucket: each.end_offset for bucket, each in slices.items()}},
            changes=ChangeSource.FILES,  # which are none
            log_synced=None if target is None or splits is None else target.id,
            properties={
                PURPOSE_KEY: _PURPOSE,
                **skipped_log_property({bucket: each.start_offset for bucket, each in slices.items()}),
            },
        )
        start = 0 if target is None else target.id
        done = TableCommit(store, user, history_start=start, check=self._check).commit(wanted)
        logger.info(
            "what bypassed the log is in the log: table=%s topic=%s up_to=%s records=%d snapshot=%s",
            store.name, log.topic, None if target is None else target.id,
            sum(each.row_count for each in slices.values()), None if done.snapshot is None else done.snapshot.id,
        )  # fmt: skip
        return True

    def _target(self, latest: Snapshot, ahead: Mapping[int, CommitMarker]) -> Snapshot | None:
        """The snapshot that the log is brought to; None: markers name one that has expired.

        Raises: CorruptDataError: markers name one that is not in the table's history.
        """
        if not ahead:
            return latest
        marker = next(iter(ahead.values()))
        found = self._store.snapshots.find(marker.batch)
        if found is None and marker.batch < (self._store.snapshots.earliest_id() or 0):
            return None
        if found is None or any(each.query != sync_user(found) for each in ahead.values()):
            raise of_lost_snapshot(self._store, self._log, marker)
        return found

    def _at_newest_schema(self) -> TableView:
        newest = self._store.schemas.latest()
        if newest is None or newest.id <= self._table.schema.id:
            return self._table
        return self._table.at_version(newest.id)

    def _leave(self, gap: LogGap, latest: Snapshot) -> None:
        """Say in each bucket that the table has left the log, unless it was said."""
        self._left = gap
        if gap.is_noted(self._store, latest):
            return
        found = self._store.snapshots.find(gap.newest_id)
        left: dict[str, object] = {"snapshot": gap.newest_id}
        if found is not None:
            left |= {"operation": found.commit_kind.value, "time": found.time_ms}
        try:
            for bucket in range(self._log.bucket_count):
                self._check()
                with self._log.writer(bucket) as writer:
                    writer.fence()
                    if not gap.newest_id <= writer.tail.left_snapshot <= latest.id:  # a stranger may say anything
                        writer.note_leaving(left, value=empty_value(self._log.codec.log_format))
        except InvalidInputError as error:  # compacted topics take no records without a key
            logger.warning(
                "the log does not say that the table has left it: table=%s snapshot=%d reason=%s",
                self._store.name, gap.newest_id, error,
            )  # fmt: skip
        else:
            logger.warning(
                "the table has changed without its log, which says so now: table=%s topic=%s snapshot=%d "
                "fix='for the changes themselves set log.overwrite=changes'",
                self._store.name, self._log.topic, gap.newest_id,
            )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Writes a difference into buckets of the log."""

    table: TableView
    log: TableLog
    target: Snapshot
    known: Mapping[int, int]  # next offsets of the log by the newest snapshot
    check: Callable[[], object]

    def write(self, bucket: int, splits: Sequence[ChangeSplit]) -> LogSlice | None:
        """Log the changes of a bucket in one transaction; None: there are none."""
        changes = self._changes(splits)
        first = next(changes, None)
        if first is None:
            return None
        log = BucketLog(self.log, self.table.store, bucket, query=sync_user(self.target), batch=self.target.id)
        with undoing(log.abort):
            done = log.open(known_end=self.known.get(bucket, 0), only_at_end=True)
            self.check()
            if done is None:
                log.begin(self.table.schema.id)
                for rows, kinds in chain([first], changes):
                    log.append(rows, kinds)
                piece = log.commit([])
            else:
                piece = _slice_of(done)
        log.close()
        return piece

    def _changes(self, splits: Sequence[ChangeSplit]) -> Changes:
        store = self.table.store
        for split in splits:
            if not is_untracked(store, store.options, split.partition):
                yield from read_changes(self.table, split)


def complete_log(table: TableView, options: WriterOptions = NO_OPTIONS) -> bool:
    """Bring the log of a table up to the table, in a turn among its writers.

    Args:
        table: the table.
        options: of the writer; its turn and client properties.

    Returns:
        Whether a snapshot was committed. The log may still lack changes: see ``log_gap``.

    Raises:
        ConflictError: other writers took longer than ``log.turn-timeout``.
        FluvialError: see ``LogSync.complete``.
    """
    store, _ = at_newest_log(table.store, table.store.schema.id)
    there = replace(table, store=store)
    log = TableLog.of(there, options)
    if log is None or (log_gap(store, store.snapshots.latest()) is None and not log.is_eventual):
        return False
    user = store.new_commit_user()
    queue = TicketQueue(store, user)
    with queue.turn(patience_s=options.turn_timeout_s(store.options)) as turn:
        sync = LogSync(there, log, check=lambda: turn.check("what=log.overwrite"))
        is_corrected = log.is_eventual and sync.correct(user)
        return sync.complete(store.snapshots.latest()) or is_corrected


def follow_overwrite(table: TableView, options: WriterOptions = NO_OPTIONS) -> None:
    """After a commit that bypassed the log: log its changes now, if the table wants them. Never raises.

    What fails is done by the next writer of the table.
    """
    try:
        if table.store.has_log and wants_changes(table.store):
            complete_log(table, options)
    except (FluvialError, OSError) as error:
        logger.warning("the log gets what bypassed it with the next batch: table=%s reason=%s", table.store.name, error)


def wants_changes(store: TableStore) -> bool:
    """``log.overwrite=changes``, by the newest version of the table's schema."""
    newest = store.schemas.latest()
    options = store.options if newest is None else newest.table_options
    wanted: str = options.log_overwrite
    return wanted == "changes"


def sync_user(target: Snapshot) -> str:
    """The commit user of a difference up to a snapshot, also in its markers."""
    return f"{SYNC_USER}{target.identity}"


def of_lost_snapshot(store: TableStore, log: TableLog, marker: CommitMarker) -> CorruptDataError:
    """The error for a difference in the log that no snapshot of the table can follow."""
    return CorruptDataError(
        f"the log has what another history of the table changed: table={store.name} topic={log.topic} "
        f"snapshot={marker.batch} end_offset={marker.end_offset} cause=the table was rolled back fix={NEW_LOG}"
    )


def _known_changes(store: TableStore, gap: LogGap, target: Snapshot) -> tuple[ChangeSplit, ...] | None:
    """See ``missing_changes``; None also when a snapshot expires meanwhile."""
    try:
        return missing_changes(store, gap, target)
    except LostFileError:
        raise
    except FileNotFoundError:
        return None


def _slice_of(marker: CommitMarker) -> LogSlice:
    return LogSlice(start_offset=marker.start_offset, end_offset=marker.end_offset, row_count=marker.row_count)
