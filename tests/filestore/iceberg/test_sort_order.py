"""Iceberg's metadata says how the rows of a file are sorted, and they are: files of a key by it, others not."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from filestore.catalog.catalog import FileCatalog
from filestore.compact.compactor import compact_buckets
from filestore.compact.row_order import RowOrder
from filestore.evolution.schema_change import RenameColumn
from filestore.table import FileTable
from tests.support.iceberg import iceberg_rows, opened, own_rows

SCHEMA = pa.schema(
    [("v", pa.int64()), ("b", pa.binary()), ("id", pa.int64()), ("pt", pa.string()), ("f", pa.float64())]
)
HERE = {"metadata.iceberg.storage": "table-location"}


def table_in(directory: Path, **more: Any) -> FileTable:
    options = {**HERE, **more.pop("options", {})}
    return FileCatalog(str(directory)).create_table("db.t", SCHEMA, options=options, **more)


def some(choice: random.Random, count: int) -> pa.Table:
    columns = {
        "v": [choice.choice([None, choice.randint(-9, 9)]) for _ in range(count)],
        "b": [choice.randbytes(choice.randint(0, 2)) for _ in range(count)],
        "id": [choice.randint(-1000, 1000) for _ in range(count)],
        "pt": [choice.choice("ab") for _ in range(count)],
        "f": [choice.choice([-0.0, 0.0, 1.5, float("nan"), -2.0]) for _ in range(count)],
    }
    return pa.table(columns, schema=SCHEMA)


def order_of(table: FileTable) -> tuple[int, list[str]]:
    """The id and the columns of the current order, all of them ascending values."""
    found = opened(table)
    order = found.sort_order()
    for each in order.fields:
        assert isinstance(each.transform, IdentityTransform)
        assert (each.direction, each.null_order) == (SortDirection.ASC, NullOrder.NULLS_FIRST)
    return order.order_id, [found.schema().find_column_name(each.source_id) or "" for each in order.fields]


def ids_of(table: FileTable) -> set[int | None]:
    return {task.file.sort_order_id for task in opened(table).scan().plan_files()}


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        (["pt", "b", "id"], ["b", "id"]),  # in a partition all rows have one value of it
        (["pt", "id", "f", "b"], ["id"]),  # a NaN with a sign is Iceberg's smallest value, and Paimon's greatest
        (["pt", "f"], []),
    ],
)
def test_files_of_a_key_are_sorted_by_it_as_said(tmp_path: Path, key: list[str], columns: list[str]) -> None:
    """Issue 20 point 1: the order by pyiceberg; the rows by plain Python; after merges and behind a renamed column."""
    choice = random.Random(20)
    table = table_in(tmp_path, primary_key=key, partition_by=["pt"], options={"bucket": "2", "target-file-size": "1kb"})
    for _ in range(3):
        table.write(some(choice, 60))
    table.compact(full=True)
    assert order_of(table) == (1 if columns else 0, columns)
    assert ids_of(table) == {1 if columns else None}
    for task in opened(table).scan().plan_files():
        rows = pq.read_table(task.file.file_path).select(columns).to_pylist()
        found = [tuple(row.values()) for row in rows]
        assert found == sorted(found)
    if "id" in columns:
        catalog = FileCatalog(str(tmp_path))
        catalog.alter_table("db.t", [RenameColumn(path=("id",), name="number")])
        table = catalog.table("db.t")
        table.write(some(choice, 5).rename_columns(["v", "b", "number", "pt", "f"]))
        assert order_of(table) == (1, ["number" if name == "id" else name for name in columns])
        assert ids_of(table) == {1}


def test_files_without_a_key_are_unsorted_also_when_clustered(tmp_path: Path) -> None:
    """Issue 20 point 1: a clustering divides rows, and no file says afterwards in which order it has them."""
    table = table_in(tmp_path)
    table.write(some(random.Random(20), 50))
    compact_buckets(table.store, order=RowOrder.of(table.store.schema, ["id"], "order"))
    assert order_of(table) == (0, [])
    assert ids_of(table) == {None}
    assert iceberg_rows(table) == own_rows(table)
