"""Metrics: what is scraped is what happened and what is there; log messages: what is said is there by name."""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Iterator
from inspect import signature
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.compaction.background import BackgroundCompaction
from engine.deploy.config.operation_config import HealthConfig, MetricsConfig
from engine.monitor.doctor import diagnose, examine
from engine.monitor.metrics_listener import MetricsListener, QueryMetrics, lags_of
from engine.monitor.table_metrics import TableCollector, overdue_ms, table_metrics_text, watch_tables
from engine.monitor.table_probe import TableProbe
from engine.runtime.logs import JsonLines, configure_logging, fields_of, with_ids
from engine.runtime.metrics import METRICS, MeasuringCollector, metrics_file, metrics_text, serve_metrics
from engine.write.batch_writer import BatchWriter
from filestore.compact.compactor import run_task
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.retention import Retention, expiry_end
from logstore.kafka.clients import KafkaProperties
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from tests.support.tables import KEY_SCHEMA, expire_all_but, key_table, rows
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


@given(
    gaps_ms=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    least=st.integers(1, 12),
    more=st.integers(0, 12),
    age_ms=st.integers(0, 200),
)
def test_expiry_is_overdue_where_it_would_delete_something(
    gaps_ms: list[int], least: int, more: int, age_ms: int
) -> None:
    """At the commit of the newest snapshot; one snapshot too many at that very moment is not overdue yet."""
    times = dict(enumerate(accumulate(gaps_ms), start=5))
    ids = range(5, 5 + len(times))
    retention = Retention(min_count=least, max_count=least + more, age_ms=age_ms, limit=100)
    newest_ms = times[ids[-1]]
    found = overdue_ms(ids, newest_ms=newest_ms, retention=retention, time_ms_of=times.get)
    first_kept = expiry_end(
        earliest=ids[0], latest=ids[-1], retention=retention, before_ms=newest_ms - age_ms, held_from=None,
        time_ms_of=times.__getitem__,
    )  # fmt: skip
    assert found >= 0
    assert found == 0 or first_kept > ids[0]
    if first_kept > ids[0] and found == 0:
        assert times[ids[retention.max_count]] == newest_ms
    assert overdue_ms(ids, newest_ms=newest_ms, retention=retention, time_ms_of=lambda _: None) == 0


