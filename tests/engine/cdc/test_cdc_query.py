"""A job as a streaming query: a real broker, Spark, literal Debezium records."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.broker.broker import Broker
from engine.cdc.batch import CdcBatches
from engine.cdc.query import CdcQuery
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.cdc.writers import ClusterTables
from engine.deploy import cdc_job
from engine.deploy.cdc_job import RunningDatabase, run_cdc
from engine.deploy.config.job_config import parse_job
from engine.deploy.config.operation_config import HealthConfig
from engine.deploy.pipeline.health import Health
from engine.kafka.offsets import OffsetRange
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support.change_events import SourceTable, int32, send, text


def values_of(table: pa.Table, *names: str) -> list[tuple[object, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.soak
def test_topics_join_and_tables_change_while_one_query_runs(
    spark: SparkSession, kafka: KafkaProperties, topics: LogTopics, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """A topic that appears later joins without a restart; a query that starts again continues exactly once."""
    first = new_topic()
    orders = SourceTable("orders", [int32("id"), text("state")], topic_name=first)
    catalog = Catalog(str(tmp_path / "warehouse"))
    settings = CdcSettings(
        name="shop", database="shop", pattern=f"{first}(-.*)?", properties=kafka, options={"bucket": "1"}
    )

    def run() -> CdcQuery:
        made = CdcQuery(catalog, settings, checkpoint=str(tmp_path / "checkpoint"))
        query = made.start(spark)
        query.awaitTermination(120)
        made.close()
        assert query.exception() is None
        return made

    send(kafka, orders.insert({"id": 1, "state": "new"}), orders.insert({"id": 2, "state": "new"}))
    run()
    assert values_of(catalog.table("shop.orders").read().to_arrow(), "id", "state") == [(1, "new"), (2, "new")]

    later = f"{first}-users"
    users = SourceTable("users", [int32("id"), text("name")], topic_name=later)
    topics.create_topic(later, bucket_count=1)
    grown = orders.with_columns(int32("id"), text("state"), int32("n"))
    send(kafka, grown.update({"id": 1, "state": "paid", "n": 3}), users.insert({"id": 1, "name": "Ann"}))
    done = run()
    assert values_of(catalog.table("shop.orders").read().to_arrow(), "id", "state", "n")[0] == (1, "paid", 3)
    assert values_of(catalog.table("shop.users").read().to_arrow(), "id", "name") == [(1, "Ann")]
    assert done.newest is not None
    assert set(done.newest.tables) == {"orders", "users"}
    assert run().newest is None  # nothing new: no batch


GATED = """
import sys
import time
from pathlib import Path

from engine.cdc.state import StateFiles
from engine.cli.start import main

