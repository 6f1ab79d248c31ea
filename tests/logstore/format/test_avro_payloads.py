"""Debezium's change events in Avro are the changes that the same events are in JSON."""

import base64
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.format.avro_payloads import AvroPayloads
from logstore.format.debezium import decode_envelopes
from logstore.format.schema_registry import SchemaRegistry
from lsm.errors import InvalidInputError, UnavailableError

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2,
            "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}]},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "photo", "type": ["null", "bytes"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
    ],
}  # fmt: skip
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
NEWER = json.loads(json.dumps(ENVELOPE))
NEWER["fields"][0]["type"][1]["fields"].append({"name": "more", "type": "string"})
SCHEMAS: dict[int, Any] = {1: ENVELOPE, 2: NEWER, 3: KEY, 4: "string", 70_000: ENVELOPE}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("seen", pa.timestamp("ms")),
        ("amount", pa.decimal128(10, 2)),
        ("weight", pa.float64()),
        ("photo", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)
NOTHING = dict.fromkeys(COLUMNS.names)
FULL = {
    "id": 1,
    "name": 'a "b" ü',
    "day": 19_782,
    "at": 1_709_212_345_678_901,
    "seen": 1_709_212_345_678,
    "amount": (-12_345).to_bytes(3, "big", signed=True),
    "weight": 0.5,
    "photo": b"\x00\xff",
    "tags": ["x", "y"],
}


class Registry:
    """Schemas without a server."""

    def schema(self, schema_id: int) -> Any:
        return SCHEMAS.get(schema_id)


def framed(schema_id: int, value: dict[str, Any]) -> bytes:
    plain = json.loads(json.dumps(SCHEMAS[schema_id]).replace('"logicalType"', '"wasLogicalType"'))
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(plain), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + sink.getvalue()


def event(op: str, before: Any = None, after: Any = None, *, schema_id: int = 1) -> bytes:
    sides = [None if side is None else {**NOTHING, "more": "m", **side} for side in (before, after)]
    return framed(schema_id, {"before": sides[0], "after": sides[1], "op": op, "ts_ms": 1})


def decoded(values: list[bytes | None], keys: list[bytes | None] | None = None, **more: Any) -> Any:
    return decode_envelopes(
        pa.array(values, pa.binary()),
        schema=COLUMNS,
        keys=None if keys is None else pa.array(keys, pa.binary()),
        key_names=("id",) if keys is not None else (),
        on_error="collect",
        split=AvroPayloads(Registry()),
        **more,
    )


def test_every_type_becomes_its_column() -> None:
    found = decoded([event("c", None, FULL), event("u", FULL, {"id": 1}), event("d", {"id": 1}), None])
    first, second, third = found.rows.to_pylist()
    assert {name: str(first[name]) for name in ("day", "at", "seen", "amount")} == {
        "day": "2024-02-29",
        "at": "2024-02-29 13:12:25.678901",
        "seen": "2024-02-29 13:12:25.678000",
        "amount": "-123.45",
    }
    assert first["amount"] == Decimal("-123.45")
    assert [first[name] for name in ("id", "name", "weight", "photo", "tags")] == [
        FULL[name] for name in ("id", "name", "weight", "photo", "tags")
    ]
    assert second == third == {**NOTHING, "id": 1}
    assert (found.kinds.to_pylist(), found.record_indices.tolist(), found.bad) == ([0, 2, 3], [0, 1, 2], ())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_odd_floats_are_not_lost(value: float) -> None:
    [row] = decoded([event("c", None, {"id": 1, "weight": value})]).rows.to_pylist()
    assert str(row["weight"]) == str(value)


