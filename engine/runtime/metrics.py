"""All metrics, declared once, and what this process has done, exported through a port or a file for Prometheus.

Counters and durations of batches and compactions are recorded where they happen, in the process that commits. Sizes
and lags of tables and streams are measured at each scrape (``table_metrics``, ``metrics_listener``, ``cdc.metrics``).
Dashboards and alert rules (``dashboards``) are generated from the declarations.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, MetricsHandler, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from engine.runtime.listener import BoundedListener, TimedHandler
from engine.runtime.logs import warn_if_open
from lsm.errors import InvalidInputError

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""All of Fluvial's metrics of this process; separate from prometheus_client's default registry."""

_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_EVERY_S: Final = 10.0
_PATIENCE_S: Final = 4.0  # of a scrape; Prometheus gives up after 10
_STALE_S: Final = 120.0


class MetricKind(StrEnum):
    """What a metric is for Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The declaration of a metric."""

    name: str
    kind: MetricKind
    unit: str  # a plural: seconds, bytes, rows; flags are 0 or 1, ids only ever compared
    help: str
    labels: tuple[str, ...]

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a scrape has of it."""
        if self.kind is MetricKind.HISTOGRAM:
            return f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum"
        return (f"{self.name}_total",) if self.kind is MetricKind.COUNTER else (self.name,)

    def counter(self, registry: CollectorRegistry) -> Counter:
        """It in a registry."""
        assert self.kind is MetricKind.COUNTER
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """It in a registry."""
        assert self.kind is MetricKind.GAUGE
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """It in a registry."""
        assert self.kind is MetricKind.HISTOGRAM
        return Histogram(self.name, self.help, self.labels, registry=registry, buckets=_BUCKETS_S)

    def family(self, samples: Sequence[tuple[Sequence[str], float]]) -> GaugeMetricFamily:
        """It in one scrape: values by the values of its labels."""
        assert self.kind is MetricKind.GAUGE
        found = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            found.add_metric(labels, value)
        return found


def _declared(kind: MetricKind, labels: str, *lines: tuple[str, str, str]) -> Iterator[tuple[str, Metric]]:
    for name, unit, text in lines:
        yield name, Metric(name=name, kind=kind, unit=unit, help=text, labels=tuple(labels.split()))


METRICS: Final[Mapping[str, Metric]] = dict(
    (
        *_declared(
            MetricKind.COUNTER, "table",
            ("fluvial_batches", "batches", "Micro-batches and batch writes that became visible."),
            ("fluvial_rows", "rows", "Rows written to data files, deletes included."),
            ("fluvial_bytes", "bytes", "Bytes of new data files."),
            ("fluvial_files", "files", "New data files."),
            ("fluvial_batch_failures", "batches", "Batches that could not be written or committed, after all retries."),
            ("fluvial_compacted_bytes", "bytes", "Bytes that compactions read."),
            ("fluvial_compaction_failures", "compactions", "Compactions that failed; no row is lost."),
            ("fluvial_compaction_wait_seconds", "seconds", "Time that batches waited for compactions."),
            ("fluvial_cdc_records", "records", "Change records of a table's source."),
            ("fluvial_cdc_bad_records", "records", "Change records that could not be read."),
        ),
        *_declared(
            MetricKind.COUNTER, "table rule on_fail",
            (
                "fluvial_expect_broken_rows", "rows",
                "Rows that broke a rule of a job (expect); a batch that runs again counts again.",
            ),
        ),
        *_declared(
            MetricKind.COUNTER, "query",
            ("fluvial_query_batches", "batches", "Micro-batches of a query."),
            ("fluvial_query_input_rows", "rows", "Rows that a query read."),
            ("fluvial_query_failures", "queries", "Queries that failed."),
        ),
        *_declared(
            MetricKind.HISTOGRAM, "table",
            ("fluvial_flush_seconds", "seconds", "Writing a batch to files and log."),
            ("fluvial_commit_seconds", "seconds", "Publishing a batch as a snapshot."),
            ("fluvial_compaction_seconds", "seconds", "One compaction of some buckets."),
        ),
        *_declared(MetricKind.HISTOGRAM, "query", ("fluvial_query_batch_seconds", "seconds", "Time of a micro-batch.")),
        *_declared(
            MetricKind.GAUGE, "query",
            ("fluvial_query_rows_per_second", "rows per second", "Rows per second of the last micro-batch."),
            ("fluvial_query_running", "flags", "Whether a query runs."),
            ("fluvial_query_lag_records", "records", "Records that a query has not read yet."),
            ("fluvial_query_lag_seconds", "seconds", "Age of the oldest record that a query has not read yet."),
            ("fluvial_query_lag_bytes", "bytes", "Bytes that a query has not read yet."),
            ("fluvial_query_lag_snapshots", "snapshots", "Snapshots that a query has not read yet."),
        ),
        *_declared(
            MetricKind.GAUGE, "servers", ("fluvial_brokers_reachable", "flags", "Whether the brokers answer."),
        ),
        *_declared(
            MetricKind.GAUGE, "topic",
            (
                "fluvial_dead_letters_end_offset", "records",
                "End of a topic of dead letters, summed over its partitions; each letter moves it.",
            ),
        ),
        *_declared(
            MetricKind.GAUGE, "table",
            ("fluvial_last_snapshot", "ids", "Snapshot of the newest batch."),
            ("fluvial_table_up", "flags", "Whether the table could be measured."),
            ("fluvial_table_snapshot", "ids", "Newest snapshot."),
            ("fluvial_table_commit_age_seconds", "seconds", "Time since the commit of the newest snapshot."),
            ("fluvial_table_snapshot_count", "snapshots", "Snapshots that have not expired."),
            (
                "fluvial_table_expiry_overdue_seconds", "seconds",
                "How much longer than its retention the oldest snapshot was kept, at the newest commit; 0: it was not.",
            ),
            ("fluvial_table_row_count", "rows", "Rows in live files, deletes and older versions included."),
            ("fluvial_table_delete_count", "rows", "Deletes in live files."),
            ("fluvial_table_size_bytes", "bytes", "Bytes of live files."),
            ("fluvial_table_file_count", "files", "Live files."),
            ("fluvial_table_small_file_count", "files", "Live files below an eighth of target-file-size."),
            ("fluvial_table_bucket_count", "buckets", "Buckets with files."),
            ("fluvial_table_max_sorted_runs", "runs", "Maximum number of sorted runs in a bucket."),
            ("fluvial_table_compaction_debt_bytes", "bytes", "Bytes that the next compactions read."),
            ("fluvial_cdc_parked", "flags", "Whether the table waits for a user."),
            ("fluvial_cdc_schema", "ids", "Version of the table's schema."),
            (
                "fluvial_cdc_source_lag_seconds", "seconds",
                "From a change in the source to its commit, of the newest.",
            ),
            ("fluvial_cdc_lag_records", "records", "Change records that a table does not have."),
            (
                "fluvial_cdc_lag_seconds", "seconds", "Age of a table's newest change while others wait, else 0.",
            ),
        ),
        *_declared(
            MetricKind.GAUGE, "table level",
            ("fluvial_level_file_count", "files", "Live files of a level."),
            ("fluvial_level_size_bytes", "bytes", "Bytes of a level."),
        ),
        *_declared(
            MetricKind.GAUGE, "table partition bucket",
            ("fluvial_bucket_sorted_runs", "runs", "Sorted runs of a bucket."),
            ("fluvial_bucket_compaction_debt_bytes", "bytes", "Bytes that the next compaction of a bucket reads."),
        ),
        *_declared(
            MetricKind.GAUGE, "table bucket",
            (
                "fluvial_log_lag_records", "records",
                "Offsets of the log behind the newest snapshot, markers of transactions included.",
            ),
        ),
        *_declared(
            MetricKind.GAUGE, "table stream",
            ("fluvial_stream_lag_records", "records", "Records not yet delivered to a consumer."),
            ("fluvial_stream_lag_seconds", "seconds", "Age of the oldest commit not yet delivered to a consumer."),
            ("fluvial_stream_lag_bytes", "bytes", "Bytes not yet delivered to a consumer."),
            ("fluvial_stream_lag_snapshots", "snapshots", "Snapshots not yet delivered to a consumer."),
        ),
    )
)  # fmt: skip
"""By name. A counter is scraped as ``<name>_total``."""


class MeasuringCollector(Collector):
    """Measures at each scrape, in a thread: a scrape that has waited for some seconds has what was measured last.

    So brokers and stores that do not answer hold up neither the scrape nor the other metrics of the process.
    """

    def __init__(self, *, patience_s: float | None = _PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is measured.

        Args:
            patience_s: how long a scrape waits; None: until it is measured.
            clock: in seconds.
        """
        self._patience_s, self._clock = patience_s, clock
        self._lock = threading.Lock()  # scrapes may overlap
        self._look: threading.Thread | None = None
        self._last: tuple[float, Sequence[Family]] | None = None

    @abstractmethod
    def measured(self) -> Sequence[Family]:
        """Every metric, measured now. Called by one thread at a time."""

    def describe(self) -> list[Family]:
        """Empty: nothing is measured before the first scrape."""
        return []

    def collect(self) -> Iterator[Family]:
        """What was measured at most two minutes ago, at best now."""
        with self._lock:
            look = self._look
            if look is None or not look.is_alive():
                look = self._look = threading.Thread(target=self._measure, name="fluvial-metrics", daemon=True)
                look.start()
        look.join(self._patience_s)
        last = self._last
        if last is not None and self._clock() - last[0] <= _STALE_S:
            yield from last[1]

    def _measure(self) -> None:
        found = self.measured()
        self._last = self._clock(), found


