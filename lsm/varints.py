"""Avro's variable-length integers, a column at a time.

A number is zigzag encoded and split into groups of 7 bits, lowest first; all bytes but the last have their highest bit
set. The groups of up to 8 bytes are spread over, and gathered from, one 64-bit word by three masked shifts.

Source: Avro 1.12 "Binary Encoding".
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lsm.keys.words import BoolArray, IndexArray

MAX_BYTES: Final = 10
WORD_BYTES: Final = 8

_Bytes: TypeAlias = NDArray[np.uint8]
_Words = NDArray[np.uint64]

_MORE: Final = 0x80  # all bytes but the last are not below it
_CONTINUED: Final = np.uint64(0x8080808080808080)
_CONTINUED_BY_LENGTH: Final = np.array(
    [0, *((0x8080808080808080 & ((1 << 8 * (length - 1)) - 1)) for length in range(1, 9)), *2 * [0x8080808080808080]],
    np.uint64,
)
_SMEARS: Final = tuple(np.uint64(1 << step) for step in range(6))


def bit_lengths(numbers: _Words) -> IndexArray:
    """(n,) how many bits each number has; 0 for 0."""
    filled = numbers.copy()
    for shift in _SMEARS:
        filled |= filled >> shift
    return np.bitwise_count(filled).astype(np.int64)


def varint_bytes(numbers: NDArray[np.int64]) -> tuple[_Bytes, IndexArray]:
    """Encode numbers.

    Returns:
        (n, w) bytes, w = 8 or 10, and (n,) how many of a row count.
    """
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.maximum((bit_lengths(zigzag) + 6) // 7, 1)
    words = (zigzag & np.uint64(0x0FFFFFFF)) | ((zigzag & np.uint64(0x00FFFFFFF0000000)) << np.uint64(4))
    words = (words & np.uint64(0x00003FFF00003FFF)) | ((words & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2))
    words = (words & np.uint64(0x007F007F007F007F)) | ((words & np.uint64(0x3F803F803F803F80)) << np.uint64(1))
    words |= _CONTINUED_BY_LENGTH[lengths]
    low = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD_BYTES)
    if not len(numbers) or lengths.max() <= WORD_BYTES:
        return low, lengths
    wide = np.zeros((len(numbers), MAX_BYTES), np.uint8)
    wide[:, :WORD_BYTES] = low
    wide[:, 8] = (zigzag >> np.uint64(56)) & np.uint64(0x7F)
    wide[:, 8] |= np.where(lengths == MAX_BYTES, np.uint8(0x80), np.uint8(0))
    wide[:, 9] = zigzag >> np.uint64(63)
    return wide, lengths


def word_view(data: _Bytes) -> NDArray[Any]:
    """The little-endian 64-bit word that begins at each byte; ``data`` ends with 7 bytes more than are asked for."""
    return np.ndarray(shape=(max(len(data) - 7, 0),), dtype="<u8", buffer=data.data, strides=(1,))


def read_varints(words: NDArray[Any], places: IndexArray) -> tuple[NDArray[np.int64], IndexArray, BoolArray | None]:
    """Decode the numbers that begin at places.

    Args:
        words: see ``word_view``.
        places: (n,) first bytes.

    Returns:
        (n,) numbers, (n,) bytes of each, and which are longer than 10 bytes (None: none).
    """
    found = words[places].astype(np.uint64, copy=False)
    stops = ~found & _CONTINUED
    last = stops & -stops  # the highest bit of the last byte
    lengths = (np.bitwise_count(last - np.uint64(1)) >> 3).astype(np.int64) + 1
    found &= last - np.uint64(1)  # without a last byte: all 64 bits
    found = (found & np.uint64(0x007F007F007F007F)) | ((found & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    found = (found & np.uint64(0x00003FFF00003FFF)) | ((found & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    found = (found & np.uint64(0x0FFFFFFF)) | ((found & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    too_long = None
    longer = np.flatnonzero(stops == 0)
    if len(longer):
        ninth, tenth = _next_two(words, places[longer])
        ends_at_tenth = ninth >= 0x80
        found[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        found[longer] |= np.where(ends_at_tenth, tenth, np.uint64(0)) << np.uint64(63)
        lengths[longer] = np.where(ends_at_tenth, MAX_BYTES, MAX_BYTES - 1)
        too_long = np.zeros(len(places), bool)
        too_long[longer] = ends_at_tenth & (tenth > 1)
    numbers = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
    return numbers, lengths, too_long


def read_varint(data: Sequence[int], at: int) -> tuple[int, int]:
    """The number that begins at a place of some bytes, and the place behind it.

    Raises: ValueError: it is longer than 10 bytes, or than 64 bits.
    """
    number = shift = 0
    while (byte := data[at]) >= _MORE:
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    number |= byte << shift
    if number >> 64:
        raise ValueError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


def _next_two(words: NDArray[Any], places: IndexArray) -> tuple[_Words, _Words]:
    """The bytes 8 and 9 behind places."""
    at_two = words[places + 2].astype(np.uint64)
    return (at_two >> np.uint64(48)) & np.uint64(0xFF), at_two >> np.uint64(56)
