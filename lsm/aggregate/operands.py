"""The input values of one aggregate column, grouped by key."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from lsm.keys.words import BoolArray, IndexArray


@dataclass(frozen=True)
class OperandKeys:
    """The key of each of m operands; shared by all columns that do not filter operands."""

    numbers: IndexArray  # (m,) key number, non-decreasing, below key_count
    key_count: int

    @cached_property
    def firsts(self) -> IndexArray:
        """Index of the first operand of each key that has operands."""
        starts = np.ones(len(self.numbers), np.bool_)
        starts[1:] = self.numbers[1:] != self.numbers[:-1]
        return np.flatnonzero(starts)

    @cached_property
    def lasts(self) -> IndexArray:
        """Index of the last operand of each key that has operands."""
        return np.append(self.firsts, len(self.numbers))[1:] - 1

    def dense(self) -> "OperandKeys":
        """The same operands, with keys renumbered to skip those without operands."""
        if len(self.firsts) == self.key_count:
            return self
        starts = np.zeros(len(self.numbers), np.int64)
        starts[self.firsts[1:]] = 1
        return OperandKeys(np.cumsum(starts), len(self.firsts))


@dataclass(frozen=True, kw_only=True)
class Operands:
    """(m,) values of k keys, grouped by key, the values of a key oldest first."""

    column: pa.Array  # holds the values, among others
    rows: IndexArray  # (m,) row indices into the column
    keys: OperandKeys
    retracts: BoolArray  # (m,) whether the value is retracted

    @cached_property
    def values(self) -> pa.Array:
        """(m,) the operand values."""
        return self.column.take(pa.array(self.rows))

    @property
    def key_count(self) -> int:
        """Number of keys, with or without operands."""
        return self.keys.key_count

    def where(self, kept: BoolArray) -> Self:
        """The operands where `kept` is true; keys may end up without operands."""
        return type(self)(
            column=self.column,
            rows=self.rows[kept],
            keys=OperandKeys(self.keys.numbers[kept], self.key_count),
            retracts=self.retracts[kept],
        )

    def valid(self) -> Self:
        """The non-null operands."""
        if self.column.null_count == 0:
            return self
        return self.where(self.column.is_valid().to_numpy(zero_copy_only=False)[self.rows])

    def dense(self) -> Self:
        """The same operands, with keys renumbered to skip those without operands."""
        keys = self.keys.dense()
        return self if keys is self.keys else replace(self, keys=keys)

    def spread(self, folded: pa.Array) -> pa.Array:
        """(k,) one value per key from values of only the keys with operands; null for the others."""
        if len(folded) == self.key_count:
            return folded
        places = self._spread_rows(np.arange(len(folded)))
        return folded.take(pa.array(places, mask=places < 0))

    def spread_rows(self, places: IndexArray) -> IndexArray:
        """(k,) like `spread`, from operand indices (-1 for null) to row indices of the column, or -1."""
        rows = np.where(places < 0, -1, self.rows[places])
        return rows if len(rows) == self.key_count else self._spread_rows(rows)

    def _spread_rows(self, numbers: IndexArray) -> IndexArray:
        spread = np.full(self.key_count, -1)
        spread[self.keys.numbers[self.keys.firsts]] = numbers
        return spread
