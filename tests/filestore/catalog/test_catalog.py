from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.warehouse import warehouse_path
from filestore.evolution.schema_change import SetOption
from filestore.io.memory_files import MemoryFiles
from lsm.errors import InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, Nth, When
from tests.support.tables import KEY_SCHEMA, WAREHOUSE, content, memory_catalog, rows


def test_a_created_table_is_there_with_directory_and_schema(tmp_path: Path) -> None:
    """FL-01, FL-17."""
    catalog = FileCatalog(tmp_path.as_uri())
    table = catalog.create_table("shop.orders", KEY_SCHEMA, primary_key=["id"], comment="all orders")
    assert (tmp_path / "shop.db" / "orders" / "schema" / "schema-0").is_file()
    assert table.schema.comment == "all orders"
    assert (catalog.list_databases(), catalog.list_tables("shop")) == (["shop"], ["orders"])
    table.write(rows((1, 1)))
    assert content(catalog.table("shop.orders")) == {1: 1}
    assert content(FileCatalog(str(tmp_path)).table("shop.orders")) == {1: 1}


def test_a_table_is_made_once() -> None:
    """FL-07."""
    catalog = memory_catalog()
    first = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    with pytest.raises(InvalidInputError, match=r"table exists already: table=db\.t"):
        catalog.create_table("db.t", KEY_SCHEMA)
    again = catalog.create_table("db.t", KEY_SCHEMA, if_not_exists=True)
    assert again.schema == first.schema


def test_of_two_that_create_a_table_one_wins_wherever_the_other_one_is_paused() -> None:
    clean = FaultyFileIO(MemoryFileIO())
    memory_catalog(clean).create_table("db.t", KEY_SCHEMA)
    made = next(number for number, line in enumerate(clean.log, 1) if line.startswith("create_exclusive"))
    for before in range(1, made + 1):
        disk = MemoryFileIO()
        catalog = memory_catalog(disk)

        def meanwhile(catalog: FileCatalog = catalog) -> None:
            catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"]).write(rows((1, 1)))

        with pytest.raises(InvalidInputError, match="exists already"):
            memory_catalog(Nth(disk, before, meanwhile)).create_table("db.t", pa.schema([("x", pa.int64())]))  # type: ignore[arg-type]
        assert content(catalog.table("db.t")) == {1: 1}


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fail_at", range(1, 6))
def test_a_failed_creation_shows_a_whole_table_or_none(fail_at: int, when: When) -> None:
    disk = MemoryFileIO()
    io = FaultyFileIO(disk, fail_at=fail_at, when=when)
    with suppress(UnavailableError, OutcomeUnknownError):
        memory_catalog(io).create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    catalog = memory_catalog(disk)
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], if_not_exists=True)
    table.write(rows((1, 1)))
    assert content(catalog.table("db.t")) == {1: 1}


def test_wrong_schemas_and_options_leave_nothing_behind() -> None:
    """FL-18: checked before anything is stored."""
    disk = MemoryFileIO()
    catalog = memory_catalog(disk)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"primary_key": ["nope"]}, "nope"),
        ({"primary_key": ["id"], "partition_by": ["v"]}, "partition"),
        ({"primary_key": ["id"], "options": {"bukket": "2"}}, "did_you_mean=.*bucket"),
        (
            {
                "primary_key": ["id"],
                "options": {"merge-engine": "aggregation", "fields.v.aggregate-function": "summ"},
            },
            "summ",
        ),
    ]
    for arguments, text in wrong:
        with pytest.raises(InvalidInputError, match=text):
            catalog.create_table("db.t", KEY_SCHEMA, **arguments)  # type: ignore[arg-type]
    assert not disk.files


def test_dropping_removes_the_storage() -> None:
    """FL-19."""
    disk = MemoryFileIO()
    catalog = memory_catalog(disk)
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"]).write(rows((1, 1)))
    catalog.drop_table("db.t")
    assert not any("/t/" in name for name in disk.files)
    with pytest.raises(InvalidInputError, match="no such table"):
        catalog.drop_table("db.t")
    catalog.drop_table("db.t", if_exists=True)


def test_an_interrupted_drop_leaves_no_table_and_is_finished_by_the_next() -> None:
    disk = MemoryFileIO()
    memory_catalog(disk).create_table("db.t", KEY_SCHEMA, primary_key=["id"]).write(rows((1, 1)))
    io = FaultyFileIO(disk)
    catalog = memory_catalog(io)
    calls = io.calls
    io.fail_at = next(
        number for number in range(calls + 1, calls + 20) if _drop_fails(disk, number) == "delete_tree root"
    )
    with pytest.raises(UnavailableError):
        catalog.drop_table("db.t")
    assert memory_catalog(disk).list_tables("db") == []
    with pytest.raises(InvalidInputError, match="not empty"):
        memory_catalog(disk).create_table("db.t", KEY_SCHEMA)
    memory_catalog(disk).drop_table("db.t")
    memory_catalog(disk).create_table("db.t", KEY_SCHEMA)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_table_that_is_renamed_or_dropped_while_it_is_opened_is_open_or_not_there(is_dropped: bool) -> None:
    """soak: it was called corrupt, because its schema file was missing."""
    for nth in range(1, 99):
        disk = MemoryFiles()
        catalog, ran = memory_catalog(disk), []
        catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])

        def change(catalog: FileCatalog = catalog, ran: list[bool] = ran) -> None:
            ran.append(True)
            catalog.drop_table("db.t") if is_dropped else catalog.rename_table("db.t", "db.u")

        opening = memory_catalog(Nth(disk, nth, change))  # type: ignore[arg-type]
        said = ""
        try:
            assert opening.table("db.t").schema.column_names == ("id", "v")
        except InvalidInputError as error:
            said = str(error)
        assert said == "" or said.startswith("no such table: table=db.t")
        if not ran:
            return


