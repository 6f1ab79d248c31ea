"""Laws of the JSON text of columns."""

import base64
import json
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.json.text import json_texts, object_texts
from lsm.errors import InvalidInputError
from tests.logstore.columns import batches, data_types, internal, schemas, values

few = settings(max_examples=100, deadline=None, derandomize=True)


class Number(str):
    """A JSON number as it is spelled."""

    __slots__ = ()


def parsed(text: str) -> Any:
    orjson.loads(text)  # the strictest parser at hand accepts it
    return json.loads(text, parse_float=Number, parse_int=Number)


def means(found: Any, value: Any, data_type: pa.DataType) -> bool:
    """Whether a parsed JSON value stands for an internal value: the dumb oracle."""
    if value is None:
        return found is None
    if pa.types.is_struct(data_type):
        return list(found) == [f.name for f in data_type] and all(
            means(found[f.name], value[f.name], f.type) for f in data_type
        )
    if pa.types.is_map(data_type):
        texts = list(found)
        if not pa.types.is_string(data_type.key_type):
            texts = [
                text if means(text, key, data_type.key_type) else Number(text)
                for text, (key, _) in zip(texts, value, strict=True)
            ]
            texts = [
                {"true": True, "false": False}.get(text, text) if pa.types.is_boolean(data_type.key_type) else text
                for text in texts
            ]
        pairs = zip(texts, found.values(), value, strict=True)
        return all(
            means(text, key, data_type.key_type) and means(item, member, data_type.item_type)
            for text, item, (key, member) in pairs
        )
    if pa.types.is_list(data_type):
        return len(found) == len(value) and all(
            means(*pair, data_type.value_type) for pair in zip(found, value, strict=True)
        )
    if pa.types.is_boolean(data_type) or pa.types.is_string(data_type):
        return type(found) is type(value) and found == value
    if pa.types.is_binary(data_type):
        return base64.b64decode(found, validate=True) == value
    if pa.types.is_floating(data_type):
        if value in ("nan", "inf", "-inf"):
            return found == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[value] and not isinstance(
                found, Number
            )
        return isinstance(found, Number) and repr(float(np.dtype(data_type.to_pandas_dtype()).type(found))) == value
    if pa.types.is_temporal(data_type):
        return not isinstance(found, Number) and moment(found, data_type) == value
    return isinstance(found, Number) and Decimal(found) == value


def moment(text: str, data_type: pa.DataType) -> int:
    """Internal value of a date, time or timestamp text, by NumPy's own parser."""
    if pa.types.is_time(data_type):
        return int((np.datetime64("1970-01-01T" + text) - np.datetime64("1970-01-01")) / np.timedelta64(1, "ms"))
    unit = "D" if pa.types.is_date(data_type) else data_type.unit
    assert text.endswith("Z") == (pa.types.is_timestamp(data_type) and data_type.tz is not None)
    return int(np.datetime64(text.removesuffix("Z").replace(" ", "T"), unit).astype(np.int64))


@pytest.mark.sweep
@few
@given(st.data())
def test_every_value_of_every_type_is_written_as_json_that_means_it(data: st.DataObject) -> None:
    """FL-121: any JSON parser reads the log's text."""
    data_type = data.draw(data_types())
    array = pa.array(data.draw(st.lists(values(data_type), max_size=8)), data_type)
    texts = json_texts(array)
    assert texts.type == pa.string()
    texts.validate(full=True)
    for text, value in zip(texts.to_pylist(), internal(array), strict=True):
        assert text is None if value is None else means(parsed(text), value, data_type)


@pytest.mark.sweep
@few
@given(st.data())
def test_an_object_per_row_has_every_column_in_order(data: st.DataObject) -> None:
    batch = data.draw(batches(data.draw(schemas()), min_size=1))
    texts = object_texts(batch.schema.names, batch.columns)
    rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    for text, row in zip(texts.to_pylist(), internal(rows), strict=True):
        assert means(parsed(text), row, rows.type)


@pytest.mark.sweep
@few
@given(st.data())
def test_slices_and_chunks_are_written_as_what_they_show(data: st.DataObject) -> None:
    data_type = data.draw(data_types())
    array = pa.array(data.draw(st.lists(values(data_type), min_size=3, max_size=9)), data_type)
    whole = json_texts(array).to_pylist()
    assert json_texts(array.slice(1, len(array) - 2)).to_pylist() == whole[1:-1]
    assert json_texts(pa.chunked_array([array.slice(0, 2), array.slice(2)])).to_pylist() == whole
    assert json_texts(array.slice(2, 0)).to_pylist() == []


STORED = [
    (["a", None, "ü"], pa.string(), [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]),
    ([b"a", None, b"\xff"], pa.binary(), [pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]),
    ([b"ab", None], pa.binary(), [pa.binary(2)]),
    ([[1], None, [2, None], []], pa.list_(pa.int64()), [pa.large_list(pa.int64())]),
    ([[1, 2], None], pa.list_(pa.int64()), [pa.list_(pa.int64(), 2)]),
    ([1, None], pa.int64(), [pa.uint8(), pa.uint64(), pa.dictionary(pa.int8(), pa.int64())]),
    ([Decimal("1.50"), None], pa.decimal128(5, 2), [pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal256(5, 2)]),
]


@pytest.mark.parametrize(
    ("plain", "stored"),
    [(pa.array(v, t), pa.array(v, o)) for v, t, others in STORED for o in others],
    ids=lambda a: str(a.type),
)
def test_how_arrow_stores_a_column_does_not_show(plain: pa.Array, stored: pa.Array) -> None:
    assert json_texts(stored).to_pylist() == json_texts(plain).to_pylist()
    assert json_texts(stored.slice(1)).to_pylist() == json_texts(plain).to_pylist()[1:]