def test_a_consumer_that_does_not_come_back_holds_expiry(tmp_path: Path) -> None:
    options = {"bucket": "1", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    held = Catalog(str(tmp_path)).create_table("db.held", KEY_SCHEMA, primary_key=["id"], options=options)
    held.write(rows((1, 1)))
    held.store.consumers.write("report", 1)
    for value in range(4):
        held.write(rows((1, value)))
    found = samples(table_metrics_text([held]))
    assert of(found, "fluvial_table_snapshot_count", table="db.held") == 5
    assert of(found, "fluvial_table_expiry_overdue_seconds", table="db.held") > 0
    held.store.consumers.delete("report")
    held.write(rows((1, 9)))
    expire_all_but(held.files, 2)
    found = samples(table_metrics_text([held]))
    assert of(found, "fluvial_table_snapshot_count", table="db.held") == 2
    assert of(found, "fluvial_table_expiry_overdue_seconds", table="db.held") == 0


class Slow(MeasuringCollector):
    """Answers when it is let."""

    def __init__(self, **waits: Any) -> None:
        super().__init__(**waits)
        self.asked, self.answer, self.looks = threading.Event(), threading.Event(), 0

    def measured(self) -> list[Family]:
        self.looks += 1
        self.asked.set()
        assert self.answer.wait(60)
        return [METRICS["fluvial_table_up"].family([(["db.t"], self.looks)])]


def test_a_scrape_does_not_wait_for_what_does_not_answer() -> None:
    """It has the other metrics at once, what was measured meanwhile the next time, and nothing that is old."""
    now_s = 0.0
    slow, registry = Slow(patience_s=0.01, clock=lambda: now_s), CollectorRegistry()
    registry.register(slow)
    METRICS["fluvial_brokers_reachable"].gauge(registry).labels("b:1").set(0)
    for _ in range(3):
        found = samples(metrics_text(registry))
        assert {name for name, _ in found} == {"fluvial_brokers_reachable"}
    assert slow.asked.wait(60)
    assert slow.looks == 1, "one look at a time"
    slow.answer.set()
    assert slow._look is not None
    slow._look.join()
    slow.answer.clear()
    assert of(samples(metrics_text(registry)), "fluvial_table_up", table="db.t") == 1
    now_s = 200.0
    assert ("fluvial_table_up", (("table", "db.t"),)) not in samples(metrics_text(registry))
    slow.answer.set()
    slow._look.join()
    assert of(samples(metrics_text(registry)), "fluvial_table_up", table="db.t") >= 2


@pytest.mark.parametrize(
    ("error", "names"),
    [(UnavailableError("away"), ["db.metered"]), (CorruptDataError("no topic"), ["db.metered", "db.other"])],
)
def test_brokers_that_are_away_are_asked_once_for_all_tables(
    error: FluvialError, names: list[str], table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to them takes seconds; a topic that is broken says nothing about the others."""
    other = Catalog(str(tmp_path)).create_table("db.other", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    log = SimpleNamespace(properties=KafkaProperties.parse({"bootstrap.servers": "b:1"}))
    monkeypatch.setattr(Table, "log", log)
    monkeypatch.setattr("engine.monitor.table_metrics.stream_lags", lambda _: [])
    asked: list[str] = []

    def lags(asker: Table) -> Any:
        asked.append(asker.name)
        raise error

    monkeypatch.setattr("engine.monitor.table_probe.log_lags", lags)
    found = samples(table_metrics_text([table, other]))
    assert asked == names
    assert [of(found, "fluvial_table_up", table=each) for each in ("db.metered", "db.other")] == [1, 1]


def test_batches_that_failed_are_counted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 0 on, so that the first one is an increase; not for each retry."""
    labels = {"table": "db.metered"}

    def failures() -> float:
        return of(samples(metrics_text()), "fluvial_batch_failures_total", **labels)

    before = failures()

    def away(*_: Any, **__: Any) -> Any:
        raise UnavailableError("no disk")

    monkeypatch.setattr(BatchWriter, "write", away)
    with pytest.raises(UnavailableError):
        table.write(rows((1, 1)))
    assert failures() == before + 1
    monkeypatch.undo()
    table.write(rows((1, 1)))
    assert failures() == before + 1


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
    registry.register(TableCollector([table], patience_s=None))
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
    metrics.dead_letters("rejected", 7)
    found = samples(metrics_text(registry))
    assert of(found, "fluvial_query_lag_records", query="orders") == 12
    assert of(found, "fluvial_query_lag_seconds", query="orders") == 3.5
    assert of(found, "fluvial_brokers_reachable", servers="b:1") == 0
    assert of(found, "fluvial_dead_letters_end_offset", topic="rejected") == 7


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


def test_json_lines_have_the_ids_of_what_was_done(
    tmp_path: Path, own_logging: None, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job of the process, table and commit user of the batch, whichever message it is; its own pairs win."""
    target, write = tmp_path / "log", BatchWriter.write
    configure_logging("info", "json", target, ids={"job": "orders", "table": "none"})
    logger = logging.getLogger("fluvial.x")

    def noted(*given: Any, **named: Any) -> Any:
        logger.info("within a batch")
        return write(*given, **named)

    monkeypatch.setattr(BatchWriter, "write", noted)
    table.write(rows((1, 1)))
    logger.info("outside: job=%s", "other")
    with with_ids(batch=7, snapshot=None), with_ids(batch=8):
        logger.info("inside")
    found = [json.loads(line) for line in target.read_text().splitlines()]
    (within,) = [each for each in found if each["message"] == "within a batch"]
    newest = table.latest_snapshot()
    assert newest is not None
    assert (within["job"], within["table"], within["commit_user"]) == ("orders", "db.metered", newest.commit_user)
    assert "batch" not in within, "a write that is no batch of a stream has no number"
    outside, inside = found[-2:]
    assert (outside["job"], outside["table"]) == ("other", "none")
    assert (inside["batch"], "snapshot" in inside) == (8, False)


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
