"""Pipelines start one after another, and wait for an overloaded machine."""

import threading

import pytest
from pyspark.errors import PySparkException

from engine.deploy.config.operation_config import OnFailureConfig
from engine.deploy.pipeline import supervision
from engine.deploy.pipeline.supervision import Restart, Supervisor, restart_after
from engine.runtime.spark_messages import fluvial_error
from lsm.errors import OverloadedError

LOOKS = 4  # until a source has started


class Slow:
    """A pipeline; its first starts fail on an overloaded machine."""

    write = None
    restart_count = 0
    has_ended = False

    def __init__(self, name: str, all_pipelines: "list[Slow]", overloads: int = 0) -> None:
        self.name, self.overloads = name, overloads
        self.looks_left = 0
        self.seen: list[list[str]] = []
        self._all = all_pipelines
        all_pipelines.append(self)

    def start(self, _: object) -> None:
        self.seen.append([each.name for each in self._all if each.looks_left])
        self.looks_left = 0 if self.overloads else LOOKS

    def is_starting(self) -> bool:
        self.looks_left = max(0, self.looks_left - 1)
        return self.looks_left > 0

    def is_active(self, _: float) -> bool:
        if self.overloads:
            self.overloads -= 1
            raise OverloadedError("busy")
        return self.is_starting()

    def take_progress(self) -> None:
        return None

    def stop(self) -> None:
        pass

    def result(self, *, is_complete: bool) -> tuple[str, bool, int]:
        return self.name, is_complete, self.restart_count


def test_pipelines_start_one_after_another_also_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_OVERLOAD_BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(supervision, "_POLL_S", 0.004)
    pipelines: list[Slow] = []
    for name, overloads in (("a", 0), ("b", 2), ("c", 1)):
        Slow(name, pipelines, overloads)
    supervisor = Supervisor(pipelines, on_failure=OnFailureConfig(), stop_timeout_s=1, stop=threading.Event())  # type: ignore[arg-type]
    results: list[object] = list(supervisor.run(None, lambda _: None, lambda: None))  # type: ignore[arg-type]
    assert results == [("a", True, 0), ("b", True, 2), ("c", True, 1)]
    assert [each.seen for each in pipelines] == [[[]], [[], [], []], [[], []]]  # none was starting


def test_an_overloaded_machine_is_waited_for_under_every_policy() -> None:
    """Spark's limit says nothing about the pipeline, so its attempts are not used up."""
    text = "x\nCaused by: org.apache.spark.SparkException: Python worker failed to connect back.\n at y"
    error = fluvial_error(PySparkException(text), "pipeline failed: pipeline=p")
    assert isinstance(error, OverloadedError)
    for word in ("pipeline=p", "did not connect within 10 s", "overloaded", "fix="):
        assert word in str(error)
    for policy in (OnFailureConfig(), OnFailureConfig(policy="continue"), OnFailureConfig(policy="restart")):
        assert restart_after(policy, error, 99, 0) == Restart(after_s=2)
        assert restart_after(policy, error, 99, 2) == Restart(after_s=8)
        assert restart_after(policy, error, 99, 9) == Restart(after_s=60)
        assert restart_after(policy, error, 99, 10) is None
