"""Renaming where no directory can be moved: a change of names in a database, refused where names are directories."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from filestore.catalog import sql_database
from filestore.catalog.catalog import FileCatalog
from filestore.catalog.sql_database import DATABASE_PROPERTIES, TABLE_PROPERTIES, TABLES, SqlDatabase
from filestore.io.file_io import FileIO
from filestore.io.object_store import ObjectStorageIO, check_renaming
from lsm.errors import InvalidInputError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, Nth, When, WithoutMoves
from tests.support.races import race_of_processes
from tests.support.tables import KEY_SCHEMA, content, rows

LAKE = "s3://bucket/lake"
PARTS: Mapping[str, Any] = {"primary_key": ["id"], "options": {"bucket": "1"}}
_numbers = count()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_options(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """Of a catalog with names in a database that no other test uses."""
    is_server = request.param == "postgresql"
    uri = str(request.getfixturevalue("postgres")) if is_server else f"sqlite:///{tmp_path}/names.db"
    return {"metastore": "jdbc", "uri": uri, "catalog-key": f"names-{next(_numbers)}", "lock.enabled": "false"}


def sqlite_options(directory: Path) -> dict[str, str]:
    return {"metastore": "jdbc", "uri": f"sqlite:///{directory}/names.db", "lock.enabled": "false"}


def one_row_table(catalog: FileCatalog, name: str, value: int) -> None:
    catalog.create_table(name, KEY_SCHEMA, **PARTS).write(rows((1, value)))


def value_by_name(catalog: FileCatalog) -> dict[str, int]:
    """What is in each table of ``db``, by all ways to find one."""
    names = catalog.list_tables("db")
    assert all(catalog.table_exists(f"db.{name}") for name in names)
    return {name: content(catalog.table(f"db.{name}"))[1] or 0 for name in names}


def noted(options: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """What Java is shown, and the notes that it does not read."""
    key = options.get("catalog-key", "jdbc")
    with SqlDatabase.of(options["uri"]).transaction("look") as connection:
        listed = connection.execute(sa.select(TABLES.c.table_name).where(TABLES.c.catalog_key == key)).scalars()
        properties = sa.select(TABLE_PROPERTIES).where(TABLE_PROPERTIES.c.catalog_key == key)
        rows_ = connection.execute(properties).all()
        assert {each.property_key for each in rows_} <= {"fluvial.directory"}
        return sorted(listed), {each.table_name: each.property_value for each in rows_}


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_table_in_an_object_store_is_not_renamed_where_its_name_is_a_directory(scheme: str) -> None:
    io = MemoryFileIO()
    catalog = FileCatalog(f"{scheme}://bucket/lake", {"azure.account": "account"}, io=io)
    one_row_table(catalog, "db.t", 10)
    before = dict(io.files)
    assert not catalog.can_rename_tables
    with pytest.raises(InvalidInputError, match=r"cannot be renamed: table=db\.t .*fix='CALL sys\.copy to the new"):
        catalog.rename_table("db.t", "db.u")
    assert dict(io.files) == before
    assert value_by_name(catalog) == {"t": 10}


def test_in_a_database_the_name_changes_alone(database_options: Mapping[str, str]) -> None:
    """Issue 20 point 6: no file does; open tables stay open; the name of its directory again needs no note."""
    io = MemoryFileIO()
    catalog, other = (FileCatalog(LAKE, database_options, io=io) for _ in range(2))
    one_row_table(catalog, "db.a", 1)
    one_row_table(catalog, "db.x", 5)
    opened, before = catalog.table("db.a"), dict(io.files)
    assert catalog.can_rename_tables
    catalog.rename_table("db.a", "db.b")
    assert dict(io.files) == before
    assert value_by_name(catalog) == value_by_name(other) == {"b": 1, "x": 5}
    assert other.table_path("db.b") == f"{LAKE}/db.db/a"
    assert noted(database_options) == (["b", "x"], {"b": "a"})
    opened.write(rows((1, 2)))
    assert value_by_name(catalog) == {"b": 2, "x": 5}
    with pytest.raises(InvalidInputError, match=r"no such table: table=db\.a .*tables=\['b', 'x'\]"):
        other.table("db.a")
    with pytest.raises(InvalidInputError, match=r"table exists already: table=db\.x"):
        catalog.rename_table("db.b", "db.x")
    catalog.create_database("other")
    with pytest.raises(InvalidInputError, match=r"cannot be renamed: table=db\.b .*fix='CALL sys\.copy"):
        catalog.rename_table("db.b", "other.b")  # dropping the database of its files would drop them
    catalog.rename_table("db.b", "db.c")
    catalog.rename_table("db.c", "db.a")
    assert noted(database_options) == (["a", "x"], {})
    assert value_by_name(other) == {"a": 2, "x": 5}


@pytest.mark.sweep
def test_a_new_table_of_a_name_whose_directory_is_taken_has_its_own(database_options: Mapping[str, str]) -> None:
    """Each of the two is written, read, listed, renamed and dropped without the other one; so are their files."""
    io = MemoryFileIO()
    catalog = FileCatalog(LAKE, database_options, io=io)
    one_row_table(catalog, "db.a", 1)
    catalog.rename_table("db.a", "db.b")
    one_row_table(catalog, "db.a", 2)
    assert value_by_name(catalog) == {"a": 2, "b": 1}
    assert catalog.table_path("db.a") == f"{LAKE}/db.db/a-2"
    assert noted(database_options) == (["b"], {"a": "a-2", "b": "a"})  # to Java there is no `a`: it would take b for it
    one_row_table(catalog, "db.a-2", 3)
    catalog.rename_table("db.a", "db.c")
    one_row_table(catalog, "db.a", 4)
    assert value_by_name(catalog) == {"a": 4, "a-2": 3, "b": 1, "c": 2}
    assert len({catalog.table_path(f"db.{name}") for name in value_by_name(catalog)}) == 4
    catalog.drop_table("db.a")
    assert value_by_name(catalog) == {"a-2": 3, "b": 1, "c": 2}
    catalog.drop_table("db.b")
    assert value_by_name(catalog) == {"a-2": 3, "c": 2}
    one_row_table(catalog, "db.a", 5)
    assert catalog.table_path("db.a") == f"{LAKE}/db.db/a"  # free again
    catalog.drop_database("db", cascade=True)
    assert noted(database_options) == ([], {})
    assert dict(io.files) == {}


def test_a_table_beside_another_one_is_shown_when_that_is_gone(database_options: Mapping[str, str]) -> None:
    catalog = FileCatalog(LAKE, database_options, io=MemoryFileIO())
    one_row_table(catalog, "db.a", 1)
    catalog.rename_table("db.a", "db.b")
    one_row_table(catalog, "db.a", 2)
    catalog.drop_table("db.b")
    assert noted(database_options) == (["a"], {"a": "a-2"})
    assert value_by_name(catalog) == {"a": 2}


def test_files_without_a_name_are_in_nobodys_way_by_accident(tmp_path: Path) -> None:
    """Java would find them under the new name."""
    io, options = MemoryFileIO(), sqlite_options(tmp_path)
    one_row_table(FileCatalog(LAKE, io=io), "db.b", 7)  # names are directories there
    catalog = FileCatalog(LAKE, options, io=io)
    one_row_table(catalog, "db.a", 1)
    with pytest.raises(InvalidInputError, match=r"place has files of another table: table=db\.b .*fix='remove them"):
        catalog.rename_table("db.a", "db.b")
    assert value_by_name(catalog) == {"a": 1}


def test_properties_of_other_engines_follow_the_name(database_options: Mapping[str, str]) -> None:
    """Java's ``sync-all-properties`` writes options and keys there, and never our key."""
    catalog = FileCatalog(LAKE, database_options, io=MemoryFileIO())
    one_row_table(catalog, "db.a", 1)
    row = {"catalog_key": database_options["catalog-key"], "database_name": "db", "property_key": "location"}
    names = catalog._tables
    with SqlDatabase.of(database_options["uri"]).transaction("sync") as connection:
        for name in ("a", "b"):  # of a table that went without them
            connection.execute(sa.insert(TABLE_PROPERTIES), {**row, "table_name": name, "property_value": f"of {name}"})
    catalog.rename_table("db.a", "db.b")
    assert names.place("db", "b").path == f"{LAKE}/db.db/a"
    one_row_table(catalog, "db.c", 2)
    for _ in range(3):
        assert catalog.swap_tables("db.b", "db.c")
    assert value_by_name(catalog) == {"b": 2, "c": 1}
    with SqlDatabase.of(database_options["uri"]).transaction("look") as connection:
        wanted = sa.select(TABLE_PROPERTIES).where(TABLE_PROPERTIES.c.property_key == "location")
        wanted = wanted.where(TABLE_PROPERTIES.c.catalog_key == database_options["catalog-key"])
        assert [(each.table_name, each.property_value) for each in connection.execute(wanted)] == [("c", "of a")]
    catalog.drop_table("db.c")
    with SqlDatabase.of(database_options["uri"]).transaction("look") as connection:
        assert connection.execute(wanted).all() == []


