"""The lag of a job's tables as Prometheus metrics, measured at each scrape: it grows when no batch runs."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.cdc.status import TableStatus, job_status
from engine.cdc.topics import PatternTopics
from engine.kafka.offsets import TopicPosition
from engine.runtime.metrics import REGISTRY
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.metrics")

_TABLE = ("table",)


class LagCollector(Collector):
    """Records and seconds of the source that the tables of a job are behind, parked ones too."""

    def __init__(
        self,
        settings: CdcSettings,
        state: Callable[[], StateFiles],
        *,
        latest: Callable[[], Mapping[TopicPosition, int]] | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """Nothing is read.

        Args:
            settings: of the job.
            state: its files, as the running query has them.
            latest: ends of its topics; None: the brokers are asked.
            now_ms: the clock.
        """
        self._settings, self._state, self._now_ms = settings, state, now_ms
        self._latest = latest or self._asked
        self._topics: PatternTopics | None = None
        self._lock = threading.Lock()  # scrapes may overlap

    def describe(self) -> list[Metric]:
        """Empty: nothing is measured before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The lags; without an answer of the brokers none, and a warning."""
        with self._lock:
            tables = self._measured()
        records = GaugeMetricFamily(
            "fluvial_cdc_lag_records", "Change records that a table does not have.", labels=_TABLE
        )
        seconds = GaugeMetricFamily(
            "fluvial_cdc_lag_seconds", "Age of a table's newest change while others wait, else 0.", labels=_TABLE
        )
        for each in tables:
            name = f"{self._settings.database}.{each.table}"
            if each.records_behind is not None:
                records.add_metric([name], each.records_behind)
            if each.seconds_behind is not None:
                seconds.add_metric([name], each.seconds_behind)
        yield records
        yield seconds

    def _measured(self) -> list[TableStatus]:
        try:
            return job_status(self._state(), latest=self._latest(), now_ms=self._now_ms())
        except FluvialError as error:
            logger.warning("the lag of a job cannot be measured: job=%s reason=%s", self._settings.name, error)
            return []

    def _asked(self) -> dict[TopicPosition, int]:
        if self._topics is None:
            self._topics = PatternTopics(self._settings.properties, self._settings.pattern)
        return self._topics.latest(self._topics.positions())


@contextmanager
def measuring(collector: LagCollector, registry: CollectorRegistry = REGISTRY) -> Iterator[None]:
    """Add the lags to every scrape of a registry while the block runs."""
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)
