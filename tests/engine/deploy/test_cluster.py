"""The job file of one machine on a cluster of two workers that have never heard of Fluvial: the package is shipped."""

import json
import os
import signal
import socket
import subprocess
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.deploy.shipping import write_shipment
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support.change_events import SourceTable, int32, send, text
from tests.support.logs import log_changes

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 50
SPARK = Path(pyspark.__file__).parent
SUBMIT = Path(__file__).parents[3] / "conf" / "deploy" / "spark-submit.sh"
JOB = """
name: cluster
warehouse: {root}/warehouse
catalog: {{log.kafka.bootstrap.servers: "{servers}", log.kafka.topic: "{topic}-log"}}
tables:
  shop.orders:
    columns: {{id: BIGINT, name: STRING}}
    primary_key: [id]
    options: {{bucket: 2, log.system: kafka}}
pipelines:
- name: orders
  source: {{options: {{subscribe: "{topic}", value.format: debezium-json}}}}
  target: shop.orders
  checkpoint: {root}/checkpoint
"""
WHOLE = """
name: whole
warehouse: {root}/warehouse
cdc:
- name: shop
  database: whole
  source: {{options: {{subscribePattern: "{topic}-cdc", kafka.bootstrap.servers: "{servers}"}}}}
  options: {{bucket: 2}}
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """An interpreter with every library that Fluvial needs, and without Fluvial."""
    home = tmp_path / "stranger"
    venv.create(home, with_pip=False)
    packages = next(home.glob("lib/python*/site-packages"))
    # a directory that is only named here is on the path, but its own .pth files, which install Fluvial, are not read
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def plain() -> dict[str, str]:
    """The environment of somebody who has no Fluvial."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


