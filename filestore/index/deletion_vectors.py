"""Deletion vectors: the deleted rows of data files, stored in separate index files.

An index file is a version byte and then, at the offsets that the index manifest gives, one bitmap per data file with a
preceding length and a trailing checksum. Source: Paimon DeletionVector, BitmapDeletionVector, Bitmap64DeletionVector.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from filestore.io.file_io import delete_leftover
from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import DELETION_VECTORS, DeletionVectorRange, IndexManifestEntry
from filestore.snapshot.lost_files import FileRole, missing_file
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError
from lsm.undo import undoing

FILE_VERSION: Final = 1
MAGIC_32: Final = (1_581_511_376).to_bytes(4, "big")
MAGIC_64: Final = (1_681_511_377).to_bytes(4, "little")

_INT_BYTES: Final = 4

Positions = NDArray[np.int64]
"""Deleted positions of one data file: row numbers from 0, ascending."""

NO_POSITIONS: Final[Positions] = np.zeros(0, np.int64)


def united(first: Positions, second: Positions) -> Positions:
    """The union of both."""
    both = np.sort(np.concatenate([first, second]), kind="stable")
    return both[np.concatenate([[True], both[1:] != both[:-1]])] if len(both) else both


def read_deletion_vectors(store: TableStore, entries: Iterable[IndexManifestEntry]) -> dict[str, Positions]:
    """Deleted positions by data file name, from the deletion vectors among index entries; each index file is read once.

    Raises: CorruptDataError when an index file does not match its manifest, or is missing.
    """
    parts: dict[str, list[DeletionVectorRange]] = {}
    for entry in entries:
        if entry.index_vectors:  # splits of a bucket share a file, of which each names the vectors of its own files
            parts.setdefault(store.index_path(entry), []).extend(entry.index_vectors)
    deleted: dict[str, Positions] = {}
    for path, ranges in parts.items():
        try:
            body = store.io.read_bytes(path)
        except FileNotFoundError as error:
            raise missing_file(path, FileRole.INDEX) from error
        if body[:1] != bytes([FILE_VERSION]):
            raise CorruptDataError(
                f"deletion vector file of an unknown version: path={path} first_byte={body[:1].hex()}"
            )
        deleted |= {part.data_file_name: _positions(body, part, path) for part in ranges}
    return deleted


def write_deletion_vectors(
    store: TableStore, partition: bytes, bucket: int, deleted: Mapping[str, Positions]
) -> IndexManifestEntry:
    """Write the vectors of data files of a bucket into a new index file; cleaned up on failure.

    Args:
        store: the table; ``deletion-vectors.bitmap64`` determines the encoding.
        partition: BinaryRow bytes.
        bucket: bucket number; 0 for a table without buckets.
        deleted: positions by data file name; at least one file, none of them empty.
    """
    is_wide = store.options.deletion_vectors_bitmap64
    body = bytearray([FILE_VERSION])
    ranges = []
    for name, positions in deleted.items():
        assert len(positions), "a vector that deletes nothing is not written"
        blob = _blob(positions, is_wide=is_wide)
        # The length in the manifest excludes the frame of a 32-bit vector, and includes that of a 64-bit one.
        length = len(blob) + 2 * _INT_BYTES if is_wide else len(blob)
        ranges.append(
            DeletionVectorRange(data_file_name=name, offset=len(body), length=length, cardinality=len(positions))
        )
        body += len(blob).to_bytes(_INT_BYTES, "big") + blob + zlib.crc32(blob).to_bytes(_INT_BYTES, "big")
    entry = IndexManifestEntry(
        kind=EntryKind.ADD,
        partition=partition,
        bucket=bucket,
        index_type=DELETION_VECTORS,
        file_name=f"index-{store.names.uuid()}-0",
        size_bytes=len(body),
        row_count=len(ranges),
        deletion_vectors=tuple(ranges),
    )
    path = store.index_path(entry)
    with undoing(lambda: delete_leftover(store.io, path)):
        store.io.write_new(path, bytes(body))
    return entry


def _blob(positions: Positions, *, is_wide: bool) -> bytes:
    if is_wide:
        return MAGIC_64 + bytes(BitMap64(positions.astype(np.uint64)).serialize())
    bitmap = BitMap(positions.astype(np.uint32))
    bitmap.run_optimize()
    return MAGIC_32 + bytes(bitmap.serialize())


def _positions(body: bytes, part: DeletionVectorRange, path: str) -> Positions:
    start = part.offset + _INT_BYTES
    length = int.from_bytes(body[part.offset : start], "big", signed=True)
    blob = body[start : start + length]
    checksum = body[start + length : start + length + _INT_BYTES]
    # The length in the manifest excludes the frame of a 32-bit vector, and includes that of a 64-bit one.
    is_wide = blob[:_INT_BYTES] == MAGIC_64
    expected = part.length - 2 * _INT_BYTES if is_wide else part.length
    if length != expected or zlib.crc32(blob).to_bytes(_INT_BYTES, "big") != checksum:
        raise CorruptDataError(
            f"deletion vector is corrupt: path={path} data_file={part.data_file_name} offset={part.offset} "
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
            f"deletion vector has a wrong cardinality: path={path} data_file={part.data_file_name} "
            f"rows={len(positions)} expected_rows={part.cardinality}"
        )
    return positions
