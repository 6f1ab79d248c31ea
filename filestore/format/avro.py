"""Avro data files: slow, since rows pass through Python dicts; supported to read the tables of other writers.

Logical types are removed from the reader schema: values remain numbers and become Arrow arrays column by column.
Source: Paimon AvroSchemaConverter, which maps TIMESTAMP to Avro's timestamp and LTZ to local-timestamp.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from filestore.format.avro_blocks import BlockWriter, read_blocks
from filestore.format.interface import BatchLimit, FileFormat, FileRows, KeepRows, WriteSettings
from filestore.format.statistics import ColumnRange, RangeCollector
from filestore.options.table.common import MIB
from filestore.schema.file_fields import map_parts
from filestore.types.data_types import (
    BYTES_ROOTS,
    NESTED_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataField,
    DataType,
    arrow_type,
)
from lsm.byte_sizes import pieces_within
from lsm.errors import CorruptDataError, InvalidInputError

NAMESPACE: Final = "org.apache.paimon.avro.generated"
BLOCK_ROWS: Final = 4096
_BLOCK_BYTES: Final = 4 * MIB  # in memory; a larger row is a block of its own

_NUMBERS: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
}
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


class AvroFileWriter:
    """Writes one file, block by block."""

    def __init__(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> None:
        """See ``interface.NewWriter``."""
        self._sink = sink
        self._fields = fields
        self._writer = BlockWriter(
            sink, avro_schema(fields), compression=settings.compression, zstd_level=settings.zstd_level
        )
        self._collector = RangeCollector([field for field in fields if field.name not in shared])

    def write(self, rows: pa.Table) -> None:
        """Append rows with the file's columns, in file order and of their Arrow types."""
        self._collector.add(rows)
        names = [field.name for field in self._fields]
        starts = range(0, rows.num_rows, BLOCK_ROWS)
        for piece in (each for start in starts for each in pieces_within(rows.slice(start, BLOCK_ROWS), _BLOCK_BYTES)):
            columns = [_to_python(piece.column(field.name), field.type) for field in self._fields]
            self._writer.write([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])

    def bytes_written(self) -> int:
        """Bytes written to the sink; nothing is buffered."""
        return int(self._sink.tell())

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file without closing the sink. Returns ranges of the columns that are not shared."""
        return self._collector.ranges()


def avro_schema(fields: Sequence[DataField], name: str = "record") -> dict[str, Any]:
    """The record type of a row, in Paimon's conventions. Raises: InvalidInputError for types that Avro cannot hold."""
    return {
        "type": "record",
        "name": name,
        "namespace": NAMESPACE,
        "fields": [_avro_field(field, f"{name}_{field.name}") for field in fields],
    }


def _avro_field(field: DataField, name: str) -> dict[str, Any]:
    if not field.name.isidentifier():
        raise InvalidInputError(f"not a valid avro name: column={field.name!r} fix='letters, digits and _'")
    default = {"default": None} if field.type.nullable else {}
    return {"name": field.name, "type": _avro_type(field.type, name), **default}


def _avro_type(data_type: DataType, name: str) -> Any:
    plain = _avro_plain(data_type, name)
    return ["null", plain] if data_type.nullable else plain


def _avro_plain(data_type: DataType, name: str) -> Any:
    root = data_type.root
    if root in _NUMBERS:
        return _NUMBERS[root]
    if root in TEXT_ROOTS:
        return "string"
    if root in BYTES_ROOTS:
        return "bytes"
    if root == "DECIMAL":
        digits = {"precision": data_type.precision, "scale": data_type.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if root == "DATE":
        return {"type": "int", "logicalType": "date"}
    if root == "TIME":
        return {"type": "int", "logicalType": "time-millis"}
    if root in TIMESTAMP_ROOTS:
        precision = data_type.precision or 0
        if precision > 6:
            raise InvalidInputError(
                f"avro files hold timestamps up to precision 6: type={data_type} fix='file.format=orc'"
            )
        kind = "timestamp" if root == "TIMESTAMP" else "local-timestamp"
        return {"type": "long", "logicalType": f"{kind}-{'millis' if precision <= 3 else 'micros'}"}
    if root == "ROW":
        return avro_schema(data_type.fields, name)
    if root == "ARRAY" and data_type.element is not None:
        return {"type": "array", "items": _avro_type(data_type.element, name)}
    key, value = map_parts(data_type)
    if key.root in TEXT_ROOTS:
        return {"type": "map", "values": _avro_type(value, name)}
    pair = (("key", key), ("value", value))
    parts = [{"name": part, "type": _avro_type(kind, f"{name}_{part}")} for part, kind in pair]
    return {"type": "array", "items": {"type": "record", "name": name, "namespace": NAMESPACE, "fields": parts}}


def _to_python(column: pa.ChunkedArray | pa.Array, data_type: DataType) -> list[Any]:
    """Values for fastavro: dates, times and timestamps as numbers, ROWs as dicts, maps as dicts or lists of pairs."""
    root = data_type.root
    if root in ("DATE", "TIME"):
        return list(column.cast(pa.int32()).to_pylist())
    if root in TIMESTAMP_ROOTS:
        return list(column.cast(pa.int64()).to_pylist())
    if root in NESTED_ROOTS:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return [value for chunk in chunks for value in _nested_to_python(chunk, data_type)]
    return list(column.to_pylist())


def _nested_to_python(array: pa.Array, data_type: DataType) -> list[Any]:
    valid = array.is_valid().to_pylist()
    if data_type.root == "ROW":
        names = [field.name for field in data_type.fields]
        inner = [_to_python(array.field(i), field.type) for i, field in enumerate(data_type.fields)]
        rows = zip(*inner, strict=True) if inner else iter([()] * len(array))
        return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(valid, rows, strict=True)]
    offsets = array.offsets.to_pylist()
    spans = list(zip(valid, offsets[:-1], offsets[1:], strict=True))
    if data_type.root == "ARRAY" and data_type.element is not None:
        elements = _to_python(array.values, data_type.element)
        return [elements[start:end] if ok else None for ok, start, end in spans]
    key_type, value_type = map_parts(data_type)
    keys, values = _to_python(array.keys, key_type), _to_python(array.items, value_type)
    pairs = list(zip(keys, values, strict=True))
    if key_type.root in TEXT_ROOTS:
        return [dict(pairs[start:end]) if ok else None for ok, start, end in spans]
    dicts = [{"key": key, "value": value} for key, value in pairs]
    return [dicts[start:end] if ok else None for ok, start, end in spans]


