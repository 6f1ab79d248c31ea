"""Whole files of records in memory, as Paimon's metadata has them: Avro, or what ``manifest.format`` says.

A reader looks at the first bytes, never at the option. Source: Paimon ManifestFile, FileFormat.manifestFormat.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, Literal, NamedTuple, TypeVar

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.format.avro_blocks import BlockWriter, read_blocks
from lsm.errors import CorruptDataError, InvalidInputError

Record = Mapping[str, Any]
RecordFormat = Literal["avro", "orc", "parquet"]
T = TypeVar("T")

ZSTD_LEVEL: Final = 1
# Paimon for Java supports only these, in every format; by what Avro, ORC and Parquet call them.
_CODECS: Final = {
    "zstd": ("zstd", "zstd", "zstd"),
    "zstandard": ("zstd", "zstd", "zstd"),
    "deflate": ("deflate", "zlib", "gzip"),
    "none": ("none", "uncompressed", "none"),
    "null": ("null", "uncompressed", "none"),
}
_PARQUET_MAGIC: Final = b"PAR1"
_ORC_MAGIC: Final = b"ORC"
_TINYINTS: Final = frozenset({"_KIND", "_FILE_SOURCE"})  # Avro has no type for them
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int32(), "long": pa.int64(), "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
UNKNOWN_FIELDS: Final = ""
"""Key of a record, and of records in it: its values that are not in the schema of its reader (``UnknownField``)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class UnknownField(NamedTuple):
    """A value that a later version of Paimon notes: carried from file to file, not read."""

    name: str
    definition: bytes  # of an Avro file its field as JSON, a union with null; of others an Arrow schema with its column
    value: Any  # as the format has it

    def to_json(self) -> list[str]:
        """Name, definition and value for messages between processes; bytes as base64."""
        if self.definition.startswith(b"{"):
            body = BytesIO()
            fastavro.schemaless_writer(body, _alone(self.definition), {self.name: self.value})
            value = body.getvalue()
        else:
            schema = pa.ipc.read_schema(pa.py_buffer(self.definition))
            value = pa.RecordBatch.from_pylist([{self.name: self.value}], schema).serialize().to_pybytes()
        return [self.name, *(base64.b64encode(each).decode("ascii") for each in (self.definition, value))]

    @classmethod
    def from_json(cls, given: Sequence[str]) -> "UnknownField":
        """Parse the result of ``to_json``. Raises: ValueError: it is another one."""
        name, *encoded = given
        definition, body = (base64.b64decode(each, validate=True) for each in encoded)
        value: Any
        if definition.startswith(b"{"):
            value = fastavro.schemaless_reader(BytesIO(body), _alone(definition), None)
        else:
            schema = pa.ipc.read_schema(pa.py_buffer(definition))
            (value,) = pa.ipc.read_record_batch(pa.py_buffer(body), schema).to_pylist()
        return cls(name, definition, value[name])


def widened(
    schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, format: RecordFormat = "avro"
) -> Mapping[str, Any]:
    """A record schema with the unknown fields of these records, and of records in them, behind its own.

    Not with those of which there are two sorts.

    Args:
        schema: Avro schema as JSON.
        records: that are to be written, with unknown fields under ``UNKNOWN_FIELDS``.
        format: in which they are written: what ORC and Parquet note is an Arrow type, which no Avro schema has.

    Raises:
        InvalidInputError: a field is of a file in Avro, and the format is another one, or the other way around.
    """
    records = list(records)
    found: dict[str, set[bytes]] = {}
    for name, definition, _ in (kept for each in records for kept in each.get(UNKNOWN_FIELDS, ())):
        found.setdefault(name, set()).add(definition)
    added = [_defined(name, next(iter(each)), format) for name, each in found.items() if len(each) == 1]
    own = [_widened_field(field, records, format) for field in schema["fields"]]
    return {**schema, "fields": [*own, *added]} if added or own != schema["fields"] else schema


def _widened_field(
    field: Mapping[str, Any], records: Sequence[Mapping[str, Any]], format: RecordFormat
) -> Mapping[str, Any]:
    """The field as ``widened`` has it; values are records, lists of them, or null."""
    inner = _record_in(field["type"])
    if inner is None:
        return field
    wider = widened(inner, _records_in([each[field["name"]] for each in records]), format=format)
    return field if wider is inner else {**field, "type": _with_record(field["type"], wider)}


def _record_in(kind: Any) -> Any:
    """The record that a value of an Avro type is, if it is not null, or that its items are; None: it is no record."""
    if isinstance(kind, list):
        return next(filter(None, map(_record_in, kind)), None)
    if not isinstance(kind, Mapping):
        return None
    return kind if kind["type"] == "record" else _record_in(kind.get("items"))


