import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.hashing.buckets import bucket_ids, key_hashes
from filestore.types.binary_row import encode_row
from filestore.types.data_types import DataType, arrow_type, parse_data_type
from lsm.errors import InvalidInputError
from tests.support.vectors import KEY_TYPES, PROPERTY, RowVector, row_vectors, values_of

VECTORS = [vector for vector in row_vectors() if vector.types]
INT = parse_data_type("INT")
STRING = parse_data_type("STRING")


def scalar_hash(data: bytes) -> int:
    """Murmur3 x86_32 with seed 42, word by word."""
    state, mask = 42, 0xFFFFFFFF
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        state ^= word * 0x1B873593 & mask
        state = (state << 13 | state >> 19) & mask
        state = (state * 5 + 0xE6546B64) & mask
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def oracle(rows: list[tuple[Any, ...]], types: tuple[DataType, ...]) -> list[int]:
    return [scalar_hash(encode_row(row, types)[4:]) for row in rows]


def columns_of(rows: list[tuple[Any, ...]], types: tuple[DataType, ...]) -> list[pa.Array]:
    return [pa.array([row[index] for row in rows], type=arrow_type(each)) for index, each in enumerate(types)]


@st.composite
def typed_tables(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], tuple[DataType, ...]]:
    types = tuple(draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4)))
    row = st.tuples(*(st.none() | values_of(each) for each in types))
    return draw(st.lists(row, min_size=1, max_size=40)), types


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_hash_and_bucket_are_javas(vector: RowVector) -> None:
    """FL-76, FL-77: the row's bucket, for its files and its log partition."""
    columns = columns_of([vector.values], vector.types)
    assert key_hashes(columns, vector.types).tolist() == [vector.hash]
    for count, bucket in vector.buckets.items():
        assert bucket_ids(columns, vector.types, count).tolist() == [bucket]


@pytest.mark.sweep
@PROPERTY
@given(typed_tables())
def test_columns_hash_like_single_rows(table: tuple[list[tuple[Any, ...]], tuple[DataType, ...]]) -> None:
    rows, types = table
    expected = oracle(rows, types)
    assert key_hashes(columns_of(rows, types), types).tolist() == expected
    for count in (1, 2, 7, 2**31 - 1):
        assert bucket_ids(columns_of(rows, types), types, count).tolist() == [abs(each) % count for each in expected]


@pytest.mark.sweep
@PROPERTY
@given(typed_tables(), st.data())
def test_slices_and_chunks_hash_like_whole_columns(
    table: tuple[list[tuple[Any, ...]], tuple[DataType, ...]], data: st.DataObject
) -> None:
    rows, types = table
    cut = data.draw(st.integers(0, len(rows)))
    columns = columns_of(rows, types)
    whole = key_hashes(columns, types)
    assert key_hashes([column.slice(cut) for column in columns], types).tolist() == whole[cut:].tolist()
    chunked = [pa.chunked_array([column.slice(0, cut), column.slice(cut)]) for column in columns]
    assert key_hashes(chunked, types).tolist() == whole.tolist()


def test_57_key_columns_have_two_words_of_null_bits() -> None:
    types = (parse_data_type("INT"),) * 56 + (STRING,)
    rows: list[tuple[Any, ...]] = [(1,) * 56 + (None,), (None,) * 57, (*range(56), "longer than seven")]
    assert key_hashes(columns_of(rows, types), types).tolist() == oracle(rows, types)


