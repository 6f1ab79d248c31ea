"""Names of tables, and the lock around commits, in a SQL database: SQLite and a real PostgreSQL."""

import multiprocessing
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
import sqlalchemy as sa

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.sql_database import DATABASE_PROPERTIES, LOCKS, SqlDatabase
from filestore.catalog.sql_names import LOCATION, SqlLockFactory
from filestore.io.file_io import SystemClock
from lsm.errors import ConflictError, InvalidInputError, UnavailableError
from tests.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.stores.object_store import ObjectStore
from tests.stores.postgres import PASSWORD
from tests.support.faults import FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.overwriting import OverwritingFileIO, write_commits
from tests.support.races import race_of_processes
from tests.support.tables import KEY_SCHEMA, check_metadata, content, rows

WRITERS, COMMITS = 3, 2
SCHEMA = pa.schema([("id", pa.int64())])
_numbers = count()


@pytest.fixture(params=["sqlite", "postgresql"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres"))
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def options(uri: str) -> Mapping[str, str]:
    """Of a catalog that no other test uses."""
    return {"metastore": "jdbc", "uri": uri, "catalog-key": f"test-{next(_numbers)}"}


def new_catalog(tmp_path: Path, options: Mapping[str, str], **more: Any) -> FileCatalog:
    return FileCatalog(str(tmp_path / "warehouse"), options, **more)


@pytest.mark.sweep
def test_tables_are_there_for_whoever_opens_the_database_under_the_same_key(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    """FL-112: a second catalog beside that of directories, with the same interface."""
    first, second = new_catalog(tmp_path, options), new_catalog(tmp_path, options)
    first.create_database("empty")
    with pytest.raises(InvalidInputError, match="database exists already: database=empty"):
        second.create_database("empty")
    table = first.create_table("shop.orders", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 1)))
    assert second.list_databases() == ["empty", "shop"]
    assert second.list_tables("shop") == ["orders"]
    assert content(second.table("shop.orders")) == {1: 1}
    assert (tmp_path / "warehouse" / "shop.db" / "orders" / "schema" / "schema-0").is_file()
    other = new_catalog(tmp_path, {**options, "catalog-key": "other"})
    assert "shop" not in other.list_databases()
    with pytest.raises(InvalidInputError, match=r"place has files of another table: .* fix='remove them"):
        other.create_table("shop.orders", KEY_SCHEMA)
    with pytest.raises(InvalidInputError, match=r"no such table: table=shop\.orders"):
        other.drop_table("shop.orders")
    second.drop_table("shop.orders")
    assert not first.table_exists("shop.orders")
    assert not (tmp_path / "warehouse" / "shop.db" / "orders").exists()
    first.drop_database("shop")
    first.drop_database("empty")
    assert second.list_databases() == []


@pytest.mark.parametrize(
    "place", ["{outside}", "file://{outside}", "{warehouse}", "{warehouse}/other.db", "{outside}/.."]
)
def test_a_database_that_is_dropped_takes_no_other_directory_with_it(
    place: str, tmp_path: Path, options: Mapping[str, str]
) -> None:
    """Where a database lies is a row of a database that others may write: it never says what is deleted."""
    outside, warehouse = tmp_path / "outside", tmp_path / "warehouse"
    catalog = new_catalog(tmp_path, options)
    catalog.create_table("other.t", SCHEMA).write(pa.table({"id": [1]}, SCHEMA))
    catalog.create_database("db")
    outside.mkdir()
    (outside / "precious").write_text("kept", encoding="utf-8")
    engine = sa.create_engine(options["uri"])
    with engine.begin() as connection:
        of = DATABASE_PROPERTIES.c
        row = sa.update(DATABASE_PROPERTIES).where(
            of.catalog_key == options["catalog-key"], of.database_name == "db", of.property_key == LOCATION
        )
        connection.execute(row.values(property_value=place.format(outside=outside, warehouse=warehouse)))
    engine.dispose()
    new_catalog(tmp_path, options).drop_database("db", cascade=True)
    assert (outside / "precious").read_text(encoding="utf-8") == "kept"
    assert new_catalog(tmp_path, options).table("other.t").read().to_arrow()["id"].to_pylist() == [1]
    assert "db" not in catalog.list_databases()


def test_a_renamed_table_has_its_new_name_for_everybody(tmp_path: Path, options: Mapping[str, str]) -> None:
    first, second = new_catalog(tmp_path, options), new_catalog(tmp_path, options)
    first.create_table("shop.old", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"}).write(rows((1, 1)))
    first.create_table("shop.taken", KEY_SCHEMA)
    with pytest.raises(InvalidInputError, match=r"table exists already: table=shop\.taken"):
        first.rename_table("shop.old", "shop.taken")
    first.rename_table("shop.old", "shop.new")
    assert second.list_tables("shop") == ["new", "taken"]
    assert content(second.table("shop.new")) == {1: 1}


def test_a_name_changes_with_its_directory_or_not_at_all(tmp_path: Path, options: Mapping[str, str]) -> None:
    catalog = new_catalog(tmp_path, options)
    for name in ("db.a", "db.b"):
        catalog.create_table(name, KEY_SCHEMA)
    names = catalog._tables
    with pytest.raises(ConflictError):
        names.rename_table(("db", "a"), ("db", "b"), lambda: pytest.fail("moved over another table"))
    with pytest.raises(ZeroDivisionError):
        names.rename_table(("db", "a"), ("db", "c"), lambda: [][1 // 0])
    assert catalog.list_tables("db") == ["a", "b"]
    place = tmp_path / "warehouse" / "db.db"
    names.rename_table(("db", "a"), ("other", "c"), lambda: (place / "a").rename(place / "c") and None)
    assert names.tables("other") == ["c"]
    assert names.tables("db") == ["b"]


def outcome(action: Callable[[], object]) -> object:
    """What it answers, or the fact of its error; paths and known names aside."""
    try:
        return action()
    except InvalidInputError as error:
        return str(error).partition(":")[0]


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_a_catalog_in_a_database_answers_as_one_of_directories_does(tmp_path: Path, options: Mapping[str, str]) -> None:
    """Random stories, applied to both."""
    ours = FileCatalog(str(tmp_path / "sql"), options)
    oracle = FileCatalog(str(tmp_path / "directories"))
    chance = random.Random(7)

    for _ in range(60):
        deed = random_deed(chance)
        assert outcome(partial(deed, ours)) == outcome(partial(deed, oracle))
        assert ours.list_databases() == oracle.list_databases()


def random_deed(chance: random.Random) -> Callable[[FileCatalog], object]:
    database, table = chance.choice("ab"), chance.choice("xy")
    name, ignore = f"{database}.{table}", chance.random() < 0.5
    deeds: list[Callable[[FileCatalog], object]] = [
        lambda catalog: catalog.create_table(name, KEY_SCHEMA, if_not_exists=ignore).name,
        lambda catalog: catalog.create_table(name, KEY_SCHEMA, if_not_exists=ignore).name,
        lambda catalog: catalog.drop_table(name, if_exists=ignore),
        lambda catalog: catalog.create_database(database, if_not_exists=ignore),
        lambda catalog: catalog.drop_database(database, cascade=ignore),
        lambda catalog: catalog.table(name).name,
        lambda catalog: catalog.list_tables(database),
        lambda catalog: catalog.table_exists(name),
    ]
    return chance.choice(deeds)


def create_one(arguments: tuple[str, Mapping[str, str], int]) -> str:
    warehouse, options, number = arguments
    said = outcome(
        lambda: FileCatalog(warehouse, options).create_table("race.t", KEY_SCHEMA, comment=f"made by {number}")
    )
    if isinstance(said, str):
        assert said == "table exists already", said
        return ""
    return f"made by {number}"


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_of_many_that_create_a_table_exactly_one_wins(tmp_path: Path, options: Mapping[str, str]) -> None:
    """FL-07: threads and processes, into an empty database, whose tables they make too."""
    work = [(str(tmp_path / "warehouse"), options, number) for number in range(12)]
    with ThreadPoolExecutor(6) as threads, multiprocessing.get_context("spawn").Pool(1) as process:
        others = process.map_async(create_one, work[6:])
        won = [*threads.map(create_one, work[:6]), *others.get(120)]
    (winner,) = filter(None, won)
    assert new_catalog(tmp_path, options).table("race.t").schema.comment == winner


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fail_at", range(1, 6))
def test_an_interrupted_creation_shows_a_whole_table_or_none(tmp_path: Path, fail_at: int, when: When) -> None:
    """A name without a schema is no table."""
    disk, options = MemoryFileIO(), {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    with suppress(Exception):
        FileCatalog("/w", options, io=FaultyFileIO(disk, fail_at=fail_at, when=when)).create_table("db.t", KEY_SCHEMA)
    catalog = FileCatalog("/w", options, io=disk)
    assert catalog.table_exists("db.t") == (catalog.list_databases() == ["db"] and catalog.list_tables("db") == ["t"])
    catalog.create_table("db.t", KEY_SCHEMA, if_not_exists=True)
    assert catalog.list_tables("db") == ["t"]


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fail_at", range(1, 5))
def test_an_interrupted_drop_can_be_repeated(tmp_path: Path, fail_at: int, when: When) -> None:
    disk, options = MemoryFileIO(), {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    FileCatalog("/w", options, io=disk).create_table("db.t", KEY_SCHEMA, options={"bucket": "1"}).write(rows((1, 1)))
    with suppress(UnavailableError):
        FileCatalog("/w", options, io=FaultyFileIO(disk, fail_at=fail_at, when=when)).drop_table("db.t")
    catalog = FileCatalog("/w", options, io=disk)
    catalog.drop_table("db.t", if_exists=True)
    assert disk.files == {}
    assert catalog.create_table("db.t", KEY_SCHEMA).name == "db.t"


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_under_the_lock_nothing_is_lost_though_files_can_be_overwritten(
    tmp_path: Path, options: Mapping[str, str]
) -> None:
    """FL-93..FL-96: the lock of the catalog guards every commit of every process that got the table."""
    io = OverwritingFileIO()
    catalog = new_catalog(tmp_path, {**options, "lock.enabled": "true"}, io=io)
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "commit.lock": "jdbc"})
    assert isinstance(table.store.lock_factory, SqlLockFactory)
    assert PASSWORD not in repr(table)
    calls = [(table.store.paths.root, writer, COMMITS) for writer in range(WRITERS)]
    race_of_processes(write_commits, calls, lock_factory=pickle.loads(pickle.dumps(table.store.lock_factory)))
    assert content(table) == {writer * 1000 + number: number for writer in range(WRITERS) for number in range(COMMITS)}
    assert table.store.snapshots.ids() == list(range(1, WRITERS * COMMITS + 1))
    check_metadata(table)
    with table.store.lock_factory.database.transaction("look") as connection:
        held = connection.execute(sa.select(LOCKS.c.lock_id)).scalars().all()
    assert not [each for each in held if each.startswith(options["catalog-key"])]


def locks_of(options: Mapping[str, str], **more: Any) -> SqlLockFactory:
    parts = {"clock": SystemClock(), "timeout_ms": 60_000, "longest_sleep_ms": 100, **more}
    return SqlLockFactory(database=SqlDatabase.of(options["uri"]), catalog_key=options["catalog-key"], **parts)


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_a_lock_that_is_held_for_too_long_is_named_and_nothing_runs(options: Mapping[str, str]) -> None:
    """FL-94."""
    ran: list[int] = []
    first = locks_of(options).create()
    second = locks_of(options, clock=ManualClock(), longest_sleep_ms=20_000).create()
    with pytest.raises(UnavailableError, match=rf"held by another writer.*lock={options['catalog-key']}\.db\.t"):
        first.run_with_lock("db", "t", lambda: second.run_with_lock("db", "t", lambda: ran.append(1)))
    renamed = locks_of(options, clock=ManualClock()).of_directory("s3://bucket/lake/db.db/t").create()
    with pytest.raises(UnavailableError, match=rf"held by another writer.*lock={options['catalog-key']}\.db\.t"):
        first.run_with_lock("db", "t", lambda: renamed.run_with_lock("db", "u", lambda: ran.append(1)))
    assert ran == []
    assert second.run_with_lock("db", "t", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        first.run_with_lock("db", "t", lambda: 1 // 0)
    assert first.run_with_lock("db", "t", lambda: second.run_with_lock("db", "u", lambda: 8)) == 8


def test_the_lock_of_a_holder_that_died_ends_and_its_late_release_takes_nothing(options: Mapping[str, str]) -> None:
    """FL-94: as Java Paimon does, by the time that the row names."""
    database, lock_id = SqlDatabase.of(options["uri"]), f"{options['catalog-key']}.db.t"
    this_row = LOCKS.c.lock_id == lock_id
    first, second = locks_of(options).create(), locks_of(options).create()

    def row_count() -> int:
        with database.transaction("look") as connection:
            return len(connection.execute(sa.select(LOCKS).where(this_row)).all())

    taken_first = first._acquired(lock_id)
    with database.transaction("age") as connection:
        connection.execute(sa.update(LOCKS).where(this_row).values(acquired_at=sa.text("'2020-01-01 00:00:00'")))
    second._acquired(lock_id)
    with database.transaction("age") as connection:  # SQLite's clock has whole seconds: these two may be one
        connection.execute(sa.update(LOCKS).where(this_row).values(acquired_at=sa.text("'2090-01-01 00:00:00'")))
    first._release(lock_id, taken_first)
    assert row_count() == 1
    second._release(lock_id, "2090-01-01 00:00:00")
    assert row_count() == 0


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as between:
        yield between


@pytest.mark.soak
@pytest.mark.sweep
def test_an_object_store_without_conditional_writes_is_safe_under_the_lock_of_the_database(
    tmp_path: Path, object_store: ObjectStore, new_bucket: Callable[[], str], proxy: FaultyProxy
) -> None:
    """FL-93: as in Paimon, names in a database and files in an object store turn the lock on."""
    proxy.knows_conditions = False
    bucket = new_bucket()
    options = {**object_store.options, "s3.endpoint": proxy.endpoint}
    with pytest.raises(InvalidInputError, match=r"ignores If-None-Match.*metastore=jdbc with lock\.enabled=true"):
        FileCatalog(f"s3://{bucket}/w", options).create_table("db.t", KEY_SCHEMA)
    options |= {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/catalog.db", "lock-check-max-sleep": "50 ms"}
    table = FileCatalog(f"s3://{bucket}/w", options).create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    waits = {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms", "write-only": "true"}
    patient = table.with_options(waits)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: patient.write(rows((number, number))), range(6)))
    assert content(table) == {number: number for number in range(6)}
    assert table.store.snapshots.ids() == list(range(1, 7))
    keys = [each["path"] for each in obstore.list(object_store.client(bucket)).collect()]
    assert "w/db.db/t/schema/schema-0" in keys

    catalog = FileCatalog(f"s3://{bucket}/w", options)
    catalog.rename_table("db.t", "db.u")  # issue 20 point 6: the lock is that of the directory, as Java takes it
    by_new_name = catalog.table("db.u", options=waits)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: each[1].write(rows((each[0], 0))), enumerate([patient, by_new_name] * 3, 10)))
    assert content(by_new_name) == {number: number for number in range(6)} | dict.fromkeys(range(10, 16), 0)
    assert by_new_name.store.snapshots.ids() == list(range(1, 13))
    table = by_new_name
    without = FileCatalog(f"s3://{bucket}/w", {**options, "lock.enabled": "false"})
    with pytest.raises(InvalidInputError, match="ignores If-None-Match"):
        without.table("db.u").write(rows((9, 9)))
    with pytest.raises(InvalidInputError, match=r"ignores If-None-Match, so writers .*fix='CALL sys\.copy"):
        without.rename_table("db.u", "db.v")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////data/c.db", "sqlite:////data/c.db"),
        ("jdbc:sqlite:/data/c.db", "sqlite:////data/c.db"),
        ("postgresql://u:secret@h:5/d", "postgresql+psycopg://u:***@h:5/d"),
        ("jdbc:postgresql://h:5/d?user=u&password=secret", "postgresql+psycopg://u:***@h:5/d"),
        ("postgresql://u@h/d?password=secret&sslmode=require", "postgresql+psycopg://u:***@h/d?sslmode=require"),
    ],
)
def test_addresses_are_those_of_sqlalchemy_and_of_jdbc(uri: str, shown: str) -> None:
    database = SqlDatabase.of(uri)
    assert database.shown == shown
    assert "secret" not in repr(database)
    assert ("secret" in uri) == ("secret" in database.url)


def test_user_and_password_may_stand_apart() -> None:
    database = SqlDatabase.of("jdbc:postgresql://h/d", user="me", password="a@b/c")
    assert sa.make_url(database.url).username == "me"
    assert sa.make_url(database.url).password == "a@b/c"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metastore": "jdbc"}, "metastore=jdbc needs a database: fix='set uri="),
        ({"metastore": "jdbc", "uri": "sqlite:///here.db"}, "named by an absolute path"),
        (
            {"metastore": "jdbc", "uri": "mysql://h/d"},
            r"no catalog in this database: uri=mysql\+pymysql://h/d supported=\['sqlite'",
        ),
        ({"metastore": "jdbc", "uri": "no address"}, "address of a database cannot be read"),
        ({"metastore": "glue"}, "option=metastore value='glue' expected='filesystem | jdbc | hive | rest'"),
        ({"uri": "sqlite:////x"}, "metastore=filesystem fix='set metastore=jdbc, hive or rest'"),
        ({"lock.enabled": "true"}, "metastore=filesystem fix='set metastore=jdbc, hive or rest'"),
    ],
)
def test_options_that_cannot_be_are_refused(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message.replace(" | ", r" \| ")):
        FileCatalog("/w", given)


def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    options = {"metastore": "jdbc", "uri": "postgresql://u:secret@127.0.0.1:1/d"}
    with pytest.raises(UnavailableError, match=r"database refused: .*127\.0\.0\.1:1/d") as refused:
        FileCatalog(str(tmp_path), options).list_databases()
    assert "secret" not in str(refused.value)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidInputError, match=r"fix=pip install 'fluvial\[s3\]'"):
        FileCatalog("s3://nobody/x", {})
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidInputError, match=r"fix=pip install 'fluvial\[sql\]'"):
        FileCatalog("/nowhere", {"metastore": "jdbc", "uri": "postgresql://h/a-database-of-its-own"}).list_databases()
