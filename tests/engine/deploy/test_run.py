"""Pipelines side by side: chained, with several targets, when one fails, and when they are asked to end."""

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine.catalog import Catalog
from engine.checkpoint.checkpoint_files import read_checkpoint
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.operation_config import HealthConfig, OnFailureConfig
from engine.deploy.job import job_session, run_job
from engine.deploy.pipeline.checkpoints import note_transform, source_difference
from engine.deploy.pipeline.health import Health
from engine.deploy.pipeline.job_watch import ClusterWatch, JobWatch
from engine.deploy.pipeline.pipeline import PipelineProgress, RunningPipeline
from engine.deploy.pipeline.supervision import Restart, Supervisor, restart_after
from engine.deploy.pipeline.table_changes import ensure_table
from engine.deploy.pipeline.targets import BatchWrite
from engine.deploy.plan import make_plan
from filestore.evolution.schema_change import ChangeType
from filestore.types.data_types import parse_data_type
from logstore.kafka.clients import KafkaProperties
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, TakenOverError, UnavailableError
from tests.support.rows import sorted_rows

spark_test = pytest.mark.spark
Row = Mapping[str, Any]
KEYED: Row = {
    "columns": {"id": "BIGINT", "v": "INT"},
    "primary_key": ["id"],
    "options": {"bucket": "1", "log.system": "none"},
}
failures_left: list[FluvialError] = []
in_batch = threading.Event()


def fails_at_times(frame: DataFrame) -> DataFrame:
    if failures_left:
        raise failures_left.pop()
    return frame


def takes_a_second(frame: DataFrame) -> DataFrame:
    in_batch.set()
    time.sleep(1)
    return frame


def python(function: Any) -> dict[str, str]:
    return {"python": f"{__name__}:{function.__name__}"}