@pytest.mark.sweep
@pytest.mark.sampled(1)
def test_of_renames_at_the_same_time_one_wins(database_options: Mapping[str, str]) -> None:
    """To one name from several, from one name to several, and to the name of a directory that another table is in."""
    catalog = FileCatalog(LAKE, database_options, io=MemoryFileIO())
    for number, name in enumerate(("a", "b", "c")):
        one_row_table(catalog, f"db.{name}", number)
    catalog.rename_table("db.c", "db.d")
    pairs = [("a", "c"), ("b", "c"), ("d", "c"), ("a", "e"), ("a", "f"), ("b", "a")]

    def rename(pair: tuple[str, str]) -> tuple[str, str] | None:
        with suppress(InvalidInputError):
            FileCatalog(LAKE, database_options, io=catalog.file_io).rename_table(f"db.{pair[0]}", f"db.{pair[1]}")
            return pair
        return None

    for _ in range(3):
        before = value_by_name(catalog)
        with ThreadPoolExecutor(6) as threads:
            won = [each for each in threads.map(rename, pairs) if each is not None]
        after = value_by_name(catalog)
        assert sorted(after.values()) == [0, 1, 2]  # no table is lost, none has two names
        assert len({catalog.table_path(f"db.{name}") for name in after}) == 3
        assert bool(won) == (before != after) or len(won) > 1
        for old, new in zip(sorted(after), "abd", strict=True):
            catalog.rename_table(f"db.{old}", f"db.z{new}")
        for new in "abd":
            catalog.rename_table(f"db.z{new}", f"db.{new}")