def interpreters(python: Path) -> dict[str, str]:
    return {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_HOME": str(SPARK)}


SLOW = """
import os
import time

if os.path.exists({throttle!r}):  # else processes start as quickly as without this
    import confluent_kafka

    class Slow(confluent_kafka.Producer):
        def commit_transaction(self, *arguments):
            from pyspark import TaskContext
            if TaskContext.get() is not None and os.path.exists({throttle!r}):
                try:
                    os.rename({throttle!r}, {throttled!r})
                except FileNotFoundError:
                    pass
                else:
                    time.sleep(150)  # Spark ends it when the copy is done
            return super().commit_transaction(*arguments)

    confluent_kafka.Producer = Slow
"""
"""In an executor: the first task that is about to end its transaction, its files written, waits longer than others."""


@pytest.fixture
def throttle(tmp_path: Path, stranger: Path) -> Path:
    """While this file is there, one task is slow; afterwards it is ``throttled``."""
    (packages,) = stranger.parents[1].glob("lib/python*/site-packages")
    found = tmp_path / "throttle"
    (packages / "slow_task.py").write_text(SLOW.format(throttle=str(found), throttled=str(tmp_path / "throttled")))
    (packages / "slow_task.pth").write_text("import slow_task\n")
    return found


@pytest.fixture
def cluster(tmp_path: Path, stranger: Path) -> Iterator[str]:
    """The address of a standalone master with two workers of one core each.

    Their JVMs, and those of the executors that the workers start, are as quick to start as all of a test's.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g"]
    commands = [
        master,
        *(
            [*worker, "--host", f"127.0.0.{1 + i}", "--webui-port", "0", "--work-dir", f"{tmp_path}/work{i}", address]
            for i in range(2)  # two hosts: Spark starts no copy of a task on the host of the first one
        ),
    ]
    log = (tmp_path / "cluster.log").open("w")
    running = []
    try:
        for arguments in commands:
            command = [str(SPARK / "bin" / "spark-class"), *arguments]
            running.append(
                subprocess.Popen(
                    command,
                    env=plain() | interpreters(stranger) | {"JDK_JAVA_OPTIONS": os.environ["SPARK_SUBMIT_OPTS"]},
                    cwd=tmp_path,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        deadline = time.monotonic() + 60
        while (tmp_path / "cluster.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (tmp_path / "cluster.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


@pytest.mark.soak
def test_a_job_runs_on_two_workers_with_the_package_shipped(
    tmp_path: Path,
    broker: Broker,
    kafka: KafkaProperties,
    new_topic: Callable[..., str],
    stranger: Path,
    throttle: Path,
    cluster: str,
) -> None:
    """FL-78: two executors, each a process of its own, write the buckets; the workers' only Fluvial is the archive."""
    alone = subprocess.run(
        [stranger, "-c", "import pyarrow, engine"],
        cwd=tmp_path,
        env=plain(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'engine'" in alone.stderr

    topic = new_topic(bucket_count=2)
    producer = kafka.producer(ErrorNotes(), transactional_id=None)

    for key in range(ROWS):
        value = {"before": None, "after": {"id": key, "name": f"n{key}"}, "op": "c"}
        producer.produce(topic, json.dumps(value).encode(), str(key).encode())
    producer.flush(30)
    write_shipment(tmp_path / "ship")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(root=tmp_path, servers=broker.bootstrap_servers, topic=topic))
    options = (
        "--executor-memory 512m --executor-cores 1 --conf spark.driver.host=127.0.0.1 --conf spark.ui.enabled=false"
    )
    submitter = plain() | interpreters(stranger) | {"SHIP": str(tmp_path / "ship"), "SUBMIT_OPTIONS": options}

    def submit(*arguments: str) -> None:
        command = [str(SUBMIT), cluster, *arguments, "--quiet"]
        done = subprocess.run(
            command, cwd=tmp_path, env=submitter, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
        said = done.stderr.splitlines()
        assert len(said) < 100, said  # Spark's own log of such a job has more than a thousand lines

    # a copy of a slow task, which is really run: the copy takes over the bucket, and the first one changes nothing
    throttle.touch()
    (tmp_path / "events").mkdir()
    copies = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{tmp_path}/events",
        "spark.eventLog.compress": "false",
    }
    more = " ".join(f"--conf {key}={text}" for key, text in copies.items())
    submitter |= {"SUBMIT_OPTIONS": f"{options} {more}"}
    submit(str(job), "--json", "--spark-log", str(tmp_path / "spark.log"))
    assert (tmp_path / "throttled").exists()
    logs = [path.read_text() for path in tmp_path.glob("events/**/events_*")]
    events = [json.loads(line) for text in logs for line in text.splitlines()]
    started = [each["Task Info"] for each in events if each["Event"] == "SparkListenerTaskStart"]
    assert len([each for each in started if each["Speculative"]]) >= 1
    table = Catalog(str(tmp_path / "warehouse")).table("shop.orders")
    rows = table.read().to_arrow().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(key, f"n{key}") for key in range(ROWS)]
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert sum(snapshot.log_offsets.values()) >= ROWS
    logged = Catalog(
        str(tmp_path / "warehouse"), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    ).table("shop.orders")
    assert sorted(row["id"] for _, row in log_changes(logged)) == [*range(ROWS)]
    submitter |= {"SUBMIT_OPTIONS": options}

    # a whole database by the same way: tables are written by tasks of the workers
    sources = [SourceTable(name, [int32("id"), text("v")], topic_name=f"{topic}-cdc") for name in ("one", "two")]
    LogTopics(kafka).create_topic(f"{topic}-cdc", bucket_count=1)
    send(kafka, *(each.insert({"id": key, "v": f"v{key}"}) for key in range(ROWS) for each in sources))
    whole = tmp_path / "whole.yaml"
    whole.write_text(WHOLE.format(root=tmp_path, servers=broker.bootstrap_servers, topic=topic))
    submit("cdc", "run", str(whole), "--once")
    for each in sources:
        found = Catalog(str(tmp_path / "warehouse")).table(f"whole.{each.name}").read().to_arrow().to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == [(key, f"v{key}") for key in range(ROWS)]
