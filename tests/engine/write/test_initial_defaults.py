"""Rows from before a column was added have its initial default, wherever they are read and whatever filters them.

PostgreSQL gives old rows of ``ADD COLUMN e int NOT NULL DEFAULT 7`` the 7 without any event; they read as null here
(finding 4).
"""

from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.deploy.pipeline.pipeline import grown_schema
from engine.dialect.grammar.type_grammar import parse_type
from engine.types.spark_types import fields_of_frame, spark_schema
from filestore.evolution.schema_change import AddColumn, ChangeType, RenameColumn
from filestore.evolution.schema_merge import MergeRules, merge_changes
from logstore.format.connect_types import value_schema
from lsm.errors import InvalidInputError
from tests.support.rows import sorted_rows, write_rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def grown(tmp_path: Path, *, key: bool = True, text: str = "7", kind: str = "INT") -> Table:
    """A table with rows 1 and 2, then a column ``e`` with an initial default."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"] if key else [])
    write_rows(table, (1, 10), (2, 20))
    return catalog.alter_table("db.t", [add(kind, text)])


def add(kind: str, text: str) -> AddColumn:
    return AddColumn(path=("e",), type=parse_type(kind), initial_default=text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("INT", "7", 7), ("STRING", "new", "new"), ("BOOLEAN", "true", True), ("DOUBLE", "1.5", 1.5), ("STRING", "", "")],
)
def test_old_rows_have_it_and_new_ones_their_own(tmp_path: Path, kind: str, text: str, value: object) -> None:
    table = grown(tmp_path, kind=kind, text=text)
    write_rows(table, (2, 21, None), (3, 30, value))
    assert sorted_rows(table) == [(1, 10, value), (2, 21, None), (3, 30, value)]
    table.compact(full=True)
    assert sorted_rows(table) == [(1, 10, value), (2, 21, None), (3, 30, value)]


@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize(
    ("filter", "ids"), [("e = 7", [1, 2]), ("e IS NULL", [3]), ("e > 7", []), ("e IS NOT NULL AND v = 20", [2])]
)
def test_filters_see_it(tmp_path: Path, key: bool, filter: str, ids: list[int]) -> None:
    """Statistics of old files said that the column is null there."""
    table = grown(tmp_path, key=key)
    write_rows(table, (3, 30, None))
    assert sorted(table.read().to_arrow(filter=filter)["id"].to_pylist()) == ids


def test_it_stays_with_the_column_through_changes(tmp_path: Path) -> None:
    grown(tmp_path)
    changes = [ChangeType(("e",), parse_type("BIGINT")), RenameColumn(path=("e",), name="f")]
    assert sorted_rows(Catalog(str(tmp_path)).alter_table("db.t", changes), "id", "f") == [(1, 7), (2, 7)]


def test_what_is_no_value_or_cannot_be_filled_is_refused(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("db.t", SCHEMA, primary_key=["id"])
    for kind, text in (("INT", "x"), ("ARRAY<INT>", "[]")):
        with pytest.raises(InvalidInputError, match="default"):
            catalog.alter_table("db.t", [add(kind, text)])
    catalog.create_table("db.c", SCHEMA, options={"row-counts": "true"})
    with pytest.raises(InvalidInputError, match="rows that are counted"):
        catalog.alter_table("db.c", [add("INT", "7")])


def test_the_schema_file_has_it_beside_what_other_engines_read(tmp_path: Path) -> None:
    store = grown(tmp_path).files.store
    body = orjson.loads(store.io.read_bytes(store.paths.schema(1)))
    assert body["fields"][2] == {"id": 2, "name": "e", "type": "INT", "initialDefault": "7"}
    assert "initialDefault" not in body["fields"][1]


def test_rows_of_a_source_bring_it_along(tmp_path: Path) -> None:
    """From the schema part to old rows: the part, the pipeline's columns, the schema that the sink merges."""
    part = {"fields": [{"field": "after", "fields": [{"field": "e", "type": "int32", "default": 7}]}]}
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"])
    write_rows(table, (1, 10))
    rules = MergeRules(fitting=lambda known, given: True)
    fields = grown_schema(table.schema, value_schema(part), rules).fields
    given = fields_of_frame(spark_schema(fields), table.schema)
    assert sorted_rows(catalog.alter_table("db.t", merge_changes(table.schema, given, rules))) == [(1, 10, 7)]
