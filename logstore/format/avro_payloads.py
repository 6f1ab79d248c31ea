"""Records in Confluent's wire format (0, schema id, Avro), converted to the JSON payloads of ``schema_parts``.

So change events in Avro are decoded like those in JSON: same columns, kinds, units and bad records. Records are
grouped by schema id, and a group is decoded by one call; the fields are converted to JSON record by record.

Source: Confluent "Wire format"; Kafka Connect ``AvroData`` (connect.name, connect.parameters); Avro 1.11 "Arrays".
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Protocol

import fastavro
import numpy as np
import orjson
import pyarrow as pa

from logstore.format.schema_parts import Payloads
from logstore.json.arrow_bytes import value_bytes
from logstore.json.reading import BadRecord
from lsm.avro_weight import has_weightless_items
from lsm.errors import InvalidInputError

_HEADER_BYTES: Final = 5
_CONNECT: Final = "org.apache.kafka.connect.data."
_NAME_OF_LOGICAL_TYPE: Final = {
    "date": f"{_CONNECT}Date",
    "time-millis": f"{_CONNECT}Time",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "local-timestamp-millis": f"{_CONNECT}Timestamp",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "decimal": f"{_CONNECT}Decimal",
}
_CONNECT_TYPES: Final = {"int": "int32", "long": "int64", "record": "struct", "enum": "string", "fixed": "bytes"}
_NON_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_UNREADABLE: Final = (EOFError, ValueError, IndexError, StopIteration, OverflowError, UnicodeDecodeError, KeyError)
"""The exceptions that fastavro raises for bytes that do not match the schema."""


class SchemaLookup(Protocol):
    """A source of schemas by id."""

    def schema(self, schema_id: int) -> Any:
        """The schema as parsed JSON, or None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedSchema:
    """A schema in the forms that decoding needs."""

    record: Any  # parsed by fastavro, without logical types: values stay numbers and bytes
    array: Any  # an array of such records
    schema_part: Mapping[str, Any]  # as written by Connect's JsonConverter
    has_floats: bool


class AvroPayloads:
    """Splits records into payloads by schema; caches prepared schemas."""

    def __init__(self, registry: SchemaLookup) -> None:
        self._registry = registry
        self._prepared: dict[int, _PreparedSchema] = {}

    def __call__(self, records: pa.Array) -> tuple[list[Payloads], tuple[BadRecord, ...]]:
        """Payloads by schema.

        Args:
            records: (n,) binary without nulls.

        Returns:
            the groups, and the records that are not in this format, have an unknown schema, or do not match it.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: the registry rejects the credentials, or a schema is not supported.
        """
        offsets, data = value_bytes(records)
        lengths = np.diff(offsets)
        is_framed = lengths >= _HEADER_BYTES
        is_framed[is_framed] = data[offsets[:-1][is_framed]] == 0
        bad = [
            BadRecord(index=int(index), reason="not Avro with a schema id: the first byte is not zero")
            for index in np.flatnonzero(~is_framed)
        ]
        framed = np.flatnonzero(is_framed)
        heads = data[offsets[:-1][framed][:, None] + np.arange(1, _HEADER_BYTES)] if len(framed) else data[:0]
        ids = np.ascontiguousarray(heads, np.uint8).view(">u4").reshape(-1)
        groups = []
        whole = data.tobytes()
        for schema_id in np.unique(ids).tolist():
            indices = framed[ids == schema_id]
            known = self._schema(schema_id)
            if known is None:
                reason = f"no usable schema in the registry: schema_id={schema_id}"
                bad += [BadRecord(index=int(index), reason=reason) for index in indices]
                continue
            bodies = [whole[offsets[index] + _HEADER_BYTES : offsets[index + 1]] for index in indices]
            rows, unreadable = _decoded(bodies, known)
            bad += [BadRecord(index=int(indices[place]), reason=reason) for place, reason in unreadable.items()]
            kept = np.array([place not in unreadable for place in range(len(indices))], bool)
            texts = pa.array([orjson.dumps(row, default=_base64) for row in rows], pa.binary())
            groups.append(Payloads(schema_part=known.schema_part, indices=indices[kept], texts=texts))
        return groups, tuple(sorted(bad, key=lambda each: each.index))

    def _schema(self, schema_id: int) -> _PreparedSchema | None:
        if schema_id not in self._prepared:
            schema = self._registry.schema(schema_id)
            if not isinstance(schema, dict) or schema.get("type") != "record" or has_weightless_items(schema):
                return None
            self._prepared[schema_id] = _prepared(schema)
        return self._prepared[schema_id]


