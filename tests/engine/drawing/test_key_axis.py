"""The axis of keys: a run over 95 % of the keys is drawn so, whatever the type of the key."""

import datetime as dt
import uuid
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drawing.key_axis import KeyAxis, Stretch
from engine.drawing.model import picture_of
from engine.drawing.page import box_sides
from filestore.types.data_types import DataField, DataType
from lsm.levels import Levels, SortedFile
from tests.support.tables import key_table, rows

BIGINT = DataField(id=0, name="id", type=DataType(root="BIGINT", nullable=False))
TEXT = DataField(id=0, name="id", type=DataType(root="VARCHAR", nullable=False, length=2**31 - 1))


def a_file(first: Any, last: Any, row_count: int = 10, level: int = 0, at: int = 0) -> SortedFile:
    return SortedFile(
        file_name=f"f{at}", level=level, size_bytes=1, row_count=row_count, delete_count=0, creation_time_ms=0,
        min_key=first if isinstance(first, tuple) else (first,), max_key=last if isinstance(last, tuple) else (last,),
        min_sequence_number=at, max_sequence_number=at,
    )  # fmt: skip


def spans(files: list[SortedFile], *fields: DataField) -> tuple[str, list[tuple[float, float]]]:
    """The scale, and the places of files in the order that they are given in."""
    axis = KeyAxis.of(Levels.of(files, level_count=8).runs, fields or (BIGINT,))
    found = [axis.span(each.min_key, each.max_key) for each in files]
    return axis.scale, [(round(first, 3), round(last, 3)) for first, last in found]


def test_numbers_are_placed_by_value() -> None:
    """The bucket that the finding showed: level 0 covers 95 % and more of the keys, and not a quarter."""
    files = [
        a_file(798, 19887, 14, at=3),
        a_file(16, 19900, 288, at=2),
        a_file(22, 19961, 141, at=1),
        a_file(6, 19986, 4023, level=4),
    ]
    assert spans(files) == ("value", [(0.04, 0.995), (0.001, 0.996), (0.001, 0.999), (0, 1)])


def test_neighbours_of_whole_numbers_touch() -> None:
    assert spans([a_file(1, 5, level=1), a_file(6, 10, level=1)]) == ("value", [(0, 0.5), (0.5, 1)])


def test_leading_columns_with_one_value_do_not_count() -> None:
    assert spans([a_file(("de", 0), ("de", 24)), a_file(("de", 25), ("de", 99), at=1)], TEXT, BIGINT) == (
        "value",
        [(0, 0.25), (0.25, 1)],
    )


def test_a_sliver_with_nearly_all_rows_is_shown_by_rows() -> None:
    """A single far key does not press all other files into one pixel."""
    files = [a_file(start, start + 99, 100, level=3) for start in range(0, 1000, 100)] + [
        a_file(10**12, 10**12, 1, at=1)
    ]
    scale, places = spans(files)
    assert scale == "rows"
    assert all(last - first > 0.09 for first, last in places[:-1])


def test_texts_are_placed_by_rows() -> None:
    random = Random(1)
    keys = sorted(str(uuid.UUID(int=random.getrandbits(128))) for _ in range(1000))
    files = [a_file(keys[0], keys[999], 1000, level=4), a_file(keys[25], keys[975], 30, at=1)]
    scale, [whole, part] = spans(files, TEXT)
    assert (scale, whole) == ("rows", (0, 1))
    assert part[1] - part[0] == pytest.approx(0.95, abs=0.02)
    bottom = [a_file(keys[start], keys[start + 99], 100, level=4) for start in range(0, 1000, 100)]
    scale, places = spans([*bottom, a_file(keys[0], keys[499], 5, at=1)], TEXT)
    assert places[-1] == pytest.approx((0, 0.5), abs=0.02)


def test_ranks_are_the_last_resort() -> None:
    assert spans([a_file("a", "b", 0), a_file("c", "d", 0, at=1)], TEXT) == ("rank", [(0, 0.429), (0.571, 1)])


