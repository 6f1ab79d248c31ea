"""Batches of Parquet files by bytes, by every writer (FL-144)."""

import io
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.format import parquet_batches
from filestore.format.interface import BatchLimit
from filestore.types.data_types import DataField
from tests.support.format_files import FormatFiles
from tests.support.samples import schema_of

PARQUET = FormatFiles("parquet")
KIB = 1024


def fields_of(rows: pa.Table) -> tuple[DataField, ...]:
    return schema_of({field.name: field.type for field in rows.schema}).fields


def foreign_parquet(rows: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **how)
    return sink.getvalue()


def batches_of(body: bytes, written: pa.Table, **limit: Any) -> list[pa.RecordBatch]:
    return FormatFiles("parquet").batches(body, fields_of(written), limit=BatchLimit(**limit))


def wide(count: int, size: int = 10 * KIB, values: int | None = None) -> pa.Table:
    texts = [f"{number % (values or count):08d}" + "x" * (size - 8) for number in range(count)]
    return pa.table({"id": pa.array(range(count), pa.int64()), "v": texts})


def test_batches_of_plain_values_have_as_many_rows_as_fit() -> None:
    rows = wide(100)
    batches = batches_of(foreign_parquet(rows, use_dictionary=False), rows, size_bytes=100 * KIB)
    assert {batch.num_rows for batch in batches} <= {9, 10, 1}
    assert pa.Table.from_batches(batches) == rows


def test_narrow_rows_are_not_cut() -> None:
    rows = pa.table({"id": pa.array(range(3000), pa.int64()), "few": [f"w{number % 3}" for number in range(3000)]})
    assert [batch.num_rows for batch in batches_of(foreign_parquet(rows), rows, rows=1000)] == [1000, 1000, 1000]


@pytest.mark.sweep
def test_a_value_that_is_once_in_a_dictionary_counts_for_each_row() -> None:
    """The footer knows of 20 kB; the rows are 20 MB."""
    rows = wide(2000, values=2)
    body = foreign_parquet(rows)
    assert pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).total_byte_size < 50 * KIB
    batches = batches_of(body, rows, size_bytes=200 * KIB)
    assert max(batch.nbytes for batch in batches) <= 200 * KIB
    assert len(batches) < 150
    assert pa.Table.from_batches(batches) == rows


def test_slices_follow_the_values_and_not_their_average() -> None:
    values = [*["y"] * 500, *["x" * 10 * KIB] * 20, *[None] * 500]
    rows = pa.table({"v": pa.array(values, pa.string())})
    batches = batches_of(foreign_parquet(rows), rows, size_bytes=60 * KIB)
    assert batches[0].num_rows > 500
    assert max(batch.nbytes for batch in batches) <= 61 * KIB
    assert pa.Table.from_batches(batches) == rows


def test_a_dictionary_of_a_nested_column_is_looked_at() -> None:
    rows = pa.table({"v": [["x" * 10 * KIB, None]] * 300})
    batches = batches_of(foreign_parquet(rows), rows, size_bytes=200 * KIB)
    assert max(batch.nbytes for batch in batches) <= 400 * KIB
    assert pa.Table.from_batches(batches) == rows


def test_a_large_dictionary_is_told_from_plain_values_by_its_page() -> None:
    """More than a megabyte of dictionary: kept where its values are wide; else most of the chunk is plain."""
    rows = wide(600, size=20 * KIB, values=100)
    batches = batches_of(foreign_parquet(rows, dictionary_pagesize_limit=8 * KIB * KIB), rows, size_bytes=400 * KIB)
    assert max(batch.nbytes for batch in batches) <= 400 * KIB
    assert pa.Table.from_batches(batches) == rows
    many = pa.table({"v": [f"{number:0100d}" for number in range(30_000)]})
    assert pa.Table.from_batches(batches_of(foreign_parquet(many), many, rows=10_000)) == many


