"""Keys that change beside large values that the log leaves out, from Debezium's topic through ``fluvial-kafka``."""

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, sink
from engine.write.driver import driver_runner
from logstore.kafka.clients import KafkaProperties
from tests.support.change_events import Record, SourceTable, int32, send, text, tombstone

LEFT_OUT = "__debezium_unavailable_value"
COLUMNS = "id INT, v INT, body STRING, _row_kind STRING, _unavailable ARRAY<STRING>"
SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.int32()), ("body", pa.string())])
ROUNDS, STEPS, KEYS = 2, 60, 12
Rows = dict[int, tuple[int | None, str | None]]


class MovingSource:
    """A table of a database that logs no large value which an update leaves alone."""

    def __init__(self, topic: str, seed: int) -> None:
        self.table = SourceTable("docs", [int32("id"), int32("v"), text("body")], topic_name=topic)
        self.rows: Rows = {}
        self._chance = random.Random(seed)

    def step(self) -> list[Record]:
        """What one statement publishes: INSERT, UPDATE with or without the large value or the key, DELETE."""
        chance, key = self._chance, self._chance.randrange(KEYS)
        v, body = chance.randrange(1000), chance.choice([None, LEFT_OUT, f"large {chance.random()}"])
        if key not in self.rows:
            self.rows[key] = v, body
            return [self.table.insert({"id": key, "v": v, "body": body})]
        kind = chance.choice(["large", "small", "moved", "moved and large", "deleted"])
        free = [each for each in range(KEYS + 20) if each not in self.rows]
        if kind == "small":
            self.rows[key] = v, self.rows[key][1]
            return [self.table.update({"id": key, "v": v, "body": LEFT_OUT})]
        if kind == "large":
            body = f"new {body}"
            self.rows[key] = v, body
            return [self.table.update({"id": key, "v": v, "body": body})]
        before = self.rows.pop(key)
        delete = self.table.delete({"id": key, "v": None, "body": None})
        gone: list[Record] = [delete, tombstone(delete)]
        if kind == "deleted":
            return gone
        new = chance.choice(free)
        written = f"new {body}" if kind == "moved and large" else LEFT_OUT
        self.rows[new] = v, before[1] if written == LEFT_OUT else written
        create = self.table.insert({"id": new, "v": v, "body": written})
        return [*gone, (*create, {"__debezium.oldkey": b'{"id":%d}' % key})]


@pytest.mark.sampled(1)
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("by_spark", "has_log", "options"),
    [
        (False, False, {"bucket": "2"}),
        (True, False, {"bucket": "-1"}),
        (False, True, {"bucket": "2", "write-buffer-size": "1 kb"}),
    ],
    ids=["read by the driver", "read by Spark", "written by tasks"],
)
def test_a_row_takes_its_large_value_to_its_new_key(
    spark: SparkSession,
    tmp_path: Path,
    kafka: KafkaProperties,
    new_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    by_spark: bool,
    has_log: bool,
    options: Mapping[str, str],
) -> None:
    """In the batch of its delete, behind other changes of the row; a new row may have the placeholder as its value."""
    if by_spark:
        monkeypatch.setattr(driver_runner, "scan_of", lambda _: None)
    topic = new_topic()
    source = MovingSource(topic, seed=18)
    servers = kafka.by_name["bootstrap.servers"]
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": servers} if has_log else {})
    table = catalog.create_table("d.docs", SCHEMA, primary_key=["id"], options=dict(options))
    given: dict[str, Any] = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "value.format": "debezium-json",
        "key.columns": "id",
        "unavailable-values": "keep",
    }
    for _ in range(ROUNDS):
        events = [record for _ in range(STEPS) for record in source.step()]
        send(kafka, *events)
        with closing(sink(table)) as write:

            def batch(frame: DataFrame, number: int, write: Any = write) -> None:
                write(frame, number)

            frame = spark.readStream.format("fluvial-kafka").options(**given).schema(COLUMNS).load()
            stream = frame.writeStream.foreachBatch(batch).option("checkpointLocation", f"{tmp_path}/checkpoint")
            stream.trigger(availableNow=True).start().awaitTermination()
        found = {row["id"]: (row["v"], row["body"]) for row in table.read().to_arrow().to_pylist()}
        assert found == source.rows
