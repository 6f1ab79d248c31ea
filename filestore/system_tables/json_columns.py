"""Columns as JSON text, computed column-wise: keys and statistics of any type in one string column."""

import base64
from collections.abc import Mapping, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc


def json_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """One JSON object per row, for example ``{"id":1,"dt":"2020-08-08"}``.

    Args:
        columns: (n,) each, at least one; null becomes JSON null.

    Returns:
        (n,) string, no nulls.
    """
    parts: list[pa.Array | str] = []
    for name, column in columns.items():
        parts += [f"{',' if parts else '{'}{orjson.dumps(name).decode()}:", json_values(column)]
    return pc.binary_join_element_wise(*parts, "}", "")


def json_values(column: pa.Array) -> pa.Array:
    """Each value as JSON: numbers and booleans as literals, bytes as base64, anything else as quoted text.

    NaN and infinity, which JSON lacks, are quoted too.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        plain = column.cast(pa.string())
        texts = pc.if_else(pc.is_finite(column), plain, _quoted(plain))
    elif pa.types.is_binary(kind):
        encoded = [None if each is None else base64.b64encode(each).decode() for each in column.to_pylist()]
        texts = _quoted(pa.array(encoded, pa.string()))
    elif pa.types.is_string(kind):
        texts = _escaped(column)
    elif pa.types.is_null(kind) or pa.types.is_nested(kind):
        texts = pa.nulls(len(column), pa.string())
    else:
        texts = _quoted(column.cast(pa.string()))
    return pc.fill_null(texts, "null")


def json_text(value: object) -> str:
    """One value as compact JSON."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def json_lists(lists: Sequence[Sequence[int | None] | None]) -> pa.Array:
    """Lists of numbers as JSON; None becomes null."""
    return pa.array([None if each is None else json_text(list(each)) for each in lists], pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _escaped(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f\\\"]")).as_py():
        return pa.array([None if each is None else json_text(each) for each in texts.to_pylist()], pa.string())
    return _quoted(texts)
