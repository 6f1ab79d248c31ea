"""The health, brokers and metrics of a running database of a job file."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.cdc.metrics import LagCollector, measuring
from engine.cdc.query import CdcQuery
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.deploy.config.job_config import JobConfig
from engine.deploy.pipeline.health import Health, health_of
from engine.deploy.pipeline.job_watch import ClusterWatch, watching
from engine.deploy.pipeline.metrics_output import metrics_of
from engine.deploy.pipeline.supervision import PipelineState

_POLL_S = 0.2


class RunningDatabase:
    """The query of a database over its restarts, as health shows a pipeline."""

    def __init__(self, name: str) -> None:
        """Before its first start."""
        self.name = name
        self.batch_count = self.row_count = self.restart_count = 0
        self.state = PipelineState.RUNNING
        self.write: CdcQuery | None = None
        self.health: Health | None = None

    def states(self) -> Mapping[str, PipelineState]:
        """Implements ``Supervised.states``."""
        return {self.name: self.state}

    def pipelines(self) -> Sequence["RunningDatabase"]:
        """Implements ``Supervised.pipelines``."""
        return [self]

    def started(self, query: CdcQuery) -> None:
        """Note that the query has started, or restarted."""
        self.restart_count += self.write is not None
        self.state, self.write = PipelineState.RUNNING, query

    def has_written(self, report: BatchReport) -> None:
        """Count a batch; its records are those of its tables since the job began."""
        self.batch_count += 1
        self.row_count = sum(each.records for each in report.tables.values())

    def look(self) -> None:
        """Show how it is; called several times a second."""
        if self.health is not None:
            self.health.look()

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for the next start. Returns: whether ``stop`` was set while waiting."""
        self.state = PipelineState.WAITING
        while seconds > 0 and not stop.wait(min(seconds, _POLL_S)):
            seconds -= _POLL_S
            self.look()
        return stop.is_set()


@contextmanager
def health_of_database(config: JobConfig, database: RunningDatabase) -> Iterator[None]:
    """Show the health of a database while the block runs, as the job file says.

    Raises: InvalidInputError: the port is taken, or the file cannot be written.
    """
    with health_of(config.health, config.name, database) as database.health:
        yield


@contextmanager
def metrics_of_database(
    config: JobConfig, spark: SparkSession, settings: CdcSettings, catalog: Catalog, database: RunningDatabase
) -> Iterator[None]:
    """Look at the brokers, and export metrics, while the block runs, where the job file has a place for them.

    Raises: InvalidInputError: the port is taken, or the file cannot be written.
    """
    if all(each is None for shown in (config.health, config.metrics) for each in (shown.port, shown.file)):
        yield
        return

    def state() -> StateFiles:
        return StateFiles(catalog.file_io, catalog.warehouse, settings.name)  # as the files are at this moment

    assert database.health is not None
    with (
        measuring(LagCollector(settings, state)),  # the last text of a file of metrics has them, too
        metrics_of(config.metrics, spark, []) as on_look,
        watching([ClusterWatch(settings.properties)], on_look) as database.health.watch,
    ):
        yield
