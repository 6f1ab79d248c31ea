"""Rows in the forms of Python tools reach a table: written by each, read back by Arrow."""

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from engine import Table
from engine.types.given_rows import given_rows
from lsm.errors import InvalidInputError
from tests.support.warehouses import new_table

SCHEMA = pa.schema(
    [("id", pa.int64()), ("s", pa.string()), ("m", pa.decimal128(10, 2)), ("at", pa.timestamp("us"))]
).append(pa.field("l", pa.list_(pa.int32())))
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": "a", "m": Decimal("1.50"), "at": datetime(2026, 1, 2, 3, 4, 5, 6), "l": [1, 2]},
    {"id": 2, "s": None, "m": None, "at": None, "l": None},
    {"id": 3, "s": "c", "m": Decimal("-7.25"), "at": datetime(1969, 12, 31), "l": []},
]
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


class OneArray:
    """Exports ``__arrow_c_array__`` alone."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return ARROW.combine_chunks().to_batches()[0].__arrow_c_array__(requested_schema)


FORMS: dict[str, Callable[[], Any]] = {
    "table": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(),
    "array": OneArray,
    "dataset": lambda: ds.dataset(ARROW),
    "scanner": lambda: ds.dataset(ARROW).scanner(),
    "polars": lambda: pl.DataFrame(ARROW),
    "polars lazy": lambda: pl.DataFrame(ARROW).lazy(),
    "pandas": lambda: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda: duckdb.from_arrow(ARROW),
    "duckdb reader": lambda: duckdb.from_arrow(ARROW).to_arrow_table().to_reader(),
    "datafusion": lambda: datafusion.SessionContext().from_arrow(ARROW),
    "list of dicts": lambda: ROWS,
    "dict of lists": lambda: {name: [row[name] for row in ROWS] for name in SCHEMA.names},
    "dict of arrays": lambda: {name: ARROW[name] for name in SCHEMA.names},
    "dict of series": lambda: {name: pl.Series(ARROW[name]) for name in SCHEMA.names},
    "list of batches": lambda: [*ARROW.slice(0, 1).to_batches(), *ARROW.slice(1).to_batches()],
    "generator": lambda: (batch for batch in ARROW.to_batches()),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(tmp_path, SCHEMA)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_rows_of_every_form_are_written(table: Table, form: Callable[[], Any]) -> None:
    table.write(form())
    assert table.read().to_arrow().to_pylist() == ROWS
    table.append(form(), {"change-tracking": "false"})
    table.overwrite(form())
    assert table.read().to_arrow().to_pylist() == ROWS
    table.write(form(), options={"write.merge-schema": "true"})
    assert (table.schema.id, table.read().to_arrow().num_rows) == (0, 3)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_case_does_not_count_in_names_of_columns(tmp_path: Path, form: Callable[[], Any]) -> None:
    """Issue 19, 4; first steps, finding 15: the table's spelling stays, and nothing is merged as a new column."""
    table = new_table(tmp_path, pa.schema([field.with_name(field.name.upper()) for field in SCHEMA]), key=("ID",))
    expected = [{name.upper(): value for name, value in row.items()} for row in ROWS]
    for options in ({}, {"write.merge-schema": "true"}):
        table.write(form(), options=options)
        assert (table.schema.id, table.read().to_arrow().to_pylist()) == (0, expected)


def test_columns_that_differ_in_case_only(tmp_path: Path) -> None:
    """Issue 19, 4: refused at creation; with a word a table has them, and takes rows by their exact names."""
    both = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("A", pa.int64())])
    with pytest.raises(InvalidInputError, match=r"columns=\['a', 'A'\] fix=.*case_sensitive=True"):
        new_table(tmp_path, both)
    with pytest.raises(InvalidInputError, match=r"the fields of s, because case does not count: columns=\['b', 'B'\]"):
        new_table(tmp_path, pa.schema([("id", pa.int64()), ("s", pa.struct([("b", pa.int8()), ("B", pa.int8())]))]))
    table = new_table(tmp_path, both, case_sensitive=True)
    table.write({"ID": [1], "A": [2], "a": [3]})
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "a": 3, "A": 2}]
    with pytest.raises(
        InvalidInputError, match=r"two columns of the rows are one of the table: columns=\['id', 'ID'\]"
    ):
        table.write({"id": [1], "ID": [2]})


