"""Debezium's Avro from a topic into columns, with the schemas of a registry, in Spark's workers."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from engine.kafka.options import KafkaSourceOptions
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from lsm.errors import InvalidInputError

ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "int"}]}
SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}


@pytest.fixture
def registry() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def framed(op: str, before: Any, after: Any) -> bytes:
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(SCHEMA), {"before": before, "after": after, "op": op})
    return b"\x00" + (7).to_bytes(4, "big") + sink.getvalue()


@pytest.mark.broker
@pytest.mark.spark
def test_changes_in_avro_are_rows_with_kinds(
    spark: SparkSession, kafka: KafkaProperties, new_topic: Callable[..., str], registry: str
) -> None:
    topic, producer = new_topic(), kafka.producer(ErrorNotes(), transactional_id=None)
    first, second = {"id": 1, "v": 10}, {"id": 1, "v": 11}
    for value in (framed("c", None, first), framed("u", first, second), framed("d", second, None), None):
        producer.produce(topic, value)
    producer.flush(30)
    options = {"kafka.bootstrap.servers": kafka.by_name["bootstrap.servers"], "subscribe": topic}
    reader = spark.read.format("fluvial-kafka").schema("id BIGINT, v INT, _row_kind STRING").options(**options)
    reader = reader.option("value.format", "debezium-avro").option("schema.registry.url", registry)
    assert [tuple(row) for row in reader.load().collect()] == [(1, 10, "+I"), (1, 11, "+U"), (1, 11, "-D")]


@pytest.mark.parametrize(
    "given", [{"value.format": "debezium-avro"}, {"value.format": "json", "schema.registry.url": "http://r"}]
)
def test_avro_and_a_registry_belong_together(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=r"options belong together: .* fix=set value.format=debezium-avro"):
        KafkaSourceOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})
