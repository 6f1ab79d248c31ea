"""Pipelines start one after another, and wait for an overloaded machine."""

import threading

import pytest
from pyspark.errors import PySparkException

from engine.deploy.config.operation_config import OnFailureConfig
from engine.deploy.pipeline import supervision
from engine.deploy.pipeline.supervision import Restart, Supervisor, restart_after
from engine.runtime.spark_messages import fluvial_error
from lsm.errors import ConflictError, FluvialError, InvalidInputError, MissingTopicError, OverloadedError

LOOKS = 4  # until a source has started


class Slow:
    """A pipeline; its first starts fail on an overloaded machine."""

    write = None
    restart_count = 0
    has_ended = has_end = False

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

    def may_grow(self, error: FluvialError) -> bool:
        return False

    def take_progress(self) -> None:
        return None

    def stop(self) -> None:
        self.close()

    def close(self) -> None:
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
    for policy in (OnFailureConfig(policy=each) for each in ("stop-all", "continue", "restart")):
        assert restart_after(policy, error, 99, 0) == Restart(after_s=2)
        assert restart_after(policy, error, 99, 2) == Restart(after_s=8)
        assert restart_after(policy, error, 99, 9) == Restart(after_s=60)
        assert restart_after(policy, error, 99, 10) is None


class Compacting(Slow):
    """A pipeline whose last compaction ends when it is closed, which must be before Spark is stopped."""

    def close(self) -> None:
        self.seen.append(["closed"])


def test_a_pipeline_that_ends_by_itself_waits_for_its_last_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cluster, finding 8: Spark was stopped under it, and a job that ended well said "compaction failed"."""
    monkeypatch.setattr(supervision, "_POLL_S", 0.004)
    pipelines: list[Slow] = []
    first, second = Compacting("first", pipelines), Compacting("second", pipelines, overloads=1)
    monkeypatch.setattr(supervision, "_OVERLOAD_BACKOFF_S", (0.0, 0.0))
    results: list[object] = list(supervised("restart", first, second).run(None, lambda _: None, lambda: None))  # type: ignore[arg-type]
    assert results == [("first", True, 0), ("second", True, 1)]
    assert [each.seen[-1] for each in pipelines] == [["closed"], ["closed"]]
    assert [each.seen.count(["closed"]) for each in pipelines] == [1, 2]  # and once when it failed


class Failing(Slow):
    """A pipeline whose starts fail with these errors, one after another."""

    def __init__(self, name: str, all_pipelines: list[Slow], *errors: FluvialError, grows: int = 0) -> None:
        super().__init__(name, all_pipelines)
        self.errors, self.grows = list(errors), grows

    def start(self, spark: object) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().start(spark)

    def may_grow(self, error: FluvialError) -> bool:
        self.grows -= 1
        return self.grows >= 0


def supervised(policy: str, *pipelines: Slow) -> Supervisor:
    on_failure = OnFailureConfig(policy=policy)
    return Supervisor(list(pipelines), on_failure=on_failure, stop_timeout_s=1, stop=threading.Event())  # type: ignore[arg-type]


def test_a_pipeline_that_cannot_start_keeps_no_other_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One TIME column kept six other tables from starting (finding 7)."""
    monkeypatch.setattr(supervision, "_POLL_S", 0.004)
    pipelines: list[Slow] = []
    bad, good = Failing("bad", pipelines, InvalidInputError("no such type")), Slow("good", pipelines)
    supervisor = supervised("continue", bad, good)
    with pytest.raises(InvalidInputError, match="no such type"):  # said when the others have ended
        supervisor.run(None, lambda _: None, lambda: None)  # type: ignore[arg-type]
    assert {name: state.value for name, state in supervisor.states().items()} == {"bad": "failed", "good": "ended"}
    pipelines = []
    stopped, other = Failing("bad", pipelines, InvalidInputError("no such type")), Slow("good", pipelines)
    with pytest.raises(InvalidInputError, match="no such type"):
        supervised("stop-all", stopped, other).run(None, lambda _: None, lambda: None)  # type: ignore[arg-type]
    assert other.seen == []


@pytest.mark.sweep
def test_a_topic_that_its_producer_has_not_created_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debezium creates the topic of a table with its first row (finding 7)."""
    monkeypatch.setattr(supervision, "_POLL_S", 0.004)
    monkeypatch.setattr(supervision, "_TOPIC_POLL_S", 0.0)
    pipelines: list[Slow] = []
    late = Failing("late", pipelines, *[MissingTopicError("topic does not exist")] * 30)
    assert supervised("continue", late).run(None, lambda _: None, lambda: None) == [("late", True, 1)]  # type: ignore[arg-type]
    assert restart_after(OnFailureConfig(policy="stop-all"), MissingTopicError("x"), 0, has_end=False) is None
    assert restart_after(OnFailureConfig(), MissingTopicError("x"), 0, has_end=True) is None  # a scheduler waits for it


def test_new_columns_are_no_failure_under_any_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by-hand restart found the same record again (finding 3)."""
    monkeypatch.setattr(supervision, "_POLL_S", 0.004)
    for policy in ("stop-all", "continue", "restart"):
        pipelines: list[Slow] = []
        grown = Growing("p", pipelines)
        assert supervised(policy, grown).run(None, lambda _: None, lambda: None) == [("p", True, 2)]  # type: ignore[arg-type]


class Growing(Slow):
    """A pipeline that meets two records with new columns."""

    left = 2

    def is_active(self, wait_s: float) -> bool:
        if self.left:
            self.left -= 1
            raise ConflictError("rows of the source have new columns")
        return super().is_active(wait_s)

    def may_grow(self, error: FluvialError) -> bool:
        return True


def test_pipelines_that_fail_together_start_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five pipelines restarted at once, 15 times, and none of them got up (finding 13)."""
    monkeypatch.setattr(supervision, "_OVERLOAD_BACKOFF_S", (1000.0, 1000.0))
    pipelines: list[Slow] = []
    supervisor = supervised("stop-all", *[Failing(str(name), pipelines, OverloadedError("busy")) for name in range(8)])
    for each in supervisor._watched:
        supervisor._start_first(each, None)  # type: ignore[arg-type]
    delays = sorted(each.next_start_s for each in supervisor._watched)
    assert len(set(delays)) == 8
    assert 1 < delays[-1] - delays[0] < 1000 * supervision._JITTER + 60


@pytest.mark.sweep
def test_a_job_that_waits_for_a_restart_ends_when_it_is_stopped() -> None:
    """It had not ended 8 s after SIGTERM and SIGINT (finding 14)."""
    stop, pipelines = threading.Event(), list[Slow]()
    busy = Failing("busy", pipelines, OverloadedError("busy"))  # starts again after seconds
    supervisor = Supervisor(pipelines, on_failure=OnFailureConfig(), stop_timeout_s=1, stop=stop)  # type: ignore[arg-type]
    results: list[object] = list(supervisor.run(None, lambda _: None, stop.set))  # type: ignore[arg-type]
    assert results == [("busy", False, 0)]
    assert not busy.seen  # it waits for seconds
