"""Metrics: what is scraped is what happened and what is there; log messages: what is said is there by name."""

import json
import logging
import time
import urllib.request
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.compaction.background import BackgroundCompaction
from engine.deploy.config.operation_config import HealthConfig, MetricsConfig
from engine.monitor.doctor import diagnose, examine
from engine.monitor.metrics_listener import MetricsListener, QueryMetrics, lags_of
from engine.monitor.table_metrics import table_metrics_text, watch_tables
from engine.monitor.table_probe import TableProbe
from engine.runtime.logs import JsonLines, configure_logging, fields_of
from engine.runtime.metrics import metrics_file, metrics_text, serve_metrics
from filestore.compact.compactor import run_task
from filestore.scan.live_files import LiveFiles
from lsm.errors import InvalidInputError
from tests.support.tables import KEY_SCHEMA, key_table, rows
from tests.support.tails import changes, write_log_only
from tests.support.warehouses import new_table

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Catalog(str(tmp_path)).create_table("db.metered", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for value in range(6):
        made.write(rows((1, value), (2, value)))
    return made


def test_a_scrape_says_what_the_table_is(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """By the function and by the command, without any process that kept count."""
    live = LiveFiles.latest(table.store)
    size = sum(file.size_bytes for key in live.buckets() for file in live.files(key))
    assert run_command(["metrics", "db.metered", "--warehouse", str(Path(table.store.paths.root).parents[1])]) == 0
    for text in (table_metrics_text([table]), capsys.readouterr().out):
        found = samples(text)
        name = {"table": "db.metered"}
        assert of(found, "fluvial_table_up", **name) == 1
        assert of(found, "fluvial_table_snapshot", **name) == 6
        assert of(found, "fluvial_table_size_bytes", **name) == size
        assert of(found, "fluvial_table_max_sorted_runs", **name) == 6
        assert of(found, "fluvial_level_file_count", **name, level="0") == 6
        assert of(found, "fluvial_bucket_sorted_runs", **name, partition="", bucket="0") == 6
        assert of(found, "fluvial_table_compaction_debt_bytes", **name) == size


def test_consumers_have_lags(table: Table) -> None:
    table.store.consumers.write("report", 3)
    found = samples(table_metrics_text([table]))
    labels = {"table": "db.metered", "stream": "consumer report"}
    assert of(found, "fluvial_stream_lag_snapshots", **labels) == 4
    assert of(found, "fluvial_stream_lag_records", **labels) == 8


@pytest.mark.broker
def test_the_log_has_a_lag_when_it_is_ahead_of_the_files(broker: Broker, tmp_path: Path) -> None:
    """Records that a writer left in the log and no snapshot has: in metrics, probe, system table and doctor."""
    logged = new_table(tmp_path, broker=broker)
    logged.write(changes([("+I", 1, "a"), ("+I", 2, "b")]))
    slices = Catalog(str(tmp_path)).system_table(f"{logged.name}$log_offsets").to_arrow().to_pylist()
    end = (logged.latest_snapshot() or pytest.fail("nothing committed")).log_offsets[0]
    assert [(each["start_offset"], each["end_offset"]) for each in slices] == [(0, end)]
    assert slices[0]["topic"] == logged.options.log_topic
    probe = TableProbe(logged)
    assert probe.look().log_lag == {0: 0}
    write_log_only(logged, changes([("+I", 3, "c"), ("+I", 4, "d"), ("+I", 5, "e")]))
    assert probe.look().log_lag == {0: 3}
    found = samples(table_metrics_text([logged]))
    assert of(found, "fluvial_log_lag_records", table=logged.name, bucket="0") == 3
    [finding] = [each for each in diagnose(examine(logged)) if each.check == "log"]
    assert finding.fact == "the log is 3 rows ahead of the newest snapshot"


def test_a_table_that_cannot_be_read_is_down_and_hides_no_other(table: Table) -> None:
    broken = Table(key_table(bucket="1"))
    broken.files.write(rows((1, 1)))
    broken.store.io.replace(broken.store.paths.snapshot(1), b"{")
    found = samples(table_metrics_text([broken, table]))
    assert of(found, "fluvial_table_up", table="db.t") == 0
    assert of(found, "fluvial_table_up", table="db.metered") == 1


@pytest.mark.sweep
def test_batches_and_compactions_are_counted(table: Table) -> None:
    """What this process committed: rows, bytes, files, seconds; compactions beside it."""
    labels = {"table": "db.metered"}
    before = samples(metrics_text())
    table.write(rows((1, 1), (5, 5), (6, 6)))
    after = samples(metrics_text())
    for name, more in (("batches", 1), ("rows", 3), ("files", 1)):
        assert of(after, f"fluvial_{name}_total", **labels) - of(before, f"fluvial_{name}_total", **labels) == more
    assert of(after, "fluvial_last_snapshot", **labels) == 7
    assert of(after, "fluvial_commit_seconds_count", **labels) == of(after, "fluvial_flush_seconds_count", **labels)
    compaction = BackgroundCompaction(table.store, lambda tasks: [run_task(table.store, task) for task in tasks])
    live = LiveFiles.latest(table.store)
    size = sum(file.size_bytes for key in live.buckets() for file in live.files(key))
    compaction.before_batch(live)
    compaction.after_commit(live)
    compaction.close()
    done = samples(metrics_text())
    assert of(done, "fluvial_compaction_seconds_count", **labels) == 1
    assert of(done, "fluvial_compacted_bytes_total", **labels) == size
    assert of(done, "fluvial_compaction_wait_seconds_total", **labels) >= 0

    def fails(_: object) -> Any:
        raise RuntimeError("no disk")

    for value in range(6):
        table.write(rows((1, value)))
    failing = BackgroundCompaction(table.store, fails)
    logging.getLogger("fluvial.compaction").disabled = True
    failing.after_commit(LiveFiles.latest(table.store))
    failing._changed |= set(LiveFiles.latest(table.store).buckets())
    failing.after_commit(LiveFiles.latest(table.store))
    failing.close()
    logging.getLogger("fluvial.compaction").disabled = False
    assert of(samples(metrics_text()), "fluvial_compaction_failures_total", **labels) >= 1


def test_metrics_and_health_listen_on_this_machine_only_unless_told() -> None:
    """Those who reach the port read the names of tables and jobs."""
    assert signature(serve_metrics).parameters["host"].default == "127.0.0.1"
    assert (HealthConfig(port=0).host, MetricsConfig(port=0).host) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.sweep
def test_a_port_answers_while_the_block_runs(table: Table) -> None:
    registry = CollectorRegistry()
    watch_tables([table], registry)
    with serve_metrics(0, registry=registry) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert of(samples(answer.read().decode()), "fluvial_table_snapshot", table="db.metered") == 6
        with pytest.raises(InvalidInputError, match=f"port={port}"), serve_metrics(port, host="127.0.0.1"):
            pass
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_a_file_is_kept_up_to_date(tmp_path: Path, table: Table) -> None:
    registry = CollectorRegistry()
    watch_tables([table], registry)
    target = tmp_path / "fluvial.prom"
    with metrics_file(target, registry=registry):
        assert of(samples(target.read_text()), "fluvial_table_snapshot", table="db.metered") == 6
        table.write(rows((1, 1)))
    assert of(samples(target.read_text()), "fluvial_table_snapshot", table="db.metered") == 7
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".tmp")] == []
    (tmp_path / "taken").touch()
    with pytest.raises(InvalidInputError, match="metrics cannot be written"), metrics_file(tmp_path / "taken" / "file"):
        pass


