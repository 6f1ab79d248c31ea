"""A dedicated compaction job, for tables with writers that leave compaction to others (``write-only``).

Each table is checked on its own schedule: soon after there was something to do, less and less often when it is idle or
failing. The cost of a check grows with the commits since the last one. A check ends with one commit, so a stop never
loses more than the running tasks. Expiry, which such writers also skip, runs afterwards. Source: Paimon "Dedicated
Compaction".
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from engine.catalog import Catalog
from engine.runtime.metrics import COMPACTION_FAILURES, record_compaction
from engine.write.housekeeping import Housekeeping
from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult, replace_compacted
from filestore.compact.compactor import pick_tasks, run_task
from filestore.compact.postpone import distribute
from filestore.compact.strategy import watches_the_clock
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from lsm.undo import undoing

_SLOWER: Final = 2.0

Choice = Callable[[TableStore], Callable[[BucketKey], bool]]
"""For a table in its current state: whether to compact a bucket."""


def every_bucket(_table: TableStore) -> Callable[[BucketKey], bool]:
    """Chooses all buckets."""
    return lambda _key: True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """Schedule and limits of a compaction job."""

    is_full: bool = False  # compact each bucket into one run
    interval_s: float = 10.0  # between checks of a changing table
    most_wait_s: float = 120.0  # maximum between checks of an idle or failing table
    parallelism: int = 1  # concurrent tasks
    buckets_per_commit: int = 8

    def next_wait_s(self, last_s: float) -> float:
        """Seconds until the next check of an idle table, after an interval of ``last_s``."""
        return min(max(last_s * _SLOWER, self.interval_s), max(self.most_wait_s, self.interval_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A result or failure of a compaction job."""

    table: str
    event: str
    """compacted, distributed (postponed rows), overtaken (a concurrent commit won; retried), failed, refused, gone"""
    snapshot_id: int | None = None  # of the commit
    buckets: int = 0
    files_before: int = 0
    files_after: int = 0
    size_before_bytes: int = 0
    size_after_bytes: int = 0
    tasks_left: int = 0  # picked, but not started
    seconds: float = 0.0
    error: str | None = None
    retry_s: float | None = None

    def as_json(self) -> Mapping[str, Any]:
        """All fields with a value, as JSON values for scripts."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class CompactionJob:
    """Compacts tables until it is stopped. Not thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        names: Callable[[], Sequence[str]],
        *,
        policy: JobPolicy,
        on_event: Callable[[JobEvent], None],
        choice: Choice = every_bucket,
        must_exist: bool = False,
    ) -> None:
        """Create the job.

        Args:
            catalog: the catalog of the tables.
            names: returns the tables to watch, ``database.table``; called repeatedly, as tables come and go.
            policy: schedule and limits.
            on_event: called with each result or failure, in the thread that runs the job.
            choice: chooses the buckets.
            must_exist: a missing table, or one that Fluvial cannot compact, ends the job with an error.
        """
        self._catalog, self._names, self._policy = catalog, names, policy
        self._on_event, self._choice, self._must_exist = on_event, choice, must_exist
        self._watches: dict[str, _Watch] = {}

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set; running tasks are completed and committed.

        Raises:
            InvalidInputError: with ``must_exist``, a table is missing or cannot be compacted by Fluvial.
        """
        try:
            while not stop.is_set():
                names = self._names()
                for name in sorted(set(self._watches) - set(names)):
                    self._watches.pop(name).close()
                for name in names:
                    watch = self._watches.setdefault(name, _Watch(name, self._policy))
                    if watch.due_s <= time.monotonic() and not stop.is_set():
                        self._check(watch, stop)
                nearest_s = min((each.due_s for each in self._watches.values()), default=float("inf"))
                stop.wait(min(max(nearest_s - time.monotonic(), 0.0), self._policy.interval_s))
        finally:
            for watch in self._watches.values():
                watch.close()

    def _check(self, watch: "_Watch", stop: threading.Event) -> None:
        try:
            done = watch.compact(self._catalog, self._choice, stop)
        except InvalidInputError as error:
            if self._must_exist:
                raise
            if watch.wait_longer(error):
                self._report(watch, "refused" if self._catalog.table_exists(watch.name) else "gone", error)
        except ConflictError as error:
            watch.wait_longer(error)
            self._report(watch, "overtaken", error)
        except (FluvialError, OSError) as error:
            COMPACTION_FAILURES.labels(watch.name).inc()
            watch.wait_longer(error)
            self._report(watch, "failed", error)
        else:
            for event in done:
                self._on_event(event)

    def _report(self, watch: "_Watch", event: str, error: Exception) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        self._on_event(JobEvent(table=watch.name, event=event, error=reason, retry_s=watch.wait_s))


class _Watch:
    """One table, and the time of its next check."""

    def __init__(self, name: str, policy: JobPolicy) -> None:
        self.name = name
        self.due_s = 0.0  # on the monotonic clock
        self.wait_s = 0.0  # interval before the last check; 0: there was something to do
        self._policy = policy
        self._store: TableStore | None = None
        self._live: LiveFiles | None = None
        self._housekeeping: Housekeeping | None = None
        self._pending: set[BucketKey] = set()  # buckets that may need compaction
        self._failures: dict[BucketKey, Exception] = {}  # buckets skipped until the next interval
        self._last_refusal = ""

    def compact(self, catalog: Catalog, choice: Choice, stop: threading.Event) -> list[JobEvent]:
        """Compact the most urgent buckets in one commit. Raises: FluvialError, OSError; then nothing is visible."""
        started_s = time.perf_counter()
        store, live, has_news = self._advanced(catalog)
        keep = choice(store)
        events = self._distribute(store, live, keep)
        self._pending = {key for key in self._pending if live.file_count(key)}
        keys = [key for key in self._pending if key not in self._failures and keep(key)]
        # with this changelog producer, only full compactions emit changes
        is_full = self._policy.is_full or store.options.changelog_producer == "full-compaction"
        tasks = pick_tasks(store, live, keys=keys, full=is_full)
        if not watches_the_clock(store.options):
            self._pending -= {*keys} - {task.key for task in tasks}
        if tasks:
            events += self._compact(store, live, tasks, stop, started_s)  # the next check follows at once
            self.wait_s = 0.0 if events else self.wait_s
        else:
            self._wait(0.0 if (has_news or events) and not self._failures else self.wait_s)
            events += [self._failure(key, error) for key, error in self._failures.items()]
            self._failures.clear()
        assert self._housekeeping is not None
        self._housekeeping.after_commit()
        return events

    def wait_longer(self, error: Exception) -> bool:
        """Schedule the next check after a failure; returns whether the error differs from the last one."""
        self._wait(self.wait_s)
        previous, self._last_refusal = self._last_refusal, str(error)
        return previous != self._last_refusal

    def close(self) -> None:
        """Wait for running expiration."""
        if self._housekeeping is not None:
            self._housekeeping.close()

    def _advanced(self, catalog: Catalog) -> tuple[TableStore, LiveFiles, bool]:
        """The table with its newest options, its newest files, and whether files changed."""
        store = catalog.table(self.name).store
        if self._store is not None and self._live is not None and store.schema == self._store.schema:
            changed = self._live.advance()
            self._pending |= changed
            return self._store, self._live, bool(changed)
        self.close()
        self._store, self._live, self._housekeeping = store, LiveFiles.latest(store), Housekeeping(store)
        self._pending = set(self._live.buckets())
        return store, self._live, True

    def _distribute(self, store: TableStore, live: LiveFiles, keep: Callable[[BucketKey], bool]) -> list[JobEvent]:
        """Move the rows of the postpone bucket to their buckets."""
        started_s = time.perf_counter()
        distribution = distribute(store, keep=keep) if any(live.postponed()) else None
        if distribution is None:
            return []
        self._pending |= live.advance()
        seconds = time.perf_counter() - started_s
        return [
            replace(
                _compacted(self.name, distribution.committed, distribution.messages, left=0, seconds=seconds),
                event="distributed",
            )
        ]

    def _compact(
        self,
        store: TableStore,
        live: LiveFiles,
        tasks: Sequence[CompactionTask],
        stop: threading.Event,
        started_s: float,
    ) -> list[JobEvent]:
        done = self._run(store, tasks[: self._policy.buckets_per_commit], stop)
        messages = [message for _, message in done if not message.is_empty]
        if messages:
            committed = replace_compacted(store, messages, live.ref)
            seconds = time.perf_counter() - started_s
            record_compaction(self.name, size_bytes=sum(task.size_bytes for task, _ in done), seconds=seconds)
        self._pending -= {task.key for task, _ in done}  # those that changed come back with the next snapshot
        if not messages:
            return []
        left = len(tasks) - len(done) - sum(task.key in self._failures for task in tasks)
        return [_compacted(self.name, committed, messages, left=left, seconds=seconds)]

    def _run(
        self, store: TableStore, tasks: Sequence[CompactionTask], stop: threading.Event
    ) -> list[tuple[CompactionTask, CommitMessage]]:
        """Run tasks and collect failures. When interrupted, new files are deleted."""
        done: list[tuple[CompactionTask, CommitMessage]] = []

        def run(task: CompactionTask) -> None:
            if not stop.is_set():
                try:
                    done.append((task, run_task(store, task)))
                except (FluvialError, OSError) as error:
                    self._failures[task.key] = error

        with undoing(lambda: discard(store, [message for _, message in done])):
            if self._policy.parallelism == 1:
                for task in tasks:
                    run(task)
            else:
                with ThreadPoolExecutor(self._policy.parallelism, thread_name_prefix="fluvial-compaction") as pool:
                    list(pool.map(run, tasks))
        return done

    def _failure(self, key: BucketKey, error: Exception) -> JobEvent:
        COMPACTION_FAILURES.labels(self.name).inc()
        reason = " ".join(f"{type(error).__name__}: {error} bucket={key.bucket}".split())
        return JobEvent(table=self.name, event="failed", error=reason, retry_s=self.wait_s)

    def _wait(self, last_s: float) -> None:
        self.wait_s = self._policy.next_wait_s(last_s)
        self.due_s = time.monotonic() + self.wait_s


def _compacted(
    name: str, committed: CommitResult, messages: Sequence[CommitMessage], *, left: int, seconds: float
) -> JobEvent:
    before = [file for message in messages for file in message.compact_before]
    after = [file for message in messages for file in message.files_after]
    return JobEvent(
        table=name,
        event="compacted",
        snapshot_id=None if committed.snapshot is None else committed.snapshot.id,
        buckets=len(messages),
        files_before=len(before),
        files_after=len(after),
        size_before_bytes=sum(file.size_bytes for file in before),
        size_after_bytes=sum(file.size_bytes for file in after),
        tasks_left=left,
        seconds=round(seconds, 3),
    )
