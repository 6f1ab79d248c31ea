"""Expiry of snapshots, tags and partitions after the commits of a stream, and the tags and savepoints that are due.

It runs every few seconds, not with each commit, and its cost grows with what is deleted. Nothing of it may stop the
stream: what fails is logged, and tried again. ``snapshot.expire.execution-mode=async`` does it beside the next batch.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from engine.checkpoint.saved_checkpoints import CheckpointPlace, keep_checkpoint
from filestore.commit.table_commit import CommitResult
from filestore.maintenance.changelog_expiry import expire_changelogs
from filestore.maintenance.partition_expiry import partitions_to_expire
from filestore.maintenance.partitions import drop_partitions
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.options.tag_schedule import SavepointSchedule, TagClock, TagSchedule
from filestore.refs.savepoint_files import SavedCheckpoint, Savepoint, find_savepoint, latest_savepoint_id
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from filestore.tag.automatic_tags import create_batch_tag, create_due_tags, creates_tags
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import expire_tags
from lsm.errors import FluvialError, InvalidInputError

logger = logging.getLogger("fluvial.housekeeping")

_EVERY_MS: Final = 10_000
_RECORDED_WITHIN_MS: Final = 10_000  # a batch that is committed, by Spark


class Housekeeping:
    """The expiry of one table for one writer. Not for use by several threads."""

    def __init__(
        self,
        store: TableStore,
        *,
        checkpoint: CheckpointPlace | None = None,
        every_ms: int = _EVERY_MS,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Start making tags and savepoints by the clock, if the table has such.

        Args:
            store: the table.
            checkpoint: checkpoint of the query that writes the table, which savepoints keep.
            every_ms: milliseconds between two checks of the clock.
            check: raises ConflictError when this writer may no longer change the table: nothing is deleted or created.
        """
        self._table = store
        self._check = check
        self._every_ms = every_ms
        self._due_ms = 0
        self._partitions_due_ms = 0
        self._tags_due_ms = 0
        is_async = store.options.snapshot_expire_execution_mode == "async"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fluvial-expiry") if is_async else None
        self._running: Future[None] | None = None
        self._tag_timer = _tag_timer(store, check)
        self._savepoints = PeriodicSavepoints.of(store, checkpoint, every_ms=every_ms, check=check)

    def before_batch(self) -> None:
        """Make a periodic savepoint if it is time. Never raises."""
        if self._savepoints is not None:
            self._savepoints.before_batch()

    def after_commit(self) -> None:
        """Delete what has expired, if it is time to look. Never raises."""
        if self._savepoints is not None:
            self._savepoints.after_batch()
        now_ms = self._table.clock.now_ms()
        if now_ms < self._due_ms or (self._running is not None and not self._running.done()):
            return
        self._due_ms = now_ms + self._every_ms
        if self._pool is None:
            self._run(now_ms)
        else:
            self._running = self._pool.submit(self._run, now_ms)

    def close(self) -> None:
        """Wait for what is running."""
        if self._tag_timer is not None:
            self._tag_timer.close()
        if self._savepoints is not None:
            self._savepoints.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, now_ms: int) -> None:
        try:
            self._check()
            self._make_tags()
            if now_ms >= self._partitions_due_ms:
                self._partitions_due_ms = now_ms + self._table.options.partition_expiration_check_interval_ms
                self._expire_partitions()
            if now_ms >= self._tags_due_ms:
                self._tags_due_ms = now_ms + self._every_ms
                self._expire_tags()
            self._expire_snapshots()
            self._expire_changelogs()
        except Exception:
            logger.warning("expiry failed, it will be tried again: table=%s", self._table.name, exc_info=True)

    def _make_tags(self) -> None:
        try:
            if creates_tags(self._table):
                create_due_tags(self._table)
        except Exception:
            logger.warning("no tags are made, it will be tried again: table=%s", self._table.name, exc_info=True)

    def _expire_snapshots(self) -> None:
        retention = Retention.of(self._table.options)
        steps = []
        for step in expire_snapshots(self._table, retention):
            steps.append(step)
            self._check()
        if len(steps) == retention.limit:
            self._due_ms = 0  # there is more
        if steps:
            logger.info(
                "snapshots expired: table=%s first=%d last=%d files=%d bytes=%d",
                self._table.name, steps[0].snapshot.id, steps[-1].snapshot.id,
                sum(len(step.data) + len(step.changelog) for step in steps), sum(step.size_bytes for step in steps),
            )  # fmt: skip

    def _expire_changelogs(self) -> None:
        for gone in expire_changelogs(self._table, Retention.of(self._table.options)):
            logger.info("changelog expired: table=%s snapshot=%d", self._table.name, gone.changelog_id)
            self._check()

    def _expire_tags(self) -> None:
        if self._table.options.tag_time_expire_enabled:
            for gone in expire_tags(self._table):
                logger.info("tag expired: table=%s tag=%s", self._table.name, gone.tag.name)

    def _expire_partitions(self) -> None:
        over = partitions_to_expire(self._table)
        if over:
            drop_partitions(self._table, [state.partition for state in over])
            names = ",".join(state.path for state in over)
            logger.info("partitions expired: table=%s partitions=%s", self._table.name, names)


def tag_batch(store: TableStore, result: CommitResult) -> None:
    """Make the tags that are due after a batch write, also that of the write itself. Never raises."""
    try:
        if result.snapshot is not None and not result.already_committed and creates_tags(store):
            create_due_tags(store)
            create_batch_tag(store, result.snapshot)
    except Exception:
        logger.warning("tags failed, the batch is committed: table=%s", store.name, exc_info=True)


