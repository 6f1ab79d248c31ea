"""Rows in pieces by bytes (FL-144)."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.byte_sizes import pieces_within, release_after, rows_within


@pytest.mark.sweep
@given(st.lists(st.text(max_size=50), max_size=40), st.integers(1, 400))
def test_pieces_are_the_rows_in_order_and_small_or_single(values: list[str], most: int) -> None:
    rows = pa.table({"v": pa.array(values, pa.string())})
    pieces = list(pieces_within(rows, most))
    assert [value for piece in pieces for value in piece.column("v").to_pylist()] == values
    assert all(piece.num_rows == 1 or 0 < piece.nbytes <= most for piece in pieces)


def test_rows_that_fit_are_one_piece() -> None:
    [piece] = pieces_within(pa.record_batch({"v": pa.array(range(1000), pa.int64())}), 8000)
    assert piece.num_rows == 1000


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 100), (10, 100), (20, 50), (30, 33), (1000, 1), (5000, 1)])
def test_rows_within_both_limits(row_bytes: float, rows: int) -> None:
    assert rows_within(row_bytes, most_rows=100, most_bytes=1000) == rows


def test_memory_of_wide_rows_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Pool:
        def release_unused(self) -> None:
            calls.append(1)

    monkeypatch.setattr(pa, "default_memory_pool", Pool)
    release_after(100)
    assert calls == []
    release_after(1_000_000)
    assert calls == [1]
