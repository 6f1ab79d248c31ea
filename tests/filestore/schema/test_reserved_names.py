"""Columns that changes have beside the table's are no columns of new tables."""

import orjson
import pyarrow as pa
import pytest

from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from filestore.evolution.schema_change import AddColumn, ChangeComment, RenameColumn, SetOption
from filestore.schema.validation import STREAM_NAMES
from filestore.table import FileTable
from filestore.types.data_types import STRING
from lsm.errors import InvalidInputError
from tests.support.tables import memory_catalog

REFUSED = r"column name is reserved .*: column=_\w+ fix='rename it'"


def old_table() -> FileTable:
    """A table that was made before the names were reserved."""
    catalog = memory_catalog()
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("w", pa.int64())])
    table = catalog.create_table("db.t", schema, options={"bucket": "1", "bucket-key": "id"})
    body = orjson.loads(table.store.io.read_bytes(table.store.paths.schema(0)))
    body["fields"][1]["name"] = ROW_KIND_COLUMN
    table.store.io.delete(table.store.paths.schema(0))
    table.store.io.create_exclusive(table.store.paths.schema(0), orjson.dumps(body))
    return catalog.table("db.t")


def test_the_reserved_names_are_those_that_streams_add() -> None:
    assert {ROW_KIND_COLUMN, UNAVAILABLE_COLUMN, *MetadataColumn} == STREAM_NAMES


@pytest.mark.parametrize("name", [*sorted(STREAM_NAMES), "_ROW_KIND"])
def test_a_table_cannot_be_made_with_one(name: str) -> None:
    with pytest.raises(InvalidInputError, match=REFUSED):
        memory_catalog().create_table("db.t", pa.schema([("id", pa.int64()), (name, pa.string())]))


@pytest.mark.parametrize("name", sorted(STREAM_NAMES))
def test_a_column_cannot_get_one(name: str) -> None:
    catalog = memory_catalog()
    catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for change in (AddColumn(path=(name,), type=STRING), RenameColumn(path=("v",), name=name)):
        with pytest.raises(InvalidInputError, match=REFUSED):
            catalog.alter_table("db.t", [change])
    assert catalog.table("db.t").schema.column_names == ("id", "v")


def test_a_table_that_has_one_is_read_written_and_altered_as_before() -> None:
    table = old_table()
    assert table.schema.column_names == ("id", ROW_KIND_COLUMN, "w")
    table.write(pa.table({"id": [1], ROW_KIND_COLUMN: ["x"], "w": [2]}))
    assert table.read().to_arrow().to_pylist() == [{"id": 1, ROW_KIND_COLUMN: "x", "w": 2}]
    catalog = memory_catalog(table.store.io)
    catalog.alter_table("db.t", [SetOption("write-only", "true"), ChangeComment(path=("w",), comment="y")])
    catalog.alter_table("db.t", [RenameColumn(path=(ROW_KIND_COLUMN,), name="kind")])
    assert catalog.table("db.t").read().to_arrow().to_pylist() == [{"id": 1, "kind": "x", "w": 2}]
