"""Tables of many columns: what is written is read back, by every operation."""

import pyarrow as pa
import pytest

from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import DataType
from tests.support.tables import memory_catalog


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
