"""Deletion vectors: which rows of a data file are deleted, as other writers' tables say beside their files.

An index file is a version byte and then, at the offsets that the index manifest gives, one bitmap per data file with a
length before and a checksum behind it. Source: Paimon DeletionVector, BitmapDeletionVector, Bitmap64DeletionVector.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from filestore.effects import FileIO
from filestore.manifests import DeletionVectorRange, IndexManifestEntry
from filestore.paths import TablePaths
from lsm.errors import CorruptDataError

INDEX_TYPE: Final = "DELETION_VECTORS"
FILE_VERSION: Final = 1
MAGIC_32: Final = (1_581_511_376).to_bytes(4, "big")
MAGIC_64: Final = (1_681_511_377).to_bytes(4, "little")

_INT_BYTES: Final = 4

Positions = NDArray[np.int64]
"""Deleted rows of one data file: row numbers in it from 0, ascending."""


def read_deletion_vectors(
    io: FileIO, paths: TablePaths, entries: Iterable[IndexManifestEntry]
) -> Mapping[str, Positions]:
    """Deleted rows by data file name, of the deletion vectors among some index entries.

    Raises: CorruptDataError when an index file is not what its manifest says.
    """
    deleted: dict[str, Positions] = {}
    for entry in entries:
        if entry.index_type != INDEX_TYPE or not entry.deletion_vectors:
            continue
        path = entry.external_path or paths.index(entry.file_name)
        body = io.read_bytes(path)
        if body[:1] != bytes([FILE_VERSION]):
            raise CorruptDataError(
                f"deletion vector file of an unknown version: path={path} first_byte={body[:1].hex()}"
            )
        for part in entry.deletion_vectors:
            deleted[part.data_file_name] = _positions(body, part, path)
    return deleted


def _positions(body: bytes, part: DeletionVectorRange, path: str) -> Positions:
    start = part.offset + _INT_BYTES
    length = int.from_bytes(body[part.offset : start], "big", signed=True)
    blob = body[start : start + length]
    checksum = body[start + length : start + length + _INT_BYTES]
    # The manifest counts the blob of a 32-bit vector alone, that of a 64-bit one with its frame.
    is_wide = blob[:_INT_BYTES] == MAGIC_64
    expected = part.length - 2 * _INT_BYTES if is_wide else part.length
    if length != expected or zlib.crc32(blob).to_bytes(_INT_BYTES, "big") != checksum:
        raise CorruptDataError(
            f"deletion vector is broken: path={path} data_file={part.data_file_name} offset={part.offset} "
            f"length={length} expected_length={expected}"
        )
    if not is_wide and blob[:_INT_BYTES] != MAGIC_32:
        raise CorruptDataError(f"deletion vector of an unknown kind: path={path} magic={blob[:_INT_BYTES].hex()}")
    try:
        bitmap: Any = (BitMap64 if is_wide else BitMap).deserialize(blob[_INT_BYTES:])
    except ValueError as error:
        raise CorruptDataError(f"deletion vector cannot be decoded: path={path} error={error}") from error
    positions = np.frombuffer(bitmap.to_array(), np.uint64 if is_wide else np.uint32).astype(np.int64)
    if part.cardinality is not None and part.cardinality != len(positions):
        raise CorruptDataError(
            f"deletion vector has another number of rows: path={path} data_file={part.data_file_name} "
            f"rows={len(positions)} expected_rows={part.cardinality}"
        )
    return positions
