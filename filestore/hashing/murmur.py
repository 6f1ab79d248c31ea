"""Murmur3 (x86, 32 bits): of many rows at once, for input that is a multiple of eight bytes, and of a text.

Source: Austin Appleby's MurmurHash3; Paimon MurmurHashUtils.hashBytesByWords with seed 42.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.uint64]

SEED: Final = 42
_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_ADD: Final = np.uint32(0xE6546B64)
_FINAL1: Final = np.uint32(0x85EBCA6B)
_FINAL2: Final = np.uint32(0xC2B2AE35)


class Murmur:
    """The hash states of several rows, advanced together in place."""

    def __init__(self, row_count: int, state: int = SEED) -> None:
        self.states: Words = np.full(row_count, state, np.uint32)
        self._word = np.empty(row_count, np.uint32)
        self._high = np.empty(row_count, np.uint32)

    def mix(self, long: Longs | np.uint64) -> None:
        """Mix in eight bytes per row, or the same eight bytes for all."""
        self.mix_into(self.states, long if isinstance(long, np.ndarray) else np.full(len(self.states), long))

    def mix_into(self, states: Words, long: Longs) -> None:
        """Advance other states, at most as many as rows, by eight bytes each."""
        word, high = self._word[: len(states)], self._high[: len(states)]
        halves = np.ascontiguousarray(long).view(np.uint32)
        for half in (halves[::2], halves[1::2]):
            np.multiply(half, _C1, out=word)
            np.right_shift(word, 17, out=high)
            np.left_shift(word, 15, out=word)
            np.bitwise_or(word, high, out=word)
            np.multiply(word, _C2, out=word)
            np.bitwise_xor(states, word, out=states)
            np.right_shift(states, 19, out=high)
            np.left_shift(states, 13, out=states)
            np.bitwise_or(states, high, out=states)
            np.multiply(states, np.uint32(5), out=states)
            np.add(states, _ADD, out=states)

    def finish(self, byte_counts: Longs | np.uint64) -> Words:
        """The hashes of rows of these lengths. Consumes the states."""
        hashes = self.states
        hashes ^= byte_counts.astype(np.uint32)
        hashes ^= hashes >> np.uint32(16)
        hashes *= _FINAL1
        hashes ^= hashes >> np.uint32(13)
        hashes *= _FINAL2
        hashes ^= hashes >> np.uint32(16)
        return hashes


def murmur3(body: bytes, seed: int = 0) -> int:
    """The hash of bytes of any length, 0 to 2^32 - 1; as Guava's ``murmur3_32``."""
    whole = len(body) & ~3
    state = mix_bytes(seed, body[:whole])
    word = int.from_bytes(body[whole:], "little") * int(_C1) & 0xFFFFFFFF
    state ^= (word << 15 | word >> 17) * int(_C2) & 0xFFFFFFFF
    state ^= len(body)
    state = (state ^ state >> 16) * int(_FINAL1) & 0xFFFFFFFF
    state = (state ^ state >> 13) * int(_FINAL2) & 0xFFFFFFFF
    return state ^ state >> 16


def mix_bytes(state: int, body: bytes) -> int:
    """The state of one row after a multiple of four bytes; faster than arrays for few rows."""
    for word in np.frombuffer(body, np.uint32).tolist():
        word = word * int(_C1) & 0xFFFFFFFF
        state ^= (word << 15 | word >> 17) * int(_C2) & 0xFFFFFFFF
        state = ((state << 13 | state >> 19) & 0xFFFFFFFF) * 5 + int(_ADD) & 0xFFFFFFFF
    return state
