"""What this process has done, as Prometheus metrics, exported through a port or a file.

Counters and durations of batches and compactions are recorded where they happen, in the process that commits. Sizes
and lags of tables and streams are measured at each scrape (``table_metrics``, ``metrics_listener``).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from engine.runtime.logs import warn_if_open
from lsm.errors import InvalidInputError

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""All of Fluvial's metrics of this process; separate from prometheus_client's default registry."""

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_TABLE: Final = ("table",)
_EVERY_S: Final = 10.0

BATCHES: Final = Counter(
    "fluvial_batches", "Micro-batches and batch writes that became visible.", _TABLE, registry=REGISTRY
)
ROWS_WRITTEN: Final = Counter(
    "fluvial_rows", "Rows written to data files, deletes included.", _TABLE, registry=REGISTRY
)
BYTES_WRITTEN: Final = Counter("fluvial_bytes", "Bytes of new data files.", _TABLE, registry=REGISTRY)
FILES_WRITTEN: Final = Counter("fluvial_files", "New data files.", _TABLE, registry=REGISTRY)
FLUSH_SECONDS: Final = Histogram(
    "fluvial_flush_seconds", "Writing a batch to files and log.", _TABLE, registry=REGISTRY, buckets=_SECONDS
)
COMMIT_SECONDS: Final = Histogram(
    "fluvial_commit_seconds", "Publishing a batch as a snapshot.", _TABLE, registry=REGISTRY, buckets=_SECONDS
)
COMPACTION_SECONDS: Final = Histogram(
    "fluvial_compaction_seconds", "One compaction of some buckets.", _TABLE, registry=REGISTRY, buckets=_SECONDS
)
COMPACTED_BYTES: Final = Counter("fluvial_compacted_bytes", "Bytes that compactions read.", _TABLE, registry=REGISTRY)
COMPACTION_FAILURES: Final = Counter(
    "fluvial_compaction_failures", "Compactions that failed; no row is lost.", _TABLE, registry=REGISTRY
)
COMPACTION_WAIT: Final = Counter(
    "fluvial_compaction_wait_seconds", "Time that batches waited for compactions.", _TABLE, registry=REGISTRY
)
LAST_SNAPSHOT: Final = Gauge("fluvial_last_snapshot", "Snapshot of the newest batch.", _TABLE, registry=REGISTRY)
CDC_RECORDS: Final = Counter("fluvial_cdc_records", "Change records of a table's source.", _TABLE, registry=REGISTRY)
CDC_BAD: Final = Counter("fluvial_cdc_bad_records", "Change records that could not be read.", _TABLE, registry=REGISTRY)
CDC_PARKED: Final = Gauge("fluvial_cdc_parked", "1: the table waits for a user.", _TABLE, registry=REGISTRY)
CDC_SCHEMA: Final = Gauge("fluvial_cdc_schema", "Version of the table's schema.", _TABLE, registry=REGISTRY)
CDC_SOURCE_LAG: Final = Gauge(
    "fluvial_cdc_source_lag_seconds",
    "From a change in the source to its commit, of the newest.",
    _TABLE,
    registry=REGISTRY,
)


BROKEN_ROWS: Final = Counter(
    "fluvial_expect_broken_rows",
    "Rows that broke a rule of a job (expect); a batch that runs again counts again.",
    ("table", "rule", "on_fail"),
    registry=REGISTRY,
)


def record_broken_rows(table: str, rule: str, on_fail: str, count: int) -> None:
    """Record the rows of a batch that broke a rule; also none, so that the rule is seen."""
    BROKEN_ROWS.labels(table, rule, on_fail).inc(count)


def record_changes(
    table: str, *, records: int, bad: int, schema_id: int | None, lag_seconds: float | None, is_parked: bool
) -> None:
    """Record what a batch of a job did to a table; None: it is parked, or its records have no time."""
    CDC_RECORDS.labels(table).inc(records)
    CDC_BAD.labels(table).inc(bad)
    CDC_PARKED.labels(table).set(is_parked)
    if schema_id is not None:
        CDC_SCHEMA.labels(table).set(schema_id)
    if lag_seconds is not None:
        CDC_SOURCE_LAG.labels(table).set(lag_seconds)


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
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise InvalidInputError(
            f"metrics cannot be served: port={port} host={host} reason={error.strerror} fix='choose another port'"
        ) from error
    warn_if_open(host, server.server_port, shows="the metrics, with names of tables and jobs")
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