def test_texts_of_every_length_in_one_column() -> None:
    """Lengths from inside the slot to thousands of bytes, in falling, rising and mixed order, with nulls between."""
    texts = [None if length % 11 == 3 else "é" * (length // 2) + "x" * (length % 2) for length in range(300)]
    texts += ["y" * 5_000, "z" * 70_003, None, ""]
    rows = [(text,) for text in [*texts, *reversed(texts), *texts[::7]]]
    assert key_hashes(columns_of(rows, (STRING,)), (STRING,)).tolist() == oracle(rows, (STRING,))


def test_every_border_of_a_wide_decimal() -> None:
    wide = parse_data_type("DECIMAL(38, 0)")
    borders = [sign * (1 << bits) + shift for bits in range(126) for sign in (1, -1) for shift in (-1, 0, 1)]
    rows = [(Decimal(each),) for each in borders if abs(each) < 10**38]
    assert key_hashes(columns_of(rows, (wide,)), (wide,)).tolist() == oracle(rows, (wide,))


def test_more_rows_than_a_chunk() -> None:
    numbers = np.arange(100_000, dtype=np.int32)
    texts = pa.array([f"key-{number:09d}" for number in numbers.tolist()])
    hashes = key_hashes([pa.array(numbers), texts], (INT, STRING))
    for row in (0, 32_767, 32_768, 65_536, 99_999):
        assert [hashes[row]] == oracle([(row, f"key-{row:09d}")], (INT, STRING))


def test_int_and_bigint_hash_differently() -> None:
    column = pa.array([-5], pa.int64())
    assert key_hashes([column], (INT,)) != key_hashes([column], (parse_data_type("BIGINT"),))


def test_other_arrow_types_of_the_same_values_hash_alike() -> None:
    texts = pa.array(["a", None, "a longer text"])
    expected = key_hashes([texts], (STRING,)).tolist()
    for same in (texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())):
        assert key_hashes([same], (STRING,)).tolist() == expected


def test_no_rows_have_no_buckets() -> None:
    assert bucket_ids([pa.array([], pa.string())], (STRING,), 4).tolist() == []


def test_int_keys_1_to_6_of_two_buckets() -> None:
    """Section 5.2: only 3 goes to bucket 1."""
    assert bucket_ids([pa.array([1, 2, 3, 4, 5, 6], pa.int32())], (INT,), 2).tolist() == [0, 0, 1, 0, 0, 0]


def test_modulo_takes_the_floor() -> None:
    for text, arrow in (("INT", pa.int32()), ("BIGINT", pa.int64())):
        column = pa.array([-7, -1, 0, 1, 8], arrow)
        assert bucket_ids([column], (parse_data_type(text),), 5, function="mod").tolist() == [3, 4, 0, 1, 3]


@pytest.mark.parametrize(
    ("columns", "types", "count", "function", "says"),
    [
        ([pa.array([1])], (INT,), 0, "default", "bucket=0"),
        ([pa.array([1])], (INT,), 2, "hive", "hive"),
        ([pa.array(["a"])], (STRING,), 2, "mod", "INT or BIGINT"),
        ([pa.array([1, None], pa.int32())], (INT,), 2, "mod", "without nulls"),
        ([pa.array([1])], (INT, INT), 2, "default", "columns=1"),
        ([], (), 2, "default", "columns=0"),
        ([pa.array([1], pa.int32()), pa.array([], pa.int32())], (INT, INT), 2, "default", "lengths=[1, 0]"),
        ([pa.array([[1]])], (DataType(root="ARRAY", element=INT),), 2, "default", "ARRAY"),
        ([pa.array([2**40])], (INT,), 2, "default", "declared type"),
    ],
)
def test_wrong_requests_are_refused(
    columns: list[pa.Array], types: tuple[DataType, ...], count: int, function: str, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says.replace("[", r"\[").replace("]", r"\]")):
        bucket_ids(columns, types, count, function=function)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        (
            "DOUBLE",
            np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123, 0x7FF0000000000001], np.uint64),
        ),
        ("FLOAT", np.array([0x7FC00000, 0xFFC00000, 0x7FC00123, 0x7F800001], np.uint32)),
    ],
)
def test_all_nans_are_one_key_and_both_zeros_are_two(kind: str, bits: Any) -> None:
    """NumPy and DuckDB compute a NaN with the sign, ``float('nan')`` has none; Java's own has the first bits."""
    floats = np.float64 if kind == "DOUBLE" else np.float32
    types = (parse_data_type(kind),)
    nans = pa.array(np.append(bits.view(floats), floats(1)))
    hashes = key_hashes([nans], types).tolist()
    assert len({*hashes[:4]}) == 1
    assert hashes[0] != hashes[4]
    assert hashes[:1] == oracle([(float("nan"),)], types)
    assert len({encode_row([value], types) for value in bits.view(floats).tolist()}) == 1
    assert len({*key_hashes([pa.array(np.array([0.0, -0.0], floats))], types).tolist()}) == 2
    with_null = pa.array([None, float("nan"), None], arrow_type(types[0]))
    assert key_hashes([with_null], types).tolist()[1] == hashes[0]
