"""Whole files of records in memory, as Paimon's metadata has them: Avro, or what ``manifest.format`` says.

A reader looks at the first bytes, never at the option. Source: Paimon ManifestFile, FileFormat.manifestFormat.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any, Final, Literal, TypeVar

import fastavro
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def record_bytes(
    schema: Any, records: Sequence[dict[str, Any]], *, compression: str, format: RecordFormat = "avro"
) -> bytes:
    """A whole file.

    Args:
        schema: Avro schema as JSON, whatever the format.
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


def decoded_records(body: bytes, *, source: str, decode: Callable[[Record], T]) -> list[T]:
    """Decode every record, in file order.

    Args:
        body: contents of the file, of any format, in any codec.
        source: name of the file in messages.
        decode: called with a record, with the fields of its writer by name: order and additions do not matter. Dates
            and times are numbers. May raise KeyError, TypeError, ValueError.

    Raises:
        CorruptDataError: the bytes are not a whole file, or ``decode`` failed for a record.
    """
    with corrupt_as(source, body):
        if is_avro(body):
            _, blocks = read_blocks(BytesIO(body), _without_logical_types)
            return [decode(record) for block in blocks for record in block]
        rows = pq.read_table(BytesIO(body)) if body.startswith(_PARQUET_MAGIC) else _orc_rows(body)
        return [decode(_plain(record)) for record in rows.to_pylist()]


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
    return pa.field(name, kind or _arrow_type(inner), nullable=isinstance(schema, list))


def _arrow_type(schema: Any) -> pa.DataType:
    if isinstance(schema, str):
        return _ARROW[schema]
    if schema["type"] == "record":
        return pa.struct(list(_struct(schema["fields"])))
    if schema["type"] == "array":
        return pa.list_(_arrow_field("element", schema["items"]))
    return pa.timestamp("ms") if "logicalType" in schema else _ARROW[schema["type"]]


def _plain(value: Any) -> Any:
    """A value with times as the milliseconds that they are in Avro."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return (value.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else value
