"""What every format of data files promises: rows come back as they were, whatever the type, codec and pieces."""

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import filestore
from filestore.format.interface import BatchLimit, FileRows
from filestore.format.statistics import ColumnRange
from lsm.errors import InvalidInputError
from tests.support.format_files import FormatFiles, same_rows
from tests.support.samples import ATOMIC, NESTED, random_rows, schema_of, table_of

CODECS = {
    "parquet": ("zstd", "gzip", "lz4", "snappy", "none", "uncompressed"),
    "orc": ("zstd", "zlib", "snappy", "lz4", "none"),
    "avro": ("zstd", "gzip", "snappy", "none"),
}


def held(format_name: str, columns: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The sample columns that a format can hold whole: ORC's library has timestamps of nanoseconds only."""
    if format_name != "orc":
        return columns
    return {name: kind for name, kind in columns.items() if not name.startswith(("ts", "ltz")) and name != "deep"}


@pytest.fixture(params=CODECS)
def files(request: pytest.FixtureRequest) -> FormatFiles:
    return FormatFiles(request.param)


@pytest.mark.sweep
@pytest.mark.parametrize("row_count", [0, 1, 999, 1000, 1500, 2500])
def test_every_type_comes_back(files: FormatFiles, row_count: int) -> None:
    """FL-145."""
    schema = schema_of(held(files.name, ATOMIC))
    table = table_of(schema, random_rows(random.Random(row_count), schema, row_count))
    body, ranges = files.written(table, schema.fields)
    assert same_rows(files.read_back(body, schema.fields), table)
    if row_count:
        assert ranges["i64"].null_count == table.column("i64").null_count


@pytest.mark.parametrize("step", [1, 3, 4, 700])
def test_nested_values_come_back(files: FormatFiles, step: int) -> None:
    """FL-145: maps with keys that are no texts among them."""
    columns = held(files.name, NESTED)
    schema = schema_of(columns)
    rows: list[dict[str, Any]] = [
        {"list": ["a", None, "é"], "map": [("k", 1), ("", None)], "row": {"x": 1, "y": [Decimal("1.25"), None]}},
        {"list": [], "map": [], "row": {"x": None, "y": None}, "deep": [(1, [{"moment": 5, "z": [("q", 3)]}, None])]},
        {},
        {"deep": [(2, None), (3, [])]},
    ]
    table = table_of(schema, [{name: row[name] for name in columns if name in row} for row in rows])
    assert same_rows(files.read_back(files.written(table, schema.fields, step=step)[0], schema.fields), table)


@pytest.mark.parametrize(
    ("format_name", "compression"), [(name, codec) for name, codecs in CODECS.items() for codec in codecs]
)
def test_codecs_come_back(format_name: str, compression: str) -> None:
    files = FormatFiles(format_name)
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": n} for n in range(5)])
    body, _ = files.written(table, schema.fields, compression=compression)
    assert same_rows(files.read_back(body, schema.fields), table)


def test_unknown_codecs_are_refused(files: FormatFiles) -> None:
    with pytest.raises(InvalidInputError, match=r"file\.compression=rar"):
        files.written(pa.table({}), [], compression="rar")


def test_equal_rows_make_equal_files(files: FormatFiles) -> None:
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": 1}])
    assert files.written(table, schema.fields) == files.written(table, schema.fields)


def test_without_columns_rows_are_still_counted(files: FormatFiles) -> None:
    schema = schema_of({"n": pa.int64()})
    body, _ = files.written(table_of(schema, [{"n": n} for n in range(700)]), schema.fields)
    assert sum(batch.num_rows for batch in files.batches(body, [])) == 700
    assert all(batch.num_rows <= 300 for batch in files.batches(body, []))


# ---- positions


@pytest.mark.parametrize("format_name", CODECS)
@settings(max_examples=25, deadline=None, derandomize=True)
@example(count=3000, size=1, limit=BatchLimit(rows=300), kept=[False, True], wide=False)
@example(count=3000, size=2000, limit=BatchLimit(size_bytes=50_000, spills=True), kept=[True, True, False], wide=True)
@example(count=3000, size=2000, limit=BatchLimit(), kept=[True, True, False], wide=False)
@given(
    count=st.integers(0, 2500),
    size=st.sampled_from([1, 30, 2000]),
    limit=st.builds(
        BatchLimit, rows=st.sampled_from([1000, 65_536]), size_bytes=st.integers(1 << 14, 1 << 22), spills=st.booleans()
    ),
    kept=st.lists(st.booleans(), min_size=1, max_size=5),
    wide=st.booleans(),
)
def test_a_row_is_where_the_reader_says(
    format_name: str, count: int, size: int, limit: BatchLimit, kept: list[bool], wide: bool
) -> None:
    """Whatever columns are read, in batches of whatever size, and whichever groups of rows are left out."""
    files, schema = FormatFiles(format_name), schema_of({"n": pa.int64(), "text": pa.string()})
    draw = random.Random(size)
    texts = [f"{draw.getrandbits(4 * size):x}" if n % 2 else "same" * size for n in range(count)]
    table = pa.table({"n": pa.array(range(count), pa.int64()), "text": texts})
    body, _ = files.written(table, schema.fields, block_bytes=64_000)
    asked: list[range] = []

    def keep(ranges: Mapping[str, ColumnRange], places: range) -> bool:
        asked.append(places)
        return kept[len(asked) % len(kept)]

    fields = schema.fields if wide else schema.fields[:1]
    there = {"keep": keep, "keep_fields": schema.fields[:1], "limit": limit}
    read = files.read(body, fields, **there)
    assert [n for each in read for n in each.rows.column("n").to_pylist()] == [
        position for each in read for position in range(each.first, each.first + each.rows.num_rows)
    ]
    left_out = {n for nth, places in enumerate(asked, 1) if not kept[nth % len(kept)] for n in places}
    assert {n for each in read for n in each.rows.column("n").to_pylist()} == {*range(count)} - left_out
    asked.clear()
    uncounted = files.read(body, [], **there)
    assert sum(each.rows.num_rows for each in uncounted) == count - len(left_out)


def test_rows_are_found_by_their_positions() -> None:
    there = FileRows(100, pa.record_batch({"n": range(10)}))
    assert there.found(np.array([3, 99, 100, 104, 109, 110, 200])).tolist() == [0, 4, 9]
    assert there.found(np.zeros(0, np.int64)).tolist() == []


def test_only_readers_of_formats_say_where_rows_are() -> None:
    """Code that reads some rows of a file cannot number them: it does not know which ones were left out."""
    root = Path(filestore.__file__).parents[1]
    rooms = [root / room for room in ("filestore", "engine", "lsm", "logstore")]
    makers = {path.stem for room in rooms for path in room.rglob("*.py") if "FileRows(" in path.read_text("utf-8")}
    assert makers == {"orc", "avro", "parquet_batches"}
