"""The values that go into one aggregate column, key by key."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from lsm.words import BoolArray, IndexArray


@dataclass(frozen=True)
class OperandKeys:
    """Which key each of m operands is of; shared by columns, as long as they leave nothing out."""

    numbers: IndexArray  # (m,) the key's number, never decreasing, below key_count
    key_count: int

    @cached_property
    def firsts(self) -> IndexArray:
        """Where each key begins that has operands."""
        starts = np.ones(len(self.numbers), np.bool_)
        starts[1:] = self.numbers[1:] != self.numbers[:-1]
        return np.flatnonzero(starts)

    @cached_property
    def lasts(self) -> IndexArray:
        """Where each key ends that has operands."""
        return np.append(self.firsts[1:], len(self.numbers)) - 1

    def dense(self) -> "OperandKeys":
        """The same, with only those keys counted that have operands."""
        if len(self.firsts) == self.key_count:
            return self
        starts = np.zeros(len(self.numbers), np.int64)
        starts[self.firsts[1:]] = 1
        return OperandKeys(np.cumsum(starts), len(self.firsts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """(m,) values of k keys: the keys one after another, the values of a key oldest first."""

    values: pa.Array
    keys: OperandKeys
    retracts: BoolArray  # (m,) whether the value takes back instead of giving

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return self.keys.key_count

    def where(self, kept: BoolArray) -> Self:
        """Some of the operands; keys may be left without any."""
        return type(self)(
            values=self.values.filter(pa.array(kept)),
            keys=OperandKeys(self.keys.numbers[kept], self.key_count),
            retracts=self.retracts[kept],
        )

    def dense(self) -> Self:
        """The same, with only those keys counted that have operands."""
        return type(self)(values=self.values, keys=self.keys.dense(), retracts=self.retracts)

    def spread(self, folded: pa.Array) -> pa.Array:
        """(k,) a value for each key that has operands becomes one for every key, null where there were none."""
        if len(folded) == self.key_count:
            return folded
        places = np.zeros(self.key_count, np.int64)
        absent = np.ones(self.key_count, np.bool_)
        present = self.keys.numbers[self.keys.firsts]
        places[present] = np.arange(len(present))
        absent[present] = False
        return folded.take(pa.array(places, mask=absent))
