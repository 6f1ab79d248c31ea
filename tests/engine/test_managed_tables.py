"""Every table of a catalog is managed: its options are completed, its storage comes and goes with it."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
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
    with pytest.raises(InvalidInputError, match="type=format-table"):
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


def test_where_directories_move_no_names_are_swapped(tmp_path: Path, options: Mapping[str, str]) -> None:
    """Nothing is asked of the tables then: OR REPLACE drops and renames, whatever topic the old one has."""
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