def _with_record(kind: Any, record: Mapping[str, Any]) -> Any:
    """The type with another record for ``_record_in``."""
    if isinstance(kind, list):
        return [_with_record(each, record) for each in kind]
    if not isinstance(kind, Mapping) or kind["type"] not in ("record", "array"):
        return kind
    return record if kind["type"] == "record" else {**kind, "items": _with_record(kind["items"], record)}


def _records_in(values: Iterable[Any]) -> Iterator[Any]:
    """The records among values, and in lists of them, which may be null."""
    for each in values:
        if isinstance(each, list):
            yield from _records_in(each)
        elif each is not None:
            yield each


def _defined(name: str, definition: bytes, format: RecordFormat) -> Any:
    is_avro_field = definition.startswith(b"{")
    if is_avro_field != (format == "avro"):
        raise InvalidInputError(
            f"a field of a later version of Paimon cannot be kept in another format: field={name} "
            f"manifest.format={format} fix='write the table with the engine that notes it'"
        )
    if is_avro_field:
        return orjson.loads(definition)
    return {"name": name, "type": pa.ipc.read_schema(pa.py_buffer(definition)).field(0).type}


def values_of(unknown: Sequence[UnknownField]) -> dict[str, Any]:
    """What a record has of them, by name, and under ``UNKNOWN_FIELDS``; a schema without them passes over all."""
    if not unknown:
        return {}
    return {**{each.name: each.value for each in unknown}, UNKNOWN_FIELDS: unknown}


def record_bytes(
    schema: Any, records: Sequence[dict[str, Any]], *, compression: str, format: RecordFormat = "avro"
) -> bytes:
    """A whole file.

    Args:
        schema: Avro schema as JSON, whatever the format; see ``widened``.
        records: records in file order; may be empty.
        compression: zstd, deflate or none.
        format: of the file.

    Raises:
        InvalidInputError: unsupported compression.
    """
    if format == "avro":
        return _avro_file(schema, compression, lambda writer: writer.write(list(records)))
    _, orc_codec, parquet_codec = _codecs(compression)
    rows = pa.Table.from_pylist(list(records), pa.schema(list(_struct(schema["fields"]))))
    buffer = BytesIO()
    if format == "orc":
        from pyarrow import orc

        orc.write_table(rows, buffer, compression=orc_codec)
    else:
        pq.write_table(rows, buffer, compression=parquet_codec, store_schema=False)
    return buffer.getvalue()


def encoded_record_bytes(
    schema: Any, count: int, body: bytes, *, compression: str, format: RecordFormat = "avro"
) -> bytes:
    """A whole file of records that are encoded already, one after the other as in Avro; see ``record_bytes``."""
    if format == "avro":
        return _avro_file(schema, compression, lambda writer: writer.write_encoded(count, body))
    source, parsed = BytesIO(body), fastavro.parse_schema(_without_logical_types(schema))
    records: list[Any] = [fastavro.schemaless_reader(source, parsed, None) for _ in range(count)]
    return record_bytes(schema, records, compression=compression, format=format)


def is_avro(body: bytes) -> bool:
    """Whether a file is to be read as Avro."""
    return not body.startswith((_PARQUET_MAGIC, _ORC_MAGIC))


def decoded_records(body: bytes, *, source: str, decode: Callable[[Record], T], known: Any = None) -> list[T]:
    """Decode every record, in file order.

    Args:
        body: contents of the file, of any format, in any codec.
        source: name of the file in messages.
        decode: called with a record, with the fields of its writer by name: order and additions do not matter. Dates
            and times are numbers. May raise KeyError, TypeError, ValueError.
        known: Avro schema of the reader: what else a record of a file holds is under ``UNKNOWN_FIELDS``.

    Raises:
        CorruptDataError: the bytes are not a whole file, or ``decode`` failed for a record.
    """
    with corrupt_as(source, body):
        if is_avro(body):
            schema, blocks = read_blocks(BytesIO(body), _without_logical_types)
            is_record = known is not None and isinstance(schema, Mapping)  # a union at the top is no writer's of today
            others = _unknown_fields(orjson.dumps(schema), orjson.dumps(known)) if is_record else ()
            return [decode(_with_unknown(record, others)) for block in blocks for record in block]
        rows = pq.read_table(BytesIO(body)) if body.startswith(_PARQUET_MAGIC) else _orc_rows(body)
        columns = () if known is None else tuple(_columns_beside(rows.schema, known, ()))
        return [decode(_plain(_with_unknown(record, columns))) for record in rows.to_pylist()]


_Place = tuple[tuple[str, ...], str, bytes]  # of an unknown field: the records around it, its name, its definition


