"""Whole Avro files in memory, the format of all Paimon metadata except schemas and snapshots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final, TypeVar

from filestore.format.avro_blocks import BlockWriter, read_blocks
from lsm.errors import CorruptDataError, InvalidInputError

Record = Mapping[str, Any]
T = TypeVar("T")

ZSTD_LEVEL: Final = 1
# Paimon for Java supports only these.
_WRITABLE: Final = frozenset({"zstd", "zstandard", "deflate", "none", "null"})


def avro_bytes(schema: Any, records: Sequence[dict[str, Any]], *, compression: str) -> bytes:
    """A whole Avro file.

    Args:
        schema: Avro schema as JSON.
        records: records in file order; may be empty.
        compression: zstd, deflate or none.

    Raises:
        InvalidInputError: unsupported compression.
    """
    return _file(schema, compression, lambda writer: writer.write(list(records)))


def avro_bytes_of(schema: Any, count: int, body: bytes, *, compression: str) -> bytes:
    """A whole Avro file with records that are encoded already, one after the other; see ``avro_bytes``."""
    return _file(schema, compression, lambda writer: writer.write_encoded(count, body))


def _file(schema: Any, compression: str, write: Callable[[BlockWriter], None]) -> bytes:
    codec = compression.lower()
    if codec not in _WRITABLE:
        raise InvalidInputError(
            f"metadata cannot be written in this codec: manifest.compression={compression} fix='use zstd'"
        )
    buffer = BytesIO()
    codec = "zstd" if codec == "zstandard" else codec
    write(BlockWriter(buffer, schema, compression=codec, zstd_level=ZSTD_LEVEL))
    return buffer.getvalue()


def avro_records(body: bytes, *, source: str, decode: Callable[[Record], T]) -> list[T]:
    """Decode every record, in file order.

    Args:
        body: contents of the file, in any codec.
        source: name of the file in messages.
        decode: called with a record, with the fields of its writer by name: order and additions do not matter. Dates
            and times are numbers. May raise KeyError, TypeError, ValueError.

    Raises:
        CorruptDataError: the bytes are not a whole Avro file, or ``decode`` failed for a record.
    """
    with corrupt_as(source, body):
        _, blocks = read_blocks(BytesIO(body), _without_logical_types)
        return [decode(record) for block in blocks for record in block]


@contextmanager
def corrupt_as(source: str, body: bytes) -> Iterator[None]:
    """Whatever fails in a block is the fault of a file. Raises: CorruptDataError naming it."""
    try:
        yield
    except Exception as error:
        raise CorruptDataError(
            f"avro file cannot be decoded: file={source} size_bytes={len(body)} error={error!r}"
        ) from error


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema
