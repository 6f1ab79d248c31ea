"""Expiry of snapshots, tags and partitions after the commits of a stream, and the tags and savepoints that are due.

It runs every few seconds, not with each commit, and its cost grows with what is deleted. Nothing of it may stop the
stream: what fails is logged, and tried again. ``snapshot.expire.execution-mode=async`` does it beside the next batch.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from engine.checkpoint.saved_checkpoints import CheckpointPlace, keep_checkpoint
from filestore.commit.table_commit import CommitResult
from filestore.maintenance.partition_expiry import partitions_to_expire
from filestore.maintenance.partitions import drop_partitions
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots
from filestore.options.tag_schedule import TagClock, TagSchedule
from filestore.refs.savepoint_files import SavedCheckpoint, find_savepoint, latest_savepoint_id
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.automatic_tags import create_batch_tag, create_due_tags, creates_tags
from filestore.tag.savepoints import create_savepoint, is_savepoint_due
from filestore.tag.tags import expire_tags
from lsm.errors import FluvialError, InvalidInputError

logger = logging.getLogger("fluvial.housekeeping")

_EVERY_MS: Final = 10_000


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
        """Start making tags by the clock, if the table has such.

        Args:
            store: to look after.
            checkpoint: of the query that writes the table, to be kept with savepoints.
            every_ms: time between two looks.
            check: raises ConflictError when this writer may not change the table any more: nothing is deleted or made.
        """
        self._table = store
        self._check = check
        self._checkpoint = checkpoint
        self._every_ms = every_ms
        self._saved_ms: int | None = None
        self._save_due_ms = 0
        self._due_ms = 0
        self._partitions_due_ms = 0
        self._tags_due_ms = 0
        is_async = store.options.snapshot_expire_execution_mode == "async"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fluvial-expiry") if is_async else None
        self._running: Future[None] | None = None
        self._timer = TagTimer(store, check)

    def before_batch(self) -> None:
        """Make a periodic savepoint if it is time. Never raises.

        The checkpoint is complete for the batch before only now; behind the commit of that batch it is not.
        """
        now_ms = self._table.clock.now_ms()
        if now_ms < self._save_due_ms or not self._is_savepoint_due(now_ms, self._saved_ms):
            return
        try:
            self._check()
            newest = latest_savepoint_id(self._table)
            saved = None if newest is None else find_savepoint(self._table, newest)
            self._saved_ms = None if saved is None else saved.save_time_ms
            if self._table.snapshots.latest_id() is None or not self._is_savepoint_due(now_ms, self._saved_ms):
                return
            saved = create_savepoint(self._table, keep_checkpoints=self._keep)
            self._saved_ms = saved.save_time_ms
            logger.info(
                "savepoint created: table=%s savepoint=%d snapshot=%d checkpoints=%d",
                self._table.name, saved.id, saved.saved_snapshot_id, len(saved.checkpoints),
            )  # fmt: skip
        except Exception:
            self._save_due_ms = now_ms + self._every_ms
            logger.warning("no savepoint, it will be tried again: table=%s", self._table.name, exc_info=True)

    def after_commit(self) -> None:
        """Delete what has expired, if it is time to look. Never raises."""
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
        self._timer.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _is_savepoint_due(self, now_ms: int, last_ms: int | None) -> bool:
        options = self._table.options
        zone = options.sink_process_time_zone
        return is_savepoint_due(
            now_ms=zone.local_ms(now_ms),
            last_ms=None if last_ms is None else zone.local_ms(last_ms),
            interval_ms=options.savepoint_create_interval_ms,
            time_of_day_ms=options.savepoint_create_time_ms,
        )

    def _keep(self, snapshot: Snapshot) -> list[SavedCheckpoint]:
        """The checkpoint as of a snapshot; a savepoint without it is better than none."""
        if self._checkpoint is None:
            return []
        try:
            return [keep_checkpoint(self._table, snapshot, self._checkpoint, wait_ms=0)]
        except (FluvialError, OSError) as error:
            logger.warning("savepoint without a checkpoint: table=%s reason=%s", self._table.name, error)
            return []

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


logger = logging.getLogger("fluvial.housekeeping")

_LONGEST_WAIT_S: Final = 60.0  # the clock may be set, and other processes delete tags


class TagTimer:
    """A thread that waits for the ends of periods."""

    def __init__(self, store: TableStore, check: Callable[[], object] = lambda: None) -> None:
        """Start it, if the table has tags by the clock; what is wrong with its options is logged."""
        self._table = store
        self._check = check
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            schedule = TagSchedule.of(store.options)
        except InvalidInputError as error:
            logger.warning("no tags are made: table=%s error=%s", store.name, error)
            return
        if schedule is not None and schedule.clock is TagClock.PROCESS_TIME:
            self._thread = threading.Thread(target=self._run, args=(schedule,), name="fluvial-tags", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Make no more tags."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, schedule: TagSchedule) -> None:
        while not self._ended.wait(min(self._wait_ms(schedule) / 1000, _LONGEST_WAIT_S)):
            try:
                self._check()
                create_due_tags(self._table)
            except Exception:
                logger.warning("tags failed, it will be tried again: table=%s", self._table.name, exc_info=True)

    def _wait_ms(self, schedule: TagSchedule) -> int:
        return schedule.wait_ms(schedule.zone.local_ms(self._table.clock.now_ms()))
