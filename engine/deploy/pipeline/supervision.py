"""Supervision of pipelines: watched until all have ended, restarted or stopped on failure, stopped on request."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pyspark.sql import SparkSession

from engine.deploy.config.operation_config import CONTINUE, RESTART, OnFailureConfig
from engine.deploy.pipeline.pipeline import OnProgress, PipelineResult, RunningPipeline
from lsm.errors import (
    CorruptDataError,
    FluvialError,
    InvalidInputError,
    MissingTopicError,
    OverloadedError,
    TakenOverError,
    UnavailableError,
)
from lsm.undo import undoing

_POLL_S: Final = 0.2
_START_TIMEOUT_S: Final = 60.0  # after which the next pipeline starts beside one that is still starting
_MAX_OVERLOADS: Final = 10  # in a row
_MAX_DOUBLINGS: Final = 30
_JITTER: Final = 0.5  # most that is added to a delay, in parts of it
_TOPIC_POLL_S: Final = 10.0
_OVERLOAD_BACKOFF_S: Final = (2.0, 60.0)  # the first delay, and the longest

logger = logging.getLogger("fluvial.job")


class PipelineState(Enum):
    """The state of a pipeline."""

    RUNNING = "running"
    WAITING = "waiting"  # for its restart
    ENDED = "ended"
    STOPPED = "stopped"  # because the job is stopping
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart the pipeline after a delay."""

    after_s: float


def restart_after(
    policy: OnFailureConfig, error: FluvialError, attempt_count: int, overload_count: int = 0, *, has_end: bool = True
) -> Restart | None:
    """Whether and when to restart a failed pipeline; None: not at all.

    Args:
        policy: the job's policy. A pipeline that an overloaded machine did not start is retried under each of them,
            and these attempts do not count for ``max-attempts``. Nor do those of a pipeline without an end until a
            topic exists, unless one failure ends the job: connectors create a table's topic with its first row.
        error: the failure. Invalid requests and corrupt data are not retried, and what another run of the query has
            taken over is that run's: two supervisors would take the query from each other without end.
        attempt_count: restarts since the last finished micro-batch.
        overload_count: starts since then that failed on an overloaded machine.
        has_end: its trigger is available-now: a scheduler waits for it. Another outlives an outage of any length.
    """
    if isinstance(error, OverloadedError) and overload_count < _MAX_OVERLOADS:
        first_s, longest_s = _OVERLOAD_BACKOFF_S
        return Restart(after_s=min(first_s * 2**overload_count, longest_s))
    if isinstance(error, MissingTopicError) and policy.policy in (CONTINUE, RESTART) and not has_end:
        return Restart(after_s=_TOPIC_POLL_S)
    if policy.policy != RESTART or isinstance(error, InvalidInputError | CorruptDataError | TakenOverError):
        return None
    if attempt_count >= policy.max_attempts and (has_end or not isinstance(error, UnavailableError)):
        return None
    return Restart(after_s=min(policy.backoff * 2 ** min(attempt_count, _MAX_DOUBLINGS), policy.max_backoff))


@dataclass(slots=True)
class Attempts:
    """The starts of a query since its last finished micro-batch."""

    failed: int = 0
    overloaded: int = 0  # on an overloaded machine, not counted as failed

    def progressed(self) -> None:
        """A micro-batch was finished."""
        self.failed = self.overloaded = 0

    def after(self, policy: OnFailureConfig, error: FluvialError, *, has_end: bool, name: str) -> Restart | None:
        """Count a failure, and report it. Returns: see ``restart_after``."""
        restart = restart_after(policy, error, self.failed, self.overloaded, has_end=has_end)
        if restart is None:
            return None
        if isinstance(error, MissingTopicError):
            logger.warning("pipeline waits for its topic: pipeline=%s reason=%s", name, error)
            return restart
        if isinstance(error, OverloadedError):
            self.overloaded += 1
            message = "pipeline is started again: pipeline=%s after_s=%s attempt=%s of=%s reason=%s"
            logger.warning(message, name, restart.after_s, self.overloaded, _MAX_OVERLOADS, error)
            return restart
        self.failed += 1
        message = "pipeline failed and will be restarted: pipeline=%s after_s=%s attempt=%s of=%s reason=%s"
        logger.warning(message, name, restart.after_s, self.failed, policy.max_attempts, error)
        return restart


@dataclass(slots=True)
class _Watched:
    pipeline: RunningPipeline
    state: PipelineState = PipelineState.WAITING
    attempts: Attempts = field(default_factory=Attempts)
    next_start_s: float = 0.0
    start_s: float = 0.0  # of the last start, on ``time.monotonic``
    error: FluvialError | None = None