class Killed(BaseException):
    """As kill -9 is: nothing runs behind it."""


def die() -> None:
    raise Killed


@contextmanager
def killed_at(number: int, when: When, end: Callable[[], None] = die) -> Iterator[list[str]]:
    """Die at the n-th change, or the n-th end of a transaction, in a database; what came until then."""
    seen: list[str] = []

    def count_one(said: str) -> None:
        seen.append(said)
        if len(seen) == number:
            end()

    def execute(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            count_one(statement)

    transaction = SqlDatabase.transaction

    @contextmanager
    def ended(self: SqlDatabase, *arguments: Any) -> Iterator[sa.Connection]:
        begun = len(seen)
        with transaction(self, *arguments) as connection:
            yield connection
            if when is When.BEFORE and len(seen) > begun:
                count_one("before COMMIT")
        if when is When.AFTER and len(seen) > begun:
            count_one("after COMMIT")

    sa.event.listen(sa.Engine, "before_cursor_execute", execute)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sql_database.SqlDatabase, "transaction", ended)
            yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", execute)


def crossed(io: FileIO, options: Mapping[str, str]) -> FileCatalog:
    """Two tables, one of which is in the directory of the other one's name."""
    catalog = FileCatalog(LAKE, options, io=io)
    one_row_table(catalog, "db.a", 1)
    catalog.rename_table("db.a", "db.b")
    one_row_table(catalog, "db.a", 2)
    return catalog


def copy_of_names(options: Mapping[str, str], number: int) -> dict[str, str]:
    """The same names under another key."""
    key = f"{options['catalog-key']}-copy-{number}"
    with SqlDatabase.of(options["uri"]).transaction("copy") as connection:
        for table in (DATABASE_PROPERTIES, TABLES, TABLE_PROPERTIES):
            found_rows = connection.execute(sa.select(table).where(table.c.catalog_key == options["catalog-key"]))
            for each in found_rows.mappings().all():
                connection.execute(sa.insert(table), {**each, "catalog_key": key})
    return {**options, "catalog-key": key}


