"""Many BinaryRows decoded as columns say what each says alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.types.binary_columns import decode_columns
from filestore.types.binary_row import encode_row
from filestore.types.data_types import DataType, arrow_type, parse_data_type
from lsm.errors import CorruptDataError
from lsm.keys.keys import internal_value
from tests.support.vectors import KEY_TYPES, PROPERTY, row_vectors, values_of


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], tuple[DataType, ...]]:
    types = tuple(draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4)))
    row = st.tuples(*(st.none() | values_of(each) for each in types))
    return draw(st.lists(row, max_size=6)), types


@pytest.mark.sweep
@given(tables())
@PROPERTY
def test_rows_come_back_as_columns(case: tuple[list[tuple[Any, ...]], tuple[DataType, ...]]) -> None:
    rows, types = case
    encoded = [encode_row(row, types) for row in rows]
    columns = decode_columns(encoded, types)
    assert [column.type for column in columns] == [arrow_type(each) for each in types]
    for at, body in enumerate(encoded):
        assert encode_row([internal_value(column[at]) for column in columns], types) == body


def test_rows_of_java_come_back() -> None:
    for vector in row_vectors():
        if vector.types:
            columns = decode_columns([vector.row, vector.row], vector.types)
            assert encode_row([internal_value(column[1]) for column in columns], vector.types) == vector.row


STRING = (parse_data_type("STRING"),)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        encode_row((1, 2), (parse_data_type("INT"),) * 2),
        encode_row(("a" * 20,), STRING)[:-8],
        encode_row(("a" * 20,), STRING).replace(b"\x10\x00\x00\x00", b"\xff\x00\x00\x00"),
        encode_row(("abc",), STRING).replace(b"abc", b"\xff\xff\xff"),
    ],
    ids=["empty", "more fields", "cut short", "offset out of it", "not UTF-8"],
)
def test_broken_rows_are_refused(row: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_columns([encode_row(("x",), STRING), row], STRING)