@lru_cache(64)
def _unknown_fields(schema: bytes, known: bytes) -> tuple[_Place, ...]:
    return tuple(_fields_beside(orjson.loads(schema), orjson.loads(known), ()))


def _fields_beside(schema: Any, known: Any, path: tuple[str, ...]) -> Iterator[_Place]:
    types = {field["name"]: field["type"] for field in known["fields"]}
    for field in schema["fields"]:
        name, kind = field["name"], field["type"]
        if name not in types:
            given = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
            definition = orjson.dumps({"name": name, "type": ["null", *given], "default": None})
            if _stands_alone(definition):
                yield path, name, definition
        elif (inner := _record_in(kind)) is not None and (known_inner := _record_in(types[name])) is not None:
            yield from _fields_beside(inner, known_inner, (*path, name))


def _columns_beside(columns: Iterable[pa.Field], known: Any, path: tuple[str, ...]) -> Iterator[_Place]:
    types = {field["name"]: field["type"] for field in known["fields"]}
    for column in columns:
        if column.name not in types:
            yield path, column.name, pa.schema([(column.name, column.type)]).serialize().to_pybytes()
        elif (inner := _record_in(types[column.name])) is not None:
            items = column.type.value_type if isinstance(column.type, pa.ListType) else column.type
            if isinstance(items, pa.StructType):
                yield from _columns_beside(items, inner, (*path, column.name))


def _alone(definition: bytes) -> Any:
    """The schema of a record with this field alone. Raises: an error of fastavro: its type is defined elsewhere."""
    field = _without_logical_types(orjson.loads(definition))
    return fastavro.parse_schema({"type": "record", "name": "alone", "fields": [field]})


def _stands_alone(definition: bytes) -> bool:
    """Whether its type is whole: it may name one that is defined elsewhere in its schema."""
    try:
        _alone(definition)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
        return False
    return True


def _with_unknown(record: Any, places: Sequence[_Place]) -> Any:
    for path, name, definition in places:
        holders = [record]
        for each in path:
            holders = [*_records_in(holder[each] for holder in holders)]
        for inner in holders:
            if inner[name] is not None:
                inner[UNKNOWN_FIELDS] = (*inner.get(UNKNOWN_FIELDS, ()), UnknownField(name, definition, inner[name]))
    return record


def _orc_rows(body: bytes) -> pa.Table:
    from pyarrow import orc

    return orc.read_table(BytesIO(body))


@contextmanager
def corrupt_as(source: str, body: bytes) -> Iterator[None]:
    """Whatever fails in a block is the fault of a file. Raises: CorruptDataError naming it."""
    try:
        yield
    except Exception as error:
        kind = "avro file" if is_avro(body) else "file of records"
        raise CorruptDataError(
            f"{kind} cannot be decoded: file={source} size_bytes={len(body)} error={error!r}"
        ) from error


def _avro_file(schema: Any, compression: str, write: Callable[[BlockWriter], None]) -> bytes:
    buffer = BytesIO()
    write(BlockWriter(buffer, schema, compression=_codecs(compression)[0], zstd_level=ZSTD_LEVEL))
    return buffer.getvalue()


def _codecs(compression: str) -> tuple[str, str, str]:
    found = _CODECS.get(compression.lower())
    if found is None:
        raise InvalidInputError(
            f"metadata cannot be written in this codec: manifest.compression={compression} fix='use zstd'"
        )
    return found


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


def _struct(fields: Sequence[Mapping[str, Any]]) -> Iterator[pa.Field]:
    for field in fields:
        kind = pa.int8() if field["name"] in _TINYINTS else None
        yield _arrow_field(field["name"], field["type"], kind)


def _arrow_field(name: str, schema: Any, kind: pa.DataType | None = None) -> pa.Field:
    inner = schema[1] if isinstance(schema, list) else schema  # only unions are lists, and all start with null
    is_nullable = isinstance(schema, list | pa.DataType)
    return pa.field(name, kind or _arrow_type(inner), nullable=is_nullable)


def _arrow_type(schema: Any) -> pa.DataType:
    if isinstance(schema, pa.DataType):  # of an unknown field
        return schema
    if isinstance(schema, str):
        return _ARROW[schema]
    if schema["type"] == "record":
        return pa.struct(list(_struct(schema["fields"])))
    if schema["type"] == "array":
        return pa.list_(_arrow_field("element", schema["items"]))
    return pa.timestamp("ms") if "logicalType" in schema else _ARROW[schema["type"]]


def _plain(value: Any) -> Any:
    """A value with times as the milliseconds that they are in Avro; unknown fields, which are a tuple, stay."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return (value.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else value
