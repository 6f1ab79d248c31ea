"""The container of file indexes: one body for each column and kind of index. Source: Paimon FileIndexFormat, version 1.

Numbers are big-endian; names are in Java's modified UTF-8; places count from the start of the container.
"""

import struct
from collections.abc import Mapping
from typing import Final

from lsm.errors import CorruptDataError

Indexes = Mapping[str, Mapping[str, bytes | None]]
"""By column, by kind of index: its body; None: the column held nothing."""

_MAGIC: Final = 1_493_475_289_347_502
_VERSION: Final = 1
_FIXED: Final = struct.Struct(">qii")  # magic, version, length of the head
_NOTHING: Final = -1


def pack_indexes(indexes: Indexes) -> bytes:
    """The bytes of a container."""
    # magic, version and length; number of columns; of each its name and number of indexes; length of what is reserved
    head_size = _FIXED.size + 4 + 4
    for column, kinds in indexes.items():
        head_size += len(_utf(column)) + 4 + sum(len(_utf(kind)) + 8 for kind in kinds)
    head = [_FIXED.pack(_MAGIC, _VERSION, head_size), _int(len(indexes))]
    bodies: list[bytes] = []
    place = head_size
    for column, kinds in indexes.items():
        head += [_utf(column), _int(len(kinds))]
        for kind, body in kinds.items():
            head.append(_utf(kind) + struct.pack(">ii", _NOTHING if body is None else place, len(body or b"")))
            bodies.append(body or b"")
            place += len(body or b"")
    return b"".join([*head, _int(0), *bodies])


def unpack_indexes(container: bytes, *, source: str) -> Indexes:
    """What a container holds.

    Args:
        container: its bytes.
        source: where they are from, for messages.

    Raises:
        CorruptDataError: it is none, is cut off, or of another version.
    """
    try:
        magic, version, head_size = _FIXED.unpack_from(container)
        if (magic, version) != (_MAGIC, _VERSION) or not _FIXED.size <= head_size <= len(container):
            raise CorruptDataError(f"not a file index of version {_VERSION}: file={source} version={version}")
        reader = _Reader(container)
        indexes: dict[str, dict[str, bytes | None]] = {}
        for _ in range(reader.int()):
            kinds = indexes.setdefault(reader.text(), {})
            for _ in range(reader.int()):
                kind, start, size = reader.text(), reader.int(), reader.int()
                if start != _NOTHING and not head_size <= start <= start + size <= len(container):
                    raise CorruptDataError(f"file index is cut off: file={source} kind={kind} start={start}")
                kinds[kind] = None if start == _NOTHING else container[start : start + size]
    except (struct.error, UnicodeError) as error:
        raise CorruptDataError(f"file index is cut off or garbled: file={source} error={error}") from error
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
    """Java's modified UTF-8: each half of a surrogate pair on its own, and no zero byte."""
    wide = name.encode("utf-16-be", "surrogatepass")
    units = "".join(chr(int.from_bytes(wide[at : at + 2], "big")) for at in range(0, len(wide), 2))
    body = units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return struct.pack(">H", len(body)) + body
