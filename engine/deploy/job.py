"""Running a job file: its tables are created, its pipelines started and supervised until they end."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.health import health_of
from engine.deploy.pipeline.job_watch import ClusterWatch, Watched, watching
from engine.deploy.pipeline.metrics_output import metrics_of
from engine.deploy.pipeline.pipeline import OnProgress, PipelineResult, RunningPipeline
from engine.deploy.pipeline.sources import WAREHOUSE, kafka_options, source_options, source_table
from engine.deploy.pipeline.supervision import Supervisor
from engine.deploy.pipeline.table_changes import ensure_table
from engine.kafka.options import check_reachable
from engine.request.read_keys import STREAM_KEYS
from engine.runtime.spark_messages import spark_end
from engine.spark.data_source import FluvialDataSource
from engine.spark.read_options import ReadOptions, stream_options
from engine.spark.session import session
from engine.spark_internals.session import JvmError
from engine.stream.lag import Lag, LagProbe
from engine.stream.position.position import Position
from engine.table import Table
from engine.write.run_lock import held_checkpoints
from filestore.layout.locations import absolute_path
from logstore.kafka.topics import LogTopics
from lsm.errors import FluvialError, InvalidInputError

_UI: Final = "spark.ui.enabled"
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, whose settings are not overridden


def run_job(
    config: JobConfig,
    *,
    spark: SparkSession | None = None,
    on_progress: OnProgress = lambda _: None,
    stop: threading.Event | None = None,
    waits: bool = False,
) -> list[PipelineResult]:
    """Run every pipeline of a job until all have ended, one has failed permanently, or ``stop`` is set.

    Args:
        config: result of ``load_job``.
        spark: the session to use; None: one with the job's settings, stopped at the end.
        on_progress: called after every batch, in the calling thread.
        stop: set by another thread or a signal handler; pipelines then end after their running micro-batch.
        waits: where another run has one of the checkpoints, start when it has ended, instead of an error.

    Returns:
        One result per pipeline, in the order of the file; none, if the job was stopped while it waited. A job with a
        ``processing-time`` trigger returns only when it is stopped.

    Raises:
        InvalidInputError: the job does not fit the tables or the sources, or another run has one of the checkpoints;
            nothing was started.
        FluvialError: a pipeline failed; ``on-failure`` decides about other pipelines. Committed batches stay.
    """
    check_job(config)
    if not config.pipelines:
        raise InvalidInputError(f"the job has no pipelines: job={config.name} fix='fluvial cdc run runs its databases'")
    stop = stop or threading.Event()
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    for name, table in config.tables.items():
        ensure_table(catalog, name, table)
    tables = {output.table: catalog.table(output.table) for pipeline in config.pipelines for output in pipeline.outputs}
    checkpoints = [absolute_path(each.checkpoint) for each in config.pipelines]
    with held_checkpoints(checkpoints, waits=waits, stop=stop) as is_held:
        return _run(config, catalog, tables, spark, on_progress, stop) if is_held else []


def _run(
    config: JobConfig,
    catalog: Catalog,
    tables: Mapping[str, Table],
    spark: SparkSession | None,
    on_progress: OnProgress,
    stop: threading.Event,
) -> list[PipelineResult]:
    """Run a job whose checkpoints this process holds. Raises: see ``run_job``."""
    _check_brokers(config, list(tables.values()))
    pipelines = [
        RunningPipeline(config, each, [tables[out.table] for out in each.outputs]) for each in config.pipelines
    ]
    supervisor = Supervisor(
        pipelines,
        on_failure=config.on_failure,
        stop_timeout_s=config.stop_timeout,
        stop=stop,
    )
    own = spark is None
    with health_of(config.health, config.name, supervisor) as health:
        spark = spark or job_session(config)
        try:
            with (
                metrics_of(config.metrics, spark, list(tables.values())) as on_look,
                watching(
                    _watched(config, pipelines, [*tables.values(), *tables_read(config, catalog)]), on_look
                ) as health.watch,
            ):
                return supervisor.run(spark, on_progress, health.look)
        except (FluvialError, JvmError, OSError) as error:
            ended = spark_end(error)
            if ended is None:
                raise
            own = False  # there is nothing to stop
            raise ended from error
        finally:
            if own:
                spark.stop()


def job_session(config: JobConfig) -> SparkSession:
    """A session that leaves Ctrl-C to this process, and without Spark's UI on one machine, unless it is asked for.

    The UI listens on all addresses of the machine, and asks for no login.
    PySpark's own handler calls the JVM to cancel jobs, in the middle of any running call; if that fails, the interrupt
    surfaces as another error. Stopping the queries cancels their jobs as well.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_one_machine = (config.spark.master or "local").startswith("local") and _GATEWAY not in os.environ
    without_ui = {_UI: "false"} if is_one_machine else {}
    spark = session(config.name, config.spark.master, {**without_ui, **config.spark.conf})
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return spark


