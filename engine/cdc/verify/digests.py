"""Hashes of rows, summed by range: sums do not depend on the order, and a range is a part of the keys' hashes.

A range is chosen by the key's hash, not by its order: collations of databases order texts in ways of their own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_WORD_BITS = 64
DigestWords = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RowDigests:
    """MD5 of the keys and of the rows of a batch, as two words each."""

    keys: DigestWords  # (n, 2)
    rows: DigestWords  # (n, 2)

    def ranges(self, count: int) -> NDArray[np.int64]:
        """(n,) the range of each key, of so many."""
        return ((self.keys[:, 0] >> np.uint64(32)) % np.uint64(count)).astype(np.int64)

    def chosen(self, mask: NDArray[np.bool_]) -> "RowDigests":
        """The digests of chosen rows."""
        return RowDigests(self.keys[mask], self.rows[mask])


@dataclass(frozen=True, slots=True)
class RangeSum:
    """The number of rows of a range, and the sum of their hashes: they are compared first."""

    count: int
    high: int  # modulo 2 ** 64
    low: int


def digests_of(keys: pa.Array, rows: pa.Array) -> RowDigests:
    """Hashes of texts.

    Args:
        keys: (n,) large_string without nulls.
        rows: likewise.
    """
    return RowDigests(_md5(keys), _md5(rows))


def from_hex(pairs: Iterable[tuple[str, str]]) -> RowDigests:
    """Hashes as a database writes them: of the key and of the row, in hexadecimal."""
    listed = list(pairs)
    content = bytes.fromhex("".join(key + row for key, row in listed))
    words = np.frombuffer(content, ">u8").astype(np.uint64).reshape(len(listed), 4)
    return RowDigests(words[:, :2], words[:, 2:])


def joined(parts: Iterable[RowDigests]) -> RowDigests:
    """All in one."""
    listed = [RowDigests(np.zeros((0, 2), np.uint64), np.zeros((0, 2), np.uint64)), *parts]
    return RowDigests(np.concatenate([each.keys for each in listed]), np.concatenate([each.rows for each in listed]))


class RangeSums:
    """Sums by range, added up batch by batch."""

    def __init__(self, count: int) -> None:
        """All zero."""
        self._rows = np.zeros(count, np.int64)
        self._sums = np.zeros((count, 2), np.uint64)

    def add(self, digests: RowDigests) -> None:
        """Count the rows of a batch."""
        ranges = digests.ranges(len(self._rows))
        np.add.at(self._rows, ranges, 1)
        np.add.at(self._sums, ranges, digests.rows)  # modulo 2 ** 64, as is meant

    def found(self) -> dict[int, RangeSum]:
        """The digests of ranges that have rows."""
        ranges = np.flatnonzero(self._rows).tolist()
        return {at: RangeSum(int(self._rows[at]), int(self._sums[at, 0]), int(self._sums[at, 1])) for at in ranges}


def range_sum(count: Any, high: Any, low: Any) -> RangeSum:
    """One as a database sums it: whole numbers of any size, as text or number."""
    words = [int(str(each).partition(".")[0]) % (1 << _WORD_BITS) for each in (high, low)]
    return RangeSum(int(count), *words)


def differing_ranges(one: Mapping[int, RangeSum], other: Mapping[int, RangeSum]) -> list[int]:
    """The ranges that are not equal, ascending."""
    return sorted(at for at in one.keys() | other.keys() if one.get(at) != other.get(at))


def differing_keys(one: RowDigests, other: RowDigests) -> list[str]:
    """The keys, as hexadecimal hashes, whose rows or numbers of rows differ. Ascending."""
    rows = np.concatenate([np.hstack([one.keys, one.rows]), np.hstack([other.keys, other.rows])])
    if not len(rows):
        return []
    signs = np.repeat([1, -1], [len(one.keys), len(other.keys)])
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    surplus = np.bincount(places.reshape(-1), weights=signs, minlength=len(distinct))
    keys = np.unique(distinct[surplus != 0][:, :2], axis=0)
    return [f"{high:016x}{low:016x}" for high, low in keys.tolist()]


def key_texts(digests: RowDigests) -> list[str]:
    """The hashes of the keys in hexadecimal."""
    return [f"{high:016x}{low:016x}" for high, low in digests.keys.tolist()]


def _md5(texts: pa.Array) -> DigestWords:
    """A hash that databases have as well. A row costs a microsecond: less than its 64 rounds in NumPy."""
    content = b"".join(
        [md5(each, usedforsecurity=False).digest() for each in texts.cast(pa.large_binary()).to_pylist()]
    )
    return np.frombuffer(content, ">u8").astype(np.uint64).reshape(len(texts), 2)
