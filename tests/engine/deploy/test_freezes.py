"""A job whose processes stop for longer than every time-out, as on a laptop whose lid is closed; scaled down."""

import itertools
import json
import signal
import time
from pathlib import Path

import psutil
import pytest
import yaml

from engine import Catalog
from engine.broker.broker import Broker
from engine.cli.exit_codes import EXIT_FAILED
from tests.support.kills.processes import Tree, name_of, python, send
from tests.support.logs import log_changes

FILES = 40
FREEZE_S = 2.5
SHORTER = {"spark.executor.heartbeatInterval": "200ms", "spark.network.timeout": "2s"}
TIMEOUTS = ("kafka.transaction.timeout.ms", "kafka.message.timeout.ms")
PARTS = ("all", "the JVM", "the driver", "the workers")
ROUNDS = 2


def job_file(home: Path, broker: Broker) -> Path:
    """One file a micro-batch, into a table with a log whose transactions end during a freeze."""
    for number in range(FILES):
        path = home / "in" / f"{number:02}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": number}) + "\n")
    log = {"kafka.bootstrap.servers": broker.bootstrap_servers, **dict.fromkeys(TIMEOUTS, "2000")}
    table = {"columns": {"id": "BIGINT"}, "primary_key": ["id"], "options": {"bucket": 2, "log.system": "kafka"}}
    pipeline = {
        "name": "orders",
        "source": {"format": "json", "options": {"path": f"{home}/in"}},
        "limits": {"files": 1},
        "target": "db.frozen",
        "checkpoint": f"{home}/checkpoint",
    }
    job = {
        "name": "frozen",
        "warehouse": f"{home}/warehouse",
        "log": log,
        "tables": {"db.frozen": table},
        "pipelines": [pipeline],
        "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false", **SHORTER}},
    }
    path = home / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def members(tree: Tree, part: str) -> list[psutil.Process]:
    """The processes of a part. Workers are all but the driver and its JVM."""
    found = tree.members()
    driver = [each for each in found if each.pid == tree.process.pid]
    jvm = [each for each in found if name_of(each) == "java"]
    others = [each for each in found if each not in (*driver, *jvm)]
    return {"all": found, "the JVM": jvm, "the driver": driver, "the workers": others}[part]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.sweep
def test_a_job_outlives_freezes_of_its_processes_together_and_apart(tmp_path: Path, broker: Broker) -> None:
    """Issue 22 point 2: it goes on, or ends with a word; when it has been started again nothing is lost or repeated.

    Each freeze is longer than the time-outs of Spark's heartbeats and of the transaction that may be open. Spark ended
    its JVM after 60 heartbeats of a removed executor: those are over long before the job is.
    """
    command = python("engine.cli", "run", str(job_file(tmp_path, broker)), "--json")
    command += ["--spark-log", str(tmp_path / "spark.log")]
    commits = tmp_path / "checkpoint" / "commits"
    tree = Tree(command, tmp_path / "run.log", cwd=tmp_path)
    turns = itertools.chain.from_iterable([PARTS] * ROUNDS)
    done, frozen = [], 0
    try:
        deadline = time.monotonic() + 400
        while (code := tree.exit_code) != 0:
            assert time.monotonic() < deadline, tree.tail()
            if code is not None:
                assert code == EXIT_FAILED, tree.tail()
                assert "error: " in tree.tail()
                tree.kill()
                tree = Tree(command, tmp_path / "run.log", cwd=tmp_path)
            count = len(list(commits.glob("[0-9]*"))) if commits.exists() else 0
            if count > frozen and (part := next(turns, None)) is not None:
                stopped = members(tree, part)
                send(signal.SIGSTOP, stopped)
                time.sleep(FREEZE_S)
                send(signal.SIGCONT, stopped)
                done.append((part, len(stopped)))
                frozen = count
            time.sleep(0.05)
    finally:
        tree.kill()
    assert [part for part, _ in done] == [*PARTS] * ROUNDS
    assert all(count for part, count in done if part != "the workers")
    login = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table = Catalog(f"{tmp_path}/warehouse", options=login).table("db.frozen")
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == [*range(FILES)]
    assert sorted(row["id"] for _, row in log_changes(table)) == [*range(FILES)]
