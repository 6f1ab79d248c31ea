"""Rows of a catalog's database that others may write: they name no place outside of the warehouse."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.sql_database import DATABASE_PROPERTIES, TABLE_PROPERTIES, TABLES
from filestore.catalog.sql_names import DIRECTORY_NOTE, LOCATION
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import FluvialError, InvalidInputError
from tests.support.warehouses import digests_below

ALLOWED = CatalogOptions.external_paths_allowed.key
SCHEMA = pa.schema([("id", pa.int64())])
KEY = {"catalog_key": "k", "database_name": "db"}
LOCATIONS = (
    *(
        "{victim}",
        "file://{victim}",
        "file:{victim}",
        "{warehouse}/../private/db.db",
        "{warehouse}x",
        "file://{victim}/below",
    ),
    *("", "relative", "s3://bucket/db.db", "hdfs://name/db.db", "http://evil.example/", "file://evil.example/x"),
    *("a\x00b", "/a\x00b", "/" + "x" * 5000, "x" * 100_000, "\ud7ff", "../..", "jdbc:sqlite:/x"),
)
DIRECTORIES = (
    *(
        "..",
        ".",
        "../..",
        "{victim}/t",
        "file:{victim}/t",
        "../../private/db.db/t",
        "{victim}/below",
        "file://{victim}/below",
    ),
    *("s3://bucket/t", "http://evil.example/t", "", " ", "a\x00b", "x" * 100_000),
)


def written(catalog: FileCatalog, name: str) -> None:
    catalog.create_table(name, SCHEMA).write(pa.table({"id": [1]}, SCHEMA))


class Shared:
    """A catalog in a database that a stranger writes, too; another's table lies outside of its warehouse."""

    def __init__(self, place: Path) -> None:
        self.warehouse, self.private = place / "w", place / "private"
        self.address = f"sqlite:///{place}/names.db"
        written(self.opened(), "db.t")
        written(FileCatalog(str(self.private)), "db.t")

    def opened(self, **options: str) -> FileCatalog:
        return FileCatalog(
            str(self.warehouse), {"metastore": "jdbc", "uri": self.address, "catalog-key": "k", **options}
        )

    def forge(self, table: sa.Table, text: str, **row: str) -> None:
        value = text.format(victim=self.private / "db.db", warehouse=self.warehouse)
        engine = sa.create_engine(self.address)
        with engine.begin() as connection:
            same = [table.c[name] == each for name, each in {**KEY, **row}.items()]
            connection.execute(sa.delete(table).where(*same))
            connection.execute(sa.insert(table), {**KEY, **row, "property_value": value})
        engine.dispose()

    def do_all(self) -> list[Any]:
        """Each deed of a user with the table, and what it gave or raised: nothing but errors of ours."""
        deeds = (
            lambda catalog: catalog.list_tables("db"),
            lambda catalog: catalog.table("db.t").read().to_arrow(),
            lambda catalog: catalog.table("db.t").write(pa.table({"id": [2]}, SCHEMA)),
            lambda catalog: catalog.create_table("db.new", SCHEMA).write(pa.table({"id": [2]}, SCHEMA)),
            lambda catalog: catalog.rename_table("db.t", "db.u"),
            lambda catalog: catalog.drop_table("db.t"),
            lambda catalog: catalog.drop_database("db", cascade=True),
        )
        said = []
        for deed in deeds:
            with suppress(FluvialError):
                said.append(deed(self.opened()))
        return said


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


@pytest.mark.sampled(6)
@pytest.mark.sweep
@pytest.mark.parametrize("location", LOCATIONS, ids=range(len(LOCATIONS)))
def test_a_database_is_nowhere_but_in_the_warehouse(location: str, shared: Shared) -> None:
    before = digests_below(shared.private)
    shared.forge(DATABASE_PROPERTIES, location, property_key=LOCATION)
    shared.do_all()
    assert digests_below(shared.private) == before


@pytest.mark.sampled(6)
@pytest.mark.sweep
@pytest.mark.parametrize("directory", DIRECTORIES, ids=range(len(DIRECTORIES)))
def test_a_table_is_nowhere_but_in_the_warehouse(directory: str, shared: Shared) -> None:
    before = digests_below(shared.private)
    shared.forge(TABLE_PROPERTIES, directory, table_name="t", property_key=DIRECTORY_NOTE)
    shared.do_all()
    assert digests_below(shared.private) == before
    assert (shared.warehouse / "db.db").is_dir() or directory != ".."


@pytest.mark.parametrize("is_database", [True, False])
def test_who_opens_the_catalog_may_allow_the_place(is_database: bool, shared: Shared) -> None:
    if is_database:
        shared.forge(DATABASE_PROPERTIES, "{victim}", property_key=LOCATION)
    else:
        shared.forge(TABLE_PROPERTIES, "{victim}/t", table_name="t", property_key=DIRECTORY_NOTE)
    with pytest.raises(InvalidInputError, match=rf"table=db.t path={shared.private}/db.db/t option={ALLOWED} .*fix="):
        shared.opened().table("db.t")
    allowing = shared.opened(**{ALLOWED: str(shared.private)})
    assert allowing.table("db.t").read().to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("name", ["../../private/db.db/t", "..", "a/b", "", "a\x00b", "x" * 5000, "t$branch_b", "*"])
def test_a_name_in_a_row_leads_nowhere(name: str, shared: Shared) -> None:
    engine = sa.create_engine(shared.address)
    with engine.begin() as connection:
        connection.execute(sa.insert(TABLES), {**KEY, "table_name": name})
    engine.dispose()
    before = digests_below(shared.private)
    assert "t" in shared.opened().list_tables("db")
    with suppress(FluvialError):
        shared.opened().table(f"db.{name}").read().to_arrow()
    shared.do_all()
    assert digests_below(shared.private) == before