def test_what_a_commit_left_that_died_behind_a_rename_is_removed_by_a_drop() -> None:
    """Seed 3010307: it had begun to take its snapshot back from the former name, which was taken for good then."""
    disk = MemoryFiles()
    disk.create_exclusive(f"{WAREHOUSE}/db.db/t/snapshot/snapshot-5", b"{}")
    disk.make_inside(f"{WAREHOUSE}/db.db/t/.gone-1")
    catalog = memory_catalog(disk)
    with pytest.raises(InvalidInputError, match="drop or remove it"):
        catalog.create_table("db.t", KEY_SCHEMA)
    catalog.drop_table("db.t", if_exists=True)
    catalog.create_table("db.t", KEY_SCHEMA)


def _drop_fails(disk: MemoryFileIO, number: int) -> str:
    copy = MemoryFileIO()
    copy.files = dict(disk.files)
    io = FaultyFileIO(copy)
    memory_catalog(io).drop_table("db.t")
    line = io.log[number - 1] if number <= len(io.log) else ""
    return "delete_tree root" if line == f"delete_tree {WAREHOUSE}/db.db/t" else line


def test_foreign_directories_are_neither_opened_nor_removed() -> None:
    disk = MemoryFileIO()
    disk.write_new(f"{WAREHOUSE}/db.db/photos/cat.jpg", b"...")
    catalog = memory_catalog(disk)
    assert catalog.list_tables("db") == []
    with pytest.raises(InvalidInputError, match="not a table, it has no schema"):
        catalog.table("db.photos")
    with pytest.raises(InvalidInputError, match="not a table, nothing was removed"):
        catalog.drop_table("db.photos")
    with pytest.raises(InvalidInputError, match="directory is not empty"):
        catalog.create_table("db.photos", KEY_SCHEMA)
    assert disk.exists(f"{WAREHOUSE}/db.db/photos/cat.jpg")


def test_what_is_missing_is_named() -> None:
    catalog = memory_catalog()
    with pytest.raises(InvalidInputError, match=r"no such database: database=db"):
        catalog.table("db.t")
    catalog.create_table("db.t", KEY_SCHEMA)
    with pytest.raises(InvalidInputError, match=r"no such table: table=db\.u"):
        catalog.table("db.u")
    with pytest.raises(InvalidInputError, match=r"no such branch: table=db\.t branch=b"):
        catalog.table("db.t", branch="b")
    with pytest.raises(InvalidInputError, match=r"no such database: database=x .*'db'"):
        catalog.list_tables("x")


@pytest.mark.parametrize(
    "name", ["t", "a.b.c", "db.", ".t", "db.a/b", "db.a b ", "db.t$snapshots", "db.\x07", "../x.t", "db.'"]
)
def test_names_that_cannot_be_tables_are_refused(name: str) -> None:
    """FL-08."""
    with pytest.raises(InvalidInputError, match="name"):
        memory_catalog().create_table(name, KEY_SCHEMA)


def test_databases_are_made_listed_and_dropped(tmp_path: Path) -> None:
    catalog = FileCatalog(str(tmp_path))
    catalog.create_database("one")
    assert catalog.list_databases() == ["one"]
    assert list((tmp_path / "one.db").iterdir()) == []
    with pytest.raises(InvalidInputError, match="exists already"):
        catalog.create_database("one")
    catalog.create_database("one", if_not_exists=True)
    catalog.create_table("one.t", KEY_SCHEMA)
    with pytest.raises(InvalidInputError, match="not empty"):
        catalog.drop_database("one")
    catalog.drop_database("one", cascade=True)
    assert catalog.list_databases() == []
    catalog.drop_database("one", if_exists=True)


def test_catalog_defaults_hold_for_new_tables() -> None:
    catalog = FileCatalog(WAREHOUSE, {"table-default.bucket": "3"}, io=MemoryFileIO())
    assert catalog.create_table("db.a", KEY_SCHEMA, primary_key=["id"]).options.bucket == 3
    own = catalog.create_table("db.b", KEY_SCHEMA, primary_key=["id"], options={"bucket": "2"})
    assert own.options.bucket == 2


@pytest.mark.parametrize(
    ("warehouse", "path"),
    [
        ("/data/w", "/data/w"),
        ("/data/w/", "/data/w"),
        ("file:///data/w", "/data/w"),
        ("file:/data/w", "/data/w"),
        ("file://localhost/data/a%20b", "/data/a b"),
    ],
)
def test_warehouses_are_paths_or_file_uris(warehouse: str, path: str) -> None:
    assert warehouse_path(warehouse) == path


@pytest.mark.parametrize("warehouse", ["data/w", "", "ftp://host/w", "file://host/w"])
def test_other_warehouses_are_refused(warehouse: str) -> None:
    with pytest.raises(InvalidInputError, match="warehouse"):
        FileCatalog(warehouse)


def test_a_schema_change_that_comes_too_late_makes_no_table() -> None:
    """A process that altered a table was paused while it was renamed: what it left under the old name took rows."""
    files = MemoryFiles()
    catalog = memory_catalog(files)
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    late = catalog.alter_table("db.t", [SetOption("target-file-size", "1mb")])
    catalog.rename_table("db.t", "db.u")
    files.write_new(f"{catalog.table_path('db.t')}/schema/schema-1", late.to_json().encode())
    assert not catalog.table_exists("db.t")
    assert catalog.list_tables("db") == ["u"]
    with pytest.raises(InvalidInputError, match="directory is not a table"):
        catalog.table("db.t")
    with pytest.raises(InvalidInputError, match="directory is not empty"):
        catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    catalog.drop_table("db.t")
    assert catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"]).schema.id == 0
