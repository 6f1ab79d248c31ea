"""Where a pipeline's micro-batches go: one table or several, each exactly once.

Every table remembers the batches that it has, so a batch that reached some of them is written to the others when it is
run again.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from engine.deploy.config.pipeline_config import TargetConfig, TransformConfig
from engine.deploy.pipeline.transforms import transformed
from engine.table import Table
from engine.write.sink import StreamSink, sink
from lsm.errors import FluvialError


class StopRequestedError(FluvialError):
    """No further micro-batch is begun, because the job is to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table and how a pipeline fills it."""

    table: Table
    steps: Sequence[TransformConfig]
    write: StreamSink


class BatchWrite:
    """What ``foreachBatch`` calls. It serves one run of one query."""

    def __init__(self, pipeline: str, targets: Sequence[Target]) -> None:
        self._pipeline = pipeline
        self.targets = tuple(targets)
        self._lock = threading.Lock()
        self._is_closed = False
        self._started_s: float | None = None

    @classmethod
    def to(cls, pipeline: str, outputs: Sequence[TargetConfig], tables: Sequence[Table]) -> "BatchWrite":
        """A write to the tables of a pipeline. Raises: InvalidInputError for an option that no sink has."""
        return cls(
            pipeline,
            [
                Target(table=table, steps=output.transform, write=sink(table, options=output.options))
                for output, table in zip(outputs, tables, strict=True)
            ],
        )

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch to every table.

        Raises:
            StopRequestedError: it was not begun, so it is written in the next run.
        """
        with self._lock:
            if self._is_closed:
                raise StopRequestedError(f"the job ends: pipeline={self._pipeline} batch_id={batch_id}")
            self._started_s = time.monotonic()
        try:
            self._write(frame, batch_id)
        finally:
            self._started_s = None

    def begin_no_more(self) -> None:
        """Let the running micro-batch end, and begin no other."""
        with self._lock:
            self._is_closed = True

    @property
    def batch_seconds(self) -> float:
        """How long the running micro-batch has taken; 0 when none runs."""
        started_s = self._started_s
        return 0.0 if started_s is None else time.monotonic() - started_s

    def close(self) -> None:
        """Wait for the compactions that are running. Call it after the query, before Spark stops."""
        for target in self.targets:
            target.write.close()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        if len(self.targets) == 1:
            self._write_one(self.targets[0], frame, batch_id)
            return
        frame.persist()  # else every table would read the source again
        try:
            for target in self.targets:
                self._write_one(target, frame, batch_id)
        finally:
            frame.unpersist()

    def _write_one(self, target: Target, frame: DataFrame, batch_id: int) -> None:
        target.write(transformed(frame, target.steps, pipeline=self._pipeline), batch_id)
