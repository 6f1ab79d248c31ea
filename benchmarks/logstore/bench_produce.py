"""Transactional batches of the log writer beside a plain idempotent producer; prints one JSON line.

    python -m benchmarks produce [--quick | --tiny]

Both send the same rows (debezium-json of about 215 bytes, with a key) to one partition of a broker of their own, with
the same compression and batching. Fluvial fences the bucket, reads its marker, appends Arrow in the pieces a task
would, and commits. The peer promises nothing across rows: the ratio is the price of exactly-once.
"""

import tempfile

import pyarrow as pa

from benchmarks.harness import measure, sized
from engine.broker.broker import Broker
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_writer import BucketLogWriter, LogTarget

TOPIC = "bench"
APPEND_ROWS = 32_768


def rows(count: int) -> tuple[pa.Array, pa.Array]:
    """Keys and values of one batch."""
    keys = [b'{"id":%d}' % number for number in range(count)]
    values = [
        b'{"before":null,"after":{"id":%d,"name":"customer %08d","city":"Springfield","amount":%d.%02d,'
        b'"note":"%064x","changed":"2026-01-02 03:04:05.%06d"},"op":"c"}'
        % (number, number % 99_991, number % 9_973, number % 100, number * 2_654_435_761, number % 1_000_000)
        for number in range(count)
    ]
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def transactional(target: LogTarget, keys: pa.Array, values: pa.Array) -> None:
    with BucketLogWriter(target) as writer:
        marker = writer.fence()
        writer.begin(query="bench", batch=marker.batch + 1 if marker else 0)
        for start in range(0, len(values), APPEND_ROWS):
            writer.append(keys.slice(start, APPEND_ROWS), values.slice(start, APPEND_ROWS))
        slice_ = writer.commit(b"files")
    assert slice_.row_count == len(values)


def idempotent(kafka: KafkaProperties, keys: pa.Array, values: pa.Array) -> None:
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for start in range(0, len(values), APPEND_ROWS):
        pairs = zip(
            keys.slice(start, APPEND_ROWS).to_pylist(), values.slice(start, APPEND_ROWS).to_pylist(), strict=True
        )
        records = [{"key": key, "value": value} for key, value in pairs]
        assert producer.produce_batch(TOPIC, records, partition=1) == len(records)
        producer.poll(0)
    assert producer.flush(60) == 0
    producer.close()


def main() -> None:
    count = sized(600_000, quick=100_000, tiny=500)
    keys, values = rows(count)
    with tempfile.TemporaryDirectory() as data_dir, Broker(data_dir) as broker:
        kafka = KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})
        LogTopics(kafka).create_topic(TOPIC, bucket_count=2, retention_ms=60_000)
        target = LogTarget(properties=kafka, topic=TOPIC, table_uuid=TOPIC, bucket=0)
        result = measure(
            "produce",
            {
                "transactional": lambda: transactional(target, keys, values),
                "idempotent": lambda: idempotent(kafka, keys, values),
            },
            rows=count,
        )
    print(result.line(peer="idempotent", value_bytes=values.nbytes // count))


if __name__ == "__main__":
    main()
