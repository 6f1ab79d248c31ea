"""A table with a log whose columns change: old records are read as the columns are now, new ones as they were."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.log.log_rows import log_rows
from engine.table import Table
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn
from filestore.table_view import TableView
from filestore.types.data_types import DataField, DataType
from logstore.log.marker import read_tail
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError
from tests.support.log_formats import FORMATS, FormatOptions

pytestmark = pytest.mark.broker
INT, BIGINT = DataType(root="INT"), DataType(root="BIGINT")
POINT = DataType(root="ROW", fields=(DataField(id=0, name="x", type=INT),))


def logged(table: Table, seen: TableView) -> list[dict[str, Any]]:
    """All records of the log, as a reader with some schema sees them."""
    log = table.log
    assert log is not None
    whole = LogRange(bucket=0, start_offset=0, end_offset=table.log_end_offsets()[0])
    changes = log_rows(seen, log, whole, columns=seen.schema.column_names)
    return [row for each in changes for row in each.rows.to_pylist()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("log_format", FORMATS)
def test_records_are_found_under_every_name_that_a_column_had(
    broker: Broker, tmp_path: Path, log_format: str, format_options: FormatOptions
) -> None:
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    name = f"db.evolved_{log_format.replace('-', '_')}"
    columns = pa.schema(
        [("id", pa.int64()), ("a", pa.int32()), ("gone", pa.int32()), ("p", pa.struct([("x", pa.int32())]))]
    )
    first = catalog.create_table(
        name, columns, primary_key=["id"], options={"bucket": "1", **format_options(log_format)}
    )
    first.write(pa.table({"id": [1], "a": [1], "gone": [1], "p": [{"x": 1}]}, schema=columns))
    second = catalog.alter_table(
        name,
        [
            RenameColumn(("a",), "b"),
            ChangeType(("b",), BIGINT),
            DropColumn(("gone",)),
            AddColumn(path=("c",), type=INT),
            AddColumn(path=("p", "y"), type=INT),
        ],
    )
    second.write(
        pa.table({"id": [2], "b": [2**40], "c": [2], "p": [{"x": 2, "y": 2}]}, schema=second.schema.arrow_schema)
    )
    first.write(pa.table({"id": [3], "a": [3], "gone": [3], "p": [{"x": 3}]}, schema=columns))  # still open
    third = catalog.alter_table(name, [RenameColumn(("b",), "d")])
    third.write(pa.table({"id": [4], "d": [4], "c": [4], "p": [None]}, schema=third.schema.arrow_schema))
    rows = [
        {"id": 1, "d": 1, "p": {"x": 1, "y": None}, "c": None},
        {"id": 2, "d": 2**40, "p": {"x": 2, "y": 2}, "c": 2},
        {"id": 3, "d": 3, "p": {"x": 3, "y": None}, "c": None},
        {"id": 4, "d": 4, "p": None, "c": 4},
    ]
    assert logged(third, third.files) == rows
    assert third.read().to_arrow().to_pylist() == rows
    assert [row["b"] for row in logged(third, second.files)] == [1, 2**40, 3, 4]
    for taken in ("gone", "a", "b"):
        with pytest.raises(InvalidInputError, match="was another column's"):
            catalog.alter_table(name, [AddColumn(path=(taken,), type=INT)])
    assert third.log is not None
    tail = read_tail(third.log.properties, topic=third.log.topic, bucket=0)
    assert tail.marker is not None
    assert tail.marker.schema_id == third.schema.id == 2
    union = third.read(options={"scan.log.union": "true"}).to_arrow()
    assert union.sort_by("id").to_pylist() == rows