_LONGEST_WAIT_S: Final = 60.0  # the clock may be set, and other processes delete tags
_SHORTEST_WAIT_MS: Final = 1000


class _Timer:
    """A thread that acts at the ends of periods, also while nothing is written."""

    def __init__(self, name: str, wait_ms: Callable[[], int], act: Callable[[], None]) -> None:
        """Start it; ``wait_ms`` says how long to wait for the next act, which never raises."""
        self._wait_ms = wait_ms
        self._act = act
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fluvial-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Act no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(min(self._wait_ms() / 1000, _LONGEST_WAIT_S)):
            self._act()


def _tag_timer(store: TableStore, check: Callable[[], object]) -> _Timer | None:
    """Makes tags by the clock, if the table has such; what is wrong with its options is logged."""
    try:
        schedule = TagSchedule.of(store.options)
    except InvalidInputError as error:
        logger.warning("no tags are made: table=%s error=%s", store.name, error)
        return None
    if schedule is None or schedule.clock is not TagClock.PROCESS_TIME:
        return None
    zone = schedule.zone

    def make() -> None:
        try:
            check()
            create_due_tags(store)
        except Exception:
            logger.warning("tags failed, it will be tried again: table=%s", store.name, exc_info=True)

    return _Timer("tags", lambda: schedule.wait_ms(zone.local_ms(store.clock.now_ms())), make)


class PeriodicSavepoints:
    """Makes savepoints between the batches of a stream: before one, and while none comes.

    Spark completes a batch's checkpoint only when the next batch starts, so savepoints are made then and not after the
    commit. A state that the newest savepoint has is not saved again.
    """

    def __init__(
        self,
        store: TableStore,
        schedule: SavepointSchedule,
        checkpoint: CheckpointPlace | None,
        *,
        every_ms: int,
        check: Callable[[], object],
    ) -> None:
        """See ``Housekeeping``."""
        self._table = store
        self._schedule = schedule
        self._checkpoint = checkpoint
        self._every_ms = every_ms
        self._check = check
        self._look_ms = 0  # when to look next
        self._is_in_batch = False
        self._lock = threading.Lock()  # held while a savepoint is made: a batch waits for its end
        self._timer = _Timer("savepoints", self._wait_ms, self._while_idle)

    @classmethod
    def of(
        cls, store: TableStore, checkpoint: CheckpointPlace | None, *, every_ms: int, check: Callable[[], object]
    ) -> "PeriodicSavepoints | None":
        """The periodic savepoints of a table; None: its options ask for none."""
        schedule = SavepointSchedule.of(store.options)
        return None if schedule is None else cls(store, schedule, checkpoint, every_ms=every_ms, check=check)

    def before_batch(self) -> None:
        """Make one if it is time. Never raises."""
        with self._lock:
            self._make_due(wait_ms=0)
            self._is_in_batch = True

    def after_batch(self) -> None:
        """The batch is committed; a batch that fails is followed by no savepoint."""
        self._is_in_batch = False

    def close(self) -> None:
        """Make no more."""
        self._timer.close()

    def _wait_ms(self) -> int:
        ahead_ms = self._look_ms - self._table.clock.now_ms()
        return ahead_ms if ahead_ms > 0 else max(self._every_ms, _SHORTEST_WAIT_MS)

    def _while_idle(self) -> None:
        with self._lock:
            if not self._is_in_batch:
                self._make_due(wait_ms=_RECORDED_WITHIN_MS)

    def _make_due(self, *, wait_ms: int) -> None:
        now_ms = self._table.clock.now_ms()
        if now_ms < self._look_ms:
            return
        try:
            self._check()
            newest = latest_savepoint_id(self._table)
            saved = None if newest is None else find_savepoint(self._table, newest)
            due_ms, latest_id = self._due_ms(saved), self._table.snapshots.latest_id()
            if now_ms >= due_ms and latest_id not in (None, None if saved is None else saved.saved_snapshot_id):
                saved = create_savepoint(self._table, keep_checkpoints=partial(self._keep, wait_ms=wait_ms))
                due_ms = self._due_ms(saved)
                logger.info(
                    "savepoint created: table=%s savepoint=%d snapshot=%d checkpoints=%d",
                    self._table.name, saved.id, saved.saved_snapshot_id, len(saved.checkpoints),
                )  # fmt: skip
            self._look_ms = due_ms
        except Exception:
            self._look_ms = now_ms + self._every_ms
            logger.warning("no savepoint, it will be tried again: table=%s", self._table.name, exc_info=True)

    def _due_ms(self, saved: Savepoint | None) -> int:
        first = self._table.snapshots.find(FIRST_SNAPSHOT_ID) if saved is None else None
        return self._schedule.due_ms(
            None if saved is None else saved.save_time_ms, began_ms=None if first is None else first.time_ms
        )

    def _keep(self, snapshot: Snapshot, *, wait_ms: int) -> list[SavedCheckpoint]:
        """The checkpoint as of a snapshot; a savepoint without it is better than none."""
        if self._checkpoint is None:
            return []
        try:
            return [keep_checkpoint(self._table, snapshot, self._checkpoint, wait_ms=wait_ms)]
        except (FluvialError, OSError) as error:
            logger.warning("savepoint without a checkpoint: table=%s reason=%s", self._table.name, error)
            return []
