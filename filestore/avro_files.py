"""Avro object container files in memory: the shape of all of Paimon's metadata but schemas and snapshots.

fastavro codes the records. Zstandard blocks are packed and unpacked here, because which zstd library fastavro needs has
changed from version to version and a table must not become unreadable by an update.
Source: Avro 1.11 specification, "Object Container Files".
"""

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import fastavro
import zstandard

from lsm.errors import CorruptDataError, InvalidInputError

Record = Mapping[str, Any]
T = TypeVar("T")

ZSTD_LEVEL: Final = 1
_ZSTANDARD: Final = "zstandard"
_CODECS: Final[Mapping[str, str]] = {
    "zstd": _ZSTANDARD,
    "zstandard": _ZSTANDARD,
    "deflate": "deflate",
    "null": "null",
    "none": "null",
}
_CODEC_KEY: Final = "avro.codec"
_SYNC_BYTES: Final = 16
_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
        ],
    }
)


def avro_bytes(schema: Any, records: Iterable[Record], *, compression: str) -> bytes:
    """A whole Avro file.

    Args:
        schema: as ``fastavro.parse_schema`` gives it.
        records: in file order; none makes a valid file without records.
        compression: zstd, deflate or none; Paimon in Java reads nothing else.

    Raises:
        InvalidInputError: another compression.
    """
    codec = _CODECS.get(compression.lower())
    if codec is None:
        raise InvalidInputError(
            f"metadata cannot be written in this codec: manifest.compression={compression} fix='use zstd'"
        )
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec="null" if codec == _ZSTANDARD else codec)
    if codec != _ZSTANDARD:
        return buffer.getvalue()
    return _recoded(buffer.getvalue(), _ZSTANDARD, zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress)


def avro_records(body: bytes, *, source: str, decode: Callable[[Record], T]) -> list[T]:
    """What ``decode`` makes of every record, in file order.

    Args:
        body: of the whole file, in any codec.
        source: what messages call the file.
        decode: gets a record with the fields that its writer knew, by name; may raise KeyError, TypeError, ValueError.

    Raises:
        CorruptDataError: the bytes are not a whole Avro file, or a record is not what ``decode`` expects.
    """
    try:
        if _codec_of(body) == _ZSTANDARD:
            body = _recoded(body, "null", _unpacked)
        # The writer's schema decides. Fields are then taken by name: order, additions and record names do not matter.
        return [decode(record) for record in fastavro.reader(io.BytesIO(body))]
    except Exception as error:
        raise CorruptDataError(
            f"avro file cannot be decoded: file={source} size_bytes={len(body)} error={error!r}"
        ) from error


def _codec_of(body: bytes) -> str:
    header: Any = fastavro.schemaless_reader(io.BytesIO(body), _HEADER, None)
    return str(header["meta"].get(_CODEC_KEY, b"null"), "ascii")


def _recoded(body: bytes, codec: str, transform: Callable[[bytes], bytes]) -> bytes:
    """The same file with every block transformed and another codec in its header. Raises: ValueError when cut short."""
    file, recoded = io.BytesIO(body), io.BytesIO()
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    meta = header["meta"] | {_CODEC_KEY: codec.encode()}
    fastavro.schemaless_writer(recoded, _HEADER, {**header, "meta": meta})
    while file.tell() < len(body):
        count, size = _read_long(file), _read_long(file)
        data, sync = file.read(size), file.read(_SYNC_BYTES)
        if len(data) != size or sync != header["sync"]:
            raise ValueError("block is cut short or not followed by the file's marker")
        block = transform(data)
        recoded.write(_long(count) + _long(len(block)) + block + sync)
    return recoded.getvalue()


def _unpacked(data: bytes) -> bytes:
    # Java's frames do not say how long their content is, so it is streamed.
    stream = zstandard.ZstdDecompressor().decompressobj()
    block = stream.decompress(data)
    if not stream.eof:
        raise ValueError("zstandard frame is cut short")
    return block


def _read_long(file: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise ValueError("number is cut short or too long")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def _long(value: int) -> bytes:
    """A non-negative number as Avro writes it: zigzag, seven bits per byte, low ones first."""
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])
