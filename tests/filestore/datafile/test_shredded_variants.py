"""Shredded VARIANT values are put together to the bytes that an encoder of whole values gives."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from filestore.datafile.shredded_variants import put_together
from lsm.errors import CorruptDataError, InvalidInputError

Ids = Mapping[str, int]
NAMES = ("a", "b", "", "name", "ü", "z" * 70)


# ---- a dumb encoder of whole values, and a dumb shredder


def sized(number: int) -> int:
    return next(width for width in (1, 2, 3, 4) if number < 256**width)


def plain_values(value: Any, ids: Ids) -> bytes:
    """A value of JSON in the encoding of Parquet."""
    match value:
        case None | True | False:
            return bytes([{None: 0, True: 1, False: 2}[value] << 2])
        case int():
            width, kind = next(
                (w, k) for w, k in ((1, 3), (2, 4), (4, 5), (8, 6)) if -(256**w) // 2 <= value < 256**w // 2
            )
            return bytes([kind << 2]) + value.to_bytes(width, "little", signed=True)
        case str():
            text = value.encode()
            return (
                bytes([len(text) << 2 | 1]) + text
                if len(text) < 64
                else b"\x40" + len(text).to_bytes(4, "little") + text
            )
        case list():
            return container(3, [plain_values(each, ids) for each in value], b"", None)
        case dict():
            ordered = sorted(value.items(), key=lambda item: item[0].encode())
            width = sized(max((ids[name] for name, _ in ordered), default=0))
            places = b"".join(ids[name].to_bytes(width, "little") for name, _ in ordered)
            return container(2, [plain_values(each, ids) for _, each in ordered], places, width)
    raise AssertionError(value)


def container(kind: int, parts: Sequence[bytes], places: bytes, place_width: int | None) -> bytes:
    width, is_large = sized(sum(map(len, parts))), len(parts) > 255
    form = width - 1 | is_large << 2 if place_width is None else width - 1 | place_width - 1 << 2 | is_large << 4
    begun = [0, *accumulate(map(len, parts))]
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    return (
        bytes([form << 2 | kind])
        + count
        + places
        + b"".join(each.to_bytes(width, "little") for each in begun)
        + b"".join(parts)
    )


def list_of_names(ids: Ids) -> bytes:
    texts = [name.encode() for name in ids]
    width = sized(max(sum(map(len, texts)), len(texts)))
    begun = [0, *accumulate(map(len, texts))]
    numbers = [len(texts), *begun]
    return bytes([width - 1 << 6 | 1]) + b"".join(each.to_bytes(width, "little") for each in numbers) + b"".join(texts)


ABSENT = object()
FITS = {
    "int64": lambda each: type(each) is int,
    "string": lambda each: type(each) is str,
    "bool": lambda each: type(each) is bool,
}


def group_type(shape: Any) -> pa.DataType:
    """Of a group: ``shape`` is None, a type's name, a dict of fields, or a list of one shape."""
    fields = [pa.field("value", pa.binary())]
    match shape:
        case str():
            fields.append(pa.field("typed_value", pa.type_for_alias(shape)))
        case dict():
            inner = pa.struct([pa.field(name, group_type(each)) for name, each in shape.items()])
            fields.append(pa.field("typed_value", inner))
        case [each]:
            fields.append(pa.field("typed_value", pa.list_(group_type(each))))
    return pa.struct(fields)


def shredded(value: Any, shape: Any, ids: Ids) -> dict[str, Any]:
    """A value as a group."""
    if value is ABSENT:
        return {}
    match shape:
        case str() if FITS[shape](value):
            return {"typed_value": value}
        case dict() if isinstance(value, dict):
            rest = {name: each for name, each in value.items() if name not in shape}
            typed = {name: shredded(value.get(name, ABSENT), each, ids) for name, each in shape.items()}
            return {"typed_value": typed, **({"value": plain_values(rest, ids)} if rest else {})}
        case [inner] if isinstance(value, list):
            return {"typed_value": [shredded(each, inner, ids) for each in value]}
    return {"value": plain_values(value, ids)}


