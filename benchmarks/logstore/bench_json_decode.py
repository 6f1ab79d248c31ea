"""The log's debezium-json, and a connector's Debezium events, to columns, against orjson once per record.

    python -m benchmarks json_decode [--quick | --tiny]

The peer parses each record and hands its values to Arrow; its decimals go through floats, so it is not even exact.
"""

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.harness import Measurement, measure, sized
from benchmarks.logstore.json_rows import debezium_events, flat_rows, nested_rows
from logstore.format.changelog_json import decode_changes, encode_changes
from logstore.format.debezium import decode_envelopes

BATCH_ROWS = 32_768
PEER = "orjson per record"


def decode_per_record(records: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    sides: list[dict[str, Any]] = []
    for record in records:
        event = orjson.loads(record)
        event = event.get("payload", event)
        sides.append(event["before"] if event["op"] == "d" else event["after"])
    arrays = []
    for field in schema:
        values = [side.get(field.name) for side in sides]
        is_text = pa.types.is_timestamp(field.type) and isinstance(values[0], str)
        is_decimal = pa.types.is_decimal(field.type)
        arrays.append(pa.array([None if v is None else str(v) for v in values] if is_text or is_decimal else values))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def compare(name: str, rows: pa.RecordBatch) -> Measurement:
    kinds = pa.repeat(pa.scalar(0, pa.int8()), BATCH_ROWS)
    batches = [rows.slice(start, BATCH_ROWS) for start in range(0, len(rows), BATCH_ROWS)]
    encoded = [encode_changes(b, kinds[: len(b)], key_names=[], log_format="debezium-json").values for b in batches]
    records = [values.to_pylist() for values in encoded]

    def fluvial() -> list[pa.RecordBatch]:
        return [
            decode_changes(None, v, schema=rows.schema, key_names=[], log_format="debezium-json")[0] for v in encoded
        ]

    if not pa.Table.from_batches(fluvial()).equals(pa.Table.from_batches(batches)):
        raise SystemExit("what is read is not what was written")
    return measure(
        name, {"fluvial": fluvial, PEER: lambda: [decode_per_record(r, rows.schema) for r in records]}, rows=len(rows)
    )


def compare_events(rows: pa.RecordBatch, *, with_schema: bool) -> Measurement:
    records = debezium_events(rows, with_schema=with_schema)
    values = pa.array(records, pa.binary())
    if not decode_envelopes(values, schema=rows.schema).rows.equals(rows):
        raise SystemExit("what is read is not what was written")
    variants = {
        "fluvial": lambda: decode_envelopes(values, schema=rows.schema),
        PEER: lambda: decode_per_record(records, rows.schema),
    }
    return measure("debezium", variants, rows=len(rows))


def main() -> None:
    row_count = sized(8 * BATCH_ROWS, quick=BATCH_ROWS, tiny=500)
    flat, nested = compare("json_decode", flat_rows(row_count)), compare("nested", nested_rows(row_count))
    others = {
        "nested": nested,
        "debezium": compare_events(flat_rows(min(row_count, BATCH_ROWS)), with_schema=False),
        "debezium_with_schema": compare_events(flat_rows(min(row_count, BATCH_ROWS)), with_schema=True),
    }
    facts: dict[str, float] = {}
    for name, other in others.items():
        facts |= {
            f"{name}_rows_per_s": round(other.rows_per_s("fluvial")),
            f"{name}_ratio": round(other.ratio("fluvial", PEER), 2),
        }
        facts |= {f"{name}_rows_per_cpu_s": round(other.rows_per_cpu_s("fluvial"))}
    print(flat.line(peer=PEER, **facts))


if __name__ == "__main__":
    main()
