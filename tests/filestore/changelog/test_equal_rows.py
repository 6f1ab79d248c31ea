"""Removed and added rows that are equal cancel out, in whatever memory there is."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.changelog.equal_rows import without_equal_rows
from filestore.schema.schema_store import new_schema
from lsm.row_kind import RowKind

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
FIELDS = new_schema(SCHEMA, time_ms=0).fields
Row = tuple[int | None, tuple[float, ...] | None]

rows_of = st.lists(
    st.tuples(st.integers(0, 3) | st.none(), st.none() | st.tuples(st.sampled_from([0.0, -0.0, float("nan")]))),
    max_size=30,
)


def batches(removed: list[Row], added: list[Row], size: int) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    for rows, kind in ((removed, RowKind.DELETE), (added, RowKind.INSERT)):
        for start in range(0, len(rows), size):
            part = [{"a": a, "b": None if b is None else list(b)} for a, b in rows[start : start + size]]
            yield pa.RecordBatch.from_pylist(part, SCHEMA), pa.array(np.full(len(part), int(kind), np.int8))


@settings(max_examples=60, deadline=None)
@given(removed=rows_of, added=rows_of, size=st.integers(1, 9), budget=st.sampled_from([64, 200, 1 << 20]))
def test_what_is_left_is_the_difference_of_both_bags(
    removed: list[Row], added: list[Row], size: int, budget: int
) -> None:
    """NaN is equal to NaN, null to null, and 0.0 is not -0.0; a small budget takes more readings and gives the same."""
    readings = 0

    def read() -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        nonlocal readings
        readings += 1
        return batches(removed, added, size)

    count = len(removed) + len(added)
    found: dict[RowKind, Counter[str]] = {RowKind.DELETE: Counter(), RowKind.INSERT: Counter()}
    for rows, kinds in without_equal_rows(read, FIELDS, row_count=count, budget_bytes=budget):
        for row, kind in zip(rows.to_pylist(), kinds.to_pylist(), strict=True):
            found[RowKind(kind)][repr(row)] += 1
    one, two = (
        Counter(repr({"a": a, "b": None if b is None else list(b)}) for a, b in rows) for rows in (removed, added)
    )
    assert found == {RowKind.DELETE: one - two, RowKind.INSERT: two - one}
    assert readings <= 2 * max(1, -(-count * 64 // budget))


@pytest.mark.parametrize("budget", [1000, 1 << 20])
def test_of_equal_rows_the_first_ones_stay_in_their_order(budget: int) -> None:
    removed: list[Row] = [(1, None)]
    added: list[Row] = [(1, None), (2, None), (1, None), (2, None)]
    found = without_equal_rows(lambda: batches(removed, added, 2), FIELDS, row_count=5, budget_bytes=budget)
    assert [row["a"] for rows, _ in found for row in rows.to_pylist()] == [1, 2, 2]
