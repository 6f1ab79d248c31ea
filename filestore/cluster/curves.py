"""Space-filling curves: a point of a grid to its place on a line, for many points at once.

Coordinates are (n,) arrays of unsigned 64-bit integers below ``2**bits``, one for each of d columns, and
``d * bits <= 64``.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np

from lsm.keys.words import WordArray

WORD_BITS: Final = 64
_ONE: Final = np.uint64(1)
_BYTE: Final = np.uint64(0xFF)


def z_places(coordinates: Sequence[WordArray], bits: int) -> WordArray:
    """(n,) places on the z-order curve: the bits of all coordinates in turns, those of the first leading."""
    count = len(coordinates)
    spread = _spread(count)
    found = np.zeros(len(coordinates[0]), np.uint64)
    for index, values in enumerate(coordinates):
        for byte in range((bits + 7) // 8):
            part = spread[((values >> np.uint64(8 * byte)) & _BYTE).astype(np.intp)]
            found |= part << np.uint64(8 * byte * count + count - 1 - index)
    return found


def hilbert_places(coordinates: Sequence[WordArray], bits: int) -> WordArray:
    """(n,) places on the Hilbert curve, on which neighbours are neighbours in the grid as well.

    Source: Skilling, Programming the Hilbert curve (2004).
    """
    axes = [values.copy() for values in coordinates]
    for level in reversed(range(1, bits)):
        bit, below = np.uint64(level), np.uint64((1 << level) - 1)
        for axis in axes:
            is_set = (axis >> bit) & _ONE != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            if axis is not axes[0]:
                axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros_like(axes[0])
    for level in range(1, bits):
        is_set = (axes[-1] >> np.uint64(level)) & _ONE != 0
        turned ^= np.where(is_set, np.uint64((1 << level) - 1), np.uint64(0))
    return z_places([axis ^ turned for axis in axes], bits)


@cache
def _spread(count: int) -> WordArray:
    """(256,) each byte with ``count - 1`` zero bits after each of its bits."""
    values = np.arange(256, dtype=np.uint64)
    found = np.zeros(256, np.uint64)
    for bit in range(8):
        if bit * count < WORD_BITS:
            found |= ((values >> np.uint64(bit)) & _ONE) << np.uint64(bit * count)
    return found
