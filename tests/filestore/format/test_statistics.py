"""Column ranges: gathered exactly, cut soundly, and the same after a manifest has held them."""

import math
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.format.simple_stats import EMPTY_STATS, SimpleStats
from filestore.format.statistics import (
    ColumnRange,
    RangeCollector,
    column_range,
    keep_range,
    key_stats,
    merge_ranges,
    stats_of_columns,
    truncate_range,
    value_stats,
)
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.file_ranges import key_ranges_of, ranges_of
from filestore.types.binary_row import EMPTY_ROW
from filestore.types.data_types import STRING, DataField, DataType, parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.samples import ATOMIC, NESTED, random_rows, schema_of, table_of

BYTES = DataType(root="VARBINARY", length=100)
LAST = "\U0010ffff"


def spanning(low: object, high: object, nulls: int | None = 0) -> ColumnRange:
    return ColumnRange(min=low, max=high, null_count=nulls)


def meta(**parts: object) -> DataFileMeta:
    base = DataFileMeta(
        file_name="f.parquet",
        size_bytes=1,
        row_count=3,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=2,
        schema_id=0,
        level=0,
    )
    return replace(base, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("a" * 16, "b" * 16, spanning("a" * 16, "b" * 16)),
        ("a" * 17, "b" * 17, spanning("a" * 16, "b" * 15 + "c")),
        ("", "b" * 15 + LAST + "x", spanning("", "b" * 14 + "c")),
        ("é" * 20, "é" * 20, spanning("é" * 16, "é" * 15 + "ê")),
        ("a", "\ud7ff" * 20, spanning("a", "\ud7ff" * 15 + "\ue000")),
        ("a", LAST * 16, spanning("a", LAST * 16)),
        ("a", LAST * 17, ColumnRange(null_count=0)),
    ],
)
def test_texts_are_cut_to_sixteen_code_points(low: str, high: str, expected: ColumnRange) -> None:
    """Source: paimon-format.md 4.2, a plainly cut maximum loses rows."""
    assert truncate_range(spanning(low, high), STRING, 16) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (b"a" * 17, b"b" * 17, spanning(b"a" * 16, b"b" * 15 + b"c")),
        (b"a", b"b" + b"\xff" * 20, spanning(b"a", b"c")),
        (b"a", b"\xff" * 17, ColumnRange(null_count=0)),
    ],
)
def test_bytes_are_cut_to_sixteen(low: bytes, high: bytes, expected: ColumnRange) -> None:
    assert truncate_range(spanning(low, high), BYTES, 16) == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.text(alphabet="ab\ud7ff\ue000\U0010ffff", max_size=5), min_size=1), st.integers(1, 3))
def test_cut_bounds_still_bound(texts: list[str], length: int) -> None:
    for values, data_type in ((texts, STRING), ([text.encode() for text in texts], BYTES)):
        cut = truncate_range(spanning(min(values), max(values)), data_type, length)
        if cut.min is not None:
            assert all(cut.min <= value <= cut.max for value in values)
            assert max(len(cut.min), len(cut.max)) <= length or max(map(len, values)) <= length


def test_modes_keep_what_they_say() -> None:
    part = spanning("a" * 20, "b" * 20, 3)
    assert keep_range(part, STRING, "full") == part
    assert keep_range(part, STRING, "counts") == ColumnRange(null_count=3)
    assert keep_range(part, STRING, "none") is None
    assert keep_range(part, STRING, "Truncate(4)") == spanning("aaaa", "bbbc", 3)
    with pytest.raises(InvalidInputError, match="mode=some"):
        keep_range(part, STRING, "some")


def test_merged_ranges_span_their_parts() -> None:
    assert merge_ranges([spanning(3, 5, 1), ColumnRange(null_count=2), spanning(1, 4, 0)]) == spanning(1, 5, 3)
    assert merge_ranges([spanning(3, 5, None), spanning(1, 4, 0)]) == spanning(1, 5, None)
    assert merge_ranges([]) == ColumnRange()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_collected_ranges_are_those_of_plain_python(seed: int) -> None:
    rng = random.Random(seed)
    schema = schema_of(ATOMIC)
    rows = random_rows(rng, schema, rng.choice([1, 5, 30]))
    table = table_of(schema, rows)
    collector = RangeCollector(schema.fields)
    for start in range(0, len(rows), 7):
        collector.add(table.slice(start, 7))
    for field in schema.fields:
        values = [row[field.name] for row in rows if row[field.name] is not None]
        if field.type.root == "FLOAT":
            values = [pa.scalar(value, pa.float32()).as_py() for value in values]
        is_numeric = not any(isinstance(value, float) and math.isnan(value) for value in values)
        expected = (min(values), max(values)) if values and is_numeric else (None, None)
        found = collector.ranges()[field.name]
        assert (found.min, found.max, found.null_count) == (*expected, len(rows) - len(values)), field.name