@pytest.mark.parametrize("spills", [False, True])
def test_a_page_above_the_limit_is_decoded_once_where_other_files_are_open(
    spills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files have 1024 rows in a page, whatever their size: Arrow decodes it as a whole."""
    made: list[Any] = []
    real = tempfile.TemporaryFile
    monkeypatch.setattr(parquet_batches.tempfile, "TemporaryFile", lambda **how: made.append(how) or real(**how))
    rows = wide(100)
    body = foreign_parquet(rows, use_dictionary=False)
    batches = batches_of(body, rows, size_bytes=100 * KIB, spills=spills)
    assert len(made) == spills
    assert pa.Table.from_batches(batches) == rows
    small_pages = foreign_parquet(rows, use_dictionary=False, write_batch_size=1, data_page_size=20 * KIB)
    assert pa.Table.from_batches(batches_of(small_pages, rows, size_bytes=100 * KIB, spills=spills)) == rows
    assert len(made) == spills


VALUES = st.one_of(st.none(), st.sampled_from(["", "a", "b" * 40]), st.text(max_size=12))
ROWS = st.lists(st.tuples(VALUES, VALUES, st.lists(VALUES, max_size=3)), max_size=60)


@pytest.mark.sweep
@given(ROWS, st.integers(1, 2000), st.integers(1, 40), st.booleans(), st.integers(1, 30), st.booleans())
def test_rows_are_the_same_whatever_the_limit(
    rows: list[tuple[Any, Any, Any]], size: int, most_rows: int, spills: bool, group: int, dictionary: bool
) -> None:
    table = pa.table(
        {
            "a": pa.array([row[0] for row in rows], pa.string()),
            "b": pa.array([None if row[1] is None else row[1].encode() for row in rows], pa.binary()),
            "c": pa.array([row[2] for row in rows], pa.list_(pa.string())),
            "n": pa.array(range(len(rows)), pa.int64()),
        }
    )
    body = foreign_parquet(table, row_group_size=group, use_dictionary=dictionary)
    batches = batches_of(body, table, rows=most_rows, size_bytes=size, spills=spills)
    assert pa.Table.from_batches(batches, schema=table.schema).to_pylist() == table.to_pylist()
    assert all(0 < batch.num_rows <= most_rows for batch in batches)


# ---- what our writers leave


@pytest.mark.sweep
def test_row_groups_and_pages_of_wide_rows_are_small() -> None:
    """FL-144: 1024 rows in a page and 32,768 in a group are for narrow rows."""
    rows = wide(60, size=KIB * KIB)
    body, _ = PARQUET.written(rows, fields_of(rows))
    file = pq.ParquetFile(pa.BufferReader(body))
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    assert max(group.total_byte_size for group in groups) <= 33 * KIB * KIB
    source = pa.BufferReader(body)
    pages = [parquet_batches._page(source, group.column(1).data_page_offset) for group in groups]
    assert {page.kind for page in pages} == {0}
    assert max(page.size_bytes for page in pages) < 2.1 * KIB * KIB


@pytest.mark.sweep
def test_pages_stay_small_when_rows_become_wide_later() -> None:
    narrow = wide(40_000, size=10)
    rows = pa.concat_tables([narrow, wide(30, size=KIB * KIB)])
    body, _ = PARQUET.written(rows, fields_of(rows), step=1000)
    file, source = pq.ParquetFile(pa.BufferReader(body)), pa.BufferReader(body)
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    assert groups[0].num_rows >= 1000
    assert max(parquet_batches._page(source, g.column(1).data_page_offset).size_bytes for g in groups) <= 9 * KIB * KIB
    assert PARQUET.read_back(body, fields_of(rows)) == rows


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["orc", "avro", "parquet"])
def test_every_format_reads_wide_rows_in_small_batches(name: str) -> None:
    rows = wide(200, size=100 * KIB)
    files = FormatFiles(name)
    body, _ = files.written(rows, fields_of(rows))
    seen = files.batches(body, fields_of(rows), limit=BatchLimit(size_bytes=KIB * KIB))
    assert max(batch.nbytes for batch in seen) <= 1.1 * KIB * KIB
    assert pa.Table.from_batches(seen).to_pylist() == rows.to_pylist()
