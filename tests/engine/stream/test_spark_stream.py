"""The hybrid source as users run it: ``spark.readStream.format("fluvial")``."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from engine import Catalog, Table
from engine.spark.session import checkpoint_settings
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.types.data_types import parse_data_type
from tests.support.option_keys import dotted
from tests.support.streams import content, fold, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


class Reader:
    """A query that keeps what it was given, batch by batch."""

    def __init__(self, spark: SparkSession, table: Table, root: Path, **options: str) -> None:
        self.spark = spark
        self.options = {
            "warehouse": str(root),
            "table": table.name,
            "read.changelog": "true",
            **dotted(options),
        }
        self.checkpoint = str(root / "checkpoints" / table.name)
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [row.asDict() for row in frame.collect()]

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("fluvial").options(**self.options).load()
        with checkpoint_settings(self.spark, self.checkpoint):
            writer = frame.writeStream.foreachBatch(self.take).option("checkpointLocation", self.checkpoint)
            return (writer.trigger(**trigger) if trigger else writer).start()

    def available(self) -> None:
        query = self.start(availableNow=True)
        query.awaitTermination()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_running_query_gives_the_table_and_then_its_changes(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """FL-24, FL-26, FL-71, FL-109, and the lag in the progress report."""
    table.write(rows([1, 2, 3], "old"))
    table.write(rows([2], "old", "-D"))
    reader = Reader(spark, table, tmp_path)
    query = reader.start()
    until(lambda: fold(reader.rows) == content(table))
    table.write(rows([3, 4], "new"))
    until(lambda: fold(reader.rows) == content(table))
    table.compact(full=True)
    table.write(rows([1], "new", "-D"))
    until(lambda: fold(reader.rows) == content(table))
    progress = query.lastProgress
    assert progress is not None
    assert set(json.loads(progress["sources"][0]["latestOffset"])) == {
        "lag_snapshots",
        "lag_records",
        "lag_bytes",
        "lag_seconds",
    }
    query.stop()
    assert len(reader.rows) == 2 + 2 + 1


def test_a_restarted_query_goes_on_where_it_was(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """FL-72, idea 3: the switch is in Spark's checkpoint; available-now ends at what was there."""
    table.write(rows(list(range(100)), "a"))
    reader = Reader(spark, table, tmp_path, read_stream_maxRowsPerTrigger="30")
    for number in range(3):
        reader.available()
        assert fold(reader.rows) == content(table)
        count = len(reader.rows)
        table.write(rows([number, 200 + number], "b"))
        table.compact()
    reader.available()
    assert fold(reader.rows) == content(table)
    assert len(reader.rows) == count + 2 == 106
    assert max(len(found) for found in reader.batches.values()) < 100  # a split of the snapshot is taken whole


def test_offsets_times_and_snapshots_come_on_request(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    table.write(rows([1], "a"))
    asked = "_log_offset,_log_timestamp,_snapshot_id"
    reader = Reader(spark, table, tmp_path, read_metadata__columns=asked)
    reader.available()
    table.write(rows([2], "b"))
    reader.available()
    first, second = reader.rows
    assert (first["_snapshot_id"], first["_log_offset"], first["_log_timestamp"]) == (1, None, None)
    assert (second["_snapshot_id"], second["_log_offset"] >= 0) == (None, True)
    assert abs(second["_log_timestamp"].timestamp() - time.time()) < 3600 * 15


def test_a_stream_of_a_keyed_table_without_kinds_is_refused(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    table.write(rows([1], "a"))
    reader = Reader(spark, table, tmp_path)
    del reader.options["read.changelog"]
    with pytest.raises(StreamingQueryException, match=r"fix=set read\.changelog=true") as failed:
        reader.available()
    assert "UnboundLocalError" not in str(failed.value)  # what pyspark makes of it


def test_a_running_query_crosses_changes_of_the_schema(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """FL-24: in the snapshot phase and in the log, by the same query; a restart has the columns of today."""
    catalog = Catalog(str(tmp_path))
    table.write(rows([1, 2], "old"))
    reader = Reader(spark, table, tmp_path)
    query = reader.start()
    until(lambda: len(reader.rows) == 2)
    more = AddColumn(path=("more",), type=parse_data_type("INT"))
    second = catalog.alter_table(table.name, [more, RenameColumn(("v",), "word")])
    second.write(pa.table({"id": [3], "more": pa.array([3], pa.int32()), "word": ["new"]}))
    until(lambda: len(reader.rows) == 3)
    catalog.alter_table(table.name, [RenameColumn(("word",), "text")])
    table.write(rows([4], "by a writer that was open"))
    until(lambda: len(reader.rows) == 4)
    query.stop()
    assert query.exception() is None
    assert sorted((row["id"], row["v"]) for row in reader.rows) == [
        (1, "old"), (2, "old"), (3, "new"), (4, "by a writer that was open"),
    ]  # fmt: skip
    catalog.table(table.name).write(pa.table({"id": [5], "more": pa.array([5], pa.int32()), "text": ["last"]}))
    reader.available()
    assert {key: reader.rows[-1][key] for key in ("id", "text", "more")} == {"id": 5, "text": "last", "more": 5}