def put(home: Path, name: str, rows: Sequence[Row]) -> None:
    """A file of the source, which is ordered by the files' times."""
    (home / "in").mkdir(exist_ok=True)
    (home / "in" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def pipeline(home: Path, name: str, **more: Any) -> dict[str, Any]:
    columns = {"id": "BIGINT", "v": "INT", "_row_kind": "STRING"}
    source = {"format": "json", "options": {"path": str(home / "in")}, "columns": columns}
    return {"name": name, "source": source, "checkpoint": str(home / "checkpoints" / name), **more}


def job(home: Path, *pipelines: Row, tables: Mapping[str, Row] | None = None, **more: Any) -> JobConfig:
    return JobConfig.model_validate(
        {
            "name": "test",
            "warehouse": str(home / "warehouse"),
            "tables": tables or {"db.a": KEYED},
            "pipelines": pipelines,
            **more,
        }
    )


def written_rows(home: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted_rows(Catalog(str(home / "warehouse")).table(table))


FIRST = [{"id": 1, "v": 10, "_row_kind": "+I"}, {"id": 2, "v": 20, "_row_kind": "+I"}]
SECOND = [{"id": 1, "v": 11, "_row_kind": "+U"}, {"id": 2, "_row_kind": "-D"}, {"id": 3, "v": 30, "_row_kind": "+I"}]


@spark_test
def test_a_table_feeds_another_with_updates_and_deletes_and_one_stream_fills_several(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files → db.a and db.pages; db.a → db.b. A second run takes only what is new."""
    pages: Row = {"columns": {"id": "BIGINT", "page": "STRING"}, "options": {"log.system": "none"}}
    named = "SELECT id, concat('p', id) AS page, '+I' AS _row_kind FROM source WHERE _row_kind = '+I'"
    second = {"table": "db.pages", "transform": named}
    first_step = "SELECT * FROM source WHERE id < 100"
    files = pipeline(tmp_path, "files", transform=[first_step, python(unchanged)], targets=["db.a", second])
    files["limits"] = {"files": 1}
    copy = {
        "name": "copy",
        "source": {"format": "fluvial", "options": {"table": "db.a"}},
        "target": "db.b",
        "checkpoint": str(tmp_path / "checkpoints" / "copy"),
    }
    config = job(tmp_path, files, copy, tables={"db.a": KEYED, "db.b": KEYED, "db.pages": pages})
    put(tmp_path, "1.json", FIRST)
    plan = [(each.action.value, each.name) for each in make_plan(config).steps]
    assert plan == [*(("create", name) for name in ("db.a", "db.b", "db.pages")), ("start", "files"), ("start", "copy")]
    run_job(config.chosen(["files"]), spark=spark)
    run_job(config.chosen(["copy"]), spark=spark)
    assert written_rows(tmp_path, "db.b") == [(1, 10), (2, 20)]

    put(tmp_path, "2.json", SECOND)
    [result] = run_job(config.chosen(["files"]), spark=spark)
    assert (result.batch_count, result.row_count, result.is_complete) == (1, 3, True)
    assert [(each.table, each.snapshot_id) for each in result.targets] == [("db.a", 2), ("db.pages", 2)]
    run_job(config.chosen(["copy"]), spark=spark)
    assert written_rows(tmp_path, "db.a") == written_rows(tmp_path, "db.b") == [(1, 11), (3, 30)]
    assert written_rows(tmp_path, "db.pages") == [(1, "p1"), (2, "p2"), (3, "p3")]
    after = make_plan(config)
    assert [each.action.value for each in after.steps] == ["keep"] * 3 + ["continue"] * 2
    assert "after batch 1" in after.steps[3].fact
    assert not after.has_changes


def unchanged(frame: DataFrame) -> DataFrame:
    return frame


@spark_test
def test_a_batch_that_reached_one_of_two_tables_is_written_to_the_other_when_it_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first target has the batch when the second fails; after the restart both have it once."""
    put(tmp_path, "1.json", FIRST)
    keyless: Row = {"columns": KEYED["columns"], "options": {"log.system": "none"}}
    without_kind = "SELECT id, v, '+I' AS _row_kind FROM source"
    targets = [
        {"table": "db.a", "transform": without_kind},
        {"table": "db.b", "transform": [without_kind, python(fails_at_times)]},
    ]
    failures_left[:] = [UnavailableError("gone for a moment")] * 2
    config = job(
        tmp_path,
        pipeline(tmp_path, "files", targets=targets),
        tables={"db.a": keyless, "db.b": keyless},
        **{"on-failure": {"policy": "restart", "backoff": "1 ms"}},
    )
    [result] = run_job(config, spark=spark)
    assert (result.restart_count, failures_left) == (2, [])
    assert written_rows(tmp_path, "db.a") == written_rows(tmp_path, "db.b") == [(1, 10), (2, 20)]
    assert [each.snapshot_id for each in result.targets] == [1, 1]


@spark_test
@pytest.mark.parametrize("policy", ["continue", "stop-all", "restart"])
def test_a_pipeline_that_fails_for_good_fails_the_job_and_the_others_are_dealt_with_as_the_policy_says(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    put(tmp_path, "1.json", FIRST)
    failures_left[:] = [CorruptDataError("broken: file=x")] * 9
    bad = pipeline(tmp_path, "bad", targets=[{"table": "db.a", "transform": python(fails_at_times)}])
    good = pipeline(tmp_path, "good", targets=[{"table": "db.b", "transform": python(takes_a_second)}])
    config = job(tmp_path, bad, good, tables={"db.a": KEYED, "db.b": KEYED}, **{"on-failure": policy})
    with pytest.raises(CorruptDataError, match="broken: file=x"):
        run_job(config, spark=spark)
    assert spark.streams.active == []
    assert len(failures_left) == 8, "what is broken is not tried again"
    assert Catalog(config.warehouse).table("db.a").latest_snapshot() is None
    if policy == "continue":
        assert written_rows(tmp_path, "db.b") == [(1, 10), (2, 20)]


@spark_test
def test_a_request_to_stop_lets_the_micro_batch_end_and_be_noted_and_begins_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Five files, one per micro-batch; the request comes in the first. The next run takes the other four."""
    for number in range(5):
        put(tmp_path, f"{number}.json", [{"id": number, "v": number, "_row_kind": "+I"}])
    slow = pipeline(tmp_path, "slow", targets=[{"table": "db.a", "transform": python(takes_a_second)}])
    slow["limits"] = {"files": 1}
    config, stop = job(tmp_path, slow), threading.Event()
    in_batch.clear()
    threading.Thread(target=lambda: in_batch.wait(60) and stop.set(), daemon=True).start()
    [result] = run_job(config, spark=spark, stop=stop)
    state = read_checkpoint(config.pipelines[0].checkpoint)
    assert state is not None
    assert (result.is_complete, result.batch_count, state.batch_id) == (False, 1, 0)
    assert len(written_rows(tmp_path, "db.a")) == 1
    [result] = run_job(config, spark=spark)
    assert (result.is_complete, result.batch_count) == (True, 4)
    assert len(written_rows(tmp_path, "db.a")) == 5


@spark_test
def test_a_micro_batch_that_takes_too_long_is_cancelled_and_written_once_by_the_next_run(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "1.json", FIRST)
    slow = pipeline(tmp_path, "slow", targets=[{"table": "db.a", "transform": python(takes_a_second)}])
    config, stop = job(tmp_path, slow, **{"stop-timeout": "0s"}), threading.Event()
    in_batch.clear()
    threading.Thread(target=lambda: in_batch.wait(60) and stop.set(), daemon=True).start()
    [result] = run_job(config, spark=spark, stop=stop)
    assert not result.is_complete
    assert "did not finish in time" in caplog.text
    run_job(config, spark=spark)
    assert written_rows(tmp_path, "db.a") == [(1, 10), (2, 20)]
    latest = Catalog(config.warehouse).table("db.a").latest_snapshot()
    assert latest is not None
    assert latest.id == 1


@spark_test
def test_metrics_are_in_a_file_and_behind_a_port_while_the_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Of the query, its batches and its table; the port is free again afterwards."""
    put(tmp_path, "1.json", FIRST)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file, seen = tmp_path / "fluvial.prom", dict[str, str]()

    def look(_: PipelineProgress) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            seen["port"] = answer.read().decode()

    metrics = {"file": str(file), "port": port}
    run_job(job(tmp_path, pipeline(tmp_path, "files", target="db.a"), metrics=metrics), spark=spark, on_progress=look)
    for text in (seen["port"], file.read_text()):
        assert 'table="db.a"' in text
        assert "fluvial_" in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


@pytest.mark.sweep
def test_health_is_in_a_file_and_behind_a_port_while_the_job_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And systemd is notified: ready, alive, stopping."""
    put(tmp_path, "1.json", FIRST)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    reported = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reported.settimeout(60)
    reported.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    file, seen = tmp_path / "health.json", dict[str, Any]()

    def look(_: PipelineProgress) -> None:
        seen["file"] = json.loads(file.read_text())
        for path in ("", "live", "ready"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                seen[path] = (answer.status, json.load(answer))
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=10)

    config = job(tmp_path, pipeline(tmp_path, "files", target="db.a"), health={"file": str(file), "port": port})
    run_job(config, spark=spark, on_progress=look)
    assert seen["file"]["live"] is True
    assert [seen[path][0] for path in ("", "live", "ready")] == [200, 200, 200]
    assert seen["ready"][1]["pipelines"]["files"]["row_count"] == 2
    assert not file.exists()
    said = list(iter(lambda: reported.recv(100).decode(), "STOPPING=1"))
    reported.close()
    assert (set(said), said.count("READY=1")) == ({"WATCHDOG=1", "READY=1"}, 1)


def test_a_job_whose_batch_takes_too_long_is_not_live_and_one_that_waits_is_not_ready() -> None:
    class Stuck:
        name, batch_count, row_count, restart_count = "p", 0, 0, 0
        write = type("Write", (), {"batch_seconds": 11.0})()

    supervisor = Supervisor([Stuck()], on_failure=OnFailureConfig(), stop_timeout_s=1, stop=threading.Event())  # type: ignore[list-item]
    config = HealthConfig.model_validate({"batch-timeout": "10 s"})
    state = Health(config, "job", supervisor).state()
    assert (state["live"], state["ready"]) == (False, False)
    assert Health(HealthConfig(), "job", supervisor).state()["live"]


@pytest.mark.parametrize(
    ("error", "attempts", "expected"),
    [
        (UnavailableError("x"), 0, Restart(after_s=1)),
        (UnavailableError("x"), 1, Restart(after_s=2)),
        (FluvialError("x"), 3, Restart(after_s=5)),
        (UnavailableError("x"), 4, None),
        (InvalidInputError("x"), 0, None),
        (CorruptDataError("x"), 0, None),
        (TakenOverError("x"), 0, None),
    ],
)
def test_restarts_come_later_and_later_and_only_where_they_can_help(
    error: FluvialError, attempts: int, expected: Restart | None
) -> None:
    policy = OnFailureConfig.model_validate({"policy": "restart", "max-attempts": "4", "max-backoff": "5 s"})
    assert restart_after(policy, error, attempts) == expected


def test_a_live_pipeline_outlives_an_outage_of_any_length_and_nothing_else() -> None:
    """The default: five attempts were used up within minutes, and a job that runs for weeks was gone."""
    policy = OnFailureConfig()
    assert policy.policy == "restart"
    assert restart_after(policy, UnavailableError("x"), 5000, has_end=False) == Restart(after_s=60)
    assert restart_after(policy, UnavailableError("x"), 5, has_end=True) is None
    assert restart_after(policy, FluvialError("x"), 5, has_end=False) is None


@pytest.mark.parametrize(
    ("master", "conf", "submitted", "ui"),
    [
        ("local[2]", {}, False, "false"),
        (None, {}, False, "false"),
        ("local[2]", {"spark.ui.enabled": "true"}, False, "true"),
        ("spark://m:7077", {}, False, None),
        (None, {}, True, None),
    ],
)
def test_sparks_ui_is_off_on_one_machine_unless_a_job_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, master: str | None, conf: dict[str, str], submitted: bool, ui: str | None
) -> None:
    """Cluster, finding 8: it listens on every address, and anyone may look."""
    seen: dict[str, str] = {}
    monkeypatch.setattr("engine.deploy.job.session", lambda _name, _master, given: seen.update(given))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    job_session(job(Path("/j"), pipeline(Path("/j"), "files", target="db.a"), spark={"master": master, "conf": conf}))
    assert seen.get("spark.ui.enabled") == ui


@pytest.mark.sweep
def test_brokers_that_do_not_answer_make_a_job_not_ready() -> None:
    """Finding 8: it said that it was ready for the whole outage, in which one batch hung."""
    config = HealthConfig()
    health = Health(
        config, "job", Supervisor([], on_failure=OnFailureConfig(), stop_timeout_s=1, stop=threading.Event())
    )
    health.watch = JobWatch([cluster := ClusterWatch(KafkaProperties.parse({"bootstrap.servers": "localhost:1"}))])
    assert health.state()["ready"]
    cluster.look()
    state = health.state()
    assert (state["live"], state["ready"]) == (True, False)
    assert state["brokers"]["localhost:1"]["reachable"] is False


def test_a_plan_says_what_differs_and_the_statement_that_changes_it(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "warehouse"))
    config = job(tmp_path, pipeline(tmp_path, "files", target="db.a"))
    ensure_table(catalog, "db.a", config.tables["db.a"])
    wanted = {
        "columns": {"id": "STRING", "v": "INT", "w": "STRING"},
        "primary_key": ["id"],
        "options": {"bucket": "2", "log.system": "none"},
        "comment": "it's new",
    }
    plan = make_plan(job(tmp_path, pipeline(tmp_path, "files", target="db.a"), tables={"db.a": wanted}))
    assert [(each.action.value, each.statement) for each in plan.steps] == [
        ("refuse", None),  # the type of a key cannot change
        ("change", "ALTER TABLE db.a ADD COLUMN w STRING"),
        ("change", "COMMENT ON TABLE db.a IS 'it\\'s new'"),
        ("change", "ALTER TABLE db.a SET TBLPROPERTIES ('bucket' = '2')"),
        ("start", None),
    ]
    assert (plan.is_possible, plan.has_changes) == (False, True)


@pytest.mark.parametrize(
    ("offset", "source", "topics", "difference"),
    [
        ({"logOffset": 3}, "json", (), None),
        ({"logOffset": 3}, "fluvial", (), "checkpoint_has=files job_has=fluvial"),
        ({"version": 1, "phase": "log", "snapshot": 4}, "fluvial", (), None),
        ({"orders": {"0": 3}}, "kafka", ("orders", "more"), None),
        ({"orders": {"0": 3}}, "kafka", ("payments",), "checkpoint_has=['orders'] job_has=['payments']"),
        ({"orders": {"0": 3}}, "parquet", (), "checkpoint_has=kafka job_has=files"),
        (7, "rate", (), None),
    ],
)
def test_a_checkpoint_of_another_source_is_noticed(
    tmp_path: Path, offset: object, source: str, topics: tuple[str, ...], difference: str | None
) -> None:
    for name, text in (
        ("metadata", '{"id":"query-1"}'),
        ("commits/0", "v1\n{}"),
        ("offsets/0", f"v1\n{{}}\n{json.dumps(offset)}"),
        ("offsets/1", "v1\n{}\n-"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    state = read_checkpoint(str(tmp_path))
    assert state is not None
    assert (state.query_id, state.batch_id) == ("query-1", 0)
    found = source_difference(state, source, topics)
    assert found is None if difference is None else difference in str(found)


def test_a_directory_that_is_no_checkpoint_is_refused_and_an_empty_one_is_new(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path / "none")) is None
    assert read_checkpoint(str(tmp_path)) is None
    described = pipeline(tmp_path, "p", target="db.a")
    (tmp_path / "checkpoints" / "p").mkdir(parents=True)
    (tmp_path / "checkpoints" / "p" / "notes.txt").write_text("mine")
    [_, step] = make_plan(job(tmp_path, described)).steps
    assert (step.action.value, "not a checkpoint, and not empty" in step.fact) == ("refuse", True)


class _Ended:
    """A query that has ended, by itself or with an error."""

    isActive = False

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        """It has."""


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (None, (True, True)),
        (RuntimeError("engine.deploy.pipeline.targets.StopRequestedError: the job ends: pipeline=p"), (True, False)),
        (RuntimeError("lsm.errors.UnavailableError: the broker is gone: x=1"), UnavailableError),
    ],
)
def test_what_a_query_did_while_it_was_asked_to_end_is_not_lost(
    tmp_path: Path, failure: Exception | None, expected: tuple[bool, bool] | type[FluvialError]
) -> None:
    config = job(tmp_path, pipeline(tmp_path, "p", target="db.a"))
    running = RunningPipeline(config, config.pipelines[0], [])
    running._query, running.write = _Ended(failure), BatchWrite("p", [])  # type: ignore[assignment]
    if isinstance(expected, type):
        with pytest.raises(expected, match="the broker is gone"):
            running.end_after_batch(time.monotonic() + 1)
    else:
        assert (running.end_after_batch(time.monotonic() + 1), running.has_ended) == expected


def test_a_plan_refuses_what_the_statement_would_be_refused_and_leaves_what_is_wider(tmp_path: Path) -> None:
    """Its exit code says change as long as there is one, and quiets down then."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    config = job(tmp_path, pipeline(tmp_path, "files", target="db.a"))
    table = ensure_table(catalog, "db.a", config.tables["db.a"])
    table.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())}))
    catalog.alter_table("db.a", [ChangeType(("v",), parse_data_type("BIGINT"))])

    def planned(**changes: Any) -> list[tuple[str, str | None, bool]]:
        given = {**KEYED, **changes}
        plan = make_plan(job(tmp_path, pipeline(tmp_path, "files", target="db.a"), tables={"db.a": given}))
        return [(each.action.value, each.statement, each.is_before_run) for each in plan.steps][:-1]

    assert planned() == [("keep", None, False)]
    assert planned(columns={"id": "INT", "v": "BIGINT"}) == [("keep", None, False)]
    table.write(pa.table({"id": pa.array([2], pa.int32()), "v": pa.array([1], pa.int32())}))
    assert planned(options={**KEYED["options"], "merge-engine": "deduplicate"}) == [("keep", None, False)]
    assert planned(columns={"id": "BIGINT", "v": "BIGINT NOT NULL"}) == [("keep", None, False)]
    for bound, action in (("v > 1", "refuse"), ("v > 0", "change")):  # a row has 1
        assert planned(options={**KEYED["options"], "check.c": bound})[-1][0] == action
    added = "ALTER TABLE db.a ADD COLUMN w INT"
    wider = {"id": "BIGINT", "v": "BIGINT", "w": "INT"}
    assert planned(columns=wider) == [("change", added, True)]
    assert planned(options={"merge-engine": "first-row"}) == [("keep", None, False), ("refuse", None, False)]


