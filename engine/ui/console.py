"""What the console knows of a warehouse: read as commands read, kept while nothing changes, and never waited for long.

Facts of tables are measured by two threads, only when a page asks for them: a page shows what is known by now, and the
next look of the browser the rest. Nothing is written to the warehouse but what an action asks for.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.catalog import Catalog
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Symptom
from engine.monitor.table_probe import CommitFacts
from engine.monitor.topic_state import unreached_brokers
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.options.effective import Layer
from filestore.snapshot.snapshot import Snapshot
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.ui")

_PATIENCE_S: Final = 0.2  # of a page that waits for facts
_LISTED_S: Final = 4.0
_LOG_S: Final = 8.0  # then the end of a log is asked for again
_AWAY_S: Final = 30.0  # then brokers that did not answer are asked again
_UNSEEN_S: Final = 30.0  # then a table that no page shows is looked at again, where pages are sorted by facts
_SHARE: Final = 20  # what took a second is done again after this many
_RATE_MS: Final = 300_000  # of commits that rates are of
MINUTES: Final = 15
"""That pages draw."""
_MOST_KEPT: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What was written in a minute."""

    commits: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table at its newest snapshot."""

    name: str
    snapshot: Snapshot | None = None
    row_count: int = 0  # in files, deletes and older versions included
    size_bytes: int = 0
    file_count: int = 0
    max_runs: int = 0
    debt_bytes: int = 0  # that the next compactions read
    rows_per_s: float = 0.0
    minutes: Mapping[int, Minute] = field(default_factory=dict)  # by minutes since the epoch
    log_lag: int | None = None  # rows of the log that no snapshot has; None: no log, or unknown
    findings: tuple[Symptom, ...] = ()  # of the doctor, worst first
    problem: str | None = None  # why nothing else is known
    schema_id: int = 0
    measured: Snapshot | None = None  # of which the rest is
    at_s: float = field(default=0.0, compare=False)  # when it was measured, of ``time.monotonic``
    cost_s: float = field(default=0.0, compare=False)

    def rate(self) -> float:
        """Rows a second of the last minutes; 0 when nothing was committed in them."""
        is_quiet = self.snapshot is None or time.time() * 1000 - self.snapshot.time_ms > _RATE_MS
        return 0.0 if is_quiet else self.rows_per_s

    def last_minutes(self) -> list[Minute]:
        """The last minutes up to now, oldest first."""
        now = int(time.time()) // 60
        return [self.minutes.get(each, Minute()) for each in range(now - MINUTES + 1, now + 1)]


def minutes_of(commits: Sequence[CommitFacts], known: TableFacts | None, now_ms: int) -> dict[int, Minute]:
    """The last minutes with commits: what is known of them, and what came since.

    Args:
        commits: the newest snapshots, newest first.
        known: of an earlier look; None: there was none.
        now_ms: epoch milliseconds.
    """
    newest_id = commits[0].snapshot.id if commits else 0
    first, since_id = now_ms // 60_000 - MINUTES, 0
    found: dict[int, Minute] = {}
    if known is not None and known.measured is not None and known.measured.id <= newest_id:  # not rolled back since
        since_id = known.measured.id
        found = {at: each for at, each in known.minutes.items() if at >= first}
    for each in commits:
        at = each.snapshot.time_ms // 60_000
        if each.snapshot.commit_kind.changes_rows and at >= first and each.snapshot.id > since_id:
            before = found.get(at, Minute())
            found[at] = Minute(commits=before.commits + 1, rows=before.rows + each.added_rows)
    return found


class Kept:
    """The newest value of each key. What is slow is not computed more often than it is worth."""

    def __init__(self, most: int) -> None:
        """``most``: keys; the one that was asked for longest ago goes first."""
        self._most, self._lock = most, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[Any, float, float, Any]] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, version: Any, make: Callable[[], Any]) -> Any:
        """The value of a key, computed where there is none or it is of another version; errors are not kept."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            now_s = time.monotonic()
            known = self._found.get(key)
            if known is not None and (known[0] == version or now_s - known[1] < _SHARE * known[2]):
                with self._lock:
                    if key in self._found:
                        self._found.move_to_end(key)
                return known[3]
            try:
                value = make()
            except Exception:
                with self._lock:
                    if key not in self._found:
                        self._locks.pop(key, None)
                raise
            end_s = time.monotonic()
        with self._lock:
            self._found[key] = (version, end_s, end_s - now_s, value)
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._locks.pop(self._found.popitem(last=False)[0], None)
        return value


