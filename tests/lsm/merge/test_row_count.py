"""Counts that are added up when rows of one key are merged."""

import numpy as np
import pyarrow as pa

from lsm.merge.row_count import RowCountSum
from lsm.row_kind import RowKind

INSERT, BEFORE, DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.DELETE


def counted_rows(*found: tuple[int, int, int, RowKind]) -> pa.Table:
    """Of key, sequence number, count and kind."""
    keys, numbers, counts, kinds = zip(*found, strict=True)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "_row_count": pa.array(counts, pa.int64()),
            "_SEQUENCE_NUMBER": pa.array(numbers, pa.int64()),
            "_VALUE_KIND": pa.array([int(kind) for kind in kinds], pa.int8()),
        }
    )


def merged(table: pa.Table, order: list[int], starts: list[bool], *, drop_deletes: bool) -> list[tuple[int, ...]]:
    found = RowCountSum().merge(table, np.array(order), np.array(starts), drop_deletes=drop_deletes)
    assert set(found["_VALUE_KIND"].to_pylist()) <= {int(INSERT)}
    return [(row["k"], row["_row_count"], row["_SEQUENCE_NUMBER"]) for row in found.to_pylist()]


def test_counts_are_summed_and_the_newest_number_stays() -> None:
    """FL-184: also those of other engines' retracts, which take away what they say."""
    table = counted_rows((2, 5, 3, INSERT), (1, 1, 2, INSERT), (1, 4, -2, INSERT), (2, 6, 1, DELETE), (3, 7, 4, BEFORE))
    order, starts = [1, 2, 0, 3, 4], [True, False, True, False, True]
    assert merged(table, order, starts, drop_deletes=False) == [(1, 0, 4), (2, 2, 6), (3, -4, 7)]
    assert merged(table, order, starts, drop_deletes=True) == [(2, 2, 6), (3, -4, 7)]  # below nothing is not nothing


def test_rows_alone_keep_their_count() -> None:
    """FL-184: a retract alone is a negative count, and one of 0 goes where nothing older is."""
    table = counted_rows((1, 1, 0, INSERT), (2, 2, 3, DELETE), (3, 3, 1, INSERT))
    kept = RowCountSum().single(table, drop_deletes=False)
    assert kept["_row_count"].to_pylist() == [0, -3, 1]
    left = RowCountSum().single(table, drop_deletes=True)
    assert list(zip(left["k"].to_pylist(), left["_row_count"].to_pylist(), strict=True)) == [(2, -3), (3, 1)]
    assert left["_VALUE_KIND"].to_pylist() == [0, 0]