def _counter(name: str) -> Counter:
    return METRICS[name].counter(REGISTRY)


def _gauge(name: str) -> Gauge:
    return METRICS[name].gauge(REGISTRY)


def _histogram(name: str) -> Histogram:
    return METRICS[name].histogram(REGISTRY)


BATCHES: Final = _counter("fluvial_batches")
BATCH_FAILURES: Final = _counter("fluvial_batch_failures")
ROWS_WRITTEN: Final = _counter("fluvial_rows")
BYTES_WRITTEN: Final = _counter("fluvial_bytes")
FILES_WRITTEN: Final = _counter("fluvial_files")
FLUSH_SECONDS: Final = _histogram("fluvial_flush_seconds")
COMMIT_SECONDS: Final = _histogram("fluvial_commit_seconds")
COMPACTION_SECONDS: Final = _histogram("fluvial_compaction_seconds")
COMPACTED_BYTES: Final = _counter("fluvial_compacted_bytes")
COMPACTION_FAILURES: Final = _counter("fluvial_compaction_failures")
COMPACTION_WAIT: Final = _counter("fluvial_compaction_wait_seconds")
LAST_SNAPSHOT: Final = _gauge("fluvial_last_snapshot")
CDC_RECORDS: Final = _counter("fluvial_cdc_records")
CDC_BAD: Final = _counter("fluvial_cdc_bad_records")
CDC_SCHEMA: Final = _gauge("fluvial_cdc_schema")
CDC_SOURCE_LAG: Final = _gauge("fluvial_cdc_source_lag_seconds")
BROKEN_ROWS: Final = _counter("fluvial_expect_broken_rows")


