"""Columns as Delta Lake's schema, and the Arrow types that their Parquet files have.

Source: Delta protocol, "Schema Serialization Format".
"""

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from lsm.errors import InvalidInputError

_PLAIN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
NTZ: Final = "timestamp_ntz"
_MOST_DIGITS: Final = 38


def delta_schema(schema: pa.Schema) -> tuple[str, pa.Schema]:
    """The schema as text, and the Arrow schema of the files: timestamps in microseconds, nothing else changed.

    Raises: InvalidInputError naming a column whose type Delta Lake does not have.
    """
    fields = [_field(field, field.name) for field in schema]
    text = json.dumps({"type": "struct", "fields": [field for field, _ in fields]}, separators=(",", ":"))
    return text, pa.schema([stored for _, stored in fields])


def needs_ntz(schema_text: str) -> bool:
    """Whether a column has timestamps without zone, which readers of the first versions do not know."""
    return f'"{NTZ}"' in schema_text


def _field(field: pa.Field, path: str) -> tuple[dict[str, Any], pa.Field]:
    kind, stored = _type(field.type, path)
    named = {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}
    return named, pa.field(field.name, stored, field.nullable)


def _type(given: pa.DataType, path: str) -> tuple[Any, pa.DataType]:
    if given in _PLAIN:
        return _PLAIN[given], given
    if kinds.is_string(given) or kinds.is_large_string(given):
        return "string", given
    if kinds.is_binary(given) or kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given):
        return "binary", given
    if kinds.is_decimal(given) and given.precision <= _MOST_DIGITS:
        return f"decimal({given.precision},{given.scale})", given
    if kinds.is_timestamp(given) and given.unit != "ns":
        return ("timestamp" if given.tz else NTZ), pa.timestamp("us", "UTC" if given.tz else None)
    if kinds.is_list(given):
        kind, stored = _type(given.value_type, f"{path}.element")
        named = {"type": "array", "elementType": kind, "containsNull": given.value_field.nullable}
        return named, pa.list_(pa.field("element", stored, given.value_field.nullable))
    if kinds.is_map(given):
        (key, stored_key), (item, stored_item) = (_type(each, path) for each in (given.key_type, given.item_type))
        named = {"type": "map", "keyType": key, "valueType": item, "valueContainsNull": given.item_field.nullable}
        return named, pa.map_(stored_key, pa.field("value", stored_item, given.item_field.nullable))
    if kinds.is_struct(given):
        fields = [_field(each, f"{path}.{each.name}") for each in given]
        return {"type": "struct", "fields": [field for field, _ in fields]}, pa.struct([each for _, each in fields])
    raise InvalidInputError(f"Delta Lake has no such type: column={path} type={given} fix='export as parquet'")