class Console:
    """One warehouse for all browsers."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        job_files: Sequence[str] = (),
        layers: Sequence[Layer] = (),
        allows_actions: bool = False,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Nothing is read yet.

        Args:
            catalog: of the warehouse.
            job_files: paths, of which the pipelines and databases are shown.
            layers: the options of the catalog by origin, weakest first.
            allows_actions: whether pages may resume and skip parked tables.
            patience_s: how long a page waits for facts.
        """
        self.catalog, self.job_files, self.layers = catalog, tuple(job_files), tuple(layers)
        self.allows_actions = allows_actions
        self.kept = Kept(_MOST_KEPT)
        self._patience_s = patience_s
        self._names: tuple[float, list[str], list[TableFacts]] | None = None
        self._tables: dict[str, Table] = {}
        self._facts: dict[str, TableFacts] = {}
        self._seen_s: dict[str, float] = {}
        self._running: dict[str, Future[None]] = {}
        self._away: dict[str, tuple[float, str | None]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="fluvial-console")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)

    def names(self) -> tuple[list[str], list[TableFacts]]:
        """All tables as ``database.table``, and the databases that cannot be listed. Raises: UnavailableError."""
        now_s = time.monotonic()
        known = self._names
        if known is None or now_s - known[0] > _LISTED_S:
            problems: dict[str, str] = {}
            names = [f"{database}.{each}" for database, each in all_tables(self.catalog, problems)]
            broken = [TableFacts(name=database, problem=problem) for database, problem in problems.items()]
            known = self._names = now_s, names, broken
            with self._lock:
                for gone in {*self._facts} - {*names}:
                    self._facts.pop(gone, None)
                    self._tables.pop(gone, None)
                    self._seen_s.pop(gone, None)
        return known[1], known[2]

    def table(self, name: str) -> Table:
        """Open a table as it is now. Raises: InvalidInputError, CorruptDataError."""
        return self.catalog.table(name)

    def facts(self, names: Sequence[str], *, also: Iterable[str] = ()) -> Mapping[str, TableFacts]:
        """What is known of some tables within the patience of a page; each is looked at.

        Args:
            names: that the page shows.
            also: that decide on the order of pages: looked at where little is known, and not waited for.
        """
        now_s = time.monotonic()
        unseen = [each for each in also if now_s - self._seen_s.get(each, -_UNSEEN_S) > _UNSEEN_S]
        with self._lock:
            for name in dict.fromkeys((*names, *unseen)):
                if name not in self._running:
                    self._running[name] = self._pool.submit(self._look, name)
            asked = [self._running[name] for name in names]
        wait(asked, timeout=self._patience_s)
        return {**self._facts}

    def _look(self, name: str) -> None:
        try:
            found = self._measured(name)
        except (FluvialError, OSError) as error:
            found = TableFacts(name=name, problem=str(error), at_s=time.monotonic())
        except Exception as error:
            logger.warning("a table could not be looked at: table=%s", name, exc_info=True)
            found = TableFacts(name=name, problem=f"unexpected: {type(error).__name__}", at_s=time.monotonic())
        with self._lock:
            self._facts[name], self._seen_s[name] = found, time.monotonic()
            self._running.pop(name, None)

    def _measured(self, name: str) -> TableFacts:
        """Raises: FluvialError; OSError."""
        begin_s, known, table = time.monotonic(), self._facts.get(name), self._tables.get(name)
        if table is None or not table.store.is_as_opened():
            table, known = self.table(name), None
        newest = table.latest_snapshot()
        if newest is not None and newest.schema_id > table.store.schema.id:
            table = self.table(name)
        self._tables[name] = table
        if known is not None and known.problem is None:
            is_old = known.measured != newest or (table.log is not None and begin_s - known.at_s > _LOG_S)
            if not is_old or begin_s - known.at_s < _SHARE * known.cost_s:
                return replace(known, snapshot=newest)
        seen = examine(table, brokers_away=self.brokers_away(table))
        health = seen.health
        return TableFacts(
            name=name,
            snapshot=newest,
            measured=newest,
            row_count=health.sum("row_count"),
            size_bytes=health.sum("size_bytes"),
            file_count=health.sum("file_count"),
            max_runs=health.max_runs,
            debt_bytes=health.compaction_debt,
            rows_per_s=round(health.rates().rows_per_s, 1),
            minutes=minutes_of(health.commits, known, health.time_ms),
            log_lag=None if health.log_lag is None else sum(health.log_lag.values()),
            findings=tuple(diagnose(seen)),
            schema_id=table.store.schema.id,
            at_s=time.monotonic(),
            cost_s=time.monotonic() - begin_s,
        )

    def brokers_away(self, table: Table) -> str | None:
        """Why the brokers of a table's log do not answer; asked once for all of their tables."""
        if table.log is None:
            return None
        servers = table.log.properties.by_name["bootstrap.servers"]
        until_s, reason = self._away.get(servers, (0.0, None))
        if time.monotonic() >= until_s:
            reason = unreached_brokers(table)
            self._away[servers] = time.monotonic() + (_LOG_S if reason is None else _AWAY_S), reason
        return reason
