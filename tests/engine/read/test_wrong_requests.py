"""What can never succeed is an InvalidInputError, so that nobody tries it again; nothing is a bare error. (FL-14)"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.table import Table
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError

LONG = "x" * 300
COLUMNS = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Catalog(str(tmp_path)).create_table("d.t", COLUMNS, partition_by=["p"])
    made.write(pa.table({"id": [1], "p": ["a"]}))
    return made


TOO_LONG: dict[str, Callable[[Catalog, Table], object]] = {
    "table": lambda catalog, table: catalog.create_table(f"d.{LONG}", COLUMNS),
    "database": lambda catalog, table: catalog.create_table(f"{LONG}.t", COLUMNS),
    "opened table": lambda catalog, table: catalog.table(f"d.{LONG}"),
    "new name": lambda catalog, table: catalog.rename_table("d.t", f"d.{LONG}"),
    "partition value": lambda catalog, table: table.write(pa.table({"id": [1], "p": [LONG]})),
    "tag": lambda catalog, table: create_tag(table.store, LONG),
    "tag to read": lambda catalog, table: table.read(tag=LONG).to_arrow(),
    "consumer": lambda catalog, table: table.store.consumers.write(LONG, 1),
}


@pytest.mark.parametrize("use", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_name_that_no_file_can_have_is_refused(
    tmp_path: Path, table: Table, use: Callable[[Catalog, Table], object]
) -> None:
    with pytest.raises(InvalidInputError, match=r"name is too long for .*: .*fix=|option=scan\.tag-name"):
        use(Catalog(str(tmp_path)), table)
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "p": "a"}]


@pytest.mark.parametrize("warehouse", ["", " "])
def test_a_warehouse_without_a_name_is_not_the_working_directory(warehouse: str) -> None:
    with pytest.raises(InvalidInputError, match="the warehouse has no name: fix="):
        Catalog(warehouse)


def test_a_warehouse_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="directory cannot be made: path=/proc/x/"):
        Catalog("/proc/x").create_table("d.t", COLUMNS)


@pytest.mark.parametrize("wrap", [lambda row: row, pa.list_, lambda row: pa.struct([("inner", row)])])
def test_a_row_needs_fields(tmp_path: Path, wrap: Callable[[pa.DataType], pa.DataType]) -> None:
    with pytest.raises(InvalidInputError, match="a ROW has no fields: column=r fix="):
        Catalog(str(tmp_path)).create_table("d.r", pa.schema([("r", wrap(pa.struct([])))]))


@pytest.mark.parametrize("given", [3, ["id > 0"], lambda row: True])
def test_a_filter_is_sql_or_an_expression(table: Table, given: object) -> None:
    with pytest.raises(InvalidInputError, match=r"a filter is SQL text or an expression of PyArrow: given="):
        table.read().to_arrow(filter=given)


def test_columns_are_a_list(table: Table) -> None:
    with pytest.raises(InvalidInputError, match=r"columns are a list of names: given='id' fix='columns=\['id'\]'"):
        table.read().to_arrow(columns="id")


@pytest.mark.parametrize("rows", [{"id": 1}, [1], ["id"], None, 7, "id", b"id", object()])
def test_rows_are_arrow_or_dicts_or_a_frame(table: Table, rows: object) -> None:
    newest = table.store.snapshots.latest_id()
    for write in (table.write, table.overwrite, table.append):
        with pytest.raises(InvalidInputError, match=r"rows come as Arrow|a dict of columns has a list for each"):
            write(rows)
    assert table.store.snapshots.latest_id() == newest


@pytest.mark.parametrize("columns", [{"id": "int"}, [("id", pa.int64())], ["id"]])
def test_columns_of_a_table_are_an_arrow_schema(tmp_path: Path, columns: Any) -> None:
    with pytest.raises(InvalidInputError, match="columns are an Arrow schema: given="):
        Catalog(tmp_path).create_table("d.t", columns)


@pytest.mark.parametrize("given", [None, 3, ("d", "t")])
def test_names_are_texts(tmp_path: Path, given: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"a table is named database\.table: given="):
        Catalog(str(tmp_path)).table(given)
    with pytest.raises(InvalidInputError, match="a warehouse is a path or an address: given="):
        Catalog(given)
