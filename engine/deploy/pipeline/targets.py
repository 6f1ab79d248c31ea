"""The targets of a pipeline's micro-batches: one table or several, each written exactly once.

Every table remembers its batches, so a batch that reached only some tables is written to the others when it is
repeated.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from engine.deploy.config.pipeline_config import TargetConfig, TransformConfig
from engine.deploy.pipeline.transforms import transformed
from engine.kafka.dead_letters import RowLetters
from engine.kafka.options import KafkaSourceOptions
from engine.table import Table
from engine.write.sink import StreamSink, sink
from lsm.errors import FluvialError


class StopRequestedError(FluvialError):
    """No further micro-batch is started, because the job is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and how a pipeline writes it."""

    table: Table
    steps: Sequence[TransformConfig]
    write: StreamSink


def _letters(source: KafkaSourceOptions | None, table: Table) -> RowLetters | None:
    """Where updates go that cannot be completed: where bad records go."""
    if source is None or source.dead_letter_topic is None:
        return None
    return RowLetters(
        properties=source.properties,
        topic=source.dead_letter_topic,
        table=table.name,
        key_names=table.schema.primary_keys,
    )


class BatchWrite:
    """The ``foreachBatch`` function of one run of one query."""

    def __init__(self, pipeline: str, targets: Sequence[Target]) -> None:
        self._pipeline = pipeline
        self.targets = tuple(targets)
        self._lock = threading.Lock()
        self._is_closed = False
        self._started_s: float | None = None

    @classmethod
    def to(
        cls,
        pipeline: str,
        outputs: Sequence[TargetConfig],
        tables: Sequence[Table],
        source: KafkaSourceOptions | None = None,
    ) -> "BatchWrite":
        """A write to the tables of a pipeline.

        Args:
            pipeline: its name.
            outputs: its targets.
            tables: the table of each.
            source: topics that it reads, with where bad records go; None: none.

        Raises: InvalidInputError for an unknown sink option.
        """
        return cls(
            pipeline,
            [
                Target(
                    table=table,
                    steps=output.transform,
                    write=sink(table, output.options, refuse=_letters(source, table)),
                )
                for output, table in zip(outputs, tables, strict=True)
            ],
        )

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch to every table.

        Raises:
            StopRequestedError: the batch was not started; the next run writes it.
        """
        with self._lock:
            if self._is_closed:
                raise StopRequestedError(f"the job is stopping: pipeline={self._pipeline} batch_id={batch_id}")
            self._started_s = time.monotonic()
        try:
            self._write(frame, batch_id)
        finally:
            self._started_s = None

    def refuse_new_batches(self) -> None:
        """Let the running micro-batch finish, and start no other."""
        with self._lock:
            self._is_closed = True

    @property
    def batch_seconds(self) -> float:
        """How long the running micro-batch has taken; 0 when none is running."""
        started_s = self._started_s
        return 0.0 if started_s is None else time.monotonic() - started_s

    def close(self) -> None:
        """Wait for running compactions. Call it after the query has ended, before Spark stops."""
        for target in self.targets:
            target.write.close()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        if len(self.targets) == 1:
            self._write_one(self.targets[0], frame, batch_id)
            return
        frame.persist()  # otherwise every table would read the source again
        try:
            for target in self.targets:
                self._write_one(target, frame, batch_id)
        finally:
            frame.unpersist()

    def _write_one(self, target: Target, frame: DataFrame, batch_id: int) -> None:
        target.write(transformed(frame, target.steps, pipeline=self._pipeline), batch_id)
