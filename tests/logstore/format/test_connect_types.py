"""Columns of Kafka Connect's schema parts."""

from typing import Any

import pyarrow as pa
import pytest

from logstore.format.connect_types import columns_of_part


def part(**fields: Any) -> dict[str, Any]:
    row = [{"field": name, **(kind if isinstance(kind, dict) else {"type": kind})} for name, kind in fields.items()]
    after = {"type": "struct", "field": "after", "optional": True, "fields": row}
    return {"type": "struct", "fields": [{"type": "struct", "field": "before", "fields": []}, after]}


DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int16", pa.int16()),
        ("double", pa.float64()),
        ({"type": "int32", "name": "io.debezium.time.Date"}, pa.date32()),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, pa.timestamp("us")),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, pa.timestamp("us", tz="UTC")),
        ({"type": "string", "name": "io.debezium.data.Json"}, pa.string()),
        ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, pa.decimal128(38, 2)),
        (
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "9"}},
            pa.decimal128(9, 2),
        ),
        ({"type": "array", "items": {"type": "string"}}, pa.list_(pa.string())),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, pa.map_(pa.string(), pa.int32())),
        ({"type": "struct", "fields": [{"field": "x", "type": "double"}]}, pa.struct([("x", pa.float64())])),
        ({"type": "struct", "fields": [{"field": "x", "type": "union"}]}, None),
        ({}, None),
    ],
)
def test_types_are_what_connect_and_debezium_mean(kind: Any, expected: pa.DataType | None) -> None:
    found = columns_of_part(part(id="int64", c=kind))
    assert found.names == (["id"] if expected is None else ["id", "c"])
    assert found.field("id").type == pa.int64()
    assert expected is None or found.field("c").type == expected


@pytest.mark.parametrize(
    "schema_part", [None, {}, {"fields": "x"}, {"fields": [{"field": "after"}]}, {"fields": [None]}]
)
def test_parts_without_columns_have_none(schema_part: Any) -> None:
    assert columns_of_part(schema_part).names == []
