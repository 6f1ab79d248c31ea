"""The current state of tables as Prometheus metrics, measured at each scrape from the tables' own files."""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.monitor.lag_report import stream_lags
from engine.monitor.table_probe import BucketHealth, TableHealth, TableProbe
from engine.runtime.metrics import REGISTRY, metrics_text
from engine.table import Table
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.metrics")

_MOST_BUCKETS: Final = 1000  # with their own samples: those with the most runs

_TABLE: Final = {
    "fluvial_table_snapshot": "Newest snapshot.",
    "fluvial_table_commit_age_seconds": "Time since the commit of the newest snapshot.",
    "fluvial_table_row_count": "Rows in live files, deletes and older versions included.",
    "fluvial_table_delete_count": "Deletes in live files.",
    "fluvial_table_size_bytes": "Bytes of live files.",
    "fluvial_table_file_count": "Live files.",
    "fluvial_table_small_file_count": "Live files below an eighth of target-file-size.",
    "fluvial_table_bucket_count": "Buckets with files.",
    "fluvial_table_max_sorted_runs": "Maximum number of sorted runs in a bucket.",
    "fluvial_table_compaction_debt_bytes": "Bytes that the next compactions read.",
    "fluvial_table_up": "Whether the table could be measured.",
}
_STREAM: Final = {
    "lag_records": "fluvial_stream_lag_records",
    "lag_seconds": "fluvial_stream_lag_seconds",
    "lag_bytes": "fluvial_stream_lag_bytes",
    "lag_snapshots": "fluvial_stream_lag_snapshots",
}


class TableCollector(Collector):
    """Measures tables at each scrape, reading only new metadata."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = [(table, TableProbe(table)) for table in tables]
        self._lock = threading.Lock()  # scrapes may overlap

    def describe(self) -> list[Metric]:
        """Empty: names depend on the tables' state."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every metric of every table; a table that cannot be measured only has ``fluvial_table_up`` 0."""
        with self._lock:
            found = [self._measure(table, probe) for table, probe in self._tables]
        names = [table.name for table, _ in self._tables]
        values: dict[str, list[tuple[list[str], float]]] = {}
        for name, (health, streams) in zip(names, found, strict=True):
            for metric, labels, value in _values(name, health, streams):
                values.setdefault(metric, []).append((labels, value))
        for metric, samples in values.items():
            yield _family(metric, samples)

    def _measure(self, table: Table, probe: TableProbe) -> tuple[TableHealth | None, list[dict[str, Any]]]:
        try:
            health = probe.look()
            return health, [] if health.log_problem else stream_lags(table)
        except FluvialError as error:
            logger.warning("table cannot be measured: table=%s reason=%s", table.name, error)
            return None, []


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
    watch_tables(tables, registry)
    return metrics_text(registry)


def _values(
    name: str, health: TableHealth | None, streams: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, list[str], float]]:
    yield "fluvial_table_up", [name], float(health is not None)
    if health is None:
        return
    if health.snapshot is not None:
        yield "fluvial_table_snapshot", [name], health.snapshot.id
        yield "fluvial_table_commit_age_seconds", [name], (health.age_ms or 0) / 1000
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
    for stream in streams:
        for key, metric in _STREAM.items():
            yield metric, [name, str(stream["stream"])], stream[key]


def _bucket_values(name: str, bucket: BucketHealth) -> Iterator[tuple[str, list[str], float]]:
    labels = [name, bucket.partition or "", str(bucket.bucket)]
    yield "fluvial_bucket_sorted_runs", labels, bucket.sorted_runs
    yield "fluvial_bucket_compaction_debt_bytes", labels, bucket.compaction_debt


_MORE: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "fluvial_level_file_count": ("Live files of a level.", ("table", "level")),
    "fluvial_level_size_bytes": ("Bytes of a level.", ("table", "level")),
    "fluvial_bucket_sorted_runs": ("Sorted runs of a bucket.", ("table", "partition", "bucket")),
    "fluvial_bucket_compaction_debt_bytes": (
        "Bytes that the next compaction of a bucket reads.",
        ("table", "partition", "bucket"),
    ),
    "fluvial_log_lag_records": (
        "Offsets of the log behind the newest snapshot, markers of transactions included.",
        ("table", "bucket"),
    ),
    "fluvial_stream_lag_records": ("Records not yet delivered to a consumer.", ("table", "stream")),
    "fluvial_stream_lag_seconds": ("Age of the oldest commit not yet delivered to a consumer.", ("table", "stream")),
    "fluvial_stream_lag_bytes": ("Bytes not yet delivered to a consumer.", ("table", "stream")),
    "fluvial_stream_lag_snapshots": ("Snapshots not yet delivered to a consumer.", ("table", "stream")),
}


def _family(metric: str, samples: Sequence[tuple[list[str], float]]) -> Metric:
    doc, labels = _MORE[metric] if metric in _MORE else (_TABLE[metric], ("table",))
    family = GaugeMetricFamily(metric, doc, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
