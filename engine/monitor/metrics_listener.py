"""Spark's progress reports as Prometheus metrics, for every streaming query of a session."""

import json
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from pyspark.sql.streaming import StreamingQueryListener

from engine.kafka.offsets import from_json, waiting_count
from engine.runtime.metrics import METRICS, REGISTRY

_LAGS: Final = ("lag_records", "lag_seconds", "lag_bytes", "lag_snapshots")


class QueryMetrics:
    """Metrics of streaming queries. One per registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Add the metrics to a registry."""
        self._batches = METRICS["fluvial_query_batches"].counter(registry)
        self._rows = METRICS["fluvial_query_input_rows"].counter(registry)
        self._seconds = METRICS["fluvial_query_batch_seconds"].histogram(registry)
        self._rate = METRICS["fluvial_query_rows_per_second"].gauge(registry)
        self._running = METRICS["fluvial_query_running"].gauge(registry)
        self._failures = METRICS["fluvial_query_failures"].counter(registry)
        self._reachable = METRICS["fluvial_brokers_reachable"].gauge(registry)
        self._letters = METRICS["fluvial_dead_letters_end_offset"].gauge(registry)
        self._asked: set[str] = set()  # queries whose lag comes from elsewhere
        self._lags = {name: METRICS[f"fluvial_query_{name}"].gauge(registry) for name in _LAGS}

    def started(self, query: str) -> None:
        """A query has started; its counters start at 0, so that the first increase is visible."""
        self._running.labels(query).set(1)
        for counter in (self._batches, self._rows, self._failures):
            counter.labels(query)

    def progressed(self, query: str, progress: Mapping[str, Any]) -> None:
        """A progress report, as the dictionary of Spark's JSON."""
        rows = int(progress.get("numInputRows") or 0)
        if rows:
            self._batches.labels(query).inc()
            self._rows.labels(query).inc(rows)
            duration_ms = (progress.get("durationMs") or {}).get("triggerExecution")
            if duration_ms is not None:
                self._seconds.labels(query).observe(duration_ms / 1000)
        self._rate.labels(query).set(float(progress.get("processedRowsPerSecond") or 0.0) if rows else 0.0)
        if query not in self._asked:  # what a report has is of the batch's plan
            self._set_lags(query, lags_of(progress))

    def behind(self, query: str, lags: Mapping[str, float]) -> None:
        """How far a query is behind what it reads, asked now: values of ``lag_records``, ``lag_seconds`` and so on."""
        self._asked.add(query)
        self._set_lags(query, lags)

    def _set_lags(self, query: str, lags: Mapping[str, float]) -> None:
        for name, lag in lags.items():
            self._lags[name].labels(query).set(lag)

    def brokers(self, servers: str, *, reachable: bool) -> None:
        """Whether brokers answered when they were asked last."""
        self._reachable.labels(servers).set(reachable)

    def dead_letters(self, topic: str, end_offset: int) -> None:
        """The end of a topic of dead letters, summed over its partitions, when it was asked for last."""
        self._letters.labels(topic).set(end_offset)

    def ended(self, query: str, *, failed: bool) -> None:
        """A query has ended."""
        self._running.labels(query).set(0)
        if failed:
            self._failures.labels(query).inc()


def lags_of(progress: Mapping[str, Any]) -> dict[str, float]:
    """The lag of a query behind the tables and topics that it reads: sums, but the maximum for seconds.

    As of the plan of its last batch. A job of ``fluvial run`` asks in between, too.
    """
    found: dict[str, float] = {}
    for source in progress.get("sources") or ():
        facts = _parsed(source.get("latestOffset"))
        if not isinstance(facts, Mapping):
            continue
        for name in _LAGS:
            value = facts.get(name, _waiting(source, facts) if name == "lag_records" else None)
            if isinstance(value, int | float):
                before = found.get(name, 0.0)
                found[name] = max(before, value) if name == "lag_seconds" else before + value
    return found


def _parsed(offset: Any) -> Any:
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _waiting(source: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
    """The offsets of topics behind a batch; None: the source does not read topics."""
    try:
        return waiting_count(from_json(_parsed(source.get("endOffset"))), from_json(latest))
    except (ValueError, AttributeError, TypeError):
        return None


class MetricsListener(StreamingQueryListener):
    """Feeds ``QueryMetrics`` from ``spark.streams.addListener(MetricsListener())``."""

    def __init__(self, metrics: QueryMetrics | None = None) -> None:
        """``metrics`` None: those of Fluvial's registry, created with the first listener."""
        self._metrics = metrics or shared_metrics()
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Count a started query."""
        self._names[str(event.id)] = name = event.name or str(event.id)
        self._metrics.started(name)

    def onQueryProgress(self, event: Any) -> None:
        """Record a progress report."""
        progress = json.loads(event.progress.json)
        self._metrics.progressed(progress.get("name") or str(progress.get("id")), progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Record the end of a query."""
        name = self._names.pop(str(event.id), str(event.id))
        self._metrics.ended(name, failed=event.exception is not None)


_shared: list[QueryMetrics] = []


def shared_metrics() -> QueryMetrics:
    """The metrics of Fluvial's registry, created with the first call."""
    if not _shared:
        _shared.append(QueryMetrics())
    return _shared[0]
