"""Key order."""

import math
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.errors import InvalidInputError
from lsm.keys.keys import comparable, internal_value, key_at, key_order, order_by_sequence, rows_before
from tests.lsm.key_columns import KEY_TYPES, by_key, compare_keys, java_compare, key_columns

LAWS = settings(max_examples=150, deadline=None, derandomize=True)


def test_floats_are_ordered_as_java_orders_them() -> None:
    values = [-math.inf, -2.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
    shuffled = [values[index] for index in (7, 3, 2, 5, 0, 6, 1, 4)]
    order, starts = key_order([pa.array(shuffled)], presorted=False)
    assert [repr(shuffled[row]) for row in order] == [repr(value) for value in values]
    assert starts.all()
    assert sorted(shuffled, key=comparable)[:3] == [-math.inf, -2.5, -0.0]


def test_every_nan_is_the_same_key() -> None:
    bits = np.array([0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0001, 0x7FF0_0000_0000_0001], np.uint64)
    _, starts = key_order([pa.array(bits.view(np.float64))], presorted=False)
    assert starts.tolist() == [True, False, False]


def test_a_zero_byte_is_more_than_the_end_of_a_string() -> None:
    texts = ["a\0", "a", "a\0\0", "", "\0", "a\0b"]
    order, starts = key_order([pa.array(texts)], presorted=False)
    assert [texts[row] for row in order] == ["", "\0", "a", "a\0", "a\0\0", "a\0b"]
    assert starts.all()


def test_strings_that_are_long_alike_are_told_apart() -> None:
    texts = ["p" * 300 + end for end in "cab"] + ["q" * 300 + end for end in "ba"]
    order, starts = key_order([pa.array(texts)], presorted=False)
    assert order.tolist() == [1, 2, 0, 4, 3]
    assert starts.all()


def test_values_are_given_in_the_unit_of_their_type() -> None:
    row = [
        pa.array([19_782], pa.date32()),
        pa.array([3_723_004], pa.time32("ms")),
        pa.array([1_709_210_096_789], pa.timestamp("ms")),
        pa.array([1_709_210_096_789_123], pa.timestamp("us", "UTC")),
        pa.array([1_709_210_096_789_123_456], pa.timestamp("ns")),
        pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        pa.array([b"\0\xff"]),
        pa.array([True]),
        pa.nulls(1, pa.date32()),
    ]
    assert [internal_value(column[0]) for column in row] == [
        19_782,
        3_723_004,
        1_709_210_096_789,
        1_709_210_096_789_123,
        1_709_210_096_789_123_456,
        Decimal("1.50"),
        b"\0\xff",
        True,
        None,
    ]


def test_a_float_key_equals_the_same_number_as_double() -> None:
    assert key_at([pa.array([1.5], pa.float32())], 0) == key_at([pa.array([1.5], pa.float64())], 0)


@pytest.mark.sweep
@LAWS
@given(key_columns(), st.booleans())
def test_the_order_is_that_of_a_stable_sort_of_tuples(
    drawn: tuple[list[pa.Array], list[tuple[Any, ...]]], presorted: bool
) -> None:
    columns, keys = drawn
    order, starts = key_order(columns, presorted=presorted)
    expected = sorted(range(len(keys)), key=lambda row: by_key(keys[row]))
    assert order.tolist() == expected
    changes = [compare_keys(keys[a], keys[b]) != 0 for a, b in pairwise(expected)]
    assert starts.tolist() == [True, *changes][: len(keys)]


@pytest.mark.sweep
@LAWS
@given(key_columns())
def test_a_slice_is_ordered_like_its_copy(drawn: tuple[list[pa.Array], list[tuple[Any, ...]]]) -> None:
    columns, keys = drawn
    sliced = [column.slice(1, max(len(keys) - 2, 0)) for column in columns]
    copied = [pa.array(column.to_pylist(), column.type) for column in sliced]
    assert key_order(sliced, presorted=False)[0].tolist() == key_order(copied, presorted=False)[0].tolist()


@pytest.mark.sweep
@LAWS
@given(key_columns())
def test_key_tuples_compare_like_the_columns(drawn: tuple[list[pa.Array], list[tuple[Any, ...]]]) -> None:
    columns, keys = drawn
    tuples = [key_at(columns, row) for row in range(len(keys))]
    assert sorted(range(len(keys)), key=lambda row: tuples[row]) == sorted(
        range(len(keys)), key=lambda row: by_key(keys[row])
    )


@pytest.mark.sweep
@LAWS
@given(key_columns(), st.data())
def test_rows_before_a_key_are_counted_by_search(
    drawn: tuple[list[pa.Array], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    columns, keys = drawn
    if not keys:
        return
    wanted = data.draw(st.integers(0, len(keys) - 1))
    order = pa.array(key_order(columns, presorted=False)[0])
    ordered = [column.take(order) for column in columns]
    signs = [compare_keys(key, keys[wanted]) for key in keys]
    assert rows_before(ordered, key_at(columns, wanted), inclusive=False) == sum(sign < 0 for sign in signs)
    assert rows_before(ordered, key_at(columns, wanted), inclusive=True) == sum(sign <= 0 for sign in signs)


@pytest.mark.sweep
@pytest.mark.parametrize("row_count", [1, 2, 1000, 70_000])
def test_many_rows_of_two_wide_columns_are_ordered_exactly(row_count: int) -> None:
    random = np.random.default_rng(row_count)
    numbers = random.integers(-(2**62), 2**62, 50)[random.integers(0, 50, row_count)]
    texts = [f"https://shop.example/{number % 97:05d}/{number % 7}" for number in random.integers(0, 10**6, row_count)]
    order, starts = key_order([pa.array(numbers), pa.array(texts)], presorted=False)
    expected = sorted(range(row_count), key=lambda row: (numbers[row], texts[row]))
    assert order.tolist() == expected
    assert int(starts.sum()) == len(set(zip(numbers.tolist(), texts, strict=True)))


def test_a_null_key_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a key is null: key_column_index=1 null_count=1"):
        key_order([pa.array([1, 2]), pa.array(["a", None])], presorted=False)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.month_day_nano_interval()])
def test_a_type_without_order_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="the type is not orderable"):
        key_order([pa.array([], kind)], presorted=False)