def record_broken_rows(table: str, rule: str, on_fail: str, count: int) -> None:
    """Record the rows of a batch that broke a rule; also none, so that the rule is seen."""
    BROKEN_ROWS.labels(table, rule, on_fail).inc(count)


def record_changes(table: str, *, records: int, bad: int, schema_id: int | None, lag_seconds: float | None) -> None:
    """Record what a batch of a job did to a table; None: it is parked, or its records have no time."""
    CDC_RECORDS.labels(table).inc(records)
    CDC_BAD.labels(table).inc(bad)
    if schema_id is not None:
        CDC_SCHEMA.labels(table).set(schema_id)
    if lag_seconds is not None:
        CDC_SOURCE_LAG.labels(table).set(lag_seconds)


@contextmanager
def counting_failed_batch(table: str) -> Iterator[None]:
    """Count the batch of the block if it fails. The count begins with 0, so that the first failure is an increase."""
    failures = BATCH_FAILURES.labels(table)
    try:
        yield
    except Exception:
        failures.inc()
        raise


def record_batch(
    table: str,
    *,
    rows: int,
    size_bytes: int,
    files: int,
    flush_seconds: float,
    commit_seconds: float,
    snapshot_id: int | None,
) -> None:
    """Record a batch that became visible; ``snapshot_id`` None: an empty batch."""
    BATCHES.labels(table).inc()
    ROWS_WRITTEN.labels(table).inc(rows)
    BYTES_WRITTEN.labels(table).inc(size_bytes)
    FILES_WRITTEN.labels(table).inc(files)
    FLUSH_SECONDS.labels(table).observe(flush_seconds)
    COMMIT_SECONDS.labels(table).observe(commit_seconds)
    if snapshot_id is not None:
        LAST_SNAPSHOT.labels(table).set(snapshot_id)


