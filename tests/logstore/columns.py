"""Columns of every type that tables have, for properties: types, values in the internal domain, and back from Arrow."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

SCALAR_TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.decimal128(1, 0),
    pa.decimal128(18, 4),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.date32(),
    pa.time32("ms"),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
]
KEY_TYPES = [data_type for data_type in SCALAR_TYPES if not pa.types.is_floating(data_type)]


def field_names() -> st.SearchStrategy[str]:
    odd = st.sampled_from(
        ["before", "after", "op", "a.b", 'q"uote', "back\\slash", "ünïcode", "new\nline", "", "{", "payload"]
    )
    return st.one_of(st.sampled_from("abcdefgh"), odd)


def data_types() -> st.SearchStrategy[pa.DataType]:
    return st.recursive(st.sampled_from(SCALAR_TYPES), _nested_types, max_leaves=4)


def _nested_types(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.dictionaries(field_names(), inner, min_size=1, max_size=3).map(
        lambda fields: pa.struct(list(fields.items()))
    )
    return st.one_of(
        inner.map(pa.list_), structs, st.tuples(st.sampled_from(KEY_TYPES), inner).map(lambda pair: pa.map_(*pair))
    )


def schemas(types: st.SearchStrategy[pa.DataType] | None = None) -> st.SearchStrategy[pa.Schema]:
    fields = st.dictionaries(field_names(), data_types() if types is None else types, min_size=1, max_size=4)
    return fields.map(lambda named: pa.schema(list(named.items())))


def values(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null among them."""
    return st.none() | present(data_type)


def present(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(data_type):
        return st.fixed_dictionaries({field.name: values(field.type) for field in data_type})
    if pa.types.is_map(data_type):
        members = st.dictionaries(present(data_type.key_type), values(data_type.item_type), max_size=3)
        return members.map(lambda members: list(members.items()))
    if pa.types.is_list(data_type):
        return st.lists(values(data_type.value_type), max_size=3)
    return _scalars(data_type)


def _scalars(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_boolean(data_type):
        return st.booleans()
    if pa.types.is_floating(data_type):
        return st.floats(width=data_type.bit_width)
    if pa.types.is_string(data_type):
        return st.text(max_size=12) | st.sampled_from(
            ["NaN", '"', "\\", '\\"', '{"a":[1,', "\x00\x1f", "\n", "null", "😀", "1970-01-01"]
        )
    if pa.types.is_binary(data_type):
        return st.binary(max_size=20)
    if pa.types.is_decimal(data_type):
        limit = 10**data_type.precision - 1
        return st.integers(-limit, limit).map(lambda unscaled: Decimal(f"{unscaled}E{-data_type.scale}"))
    if pa.types.is_time(data_type):
        return st.integers(0, 86_399_999)
    bits = data_type.bit_width
    wide = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return wide | st.integers(-(1 << (bits // 2)), 1 << (bits // 2)) if bits > 8 else wide


def batches(schema: pa.Schema, *, min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[pa.RecordBatch]:
    rows = st.lists(
        st.fixed_dictionaries({field.name: values(field.type) for field in schema}),
        min_size=min_size,
        max_size=max_size,
    )
    return rows.map(lambda rows: batch_of(rows, schema))


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )


def internal(array: pa.Array) -> list[Any]:
    """Python values that compare: temporal values as integers, floats as exact texts (NaN, -0.0), maps as pairs."""
    data_type = array.type
    if pa.types.is_temporal(data_type):
        return array.view(pa.int32() if data_type.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(data_type):
        return [None if value is None else repr(value) for value in array.to_pylist()]
    if not pa.types.is_nested(data_type):
        return array.to_pylist()
    if pa.types.is_struct(data_type):
        children = [internal(child) for child in array.flatten()]
        rows = [dict(zip((field.name for field in data_type), row, strict=True)) for row in zip(*children, strict=True)]
    else:
        elements = (
            internal(array.values)
            if pa.types.is_list(data_type)
            else list(zip(internal(array.keys), internal(array.items), strict=True))
        )
        offsets = array.offsets.to_pylist()
        rows = [elements[start:end] for start, end in pairwise(offsets)]
    return [row if is_valid else None for row, is_valid in zip(rows, np.asarray(array.is_valid()), strict=True)]