def read_avro(
    source: pa.NativeFile,
    fields: Sequence[DataField],
    *,
    limit: BatchLimit,
    keep: KeepRows | None = None,
    keep_fields: Sequence[DataField] = (),
    verify: bool = True,
) -> Iterator[FileRows]:
    """All rows, a block at a time in memory; see ``interface.ReadFile``. The format has no statistics.

    Raises:
        CorruptDataError: the container is broken, or uses an unknown codec.
    """
    try:
        schema, blocks = read_blocks(source, _without_logical_types)
        stored = {field["name"]: field["type"] for field in _record_of(schema)["fields"]}
        present = [field for field in fields if field.name in stored]
        types = [_stored_type(field.type, stored[field.name]) for field in present]
        first = 0
        for rows in blocks:
            for start in range(0, len(rows), limit.rows):
                batch = _to_batch(rows[start : start + limit.rows], present, types)
                for piece in pieces_within(batch, limit.size_bytes):
                    yield FileRows(first, piece)
                    first += piece.num_rows
    except (EOFError, LookupError, TypeError, ValueError, SystemError, pa.ArrowException) as error:
        raise CorruptDataError(f"avro file cannot be decoded: error={error!r}") from error


def _to_batch(rows: list[dict[str, Any]], fields: Sequence[DataField], types: Sequence[pa.DataType]) -> pa.RecordBatch:
    if not fields:
        return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=["row"]).select([])
    arrays = [
        pa.array([_from_avro(row[field.name], field.type) for row in rows], type=kind)
        if field.type.root in NESTED_ROOTS
        else pa.array([row[field.name] for row in rows], type=kind)
        for field, kind in zip(fields, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _from_avro(value: Any, data_type: DataType) -> Any:
    """A nested value for Arrow, which takes maps as lists of pairs."""
    if value is None or data_type.root not in NESTED_ROOTS:
        return value
    if data_type.root == "ROW":
        return {field.name: _from_avro(value.get(field.name), field.type) for field in data_type.fields}
    if data_type.root == "ARRAY" and data_type.element is not None:
        return [_from_avro(item, data_type.element) for item in value]
    key_type, value_type = map_parts(data_type)
    pairs = value.items() if isinstance(value, dict) else [(item["key"], item["value"]) for item in value]
    return [(_from_avro(key, key_type), _from_avro(item, value_type)) for key, item in pairs]


def _record_of(schema: Any) -> Any:
    """The record type; some writers wrap it in a union with null."""
    return next(part for part in schema if part != "null") if isinstance(schema, list) else schema


def _stored_type(data_type: DataType, avro: Any) -> pa.DataType:
    """The declared Arrow type, but timestamps in the unit of the file."""
    plain = _record_of(avro)
    logical = plain.get("logicalType", "") if isinstance(plain, dict) else ""
    unit = _UNITS.get(logical.rpartition("-")[2])
    if data_type.root not in TIMESTAMP_ROOTS or unit is None:
        return arrow_type(data_type)
    return pa.timestamp(unit, tz="UTC" if data_type.root == "TIMESTAMP_LTZ" else None)


def _without_logical_types(schema: Any) -> Any:
    """The schema without logical types, so that values are read as stored; only decimals are left to fastavro."""
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_logical_types(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or value == "decimal"
    }


AVRO: Final = FileFormat(name="avro", writer=AvroFileWriter, reader=read_avro)
"""Apache Avro containers."""
