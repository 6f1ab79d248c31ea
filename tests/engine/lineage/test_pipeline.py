"""Lineage of real streams: the seed's pipeline of three tables and three jobs, under crashes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine import Catalog, Table, sink
from engine.lineage.lineage import Lineage, lineage_of
from engine.procedures.validation import validate
from engine.runtime.steps import Step, StepEvent
from filestore.snapshot.snapshot import CommitKind
from lsm.errors import UnavailableError
from tests.support.rows import write_rows

pytestmark = pytest.mark.spark

WORDS = pa.schema([("word", pa.string()), ("n", pa.int64())])


@dataclass
class Crash:
    """Ends a query at a step of one batch, once."""

    step: Step
    batch_id: int
    is_over: bool = False

    def __call__(self, event: StepEvent) -> None:
        if not self.is_over and (event.step, event.batch_id) == (self.step, self.batch_id):
            self.is_over = True
            raise UnavailableError("a crash: it was injected")


class Pipeline:
    """Tables and jobs in one warehouse."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.catalog = Catalog(str(path / "warehouse"))
        self.tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        options = {"bucket": "1", "write-only": "true"}
        self.tables[name] = self.catalog.create_table(f"db.{name}", WORDS, primary_key=["word"], options=options)
        return self.tables[name]

    @property
    def lineage(self) -> Lineage:
        found = lineage_of(self.catalog)
        assert found is not None
        return found

    def source(self, name: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("fluvial").option("warehouse", self.catalog.warehouse)
        aligned = {"source.checkpoint-align.enabled": "true", "read.changelog": "true"}
        return reader.option("table", f"db.{name}").options(**aligned, **options).load()

    def run(self, job: str, frame: DataFrame, target: Table, *crashes: Crash) -> None:
        """Everything available, however often it crashes."""
        write = sink(target)
        for crash in (*crashes, None):
            write = sink(target) if crash is None else sink(target, observe=crash)
            writer = frame.writeStream.foreachBatch(write).queryName(job).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(self.path / job)).start()
            if crash is None:
                assert query.awaitTermination(120)
            else:
                with pytest.raises(PySparkException, match="injected"):
                    query.awaitTermination(120)
                assert crash.is_over

    def rows(self, kind: str) -> set[tuple[Any, ...]]:
        """What the store of lineage has."""
        found = getattr(self.lineage.meta, f"{kind}_data_lineages")()
        return {(each.job, each.barrier_id, each.table, each.snapshot_id) for each in found}

    def reported(self, *jobs: str) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        """Sources and sinks, as checkpoints and commits say, whatever they say about lineage."""
        users = {json.loads((self.path / job / "metadata").read_text())["id"]: job for job in jobs}
        sources, sinks = set(), set()
        for name, table in self.tables.items():
            for snapshot in map(table.store.snapshots.read, table.store.snapshots.ids()):
                job = users.get(snapshot.commit_user)
                if job is not None and snapshot.commit_kind is CommitKind.APPEND:
                    barrier = snapshot.commit_identifier
                    sinks.add((job, barrier, name, snapshot.id))
                    position = json.loads((self.path / job / "offsets" / str(barrier)).read_text().splitlines()[-1])
                    sources.add((job, barrier, position["read"]["table"].removeprefix("db."), position["snapshot"]))
        return sources, sinks


def upper(frame: DataFrame) -> DataFrame:
    return frame.withColumn("word", F.upper("word"))


@pytest.mark.long
def test_lineage_of_the_pipeline_of_the_seed_is_what_its_snapshots_say(spark: SparkSession, tmp_path: Path) -> None:
    """LN-01, LN-02, LN-12, LN-14, LN-70, LN-72, LN-74: three jobs on three tables, each crashing before a commit or
    between a commit and its lineage; every barrier is there once, with the snapshots that commits and checkpoints say.

    LN-05, LN-31 to LN-34: snapshots are then computed again from their sources, by the job's logic and by another.
    """
    p = Pipeline(spark, tmp_path)
    table1, table2, table3, table4 = (p.table(f"table{number}") for number in range(1, 5))
    write_rows(table1, ("a", 1), ("b", 2))
    write_rows(table1, ("b", 3))
    write_rows(table1, ("c", 4))
    write_rows(table1, ("a", 5))
    crashes = Crash(Step.TASKS_DONE, 0), Crash(Step.TABLE_COMMITTED, 1)
    p.run("job1", upper(p.source("table1", **{"scan.snapshot-id": "2"})), table2, *crashes)
    p.run("job2", p.source("table2"), table3)
    p.run("job3", upper(p.source("table1", **{"scan.snapshot-id": "3"})), table4)
    sources, sinks = p.reported("job1", "job2", "job3")
    assert p.rows("source") == sources
    assert {each for each in p.rows("sink") if each[2] != "table1"} == sinks
    assert {each for each in sources if each[0] != "job2"} == {
        ("job1", 0, "table1", 2), ("job1", 1, "table1", 3), ("job1", 2, "table1", 4),
        ("job3", 0, "table1", 3), ("job3", 1, "table1", 4),
    }  # fmt: skip
    assert sorted(sinks) == [
        ("job1", 0, "table2", 1), ("job1", 1, "table2", 2), ("job1", 2, "table2", 3),
        ("job2", 0, "table3", 1), ("job3", 0, "table4", 1), ("job3", 1, "table4", 2),
    ]  # fmt: skip
    meta = p.lineage.meta
    assert {(each.job, each.table) for each in meta.source_table_lineages()} == {
        ("job1", "table1"), ("job2", "table2"), ("job3", "table1")
    }  # fmt: skip

    same = validate(p.catalog, "db.table2", 2, lambda frames: upper(frames["db.table1"]), spark)
    assert (same.is_same, same.origin.job, same.origin.sources) == (True, "job1", {("db", "table1"): 3})
    other = validate(
        p.catalog, "db.table2", 3, lambda frames: upper(frames["db.table1"]).withColumn("n", F.col("n") + 1), spark
    )
    assert (other.summary.inserted, other.summary.deleted, other.summary.updated) == (0, 0, 3)
