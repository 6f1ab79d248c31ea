"""Avro schemas of rows: which type a column has, and what a schema in a registry says.

The schema of a row is the one that Flink's ``avro-confluent`` derives from the same columns: a record
``org.apache.flink.avro.generated.record``, nullable columns as a union with null first and default null, decimals as
bytes. Timestamps without a time zone are local ones, as with Flink's ``timestamp_mapping.legacy=false``.

Source: Avro 1.12 "Specification"; Flink ``AvroSchemaConverter``, ``DebeziumAvroSerializationSchema``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from lsm.errors import InvalidInputError

ROW_NAME: Final = "org.apache.flink.avro.generated.record"
BEFORE: Final = "before"
AFTER: Final = "after"
OP: Final = "op"

_NO_NAMES: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_SECONDS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}
_UNIT_OF_WORD: Final = {word: unit for unit, word in _SECONDS.items()}
_PLAIN: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL_OF_INT: Final = {"date": pa.date32(), "time-millis": pa.time32("ms")}
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """A type of a schema, without the names of records: equal ones have equal bytes."""

    kind: str  # boolean int long float double bytes string record array map
    arrow: pa.DataType  # what its values are in Arrow
    null_branch: int | None = None  # index of null in a union of two; None: never null
    fields: "tuple[tuple[str, AvroType], ...]" = ()  # of a record, by name
    item: "AvroType | None" = None  # of an array; values of a map
    has_blocks: bool = field(default=False)  # an array or a map is in it

    @property
    def names(self) -> tuple[str, ...]:
        """Names of a record's fields."""
        return tuple(name for name, _ in self.fields)


def avro_row_schema(rows: pa.Schema, *, other_names: Mapping[str, Sequence[str]] = _NO_NAMES) -> str:
    """The schema of rows as JSON.

    Args:
        rows: the columns, with their nullability.
        other_names: what columns were called before, which become aliases.

    Raises:
        InvalidInputError: a type that Avro does not have. Names the column.
    """
    return json.dumps(_record(list(rows), ROW_NAME, set(), other_names), separators=(",", ":"))


def envelope_schema(rows: pa.Schema, *, other_names: Mapping[str, Sequence[str]] = _NO_NAMES) -> str:
    """The schema of Debezium's envelopes around rows as JSON: before, after, op. See ``avro_row_schema``."""
    used = {ROW_NAME}
    sides: list[dict[str, Any]] = [
        {"name": side, "type": ["null", _record(list(rows), f"{ROW_NAME}_{side}", used, other_names)], "default": None}
        for side in (BEFORE, AFTER)
    ]
    fields = [*sides, {"name": OP, "type": ["null", "string"], "default": None}]
    return json.dumps(_named_record(ROW_NAME, fields), separators=(",", ":"))


@lru_cache(maxsize=256)
def parse_schema(text: str) -> AvroType:
    """The type that a schema defines.

    Raises:
        InvalidInputError: it is no schema of a log: not a record, an unknown type, a union of more than null and one.
    """
    try:
        found = _parsed(json.loads(text), {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"not an Avro schema: reason={error!r} schema={text[:200]}") from error
    if found.kind != "record" or found.null_branch is not None:
        raise InvalidInputError(f"not the Avro schema of a row: kind={found.kind} schema={text[:200]}")
    return found


def _record(
    columns: Sequence[pa.Field], name: str, used: set[str], other_names: Mapping[str, Sequence[str]] = _NO_NAMES
) -> dict[str, Any]:
    while name in used:  # a column a_b, and a field b of a column a
        name += "_"
    used.add(name)
    fields = []
    for column in columns:
        made = _type(column.type, f"{name}_{column.name}", used, column.name)
        made_field: dict[str, Any] = {"name": column.name, "type": made}
        if column.nullable:
            made_field |= {"type": ["null", made], "default": None}
        if other_names.get(column.name):
            made_field["aliases"] = list(other_names[column.name])
        fields.append(made_field)
    return _named_record(name, fields)


def _named_record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    namespace, _, simple = name.rpartition(".")
    return {"type": "record", "name": simple, "namespace": namespace, "fields": fields}


def _type(arrow: pa.DataType, name: str, used: set[str], column: str) -> Any:
    types = pa.types
    for kind, plain in _ARROW.items():
        if arrow == plain:
            return kind
    if types.is_int8(arrow) or types.is_int16(arrow):
        return "int"
    if types.is_date32(arrow):
        return {"type": "int", "logicalType": "date"}
    if types.is_time32(arrow) and arrow.unit == "ms":
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_timestamp(arrow) and arrow.unit in _SECONDS:
        local = "local-" if arrow.tz is None else ""
        return {"type": "long", "logicalType": f"{local}timestamp-{_SECONDS[arrow.unit]}"}
    if types.is_decimal128(arrow):
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
    if types.is_struct(arrow):
        return _record(list(arrow), name, used)
    if types.is_list(arrow):
        return {"type": "array", "items": _inner(arrow.value_field, name, used, column)}
    if types.is_map(arrow) and types.is_string(arrow.key_type):
        return {"type": "map", "values": _inner(arrow.item_field, name, used, column)}
    raise InvalidInputError(
        f"Avro has no such type: column={column} type={arrow} fix='use log.format=debezium-json, or another type'"
    )


def _inner(part: pa.Field, name: str, used: set[str], column: str) -> Any:
    made = _type(part.type, name, used, column)
    return ["null", made] if part.nullable else made


def _parsed(schema: Any, named: dict[str, AvroType]) -> AvroType:
    if isinstance(schema, list):
        return _parsed_union(schema, named)
    if isinstance(schema, str):
        return AvroType(kind=schema, arrow=_ARROW[schema]) if schema in _ARROW else named[schema]
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _parsed(kind, named)
    if kind == "record":
        fields = tuple((each["name"], _parsed(each["type"], named)) for each in schema["fields"])
        arrow = pa.struct([pa.field(name, each.arrow) for name, each in fields])
        found = AvroType(kind=kind, arrow=arrow, fields=fields, has_blocks=any(each.has_blocks for _, each in fields))
        named[schema["name"]] = found
        named[f"{schema.get('namespace', '')}.{schema['name']}"] = found
        return found
    if kind == "array":
        item = _parsed(schema["items"], named)
        return AvroType(kind=kind, arrow=pa.list_(item.arrow), item=item, has_blocks=True)
    if kind == "map":
        item = _parsed(schema["values"], named)
        return AvroType(kind=kind, arrow=pa.map_(pa.string(), item.arrow), item=item, has_blocks=True)
    return AvroType(kind=kind, arrow=_logical(kind, schema) or _ARROW[kind])


def _parsed_union(schema: list[Any], named: dict[str, AvroType]) -> AvroType:
    others = [each for each in schema if each != "null"]
    if len(others) != 1 or len(schema) != 2:
        raise ValueError(f"union of other than null and one type: {schema}")
    return replace(_parsed(others[0], named), null_branch=schema.index("null"))


def _logical(kind: str, schema: Mapping[str, Any]) -> pa.DataType | None:
    """The Arrow type of a logical type; None: it has none, and is read as what it is stored as."""
    logical = str(schema.get("logicalType", ""))
    if kind == "int":
        return _LOGICAL_OF_INT.get(logical)
    if kind == "bytes" and logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    start, _, word = logical.rpartition("-")
    if kind == "long" and word in _UNIT_OF_WORD:
        unit = _UNIT_OF_WORD[word]
        if start == "time" and unit == "us":
            return pa.time64(unit)
        if start in ("timestamp", "local-timestamp"):
            return pa.timestamp(unit, tz=None if start.startswith("local") else "UTC")
    return None