CHANGES: Mapping[str, tuple[Callable[[FileCatalog], object], Mapping[str, int]]] = {
    "rename": (lambda catalog: catalog.rename_table("db.b", "db.c"), {"a": 2, "c": 1}),
    "rename the second": (lambda catalog: catalog.rename_table("db.a", "db.c"), {"b": 1, "c": 2}),
    "swap": (lambda catalog: catalog.swap_tables("db.b", "db.a"), {"a": 1, "b": 2}),
    "drop": (lambda catalog: catalog.drop_table("db.b"), {"a": 2}),
    "drop the second": (lambda catalog: catalog.drop_table("db.a"), {"b": 1}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize(
    ("change", "database_options"),
    [*((change, "sqlite") for change in CHANGES), ("rename", "postgresql"), ("swap", "postgresql")],
    indirect=["database_options"],
)
@pytest.mark.sweep
def test_killed_at_each_step_there_is_the_old_or_the_new_name(
    database_options: Mapping[str, str], change: str, when: When
) -> None:
    """In the database; what is left is made whole by the same change again."""
    io = MemoryFileIO()
    before = value_by_name(crossed(io, database_options))
    act, after = CHANGES[change]
    states = []
    for number in count(1):
        disk, options = MemoryFileIO(dict(io.files)), copy_of_names(database_options, number)
        with killed_at(number, when) as seen, suppress(Killed):
            act(FileCatalog(LAKE, options, io=disk))
        catalog = FileCatalog(LAKE, options, io=disk)
        states.append(value_by_name(catalog))
        if states[-1] != after:
            act(catalog)
        assert value_by_name(catalog) == after
        if len(seen) < number:
            break
    assert number > 3
    assert all(each in (before, after) for each in states)


def rename_and_die(directory: str, number: int) -> None:
    options = sqlite_options(Path(directory))
    with killed_at(number, When.BEFORE, partial(os._exit, 0)):
        FileCatalog(f"{directory}/lake", options, io=WithoutMoves()).rename_table("db.a", "db.b")


@pytest.mark.long
def test_a_process_that_dies_at_any_step_leaves_one_name(tmp_path: Path) -> None:
    """A real one, and its connection with it."""
    io: FileIO = WithoutMoves()
    names = set()
    for number in (1, 4, 7, 8, 9):  # of its seven changes, at their COMMIT, and never
        place = tmp_path / str(number)
        place.mkdir()
        catalog = FileCatalog(f"{place}/lake", sqlite_options(place), io=io)
        one_row_table(catalog, "db.a", 1)
        race_of_processes(rename_and_die, [(str(place), number)])
        (name,) = value_by_name(catalog)
        names.add(name)
        assert content(catalog.table(f"db.{name}")) == {1: 1}
    assert names == {"a", "b"}


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize(("doomed", "other"), [("a", "b"), ("b", "a")])
def test_a_drop_that_fails_at_any_call_leaves_the_other_table_and_can_be_repeated(
    tmp_path: Path, doomed: str, other: str, when: When
) -> None:
    """Issue 20 point 6: it removes the files of the table that has the name, wherever they are, and no others."""
    io, base = MemoryFileIO(), {**sqlite_options(tmp_path), "catalog-key": "base"}
    before = value_by_name(crossed(io, base))
    for number in count(1):
        disk, options = MemoryFileIO(dict(io.files)), copy_of_names(base, number)
        faulty = FaultyFileIO(disk, fail_at=number, when=when)
        with suppress(UnavailableError):
            FileCatalog(LAKE, options, io=faulty).drop_table(f"db.{doomed}")
        catalog = FileCatalog(LAKE, options, io=disk)
        assert value_by_name(catalog) in (before, {other: before[other]})
        catalog.drop_table(f"db.{doomed}", if_exists=True)
        assert value_by_name(catalog) == {other: before[other]}
        if faulty.calls < number:
            break
    assert number > 5
    catalog.drop_table(f"db.{other}")
    assert dict(disk.files) == {}
    assert noted(options) == ([], {})


@pytest.mark.sweep
def test_a_table_that_is_renamed_while_it_is_dropped_is_whole_or_gone_and_leaves_no_name(tmp_path: Path) -> None:
    """Also where another table has the dropped one's name by then: that one stays."""
    io, base = MemoryFileIO(), {**sqlite_options(tmp_path), "catalog-key": "base"}
    crossed(io, base)
    for number in count(1):
        disk, options = MemoryFileIO(dict(io.files)), copy_of_names(base, number)
        other = FileCatalog(LAKE, options, io=disk)

        again: list[int] = []

        def rename(other: FileCatalog = other, again: list[int] = again) -> None:
            with suppress(InvalidInputError):  # it was dropped before
                other.rename_table("db.b", "db.c")
            with suppress(InvalidInputError):  # files of it are left yet
                one_row_table(other, "db.b", 3)
                again.append(3)

        racing = Nth(disk, number, rename)
        with suppress(InvalidInputError):
            FileCatalog(LAKE, options, io=racing).drop_table("db.b")
        if racing.left > 0:
            break
        after = value_by_name(other)
        assert (after["a"], after.get("b"), after.get("c", 1)) == (2, 3 if again else None, 1)
        for name in after:
            other.drop_table(f"db.{name}")
        assert noted(options) == ([], {})
        one_row_table(other, "db.c", 4)
        assert value_by_name(other) == {"c": 4}
    assert number > 5


def test_a_lock_of_names_alone_is_not_enough_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 20 point 6: where places are kept beside names, old writers hold another lock than new ones."""
    io = FileCatalog(LAKE, {"s3.endpoint": "http://127.0.0.1:1"})._io
    monkeypatch.setattr(ObjectStorageIO, "has_conditional_put", lambda self, path: True)
    check_renaming(io, "s3://bucket/lake/db.db/t")
    monkeypatch.setattr(ObjectStorageIO, "has_conditional_put", lambda self, path: False)
    with pytest.raises(InvalidInputError, match=r"ignores If-None-Match, so writers .*fix='CALL sys\.copy to the new"):
        check_renaming(io, "s3://bucket/lake/db.db/t")
