"""Parquet files: what is on the disk, and what is read of the files of other writers."""

import math
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.format.file_format import file_format, format_of_file
from filestore.format.interface import BatchLimit, WriteSettings
from filestore.format.parquet import read_parquet
from filestore.format.statistics import ColumnRange
from filestore.schema.file_fields import file_fields, file_schema
from filestore.types.data_types import DataField, DataType, parse_data_type
from lsm.errors import InvalidInputError
from tests.support.format_files import FormatFiles
from tests.support.samples import ATOMIC, random_rows, schema_of, table_of

PARQUET = FormatFiles("parquet")

SETTINGS = WriteSettings(compression="zstd", zstd_level=1, row_group_rows=1000)


def field(name: str, text: str, number: int = 0) -> DataField:
    return DataField(id=number, name=name, type=parse_data_type(text))


def foreign(columns: dict[str, pa.Array], **how: object) -> bytes:
    """A file as another writer makes it."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **how)
    return sink.getvalue().to_pybytes()


def test_physical_types_are_those_that_java_expects() -> None:
    """Source: paimon-format.md 6.2; wrong units and widths give wrong values in Java without an error."""
    schema = schema_of(ATOMIC, primary_key=["i32"])
    fields = file_fields(schema, key_values=True)
    table = table_of(schema, [{"i32": 1}])
    table = table.append_column("_KEY_i32", table.column("i32")).select([each.name for each in fields])
    body, _ = PARQUET.written(table, fields)
    metadata = pq.ParquetFile(pa.BufferReader(body)).metadata
    columns = [metadata.schema.column(index) for index in range(len(fields))]
    found = {column.name: f"{column.physical_type} {column.logical_type.type}" for column in columns}
    assert found == {
        "_KEY_i32": "INT32 NONE",
        "_SEQUENCE_NUMBER": "INT64 NONE",
        "_VALUE_KIND": "INT32 INT",
        "i8": "INT32 INT",
        "i16": "INT32 INT",
        "i32": "INT32 NONE",
        "i64": "INT64 NONE",
        "flag": "BOOLEAN NONE",
        "f32": "FLOAT NONE",
        "f64": "DOUBLE NONE",
        "text": "BYTE_ARRAY STRING",
        "bytes": "BYTE_ARRAY NONE",
        "d9": "INT32 DECIMAL",
        "d18": "INT64 DECIMAL",
        "d38": "FIXED_LEN_BYTE_ARRAY DECIMAL",
        "day": "INT32 DATE",
        "time": "INT32 TIME",
        "ts3": "INT64 TIMESTAMP",
        "ts6": "INT64 TIMESTAMP",
        "ltz3": "INT64 TIMESTAMP",
        "ltz6": "INT64 TIMESTAMP",
    }
    text = str(pq.ParquetFile(pa.BufferReader(body)).schema)
    assert f"required int32 field_id={1073741823 + 2} _KEY_i32" in text
    assert "required int64 field_id=2147483646 _SEQUENCE_NUMBER" in text
    assert "required int32 field_id=2147483645 _VALUE_KIND (Int(bitWidth=8, isSigned=true))" in text
    assert "optional int64 field_id=14 ts3 (Timestamp(isAdjustedToUTC=false, timeUnit=milliseconds" in text
    assert "optional int64 field_id=17 ltz6 (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds" in text
    assert b"ARROW:schema" not in (metadata.metadata or {})


def test_nested_elements_have_javas_ids() -> None:
    """Golden: Java 1.4.2 gives the elements of column 5 the id 536876032; maps count down for keys."""
    numbers, texts = parse_data_type("INT"), parse_data_type("STRING")
    fields = [
        DataField(id=5, name="l", type=DataType(root="ARRAY", element=numbers)),
        DataField(id=7, name="m", type=DataType(root="MAP", key=texts, value=numbers)),
    ]
    text = str(pq.ParquetFile(pa.BufferReader(PARQUET.written(file_schema(fields).empty_table(), fields)[0])).schema)
    assert "optional int32 field_id=536876032 element" in text
    assert f"required binary field_id={536870911 - 7 * 1024 - 1} key (String)" in text
    assert f"optional int32 field_id={536870911 + 7 * 1024 + 1} value" in text


def test_encodings_fit_the_columns() -> None:
    """DELTA on integer keys, sequence numbers and timestamps; dictionaries only where values repeat."""
    schema = schema_of(
        {
            "k": pa.int64(),
            "few": pa.string(),
            "many": pa.string(),
            "ts": pa.timestamp("us"),
            "l": pa.list_(pa.string()),
        },
        primary_key=["k"],
    )
    rows = [{"k": n, "few": "ab"[n % 2], "many": str(n), "ts": n, "l": ["x"]} for n in range(1500)]
    fields = file_fields(schema, key_values=True)
    table = table_of(schema, rows)
    table = table.append_column("_KEY_k", table.column("k")).select([each.name for each in fields])
    group = pq.ParquetFile(
        pa.BufferReader(PARQUET.written(table, fields, step=1500, _KEY_k="k")[0])
    ).metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}
    delta = {name for name, used in encodings.items() if "DELTA_BINARY_PACKED" in used}
    dictionary = {name for name, used in encodings.items() if "RLE_DICTIONARY" in used}
    assert delta == {"_KEY_k", "_SEQUENCE_NUMBER", "k", "ts"}
    assert dictionary == {"_VALUE_KIND", "few", "l.list.element"}
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}


def test_packed_columns_of_a_few_rows_are_not_compressed_too() -> None:
    """Issue 17 item 6: of 511 rows keys, numbers and kinds; of 512 all columns are compressed."""
    schema = schema_of({"id": pa.int64(), "v": pa.float64()}, primary_key=["id"])
    fields = file_fields(schema, key_values=True)
    for count, packed in ((511, {"_KEY_id", "id", "_SEQUENCE_NUMBER", "_VALUE_KIND"}), (512, set())):
        ids, kinds = pa.array(range(count), pa.int64()), pa.array([0] * count, pa.int8())
        columns = {"_KEY_id": ids, "_SEQUENCE_NUMBER": ids, "_VALUE_KIND": kinds, "id": ids}
        columns["v"] = pa.array([0.5] * count)
        table = pa.table([columns[each.name] for each in fields], schema=file_schema(fields))
        body, _ = PARQUET.written(table, fields, _KEY_id="id")
        group = pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0)
        found = {group.column(at).path_in_schema: group.column(at).compression for at in range(len(fields))}
        assert found == {each.name: "UNCOMPRESSED" if each.name in packed else "ZSTD" for each in fields}


def test_row_groups_are_full_whatever_the_pieces() -> None:
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": n} for n in range(2300)])
    for step in (1, 37, 1000, 2300):
        metadata = pq.ParquetFile(pa.BufferReader(PARQUET.written(table, schema.fields, step=step)[0])).metadata
        assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 300]


def test_ranges_come_from_the_footer_and_are_exact() -> None:
    schema = schema_of(ATOMIC)
    rows = random_rows(random.Random(4), schema, 2500)
    _, ranges = PARQUET.written(table_of(schema, rows), schema.fields)
    for each in schema.fields:
        values = [row[each.name] for row in rows if row[each.name] is not None]
        part = ranges[each.name]
        assert part.null_count == len(rows) - len(values)
        if each.name in ("f32", "f64"):  # both hold NaN
            assert (part.min, part.max) == (None, None)
        else:
            assert (part.min, part.max) == (min(values), max(values)), each.name


def test_floats_without_nan_have_bounds() -> None:
    schema = schema_of({"x": pa.float64(), "y": pa.float64(), "z": pa.float64()})
    table = table_of(schema, [{"x": 1.0, "y": math.nan, "z": None}, {"x": -0.5, "y": None}])
    ranges = PARQUET.written(table, schema.fields)[1]
    assert ranges == {
        "x": ColumnRange(min=-0.5, max=1.0, null_count=0),
        "y": ColumnRange(null_count=1),
        "z": ColumnRange(null_count=2),
    }


def test_bounds_that_are_too_long_for_a_footer_are_left_to_the_caller() -> None:
    schema = schema_of({"short": pa.string(), "long": pa.string()})
    table = table_of(schema, [{"short": "a", "long": "x" * 5000}])
    assert set(PARQUET.written(table, schema.fields)[1]) == {"short"}


def test_unknown_codecs_and_too_fine_timestamps_are_refused() -> None:
    settings = WriteSettings(compression="rar", zstd_level=1, row_group_rows=10)
    with pytest.raises(InvalidInputError, match=r"file\.compression=rar"):
        file_format("parquet").writer(pa.BufferOutputStream(), [field("n", "INT")], settings, shared={})
    with pytest.raises(InvalidInputError, match=r"precision 6.*column=t"):
        file_format("parquet").writer(pa.BufferOutputStream(), [field("t", "TIMESTAMP(9)")], SETTINGS, shared={})


# ---- files of other writers: paimon-format.md 10.2


@pytest.mark.parametrize(
    ("text", "stored", "expected"),
    [
        ("DECIMAL(9, 2)", pa.array([Decimal("1.25"), Decimal("-0.01"), None], pa.decimal128(9, 2)), None),
        ("DECIMAL(18, 4)", pa.array([Decimal("1.2500"), None], pa.decimal128(18, 4)), None),
        ("DECIMAL(9, 2)", pa.array([Decimal("1.5")], pa.decimal128(5, 1)), [Decimal("1.50")]),
        ("TIMESTAMP(9)", pa.array([1, -1, None], pa.timestamp("ns")), None),
        ("TIMESTAMP(6)", pa.array([1999, -1, None], pa.timestamp("ns")), [1, -1, None]),
        ("TIMESTAMP(6)", pa.array([1, -1, None], pa.timestamp("ms")), [1000, -1000, None]),
        ("TIMESTAMP(3)", pa.array([1000, -1000, None], pa.timestamp("us")), [1, -1, None]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([5], pa.timestamp("ms")), [5]),
        ("TIMESTAMP(6)", pa.array([5], pa.timestamp("us", tz="Asia/Tokyo")), [5]),
        ("INT", pa.array([1, None], pa.int64()), None),
        ("BIGINT", pa.array([1, None], pa.int32()), None),
        ("STRING", pa.array(["a", None], pa.large_string()), None),
        ("STRING", pa.array(["a", None, "a"]).dictionary_encode(), None),
        ("BYTES", pa.array([b"a", None], pa.large_binary()), None),
        ("TIME(3)", pa.array([5_000, None], pa.time64("us")), [5, None]),
        ("DATE", pa.array([1, None], pa.date32()), None),
    ],
)
def test_other_writers_forms_are_read(text: str, stored: pa.Array, expected: list[object] | None) -> None:
    """FIXED decimals, nanoseconds and stored Arrow schemas of pypaimon; integers of another width."""
    found = PARQUET.read_back(foreign({"x": stored}), [field("x", text)]).column("x")
    wanted = stored.to_pylist() if expected is None else expected
    if expected is not None and pa.types.is_temporal(found.type):
        found = found.cast(pa.int64() if found.type.bit_width == 64 else pa.int32())
    assert found.to_pylist() == wanted


@pytest.mark.parametrize(("text", "unit"), [("TIMESTAMP(9)", "ns"), ("TIMESTAMP(6)", "us"), ("TIMESTAMP(3)", "ms")])
def test_int96_timestamps_are_read(text: str, unit: str) -> None:
    """Java writes them for precision 7 and more."""
    stored = pa.array([0, -1, 1_700_000_000_123, None], pa.timestamp(unit))
    body = foreign({"x": stored}, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(0).physical_type == "INT96"
    assert PARQUET.read_back(body, [field("x", text)]).column("x").combine_chunks().equals(stored)


def test_int96_beyond_nanoseconds_is_read_when_the_column_is_not_that_fine() -> None:
    far = pa.array([-62_135_596_800_000_000, 253_402_300_799_000_000], pa.timestamp("us"))
    body = foreign({"x": far}, use_deprecated_int96_timestamps=True)
    assert PARQUET.read_back(body, [field("x", "TIMESTAMP(6)")]).column("x").combine_chunks().equals(far)


def test_columns_are_found_by_name_in_any_order_and_may_be_missing() -> None:
    fields = [field("a", "INT", 1), field("b", "STRING", 2), field("gone", "DOUBLE", 3)]
    body = foreign({"b": pa.array(["x"]), "other": pa.array([1]), "a": pa.array([1], pa.int32())})
    assert PARQUET.read_back(body, fields).to_pylist() == [{"a": 1, "b": "x", "gone": None}]


def test_a_name_with_a_dot_is_not_a_path() -> None:
    fields = [field("a.b", "INT")]
    body = foreign({"a.b": pa.array([1], pa.int32()), "a": pa.array([{"b": 5}])})
    assert PARQUET.read_back(body, fields).to_pylist() == [{"a.b": 1}]


def test_without_columns_rows_are_still_counted() -> None:
    body = foreign({"a": pa.array(range(700))})
    assert [batch.num_rows for batch in PARQUET.batches(body, [])] == [300, 300, 100]


# ---- row groups


def test_row_groups_that_are_refused_are_not_read() -> None:
    """FL-04, FL-181: ``keep`` sees the ranges of each row group, and only of the columns that it asked for."""
    schema = schema_of({"n": pa.int64(), "s": pa.string(), "f": pa.float64()})
    rows = [{"n": n, "s": f"{n:04}", "f": math.nan if n == 5 else float(n)} for n in range(3000)]
    body, _ = PARQUET.written(table_of(schema, rows), schema.fields)
    seen: list[tuple[dict[str, ColumnRange], range]] = []

    def keep(ranges: dict[str, ColumnRange], places: range) -> bool:
        seen.append((dict(ranges), places))
        return bool(ranges["n"].min == 1000)

    found = PARQUET.read_back(body, schema.fields, keep=keep, keep_fields=[schema.field("n"), schema.field("f")])
    assert found.column("n").to_pylist() == list(range(1000, 2000))
    assert [places for _, places in seen] == [range(1000), range(1000, 2000), range(2000, 3000)]
    assert seen[1][0]["n"] == ColumnRange(min=1000, max=1999, null_count=0)
    assert "f" not in seen[0][0]  # NaN is in no bounds of a footer, so none of floats are written
    assert "s" not in seen[0][0]
    nothing = PARQUET.read_back(body, schema.fields, keep=lambda ranges, places: False, keep_fields=[schema.field("n")])
    assert nothing.num_rows == 0


def test_footers_have_no_bounds_of_floats_that_users_query() -> None:
    """FL-181: footers leave NaN out of the bounds, and Spark's reader skips it with them; manifests have bounds."""
    point = pa.struct([("x", pa.float64()), ("n", pa.int32())])
    schema = schema_of({"n": pa.int64(), "f": pa.float32(), "d": pa.float64(), "s": point, "l": pa.list_(pa.float64())})
    rows = [{"n": 1, "f": 0.5, "d": math.nan, "s": {"x": 1.0, "n": 2}, "l": [1.0]}, {"n": 2, "f": -0.0, "d": 3.0}]
    body, written = PARQUET.written(table_of(schema, rows), schema.fields)
    group = pq.read_metadata(pa.BufferReader(body)).row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    assert {name for name, each in found.items() if each is not None and each.has_min_max} == {"n", "s.n"}
    assert written["f"] == ColumnRange(min=-0.0, max=0.5, null_count=0)
    assert math.copysign(1, written["f"].min) == -1
    assert written["d"] == ColumnRange(null_count=0)


