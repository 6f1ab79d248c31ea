"""Spark's Python workers keep the log's writers from task to task: counted there, and where one is killed between."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Table, sink
from engine.broker.broker import Broker
from engine.runtime.steps import Step, StepEvent
from tests.support.logs import changes_by_bucket
from tests.support.tables import KEY_SCHEMA
from tests.support.warehouses import new_table

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BATCHES, BUCKETS, KEYS = 6, 3, 30
SETTINGS = {
    "spark.sql.shuffle.partitions": "1",  # one task, and so one worker
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",  # a daemon with workers of its own
}


@dataclass(frozen=True)
class Notes:
    """Notes, in the task, what the worker has open: behind each fence, and before its end."""

    path: str
    port: int

    def __call__(self, event: StepEvent) -> None:
        if event.step in (Step.BUCKET_FENCED, Step.PART_DONE):
            found = psutil.Process().net_connections()
            ports = sorted(each.laddr.port for each in found if each.raddr and each.raddr.port == self.port)
            fact = {"pid": os.getpid(), "batch": event.batch_id, "bucket": event.bucket, "connections": ports}
            with Path(self.path).open("a") as file:
                file.write(json.dumps({**fact, **event.facts}) + "\n")

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.path).read_text().splitlines()]


@pytest.fixture
def one_worker(spark: SparkSession) -> Iterator[SparkSession]:
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        spark.conf.set(name, old or "")


def run_by_tasks(spark: SparkSession, table: Table, home: Path, notes: Notes, between: Callable[[int], None]) -> None:
    """A query of one file a batch, written by tasks."""
    source = home / "input"
    source.mkdir()
    for batch in range(BATCHES):
        rows = pa.table({"id": pa.array(range(KEYS)), "v": pa.array([batch] * KEYS)}, schema=KEY_SCHEMA)
        pq.write_table(rows, source / f"{batch}.parquet")
        os.utime(source / f"{batch}.parquet", (batch, batch))
    write = sink(table, {"sink.writer": "tasks"}, observe=notes)

    def each(frame: DataFrame, batch: int) -> None:
        write(frame, batch)
        between(batch)

    rows = spark.readStream.schema("id long, v long").option("maxFilesPerTrigger", 1).parquet(str(source))
    stream = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(home / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    write.close()
    histories: dict[int, list[int]] = {}
    for changes in changes_by_bucket(table).values():
        for _, row in changes:
            histories.setdefault(row["id"], []).append(row["v"])
    assert histories == {key: list(range(BATCHES)) for key in range(KEYS)}


def check_kept(found: list[dict[str, Any]]) -> None:
    """A bucket is fenced by the first task that has it in a worker, and not again while it stays there.

    Spark may give a task to another worker than the one before: one that is free already.
    """
    opened = [each for each in found if each["bucket"] is not None]
    assert len(opened) == BATCHES * BUCKETS
    had: dict[int, int] = {}
    for each in opened:
        assert bool(each["kept"]) == (had.get(each["bucket"]) == each["pid"]), each
        had[each["bucket"]] = each["pid"]


@pytest.mark.long
def test_a_worker_makes_one_producer_of_a_bucket_and_connects_no_more_with_each_batch(
    one_worker: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """The connections are the same ones as long as the buckets stay; one that comes back has no more than before."""
    table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": str(BUCKETS)})
    notes = Notes(str(tmp_path / "notes"), int(broker.bootstrap_servers.rpartition(":")[2]))
    run_by_tasks(one_worker, table, tmp_path, notes, lambda batch: None)
    found = notes.read()
    check_kept(found)
    ends = [each for each in found if each["bucket"] is None]
    first = {each["pid"]: len(each["connections"]) for each in reversed(ends)}
    assert all(BUCKETS <= len(each["connections"]) <= first[each["pid"]] for each in ends), ends
    for before, each in pairwise(ends):
        assert (before["pid"] != each["pid"]) or before["connections"] == each["connections"]


def test_a_worker_that_is_killed_between_two_batches_takes_nothing_with_it(
    one_worker: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """Its producers are gone, and what they have begun is ended by the fence of the next worker."""
    table = new_table(tmp_path, KEY_SCHEMA, broker=broker, options={"bucket": str(BUCKETS)})
    notes = Notes(str(tmp_path / "notes"), int(broker.bootstrap_servers.rpartition(":")[2]))

    def kill(batch: int) -> None:
        if batch in (1, 3):
            os.kill(notes.read()[-1]["pid"], signal.SIGKILL)

    run_by_tasks(one_worker, table, tmp_path, notes, kill)
    check_kept(notes.read())
