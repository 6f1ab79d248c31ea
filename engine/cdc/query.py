"""The streaming query of a job: source, batches, checkpoint, trigger."""

import threading
import time
import uuid
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from engine.catalog import Catalog
from engine.cdc.batch import CdcBatches
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings
from engine.cdc.source import FORMAT, SourcePlan, cdc_source
from engine.cdc.state import StateFiles
from engine.cdc.tables import PastValues
from engine.cdc.writers import ClusterTables
from engine.checkpoint.admission import CHECKPOINT
from engine.kafka.offsets import OffsetRange
from engine.lineage.stream_job import QUERY_ID
from engine.runtime.spark_messages import fluvial_error
from engine.runtime.steps import Observer, ignore
from engine.spark.session import checkpoint_settings
from lsm.errors import InvalidInputError

_MOST_THREADS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Asks why a batch is due without new records, by the clock of this machine; see ``StateFiles.pending``."""

    state: StateFiles
    max_wait_s: float

    def __call__(self) -> list[str]:
        """Names of the reasons."""
        return self.state.pending(now_ms=int(time.time() * 1000), max_wait_ms=self.max_wait_s * 1000)


class CdcQuery:
    """One start of a job."""

    def __init__(
        self,
        catalog: Catalog,
        settings: CdcSettings,
        *,
        checkpoint: str,
        interval: str | None = None,
        observe: Observer = ignore,
        past: PastValues | None = None,
    ) -> None:
        """Nothing is started.

        Args:
            catalog: of the tables.
            settings: of the job.
            checkpoint: directory of Spark's checkpoint.
            interval: between micro-batches, as ``10 seconds``; None: take what is there and end.
            observe: called with each step of each table.
            past: see ``CdcBatches``.
        """
        self._past = past
        self._catalog, self._settings = catalog, settings
        self._checkpoint, self._interval, self._observe = checkpoint, interval, observe
        self.state = StateFiles(catalog.file_io, catalog.warehouse, settings.name)
        self._batches: CdcBatches | None = None
        self._is_refusing = threading.Event()
        self.newest: BatchReport | None = None
        self._began_s: float | None = None  # of the running batch

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query. Raises: FluvialError: Spark cannot start it."""
        plan = SourcePlan(
            settings=self._settings, requests=Pending(state=self.state, max_wait_s=self._settings.max_wait_s)
        )
        try:
            spark.dataSource.register(cdc_source(plan))
            frame = spark.readStream.format(FORMAT).option(CHECKPOINT, self._checkpoint).load()
            writer = frame.writeStream.queryName(self._settings.name).foreachBatch(self._write)
            writer = writer.option("checkpointLocation", self._checkpoint)
            writer = (
                writer.trigger(availableNow=True)
                if self._interval is None
                else writer.trigger(processingTime=self._interval)
            )
            with checkpoint_settings(spark, self._checkpoint):
                return writer.start()
        except PySparkException as error:
            raise fluvial_error(error, f"job cannot start: job={self._settings.name}") from error

    def stop_after_batch(self) -> bool:
        """Refuse further batches; the running one ends. Returns: whether one is running."""
        self._is_refusing.set()
        return self._began_s is not None

    @property
    def batch_seconds(self) -> float:
        """Seconds that the running batch has taken; 0 when none is running."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def close(self) -> None:
        """Wait for what runs beside the batches. Call it after the query, before Spark stops."""
        if self._batches is not None:
            self._batches.close()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        self._began_s = time.monotonic()  # before the look: who stops the query sees one of both
        try:
            if self._is_refusing.is_set():
                raise InvalidInputError(f"the job is stopping: job={self._settings.name} batch_id={batch_id}")
            self._write_ranges(frame, batch_id)
        finally:
            self._began_s = None

    def _write_ranges(self, frame: DataFrame, batch_id: int) -> None:
        if self._batches is None:
            self._batches = self._opened(frame)
        found = [
            OffsetRange(
                topic=row[0],
                partition=row[1],
                start_offset=row[2],
                end_offset=row[3],
                topic_id=row[4],
                begins_again=row[5],
            )
            for row in frame.collect()
        ]
        self.newest = self._batches.write(found, batch_id)

    def _opened(self, frame: DataFrame) -> CdcBatches:
        context = frame.sparkSession.sparkContext
        is_local = str(context.master).startswith("local")
        return CdcBatches(
            self._catalog,
            self._settings,
            self.state,
            commit_user=str(context.getLocalProperty(QUERY_ID)),
            run_id=str(uuid.uuid4()),
            runner=None if is_local else ClusterTables(frame.sparkSession),
            threads=max(2, min(_MOST_THREADS, context.defaultParallelism)),
            observe=self._observe,
            past=self._past,
        )
