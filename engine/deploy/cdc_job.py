"""Running a database of a job file: its settings, its query, its end."""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.cdc.query import CdcQuery
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.state import STATE_DIRECTORY, StateFiles
from engine.cdc.topics import PatternTopics
from engine.cdc.verify.database import SourceDatabase
from engine.deploy.cdc_watch import RunningDatabase, health_of_database, metrics_of_database
from engine.deploy.config.cdc_config import PATTERN, CdcConfig
from engine.deploy.config.job_config import LOG_PREFIX, JobConfig
from engine.deploy.config.section import hint
from engine.deploy.job import job_session
from engine.deploy.pipeline.run_lock import held_checkpoints
from engine.deploy.pipeline.supervision import Attempts
from engine.kafka.options import KafkaSourceOptions, ValueFormat, check_reachable
from engine.runtime.spark_messages import fluvial_error, spark_end
from engine.spark_internals.session import JvmError
from filestore.layout.locations import absolute_path
from logstore.format.connect_types import TypeRules
from logstore.format.source.ranges import OutOfRange
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

logger = logging.getLogger("fluvial.cdc")

_BROKERS: Final = "kafka.bootstrap.servers"
_POLL_S: Final = 0.2


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
                partition_by=each.partition_by, columns=declared[name], key=each.key, options=each.options
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
                    made = CdcQuery(catalog, settings, checkpoint=checkpoint, interval=interval)
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