def _watched(config: JobConfig, pipelines: Sequence[RunningPipeline], tables: Sequence[Table]) -> list[Watched]:
    """The clusters of a job's tables and topics, and the tables that it reads, if their state is shown anywhere."""
    if all(each is None for shown in (config.health, config.metrics) for each in (shown.port, shown.file)):
        return []
    clusters = [table.log.properties for table in tables if table.log is not None]
    sources = {each: options for each in pipelines if (options := kafka_options(config, each.config)) is not None}
    clusters += [options.properties for options in sources.values()]
    read = [table_watch(config, each.config, partial(getattr, each, "position")) for each in pipelines]
    found: list[Watched] = [each for each in read if each is not None]
    for index, properties in enumerate(clusters):
        if properties not in clusters[:index]:
            read_here = {
                each.name: (options, partial(getattr, each, "delivered"))
                for each, options in sources.items()
                if options.properties == properties
            }
            found.append(ClusterWatch(properties, read_here))
    return found


def _check_brokers(config: JobConfig, tables: list[Table]) -> None:
    """Before Spark starts, which takes longer. Raises: UnavailableError, InvalidInputError."""
    reached = [table.log.properties for table in tables if table.log is not None]
    for properties in reached:
        LogTopics(properties).check_reachable()
    for pipeline in config.pipelines:
        source = kafka_options(config, pipeline)
        if source is not None and source.properties not in reached:
            check_reachable(source.properties)


logger = logging.getLogger("fluvial.job")


# ---- A look at a table that a pipeline reads, every few seconds: what is committed there and not delivered yet


class SourceTableWatch:
    """The table of one pipeline."""

    def __init__(self, pipeline: str, probe: Callable[[], LagProbe], delivered: Callable[[], Position | None]) -> None:
        """Look at nothing yet.

        Args:
            pipeline: its name.
            probe: opens the table.
            delivered: the end of the last finished batch; None: it has none yet.
        """
        self.name = f"pipeline={pipeline}"
        self.lags: Mapping[str, Lag] = {}  # by pipeline, as of the last look that was answered
        self._pipeline, self._open, self._delivered = pipeline, probe, delivered
        self._probe: LagProbe | None = None
        self._lost_s: float | None = None  # when it could not be looked at first, on ``time.monotonic``

    @property
    def unreachable_s(self) -> float | None:
        """Seconds since the table could be looked at last; None: it can."""
        return None if self._lost_s is None else time.monotonic() - self._lost_s

    def look(self) -> None:
        """Ask once."""
        here = self._delivered()
        if here is None:
            return
        try:
            self._probe = self._probe or self._open()
            self.lags = {self._pipeline: self._probe.behind(here)}
        except FluvialError as error:
            self._probe = None  # it may have another schema or log by now
            if self._lost_s is None:
                self._lost_s = time.monotonic()
                logger.warning("the lag cannot be found out: %s reason=%s", self.name, error)
        else:
            self._lost_s = None


def tables_read(config: JobConfig, catalog: Catalog) -> list[Table]:
    """The tables of the job's catalog that pipelines read, as far as they are there."""
    names = [
        source_table(config, each)
        for each in config.pipelines
        if source_options(config, each).get(WAREHOUSE) == config.warehouse
    ]
    return [
        catalog.table(each) for each in dict.fromkeys(names) if each and "$" not in each and catalog.table_exists(each)
    ]


def table_watch(
    config: JobConfig, pipeline: PipelineConfig, delivered: Callable[[], Position | None]
) -> SourceTableWatch | None:
    """The watch of a pipeline that reads a table; None: it reads something else."""
    if source_table(config, pipeline) is None:
        return None

    def probe() -> LagProbe:
        options = source_options(config, pipeline)
        read = ReadOptions.parse(options, STREAM_KEYS)
        return LagProbe(stream_options(read, FluvialDataSource(options).schema()))

    return SourceTableWatch(pipeline.name, probe, delivered)