class Supervisor:
    """Runs the pipelines of one job."""

    def __init__(
        self,
        pipelines: Sequence[RunningPipeline],
        *,
        on_failure: OnFailureConfig,
        stop_timeout_s: float,
        stop: threading.Event,
    ) -> None:
        """Create the supervisor.

        Args:
            pipelines: the pipelines to run.
            on_failure: what to do when one fails.
            stop_timeout_s: how long running micro-batches may take to finish.
            stop: set it to end the job.
        """
        self._watched = [_Watched(each) for each in pipelines]
        self._on_failure = on_failure
        self._stop_timeout_s = stop_timeout_s
        self._stop = stop

    def states(self) -> Mapping[str, PipelineState]:
        """The state of each pipeline."""
        return {each.pipeline.name: each.state for each in self._watched}

    def pipelines(self) -> Sequence[RunningPipeline]:
        """All pipelines."""
        return [each.pipeline for each in self._watched]

    def run(self, spark: SparkSession, on_progress: OnProgress, on_look: Callable[[], None]) -> list[PipelineResult]:
        """Start the pipelines one after another and watch until all have ended, or the job is stopped.

        Each starts processes that have a fixed time to connect to Spark: many at once are late on few cores.

        Args:
            spark: the session.
            on_progress: called after every batch.
            on_look: called several times a second.

        Returns:
            One result per pipeline, in order.

        Raises:
            FluvialError: a pipeline failed permanently. All others have ended, too.
        """
        with undoing(self._stop_now):
            for each in self._watched:
                if not self._stop.is_set():
                    self._start_first(each, spark)
            while self._must_continue():
                self._look(spark, on_progress)
                on_look()
        self._end()
        self._report_progress(on_progress)
        on_look()
        self._raise_failures()
        return [each.pipeline.result(is_complete=each.state is PipelineState.ENDED) for each in self._watched]

    def _must_continue(self) -> bool:
        if self._stop.is_set():
            return False
        if self._on_failure.policy != CONTINUE and any(each.error is not None for each in self._watched):
            return False
        return any(each.state in (PipelineState.RUNNING, PipelineState.WAITING) for each in self._watched)

    def _look(self, spark: SparkSession, on_progress: OnProgress) -> None:
        running = [each for each in self._watched if each.state is PipelineState.RUNNING]
        for each in running:
            try:
                if not each.pipeline.is_active(_POLL_S / len(running)):
                    each.state = PipelineState.ENDED
            except FluvialError as error:
                self._handle_failure(each, error)
        self._report_progress(on_progress)
        for each in self._watched:
            is_due = each.state is PipelineState.WAITING and time.monotonic() >= each.next_start_s
            if is_due and not self._is_starting():
                self._start_again(each, spark)
        if not running:
            self._stop.wait(_POLL_S)

    def _report_progress(self, on_progress: OnProgress) -> None:
        for each in self._watched:
            progress = each.pipeline.take_progress()
            if progress is not None:
                each.attempts.progressed()
                on_progress(progress)

    def _handle_failure(self, each: _Watched, error: FluvialError) -> None:
        each.pipeline.stop()
        if each.pipeline.may_grow(error):
            each.state, each.next_start_s = PipelineState.WAITING, time.monotonic()
            logger.info("pipeline starts again with new columns: pipeline=%s reason=%s", each.pipeline.name, error)
            return
        restart = each.attempts.after(self._on_failure, error, has_end=each.pipeline.has_end, name=each.pipeline.name)
        if restart is None:
            each.state, each.error = PipelineState.FAILED, error
            if self._on_failure.policy == CONTINUE:  # otherwise run() raises it at once
                logger.error("pipeline failed, the others continue: pipeline=%s reason=%s", each.pipeline.name, error)
            return
        # pipelines that failed together do not start together
        delay_s = restart.after_s * (1 + _JITTER * random.random())
        each.state, each.next_start_s = PipelineState.WAITING, time.monotonic() + delay_s

    def _start_first(self, each: _Watched, spark: SparkSession) -> None:
        """Start a pipeline and wait until its source has started, fails or takes too long."""
        try:
            each.pipeline.start(spark)
        except FluvialError as error:
            if self._on_failure.policy != CONTINUE and not isinstance(error, OverloadedError):
                raise
            self._handle_failure(each, error)  # one bad pipeline keeps none of the others from starting
            return
        each.state, each.start_s = PipelineState.RUNNING, time.monotonic()
        while self._is_starting() and not self._stop.wait(_POLL_S / 4):
            pass

    def _is_starting(self) -> bool:
        """Whether a pipeline is starting its source, and may still take its time for it."""
        now_s = time.monotonic()
        return any(
            each.state is PipelineState.RUNNING
            and now_s - each.start_s < _START_TIMEOUT_S
            and each.pipeline.is_starting()
            for each in self._watched
        )

    def _start_again(self, each: _Watched, spark: SparkSession) -> None:
        try:
            each.pipeline.start(spark)
        except FluvialError as error:
            self._handle_failure(each, error)
        else:
            each.pipeline.restart_count += 1
            each.state, each.start_s = PipelineState.RUNNING, time.monotonic()

    def _end(self) -> None:
        """Stop every running pipeline after its micro-batch; one deadline for all."""
        deadline_s = time.monotonic() + self._stop_timeout_s
        for each in self._watched:
            if each.state is PipelineState.RUNNING and each.pipeline.write is not None:
                each.pipeline.write.refuse_new_batches()
        for each in self._watched:
            if each.state is PipelineState.RUNNING:
                self._end_one(each, deadline_s)
            elif each.state is PipelineState.ENDED:
                each.pipeline.close()  # its last compaction may still need Spark
            elif each.state is PipelineState.WAITING:
                each.state = PipelineState.STOPPED

    def _end_one(self, each: _Watched, deadline_s: float) -> None:
        try:
            is_in_time = each.pipeline.end_after_batch(deadline_s)
        except FluvialError as error:
            each.state, each.error = PipelineState.FAILED, error
            return
        each.state = PipelineState.ENDED if each.pipeline.has_ended else PipelineState.STOPPED
        if not is_in_time:
            message = "micro-batch did not finish in time, the next run repeats it: pipeline=%s stop-timeout=%ss"
            logger.warning(message, each.pipeline.name, self._stop_timeout_s)

    def _stop_now(self) -> None:
        for each in self._watched:
            each.pipeline.stop()

    def _raise_failures(self) -> None:
        errors = [each.error for each in self._watched if each.error is not None]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise FluvialError(f"pipelines failed: count={len(errors)} reasons: {'; '.join(map(str, errors))}")