def column_of(values: Sequence[Any], shape: Any, ids: Sequence[Ids]) -> pa.StructArray:
    """A column as a file has it; ABSENT is a null."""
    kind = pa.struct([pa.field("metadata", pa.binary()), *group_type(shape)])
    rows = [
        None if value is ABSENT else {"metadata": list_of_names(of), **shredded(value, shape, of)}
        for value, of in zip(values, ids, strict=True)
    ]
    return pa.array(rows, kind)


# ---- laws

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200) | st.text("aü", max_size=70)
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
shapes = st.recursive(
    st.none() | st.sampled_from(sorted(FITS)),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=4) | st.tuples(inner).map(list),
    max_leaves=8,
)
orders = st.permutations(NAMES).map(lambda names: {name: place for place, name in enumerate(names)})


@pytest.mark.sweep
@settings(max_examples=100, deadline=None)
@given(st.data(), shapes)
def test_any_document_in_any_shape_is_put_together(data: st.DataObject, shape: Any) -> None:
    """Issue 19, 4: objects with fields in both places, absent fields, arrays, nulls; each row has names of its own."""
    rows = data.draw(st.lists(st.tuples(documents | st.just(ABSENT), orders), min_size=1, max_size=6))
    values, ids = [row[0] for row in rows], [row[1] for row in rows]
    wanted = [None if value is ABSENT else plain_values(value, of) for value, of in rows]
    column = column_of(values, shape, ids)
    assert put_together(column).to_pylist() == wanted
    assert put_together(column.slice(1)).to_pylist() == wanted[1:]
    for value, of, made in zip(values, ids, wanted, strict=True):  # the encoder above is right
        if made is not None:
            assert json.loads(VariantVal(made, list_of_names(of)).toJson()) == value


@pytest.mark.sweep
def test_containers_of_many_and_of_long_parts() -> None:
    """Numbers of 1 to 4 bytes: of parts, of places of names, of offsets."""
    for length, count in ((1, 10), (300, 10), (300, 280), (17_000_000, 1)):
        names = {f"n{number:05}": number for number in range(250 * count)}
        chosen = [*names][::250]
        value = {name: "x" * length for name in chosen} | {"n00001": ["y" * length] * count}
        column = column_of([value], {chosen[0]: "string", "n00001": ["string"]}, [names])
        assert put_together(column).to_pylist() == [plain_values(value, names)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-128, 127]),
        (pa.int16(), [-129, 32767]),
        (pa.int32(), [-(2**31), 40000]),
        (pa.int64(), [-(2**63), 2**63 - 1, 2**31]),
        (pa.float64(), [0.1, -1e300]),
        (pa.float32(), [0.5, -2.0]),
        (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
        (pa.decimal128(18, 0), [Decimal(10**9), Decimal(-(10**17))]),
        (pa.decimal128(38, 5), [Decimal("-1234567890123456789012.12345"), Decimal("1.5")]),
        (pa.date32(), [date(1, 1, 1), date(2026, 11, 28)]),
        (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 1, UTC), datetime(2026, 1, 2, tzinfo=UTC)]),
        (pa.timestamp("ms"), [datetime(1969, 12, 31), datetime(2026, 1, 2, 3, 4, 5, 6000)]),
        (pa.binary(), [b"", b"\x00\xff" * 50]),
        (pa.large_string(), ["", "x" * 63, "y" * 64]),
    ],
)  # fmt: skip
def test_every_type_has_its_value(kind: pa.DataType, values: list[Any]) -> None:
    """PySpark's reader gives back what went in."""
    typed = pa.array([*values, None], kind)
    parts = [pa.array([list_of_names({})] * len(typed)), pa.nulls(len(typed), pa.binary()), typed]
    column = pa.StructArray.from_arrays(parts, ["metadata", "value", "typed_value"])
    made = put_together(column.slice(0)).to_pylist()
    assert [VariantVal(each, list_of_names({})).toPython() for each in made] == [*values, None]
    assert put_together(column.slice(1)).to_pylist() == made[1:]


