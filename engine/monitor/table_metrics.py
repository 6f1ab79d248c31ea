"""The current state of tables as Prometheus metrics, measured at each scrape from the tables' own files."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from engine.monitor.lag_report import stream_lags
from engine.monitor.table_probe import BucketHealth, TableHealth, TableProbe
from engine.runtime.metrics import METRICS, REGISTRY, MeasuringCollector, metrics_text
from engine.table import Table
from filestore.snapshot.retention import Retention
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.metrics")

_MOST_BUCKETS: Final = 1000  # with their own samples: those with the most runs

_STREAM: Final = {
    "lag_records": "fluvial_stream_lag_records",
    "lag_seconds": "fluvial_stream_lag_seconds",
    "lag_bytes": "fluvial_stream_lag_bytes",
    "lag_snapshots": "fluvial_stream_lag_snapshots",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One look at a table."""

    health: TableHealth
    streams: Sequence[Mapping[str, Any]]
    snapshot_count: int
    overdue_ms: int  # see ``overdue_ms``


class TableCollector(MeasuringCollector):
    """Measures tables at each scrape, reading only new metadata."""

    def __init__(self, tables: Sequence[Table], **waits: Any) -> None:
        """``waits``: see ``MeasuringCollector``."""
        super().__init__(**waits)
        self._tables = [(table, TableProbe(table)) for table in tables]

    def measured(self) -> list[Metric]:
        """Every metric of every table; a table that cannot be measured only has ``fluvial_table_up`` 0."""
        away: dict[str, str] = {}  # why the brokers of a log do not answer, by address: each is asked once
        values: dict[str, list[tuple[list[str], float]]] = {}
        for table, probe in self._tables:
            for metric, labels, value in _values(table.name, self._measure_table(table, probe, away)):
                values.setdefault(metric, []).append((labels, value))
        return [METRICS[metric].family(samples) for metric, samples in values.items()]

    def _measure_table(self, table: Table, probe: TableProbe, away: dict[str, str]) -> _Measured | None:
        try:
            servers = None if table.log is None else table.log.properties.by_name["bootstrap.servers"]
            problem = None if servers is None else away.get(servers)
            health = probe.look(asks_log=problem is None)
            health = replace(health, log_problem=problem or health.log_problem)
            if servers is not None and probe.brokers_away is not None:
                away[servers] = probe.brokers_away
            count, overdue = _kept(table, health)
            streams = [] if health.log_problem else stream_lags(table)
        except FluvialError as error:
            logger.warning("table cannot be measured: table=%s reason=%s", table.name, error)
            return None
        return _Measured(health=health, streams=streams, snapshot_count=count, overdue_ms=overdue)


def _kept(table: Table, health: TableHealth) -> tuple[int, int]:
    """How many snapshots there are, and how long their expiry is overdue."""
    snapshots, newest = table.store.snapshots, health.snapshot
    earliest = None if newest is None else snapshots.earliest_id()
    if newest is None or earliest is None:
        return 0, 0

    def time_ms(snapshot_id: int) -> int | None:
        found = snapshots.find(snapshot_id)
        return None if found is None else found.time_ms

    ids = range(earliest, newest.id + 1)
    retention = Retention.of(table.options)
    return len(ids), overdue_ms(ids, newest_ms=newest.time_ms, retention=retention, time_ms_of=time_ms)


def overdue_ms(ids: range, *, newest_ms: int, retention: Retention, time_ms_of: Callable[[int], int | None]) -> int:
    """How much longer than its retention the oldest snapshot was kept, when the newest one was committed.

    At that moment its writer had the chance to let it expire. A table without writers has no duty since.

    Args:
        ids: of the snapshots, the oldest first.
        newest_ms: commit time of the newest.
        retention: what is to be kept.
        time_ms_of: commit time by id; None: it has expired meanwhile.

    Returns:
        Milliseconds; 0: it is kept no longer than it should be.
    """
    found = [0]
    if len(ids) > retention.min_count:  # its age is that of its successor: until then it was the current one
        successor_ms = time_ms_of(ids[1])
        found += [] if successor_ms is None else [newest_ms - successor_ms - retention.age_ms]
    if len(ids) > retention.max_count:
        surplus_ms = time_ms_of(ids[retention.max_count])  # with it there was one too many
        found += [] if surplus_ms is None else [newest_ms - surplus_ms]
    return max(found)


def watch_tables(tables: Sequence[Table], registry: CollectorRegistry = REGISTRY) -> TableCollector:
    """Add tables to every scrape of a registry, until ``registry.unregister`` with the result.

    Args:
        tables: the tables; each scrape measures them again.
        registry: a registry of ``prometheus_client``.

    Returns:
        The collector of these tables. A table that cannot be measured has ``fluvial_table_up`` 0 and nothing else.
    """
    collector = TableCollector(tables)
    registry.register(collector)
    return collector


def table_metrics_text(tables: Sequence[Table]) -> str:
    """One scrape of some tables in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(TableCollector(tables, patience_s=None))
    return metrics_text(registry)


def _values(name: str, measured: _Measured | None) -> Iterator[tuple[str, list[str], float]]:
    yield "fluvial_table_up", [name], float(measured is not None)
    if measured is None:
        return
    health = measured.health
    if health.snapshot is not None:
        yield "fluvial_table_snapshot", [name], health.snapshot.id
        yield "fluvial_table_commit_age_seconds", [name], (health.age_ms or 0) / 1000
    yield "fluvial_table_snapshot_count", [name], measured.snapshot_count
    yield "fluvial_table_expiry_overdue_seconds", [name], measured.overdue_ms / 1000
    for attribute in ("row_count", "delete_count", "size_bytes", "file_count", "small_file_count"):
        yield f"fluvial_table_{attribute}", [name], health.sum(attribute)
    yield "fluvial_table_bucket_count", [name], len(health.buckets)
    yield "fluvial_table_max_sorted_runs", [name], health.max_runs
    yield "fluvial_table_compaction_debt_bytes", [name], health.compaction_debt
    for level in health.levels:
        yield "fluvial_level_file_count", [name, str(level.level)], level.file_count
        yield "fluvial_level_size_bytes", [name, str(level.level)], level.size_bytes
    for bucket in sorted(health.buckets, key=lambda each: -each.sorted_runs)[:_MOST_BUCKETS]:
        yield from _bucket_values(name, bucket)
    for number, lag in (health.log_lag or {}).items():
        yield "fluvial_log_lag_records", [name, str(number)], lag
    for stream in measured.streams:
        for key, metric in _STREAM.items():
            yield metric, [name, str(stream["stream"])], stream[key]


def _bucket_values(name: str, bucket: BucketHealth) -> Iterator[tuple[str, list[str], float]]:
    labels = [name, bucket.partition or "", str(bucket.bucket)]
    yield "fluvial_bucket_sorted_runs", labels, bucket.sorted_runs
    yield "fluvial_bucket_compaction_debt_bytes", labels, bucket.compaction_debt
