"""Key columns of every type, and the plain Python order that the vectorised one must equal."""

import functools
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXT = st.builds(
    str.__add__,
    st.sampled_from(["", "abcdefgh", "abcdefgh" * 9, "x" * 70]),
    st.text("ab\0é\U0001f600", max_size=12),
)
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.5, 5e-324]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    unscaled = st.one_of(st.integers(-5, 5), st.integers(-limit, limit))
    return unscaled.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


KEY_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-3, 3)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))),
    "float32": (pa.float32(), st.sampled_from(FLOATS[:-1])),
    "float64": (pa.float64(), st.one_of(st.sampled_from(FLOATS), st.floats())),
    "string": (pa.string(), TEXT),
    "large_string": (pa.large_string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "fixed_binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "decimal9": (pa.decimal128(9, 2), _decimals(9, 2)),
    "decimal38": (pa.decimal128(38, 4), _decimals(38, 4)),
    "decimal70": (pa.decimal256(70, 0), _decimals(70, 0)),
    "date": (pa.date32(), st.integers(-100_000, 100_000)),
    "time": (pa.time32("ms"), st.integers(0, 86_399_999)),
    "timestamp_ms": (pa.timestamp("ms"), st.integers(-(10**12), 10**12)),
    "timestamp_us": (pa.timestamp("us", "UTC"), st.integers(-(10**15), 10**15)),
    "timestamp_ns": (pa.timestamp("ns"), st.integers(-5, 5)),
}


@st.composite
def key_columns(
    draw: st.DrawFn, *, max_rows: int = 40, max_columns: int = 3
) -> tuple[list[pa.Array], list[tuple[Any, ...]]]:
    """Some key columns, with many equal keys among them, and the same keys as tuples of values."""
    names = draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), min_size=1, max_size=max_columns))
    one_key = st.tuples(*(KEY_TYPES[name][1] for name in names))
    pool = draw(st.lists(one_key, min_size=1, max_size=max_rows // 2))
    keys = draw(st.lists(st.sampled_from(pool), max_size=max_rows))
    columns = [pa.array([key[index] for key in keys], KEY_TYPES[name][0]) for index, name in enumerate(names)]
    return columns, keys


def java_compare(left: Any, right: Any) -> int:
    """-1, 0 or 1, as the file format orders two values of one type."""
    if isinstance(left, float):
        left, right = (struct.unpack(">q", struct.pack(">d", math.nan if x != x else x))[0] for x in (left, right))
        # Two's complement of the magnitude: the textbook way, unlike the one under test.
        left, right = (x if x >= 0 else -(x & 0x7FFF_FFFF_FFFF_FFFF) - 1 for x in (left, right))
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return int(left > right) - int(left < right)


def compare_keys(left: Sequence[Any], right: Sequence[Any]) -> int:
    """-1, 0 or 1: column by column."""
    return next((sign for sign in map(java_compare, left, right) if sign), 0)


by_key = functools.cmp_to_key(compare_keys)