def test_a_uuid_and_a_time_have_their_bytes() -> None:
    uuid = UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")
    for typed, wanted in (
        (pa.array([uuid.bytes], pa.binary(16)), b"\x50" + uuid.bytes),
        (pa.array([5], pa.time32("ms")), b"\x44" + (5000).to_bytes(8, "little")),
        (pa.array([5], pa.timestamp("ns")), b"\x4c" + (5).to_bytes(8, "little")),
    ):
        column = pa.StructArray.from_arrays([pa.array([list_of_names({})]), typed], ["metadata", "typed_value"])
        assert put_together(column).to_pylist() == [wanted]


A: Ids = {"a": 0}
OBJECT = {"a": "int64"}


def broken(shape: Any, **parts: Any) -> pa.StructArray:
    row = {"metadata": list_of_names(A), **parts}
    return pa.array([row], pa.struct([pa.field("metadata", pa.binary()), *group_type(shape)]))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (broken("int64", value=plain_values(1, A), typed_value=1), "it has two values"),
        (broken(["int64"], value=plain_values([1], A), typed_value=[{"typed_value": 1}]), "it has two values"),
        (broken(OBJECT, value=plain_values(1, A), typed_value={}), "a value that is no object"),
        (broken(OBJECT, value=b"", typed_value={}), "a value is empty"),
        (
            broken(OBJECT, value=plain_values({"a": 1}, A)[:-3], typed_value={}),
            "it ends too early|outside of its value",
        ),
        (
            broken(OBJECT, value=plain_values({"a": 1}, A), typed_value={"a": {"typed_value": 1}}),
            "it has a field twice",
        ),
        (broken(OBJECT, value=plain_values({"a": 1}, {"a": 7}), typed_value={}), "a field has no name in its metadata"),
        (broken({"b": "int64"}, typed_value={"b": {"typed_value": 1}}), "lacks the name of a shredded field"),
        (broken("int64", metadata=None, typed_value=1), "it has no metadata"),
        (broken("int64", metadata=b"", typed_value=1), "it has no metadata"),
        (broken("int64", metadata=b"\x02\x00\x00", typed_value=1), "its metadata has another version"),
        (broken("int64", metadata=b"\x01\x05\x00", typed_value=1), "its metadata ends too early"),
        (broken("int64", metadata=b"\x01\x01\x00\x09a", typed_value=1), "its metadata ends too early"),
    ],
)
def test_what_does_not_fit_together_is_named(column: pa.StructArray, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=reason):
        put_together(column)


def test_an_object_of_which_nothing_is_there_is_empty_and_no_value_is_a_null() -> None:
    assert put_together(broken(OBJECT, typed_value={})).to_pylist() == [plain_values({}, A)]
    assert put_together(broken(OBJECT)).to_pylist() == [plain_values(None, A)]
    assert put_together(broken(["int64"], typed_value=[{}, {"typed_value": 1}])).to_pylist() == [
        plain_values([None, 1], A)
    ]
    assert put_together(broken(OBJECT).slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize("typed", [[{"a": 1}], [[1]]])
def test_parts_that_are_no_groups_are_refused(typed: list[Any]) -> None:
    parts = [pa.array([list_of_names(A)]), pa.array(typed)]
    with pytest.raises(CorruptDataError, match="a part is no group but int64"):
        put_together(pa.StructArray.from_arrays(parts, ["metadata", "typed_value"]))


def test_a_type_that_no_part_has_is_refused() -> None:
    parts = [pa.array([list_of_names(A)]), pa.array([1], pa.duration("s"))]
    with pytest.raises(InvalidInputError, match=r"no shredded VARIANT has parts of this type: type=duration\[s\]"):
        put_together(pa.StructArray.from_arrays(parts, ["metadata", "typed_value"]))
