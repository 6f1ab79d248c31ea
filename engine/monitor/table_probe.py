"""Repeated measurements of a table: each one reads only what is new since the previous one."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.monitor.lag_report import log_lags
from engine.table import Table
from filestore.changelog.snapshot_changes import changelog_level
from filestore.manifest.entries import EntryKind
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import delta_entries
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.system_tables.files import partition_texts
from filestore.system_tables.layout import compaction_debts
from lsm.errors import CorruptDataError, UnavailableError

_KEPT: Final = 50  # newest snapshots, for rates
_SMALL: Final = 8  # a file is small when it is below an eighth of its target size


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketHealth:
    """The state of one bucket."""

    partition: str | None
    bucket: int
    sorted_runs: int
    level0_files: int
    file_count: int
    small_file_count: int
    row_count: int  # deletes and older versions included
    delete_count: int
    size_bytes: int
    bottom_row_count: int  # rows of the deepest level
    compaction_debt: int  # bytes that the next compaction reads; 0 when none is needed
    unemitted_row_count: int = 0  # rows that followers get from the next compaction


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSize:
    """One level of all buckets together."""

    level: int
    file_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """One of the newest snapshots."""

    snapshot: Snapshot
    added_bytes: int  # of new files; 0 for other kinds than APPEND and OVERWRITE

    @property
    def added_rows(self) -> int:
        """Rows added by a write; 0 for compactions."""
        if self.snapshot.commit_kind not in (CommitKind.APPEND, CommitKind.OVERWRITE):
            return 0
        return max(0, self.snapshot.delta_record_count or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of recent commits."""

    seconds: float  # spanned by the commits; 0: fewer than two
    rows_per_s: float
    bytes_per_s: float
    commits_per_minute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """The state of a table at one time."""

    table: str
    time_ms: int
    commits: tuple[CommitFacts, ...]  # newest first
    buckets: tuple[BucketHealth, ...]  # by partition, then bucket
    levels: tuple[LevelSize, ...]
    log_lag: Mapping[int, int] | None  # records by bucket; None: no log, or not requested
    log_problem: str | None = None  # why the brokers could not be queried

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.commits[0].snapshot if self.commits else None

    @property
    def max_runs(self) -> int:
        """Maximum number of sorted runs in a bucket."""
        return max((each.sorted_runs for each in self.buckets), default=0)

    @property
    def compaction_debt(self) -> int:
        """Bytes that the next compactions read."""
        return sum(each.compaction_debt for each in self.buckets)

    @property
    def age_ms(self) -> int | None:
        """Time since the newest commit."""
        return None if self.snapshot is None else max(0, self.time_ms - self.snapshot.time_ms)

    def sum(self, name: str) -> int:
        """The sum of a field over all buckets."""
        return sum(getattr(each, name) for each in self.buckets)

    def rates(self, window_s: float = 300.0) -> Rates:
        """Rates of the writes in the last ``window_s`` seconds."""
        writes = [each for each in self.commits if each.snapshot.commit_kind.changes_rows]
        recent = [each for each in writes if self.time_ms - each.snapshot.time_ms <= window_s * 1000]
        if len(recent) == len(writes):
            counted, first_ms = recent[:-1], recent[-1].snapshot.time_ms if recent else self.time_ms
        else:
            counted, first_ms = recent, self.time_ms - int(window_s * 1000)
        seconds = (self.time_ms - first_ms) / 1000
        if not counted or seconds <= 0:
            return Rates(seconds=0.0, rows_per_s=0.0, bytes_per_s=0.0, commits_per_minute=0.0)
        return Rates(
            seconds=seconds,
            rows_per_s=sum(each.added_rows for each in counted) / seconds,
            bytes_per_s=sum(each.added_bytes for each in counted) / seconds,
            commits_per_minute=60 * len(counted) / seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """JSON values for scripts."""
        snapshot, rates = self.snapshot, self.rates()
        return {
            "table": self.table,
            "time_ms": self.time_ms,
            "snapshot": None if snapshot is None else snapshot.id,
            "seconds_since_commit": None if self.age_ms is None else self.age_ms / 1000,
            "rows_per_s": round(rates.rows_per_s, 1),
            "bytes_per_s": round(rates.bytes_per_s),
            "commits_per_minute": round(rates.commits_per_minute, 2),
            "file_count": self.sum("file_count"),
            "size_bytes": self.sum("size_bytes"),
            "row_count": self.sum("row_count"),
            "bucket_count": len(self.buckets),
            "max_sorted_runs": self.max_runs,
            "compaction_debt": self.compaction_debt,
            "log_lag": None if self.log_lag is None else sum(self.log_lag.values()),
            "log_problem": self.log_problem,
        }


class TableProbe:
    """Caches a table's state, so that the next measurement is cheap. Not thread-safe."""

    def __init__(self, table: Table, *, asks_log: bool = True) -> None:
        """``asks_log``: whether to query the brokers for the end of the log."""
        self._table = table
        self._asks_log = asks_log and table.log is not None
        self.brokers_away: str | None = None  # why they did not answer when they were asked last
        self._live: LiveFiles | None = None
        self._buckets: dict[BucketKey, BucketHealth] = {}
        self._levels: dict[BucketKey, tuple[LevelSize, ...]] = {}
        self._commits: deque[CommitFacts] = deque(maxlen=_KEPT)  # oldest first

    def look(self, *, asks_log: bool = True) -> TableHealth:
        """The current state. Raises: UnavailableError, CorruptDataError.

        Args:
            asks_log: False: not this time, because the brokers have just not answered.
        """
        store = self._table.store
        if self._live is None:
            self._live = LiveFiles.latest(store)
            changed = frozenset(self._live.buckets())
        else:
            changed = self._live.advance()
        self._advance_buckets(changed)
        self._advance_commits()
        lag, problem = self._log_lag() if asks_log else (None, None)
        return TableHealth(
            table=store.name,
            time_ms=store.clock.now_ms(),
            commits=tuple(reversed(self._commits)),
            buckets=tuple(sorted(self._buckets.values(), key=lambda each: (each.partition or "", each.bucket))),
            levels=tuple(self._level_sizes()),
            log_lag=lag,
            log_problem=problem,
        )

    def _advance_buckets(self, changed: frozenset[BucketKey]) -> None:
        assert self._live is not None
        texts = partition_texts(self._table.store, {key.partition for key in changed})
        for key in changed:
            self._buckets.pop(key, None)
            self._levels.pop(key, None)
            if self._live.file_count(key):
                self._buckets[key], self._levels[key] = self._bucket(key, texts[key.partition])

    def _bucket(self, key: BucketKey, partition: str | None) -> tuple[BucketHealth, tuple[LevelSize, ...]]:
        assert self._live is not None
        store, files = self._table.store, self._live.files(key)
        by_level: dict[int, list[int]] = {}
        for file in files:
            by_level.setdefault(file.level, []).append(file.size_bytes)
        rows = [file.row_count for file in files if file.level == max(by_level)]
        level0 = len(by_level.get(0, ()))
        small = store.options.target_file_size_bytes // _SMALL
        emitted = changelog_level(store)
        health = BucketHealth(
            partition=partition,
            bucket=key.bucket,
            sorted_runs=level0 + sum(level > 0 for level in by_level) if store.has_key else 1,
            level0_files=level0,
            file_count=len(files),
            small_file_count=sum(file.size_bytes < small for file in files),
            row_count=sum(file.row_count for file in files),
            delete_count=sum(file.delete_row_count or 0 for file in files),
            size_bytes=sum(file.size_bytes for file in files),
            bottom_row_count=sum(rows),
            compaction_debt=compaction_debts(store, self._live, [key]).get(key, 0),
            unemitted_row_count=sum(file.row_count for file in files if file.level < emitted),
        )
        sizes = (LevelSize(level=at, file_count=len(each), size_bytes=sum(each)) for at, each in by_level.items())
        return health, tuple(sizes)

    def _level_sizes(self) -> Iterator[LevelSize]:
        everything = [each for sizes in self._levels.values() for each in sizes]
        for level in sorted({each.level for each in everything}):
            members = [each for each in everything if each.level == level]
            yield LevelSize(
                level=level,
                file_count=sum(each.file_count for each in members),
                size_bytes=sum(each.size_bytes for each in members),
            )

    def _advance_commits(self) -> None:
        """Read new snapshots; all of them after a rollback."""
        assert self._live is not None
        latest = self._live.snapshot
        if latest is None:
            self._commits.clear()
            return
        known = self._commits[-1].snapshot if self._commits else None
        if known is not None and (known.id > latest.id or self._table.store.snapshots.find(known.id) != known):
            self._commits.clear()
            known = None
        first = max(1, latest.id - _KEPT + 1) if known is None else max(known.id, latest.id - _KEPT) + 1
        for snapshot_id in range(first, latest.id + 1):
            found = self._table.store.snapshots.find(snapshot_id)
            if found is not None:
                self._commits.append(CommitFacts(snapshot=found, added_bytes=self._added_bytes(found)))

    def _added_bytes(self, snapshot: Snapshot) -> int:
        if snapshot.commit_kind not in (CommitKind.APPEND, CommitKind.OVERWRITE):
            return 0
        try:
            entries = delta_entries(self._table.store, snapshot)
        except FileNotFoundError:
            return 0  # it has expired meanwhile
        return sum(entry.file.size_bytes for entry in entries if entry.kind is EntryKind.ADD)

    def _log_lag(self) -> tuple[Mapping[int, int] | None, str | None]:
        if not self._asks_log:
            return None, None
        self.brokers_away = None
        try:
            return {each["bucket"]: each["lag"] for each in log_lags(self._table)}, None
        except (UnavailableError, CorruptDataError) as error:
            self.brokers_away = str(error) if isinstance(error, UnavailableError) else None
            return None, str(error)
