"""The container of file indexes: one body per column and kind of index. Source: Paimon FileIndexFormat, version 1.

Numbers are big-endian; names are in Java's modified UTF-8; offsets count from the start of the container.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from filestore.schema.index_options import java_text
from lsm.errors import CorruptDataError

Indexes = Mapping[str, Mapping[str, bytes | None]]
"""Index bodies by column, then by kind of index; None: an empty index, the column is all null."""

_MAGIC: Final = 1_493_475_289_347_502
_VERSION: Final = 1
_FIXED: Final = struct.Struct(">qii")  # magic, version, length of the head
_EMPTY: Final = -1

FIXED_BYTES: Final = _FIXED.size
"""Length of the container prefix that contains the header size."""


def pack_indexes(indexes: Indexes) -> bytes:
    """Serialize a container."""
    # magic, version and length; number of columns; name and number of indexes of each; length of the reserved part
    size = _FIXED.size + 4 + 4
    for column, kinds in indexes.items():
        size += len(_utf(column)) + 4 + sum(len(_utf(kind)) + 8 for kind in kinds)
    head = [_FIXED.pack(_MAGIC, _VERSION, size), _int(len(indexes))]
    bodies: list[bytes] = []
    place = size
    for column, kinds in indexes.items():
        head += [_utf(column), _int(len(kinds))]
        for kind, body in kinds.items():
            head.append(_utf(kind) + struct.pack(">ii", _EMPTY if body is None else place, len(body or b"")))
            bodies.append(body or b"")
            place += len(body or b"")
    return b"".join([*head, _int(0), *bodies])


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlace:
    """Location of the body of one index in its container."""

    column: str
    kind: str
    start: int | None  # None: empty index
    size_bytes: int


def head_size(start: bytes, *, source: str) -> int:
    """Size of a container's header, from its first ``FIXED_BYTES``. Raises: CorruptDataError."""
    if len(start) < FIXED_BYTES:
        raise CorruptDataError(f"file index is truncated: file={source} size_bytes={len(start)}")
    magic, version, size = _FIXED.unpack_from(start)
    if (magic, version) != (_MAGIC, _VERSION) or size < FIXED_BYTES:
        raise CorruptDataError(f"not a file index of version {_VERSION}: file={source} version={version}")
    return int(size)


def index_places(head: bytes, *, source: str) -> list[IndexPlace]:
    """The locations of the index bodies, from the header. Raises: CorruptDataError."""
    size = head_size(head, source=source)
    places = []
    try:
        reader = _Reader(head[:size])
        for _ in range(reader.int()):
            column = reader.text()
            for _ in range(reader.int()):
                kind, start, body = reader.text(), reader.int(), reader.int()
                places.append(
                    IndexPlace(column=column, kind=kind, start=None if start == _EMPTY else start, size_bytes=body)
                )
    except (struct.error, UnicodeError) as error:
        raise CorruptDataError(f"file index is truncated or corrupt: file={source} error={error}") from error
    return places


def unpack_indexes(container: bytes, *, source: str) -> Indexes:
    """Parse a container.

    Args:
        container: its bytes.
        source: origin of the bytes, for messages.

    Raises:
        CorruptDataError: not a container, truncated, or of another version.
    """
    size = head_size(container, source=source)
    if size > len(container):
        raise CorruptDataError(f"file index is truncated: file={source} size_bytes={len(container)} head_bytes={size}")
    indexes: dict[str, dict[str, bytes | None]] = {}
    for place in index_places(container, source=source):
        body = None
        if place.start is not None:
            stop = place.start + place.size_bytes
            if not size <= place.start <= stop <= len(container):
                raise CorruptDataError(f"file index is truncated: file={source} kind={place.kind} start={place.start}")
            body = container[place.start : stop]
        indexes.setdefault(place.column, {})[place.kind] = body
    return indexes


class _Reader:
    def __init__(self, container: bytes) -> None:
        self._container = container
        self._place = _FIXED.size

    def int(self) -> int:
        (number,) = struct.unpack_from(">i", self._container, self._place)
        self._place += 4
        return int(number)

    def text(self) -> str:
        (size,) = struct.unpack_from(">H", self._container, self._place)
        first = self._place + 2
        self._place = first + size
        if self._place > len(self._container):
            raise struct.error("name reaches beyond the end")
        units = self._container[first : self._place].replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _int(number: int) -> bytes:
    return struct.pack(">i", number)


def _utf(name: str) -> bytes:
    body = java_text(name)
    return struct.pack(">H", len(body)) + body