def test_schemas_may_change_in_mid_batch_and_ids_may_be_large() -> None:
    ids = [1, 2, 70_000, 2, 1]
    found = decoded([event("c", None, {"id": at}, schema_id=schema_id) for at, schema_id in enumerate(ids)])
    assert found.rows["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert found.bad == ()


def test_a_record_that_cannot_be_read_is_told_and_the_others_are_rows() -> None:
    good = event("c", None, {"id": 7})
    bad = [
        b"",
        b"{}garbage",
        b"\x00\x00",
        good[:-1],
        good + b"\x00",
        framed(1, {"before": None, "after": None, "op": "x", "ts_ms": None}),
    ]
    bad += [b"\x00" + (9).to_bytes(4, "big"), b"\x00" + (4).to_bytes(4, "big") + b"\x02a"]
    records = [good, *(each for record in bad for each in (record, good))]
    found = decoded(records)
    assert found.rows["id"].to_pylist() == [7] * (len(bad) + 1)
    assert [each.index for each in found.bad] == [1 + 2 * at for at in range(len(bad))]
    reasons = " ".join(each.reason for each in found.bad)
    for fact in ("the first byte is not zero", "does not match", "longer than its Avro schema", "schema_id=9"):
        assert fact in reasons


def test_deletes_and_tombstones_are_known_by_their_avro_keys() -> None:
    found = decoded([event("d"), None, None], [framed(3, {"id": 1}), framed(3, {"id": 1}), framed(3, {"id": 2})])
    assert [(row["id"], kind) for row, kind in zip(found.rows.to_pylist(), found.kinds.to_pylist(), strict=True)] == [
        (1, 3),
        (2, 3),
    ]


ODD = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
VALUES = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "day": st.none() | st.integers(-1000, 50_000),
        "at": st.none() | st.integers(0, 2**52),
        "weight": st.none() | st.floats(allow_nan=False),
        "photo": st.none() | st.binary(),
        "tags": st.none() | st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=3),
    }
)


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("cr"), VALUES), min_size=1, max_size=6))
def test_avro_is_the_json_of_the_same_event(events: list[tuple[str, dict[str, Any]]]) -> None:
    def as_json(op: str, row: dict[str, Any]) -> bytes:
        plain = {**row, "photo": None if row["photo"] is None else base64.b64encode(row["photo"]).decode()}
        odd = {"weight": ODD[row["weight"]]} if row["weight"] in ODD else {}
        return json.dumps({"before": None, "after": {**plain, **odd}, "op": op}).encode()

    in_json = decode_envelopes(
        pa.array([as_json(*each) for each in events], pa.binary()), schema=COLUMNS, epoch_units={"at": "us", "day": "D"}
    )
    in_avro = decoded([event(op, None, row) for op, row in events])
    assert in_avro.bad == ()
    assert in_avro.rows.equals(in_json.rows)
    assert in_avro.kinds.equals(in_json.kinds)


ANSWERS = {
    "/schemas/ids/1": (200, {"schema": json.dumps(KEY)}),
    "/schemas/ids/2": (404, {"error_code": 40403}),
    "/schemas/ids/3": (500, {}),
    "/schemas/ids/4": (200, {"schema": "message A {}", "schemaType": "PROTOBUF"}),
    "/schemas/ids/5": (200, {"schema": json.dumps(KEY), "references": [{"name": "x"}]}),
}


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A registry that wants a password, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            allowed = self.headers["Authorization"] == f"Basic {base64.b64encode(b'me:hush').decode()}"
            status, body = ANSWERS[self.path] if allowed else (401, {})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/", asked
        running.shutdown()


@pytest.mark.sweep
def test_a_registry_is_asked_once_for_each_schema(server: tuple[str, list[str]]) -> None:
    url, asked = server
    registry = SchemaRegistry(url=url, user_info="me:hush")
    assert [registry.schema(1), registry.schema(1), registry.schema(2)] == [KEY, KEY, None]
    assert asked == ["/schemas/ids/1", "/schemas/ids/2"]
    assert "hush" not in repr(registry)
    with pytest.raises(UnavailableError, match="status=500"):
        registry.schema(3)
    for schema_id, fact in ((4, "type=PROTOBUF"), (5, "references=1")):
        with pytest.raises(InvalidInputError, match=fact):
            registry.schema(schema_id)
    with pytest.raises(InvalidInputError, match=r"status=401 .*basic\.auth\.user\.info"):
        SchemaRegistry(url=url).schema(1)


def test_a_registry_that_is_not_there_or_no_address_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        SchemaRegistry(url="http://127.0.0.1:1").schema(1)
    with pytest.raises(InvalidInputError, match="not an address"):
        SchemaRegistry(url="localhost:8081")


def test_a_last_record_that_is_longer_than_its_schema_is_noticed() -> None:
    good = event("c", None, {"id": 7})
    found = decoded([good, good + b"\x00"])
    assert ([each.index for each in found.bad], found.rows.num_rows) == ([1], 1)


EMPTY = {"type": "record", "name": "e", "fields": []}
WEIGHTLESS: list[Any] = [
    EMPTY,
    {"type": "fixed", "name": "f", "size": 0},
    {"type": "record", "name": "n", "fields": [{"name": "a", "type": "null"}, {"name": "b", "type": EMPTY}]},
    {"type": "array", "items": EMPTY},
    {"type": "map", "values": {"type": "array", "items": EMPTY}},
]


@pytest.mark.parametrize("items", WEIGHTLESS)
@pytest.mark.parametrize("optional", [False, True])
def test_a_record_of_few_bytes_does_not_become_any_number_of_items(items: Any, optional: bool) -> None:
    """It is a bad record, so a dead letter, where it took all memory."""
    array: Any = {"type": "array", "items": items}
    fields = [{"name": "x", "type": ["null", array] if optional else array}]

    class Registry:
        def schema(self, schema_id: int) -> Any:
            return {"type": "record", "name": "r", "fields": fields}

    count = b"\x80\xc2\xd7\x2f\x00"  # 50 million, and the end
    record = b"\x00\x00\x00\x00\x01" + (b"\x02" if optional else b"") + count
    groups, bad = AvroPayloads(Registry())(pa.array([record], pa.binary()))
    assert groups == []
    assert [each.reason for each in bad] == ["no usable schema in the registry: schema_id=1"]