def record_compaction(table: str, *, size_bytes: int, seconds: float) -> None:
    """Record a compaction that became visible; ``size_bytes`` are the bytes read."""
    COMPACTED_BYTES.labels(table).inc(size_bytes)
    COMPACTION_SECONDS.labels(table).observe(seconds)


def metrics_text(registry: CollectorRegistry = REGISTRY) -> str:
    """One scrape in the Prometheus text format."""
    return generate_latest(registry).decode()


class _Scrapes(TimedHandler, MetricsHandler):
    """Answers a scrape."""


@contextmanager
def serve_metrics(port: int, *, host: str = "127.0.0.1", registry: CollectorRegistry = REGISTRY) -> Iterator[int]:
    """Answer scrapes at ``http://host:port/metrics`` while the block runs.

    Args:
        port: 0 picks a free one.
        host: address to listen on; 0.0.0.0 for scrapes from other hosts, as in Kubernetes.
        registry: the metrics to show.

    Yields:
        The port in use.

    Raises:
        InvalidInputError: the port is taken or not allowed.
    """
    try:
        server = BoundedListener((host, port), type("Handler", (_Scrapes,), {"registry": registry}))
    except OSError as error:
        raise InvalidInputError(
            f"metrics cannot be served: port={port} host={host} reason={error.strerror} fix='choose another port'"
        ) from error
    warn_if_open(host, server.server_port, shows="the metrics, with names of tables and jobs")
    thread = threading.Thread(target=server.serve_forever, name="fluvial-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def metrics_file(
    path: str | Path, *, every_s: float = _EVERY_S, registry: CollectorRegistry = REGISTRY
) -> Iterator[None]:
    """Keep a file of metrics up to date while the block runs, for node_exporter's textfile collector.

    Args:
        path: the file, which is replaced atomically; missing parent directories are created.
        every_s: seconds between two writes; the last one is at the end of the block.
        registry: the metrics to write.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    target, done = Path(path), threading.Event()

    def keep() -> None:
        while not done.wait(every_s):
            _replace(target, registry)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, registry)
    except OSError as error:
        raise InvalidInputError(f"metrics cannot be written: file={path} reason={error.strerror}") from error
    thread = threading.Thread(target=keep, name="fluvial-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        _replace(target, registry)


def _replace(target: Path, registry: CollectorRegistry) -> None:
    draft = target.with_name(f".{target.name}.tmp")
    draft.write_text(metrics_text(registry), encoding="utf-8")
    draft.replace(target)
