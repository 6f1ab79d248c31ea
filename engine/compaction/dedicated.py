"""Back-pressure for writers that leave compaction to a job of its own (``write-only``).

Such a writer sees the number of sorted runs that readers have to merge, and slows down for the job as it would for a
compaction beside it: a moment above the soft limit, at ``num-sorted-run.stop-trigger`` until the number has come down.
A job that does not run is not waited for: it is known by its commits among the newest snapshots, and when none comes
for ``write.backpressure.timeout`` the writer continues with a warning.
"""

import logging
import time
from collections.abc import Callable
from itertools import islice

from engine.compaction.background import SOFT_WAIT_S, CompactionDebt, Pressure, compaction_debt, warn_of_debt
from engine.request.writer_options import WriterOptions
from engine.runtime.metrics import COMPACTION_WAIT
from filestore.compact.awaited import compact_written, is_awaited
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind
from filestore.table_store import TableStore

logger = logging.getLogger("fluvial.compaction")

_LOOK_S = 0.5
_NONE = 0


class DedicatedCompaction:
    """The job that compacts a table, as one of the table's writers sees it."""

    def __init__(
        self,
        store: TableStore,
        *,
        sleep: Callable[[float], None] = time.sleep,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Prepare to wait.

        Args:
            store: that is written.
            sleep: waits.
            seconds: a clock that never goes back.
        """
        self._table = store
        self._sleep = sleep
        self._seconds = seconds
        self._pressure = Pressure.of(store.options)
        self._timeout_s: float = store.options.write_backpressure_timeout_ms / 1000
        self._given_up_at = _NONE  # the newest compaction when the job was not waited for any longer

    def before_batch(self, live: LiveFiles) -> float:
        """Hold a batch back while readers would suffer and the job is at work; return the seconds that it waited.

        Args:
            live: the writer's view; advanced.
        """
        if not (self._pressure.soft or self._pressure.hard):
            return 0.0
        began = self._seconds()
        debt = self._debt(live)
        if debt.over_stop and self._pressure.hard and self._is_at_work(live):
            self._wait(live, debt)
        elif debt.over_soft and self._pressure.soft and self._is_at_work(live):
            self._sleep(SOFT_WAIT_S)
        waited = self._seconds() - began
        COMPACTION_WAIT.labels(self._table.name).inc(waited)
        return waited

    def _wait(self, live: LiveFiles, debt: CompactionDebt) -> None:
        runs, stop = debt.most_runs, self._table.options.run_count_stop_trigger
        logger.info(
            "batch waits for the job that compacts: table=%s runs=%d stop_trigger=%d", self._table.name, runs, stop
        )
        newest, since = self._newest_compaction(live), self._seconds()
        while debt.over_stop:
            self._sleep(_LOOK_S)
            debt = self._debt(live)
            found = self._newest_compaction(live)
            if found != newest:
                newest, since = found, self._seconds()
            elif self._seconds() - since >= self._timeout_s and debt.over_stop:
                self._given_up_at = newest
                logger.warning(
                    "the job that compacts makes no progress, the batch continues: table=%s runs=%d stop_trigger=%d "
                    "waited_s=%.0f fix='check that fluvial compact --watch runs, or set write.backpressure=off'",
                    self._table.name, debt.most_runs, stop, self._timeout_s,
                )  # fmt: skip
                return

    def _is_at_work(self, live: LiveFiles) -> bool:
        return self._newest_compaction(live) > self._given_up_at

    def _newest_compaction(self, live: LiveFiles) -> int:
        """The newest compaction among twice as many snapshots as runs stop a writer; 0: there is none."""
        newest = islice(self._table.snapshots.back_from(live.snapshot), 2 * self._table.options.run_count_stop_trigger)
        return next((each.id for each in newest if each.commit_kind is CommitKind.COMPACT), _NONE)

    def _debt(self, live: LiveFiles) -> CompactionDebt:
        live.advance()
        return compaction_debt(self._table, live, live.buckets())


def waits_for_others(store: TableStore, writer: WriterOptions) -> bool:
    """Whether a writer leaves compaction to others, in a table where that costs readers."""
    return store.has_key and is_write_only(store, writer)


def compact_after_batch(store: TableStore, writer: WriterOptions, live: LiveFiles) -> None:
    """Compact after a batch job's commit, so that many small batches do not pile up. Never raises.

    With ``commit.force-compact``, or where readers wait for it, all that is worth it; else the buckets that have come
    to ``num-sorted-run.stop-trigger``, so that a bucket costs its writers one merge in so many batches.

    Args:
        store: the table that was written.
        writer: its options; with ``write-only`` nothing is done.
        live: the files after the commit.
    """
    if is_write_only(store, writer):
        return
    forced = store.options.commit_force_compact
    compact_written(store, forced=forced)
    if forced or is_awaited(store):
        return
    stop = store.options.run_count_stop_trigger
    over = {*compaction_debt(store, live, (key for key in live.buckets() if live.file_count(key) >= stop)).over_stop}
    if over:
        compact_written(store, keep=over.__contains__, forced=True)
        live.advance()
        warn_of_debt(store, live)  # others were faster again and again, or it failed


def is_write_only(store: TableStore, writer: WriterOptions) -> bool:
    """Whether a writer leaves compaction and expiry to others."""
    return writer.is_write_only(store.options)
