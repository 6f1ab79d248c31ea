"""What every format of data files promises: rows come back as they were, whatever the type, codec and pieces."""

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

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