def test_null_is_the_oldest_sequence_in_both_directions() -> None:
    order, starts = np.arange(3), np.array([True, False, False])
    sequences = [pa.array([9, None, 3])]
    assert order_by_sequence(order, starts, sequences).tolist() == [1, 2, 0]
    assert order_by_sequence(order, starts, sequences, descending=True).tolist() == [1, 0, 2]


def test_rows_in_order_are_left_alone() -> None:
    order, starts = np.array([2, 0, 1]), np.array([True, True, False])
    assert order_by_sequence(order, starts, [pa.array([1, 2, 0])]) is order


@pytest.mark.sweep
@LAWS
@given(st.data())
def test_rows_of_a_key_are_sorted_by_all_sequences(data: st.DataObject) -> None:
    row_count = data.draw(st.integers(1, 30))
    names = data.draw(st.lists(st.sampled_from(sorted(set(KEY_TYPES) - {"fixed_binary"})), min_size=1, max_size=3))
    pools = [data.draw(st.lists(KEY_TYPES[name][1], min_size=1, max_size=4)) for name in names]
    values = [[data.draw(st.sampled_from([None, *pool])) for _ in range(row_count)] for pool in pools]
    descending = [data.draw(st.booleans()) for _ in names]
    keys = data.draw(st.lists(st.integers(0, 4), min_size=row_count, max_size=row_count))
    order, starts = key_order([pa.array(keys)], presorted=False)

    def is_newer(row: int, other: int) -> int:
        for column, is_descending in zip(values, descending, strict=True):
            left, right = column[row], column[other]
            if left is None or right is None:
                sign = int(left is not None) - int(right is not None)
            else:
                sign = java_compare(left, right) * (-1 if is_descending else 1)
            if sign:
                return sign
        return 0

    expected: list[int] = []
    for key in sorted(set(keys)):
        group: list[int] = []
        for row in (
            row for row in range(row_count) if keys[row] == key
        ):  # insertion sort: stable, and hard to get wrong
            place = len(group)
            while place and is_newer(group[place - 1], row) > 0:
                place -= 1
            group.insert(place, row)
        expected += group
    columns = [pa.array(column, KEY_TYPES[name][0]) for column, name in zip(values, names, strict=True)]
    assert order_by_sequence(order, starts, columns, descending=descending).tolist() == expected
