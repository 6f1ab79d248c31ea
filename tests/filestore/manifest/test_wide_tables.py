"""Tables of many columns: what is written is read back, by every operation."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pytest

from filestore.evolution.schema_change import AddColumn
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType
from tests.support.tables import memory_catalog

T = TypeVar("T")


@pytest.mark.sweep
@pytest.mark.parametrize("key", [["id"], []])
def test_a_table_of_more_columns_than_a_reader_once_took_is_written_and_read(key: list[str]) -> None:
    """4,096 null counts were the most that a reader took of an entry, and no writer knew it."""
    names = [f"c{index}" for index in range(4_200)]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=not key), *((name, pa.int32()) for name in names)])
    catalog = memory_catalog()
    options = {"bucket": "1"} if key else {}
    table = catalog.create_table("db.wide", schema, primary_key=key, options=options)
    rows = pa.table({"id": [1, 2], **{name: [index, None] for index, name in enumerate(names)}}, schema=schema)
    table.write(rows)
    table.write(rows)
    expected = rows if key else pa.concat_tables([rows, rows])
    assert table.read().to_arrow().combine_chunks().equals(expected.combine_chunks())
    table.compact(full=True)
    catalog.alter_table("db.wide", [AddColumn(path=("late",), type=DataType(root="INT"))])
    wider = catalog.table("db.wide")
    wider.write(pa.table({"id": pa.array([3], pa.int64()), "late": pa.array([7], pa.int32())}))
    found = wider.read().to_arrow(columns=["id", "c4199", "late"]).sort_by("id").to_pylist()
    assert found[-1] == {"id": 3, "c4199": None, "late": 7}
    assert found[0] == {"id": 1, "c4199": 4199, "late": None}


def costs(width: int) -> dict[str, float]:
    """Processor seconds of each operation on a table of so many columns."""
    catalog, found = memory_catalog(), dict[str, float]()

    def timed(name: str, operation: Callable[[], T]) -> T:
        start = time.process_time()
        result = operation()
        found[name] = time.process_time() - start
        return result

    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), *((f"c{index}", pa.int32()) for index in range(width))]
    )
    create = partial(catalog.create_table, "db.wide", schema, primary_key=["id"], options={"bucket": "1"})
    table = timed("create", create)
    rows = pa.table({"id": [1, 2], **{f"c{index}": [index, None] for index in range(width)}}, schema=schema)
    timed("write", lambda: table.write(rows))
    timed("write beside rows", lambda: table.write(rows))
    assert timed("read", lambda: table.read().to_arrow()).num_columns == width + 1
    timed("compact", lambda: table.compact(full=True))
    late = AddColumn(path=("late",), type=DataType(root="INT"))
    timed("alter", lambda: catalog.alter_table("db.wide", [late]))
    text = timed("write the schema", table.schema.to_json)
    timed("read the schema", lambda: TableSchema.from_json(text))
    return found


@pytest.mark.sweep
def test_time_grows_as_the_number_of_columns() -> None:
    """Eight times the columns cost eight times as much; were it their square, 64 times."""
    costs(50)
    narrow, wide = ({name: min(each[name] for each in runs) for name in runs[0]} for runs in _runs(600, 4_800))
    grown = {name: wide[name] / max(narrow[name], 0.002) for name in wide}
    assert {name: ratio for name, ratio in grown.items() if ratio > 24} == {}


def _runs(*widths: int) -> list[list[dict[str, float]]]:
    return [[costs(width) for _ in range(2)] for width in widths]


@pytest.mark.sweep
def test_a_schema_of_100_000_columns_is_read_at_once() -> None:
    """Such a file kept a reader for minutes: it takes tens of times what reading its JSON does, not thousands."""
    fields = [DataField(id=index, name=f"c{index}", type=DataType(root="INT")) for index in range(100_000)]
    text = memory_catalog().create_table("db.wide", fields).schema.to_json()
    start = time.process_time()
    json.loads(text)
    plain = time.process_time() - start
    start = time.process_time()
    assert len(TableSchema.from_json(text).fields) == len(fields)
    assert time.process_time() - start < 60 * plain
