"""Detects numbers like 2e-324 in JSON text: for these, Arrow's decimal reader exceeds its table of powers of ten.

Every batch with a decimal column is searched, so the usual case, no negative exponent at all, takes only
four passes over the bytes. Source: measured behaviour of ``pyarrow.json`` 26.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.keys.words import IndexArray

_PART_BYTES: Final = 1 << 18  # bytes per pass: fits the CPU cache
_LARGE_EXPONENT: Final = re.compile(rb'-(?:[0-9]{3,}|[4-9][0-9])["\s,}\]]')


def holds_tiny_decimals(text: pa.Buffer) -> bool:
    """Whether a JSON text may contain a number with an exponent of -40 or less, inside strings or not."""
    data = np.frombuffer(text, np.uint8)
    if not _holds_negative_exponent(data):
        return False
    dashes = _positions(data, ord("-"))
    dashes = dashes[(data[dashes - 1] | 0x20 == ord("e")) & (dashes + 3 < data.size)]
    digits = data[dashes[:, None] + np.arange(1, 4)]
    is_digit = (digits >= ord("0")) & (digits <= ord("9"))
    is_large = is_digit[:, 0] & is_digit[:, 1] & ((digits[:, 0] >= ord("4")) | is_digit[:, 2])
    return any(_LARGE_EXPONENT.match(memoryview(text), position) for position in dashes[is_large].tolist())


def _holds_negative_exponent(data: NDArray[np.uint8]) -> bool:
    for start in range(0, len(data) - 1, _PART_BYTES):
        part = data[start : start + _PART_BYTES + 1]  # one byte more: the two bytes may lie in two parts
        if np.any((part[1:] == ord("-")) & (part[:-1] | 0x20 == ord("e"))):
            return True
    return False


def _positions(data: NDArray[np.uint8], byte: int) -> IndexArray:
    """Positions of a rare byte, searched eight bytes at a time, which is several times faster."""
    found = np.zeros(-(-len(data) // 8) * 8, np.bool_)
    np.equal(data, byte, out=found[: len(data)])
    words = np.flatnonzero(found.view(np.uint64))
    inside, bytes_of_word = np.nonzero(found.reshape(-1, 8)[words])
    return words[inside] * 8 + bytes_of_word