PROGRESS = {
    "name": "orders",
    "numInputRows": 30,
    "processedRowsPerSecond": 15.0,
    "durationMs": {"triggerExecution": 2000},
    "sources": [
        {"latestOffset": '{"lag_snapshots":2,"lag_records":5,"lag_bytes":50,"lag_seconds":9}'},
        {"latestOffset": {"lag_snapshots": 1, "lag_records": 1, "lag_bytes": 10, "lag_seconds": 30}},
        {"latestOffset": None},
        {"latestOffset": "not json"},
    ],
}


def test_progress_reports_become_metrics() -> None:
    assert lags_of(PROGRESS) == {"lag_snapshots": 3, "lag_records": 6, "lag_bytes": 60, "lag_seconds": 30}
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    metrics.started("orders")
    metrics.progressed("orders", PROGRESS)
    metrics.progressed("orders", {"numInputRows": 0, "processedRowsPerSecond": 0.0, "sources": []})
    found = samples(metrics_text(registry))
    assert of(found, "fluvial_query_input_rows_total", query="orders") == 30
    assert of(found, "fluvial_query_batches_total", query="orders") == 1
    assert of(found, "fluvial_query_batch_seconds_sum", query="orders") == 2
    assert of(found, "fluvial_query_lag_records", query="orders") == 6
    assert of(found, "fluvial_query_running", query="orders") == 1
    metrics.ended("orders", failed=True)
    found = samples(metrics_text(registry))
    assert of(found, "fluvial_query_running", query="orders") == 0
    assert of(found, "fluvial_query_failures_total", query="orders") == 1


def test_offsets_behind_a_batch_are_the_lag_of_a_source_of_topics() -> None:
    """Spark's own source has the same form. A lag that was asked for since is not replaced by an older one."""
    end, latest = '{"t": {"0": 5, "1": 7}, "@topic-ids": {"t": "x"}}', {"t": {"0": 9, "1": 7}, "u": {"0": 3}}
    progress = {"sources": [{"endOffset": end, "latestOffset": latest}, {"latestOffset": {"logOffset": 3}}]}
    assert lags_of(progress) == {"lag_records": 7}
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    metrics.progressed("q", progress)
    assert of(samples(metrics_text(registry)), "fluvial_query_lag_records", query="q") == 7
    metrics.behind("q", {"lag_records": 20})
    metrics.progressed("q", progress)
    assert of(samples(metrics_text(registry)), "fluvial_query_lag_records", query="q") == 20


