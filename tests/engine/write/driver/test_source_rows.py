"""Micro-batches that the driver reads from Kafka itself: the rows, positions and progress that Spark's way gives."""

import json
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from engine import Catalog, sink
from engine.kafka.offsets import OffsetRange
from engine.spark_internals.batch_plans import SourceScan
from engine.write.driver import driver_runner
from engine.write.driver.driver_runner import without_empty_marks
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

COLUMNS = "id BIGINT, v INT, price DECIMAL(10,2), at TIMESTAMP, day DATE, text STRING, _row_kind STRING"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("text", pa.string()),
    ]
)
CHANGES, KEYS, PARTITIONS = 240, 50, 3


def change(number: int) -> bytes:
    row = {
        "id": number % KEYS,
        "v": number,
        "price": f"{number}.25",
        "at": 1_700_000_000_000_000 + number,
        "day": number,
        "text": None if number % 7 == 0 else f"näme {number}",
    }
    is_delete = number % 11 == 0
    sides = {"before": row, "after": None, "op": "d"} if is_delete else {"before": None, "after": row, "op": "u"}
    return json.dumps(sides).encode()


@pytest.fixture(scope="module")
def changes(kafka: KafkaProperties, topics: LogTopics) -> dict[str, str]:
    """Options of a source with changes in three partitions, those of a key in one."""
    topic = f"source-rows-{uuid4()}"  # fixtures of a module may be made again
    topics.create_topic(topic, bucket_count=PARTITIONS)
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for number in range(CHANGES):
        producer.produce(topic, change(number), partition=number % KEYS % PARTITIONS)
    assert producer.flush(30) == 0
    return {
        "kafka.bootstrap.servers": kafka.by_name["bootstrap.servers"],
        "subscribe": topic,
        "value.format": "debezium-json",
        "epoch-units": "at=us,day=D",
        "maxOffsetsPerTrigger": "100",
    }


class Run:
    """A query that ran to the end of its source."""

    def __init__(self, spark: SparkSession, home: Path, source: Mapping[str, str], **more: str) -> None:
        self.table = Catalog(str(home)).create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "2", **more})
        self.write = sink(self.table)
        self.jobs: list[int] = []
        frame = spark.readStream.format("fluvial-kafka").options(**source).schema(COLUMNS).load()
        stream = frame.writeStream.foreachBatch(self.batch).option("checkpointLocation", f"{home}/checkpoint")
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        self.write.close()
        self.progress = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        self.rows = self.table.read().to_arrow().sort_by("id")

    def batch(self, frame: DataFrame, number: int) -> None:
        self.write(frame, number)


@pytest.mark.broker
@pytest.mark.spark
def test_the_driver_reads_what_spark_would_and_spark_runs_no_job(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(driver_runner, "scan_of", lambda _: None)
        by_spark = Run(spark, tmp_path / "spark", changes)
    monkeypatch.setattr(driver_runner, "collect_rows", lambda *_, **__: pytest.fail("Spark was asked for the rows"))
    by_driver = Run(spark, tmp_path / "driver", changes)
    assert by_driver.rows.equals(by_spark.rows)
    assert by_driver.progress == by_spark.progress
    assert sum(by_driver.progress) == CHANGES


@pytest.mark.broker
@pytest.mark.spark
def test_what_is_too_large_goes_to_tasks_and_leaves_the_same_table(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fluvial.sink")
    found = Run(spark, tmp_path, changes, **{"write-buffer-size": "1 kb"})
    assert "too large for the driver" in caplog.text
    assert caplog.text.count("the driver reads and decodes fluvial-kafka itself: table=d.t") == 1
    newest = {number % KEYS: number for number in range(CHANGES)}
    expected = {key: number for key, number in newest.items() if number % 11}
    assert dict(zip(found.rows["id"].to_pylist(), found.rows["v"].to_pylist(), strict=True)) == expected


@pytest.mark.broker
@pytest.mark.spark
def test_only_the_rows_of_the_source_as_they_are_are_read_by_the_driver(
    spark: SparkSession, tmp_path: Path, changes: dict[str, str]
) -> None:
    """A filter, another frame, one that is kept: all are Spark's."""
    scans: dict[str, object] = {}

    def look(frame: DataFrame, number: int) -> None:
        if number:
            return
        scans["as it is"] = driver_runner.scan_of(frame)
        scans["filtered"] = driver_runner.scan_of(frame.where("id > 3"))
        scans["another"] = driver_runner.scan_of(spark.range(1).toDF("id"))
        frame.persist()
        scans["kept"] = driver_runner.scan_of(frame)
        frame.unpersist()

    def filtered(frame: DataFrame, number: int) -> None:
        scans["filtered before"] = driver_runner.scan_of(frame)

    source = spark.readStream.format("fluvial-kafka").options(**changes).schema(COLUMNS).load()
    for name, frame, function in (("a", source, look), ("b", source.where("id > 3"), filtered)):
        stream = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / name))
        stream.trigger(availableNow=True).start().awaitTermination()
    assert isinstance(scans.pop("as it is"), SourceScan)
    assert scans == dict.fromkeys(["filtered", "another", "kept", "filtered before"])


class Metric:
    """Counts as Spark's does."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: int) -> None:
        self.rows += rows


@pytest.mark.broker
def test_rows_come_in_the_order_of_partitions_and_offsets_within_a_limit(changes: dict[str, str]) -> None:
    topic, metric = changes["subscribe"], Metric()
    ranges = [OffsetRange(topic=topic, partition=part, start_offset=2, end_offset=40) for part in (2, 0)]
    parts = [pickle.dumps(InputPartition((each, None, False))) for each in ranges]
    scan = SourceScan(source=driver_runner.SOURCE_NAME, options=changes, partitions=parts, row_metric=metric)
    schema = from_arrow_schema(SCHEMA).add("_row_kind", T.StringType())
    found = driver_runner.read_rows(scan, schema, threads=2, most_bytes=1 << 20)
    assert found is not None
    numbers = [[n for n in range(CHANGES) if n % KEYS % PARTITIONS == part][2:40] for part in (2, 0)]
    assert [each.column("v").to_pylist() for each in found] == numbers
    assert metric.rows == 76
    assert driver_runner.read_rows(scan, schema, threads=2, most_bytes=1000) is None
    assert metric.rows == 76


def test_marks_go_where_no_row_has_one(tmp_path: Path) -> None:
    schema = Catalog(str(tmp_path)).create_table("d.t", SCHEMA, primary_key=["id"]).schema
    marks = pa.array([None, None], pa.list_(pa.string()))
    bare = pa.record_batch({"id": [1, 2], "_unavailable": marks})
    some = pa.record_batch({"id": [1, 2], "_unavailable": pa.array([None, ["text"]], marks.type)})
    assert [each.schema.names for each in without_empty_marks([bare], schema)] == [["id"]]
    assert without_empty_marks([bare, some], schema) == [bare, some]
    assert without_empty_marks([], schema) == []
