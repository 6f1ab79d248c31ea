"""Every table of a catalog is managed: its options are completed, its storage comes and goes with it."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import engine
from engine import Catalog, procedures
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import SetOption
from filestore.io.file_io import LocalFileIO
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture(params=["filesystem", "jdbc"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """Of both kinds of catalogs (FL-112)."""
    return {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/c.db"} if request.param == "jdbc" else {}


def test_a_table_names_no_connector(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-110, FL-111, FL-113, FL-114."""
    catalog = Catalog(str(tmp_path / "w"), options=options)
    with pytest.raises(InvalidInputError, match="unknown option: option=connector"):
        catalog.create_table("db.t", SCHEMA, options={"connector": "kafka"})
    with pytest.raises(InvalidInputError, match="option=type value=format-table"):
        catalog.create_table("db.t", SCHEMA, options={"type": "format-table"})
    assert catalog.list_databases() == []
    assert catalog.create_table("db.t", SCHEMA).schema.options.get("type", "table") == "table"


def test_options_are_completed_by_the_catalogs_and_stored(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-68, FL-83, FL-115: weakest the catalog's, in both of its spellings; what others would guess is written out."""
    defaults = {"table-default.bucket": "3", "table-storage.file.compression": "lz4", "write-only": "true"}
    catalog = Catalog(str(tmp_path / "w"), options={**options, **defaults})
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"table-storage.bucket": "5"})
    stored = {"bucket": "5", "file.compression": "lz4", "write-only": "true", "file.format": "parquet"}
    assert dict(table.schema.options) == stored
    again = Catalog(str(tmp_path / "w"), options={**options, "bucket": "7", "file.compression": "gzip"})
    assert dict(again.table("db.t").schema.options) == stored  # a table that exists keeps its own
    assert not {*options, "uri"} & {*stored}


@pytest.mark.parametrize(
    "key", ["file.path", "path", "file.root-path", "table-storage.file.path", "table-default.file.path"]
)
def test_a_table_lies_in_its_warehouse_or_is_refused(tmp_path: Path, options: Mapping[str, str], key: str) -> None:
    """FL-65, FL-68: whoever allows no other place gets none; see ``test_placed_tables``."""
    warehouse, other = str(tmp_path / "w"), str(tmp_path / "elsewhere")
    words = r"tables lie in the warehouse of their catalog.*: option=(file\.)?path value=.*elsewhere.*fix="
    with pytest.raises(InvalidInputError, match=words):
        Catalog(warehouse, options={**options, key: other})
    with pytest.raises(InvalidInputError, match=words):
        FileCatalog(warehouse, {**options, key: other})
    catalog = Catalog(warehouse, options=options)
    own = key.replace("default", "storage")
    with pytest.raises(InvalidInputError, match=words):
        catalog.create_table("db.t", SCHEMA, options={own: other})
    with pytest.raises(InvalidInputError, match=words):
        FileCatalog(warehouse, options).create_table("db.t", SCHEMA, options={own: other})
    assert catalog.list_databases() == []
    for number, place in enumerate((warehouse, f"file://{warehouse}/", f"{warehouse}/db.db/t2")):
        made = catalog.create_table(f"db.t{number}", SCHEMA, options={own: place})
        assert "file.path" not in made.schema.options
        with pytest.raises(InvalidInputError, match="directory"):
            catalog.alter_table(f"db.t{number}", [SetOption(own.removeprefix("table-storage."), other)])
    same = Catalog(warehouse, options={**options, key: warehouse}).create_table("db.same", SCHEMA)
    assert same.store.paths.root.startswith(warehouse)


def test_a_table_of_an_older_version_that_stores_another_root_is_copied_without_it(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "w"))
    table = catalog.create_table("db.t", SCHEMA)
    path = Path(table.store.paths.schema_dir) / "schema-0"
    path.write_text(path.read_text().replace('"options": {', '"options": {"file.path": "/elsewhere", ', 1))
    assert catalog.table("db.t").schema.options["file.path"] == "/elsewhere"
    catalog.table("db.t").write(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))
    procedures.copy(catalog, "db.t", "db.copied")
    engine.sql(None, "CREATE TABLE db.alike LIKE db.t", catalog=catalog)
    for name in ("db.copied", "db.alike"):
        assert "file.path" not in catalog.table(name).schema.options


@pytest.mark.parametrize("options", ["jdbc"], indirect=True)
def test_where_directories_move_no_names_are_swapped(tmp_path: Path, options: Mapping[str, str]) -> None:
    """Nothing is asked of the tables then: OR REPLACE drops and renames, whatever topic the old one has.

    Where names are the directories, these change in one step: see ``test_replaced_tables``.
    """
    catalog = Catalog(str(tmp_path / "w"), options=options)
    assert catalog.swap_tables("db.missing", "db.missing too") is False


def test_storage_comes_and_goes_with_the_table(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-116, FL-117; of topics: tests of tables with a log."""
    catalog = Catalog(str(tmp_path / "w"), options=options)
    table = catalog.create_table("db.t", SCHEMA)
    place = Path(table.store.paths.root)
    assert (place / "schema" / "schema-0").is_file()
    table.write(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))
    with pytest.raises(InvalidInputError, match="not empty"):
        catalog.drop_database("db")
    catalog.drop_database("db", cascade=True)
    assert not place.exists()
    assert catalog.list_databases() == []
    catalog.drop_database("db", if_exists=True)
    with pytest.raises(InvalidInputError, match="no such database"):
        catalog.drop_database("db")


def test_of_two_drops_at_once_one_finds_the_table_and_if_exists_nothing(
    tmp_path: Path, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user drops it before any step of a drop; where nobody does, the name is looked up once."""
    catalog, other = (Catalog(str(tmp_path / "w"), options=options) for _ in range(2))
    look, left, looks = FileCatalog.table_exists, [0], [0]

    def counted(self: FileCatalog, name: str) -> bool:
        looks[0] += 1
        return look(self, name)

    def stepping(method: str) -> None:
        step = getattr(LocalFileIO, method)

        def after_another_drop(self: LocalFileIO, *given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                other.drop_table("db.t", if_exists=True)
            return step(self, *given)

        monkeypatch.setattr(LocalFileIO, method, after_another_drop)

    catalog.create_database("db")
    for method in ("exists", "is_directory", "list_names", "read_bytes", "move_directory"):
        stepping(method)
    monkeypatch.setattr(FileCatalog, "table_exists", counted)
    for number in itertools.count(1):
        left[0] = 0
        catalog.create_table("db.t", SCHEMA)
        left[0], looks[0] = number, 0
        assert catalog.drop_table("db.t", if_exists=True) == []
        if left[0] > 0:
            break
        assert not catalog.table_exists("db.t"), number
    assert number > 5
    assert looks == [1]