def test_a_plan_names_a_changed_transform(tmp_path: Path) -> None:
    """Until a run has it; a checkpoint of before says nothing."""
    checkpoint = Path(pipeline(tmp_path, "files", target="db.a")["checkpoint"])
    for name, text in (("metadata", '{"id":"q"}'), ("commits/0", "v1\n{}"), ("offsets/0", 'v1\n{}\n{"logOffset":0}')):
        (checkpoint / name).parent.mkdir(exist_ok=True, parents=True)
        (checkpoint / name).write_text(text)

    def planned(sql: str, *, runs: bool = False) -> tuple[str, bool]:
        given = pipeline(tmp_path, "files", target="db.a", transform=sql)
        config = job(tmp_path, given, tables={"db.a": KEYED})
        if runs:
            note_transform(str(checkpoint), config.pipelines[0])
        (step,) = (each for each in make_plan(config).steps if each.kind == "pipeline")
        return step.action.value, "rows that are written stay" in step.fact

    first, second = "SELECT id, v, _row_kind FROM source", "SELECT id, v + 1 AS v, _row_kind FROM source"
    assert planned(first) == ("continue", False)
    assert planned(first, runs=True) == ("continue", False)
    assert planned(f"  {first}\n") == ("continue", False)
    assert planned(second) == ("change", True)
    assert planned(second, runs=True) == ("continue", False)
