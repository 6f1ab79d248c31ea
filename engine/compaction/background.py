"""Compaction beside the stream: picked after a commit, run elsewhere, committed on its own.

A compaction that loses to another commit is abandoned; the data never is. What holds a batch back is only the number
of sorted runs that readers would have to merge: above the soft limit a batch waits a moment for a running compaction,
at ``num-sorted-run.stop-trigger`` it waits until the number has come down.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from engine.runtime.metrics import COMPACTION_FAILURES, COMPACTION_WAIT, record_compaction
from filestore.commit.table_commit import replace_compacted
from filestore.compact.awaited import is_awaited, waits_for_compaction
from filestore.compact.compactor import pick_tasks
from filestore.compact.strategy import commits_until_full, watches_the_clock
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.options.table_options import TableOptions
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.snapshot import SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError

logger = logging.getLogger("fluvial.compaction")

RunTasks = Callable[[Sequence[CompactionTask]], list[CommitMessage]]
"""Carries out tasks somewhere and returns what each wrote, in any order."""

SOFT_WAIT_S: Final = 1.0
_TASKS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """How ``write.backpressure`` holds batches back."""

    soft: bool  # for a moment, above the soft limit
    hard: bool  # until it is better, at the stop trigger

    @classmethod
    def of(cls, options: TableOptions) -> "Pressure":
        """Parse ``write.backpressure``."""
        words = str(options.write_backpressure).split("+")
        return cls(soft="soft" in words, hard="hard" in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDebt:
    """How far behind compaction is."""

    most_runs: int  # sorted runs of the worst bucket
    over_soft: tuple[BucketKey, ...]
    over_stop: tuple[BucketKey, ...]


def compaction_debt(store: TableStore, live: LiveFiles, keys: Iterable[BucketKey]) -> CompactionDebt:
    """Count the sorted runs of buckets. The soft limit lies half-way between compaction trigger and stop trigger.

    Files of a table without a key are read one after the other, however many there are: no batch waits for them.
    """
    options = store.options
    if not store.has_key:
        return CompactionDebt(most_runs=0, over_soft=(), over_stop=())
    soft = (options.run_count_trigger + options.run_count_stop_trigger) // 2
    runs = {key: len(live.levels(key).runs) for key in keys}
    return CompactionDebt(
        most_runs=max(runs.values(), default=0),
        over_soft=tuple(key for key, count in runs.items() if count > soft),
        over_stop=tuple(key for key, count in runs.items() if count >= options.run_count_stop_trigger),
    )


def warn_of_debt(store: TableStore, live: LiveFiles) -> None:
    """Say what a batch write leaves to others, at the stop trigger and each time that the runs have doubled.

    Args:
        store: the table that was written.
        live: its files.
    """
    stop = store.options.run_count_stop_trigger
    found = compaction_debt(store, live, (key for key in live.buckets() if live.file_count(key) >= stop))
    times, rest = divmod(found.most_runs, stop)
    if times and not rest and times.bit_count() == 1:
        logger.warning(
            "sorted runs pile up, which makes reads slow: table=%s runs=%d buckets=%d num-sorted-run.stop-trigger=%d "
            "fix='fluvial compact %s, the option commit.force-compact=true, or Table.writer for many small writes'",
            store.name, found.most_runs, len(found.over_stop), stop, store.name,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFailures:
    """What went wrong beside a stream. It costs no data, but readers merge more and more runs."""

    count: int = 0
    last: str | None = None  # reason of the newest one, in one line


class BackgroundCompaction:
    """Compactions of one table for one writer. One runs at a time; each is one commit of several buckets."""

    def __init__(self, store: TableStore, run_tasks: RunTasks, *, check: Callable[[], object] = lambda: None) -> None:
        """Start idle.

        Args:
            store: to compact.
            run_tasks: where the work is done.
            check: raises ConflictError when this writer may no longer change the table.
        """
        self._table = store
        self._run_tasks = run_tasks
        self._check = check
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fluvial-compaction")
        self._running: Future[None] | None = None
        self._changed: set[BucketKey] = set()
        self._is_enabled = True
        self._commits_until_full = commits_until_full(store.options)
        self._commits = 0  # since everything was merged into one run
        self._since_full: set[BucketKey] | None = None  # buckets that changed since; None: any may have
        self._waits = store.options.commit_force_compact or (
            (store.options.changelog_producer == "lookup" or waits_for_compaction(store)) and store.options.lookup_wait
        )
        self.is_awaited = bool(store.options.commit_force_compact) or is_awaited(store)  # behind each commit
        self._failures = CompactionFailures()
        self._pressure = Pressure.of(store.options)

    @property
    def failures(self) -> CompactionFailures:
        """Failures so far; a compaction that lost to another commit is none."""
        return self._failures

    def before_batch(self, live: LiveFiles) -> float:
        """Hold a batch back while readers would suffer; return the seconds that it waited.

        Args:
            live: the writer's view; advanced while waiting.
        """
        if not self._is_enabled:
            return 0.0
        began = time.perf_counter()
        debt = self._debt(live)
        if self._pressure.soft and debt.over_soft and self._running is not None and not self._running.done():
            self._wait(SOFT_WAIT_S)
            debt = self._debt(live)
        while self._pressure.hard and debt.over_stop:
            if self._running is None or self._running.done():
                self._start(live)
            self._wait(None)
            before = debt
            debt = self._debt(live)
            if debt.over_stop and debt.most_runs >= before.most_runs:
                logger.warning(
                    "compaction does not bring the number of sorted runs down: table=%s runs=%d stop_trigger=%d",
                    self._table.name, debt.most_runs, self._table.options.run_count_stop_trigger,
                )  # fmt: skip
                break
        waited = time.perf_counter() - began
        COMPACTION_WAIT.labels(self._table.name).inc(waited)
        if waited > SOFT_WAIT_S:
            logger.info("batch waited for compaction: table=%s seconds=%.1f", self._table.name, waited)
        return waited

    def after_commit(self, live: LiveFiles) -> None:
        """Start what is worth it, unless a compaction is running; wait for it if readers wait for its changelog."""
        if not self._is_enabled:
            return
        self._commits += 1
        self._look(live)
        while True:
            if (self._running is None or self._running.done()) and not self._start(live):
                return  # nothing is left
            if not self._waits:
                return
            before = live.snapshot_id
            self._wait(None)
            self._look(live)
            if live.snapshot_id == before:
                return  # it failed or conflicted: the next batch tries again

    def close(self) -> None:
        """Wait for the running compaction, and start no other."""
        self._is_enabled = False
        self._pool.shutdown()

    def _look(self, live: LiveFiles) -> None:
        changed = live.advance()
        self._changed |= changed
        if self._since_full is not None:
            self._since_full |= changed

    def _debt(self, live: LiveFiles) -> CompactionDebt:
        self._look(live)
        return compaction_debt(self._table, live, live.buckets())

    def _start(self, live: LiveFiles) -> bool:
        """Start what is worth most; whether there was anything."""
        tasks = self._pick(live)
        self._changed.clear()
        most = len(tasks) if self._waits else _TASKS_AT_ONCE  # a batch that waits gets all its changes by one commit
        chosen, left = tasks[:most], tasks[most:]
        self._changed |= {task.key for task in left}
        if chosen:
            self._running = self._pool.submit(self._compact, chosen, live.ref)
        return bool(chosen)

    def _pick(self, live: LiveFiles) -> list[CompactionTask]:
        if self._commits_until_full is not None and self._commits >= self._commits_until_full:
            # Buckets picked now are looked at again next time: their compaction may fail, or not be among the first.
            tasks = pick_tasks(self._table, live, keys=self._since_full, full=True)
            self._since_full = {task.key for task in tasks}
            self._commits = 0 if len(tasks) <= _TASKS_AT_ONCE else self._commits
            return tasks
        changed = [] if watches_the_clock(self._table.options) else [k for k in self._changed if live.file_count(k)]
        keys = changed or list(live.buckets())
        return pick_tasks(self._table, live, keys=keys)

    def _wait(self, timeout_s: float | None) -> None:
        if self._running is not None:
            try:
                self._running.result(timeout_s)
            except TimeoutError:
                return

    def _compact(self, tasks: Sequence[CompactionTask], base: SnapshotRef) -> None:
        """Never raises: a compaction that fails leaves the table as it was, and the next one tries again."""
        began = time.perf_counter()
        try:
            self._check()
            messages = [message for message in self._run_tasks(tasks) if not message.is_empty]
            if not messages:
                return
            replace_compacted(self._table, messages, base, check=self._check)
        except ConflictError as error:
            logger.info("compaction abandoned: table=%s reason=%s", self._table.name, error)
        except OutcomeUnknownError as error:
            self._note(error)
            logger.warning("compaction may be visible, its files stay: table=%s reason=%s", self._table.name, error)
        except Exception as error:
            self._note(error)
            logger.warning("compaction failed: table=%s", self._table.name, exc_info=True)
        else:
            seconds, size_bytes = time.perf_counter() - began, sum(task.size_bytes for task in tasks)
            record_compaction(self._table.name, size_bytes=size_bytes, seconds=seconds)
            logger.info(
                "compacted: table=%s buckets=%d files=%d→%d bytes=%d seconds=%.2f reasons=%s",
                self._table.name, len(messages), sum(len(m.compact_before) for m in messages),
                sum(len(m.compact_after) for m in messages), size_bytes,
                seconds, ",".join(sorted({task.reason.value for task in tasks})),
            )  # fmt: skip

    def _note(self, error: Exception) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        COMPACTION_FAILURES.labels(self._table.name).inc()
        self._failures = CompactionFailures(count=self._failures.count + 1, last=reason)
