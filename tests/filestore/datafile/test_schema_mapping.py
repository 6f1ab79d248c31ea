"""Old files in today's schema: by field id, whatever the names; and what a changed type makes of old values."""

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from filestore.datafile.schema_mapping import Newer, map_ranges, map_schema
from filestore.format.statistics import ColumnRange
from filestore.types.casts import can_cast, cast_array, keeps_order
from filestore.types.data_types import DataField, DataType, arrow_type, parse_data_type, parse_field
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.samples import schema_of


def fields_of(*columns: tuple[int, str, Any]) -> tuple[DataField, ...]:
    return tuple(parse_field({"id": number, "name": name, "type": kind}) for number, name, kind in columns)


def row_type(*columns: tuple[int, str, Any]) -> Mapping[str, Any]:
    return {"type": "ROW", "fields": [{"id": number, "name": name, "type": kind} for number, name, kind in columns]}


def batch_of(fields: tuple[DataField, ...], rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [pa.array([row.get(field.name) for row in rows], arrow_type(field.type)) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def read_as(old: tuple[DataField, ...], new: tuple[DataField, ...], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that were written with one schema, read with another; from a slice, as batches often are."""
    padded = batch_of(old, [{}, *rows, {}])
    found = map_schema(old, new).apply(padded.slice(1, len(rows)))
    found.validate(full=True)
    assert [field.type for field in found.schema] == [arrow_type(field.type) for field in new]
    return list(found.to_pylist())


def test_columns_are_matched_by_id() -> None:
    """Source: paimon-format.md section 2: renamed, moved, dropped, added, and a dropped name used again."""
    old = fields_of((0, "a", "INT"), (1, "b", "STRING"), (2, "c", "DOUBLE"))
    new = fields_of((3, "c", "STRING"), (1, "bb", "STRING"), (0, "a", "INT"))
    assert read_as(old, new, [{"a": 1, "b": "x", "c": 0.5}]) == [{"c": None, "bb": "x", "a": 1}]


def test_a_column_with_a_default_is_null_in_older_files() -> None:
    """Defaults are for writing: other readers give null as well."""
    added = replace(fields_of((1, "b", "INT"))[0], default_value="7")
    assert read_as(fields_of((0, "a", "INT")), (added,), [{"a": 1}]) == [{"b": None}]


def test_a_file_may_lack_a_column_of_its_own_schema() -> None:
    fields = fields_of((0, "a", "INT"), (1, "b", "INT"))
    rows = pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], ["a"])
    assert map_schema(fields, fields).apply(rows).to_pylist() == [{"a": 1, "b": None}]


def test_fields_inside_rows_lists_and_maps_are_matched_by_id() -> None:
    old_row = row_type((10, "x", "INT"), (11, "y", "STRING"), (12, "gone", "INT"))
    new_row = row_type((13, "added", "DOUBLE"), (11, "why", "STRING"), (10, "x", "BIGINT"))
    old = fields_of(
        (0, "r", old_row),
        (1, "l", {"type": "ARRAY", "element": old_row}),
        (2, "m", {"type": "MAP", "key": "INT", "value": old_row}),
    )
    new = fields_of(
        (0, "r", new_row),
        (1, "l", {"type": "ARRAY", "element": new_row}),
        (2, "m", {"type": "MAP", "key": "BIGINT", "value": new_row}),
    )
    value, read = {"x": 1, "y": "q", "gone": 9}, {"added": None, "why": "q", "x": 1}
    rows = [
        {"r": value, "l": [value, None], "m": [(5, value), (6, None)]},
        {"r": None, "l": None, "m": None},
        {"r": {"x": None, "y": None, "gone": None}, "l": [], "m": []},
    ]
    assert read_as(old, new, rows) == [
        {"r": read, "l": [read, None], "m": [(5, read), (6, None)]},
        {"r": None, "l": None, "m": None},
        {"r": {"added": None, "why": None, "x": None}, "l": [], "m": []},
    ]


def test_nothing_is_copied_when_nothing_changed() -> None:
    fields = fields_of((0, "a", "INT"), (1, "r", row_type((2, "x", "INT"))))
    rows = batch_of(fields, [{"a": 1, "r": {"x": 1}}])
    mapping = map_schema(fields, fields)
    assert mapping.apply(rows).column("a").buffers()[1].address == rows.column("a").buffers()[1].address
    assert [field.name for field in mapping.file_fields] == ["a", "r"]


def test_values_outside_the_declared_type_are_corrupt() -> None:
    fields = fields_of((0, "a", "INT"))
    rows = pa.RecordBatch.from_arrays([pa.array([2**40])], ["a"])
    with pytest.raises(CorruptDataError, match="column=a"):
        map_schema(fields, fields).apply(rows)


def test_lists_of_other_shapes_are_read_as_declared() -> None:
    fields = fields_of((0, "l", {"type": "ARRAY", "element": row_type((1, "x", "INT"))}))
    inner = pa.struct([("x", pa.int64()), ("more", pa.string())])
    stored = pa.array([[{"x": 1, "more": "q"}], None], pa.large_list(inner))
    rows = pa.RecordBatch.from_arrays([stored], ["l"])
    assert map_schema(fields, fields).apply(rows).to_pylist() == [{"l": [{"x": 1}]}, {"l": None}]


def test_nested_types_do_not_become_atomic() -> None:
    old, new = fields_of((0, "r", row_type((1, "x", "INT")))), fields_of((0, "r", "STRING"))
    with pytest.raises(InvalidInputError, match="new type"):
        map_schema(old, new).apply(batch_of(old, [{"r": {"x": 1}}]))


def test_ranges_follow_their_columns() -> None:
    """FL-181: pruning by statistics of an older schema."""
    texts = {"kept": pa.int32(), "wider": pa.int32(), "changed": pa.int32(), "dropped": pa.int32()}
    old = schema_of(texts)
    fields = fields_of((1, "wide", "BIGINT"), (0, "renamed", "INT"), (2, "changed", "STRING"), (9, "added", "INT"))
    new = replace(old, id=1, fields=fields)
    part = ColumnRange(min=1, max=10, null_count=0)
    assert map_ranges(dict.fromkeys(texts, part), old, new, 7) == {
        "renamed": part,
        "wide": part,
        "added": ColumnRange(null_count=7),
    }


MS = 1_709_210_096_789  # 2024-02-29 12:34:56.789
CASTS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("INT", "BIGINT", [1, None], [1, None]),
    ("BIGINT", "INT", [2**32 + 5, -1], [5, -1]),
    ("INT", "TINYINT", [300, -129], [44, 127]),
    ("INT", "DOUBLE", [3], [3.0]),
    ("DOUBLE", "INT", [1.9, -1.9, math.nan, 1e300, -math.inf, None], [1, -1, 0, 2**31 - 1, -(2**31), None]),
    ("DOUBLE", "BIGINT", [2.0**63, -(2.0**63), 2.0**53], [2**63 - 1, -(2**63), 2**53]),
    ("FLOAT", "SMALLINT", [70000.0], [4464]),
    ("FLOAT", "DOUBLE", [0.5], [0.5]),
    ("INT", "DECIMAL(12, 2)", [7, None], [Decimal("7.00"), None]),
    ("INT", "DECIMAL(4, 2)", [99, 100], [Decimal("99.00"), None]),
    ("DECIMAL(10, 2)", "DECIMAL(12, 3)", [Decimal("1.25")], [Decimal("1.250")]),
    ("DECIMAL(10, 3)", "DECIMAL(10, 2)", [Decimal("1.255"), Decimal("-1.255")], [Decimal("1.26"), Decimal("-1.26")]),
    ("DECIMAL(10, 2)", "DECIMAL(3, 2)", [Decimal("9.99"), Decimal("10.00")], [Decimal("9.99"), None]),
    ("DECIMAL(38, 0)", "DECIMAL(38, 10)", [Decimal(10) ** 27, Decimal(10) ** 28], [Decimal(10) ** 27, None]),
    ("DOUBLE", "DECIMAL(5, 2)", [1.005, math.nan, 1e10], [Decimal("1.01"), None, None]),
    ("DECIMAL(10, 2)", "INT", [Decimal("-1.99"), None], [-1, None]),
    ("DECIMAL(10, 0)", "TINYINT", [Decimal(300)], [44]),
    ("DECIMAL(10, 2)", "DOUBLE", [Decimal("1.25")], [1.25]),
    ("BOOLEAN", "INT", [True, False], [1, 0]),
    ("INT", "BOOLEAN", [2, 0, None], [True, False, None]),
    ("INT", "STRING", [5, None], ["5", None]),
    ("BOOLEAN", "STRING", [True], ["true"]),
    ("DOUBLE", "STRING", [1e10, 1.0, math.nan], ["1.0E10", "1.0", "NaN"]),
    ("DECIMAL(10, 7)", "STRING", [Decimal("0.0000001")], ["0.0000001"]),
    ("DATE", "STRING", [19782], ["2024-02-29"]),
    ("TIMESTAMP(3)", "STRING", [MS], ["2024-02-29 12:34:56.789"]),
    ("TIMESTAMP(0)", "STRING", [MS - 789], ["2024-02-29 12:34:56"]),
    ("TIME(3)", "STRING", [3_723_004], ["01:02:03.004"]),
    ("STRING", "VARCHAR(2)", ["éàx", "a"], ["éà", "a"]),
    ("STRING", "CHAR(3)", ["a"], ["a  "]),
    ("BYTES", "STRING", ["é".encode()], ["é"]),
    ("STRING", "BYTES", ["é"], ["é".encode()]),
    ("BYTES", "VARBINARY(2)", [b"abc"], [b"ab"]),
    ("BYTES", "BINARY(3)", [b"a"], [b"a\0\0"]),
    ("STRING", "INT", [" 5 ", None], [5, None]),
    ("STRING", "DOUBLE", ["1.5"], [1.5]),
    ("STRING", "DECIMAL(5, 2)", ["1.005", "1e5"], [Decimal("1.01"), None]),
    ("STRING", "BOOLEAN", ["Yes", "0", None], [True, False, None]),
    ("STRING", "DATE", ["2024-02-29"], [19782]),
    ("STRING", "TIMESTAMP(3)", ["2024-02-29 12:34:56.7891"], [MS]),
    ("STRING", "TIME(3)", ["01:02:03.004"], [3_723_004]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [1_999, -1], [1, -1]),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", [1], [1_000]),
    ("TIMESTAMP(3)", "TIMESTAMP(0)", [1_999, -1], [1_000, -1_000]),
    ("TIMESTAMP(6)", "TIMESTAMP(4)", [1_999], [1_900]),
    ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", [1], [1]),
    ("TIMESTAMP(3)", "DATE", [-1], [-1]),
    ("TIMESTAMP(6)", "TIME(3)", [-1], [86_399_999]),
    ("DATE", "TIMESTAMP(3)", [1], [86_400_000]),
]


@pytest.mark.parametrize(("old", "new", "values", "expected"), CASTS)
def test_old_values_become_what_java_makes_of_them(old: str, new: str, values: list[Any], expected: list[Any]) -> None:
    """Source: Paimon CastExecutors."""
    source, target = parse_data_type(old), parse_data_type(new)
    found = cast_array(pa.array([None, *values], arrow_type(source)).slice(1), source, target)
    assert found.equals(pa.array(expected, arrow_type(target))), found.to_pylist()


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("STRING", "INT", "five"),
        ("STRING", "DATE", "x"),
        ("STRING", "BOOLEAN", "maybe"),
        ("STRING", "DECIMAL(5, 2)", "x"),
    ],
)
def test_a_text_that_spells_no_value_stops_the_read(old: str, new: str, value: str) -> None:
    source, target = parse_data_type(old), parse_data_type(new)
    with pytest.raises(InvalidInputError, match="cannot be read as the column's new type"):
        cast_array(pa.array([value]), source, target)


def test_casts_that_do_not_exist_are_refused() -> None:
    boolean, day = DataType(root="BOOLEAN"), DataType(root="DATE")
    assert not can_cast(boolean, day)
    with pytest.raises(InvalidInputError, match="old_type=BOOLEAN new_type=DATE"):
        cast_array(pa.array([True]), boolean, day)


@pytest.mark.parametrize(("old", "new", "values", "expected"), CASTS)
def test_bounds_are_kept_only_where_values_are(old: str, new: str, values: list[Any], expected: list[Any]) -> None:
    source, target = parse_data_type(old), parse_data_type(new)
    if keeps_order(source, target):
        assert values == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", False),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(9, 2)", "DECIMAL(12, 2)", True),
        ("DECIMAL(9, 2)", "DECIMAL(12, 3)", False),
        ("VARCHAR(5)", "STRING", True),
        ("VARCHAR(5)", "CHAR(9)", False),
        ("STRING", "VARCHAR(5)", False),
        ("STRING", "BYTES", False),
        ("TIMESTAMP(4)", "TIMESTAMP(6)", True),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", False),
        ("DATE", "DATE", True),
        ("INT", "STRING", False),
    ],
)
def test_bounds_survive_widening_only(old: str, new: str, expected: bool) -> None:
    assert keeps_order(parse_data_type(old), parse_data_type(new)) is expected


@pytest.mark.parametrize(
    ("known", "written", "fits", "others"),
    [
        ("INT", "BIGINT", [2**31 - 1, None], [2**31]),
        ("INT", "DOUBLE", [7.0], [7.5]),
        ("FLOAT", "DOUBLE", [0.5, math.inf, None], [0.1]),
        ("DECIMAL(5, 2)", "DECIMAL(8, 3)", [Decimal("1.250")], [Decimal("1.255"), Decimal("1000.000")]),
        ("VARCHAR(2)", "STRING", ["longer than it was"], []),
    ],
)
def test_a_reader_that_is_older_than_a_file_never_cuts_values(
    known: str, written: str, fits: list[Any], others: list[Any]
) -> None:
    """Inside of columns too; Java's cast would wrap or round them."""
    newer = Newer(written=3, read=1)
    old = fields_of((0, "c", known), (1, "p", row_type((2, "x", known))))
    new = fields_of((0, "c", written), (1, "p", row_type((2, "x", written))))
    rows = [{"c": value, "p": {"x": value}} for value in fits]
    assert map_schema(new, old, newer=newer).apply(batch_of(new, rows)).to_pylist() == rows
    for value in others:
        for row, column in (({"c": value}, "c"), ({"p": {"x": value}}, "p.x")):
            with pytest.raises(InvalidInputError, match=rf"column={column} .*schema=3 opened_schema=1 .*fix="):
                map_schema(new, old, newer=newer).apply(batch_of(new, [row]))


def test_a_null_is_an_error_to_a_reader_that_knows_none() -> None:
    old, new = fields_of((0, "c", "INT NOT NULL")), fields_of((0, "c", "INT"))
    newer = Newer(written=1, read=0)
    assert map_schema(new, old, newer=newer).apply(batch_of(new, [{"c": 1}])).to_pylist() == [{"c": 1}]
    with pytest.raises(InvalidInputError, match=r"column=c .*error=null"):
        map_schema(new, old, newer=newer).apply(batch_of(new, [{"c": None}]))