def test_ranges_of_a_column_stored_otherwise_than_declared_are_not_trusted() -> None:
    body = foreign({"x": pa.array([1000], pa.timestamp("us"))})
    seen: list[object] = []
    column = field("x", "TIMESTAMP(3)")

    def keep(ranges: object, places: range) -> bool:
        seen.append(ranges)
        return True

    PARQUET.read_back(body, [column], keep=keep, keep_fields=[column])
    assert seen == [{}]


@pytest.mark.sweep
def test_memory_is_that_of_a_batch_and_not_of_the_file() -> None:
    """A row group of 100 MB is read with a few MB."""
    size, width = 100 * 2**20, 100
    offsets = np.arange(0, size + 1, width, dtype=np.int32)
    data = np.random.default_rng(0).bytes(size)
    values = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    body = pa.py_buffer(foreign({"x": values}, use_dictionary=False, row_group_size=2**30))
    before = pa.total_allocated_bytes()
    peak = 0
    for read in read_parquet(pa.BufferReader(body), [field("x", "BYTES")], limit=BatchLimit(rows=8192)):
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert read.rows.num_rows <= 8192
    assert peak < 10 * 2**20


def test_the_format_is_the_last_suffix_of_the_name() -> None:
    assert format_of_file("data-1-0.zstd.parquet").name == "parquet"
    assert format_of_file("data-1-0.ORC").name == "orc"
    with pytest.raises(InvalidInputError, match="csv"):
        format_of_file("data-1-0.csv")