@pytest.mark.spark
def test_what_is_asked_between_batches_is_a_metric() -> None:
    """Soak 4: lag was that of the last report, 0 in a batch that took 184 s; a source of topics had none."""
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    metrics.behind("orders", {"lag_records": 12, "lag_seconds": 3.5})
    metrics.brokers("b:1", reachable=False)
    found = samples(metrics_text(registry))
    assert of(found, "fluvial_query_lag_records", query="orders") == 12
    assert of(found, "fluvial_query_lag_seconds", query="orders") == 3.5
    assert of(found, "fluvial_brokers_reachable", servers="b:1") == 0


def test_a_listener_of_spark_feeds_them(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    listener = MetricsListener(QueryMetrics(registry))
    spark.streams.addListener(listener)
    try:
        warehouse = str(Path(table.store.paths.root).parents[1])
        frame = spark.readStream.format("fluvial").options(warehouse=warehouse, table="db.metered$audit_log").load()
        writer = frame.writeStream.queryName("copy").format("noop").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
        deadline = time.monotonic() + 30
        found: Samples = {}
        while found.get(("fluvial_query_running", (("query", "copy"),))) != 0:
            assert time.monotonic() < deadline, "the listener did not learn of the end"
            time.sleep(0.05)
            found = samples(metrics_text(registry))
        assert of(found, "fluvial_query_input_rows_total", query="copy") == 2
        assert of(found, "fluvial_query_batches_total", query="copy") == 1
        assert of(found, "fluvial_query_failures_total", query="copy") == 0
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("compacted: table=db.t buckets=2 seconds=1.50", {"table": "db.t", "buckets": 2, "seconds": "1.50"}),
        ("no such tag: tag='end of day' tags=[]", {"tag": "end of day", "tags": []}),
        ("lost a race: user=u-1 identifier=-1 level=5", {"user": "u-1", "identifier": -1, "level_": 5}),
        ("nothing here: a = b, x==y", {}),
        ("", {}),
    ],
)
def test_pairs_of_a_message_are_fields(message: str, fields: dict[str, int | str]) -> None:
    if "==" in message:
        assert "a" not in fields_of(message)
    else:
        assert fields_of(message) == fields


@pytest.fixture
def own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for each in root.handlers:
        if each not in handlers:
            each.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_log_lines_are_json(tmp_path: Path, own_logging: None) -> None:
    """Each line is one object with time, level, logger, message and the message's own pairs; libraries stay out."""
    target = tmp_path / "log"
    for _ in range(2):  # the second call takes the place of the first
        configure_logging("info", "json", target)
    logging.getLogger("fluvial.sink").warning("batch is late: table=%s snapshot=%d", "db.t", 7)
    logging.getLogger("other").error("not ours")
    try:
        int("x\ny")
    except ValueError:
        logging.getLogger("fluvial").exception("failed")
    late, failed = [json.loads(line) for line in target.read_text().splitlines()]
    assert late.pop("time").endswith("+00:00")
    assert late == {
        "level": "warning",
        "logger": "fluvial.sink",
        "message": "batch is late: table=db.t snapshot=7",
        "table": "db.t",
        "snapshot": 7,
    }
    assert "ValueError: invalid" in failed["error"]
    configure_logging("info", "text", target)
    logging.getLogger("fluvial.sink").info("in words")
    assert target.read_text().splitlines()[-1].endswith("INFO fluvial.sink: in words")


def test_the_command_logs_json_where_it_is_asked_to(
    tmp_path: Path, own_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    made.write(rows((1, 1)))
    made.store.io.replace(made.store.paths.snapshot(1), b"{")
    assert run_command(["--log-format", "json", "metrics", "db.t", "--warehouse", str(tmp_path)]) == 0
    [line] = capsys.readouterr().err.splitlines()
    reported = json.loads(line)
    assert (reported["logger"], reported["table"], reported["level"]) == ("fluvial.metrics", "db.t", "warning")


def test_any_text_fits_into_a_line() -> None:
    record = logging.LogRecord("fluvial", logging.INFO, "", 0, "a\ud800b\n\x00 k=\ud800", None, None)
    line = JsonLines().format(record)
    assert "\n" not in line
    json.loads(line)


def test_a_log_file_does_not_grow_for_weeks(tmp_path: Path, own_logging: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three older parts are kept, the newest first; nothing is lost between them."""
    monkeypatch.setattr("engine.runtime.logs._MAX_BYTES", 200)
    file = tmp_path / "job.log"
    configure_logging(logging.INFO, "json", file)
    for number in range(12):
        logging.getLogger("fluvial.x").info("batch number=%s", number)
    parts = [file, *(tmp_path / f"job.log.{each}" for each in (1, 2, 3))]
    assert sorted(tmp_path.iterdir()) == sorted(parts)
    assert all(each.stat().st_size <= 200 for each in parts)
    kept = [json.loads(line)["number"] for each in reversed(parts) for line in each.read_text().splitlines()]
    assert kept == list(range(kept[0], 12))


def test_wrong_settings_are_refused(tmp_path: Path, own_logging: None) -> None:
    with pytest.raises(InvalidInputError, match="no such log level: level=loud"):
        configure_logging("loud")
    with pytest.raises(InvalidInputError, match="log file cannot be opened"):
        configure_logging("info", file=tmp_path / "no" / "log")
