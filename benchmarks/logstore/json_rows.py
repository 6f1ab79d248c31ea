"""The rows of the JSON benchmarks: seeded, with what makes JSON hard (escapes, nulls, large integers, decimals)."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEED = 20260801
ODD_TEXTS = ['quote " here', "back\\slash", "new\nline", "tab\tx", "ctl\x01", "uni ☃ é 中", "emoji 😀", "", " lead"]


def flat_rows(row_count: int) -> pa.RecordBatch:
    """Six columns: int64, string, timestamp, decimal(18, 4), double, boolean."""
    random = np.random.default_rng(SEED)
    texts = pa.array([f"plain name {number}" for number in range(900)] + ODD_TEXTS * 5)
    names = texts.take(pa.array(random.integers(0, len(texts), row_count)))
    cents = random.integers(-(10**12), 10**12, row_count)
    words = np.column_stack([cents, cents >> 63])
    columns = {
        "id": pa.array(np.arange(row_count) + (1 << 53) - 5),
        "name": pc.if_else(pa.array(random.random(row_count) < 0.02), pa.scalar(None, pa.string()), names),
        "ts": pa.array(random.integers(1_500_000_000_000_000, 1_900_000_000_000_000, row_count), pa.timestamp("us")),
        "price": pa.Array.from_buffers(pa.decimal128(18, 4), row_count, [None, pa.py_buffer(words)]),
        "score": pa.array(random.normal(size=row_count)),
        "active": pa.array(random.random(row_count) < 0.5),
    }
    return pa.RecordBatch.from_pydict(columns)


def nested_rows(row_count: int) -> pa.RecordBatch:
    """The same, with a struct of an int and a list of strings instead of the boolean."""
    random = np.random.default_rng(SEED)
    flat = flat_rows(row_count)
    tag_counts = random.integers(0, 4, row_count)
    offsets = np.concatenate([[0], np.cumsum(tag_counts)]).astype(np.int32)
    tags = flat.column("name").take(pa.array(random.integers(0, row_count, offsets[-1])))
    keys = pa.array(random.integers(0, 1000, row_count).astype(np.int32))
    attributes = pa.StructArray.from_arrays(
        [keys, pa.ListArray.from_arrays(pa.array(offsets), tags)], names=["k", "tags"]
    )
    return flat.drop_columns(["active"]).append_column("attrs", attributes)


def debezium_events(rows: pa.RecordBatch, *, with_schema: bool) -> list[bytes]:
    """One event per row as the MySQL connector writes them: half creates, four tenths updates, one tenth deletes."""
    source = {
        "version": "2.7.0.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": 1589362330904,
        "snapshot": "false",
        "db": "inventory",
        "sequence": None,
        "table": "orders",
        "server_id": 223344,
        "gtid": None,
        "file": "mysql-bin.000003",
        "pos": 364,
        "row": 0,
        "thread": 7,
        "query": None,
    }
    events = []
    for index, row in enumerate(_encoded(rows, with_schema=with_schema)):
        operation = "cccccuuuud"[index % 10]
        event = {
            "before": None if operation == "c" else row,
            "after": None if operation == "d" else row,
            "source": source,
            "op": operation,
            "ts_ms": 1589362330999,
            "transaction": None,
        }
        record = {"schema": _schema_part(rows.schema), "payload": event} if with_schema else event
        events.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode())
    return events


def snapshot_records(rows: pa.RecordBatch, *, with_schema: bool = True) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of an ``r`` event per row as the PostgreSQL connector writes them."""
    part, names = _schema_part(rows.schema), ("version", "connector", "name", "snapshot", "db", "sequence", "schema")
    source = {"type": "struct", "name": "io.debezium.connector.postgresql.Source", "field": "source", "optional": False}
    source["fields"] = [{"type": "string", "optional": True, "field": name} for name in (*names, "table")]
    source["fields"] += [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "txId", "lsn")]
    part = {**part, "fields": [*part["fields"][:2], source, {"type": "string", "optional": False, "field": "op"}]}
    key_part = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "name": "shop.Key"}
    heads = [
        json.dumps({"schema": each}, separators=(",", ":"))[:-1] + ',"payload":' if with_schema else ""
        for each in (key_part, part)
    ]
    end = "}" if with_schema else ""
    source_row: dict[str, Any] = {"version": "3.4.0.Final", "connector": "postgresql", "name": "shop"}
    source_row |= {"snapshot": "true", "db": "shop", "sequence": '[null,"24023128"]', "schema": "public"}
    source_row |= {"table": "orders", "ts_ms": 1763859600000, "txId": 555, "lsn": 24023128}
    for row in _encoded(rows, with_schema=True):
        event = {
            "before": None,
            "after": row,
            "source": source_row,
            "transaction": None,
            "op": "r",
            "ts_ms": 1_763_859_600_100,
        }
        texts = (json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in ({"id": row["id"]}, event))
        key, value = (f"{head}{text}{end}".encode() for head, text in zip(heads, texts, strict=True))
        yield key, value


def _encoded(rows: pa.RecordBatch, *, with_schema: bool) -> list[dict[str, Any]]:
    micros = rows.column("ts").cast(pa.int64()).to_pylist()
    encoded = rows.drop_columns(["ts"]).to_pylist()
    for row, ts in zip(encoded, micros, strict=True):
        unscaled = int(row["price"].scaleb(4))
        as_bytes = base64.b64encode(unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)).decode()
        row |= {"ts": ts, "price": as_bytes if with_schema else str(row["price"]), "active": int(row["active"])}
    return encoded


def _schema_part(schema: pa.Schema) -> dict[str, Any]:
    semantic: dict[str, dict[str, Any]] = {
        "id": {"type": "int64"},
        "score": {"type": "double"},
        "active": {"type": "int16"},
        "ts": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
        "price": {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "4", "connect.decimal.precision": "18"},
        },
    }
    fields = [{**semantic.get(name, {"type": "string"}), "optional": True, "field": name} for name in schema.names]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.inventory.orders.Value"}
    source = {"type": "struct", "name": "io.debezium.connector.mysql.Source", "field": "source", "optional": False}
    described = [
        "version",
        "connector",
        "name",
        "ts_ms",
        "snapshot",
        "db",
        "sequence",
        "table",
        "server_id",
        "gtid",
        "file",
        "pos",
    ]
    source |= {"fields": [{"type": "string", "optional": True, "field": name} for name in described]}
    return {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}, source, {"type": "string", "field": "op"}],
        "optional": False,
        "name": "shop.inventory.orders.Envelope",
        "version": 1,
    }
