"""The columns of a row from Kafka Connect's schema part, with Debezium's semantic types of dates, times and decimals.

Source: Kafka Connect ``JsonConverter``; Debezium "Temporal types", "Decimal types".
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_SEMANTIC: Final = {
    "io.debezium.time.Date": pa.date32(),
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "io.debezium.time.Time": pa.time32("ms"),
    "io.debezium.time.MicroTime": pa.time32("ms"),
    "io.debezium.time.NanoTime": pa.time32("ms"),
    "org.apache.kafka.connect.data.Time": pa.time32("ms"),
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": pa.timestamp("us"),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.ZonedTimestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_PRECISION: Final = "connect.decimal.precision"
_MAX_PRECISION: Final = 38


def columns_of_part(schema_part: Mapping[str, Any] | None, *, row_field: str = "after") -> pa.Schema:
    """The columns of the row in an envelope, all nullable; columns of unknown types are omitted.

    Args:
        schema_part: schema part of a record; None or without types gives no columns.
        row_field: the member of the envelope that holds the row.
    """
    row = next((field for field in _fields(schema_part) if field.get("field") == row_field), None)
    found = {field["field"]: _type_of(field) for field in _fields(row) if isinstance(field.get("field"), str)}
    return pa.schema([(name, kind) for name, kind in found.items() if kind is not None])


def _fields(part: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    fields = part.get("fields") if isinstance(part, Mapping) else None
    return [each for each in fields if isinstance(each, Mapping)] if isinstance(fields, list) else []


def _type_of(part: Any) -> pa.DataType | None:
    if not isinstance(part, Mapping):
        return None
    meaning, kind = part.get("name"), part.get("type")
    if meaning in _SEMANTIC:
        return _SEMANTIC[meaning]
    if meaning == _DECIMAL:
        parameters = part.get("parameters") or {}
        scale = int(parameters.get("scale", 0))
        digits = int(parameters.get(_PRECISION, _MAX_PRECISION))
        return pa.decimal128(digits, scale) if 0 <= scale <= digits <= _MAX_PRECISION else None
    if kind == "struct":
        inner = {field["field"]: _type_of(field) for field in _fields(part) if isinstance(field.get("field"), str)}
        known = [(name, each) for name, each in inner.items() if each is not None]
        return pa.struct(known) if known and len(known) == len(inner) else None
    if kind == "array":
        element = _type_of(part.get("items"))
        return None if element is None else pa.list_(element)
    if kind == "map":
        key, value = _type_of(part.get("keys")), _type_of(part.get("values"))
        return None if key is None or value is None else pa.map_(key, value)
    return _PLAIN.get(kind) if isinstance(kind, str) else None