def test_the_rows_of_another_read_are_written(table: Table, tmp_path: Path) -> None:
    table.write(ARROW)
    copy = new_table(tmp_path, SCHEMA)
    copy.write(table.read())
    copy.write(table.diff(0))
    assert copy.read().to_arrow().equals(table.read().to_arrow())


def test_an_index_of_pandas_without_a_name_is_no_column(table: Table) -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "s": ["a", "b", "c"]})
    table.write(frame[frame["id"] > 1])
    assert table.read().to_arrow()["id"].to_pylist() == [2, 3]
    table.write(frame.assign(s="new").set_index("id"))
    assert table.read().to_arrow()["s"].to_pylist() == ["new"] * 3


def test_kinds_are_a_column_or_beside_rows_in_memory(table: Table) -> None:
    table.write(pl.DataFrame({"id": [1, 2]}))
    table.write([{"id": 1, "_row_kind": "-D"}, {"id": 4}])
    table.write({"id": [4], "_row_kind": ["-D"]})
    table.write(pl.DataFrame({"id": [2, 3]}), kinds=["-D", "+I"])
    assert table.read().to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(InvalidInputError, match=r"kinds beside a stream cannot be matched with its rows: .*_row_kind"):
        table.write(ARROW.to_reader(), kinds=["+I"] * 3)
    with pytest.raises(InvalidInputError, match="one row kind per row is needed: rows=1 kinds=2"):
        table.write([{"id": 1}], kinds=["+I", "+I"])


def test_a_new_column_of_a_stream_is_merged(table: Table) -> None:
    table.write(pl.DataFrame({"id": [1], "more": [2.5]}).lazy(), options={"write.merge-schema": "true"})
    assert table.read().to_arrow(["id", "more"]).to_pylist() == [{"id": 1, "more": 2.5}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": ["a"]}, "a value does not fit the column: column=id type=int64"),
        ([{"id": 1, "m": 1.5}], r"a value does not fit the column: column=m type=decimal128\(10, 2\)"),
        ([{"id": 2**70}], "a value does not fit the column: column=id type=int64"),
        ({"id": [1], "s": ["a", "b"]}, r"columns have different lengths: lengths=\{'id': 1, 's': 2\}"),
        ({"id": [1], "t": ["a"]}, "the table has no such column: column=t"),
        (pa.array([1]), "rows are not columns of Arrow: given=Int64Array"),
        ([pa.record_batch({"id": [1]}), 3], "rows come as Arrow"),
        (pl.DataFrame({"id": ["a"]}), "a column has another type: column=id"),
    ],
)
def test_what_does_not_fit_is_refused(table: Table, rows: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        table.write(rows)
    assert table.latest_snapshot() is None


def test_a_stream_that_fails_leaves_nothing_visible(table: Table) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield ARROW.to_batches()[0]
        raise ValueError("no more")

    with pytest.raises((InvalidInputError, ValueError), match="no more"):
        table.write(pa.RecordBatchReader.from_batches(SCHEMA, failing()))
    with pytest.raises(ValueError, match="no more"):
        table.write(failing())
    assert table.latest_snapshot() is None
    assert not [path for path in Path(table.store.paths.root).rglob("data-*")]


@pytest.mark.sweep
def test_a_stream_larger_than_the_buffer_is_written_in_bounded_memory(tmp_path: Path) -> None:
    """96 MB of rows with a buffer of 4 MB; each batch is 4 MB."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = new_table(tmp_path, schema, options={"write-buffer-size": "4 mb"})
    rows, batches = 1 << 18, 24
    before, most = pa.total_allocated_bytes(), 0

    def stream() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(batches):
            values = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
            yield pa.record_batch([values, values], schema)
            most = max(most, pa.total_allocated_bytes() - before)

    table.write(pa.RecordBatchReader.from_batches(schema, stream()))
    assert table.read().to_duckdb().aggregate("count(*), sum(v)").fetchall() == [
        (rows * batches, rows * batches * (rows * batches - 1) // 2)
    ]
    assert most < 40 << 20


def test_what_is_held_is_read_again_and_a_stream_is_not(table: Table) -> None:
    """A writer of a log that lost its turn reads its rows again."""
    held = given_rows(pl.DataFrame(ARROW), table.schema)
    assert [sum(map(len, held.open())) for _ in range(3)] == [3, 3, 3]
    streams = (ARROW.to_reader(), (batch for batch in ARROW.to_batches()), pl.DataFrame(ARROW).lazy())
    assert [given_rows(rows, table.schema).is_read_once for rows in streams] == [True] * 3
    assert not held.is_read_once
