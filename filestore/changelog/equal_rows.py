"""Rows without a key that were removed and added again: what is left when equal ones cancel out.

Files of such a table are rewritten by compactions, overwrites and deletes, so that what a commit took away and put back
says nothing about rows. Rows are equal by the hash that identifies them; the memory for hashes is bounded by reading
the rows once more for each share of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.changelog.compared_states import Changes
from filestore.hashing.row_hash import row_hashes
from filestore.types.data_types import DataField
from lsm.row_kind import RowKind

_HASH: Final = pa.binary(16)
_ROW_BYTES: Final = 64  # of a hash and its side, and of the table that counts them

_Ints = npt.NDArray[np.int64]


def without_equal_rows(
    read: Callable[[], Changes], fields: Sequence[DataField], *, row_count: int, budget_bytes: int
) -> Changes:
    """As many of each removed and added row as do not cancel out.

    Args:
        read: reads the rows, -D and +I, the same ones in every call.
        fields: of their columns.
        row_count: at most so many.
        budget_bytes: for their hashes.
    """
    shares = max(1, -(-row_count * _ROW_BYTES // budget_bytes))
    for share in range(shares):
        left = _Left.counted(_hashed(read(), fields, share, shares))
        if left is not None:
            yield from left.of(_hashed(read(), fields, share, shares))


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Rows of one share."""

    rows: pa.RecordBatch
    kinds: pa.Array
    hashes: pa.Array  # (n,) 16 bytes

    @property
    def signs(self) -> _Ints:
        """(n,) 1 of an added row, -1 of a removed one."""
        return np.where(np.asarray(self.kinds) == RowKind.INSERT, 1, -1)


def _hashed(changes: Changes, fields: Sequence[DataField], share: int, shares: int) -> Iterator[_Hashed]:
    for rows, kinds in changes:
        halves = np.stack([np.asarray(each) for each in row_hashes(rows.columns, fields)], axis=1)
        if shares > 1:
            mine = pa.array(halves[:, 0].view(np.uint64) % np.uint64(shares) == share)
            rows, kinds, halves = rows.filter(mine), kinds.filter(mine), halves[np.asarray(mine)]
        if rows.num_rows:
            hashes = pa.Array.from_buffers(_HASH, rows.num_rows, [None, pa.py_buffer(np.ascontiguousarray(halves))])
            yield _Hashed(rows, kinds, hashes)


@dataclass(slots=True)
class _Left:
    """The rows that do not cancel out: hashes, and the count of each; below zero: it was removed."""

    hashes: pa.Array
    counts: _Ints

    @classmethod
    def counted(cls, found: Iterator[_Hashed]) -> Self | None:
        """The remaining counts of all rows; None: all cancel out."""
        known = [(each.hashes, each.signs) for each in found]
        if not known:
            return None
        encoded = pa.chunked_array([hashes for hashes, _ in known]).combine_chunks().dictionary_encode()
        signs = np.concatenate([signs for _, signs in known])
        counts = np.zeros(len(encoded.dictionary), np.int64)
        np.add.at(counts, np.asarray(encoded.indices), signs)
        is_left = counts != 0
        return cls(encoded.dictionary.filter(pa.array(is_left)), counts[is_left]) if is_left.any() else None

    def of(self, found: Iterator[_Hashed]) -> Changes:
        """The first rows of each hash, as many as are left of it."""
        for each in found:
            places = pc.index_in(each.hashes, self.hashes)
            known = np.flatnonzero(np.asarray(places.is_valid()))
            at = np.asarray(places.fill_null(0))[known]
            fits = each.signs[known] == np.sign(self.counts[at])
            known, at = known[fits], at[fits]
            order = np.argsort(at, kind="stable")
            ranks = np.arange(len(order)) - np.searchsorted(at[order], at[order])  # among its equals
            chosen = order[ranks < np.abs(self.counts[at[order]])]
            np.subtract.at(self.counts, at[chosen], each.signs[known[chosen]])
            kept = pa.array(np.sort(known[chosen]))
            if len(kept):
                yield each.rows.take(kept), each.kinds.take(kept)
