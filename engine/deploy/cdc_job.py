"""Running a database of a job file: its settings, its query, its end."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.cdc.query import CdcQuery
from engine.cdc.report import BatchReport
from engine.cdc.rules.names import SourceTable
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.signals import FindSilent, Silent
from engine.cdc.state import STATE_DIRECTORY, StateFiles
from engine.cdc.status import PARKED, TableStatus, job_status
from engine.cdc.tables import PastValues
from engine.cdc.topics import PatternTopics
from engine.cdc.verify.database import SourceDatabase
from engine.deploy.config.cdc_config import PATTERN, CdcConfig
from engine.deploy.config.job_config import LOG_PREFIX, JobConfig
from engine.deploy.config.section import hint
from engine.deploy.job import job_session
from engine.deploy.pipeline.health import Health, health_of
from engine.deploy.pipeline.job_watch import ClusterWatch, watching
from engine.deploy.pipeline.metrics_output import metrics_of
from engine.deploy.pipeline.supervision import Attempts, PipelineState
from engine.kafka.offsets import TopicPosition
from engine.kafka.options import KafkaSourceOptions, ValueFormat, check_reachable
from engine.runtime.metrics import METRICS, REGISTRY, MeasuringCollector
from engine.runtime.spark_messages import fluvial_error, spark_end
from engine.spark_internals.session import JvmError
from engine.write.run_lock import held_checkpoints
from filestore.layout.locations import absolute_path
from logstore.format.connect_types import TypeRules
from logstore.format.source.ranges import OutOfRange
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

_POLL_S: Final = 0.2


# ---- The health, brokers and metrics of a running database of a job file


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
    letters = () if settings.dead_letters is None else (settings.dead_letters,)
    cluster = ClusterWatch(settings.properties, dead_letters=letters)
    with (
        measuring(LagCollector(settings, state)),  # the last text of a file of metrics has them, too
        metrics_of(config.metrics, spark, []) as on_look,
        watching([cluster], on_look) as database.health.watch,
    ):
        yield


# ---- The lag of a job's tables, and which are parked, as Prometheus metrics, measured at each scrape
#
# Lag grows when no batch runs; a parked table is one from the start of the process on, also when no record of it comes.


class LagCollector(MeasuringCollector):
    """Which tables of a job are parked, and the records and seconds of the source that each is behind."""

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
        super().__init__()
        self._settings, self._state, self._now_ms = settings, state, now_ms
        self._latest = latest or self._asked
        self._topics: PatternTopics | None = None

    def measured(self) -> list[Metric]:
        """Lags and who is parked; without an answer of the brokers no lags, and a warning."""
        tables = self._statuses()
        found: list[Metric] = []
        names = [f"{self._settings.database}.{each.table}" for each in tables]
        for metric, values in (
            ("fluvial_cdc_lag_records", [each.records_behind for each in tables]),
            ("fluvial_cdc_lag_seconds", [each.seconds_behind for each in tables]),
            ("fluvial_cdc_parked", [float(each.state == PARKED) for each in tables]),
        ):
            known = [([name], value) for name, value in zip(names, values, strict=True) if value is not None]
            found.append(METRICS[metric].family(known))
        return found

    def _statuses(self) -> list[TableStatus]:
        latest, now_ms = None, self._now_ms()
        try:
            latest = self._latest()
        except FluvialError as error:
            logger.warning("the lag of a job cannot be measured: job=%s reason=%s", self._settings.name, error)
        try:
            return job_status(self._state(), latest=latest, now_ms=now_ms)
        except FluvialError as error:
            logger.warning("the state of a job cannot be read: job=%s reason=%s", self._settings.name, error)
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


logger = logging.getLogger("fluvial.cdc")

# ---- Running a database of a job file: its settings, its query, its end


_BROKERS: Final = "kafka.bootstrap.servers"


def cdc_of(config: JobConfig, name: str | None) -> CdcConfig:
    """The database of this name; without a name, the only one. Raises: InvalidInputError."""
    known = {each.name: each for each in config.cdc}
    if name is None and len(known) == 1:
        return config.cdc[0]
    if name not in known:
        raise InvalidInputError(
            f"no such database: name={name} job={config.name} {hint(name or '', known) if known else 'known=none'} "
            "fix=write the section cdc, or name one of it"
        )
    return known[name]


def cdc_settings(config: JobConfig, cdc: CdcConfig) -> CdcSettings:
    """The settings of a database. Raises: InvalidInputError: options that do not go together."""
    options = dict(cdc.source.options)
    pattern = options.pop(PATTERN)
    brokers = config.catalog_options.get(f"{LOG_PREFIX}{_BROKERS}")
    if brokers is not None:
        options.setdefault(_BROKERS, brokers)
    options.setdefault("value.format", ValueFormat.DEBEZIUM_JSON.value)
    source = KafkaSourceOptions.parse({**options, "subscribe": pattern})
    if source.value_format not in (ValueFormat.DEBEZIUM_JSON, ValueFormat.DEBEZIUM_AVRO):
        raise InvalidInputError(
            f"a database needs change events: value.format={source.value_format.value} "
            "fix=set debezium-json or debezium-avro"
        )
    if cdc.source.transactions is not None and not re.fullmatch(pattern, cdc.source.transactions):
        pattern = f"(?:{pattern})|{re.escape(cdc.source.transactions)}"
    declared = cdc.declared
    return CdcSettings(
        name=cdc.name,
        database=cdc.database,
        pattern=pattern,
        properties=source.properties,
        naming=cdc.naming,
        registry=source.registry,
        transactions=cdc.source.transactions,
        flattened=cdc.source.flattened,
        max_records=source.max_offsets_per_trigger,
        types=TypeRules(
            numeric=cdc.types.numeric,
            time=cdc.types.time,
            timestamptz=cdc.types.timestamptz,
            out_of_range=cast(OutOfRange, cdc.types.out_of_range),
            lossy=cdc.types.lossy,
        ),
        placeholder=source.placeholder,
        unavailable_values="keep" if cdc.unavailable_values == "keep" else "fail",
        renamed=cdc.columns.rename,
        added=cdc.columns.add,
        computed=cdc.columns.compute,
        excluded=cdc.columns.exclude,
        deletes=cdc.deletes,
        schema_changes=cdc.schema_changes,
        without_key=cdc.without_key,
        on_table_failure=cdc.on_table_failure,
        max_bad=cdc.max_bad,
        dead_letters=cdc.dead_letters,
        cut=cdc.commit.cut,
        max_wait_s=cdc.commit.max_wait,
        tag_every_s=cdc.commit.tag_every,
        tag_retained_ms=round(cdc.commit.tag_retained * 1000),
        memory_bytes=cdc.commit.memory,
        options=cdc.options,
        tables={
            name: TableSettings(
                partition_by=each.partition_by,
                columns=declared[name],
                key=each.key,
                options=each.options,
                expect=tuple(rule.rule(key) for key, rule in each.expect.items()),
            )
            for name, each in cdc.each.items()
        },
        connector=cdc.source.connector,
    )


def informed_settings(config: JobConfig, cdc: CdcConfig) -> CdcSettings:
    """The settings of a database, with the generated columns that the catalog of its source names.

    While the source does not answer, they are those that it named last.

    Raises:
        InvalidInputError: options that do not go together, or no such source.
        UnavailableError: the source does not answer, and never has.
    """
    settings = cdc_settings(config, cdc)
    if cdc.source.dsn is None:
        return settings
    state = cdc_state(config, cdc)
    try:
        with SourceDatabase.reading(cdc.source.dsn) as database:
            generated = database.generated()
    except UnavailableError as error:
        known = state.generated()
        if known is None:
            raise
        logger.warning("the catalog of the source cannot be read, what it said last counts: reason=%s", error)
        return replace(settings, generated=known)
    state.put_generated(generated)
    return replace(settings, generated=generated)


def past_values(dsn: str) -> PastValues:
    """Asks the catalog of a source what rows have in columns that were added after them."""

    def asked(source: SourceTable) -> Mapping[str, str]:
        try:
            with SourceDatabase.reading(dsn) as database:
                return database.past(source.schema, source.name)
        except UnavailableError as error:
            logger.warning("the catalog of the source cannot be read: source=%s reason=%s", source, error)
            return {}

    return asked


def silent_sources(dsn: str | None) -> FindSilent:
    """Asks a source which tables it does not have, or without rows; without an address it has all, with rows."""

    def asked(sources: Sequence[SourceTable]) -> Silent:
        if dsn is None:
            return Silent()
        try:
            with SourceDatabase.reading(dsn) as database:
                missing = database.lacks(sources)
                return Silent(missing, database.empties(each for each in sources if each not in missing))
        except UnavailableError as error:
            logger.warning("the catalog of the source cannot be read: reason=%s", error)
            return Silent()

    return asked


def cdc_state(config: JobConfig, cdc: CdcConfig) -> StateFiles:
    """The state of a database's job."""
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    return StateFiles(catalog.file_io, catalog.warehouse, cdc.name)