def test_nested_columns_have_a_null_count_only() -> None:
    schema = schema_of(NESTED)
    table = table_of(schema, [{"list": ["a"]}, {}])
    assert column_range(table.column("list"), schema.field("list").type) == ColumnRange(null_count=1)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_ranges_survive_a_manifest(seed: int) -> None:
    """In each of the three forms that `_VALUE_STATS_COLS` has."""
    schema = schema_of(ATOMIC)
    rows = random_rows(random.Random(seed), schema, 10)
    collector = RangeCollector(schema.fields)
    collector.add(table_of(schema, rows))
    ranges = collector.ranges()
    types = [field.type for field in schema.fields]
    stats = stats_of_columns([ranges[field.name] for field in schema.fields], types)
    full = ranges_of(meta(value_stats=stats), schema)
    assert {name: replace(part, may_hold_nan=False) for name, part in full.items()} == {
        name: replace(part, may_hold_nan=False) for name, part in ranges.items()
    }
    assert {name for name, part in full.items() if part.may_hold_nan} == {"f32", "f64"}
    dense = stats_of_columns([ranges["text"], ranges["i32"]], [schema.field("text").type, schema.field("i32").type])
    found = ranges_of(meta(value_stats=dense, value_stats_cols=("text", "i32")), schema)
    assert found == {"text": ranges["text"], "i32": ranges["i32"]}
    assert ranges_of(meta(value_stats_cols=()), schema) == {}
    assert ranges_of(meta(), schema) == {}


def test_statistics_of_a_java_manifest_are_understood_and_made_again_byte_for_byte() -> None:
    """Golden: paimon-format.md 4.2, Java 1.4.2's entry of `pk`."""
    texts = {"k": "INT NOT NULL", "pt": "STRING NOT NULL", "v": "STRING", "d": "DECIMAL(20, 2)", "ts": "TIMESTAMP(6)"}
    fields = [DataField(id=i, name=name, type=parse_data_type(text)) for i, (name, text) in enumerate(texts.items())]
    golden = bytes.fromhex(
        "00000005 0000000000000000 0100000000000000 6120622f63000085 7631000000000082 0100000030000000 40f5060040000000"
        "7d000000000000000000000000000000 7b68e5cf8b010000"
    )
    schema = replace(schema_of({"k": pa.int32()}), fields=tuple(fields))
    stats = SimpleStats(min_values=golden, max_values=golden, null_counts=(0, 0, 0, 0, 0))
    found = ranges_of(meta(value_stats=stats, value_stats_cols=tuple(texts)), schema)
    assert [str(part.min) for part in found.values()] == ["1", "a b/c", "v1", "1.25", "1700000000123456"]
    assert stats_of_columns(list(found.values()), [field.type for field in fields]) == stats


def test_value_statistics_name_their_columns_only_when_some_are_left_out() -> None:
    schema = schema_of({"a": pa.int32(), "b": pa.string()})
    ranges = {"a": spanning(1, 2), "b": spanning("x", "y")}
    all_modes = {"a": "full", "b": "full"}
    assert value_stats(ranges, schema.fields, all_modes)[1] is None
    assert value_stats(ranges, schema.fields, all_modes | {"a": "none"})[1] == ("b",)
    assert value_stats(ranges, schema.fields, dict.fromkeys("ab", "none")) == (EMPTY_STATS, ())


def test_key_statistics_are_cut_to_128_and_complete() -> None:
    schema = schema_of({"k": pa.string(), "v": pa.int32()}, primary_key=["k"])
    stats = key_stats({"k": spanning("a" * 200, "b" * 200)}, schema.key_fields)
    found = key_ranges_of(meta(key_stats=stats), schema)
    assert found == {"k": spanning("a" * 128, "b" * 127 + "c")}
    assert key_stats({}, ()) == EMPTY_STATS


def test_a_wrong_number_of_null_counts_is_corrupt() -> None:
    schema = schema_of({"a": pa.int32(), "b": pa.int32()})
    stats = replace(stats_of_columns([spanning(1, 2)] * 2, [f.type for f in schema.fields]), null_counts=(0,))
    with pytest.raises(CorruptDataError, match="null counts"):
        ranges_of(meta(value_stats=stats), schema)
