"""Columns of Kafka Connect's schema parts."""

import re
from typing import Any

import pyarrow as pa
import pytest

from logstore.format.connect_types import TypeRules, columns_of_part, row_part, value_schema
from lsm.errors import InvalidInputError


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
    found = value_schema(part(id="int64", c=kind))
    assert found.names == (["id"] if expected is None else ["id", "c"])
    assert found.field("id").type == pa.int64()
    assert expected is None or found.field("c").type == expected


@pytest.mark.parametrize(
    "schema_part", [None, {}, {"fields": "x"}, {"fields": [{"field": "after"}]}, {"fields": [None]}]
)
def test_parts_without_columns_have_none(schema_part: Any) -> None:
    assert value_schema(schema_part).names == []
    assert columns_of_part(row_part(schema_part)) == ()


@pytest.mark.parametrize(
    ("rule", "value"),
    [("numeric", "decimal(39,2)"), ("numeric", "float"), ("time", "time(6)"), ("out_of_range", "x"), ("json", "row")],
)
def test_a_rule_that_does_not_exist_is_refused_with_those_that_do(rule: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=f"types.{rule.replace('_', '-')}={re.escape(value)} fix='use "):
        TypeRules(**{rule: value})


def test_a_column_has_its_default_and_its_nullability() -> None:
    """ADD COLUMN e int NOT NULL DEFAULT 7 emits no events: only the part has the 7 (finding 4)."""
    row = row_part(part(e={"type": "int32", "optional": False, "default": 7}, f={"type": "int32", "optional": True}))
    found = {each.name: (each.nullable, each.default) for each in columns_of_part(row)}
    assert found == {"e": (False, "7"), "f": (True, None)}


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}, "default": "ew=="}, "1.23"),
        ({"type": "int32", "name": "io.debezium.time.Date", "default": 18263}, "2020-01-02"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime", "default": 1}, "00:00:00.000001"),
        ({"type": "boolean", "default": False}, "false"),
        ({"type": "string", "default": ""}, ""),
        ({"type": "array", "items": {"type": "int32"}, "default": []}, None),
    ],
)
def test_a_default_is_a_literal_of_the_columns_type(field: dict[str, Any], default: str | None) -> None:
    (column,) = columns_of_part({"fields": [{"field": "x", **field}]})
    assert column.default == default
    assert (column.unknown == "records have no literal of its default") == (default is None)
    assert column.note == ""