def run_cdc(
    config: JobConfig,
    cdc: CdcConfig,
    *,
    spark: SparkSession | None = None,
    on_batch: Callable[[BatchReport], None] = lambda _: None,
    stop: threading.Event | None = None,
    waits: bool = False,
) -> BatchReport | None:
    """Run a database's query until it ends, fails, or ``stop`` is set; then the running batch ends first.

    A query that fails starts again as the job's ``on-failure`` says, in the same session: workers of Spark that died,
    brokers that are away.

    Args:
        config: the job.
        cdc: the database.
        spark: the session to use; None: one with the job's settings, stopped at the end.
        on_batch: called after a batch, in the calling thread.
        stop: set by another thread or a signal handler.
        waits: where another run has the checkpoint, start when it has ended, instead of an error.

    Returns:
        The newest batch; None: there was none.

    Raises:
        InvalidInputError: settings that do not go together, or another run has the checkpoint; nothing was started.
        UnavailableError: the brokers do not answer.
        FluvialError: the query failed; what is committed stays.
    """
    settings = informed_settings(config, cdc)
    past = None if cdc.source.dsn is None else past_values(cdc.source.dsn)
    check_reachable(settings.properties)
    if not PatternTopics(settings.properties, settings.pattern).positions():
        logger.warning(
            "no topic matches yet: job=%s pattern=%s fix='compare it with the names of the topics: whole names match'",
            cdc.name, settings.pattern,
        )  # fmt: skip
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    checkpoint = absolute_path(cdc.checkpoint or f"{catalog.warehouse}/{STATE_DIRECTORY}/{cdc.name}/checkpoint")
    interval = cdc.commit.trigger.processing_time
    own, stop, attempts = spark is None, stop or threading.Event(), Attempts()
    newest: BatchReport | None = None
    database = RunningDatabase(cdc.name)

    def done(report: BatchReport) -> None:
        nonlocal newest
        newest = report
        attempts.progressed()
        database.has_written(report)
        on_batch(report)

    with held_checkpoints([checkpoint], waits=waits, stop=stop) as is_held, health_of_database(config, database):
        if not is_held:
            return None
        spark = spark or job_session(config)
        try:
            if stop.is_set():  # while Spark started
                return None
            with metrics_of_database(config, spark, settings, catalog, database):
                while True:
                    made = CdcQuery(catalog, settings, checkpoint=checkpoint, interval=interval, past=past)
                    database.started(made)
                    try:
                        _run_once(made, spark, config.stop_timeout, done, stop, database.look)
                    except (FluvialError, PySparkException, JvmError) as error:
                        ended = spark_end(error)
                        if ended is not None:
                            own = False  # there is nothing to stop
                            raise ended from error
                        failure = fluvial_error(error, f"job failed: job={cdc.name}")
                        restart = attempts.after(config.on_failure, failure, has_end=interval is None, name=cdc.name)
                        if restart is None:
                            raise failure from error
                        if not database.wait(restart.after_s, stop):
                            continue
                    return newest
        finally:
            if own:
                spark.stop()


def _run_once(
    made: CdcQuery,
    spark: SparkSession,
    stop_timeout_s: float,
    on_batch: Callable[[BatchReport], None],
    stop: threading.Event,
    on_look: Callable[[], None],
) -> None:
    """One start of the query, until it ends or ``stop`` is set: then a running batch ends, and is noted as done.

    A query that is between two batches, or still starts, is stopped at once: it has written nothing.

    Raises: FluvialError, PySparkException: it failed.
    """
    seen: BatchReport | None = None
    query = made.start(spark)
    try:
        is_active = True
        while is_active and not stop.is_set():
            is_active = not query.awaitTermination(_POLL_S)
            if made.newest is not None and made.newest is not seen:
                seen = made.newest
                on_batch(seen)
            on_look()
        if is_active and made.stop_after_batch():
            deadline = time.monotonic() + stop_timeout_s
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(_POLL_S)
    finally:
        query.stop()
        made.close()