gate, name = Path(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
table = StateFiles.table


def wait(self, wanted):
    if wanted == name and gate.exists():
        gate.with_suffix(".reached").touch()
        while gate.exists():
            time.sleep(0.01)
    return table(self, wanted)


StateFiles.table = wait
main()
"""
"""The command line; who asks for the state of a table waits as long as a file is there."""


def once(broker: Broker, topic: str, catalog: Catalog, *gated: str) -> list[str]:
    """The command that follows a topic to its end; with a file, and the table whose state waits for its end."""
    return [
        sys.executable, *(["-c", GATED, *gated] if gated else ["-m", "engine.cli"]),
        "cdc", "run", "--once", "--brokers", broker.bootstrap_servers, "--topics", topic,
        "--database", "shop", "--warehouse", catalog.warehouse, "--set", "spark.master=local[2]",
    ]  # fmt: skip


@pytest.mark.long
def test_a_driver_that_is_killed_between_the_commits_of_two_tables(
    kafka: KafkaProperties, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """kill -9 of ``fluvial cdc run`` once some tables have the batch: the next run writes the others, each row once."""
    first = new_topic()
    tables = [SourceTable(f"t{n}", [int32("n")], key=(), topic_name=first) for n in range(12)]
    send(kafka, *(table.insert({"n": n}) for n in range(20) for table in tables))
    catalog = Catalog(str(tmp_path / "warehouse"))
    gate = tmp_path / "gate"
    command, gated = once(broker, first, catalog), once(broker, first, catalog, str(gate), "t9")
    snapshots = tmp_path / "warehouse" / "shop.db"
    job = subprocess.Popen(gated, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while job.poll() is None and not [*snapshots.glob("*/schema/schema-0")]:  # the states have been read once
        time.sleep(0.001)
    gate.touch()  # this test may be late
    while job.poll() is None and not [*snapshots.glob("*/snapshot/snapshot-1")]:
        time.sleep(0.005)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(30)
    written = len([*snapshots.glob("*/snapshot/snapshot-1")])
    assert 0 < written < 12
    metrics = tmp_path / "fluvial.prom"
    command += ["--metrics-file", str(metrics)]
    done = subprocess.run(command, capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for table in tables:
        found = catalog.table(f"shop.{table.name}").read().to_arrow()["n"].to_pylist()
        assert sorted(found) == list(range(20)), table.name
        assert f'fluvial_cdc_lag_records{{table="shop.{table.name}"}} 0.0' in metrics.read_text()


def run_once(*, is_writing: bool, trigger_seconds: float = 60) -> list[str]:
    """What one start of a query does that is asked to stop while its trigger is active."""
    done, until_s = list[str](), time.monotonic() + trigger_seconds

    class Query:
        isActive = True

        def awaitTermination(self, _: float) -> bool:
            return False

        @property
        def status(self) -> dict[str, bool]:
            done.append("waited")
            return {"isTriggerActive": time.monotonic() < until_s}

        def stop(self) -> None:
            done.append("stopped")

    class Made:
        newest = None

        def start(self, _: object) -> Query:
            return Query()

        def stop_after_batch(self) -> bool:
            done.append("refused")
            return is_writing

        def close(self) -> None:
            done.append("closed")

    stop = threading.Event()
    cdc_job._run_once(Made(), None, 60, lambda _: None, stop, stop.set)  # type: ignore[arg-type]
    return list(dict.fromkeys(done))


def test_a_query_that_has_no_batch_is_stopped_at_once() -> None:
    """It waited for its start, or for its look at the topics, up to stop-timeout."""
    assert run_once(is_writing=False) == ["refused", "stopped", "closed"]
    assert run_once(is_writing=True, trigger_seconds=0.3) == ["refused", "waited", "stopped", "closed"]


@pytest.mark.long
def test_sigterm_lets_the_running_batch_end(
    kafka: KafkaProperties, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """It is committed and noted as done: the next run has nothing to do, and no row is lost or doubled."""
    first = new_topic()
    tables = [SourceTable(f"t{n}", [int32("n")], key=(), topic_name=first) for n in range(3)]
    send(kafka, *(table.insert({"n": n}) for n in range(20) for table in tables))
    catalog = Catalog(str(tmp_path / "warehouse"))
    gate = tmp_path / "gate"
    gate.touch()
    command, gated = once(broker, first, catalog), once(broker, first, catalog, str(gate), "t2")
    home = tmp_path / "warehouse" / "_cdc" / "shop"
    job = subprocess.Popen(gated, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while job.poll() is None and not gate.with_suffix(".reached").exists():  # in the middle of the batch
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert job.poll() is None
    gate.unlink()
    _, error = job.communicate(timeout=60)
    assert job.returncode == 143, error.decode()[-2000:]
    progress = (home / "progress.json").read_text()
    done = subprocess.run(command, capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert (home / "progress.json").read_text() == progress
    for table in tables:
        found = catalog.table(f"shop.{table.name}").read().to_arrow()["n"].to_pylist()
        assert sorted(found) == list(range(20)), table.name


def test_the_health_of_a_database_is_in_a_file_while_it_runs(
    spark: SparkSession, kafka: KafkaProperties, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """It was not looked at: probes of Kubernetes found nobody, although the job file had a port for them."""
    first = new_topic()
    send(kafka, *(SourceTable("t", [int32("id")], topic_name=first).insert({"id": n}) for n in range(3)))
    file, seen = tmp_path / "health.json", list[dict[str, Any]]()
    source = {"options": {"subscribePattern": first, "kafka.bootstrap.servers": broker.bootstrap_servers}}
    only = {"name": "shop", "database": "shop", "source": source, "commit": {"every": "available-now"}}
    body = {"name": "j", "warehouse": str(tmp_path / "w"), "cdc": [only], "health": {"file": str(file)}}
    job = parse_job(json.dumps(body), name="job.yaml", environment={})
    run_cdc(job, job.cdc[0], spark=spark, on_batch=lambda _: seen.append(json.loads(file.read_text())))
    assert not file.exists()
    (shown,) = seen
    assert (shown["job"], shown["live"], shown["pipelines"]["shop"]["state"]) == ("j", True, "running")
    database = RunningDatabase("shop")
    state = Health(HealthConfig.model_validate({"batch-timeout": "10 s"}), "j", database).state
    assert (state()["live"], state()["ready"]) == (True, True)
    database.started(type("Stuck", (), {"batch_seconds": 11.0})())  # type: ignore[arg-type]
    assert (state()["live"], state()["ready"]) == (False, True)
    database.wait(0, threading.Event())
    assert (state()["ready"], state()["pipelines"]["shop"]["state"]) == (False, "waiting")


def test_tables_are_written_by_tasks_of_a_cluster(
    spark: SparkSession, kafka: KafkaProperties, catalog: Catalog, new_topic: Callable[..., str], topics: LogTopics
) -> None:
    """Where there is a cluster, what a task gets can be pickled, and it reads its ranges by itself."""
    first = new_topic()
    orders = SourceTable("orders", [int32("id"), text("state")], topic_name=first)
    users = SourceTable("users", [int32("id")], topic_name=first)
    settings = CdcSettings(
        name="shop", database="shop", pattern=first, properties=kafka, options={"bucket": "1"}, deletes="soft"
    )
    state = StateFiles(catalog.file_io, catalog.warehouse, "shop")
    batches = CdcBatches(catalog, settings, state, commit_user="q", run_id="r", runner=ClusterTables(spark))
    send(kafka, orders.insert({"id": 1, "state": "a"}), users.insert({"id": 7}), orders.insert({"id": 2, "state": "b"}))
    end = topics.written_offsets(first, [0])[0]
    for _ in range(2):  # and again
        batches.write([OffsetRange(topic=first, partition=0, start_offset=0, end_offset=end)], 0)
    batches.close()
    assert values_of(catalog.table("shop.orders").read().to_arrow(), "id", "state") == [(1, "a"), (2, "b")]
    assert values_of(catalog.table("shop.users").read().to_arrow(), "id") == [(7,)]
