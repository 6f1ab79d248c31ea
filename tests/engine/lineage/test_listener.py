"""Table lineage of queries that have ended, for those who ask for that."""

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import sink
from engine.catalog import Catalog
from engine.deploy.lineage_listener import LineageListener
from engine.lineage.lineage import lineage_of
from engine.lineage.store.entities import LineageRecords, TableLineage
from tests.support.waiting import eventually


@dataclass
class Event:
    id: str
    name: str | None = None
    exception: str | None = None


def test_an_ended_query_leaves_no_table_lineage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LN-69: one that failed is taken to come back; a query without a name is known by its id."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    time, jobs = datetime(2023, 6, 5), ("named", "failed", "7", "pipeline", "running")
    lineage.store(
        LineageRecords(
            source_tables=tuple(TableLineage(job, "db", "s", time) for job in jobs),
            sink_tables=tuple(TableLineage(job, "db", "k", time) for job in jobs),
        )
    )
    listener = LineageListener(catalog, jobs={"renamed": "pipeline"})
    for event in (Event("1", "named"), Event("2", "failed"), Event("7"), Event("8", "renamed"), Event("9", "running")):
        listener.onQueryStarted(event)
    for event in (Event("1"), Event("2", exception="lost"), Event("7"), Event("8"), Event("unknown")):
        listener.onQueryTerminated(event)
    assert [each.job for each in lineage.meta.sink_table_lineages()] == ["failed", "running"]
    assert [each.job for each in lineage.meta.source_table_lineages()] == ["failed", "running"]
    strict = LineageListener(catalog, when_failed=True)
    strict.onQueryStarted(Event("2", "failed"))
    strict.onQueryTerminated(Event("2", exception="lost"))
    assert [each.job for each in lineage.meta.sink_table_lineages()] == ["running"]
    caplog.set_level(logging.WARNING)  # whatever an earlier test of this process left
    caplog.set_level(logging.WARNING, "fluvial.lineage")
    (tmp_path / ".fluvial" / "catalog.json").unlink()
    listener.onQueryTerminated(Event("9"))
    assert "table lineage of an ended job stays: job=running" in caplog.text


@pytest.mark.spark
def test_spark_reports_the_end_of_a_query_to_the_listener(spark: SparkSession, tmp_path: Path) -> None:
    """LN-69: a real query that ends, with the events of Spark."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    one, two = (catalog.create_table(f"db.{name}", schema, primary_key=["id"]) for name in ("one", "two"))
    one.write(pa.table({"id": [1]}, schema=schema), options={"pipeline.name": "load"})
    lineage = lineage_of(catalog)
    assert lineage is not None
    listener = LineageListener(catalog)
    spark.streams.addListener(listener)
    try:
        given = {"warehouse": catalog.warehouse, "table": "db.one", "read.changelog": "true"}
        stream = spark.readStream.format("fluvial").options(**given).load()
        writer = stream.writeStream.foreachBatch(sink(two)).queryName("copying").trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
        eventually(lambda: [each.job for each in lineage.meta.sink_table_lineages()], ["load"])
    finally:
        spark.streams.removeListener(listener)
    assert [(each.job, each.snapshot_id) for each in lineage.meta.source_data_lineages()] == [("copying", 1)]
