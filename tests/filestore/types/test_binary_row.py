from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from filestore.types.binary_row import EMPTY_ROW, decode_row, encode_row
from filestore.types.data_types import DataType, parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.vectors import PROPERTY, RowVector, row_vectors, typed_rows

VECTORS = row_vectors()

# Section 5.1 of the format notes: values as a person writes them, bytes without the blanks.
WRITTEN: list[tuple[tuple[Any, ...], tuple[str, ...], str]] = [
    ((), (), "00000000 0000000000000000"),
    ((1,), ("INT",), "00000001 0000000000000000 0100000000000000"),
    ((-1,), ("INT",), "00000001 0000000000000000 ffffffff00000000"),
    ((None,), ("INT",), "00000001 0001000000000000 0000000000000000"),
    ((-2,), ("TINYINT",), "00000001 0000000000000000 fe00000000000000"),
    ((300,), ("SMALLINT",), "00000001 0000000000000000 2c01000000000000"),
    ((1234567890123,), ("BIGINT",), "00000001 0000000000000000 cb04fb711f010000"),
    ((True,), ("BOOLEAN",), "00000001 0000000000000000 0100000000000000"),
    ((1.5,), ("FLOAT",), "00000001 0000000000000000 0000c03f00000000"),
    ((-2.25,), ("DOUBLE",), "00000001 0000000000000000 00000000000002c0"),
    ((19782,), ("DATE",), "00000001 0000000000000000 464d000000000000"),
    ((3723004,), ("TIME(3)",), "00000001 0000000000000000 fcce380000000000"),
    (("",), ("STRING",), "00000001 0000000000000000 0000000000000080"),
    (("abcdefg",), ("STRING",), "00000001 0000000000000000 6162636465666787"),
    (("abcdefgh",), ("STRING",), "00000001 0000000000000000 0800000010000000 6162636465666768"),
    (("héllo",), ("STRING",), "00000001 0000000000000000 68c3a96c6c6f0086"),
    ((b"\x01\x02",), ("BYTES",), "00000001 0000000000000000 0102000000000082"),
    ((Decimal("-1.25"),), ("DECIMAL(10,2)",), "00000001 0000000000000000 83ffffffffffffff"),
    (
        (Decimal("-1.28"),),
        ("DECIMAL(20,2)",),
        "00000001 0000000000000000 0100000010000000 80000000000000000000000000000000",
    ),
    ((None,), ("DECIMAL(20,2)",), "00000001 0001000000000000 0000000010000000 00000000000000000000000000000000"),
    (
        (Decimal(10**38 - 1),),
        ("DECIMAL(38,0)",),
        "00000001 0000000000000000 1000000010000000 4b3b4ca85a86c47a098a223fffffffff",
    ),
    ((1700000000123,), ("TIMESTAMP(3)",), "00000001 0000000000000000 7b68e5cf8b010000"),
    ((1700000000123456,), ("TIMESTAMP(6)",), "00000001 0000000000000000 40f5060010000000 7b68e5cf8b010000"),
    ((-1,), ("TIMESTAMP(6)",), "00000001 0000000000000000 583e0f0010000000 ffffffffffffffff"),
    ((None,), ("TIMESTAMP(6)",), "00000001 0001000000000000 0000000010000000 0000000000000000"),
    ((1700000000123456789,), ("TIMESTAMP(9)",), "00000001 0000000000000000 55f8060010000000 7b68e5cf8b010000"),
    (
        (None, "a" * 10),
        ("DECIMAL(20,2)", "STRING"),
        "00000002 0001000000000000 0000000018000000 0a00000028000000 " + "00" * 16 + "61" * 10 + "00" * 6,
    ),
]


def types_of(texts: tuple[str, ...]) -> tuple[DataType, ...]:
    return tuple(parse_data_type(text) for text in texts)


@pytest.mark.parametrize(("values", "types", "row"), WRITTEN)
def test_a_row_has_the_bytes_that_java_gives_it(values: tuple[Any, ...], types: tuple[str, ...], row: str) -> None:
    """FL-154: first and last keys, partitions and statistics are these bytes."""
    assert encode_row(values, types_of(types)).hex() == row.replace(" ", "")
    assert decode_row(bytes.fromhex(row), types_of(types)) == values


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_rows_of_java_come_back_byte_for_byte(vector: RowVector) -> None:
    assert encode_row(vector.values, vector.types) == vector.row


def test_all_vectors_are_there() -> None:
    assert len(VECTORS) == 36


@pytest.mark.sweep
@PROPERTY
@given(typed_rows(max_fields=70))
def test_decoding_undoes_encoding(row: tuple[tuple[Any, ...], tuple[DataType, ...]]) -> None:
    values, types = row
    data = encode_row(values, types)
    assert decode_row(data, types) == values
    assert len(data) % 8 == 4


def test_null_bits_go_on_in_a_second_word_after_56_fields() -> None:
    types = types_of(("INT",) * 57)
    row = encode_row((1,) * 56 + (None,), types)[4:]
    assert row[:16] == bytes(8) + b"\x01" + bytes(7)


def test_wide_nulls_without_reserve_decode_too() -> None:
    """Paimon 1.0 and pypaimon leave the reserved bytes out."""
    types = types_of(("DECIMAL(20,2)", "STRING"))
    row = bytes.fromhex("00000002 0001000000000000 0000000000000000 0a00000018000000" + "61" * 10 + "00" * 6)
    assert decode_row(row, types) == (None, "a" * 10)


def test_the_empty_row_is_twelve_zeros() -> None:
    assert encode_row((), ()) == EMPTY_ROW == bytes(12)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (128, "TINYINT"),
        (2**31, "INT"),
        ("text", "INT"),
        (Decimal("1.234"), "DECIMAL(10,2)"),
        (Decimal("1000"), "DECIMAL(3,0)"),
        (Decimal("NaN"), "DECIMAL(10,2)"),
        (2**70, "TIMESTAMP(3)"),
        ([1], "ARRAY"),
    ],
)
def test_values_that_do_not_fit_are_refused(value: object, data_type: str) -> None:
    kind = (
        DataType(root="ARRAY", element=parse_data_type("INT")) if data_type == "ARRAY" else parse_data_type(data_type)
    )
    with pytest.raises(InvalidInputError):
        encode_row((value,), (kind,))


@pytest.mark.parametrize(
    "row",
    [
        "",
        "00000001",
        "00000002 0000000000000000 0100000000000000",
        "00000001 0000000000000000 ff00000010000000 61",  # length leads out
        "00000001 0000000000000000 08000000ff000000 6162636465666768",  # offset leads out
        "00000001 0000000000000000 ffffffffffff0087",  # not UTF-8
    ],
)
def test_broken_rows_are_corrupt(row: str) -> None:
    with pytest.raises(CorruptDataError):
        decode_row(bytes.fromhex(row), types_of(("STRING",)))