def _prepared(schema: dict[str, Any]) -> _PreparedSchema:
    plain = without_logical_types(schema)
    try:
        record = fastavro.parse_schema(plain)
        array = fastavro.parse_schema({"type": "array", "items": plain})
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidInputError(f"not an Avro schema: name={schema.get('name')} reason={error}") from error
    text = orjson.dumps(plain)
    return _PreparedSchema(
        record=record,
        array=array,
        schema_part=_schema_part(schema, _named(schema, {})),
        has_floats=b'"float"' in text or b'"double"' in text,
    )


def _decoded(bodies: Sequence[bytes], known: _PreparedSchema) -> tuple[list[Any], dict[int, str]]:
    rows, unreadable = read_records(bodies, known.record, known.array)
    return ([_with_non_finite_as_text(row) for row in rows] if known.has_floats else rows), unreadable


def read_records(bodies: Sequence[bytes], record: Any, array: Any) -> tuple[list[Any], dict[int, str]]:
    """The decoded records of one schema, and the reasons by index of those that do not match it.

    Args:
        bodies: Avro, without schema ids.
        record: the schema, parsed by fastavro.
        array: an array of such records, parsed by fastavro.
    """
    block = b"".join((_zigzag(len(bodies)), *bodies, b"\x00"))
    source = BytesIO(block)
    try:
        rows = fastavro.schemaless_reader(source, array) if bodies else []
    except _UNREADABLE:
        return _decoded_each(bodies, record)
    if bodies and (source.tell() < len(block) or len(rows) != len(bodies)):
        return _decoded_each(bodies, record)
    return rows, {}


def _decoded_each(bodies: Sequence[bytes], record: Any) -> tuple[list[Any], dict[int, str]]:
    rows, unreadable = [], {}
    for place, body in enumerate(bodies):
        source = BytesIO(body)
        try:
            row = fastavro.schemaless_reader(source, record)
        except _UNREADABLE as error:
            unreadable[place] = f"does not match its Avro schema: {type(error).__name__} {error}".strip()
            continue
        if source.tell() == len(body):
            rows.append(row)
        else:
            unreadable[place] = f"longer than its Avro schema: bytes={len(body)} read={source.tell()}"
    return rows, unreadable


def _zigzag(count: int) -> bytes:
    """A non-negative long in Avro's zigzag varint encoding."""
    made, left = bytearray(), count << 1
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _with_non_finite_as_text(value: Any) -> Any:
    """JSON has no literals for NaN and the infinities; the JSON reader accepts them as strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NON_FINITE[str(value)]
    if isinstance(value, dict):
        return {key: _with_non_finite_as_text(each) for key, each in value.items()}
    return [_with_non_finite_as_text(each) for each in value] if isinstance(value, list) else value


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def without_logical_types(schema: Any) -> Any:
    """The schema of the same bytes, whose values are the numbers and bytes that are stored."""
    if isinstance(schema, dict):
        return {
            key: without_logical_types(each) for key, each in schema.items() if key not in ("logicalType", "default")
        }
    return [without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Record schemas by name: Debezium defines the row once, in ``before``, and refers to it by name in ``after``."""
    if isinstance(schema, list):
        for each in schema:
            _named(each, found)
    elif isinstance(schema, dict):
        if "name" in schema and "fields" in schema:
            found[schema["name"]] = schema
            found[f"{schema.get('namespace', '')}.{schema['name']}"] = schema
        for key in ("type", "items", "values"):
            _named(schema.get(key), found)
        for each in schema.get("fields", ()):
            _named(each, found)
    return found


def _schema_part(schema: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The schema part that Connect's JsonConverter would write for this type."""
    if isinstance(schema, list):
        is_optional = "null" in schema
        schema = next((each for each in schema if each != "null"), "null")
        return {**_schema_part(schema, named), "optional": is_optional}
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return _schema_part(kind, named)
    part: dict[str, Any] = {"type": schema.get("connect.type") or _CONNECT_TYPES.get(kind, kind)}
    if "fields" in schema:
        part["fields"] = [{"field": each["name"], **_schema_part(each["type"], named)} for each in schema["fields"]]
    elif kind == "array":
        part["items"] = _schema_part(schema["items"], named)
    elif kind == "map":
        part |= {"keys": {"type": "string"}, "values": _schema_part(schema["values"], named)}
    parameters = {}
    if schema.get("logicalType") == "decimal":
        parameters = {"scale": schema.get("scale", 0), "connect.decimal.precision": schema.get("precision", 38)}
    part["name"] = schema.get("connect.name") or _NAME_OF_LOGICAL_TYPE.get(schema.get("logicalType"))
    part["parameters"] = schema.get("connect.parameters", parameters)
    if schema.get("connect.default") is not None:
        part["default"] = schema["connect.default"]
    return part
