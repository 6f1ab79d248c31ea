"""Bloom filters over 64-bit hashes: false positives, but no false negatives. Source: Paimon BloomFilter64."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from filestore.hashing.xxhash import Hashes
from lsm.errors import CorruptDataError

_COUNT_BYTES: Final = 4
_BATCH_HASHES: Final = 262_144  # bounds the memory for bit positions
_MAX_BITS: Final = 2**31 - 8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BloomFilter:
    """The bits, and the number of bits per hash."""

    bits: npt.NDArray[np.uint8]  # 8 per byte, lowest first
    hash_count: int

    @classmethod
    def empty(cls, *, items: int, false_positive_rate: float) -> "BloomFilter":
        """An empty filter.

        Args:
            items: expected number of distinct hashes.
            false_positive_rate: expected rate with that many hashes; between 0 and 1, exclusive.
        """
        wanted = int(-items * math.log(false_positive_rate) / math.log(2) ** 2)
        bit_count = min(wanted + 8 - wanted % 8, _MAX_BITS)
        hash_count = max(1, math.floor(bit_count / items * math.log(2) + 0.5))
        return cls(bits=np.zeros(bit_count // 8, np.uint8), hash_count=hash_count)

    def add(self, hashes: Hashes) -> None:
        """Add (n,) hashes."""
        for first in range(0, len(hashes), _BATCH_HASHES):
            flags = np.zeros(len(self.bits) * 8, np.bool_)
            flags[self._places(hashes[first : first + _BATCH_HASHES]).ravel()] = True
            np.bitwise_or(self.bits, np.packbits(flags, bitorder="little"), out=self.bits)

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """(n,) False where a hash was definitely never added."""
        places = self._places(hashes)
        found: npt.NDArray[np.bool_] = ((self.bits[places >> 3] >> (places & 7).astype(np.uint8)) & 1).all(axis=0)
        return found

    def to_bytes(self) -> bytes:
        """The number of bits per hash, big-endian, then the bits."""
        return self.hash_count.to_bytes(_COUNT_BYTES, "big") + self.bits.tobytes()

    @classmethod
    def from_bytes(cls, body: bytes) -> "BloomFilter":
        """Parse the result of ``to_bytes``, or of Paimon. Raises: CorruptDataError."""
        count = int.from_bytes(body[:_COUNT_BYTES], "big", signed=True)
        if len(body) <= _COUNT_BYTES or count < 1:
            raise CorruptDataError(f"bloom filter is truncated or corrupt: size_bytes={len(body)} hash_count={count}")
        return cls(bits=np.frombuffer(body, np.uint8, offset=_COUNT_BYTES), hash_count=count)

    def _places(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """(hash_count, n) bit positions, from both halves of the hashes in wrapping 32-bit arithmetic, as in Java."""
        low = hashes.astype(np.uint32).view(np.int32)
        high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
        factors = np.arange(1, self.hash_count + 1, dtype=np.int32)[:, None]
        mixed = low + factors * high
        return np.where(mixed < 0, ~mixed, mixed) % np.int32(len(self.bits) * 8)
