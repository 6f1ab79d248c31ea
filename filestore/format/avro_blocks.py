"""Avro container files block by block, for data files that should not be held in memory as a whole.

A block is byte for byte an Avro array of its rows without the leading count and the trailing zero, so one call of
fastavro codes a whole block. Compression is done here: fastavro would need further libraries.
Source: Avro 1.11 specification, "Object Container Files".
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, Final

import fastavro
import orjson
from fastavro.schema import SchemaParseException, UnknownType

from filestore.format.compression import most_unpacked, pack_snappy, pack_zstd, unpack_snappy, unpack_zstd
from lsm.avro_weight import has_weightless_items
from lsm.errors import InvalidInputError

_SYNC_BYTES: Final = 16
_MAGIC: Final = b"Obj\x01"
_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
        ],
    }
)
_CODEC_OF_OPTION: Final = {
    "zstd": "zstandard",
    "gzip": "deflate",
    "zlib": "deflate",
    "deflate": "deflate",
    "snappy": "snappy",
    "none": "null",
    "null": "null",
    "uncompressed": "null",
    "": "null",
}


class BlockWriter:
    """Writes a container file; every call of ``write`` adds one block."""

    def __init__(self, sink: Any, schema: Any, *, compression: str, zstd_level: int) -> None:
        codec = _CODEC_OF_OPTION.get(compression.strip().lower())
        if codec is None:
            raise InvalidInputError(
                f"unknown compression: file.compression={compression} allowed={sorted(_CODEC_OF_OPTION)}"
            )
        self._sink = sink
        self._array = fastavro.parse_schema({"type": "array", "items": schema})
        self._pack = _packer(codec, zstd_level)
        meta = {"avro.schema": orjson.dumps(schema), "avro.codec": codec.encode()}
        # The marker must only be unlikely in the data; derived from the schema, so that equal rows give equal files.
        self._sync = zlib.crc32(meta["avro.schema"]).to_bytes(4, "big") * 4
        header = BytesIO()
        fastavro.schemaless_writer(header, _HEADER, {"magic": _MAGIC, "meta": meta, "sync": self._sync})
        sink.write(header.getvalue())

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows as one block."""
        if not rows:
            return
        body = BytesIO()
        fastavro.schemaless_writer(body, self._array, rows)
        self.write_encoded(len(rows), body.getvalue()[len(encode_long(len(rows))) : -1])

    def write_encoded(self, count: int, body: bytes) -> None:
        """Append rows, one after the other in Avro's encoding, as one block."""
        block = self._pack(body)
        self._sink.write(encode_long(count) + encode_long(len(block)) + block + self._sync)


def read_blocks(source: Any, reading_schema: Callable[[Any], Any]) -> tuple[Any, Iterator[list[dict[str, Any]]]]:
    """The schema of a container file, and its blocks as lists of rows.

    Args:
        source: a file open for reading.
        reading_schema: converts the file's schema to one that reads the same bytes, possibly as other values.

    Raises:
        ValueError: the file is corrupt. Also EOFError, KeyError, IndexError and TypeError from fastavro.
    """
    text, blocks = read_encoded(source)
    schema, array = _parsed(text, reading_schema)
    return schema, _rows(blocks, array)


def read_encoded(source: Any) -> tuple[bytes, Iterator[tuple[int, bytes]]]:
    """The schema of a container file as JSON, and its blocks: the number of rows, and their bytes one after the other.

    Raises: as ``read_blocks``.
    """
    try:
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
    except SystemError as error:  # of a negative size
        raise ValueError(f"not an avro container: {error}") from error
    if header["magic"] != _MAGIC:
        raise ValueError("not an avro container")
    unpack = _UNPACKERS[header["meta"].get("avro.codec", b"null").decode()]
    return header["meta"]["avro.schema"], _blocks(source, unpack, header["sync"])


@lru_cache(64)  # the files of a table have a few schemas, and parsing one costs more than reading a small file
def _parsed(text: bytes, reading_schema: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The schema of a file, and the reader schema of an array of its rows. Cached: callers must not modify them."""
    schema = orjson.loads(text)
    array = {"type": "array", "items": reading_schema(schema)}
    if has_weightless_items(array):
        raise ValueError("rows or items that take no byte, or are nested too deeply")
    try:
        return schema, fastavro.parse_schema(array)
    except (SchemaParseException, UnknownType) as error:
        raise ValueError(f"not an Avro schema: {error}") from error


def _rows(blocks: Iterator[tuple[int, bytes]], array: Any) -> Iterator[list[dict[str, Any]]]:
    for count, body in blocks:
        if count > len(body):
            raise ValueError(f"a block has less bytes than rows: rows={count} bytes={len(body)}")
        rows: Any = fastavro.schemaless_reader(BytesIO(encode_long(count) + body + b"\x00"), array, None)
        yield rows


def _blocks(source: Any, unpack: Callable[[bytes], bytes], sync: bytes) -> Iterator[tuple[int, bytes]]:
    while first := source.read(1):
        count = _read_long(source, first)
        size = _read_long(source, source.read(1))
        block, marker = source.read(size), source.read(_SYNC_BYTES)
        if len(block) != size or marker != sync:
            raise ValueError("block is truncated or not followed by the file's marker")
        if count:
            yield count, unpack(block)


def _read_long(source: Any, first: bytes) -> int:
    """A non-negative number with its first byte already read."""
    byte, value, shift = first[0], first[0] & 0x7F, 7
    while byte >= 0x80:
        byte = source.read(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1


def encode_long(value: int) -> bytes:
    """A non-negative number in Avro's encoding: doubled, seven bits per byte, low bits first."""
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _packer(codec: str, zstd_level: int) -> Callable[[bytes], bytes]:
    if codec == "zstandard":
        return partial(pack_zstd, level=zstd_level)
    if codec == "deflate":
        return _deflate
    return _pack_snappy if codec == "snappy" else bytes


def _deflate(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(block) + packer.flush()


def _pack_snappy(block: bytes) -> bytes:
    return pack_snappy(block) + zlib.crc32(block).to_bytes(4, "big")


def _unpack_snappy(block: bytes) -> bytes:
    body = unpack_snappy(block[:-4])
    if zlib.crc32(body).to_bytes(4, "big") != block[-4:]:
        raise ValueError("block does not match its checksum")
    return body


def _inflate(block: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    body = unpacking.decompress(block, most_unpacked(block))
    if not unpacking.eof:
        raise ValueError(f"deflated block is cut off, or unpacks to too much: bytes={len(block)}")
    return body


_UNPACKERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _inflate,
    "snappy": _unpack_snappy,
    "zstandard": unpack_zstd,
}
