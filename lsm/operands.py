"""The values that go into one aggregate column, key by key."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from lsm.words import BoolArray, IndexArray


@dataclass(frozen=True, kw_only=True)
class Operands:
    """(m,) values of k keys: the keys one after another, the values of a key oldest first."""

    values: pa.Array
    keys: IndexArray  # (m,) the key's number, never decreasing, below key_count
    retracts: BoolArray  # (m,) whether the value takes back instead of giving
    key_count: int

    @cached_property
    def firsts(self) -> IndexArray:
        """Where each key begins that has operands."""
        starts = np.ones(len(self.keys), np.bool_)
        starts[1:] = self.keys[1:] != self.keys[:-1]
        return np.flatnonzero(starts)

    @cached_property
    def lasts(self) -> IndexArray:
        """Where each key ends that has operands."""
        return np.append(self.firsts[1:], len(self.keys)) - 1

    def where(self, kept: BoolArray) -> Self:
        """Some of the operands; keys may be left without any."""
        return type(self)(
            values=self.values.filter(pa.array(kept)),
            keys=self.keys[kept],
            retracts=self.retracts[kept],
            key_count=self.key_count,
        )

    def dense(self) -> Self:
        """The same, with only those keys counted that have operands."""
        starts = np.zeros(len(self.keys), np.int64)
        starts[self.firsts[1:]] = 1
        keys = np.cumsum(starts)
        return type(self)(values=self.values, keys=keys, retracts=self.retracts, key_count=len(self.firsts))

    def spread(self, folded: pa.Array) -> pa.Array:
        """(k,) a value for each key that has operands becomes one for every key, null where there were none."""
        if len(folded) == self.key_count:
            return folded
        places = np.zeros(self.key_count, np.int64)
        absent = np.ones(self.key_count, np.bool_)
        present = self.keys[self.firsts]
        places[present] = np.arange(len(present))
        absent[present] = False
        return folded.take(pa.array(places, mask=absent))
