"""Row changes to the log's Avro and back, against fastavro and Confluent's own serializer, once per row.

    python -m benchmarks log_avro [--quick | --tiny]

Rows are an int, a bigint, a text, a double and a timestamp; records are ``debezium-avro``. The peers get, and return,
rows as Python objects, so they have nothing to do but Avro; Confluent's also look up the schema's id in their caches.
"""

import json
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.harness import measure, sized
from logstore.format.changelog_avro import (
    RecordSchemas,
    RegisteredSchema,
    decode_avro_changes,
    encode_avro_changes,
    wanted_schemas,
)

SEED = 20261122
BATCH_ROWS = 32_768
FORMAT = "debezium-avro"
PEER, CONFLUENT = "fastavro per row", "Confluent per row"
BUDGET = 300_000  # rows per second of one core, both ways
CONTEXT = SerializationContext("orders", MessageField.VALUE)


def made_rows(row_count: int) -> pa.RecordBatch:
    random = np.random.default_rng(SEED)
    names = pa.array([f"name of customer {number}" for number in range(1000)])
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(random.integers(0, 2**31, row_count), pa.int32()),
            "order_id": pa.array(random.integers(-(2**60), 2**60, row_count)),
            "name": names.take(pa.array(random.integers(0, len(names), row_count))),
            "amount": pa.array(random.normal(size=row_count)),
            "at": pa.array(random.integers(15 * 10**14, 19 * 10**14, row_count), pa.timestamp("us")),
        }
    )


class OneSchema:
    """A registry with one schema."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema_text(self, schema_id: int) -> str:
        return self._text


def main() -> None:
    row_count = sized(8 * BATCH_ROWS, quick=BATCH_ROWS, tiny=500)
    rows = made_rows(row_count)
    _, text = wanted_schemas(rows.schema, key_names=[], log_format=FORMAT, other_names={})
    parsed = fastavro.parse_schema(json.loads(text))
    with SchemaRegistryClient.new_client({"url": "mock://benchmark"}) as client:
        write, read = AvroSerializer(client, text), AvroDeserializer(client)
        envelopes = [{"before": None, "after": row, "op": "c"} for row in rows.to_pylist()]
        confluents = [write(each, CONTEXT) for each in envelopes]
        schemas = RecordSchemas(
            key=None, value=RegisteredSchema(schema_id=int.from_bytes(confluents[0][1:5], "big"), text=text)
        )
        kinds = pa.repeat(pa.scalar(0, pa.int8()), BATCH_ROWS)
        batches = [rows.slice(start, BATCH_ROWS) for start in range(0, row_count, BATCH_ROWS)]

        def encode() -> list[pa.Array]:
            return [
                encode_avro_changes(each, kinds[: len(each)], schemas=schemas, key_names=[], log_format=FORMAT).values
                for each in batches
            ]

        encoded = encode()
        records = [record for each in encoded for record in each.to_pylist()]
        if records != confluents:
            raise SystemExit("Confluent's serializer writes other bytes")

        def decode() -> list[pa.RecordBatch]:
            known = OneSchema(text)
            return [
                decode_avro_changes(
                    None, each, schema=rows.schema, key_names=[], log_format=FORMAT, registry=known
                ).rows
                for each in encoded
            ]

        if not pa.Table.from_batches(decode()).equals(pa.Table.from_batches(batches)):
            raise SystemExit("what is read is not what was written")

        def fastavro_encode() -> list[bytes]:
            found = []
            for each in envelopes:
                sink = BytesIO(b"\x00\x00\x00\x00\x01")
                sink.seek(5)
                fastavro.schemaless_writer(sink, parsed, each)
                found.append(sink.getvalue())
            return found

        encoding = measure(
            "log_avro",
            {"fluvial": encode, PEER: fastavro_encode, CONFLUENT: lambda: [write(each, CONTEXT) for each in envelopes]},
            rows=row_count,
            repeats=sized(5, quick=3, tiny=1),
        )
        decoding = measure(
            "log_avro",
            {
                "fluvial": decode,
                PEER: lambda: [fastavro.schemaless_reader(BytesIO(each[5:]), parsed) for each in records],
                CONFLUENT: lambda: [read(each, CONTEXT) for each in records],
            },
            rows=row_count,
            repeats=sized(5, quick=3, tiny=1),
        )
    facts: dict[str, Any] = {
        "confluent_ratio": round(encoding.ratio("fluvial", CONFLUENT), 2),
        "decode_rows_per_s": round(decoding.rows_per_s("fluvial")),
        "decode_rows_per_cpu_s": round(decoding.rows_per_cpu_s("fluvial")),
        "decode_ratio": round(decoding.ratio("fluvial", PEER), 2),
        "decode_confluent_ratio": round(decoding.ratio("fluvial", CONFLUENT), 2),
    }
    slower = min(encoding.rows_per_cpu_s("fluvial"), decoding.rows_per_cpu_s("fluvial"))
    print(encoding.line(peer=PEER, **facts, budget=BUDGET, met=slower >= BUDGET))


if __name__ == "__main__":
    main()
