"""The write buffer."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.memtable import MemTable
from lsm.merge.merge_function import Deduplicate
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, RowKind

LAWS = settings(max_examples=100, deadline=None, derandomize=True)


def arriving(keys: Sequence[int], values: Sequence[int | None], kinds: Sequence[RowKind] = ()) -> pa.RecordBatch:
    """Rows as a writer hands them over: no sequence numbers yet."""
    rows = {"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int32())}
    numbers = [int(kind) for kind in kinds] or [0] * len(keys)
    return pa.RecordBatch.from_pydict(rows | {VALUE_KIND: pa.array(numbers, pa.int8())})


def memtable(**options: object) -> MemTable:
    defaults = {"key_names": ["k"], "merge": Deduplicate(), "budget_bytes": 1000, "next_sequence_number": 10}
    return MemTable(**(defaults | options))  # type: ignore[arg-type]


def batch_tuples(batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int | None, int, int]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_rows_come_out_sorted_numbered_and_once_per_key() -> None:
    """FL-160, FL-161."""
    buffer = memtable()
    buffer.add(arriving([3, 1, 3], [30, 10, 31]))
    buffer.add(arriving([2, 1], [20, 11], [RowKind.INSERT, RowKind.UPDATE_AFTER]))
    (batch,) = buffer.flush()
    assert batch.schema.names == ["k", "v", SEQUENCE_NUMBER, VALUE_KIND]
    assert batch_tuples([batch]) == [(1, 11, 14, 2), (2, 20, 13, 0), (3, 31, 12, 0)]


def test_a_retract_is_kept_for_the_rows_it_takes_back_elsewhere() -> None:
    buffer = memtable()
    buffer.add(arriving([1, 1], [5, 5], [RowKind.INSERT, RowKind.DELETE]))
    assert batch_tuples(list(buffer.flush())) == [(1, 5, 11, 3)]


def test_a_flush_empties_the_table_and_numbers_go_on() -> None:
    buffer = memtable(next_sequence_number=0)
    assert list(buffer.flush()) == []
    buffer.add(arriving([1], [1]))
    buffer.add(arriving([], []))
    assert (buffer.row_count, buffer.next_sequence_number) == (1, 1)
    assert len(list(buffer.flush())) == 1
    assert (buffer.row_count, buffer.size_bytes, buffer.is_full) == (0, 0, False)
    buffer.add(arriving([1], [2]))
    assert batch_tuples(list(buffer.flush())) == [(1, 2, 1, 0)]


def test_the_table_says_when_its_budget_is_used_up() -> None:
    buffer = memtable(budget_bytes=2 * (8 + 4 + 8 + 1))
    buffer.add(arriving([1], [1]))
    assert not buffer.is_full
    buffer.add(arriving([2], [2]))
    assert buffer.is_full
    buffer.add(arriving([3], [3]))
    assert buffer.row_count == 3


def test_a_sequence_field_decides_which_row_is_newer() -> None:
    rows = arriving([1, 1, 1], [5, 9, None])
    for descending, expected in ((False, (1, 9, 11, 0)), (True, (1, 5, 10, 0))):
        buffer = memtable(sequence_names=["v"], sequence_descending=descending)
        buffer.add(rows)
        assert batch_tuples(list(buffer.flush())) == [expected]


def test_rows_of_a_key_are_merged_before_they_are_written() -> None:
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function="sum")})
    buffer = memtable(merge=merge)
    buffer.add(arriving([1, 1, 2], [5, 6, 7]))
    assert batch_tuples(list(buffer.flush())) == [(1, 11, 11, 0), (2, 7, 12, 0)]


@pytest.mark.parametrize("rows_per_batch", [1, 3, 1000])
def test_batches_are_as_large_as_asked_for(rows_per_batch: int) -> None:
    buffer = memtable()
    buffer.add(arriving(list(range(10)) * 2, list(range(20))))
    sizes = [batch.num_rows for batch in buffer.flush(rows_per_batch=rows_per_batch)]
    assert sum(sizes) == 10
    assert set(sizes[:-1]) <= {rows_per_batch}
    assert sizes[-1] <= rows_per_batch


@pytest.mark.sweep
@LAWS
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=20), max_size=4), st.integers(1, 5))
def test_a_flush_equals_a_dictionary(writes: list[list[tuple[int, int]]], rows_per_batch: int) -> None:
    buffer = memtable(next_sequence_number=0)
    expected: dict[int, tuple[int, int | None, int, int]] = {}
    number = 0
    for write in writes:
        buffer.add(
            arriving([key for key, _ in write], np.arange(len(write)) + number, [RowKind(kind) for _, kind in write])
        )
        for key, kind in write:
            expected[key] = (key, number, number, kind)
            number += 1
    assert buffer.next_sequence_number == number
    assert batch_tuples(list(buffer.flush(rows_per_batch=rows_per_batch))) == [
        expected[key] for key in sorted(expected)
    ]


def test_a_flush_gathers_no_more_bytes_at_a_time_than_it_may() -> None:
    """FL-144: wide rows are not gathered by tens of thousands."""
    buffer = memtable(budget_bytes=10**9)
    buffer.add(arriving(range(1000), range(1000)))
    row_bytes = buffer.size_bytes / 1000
    batches = list(buffer.flush(bytes_per_batch=int(row_bytes * 100)))
    assert [batch.num_rows for batch in batches] == [100] * 10
    assert [key for key, *_ in batch_tuples(batches)] == list(range(1000))


ARRIVED = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9), st.sampled_from(RowKind)), max_size=12),
    min_size=1,
    max_size=5,
)


@pytest.mark.sweep
@LAWS
@given(ARRIVED, st.sampled_from(["newest", "not deleted", "sequence", "sum", "reset"]))
def test_buffers_that_are_flushed_together_give_what_each_gives_alone(
    arrived: list[list[tuple[int, int | None, RowKind]]], kind: str
) -> None:
    """Issue 17 item 6: one sort for many small buckets."""
    options: dict[str, dict[str, object]] = {
        "newest": {},
        "not deleted": {"merge": Deduplicate(ignore_delete=True)},
        "sequence": {"sequence_names": ["v"]},
        "sum": {"merge": Aggregation(key_names=("k",), fields={"v": FieldAggregate(function="sum")})},
        "reset": {"resets_on_delete": True},
    }
    together, alone = ([memtable(next_sequence_number=n, **options[kind]) for n in range(len(arrived))] for _ in "12")
    for rows, *buffers in zip(arrived, together, alone, strict=True):
        batch = arriving([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
        for buffer in buffers:
            buffer.add(batch)
    expected = [batch_tuples(list(each.flush())) for each in alone]
    found = MemTable.flush_together([each for each in together if each.row_count]) if any(expected) else []
    if found is None:
        assert kind in ("reset", "not deleted")  # a key of deletes alone merges to nothing
        assert [batch_tuples(list(each.flush())) for each in together] == expected
        return
    assert [batch_tuples(each.to_batches()) for each in found] == [each for each in expected if each]
    assert all((each.row_count, each.size_bytes) == (0, 0) for each in together)
