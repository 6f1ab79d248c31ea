"""How many different values there are, by a sketch of 16 kB: HyperLogLog. Its standard error is 0.8 %.

Source: Flajolet and others, HyperLogLog (2007); the estimate, which has no bias at any size, is of Ertl (2017).
"""

import math
from typing import Final

import numpy as np

from filestore.hashing.xxhash import Hashes

_INDEX_BITS: Final = 14
_COUNT: Final = 1 << _INDEX_BITS
_MOST: Final = 64 - _INDEX_BITS + 1  # that a register can hold


class DistinctCount:
    """Counts the different hashes that are added."""

    def __init__(self) -> None:
        self._most = np.zeros(_COUNT, np.uint8)  # by a hash's leading bits: 1 + zeros behind them

    def add(self, hashes: Hashes) -> None:
        """Add (n,) hashes of 64 bits."""
        index = (hashes >> np.uint64(64 - _INDEX_BITS)).astype(np.intp)
        rest = (hashes << np.uint64(_INDEX_BITS)) | np.uint64(1 << (_INDEX_BITS - 1))  # ends the zeros
        high = (rest >> np.uint64(11)).astype(np.float64)  # 53 bits, which a float has exactly
        zeros = (53 - np.frexp(high)[1]).astype(np.uint8)
        np.maximum.at(self._most, index, zeros + np.uint8(1))

    @property
    def value(self) -> int:
        """About how many different ones there were."""
        counts = np.bincount(self._most, minlength=_MOST + 1) / _COUNT
        found = _tau(1 - counts[_MOST])
        for share in reversed(counts[1:_MOST]):
            found = (found + share) / 2
        found += _sigma(counts[0])
        return round(_COUNT / (2 * math.log(2) * found))


def _sigma(share: float) -> float:
    """What registers add that no value has reached."""
    if share == 1:
        return math.inf
    found, weight, before = share, 1.0, -1.0
    while found != before:
        share, before = share * share, found
        found += share * weight
        weight *= 2
    return found


def _tau(share: float) -> float:
    """What registers add that cannot rise any more."""
    if share in (0, 1):
        return 0.0
    found, weight, before = 1 - share, 1.0, -1.0
    while found != before:
        share, before = math.sqrt(share), found
        weight /= 2
        found -= (1 - share) ** 2 * weight
    return found / 3