def test_one_key_fills_the_axis() -> None:
    assert spans([a_file(7, 7), a_file(7, 7, at=1)]) == ("rows", [(0, 1), (0, 1)])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("2.00"), Decimal("3.00"), Decimal("5.00")]),
        (pa.float64(), [-1.0, 0.0, 1.0, 3.0]),
        (pa.date32(), [dt.date(2024, 1, day) for day in (1, 2, 3, 5)]),
        (pa.timestamp("us"), [dt.datetime(2024, 1, day) for day in (1, 2, 3, 5)]),
    ],
)
def test_every_number_and_time_has_its_value(kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([pa.field("id", kind, nullable=False)])
    table = key_table(schema=schema, bucket="1", **{"write-only": "true"})
    for part in (values[1:3], values):
        table.write(pa.table({"id": pa.array(part, kind)}, schema=schema))
    [bucket] = picture_of(table.store).buckets
    [[wide], [narrow]] = [[(box.first, box.last) for box in run.files] for run in bucket.runs]
    assert (bucket.scale, wide) == ("value", (0, 1))
    assert narrow == (pytest.approx((0.2, 0.6)) if kind == pa.date32() else pytest.approx((0.25, 0.5)))


def test_heat_counts_the_runs_of_a_read() -> None:
    table = key_table(bucket="1", **{"write-only": "true"})
    for keys in ((0, 99), (50, 74), (50, 59)):
        table.write(rows(*((key, 0) for key in keys)))
    [bucket] = picture_of(table.store).buckets
    assert bucket.overlap == (
        Stretch(start=0, end=0.5, runs=1),
        Stretch(start=0.5, end=0.6, runs=3),
        Stretch(start=0.6, end=0.75, runs=2),
        Stretch(start=0.75, end=1, runs=1),
    )
    assert bucket.mean_overlap == pytest.approx(0.5 + 0.3 + 0.3 + 0.25)


Ranges = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(0, 9)), min_size=1, max_size=8)


@given(Ranges, st.booleans())
def test_places_keep_the_order_of_keys(ranges: list[tuple[int, int, int]], is_text: bool) -> None:
    """For numbers and texts: order kept, disjoint stays disjoint, and heat is the count of runs with the key."""
    as_key: Any = (lambda value: f"{value + 50:03}") if is_text else (lambda value: value)
    files = [
        a_file(as_key(min(a, b)), as_key(max(a, b)), row_count, at=at) for at, (a, b, row_count) in enumerate(ranges)
    ]
    runs = Levels.of(files, level_count=8).runs
    axis = KeyAxis.of(runs, (TEXT if is_text else BIGINT,))
    borders = [float(each) for pair in zip(axis.lefts, axis.rights, strict=True) for each in pair]
    assert all(left <= right + 1e-12 for left, right in pairwise(borders))
    assert (borders[0], borders[-1]) == (pytest.approx(0), pytest.approx(1))
    heat = axis.overlap(runs)
    assert sum(each.end - each.start for each in heat) == pytest.approx(1)
    places = [axis.span(each.min_key, each.max_key) for each in files]
    for each in heat:
        point = each.start + 0.37 * (each.end - each.start)
        if all(abs(point - end) > 1e-6 for place in places for end in place):
            assert each.runs == sum(first < point < last for first, last in places)


@given(
    st.lists(st.floats(0, 1), max_size=60).map(lambda found: sorted(found)[: len(found) // 2 * 2]), st.integers(10, 400)
)
def test_boxes_are_wide_enough_and_apart(borders: list[float], width: int) -> None:
    places = list(zip(borders[::2], borders[1::2], strict=True))
    sides = box_sides(places, 5.0, 5.0 + width)
    assert all(left[1] <= right[0] + 1e-9 for left, right in pairwise(sides))
    for start, end in sides:
        assert 5 - 1e-6 <= start < end <= 5 + width + 1e-6
        assert end - start >= min(3.0, width / len(sides)) - 1e-6
