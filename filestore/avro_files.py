"""Avro object container files in memory: the shape of all of Paimon's metadata but schemas and snapshots."""

import io
from collections.abc import Iterable, Mapping
from typing import Any, Final

import fastavro

from lsm.errors import CorruptDataError, InvalidInputError

Record = Mapping[str, Any]

_CODECS: Final[Mapping[str, str]] = {
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "deflate": "deflate",
    "null": "null",
    "none": "null",
}


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
    fastavro.writer(buffer, schema, records, codec=codec)
    return buffer.getvalue()


def avro_records(body: bytes, *, source: str) -> list[dict[str, Any]]:
    """All records of a file, with the fields that its writer knew, whatever its codec.

    Raises: CorruptDataError naming the source when the bytes are not a whole Avro file of records.
    """
    try:
        # The writer's schema decides: fields are then taken by name, so order, renamed records and additions do not matter.
        records = list(fastavro.reader(io.BytesIO(body)))
    except Exception as error:
        raise CorruptDataError(
            f"avro file cannot be decoded: file={source} size_bytes={len(body)} error={error!r}"
        ) from error
    if not all(isinstance(record, dict) for record in records):
        raise CorruptDataError(f"avro file does not hold records: file={source} size_bytes={len(body)}")
    return records