def test_a_slice_of_a_large_dictionary_and_nulls_inside_of_one() -> None:
    large = pa.array([f'"{number}' for number in range(1000)]).dictionary_encode().slice(998, 2)
    assert json_texts(large).to_pylist() == ['"\\"998"', '"\\"999"']
    with_null = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1], pa.int8()), pa.array([None, "x"]))
    assert json_texts(with_null).to_pylist() == ['"x"', None, None, '"x"']
    assert json_texts(pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None])).to_pylist() == ['"a"', '"a"', None]


LITERALS = [
    (pa.array([True, False, None]), ["true", "false", None]),
    (pa.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
    (
        pa.array([0.1, 1e22, float("nan"), float("inf"), float("-inf")]),
        ["0.1", "1e+22", '"NaN"', '"Infinity"', '"-Infinity"'],
    ),
    (pa.array([0.1, 16777216.0], pa.float32()), ["0.1", "16777216"]),
    (pa.array([1.5], pa.float16()), ["1.5"]),
    (pa.array([Decimal("1E-12"), Decimal("-2.5")], pa.decimal128(20, 12)), ["1E-12", "-2.500000000000"]),
    (pa.array(['a"b\\c\n\t\x01\x7f\u2028é😀', ""]), ['"a\\"b\\\\c\\n\\t\\u0001\x7f\u2028é😀"', '""']),
    (pa.array([b"hello", b"", None]), ['"aGVsbG8="', '""', None]),
    (pa.array([b"x" * 2000, None]), ['"' + base64.b64encode(b"x" * 2000).decode() + '"', None]),
    (
        pa.array([0, 18263, 2932897, -719529], pa.date32()),
        ['"1970-01-01"', '"2020-01-02"', '"+10000-01-01"', '"-0001-12-31"'],
    ),
    (pa.array([86_400_000], pa.date64()), ['"1970-01-02"']),
    (pa.array([11045678], pa.time32("ms")), ['"03:04:05.678"']),
    (pa.array([1577934245123456], pa.timestamp("us")), ['"2020-01-02 03:04:05.123456"']),
    (pa.array([1577934245123], pa.timestamp("ms")), ['"2020-01-02 03:04:05.123"']),
    (pa.array([1577934245], pa.timestamp("s")), ['"2020-01-02 03:04:05"']),
    (pa.array([1577934245123456], pa.timestamp("us", "UTC")), ['"2020-01-02 03:04:05.123456Z"']),
    (pa.array([1577934245123456], pa.timestamp("us", "Asia/Tokyo")), ['"2020-01-02 03:04:05.123456Z"']),
    (pa.array([253402300800000000], pa.timestamp("us")), ['"+10000-01-01 00:00:00.000000"']),
    (pa.array([-(2**63)], pa.timestamp("s")), ['"-292277022657-01-27 08:29:52"']),
    (pa.array([[1, None], [], None]), ["[1,null]", "[]", None]),
    (pa.array([["a", None, 'b"']]), ['["a",null,"b\\""]']),
    (pa.array([{"k": 1, "t": ["x"]}, None]), ['{"k":1,"t":["x"]}', None]),
    (pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64())), ['{"a":1,"b":null}', "{}", None]),
    (pa.array([[(1, "x")], [(None, "y")][:0]], pa.map_(pa.int32(), pa.string())), ['{"1":"x"}', "{}"]),
    (pa.array([[(float("nan"), 1), (2.5, 2)]], pa.map_(pa.float64(), pa.int64())), ['{"NaN":1,"2.5":2}']),
    (pa.nulls(2), [None, None]),
    (pa.array([{}, {}], pa.struct([])), ["{}", "{}"]),
]


@pytest.mark.parametrize(
    ("array", "texts"), LITERALS, ids=lambda value: str(value.type) if isinstance(value, pa.Array) else ""
)
def test_values_are_spelled_as_flink_spells_them(array: pa.Array, texts: list[str | None]) -> None:
    """FL-121, FL-124: the scalars of Flink's JSON format."""
    assert json_texts(array).to_pylist() == texts


def test_what_stands_around_the_objects_may_differ_by_row() -> None:
    ids, names = pa.array([1, 2]), pa.array(["a", None])
    assert object_texts(["id", "n"], [ids, names], prefix="<", suffix=">").to_pylist() == [
        '<{"id":1,"n":"a"}>',
        '<{"id":2,"n":null}>',
    ]
    by_row = object_texts(["n", "id"], [names, ids], prefix=pa.array(["a", "b"]), suffix=pa.array(["", "!"]))
    assert by_row.to_pylist() == ['a{"n":"a","id":1}', 'b{"n":null,"id":2}!']
    assert object_texts(['q"\n'], [names]).to_pylist() == ['{"q\\"\\n":"a"}', '{"q\\"\\n":null}']


@pytest.mark.parametrize(
    ("array", "fact"),
    [
        (pa.array([1], pa.duration("s")), "type=duration"),
        (pa.array([[([1], 1)]], pa.map_(pa.list_(pa.int64()), pa.int64())), "map key must be a scalar"),
        (pa.array([86_400_000], pa.int32()).view(pa.time32("ms")), "outside of the day"),
    ],
    ids=["duration", "map key", "time"],
)
def test_what_json_cannot_hold_is_refused(array: pa.Array, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        json_texts(array)
