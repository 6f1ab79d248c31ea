"""Names of databases and tables as rows of a SQL database, in the tables of Paimon's JDBC catalog.

A table that is not in the directory of its name has a note among its properties, under a key that no engine reads or
writes. Java Paimon looks for a table in the directory of its name.

Where directories cannot be moved, a renamed table stays in the directory of its first name, and that is noted. Java
finds nothing in the directory of the new name, and refuses. A later table of the first name gets a directory beside it.
Java would take the renamed table for that one, so the name is not listed while that is there: to Java there is no such
table, and it makes none where files are. A table in a place of its own has that whole path for the name of a directory.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from filestore.catalog.sql_database import DATABASE_PROPERTIES, LOCKS, TABLE_PROPERTIES, TABLES, SqlDatabase
from filestore.catalog.table_names import TablePlace, database_below
from filestore.catalog.warehouse import warehouse_path
from filestore.io.disk import NAME_BYTES
from filestore.io.file_io import Clock
from filestore.schema.table_schema import TableSchema
from lsm.errors import ConflictError, MissingTableError, UnavailableError

EXISTS: Final = "exists"
LOCATION: Final = "location"
DIRECTORY_NOTE: Final = "fluvial.directory"
"""Property of a table that is not in the directory of its name: its directory's name in the database's, or its path."""
_ATTEMPTS: Final = 3
_NOBODY: Final = ""
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDirectories:
    """Names of tables and of their directories, in one database."""

    listed: frozenset[str]  # the names that Java sees
    noted: Mapping[str, str]  # directory by the name of a table, where these differ

    @property
    def names(self) -> frozenset[str]:
        """All tables. A listed name whose directory is another table's is none: an engine found the files, no name."""
        return frozenset({*self.noted, *(name for name in self.listed if not self._is_lent(name))})

    def directory(self, name: str) -> str:
        """Name of the directory of a table, whether it exists or not: its own, or one beside it when that is lent."""
        if name in self.noted or not self._is_lent(name):
            return self.noted.get(name, name)
        taken = {*self.noted.values(), *self.names}
        return next(each for number in count(2) if (each := f"{name}-{number}") not in taken)

    def with_table(self, name: str, directory: str | None = None) -> "NamedDirectories":
        """With a table of this name, in a directory or, if none is given, its own; one that is there stays as it is."""
        return self if name in self.names else self._named(name, directory or self.directory(name))

    def without(self, directory: str) -> "NamedDirectories":
        """Without the table in a directory, whatever its name is by now; none is fine."""
        gone = {name for name in self.names if self.directory(name) == directory}
        noted = {name: each for name, each in self.noted.items() if name not in gone}
        return NamedDirectories(listed=self.listed - gone, noted=noted)._settled()

    def renamed(self, old: str, new: str, *, stays: bool) -> "NamedDirectories":
        """With another name for a table.

        Args:
            old: its name.
            new: one that no table has.
            stays: its directory does; else it gets the one that the new name has.

        Raises: InvalidInputError: no such table. ConflictError: the name is taken.
        """
        self._check(old)
        if new in self.names:
            raise ConflictError(f"name is taken in the database of the catalog: table={new}")
        directory = self.directory(old if stays else new)
        return self.without(self.directory(old))._named(new, directory)

    def swapped(self, one: str, other: str) -> "NamedDirectories":
        """With each other's names for two tables. Raises: InvalidInputError: no such table."""
        for name in (one, other):
            self._check(name)
        first, second = self.directory(one), self.directory(other)
        return self.without(first).without(second)._named(one, second)._named(other, first)

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise MissingTableError(f"no such table: table={name} tables={sorted(self.names)[:_NAMES_SHOWN]}")

    def _named(self, name: str, directory: str) -> "NamedDirectories":
        noted = {**self.noted} if directory == name else {**self.noted, name: directory}
        return NamedDirectories(listed=self.listed | {name}, noted=noted)._settled()

    def _settled(self) -> "NamedDirectories":
        listed = frozenset(name for name in self.names if not self._is_lent(name))
        return NamedDirectories(listed=listed, noted=self.noted)

    def _is_lent(self, name: str) -> bool:
        """Whether another table is in the directory of a name."""
        return name in self.noted.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlNames:
    """The names of one catalog, kept apart by its key from others in the same database."""

    database: SqlDatabase
    catalog_key: str
    root: str  # the warehouse: databases without a location of their own are below it

    def databases(self) -> list[str]:
        """All databases, sorted."""
        found: set[str] = set()
        with self.database.transaction("list databases") as connection:
            for table in (DATABASE_PROPERTIES, TABLES):
                named = sa.select(table.c.database_name).where(table.c.catalog_key == self.catalog_key).distinct()
                found |= {*connection.execute(named).scalars()}
        return sorted(found)

    def has_database(self, database: str) -> bool:
        """Whether it was made, or has tables."""
        return database in self.databases()

    def database_path(self, database: str) -> str:
        """Location of a database, if it is stored; else below the warehouse."""
        return self._database_path(database, self.database_properties(database))

    def database_properties(self, database: str) -> Mapping[str, str]:
        """Stored properties of a database."""
        with self.database.transaction("read a database") as connection:
            return self._properties(connection, database)

    def add_database(self, database: str) -> None:
        """Note it and where it is. Raises: ConflictError when it is there."""
        noted = {EXISTS: "true", LOCATION: database_below(self.root, database)}
        rows = [{**self._key(database), "property_key": key, "property_value": value} for key, value in noted.items()]
        with self.database.transaction("add a database") as connection:
            connection.execute(sa.insert(DATABASE_PROPERTIES), rows)
            # of tables that went with a database that another engine dropped
            connection.execute(sa.delete(TABLE_PROPERTIES).where(*self._of(TABLE_PROPERTIES, database)))

    def remove_database(self, database: str) -> None:
        """Forget a database and the tables in it."""
        with self.database.transaction("remove a database") as connection:
            for table in (TABLES, TABLE_PROPERTIES, DATABASE_PROPERTIES):
                connection.execute(sa.delete(table).where(*self._of(table, database)))

    def tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted."""
        return sorted(self._tables(database).names)

    def has_table(self, database: str, table: str) -> bool:
        """Whether the name is that of a table."""
        return table in self._tables(database).names

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Directories by the names of ``tables``."""
        with self.database.transaction("list tables") as connection:
            parent = self._database_path(database, self._properties(connection, database))
            tables = self._read(connection, database)
        return {name: _placed(parent, tables.directory(name)).path for name in tables.names}

    def place(self, database: str, table: str) -> TablePlace:
        """Directory of a table; of a missing one, the directory of its name, or one beside it if that is taken."""
        with self.database.transaction("find a table") as connection:
            parent = self._database_path(database, self._properties(connection, database))
            return _placed(parent, self._read(connection, database).directory(table))

    @property
    def is_trusted(self) -> bool:
        """No: only Fluvial notes places, and only where an opener allows them."""
        return False

    def owns_files(self, database: str, table: str) -> bool:
        """Always."""
        return True

    @property
    def keeps_places(self) -> bool:
        """Yes, in notes; Java, which does not read them, refuses such a table."""
        return True

    def add_table(self, database: str, table: str, schema: TableSchema, place: TablePlace) -> None:
        """Note the name, with the directory if that is not its own, and the database's."""
        if not self.has_database(database):
            with suppress(ConflictError):
                self.add_database(database)
        directory = place.path if place.is_own else None
        self._change("add a table", database, lambda tables: tables.with_table(table, directory))

    def note_schema(self, database: str, table: str, schema: TableSchema) -> None:
        """Nothing: columns are in the schema files only."""

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Forget the name of the table that is there, also one that it got meanwhile; none is fine."""
        parent = self.database_path(database)
        directory = path.removeprefix(f"{parent}/") if path.rpartition("/")[0] == parent else path
        self._change("remove a table", database, lambda tables: tables.without(directory))

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Note another name, and move the directory or note where it stays, in one transaction.

        Raises: ConflictError when the name is taken; InvalidInputError when the table was dropped.
        """
        (database, old), (new_database, new) = source, target
        if database == new_database:
            stays = move is None
            self._change(
                "rename a table", database, lambda tables: tables.renamed(old, new, stays=stays), [(old, new)], move
            )
            return
        assert move is not None or self.place(database, old).is_own, "other notes are of directories in the database's"
        with self.database.transaction("rename a table") as connection:
            for each in (TABLES, TABLE_PROPERTIES):
                renamed = sa.update(each).where(*self._of(each, *source))
                connection.execute(renamed.values(database_name=new_database, table_name=new))
            if move is not None:
                move()

    def swap_names(self, database: str, one: str, other: str) -> None:
        """Exchange the names of two tables, in one transaction. Raises: InvalidInputError: one was dropped."""
        moves = [(one, _NOBODY), (other, one), (_NOBODY, other)]
        self._change("swap two names", database, lambda tables: tables.swapped(one, other), moves)

    def _tables(self, database: str) -> NamedDirectories:
        with self.database.transaction("list tables") as connection:
            return self._read(connection, database)

    def _change(
        self,
        action: str,
        database: str,
        decide: Callable[[NamedDirectories], NamedDirectories],
        renamed: Sequence[tuple[str, str]] = (),
        move: Callable[[], None] | None = None,
    ) -> None:
        """Decide on the names that are there, in a transaction that excludes others of Fluvial in this database."""
        for attempt in range(_ATTEMPTS):
            try:
                with self.database.transaction(action) as connection:
                    self._lock(connection, database)
                    before = self._read(connection, database)
                    self._write(connection, database, before, decide(before), renamed)
                    if move is not None:
                        move()
            except ConflictError:  # perhaps of a row that another engine has just inserted
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def _lock(self, connection: sa.Connection, database: str) -> None:
        """A write, and before all reads: PostgreSQL locks the row, SQLite the file."""
        exists = (*self._of(DATABASE_PROPERTIES, database), DATABASE_PROPERTIES.c.property_key == EXISTS)
        same = DATABASE_PROPERTIES.c.property_value
        connection.execute(sa.update(DATABASE_PROPERTIES).where(*exists).values(property_value=same))

    def _read(self, connection: sa.Connection, database: str) -> NamedDirectories:
        listed = sa.select(TABLES.c.table_name).where(*self._of(TABLES, database))
        columns = (TABLE_PROPERTIES.c.table_name, TABLE_PROPERTIES.c.property_value)
        noted = sa.select(*columns).where(*self._of(TABLE_PROPERTIES, database), _IS_NOTE)
        return NamedDirectories(
            listed=frozenset(str(name) for name in connection.execute(listed).scalars() if _is_of_directory(str(name))),
            noted={str(name): str(place) for name, place in connection.execute(noted) if _is_of_directory(str(name))},
        )

    def _write(
        self,
        connection: sa.Connection,
        database: str,
        before: NamedDirectories,
        after: NamedDirectories,
        renamed: Sequence[tuple[str, str]],
    ) -> None:
        """Bring the rows from one state to another one; other engines' properties of a table stay with it."""
        for old, new in renamed:
            of_new = (*self._of(TABLE_PROPERTIES, database, new), ~_IS_NOTE)
            of_old = (*self._of(TABLE_PROPERTIES, database, old), ~_IS_NOTE)
            connection.execute(sa.delete(TABLE_PROPERTIES).where(*of_new))
            connection.execute(sa.update(TABLE_PROPERTIES).where(*of_old).values(table_name=new))
        for name in (before.names | before.listed) - after.names:
            connection.execute(sa.delete(TABLE_PROPERTIES).where(*self._of(TABLE_PROPERTIES, database, name)))
        for name in before.listed - after.listed:
            connection.execute(sa.delete(TABLES).where(*self._of(TABLES, database, name)))
        for name in after.listed - before.listed:
            connection.execute(sa.insert(TABLES), {**self._key(database), "table_name": name})
        for name, _ in before.noted.items() - after.noted.items():
            note = (*self._of(TABLE_PROPERTIES, database, name), _IS_NOTE)
            connection.execute(sa.delete(TABLE_PROPERTIES).where(*note))
        for name, directory in after.noted.items() - before.noted.items():
            row = {"table_name": name, "property_key": DIRECTORY_NOTE, "property_value": directory}
            connection.execute(sa.insert(TABLE_PROPERTIES), {**self._key(database), **row})

    def _properties(self, connection: sa.Connection, database: str) -> dict[str, str]:
        columns = (DATABASE_PROPERTIES.c.property_key, DATABASE_PROPERTIES.c.property_value)
        wanted = sa.select(*columns).where(*self._of(DATABASE_PROPERTIES, database))
        return {str(key): str(value) for key, value in connection.execute(wanted)}

    def _database_path(self, database: str, properties: Mapping[str, str]) -> str:
        return warehouse_path(properties.get(LOCATION, database_below(self.root, database)))

    def _key(self, database: str) -> dict[str, str]:
        return {"catalog_key": self.catalog_key, "database_name": database}

    def _of(self, table: sa.Table, database: str, name: str | None = None) -> list[sa.ColumnElement[bool]]:
        found = [table.c.catalog_key == self.catalog_key, table.c.database_name == database]
        return found if name is None else [*found, table.c.table_name == name]


def _placed(parent: str, directory: str) -> TablePlace:
    """The place of a table by its note, or its name: a directory in that of the database, or a whole path."""
    is_own = "/" in directory
    return TablePlace(path=warehouse_path(directory) if is_own else f"{parent}/{directory}", is_own=is_own)


_IS_NOTE: Final = TABLE_PROPERTIES.c.property_key == DIRECTORY_NOTE


def _is_of_directory(name: str) -> bool:
    """Whether a name in a row, which others may write, can be that of one directory."""
    return 0 < len(name.encode(errors="replace")) <= NAME_BYTES and name not in (".", "..") and not {*name} & {*"/\0"}


# ---- The catalog's lock as a row of a SQL database, held by the process that inserts it. The table is Paimon's
#
# A holder that dies leaves its row; after ``lock-acquire-timeout`` others remove it. So the lock bounds the life of
# its holder too: a commit that is held up for longer may meet another one, and then only a store with conditional
# writes keeps them apart. Source: Paimon JdbcCatalogLock.


logger = logging.getLogger("fluvial.sql_lock")

T = TypeVar("T")
_FIRST_SLEEP_MS: Final = 10
_GROWTH: Final = 1.5
# By the database's own clock, in seconds.
_AGE: Final = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "EXTRACT(EPOCH FROM (LOCALTIMESTAMP - acquired_at))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLockFactory:
    """``commit.lock=jdbc``."""

    database: SqlDatabase
    catalog_key: str
    clock: Clock
    timeout_ms: int
    longest_sleep_ms: int
    directory: str | None = None  # name of the table's; None: it has the table's name

    def of_directory(self, path: str) -> "SqlLockFactory":
        """The lock of the table in a directory: writers that know it by different names exclude each other."""
        return replace(self, directory=path.rpartition("/")[2])

    def create(self) -> "SqlLock":
        """A new lock; nothing is asked yet."""
        return SqlLock(self)


class SqlLock:
    """A row of ``paimon_distributed_locks``."""

    def __init__(self, settings: SqlLockFactory) -> None:
        """See the settings."""
        self._settings = settings

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        """Run ``action`` under the lock, and return its result. Raises: UnavailableError: it did not run."""
        lock_id = f"{self._settings.catalog_key}.{database}.{self._settings.directory or table}"
        acquired_at = self._acquired(lock_id)
        try:
            return action()
        finally:
            self._release(lock_id, acquired_at)

    def close(self) -> None:
        """Nothing is held between two runs."""

    def _release(self, lock_id: str, acquired_at: str) -> None:
        """Give the row back. Failing is logged, not raised: the action is done, and others only wait longer."""
        # By its time too: after the timeout the row may be another holder's.
        held_here = sa.and_(LOCKS.c.lock_id == lock_id, _time_text() == acquired_at)
        try:
            with self._settings.database.transaction("release the lock") as connection:
                connection.execute(sa.delete(LOCKS).where(held_here))
        except UnavailableError as error:
            logger.warning("lock not released, it ends by itself: lock=%s error=%s", lock_id, error)

    def _acquired(self, lock_id: str) -> str:
        clock, sleep_ms = self._settings.clock, float(_FIRST_SLEEP_MS)
        deadline_ms = clock.now_ms() + self._settings.timeout_ms
        while True:
            acquired_at = self._tried(lock_id)
            if acquired_at is not None:
                return acquired_at
            if clock.now_ms() > deadline_ms:
                raise UnavailableError(
                    f"lock is held by another writer, nothing was published: lock={lock_id} "
                    f"waited_ms={self._settings.timeout_ms} database={self._settings.database.shown} "
                    "fix='look for a writer that hangs, or raise lock-acquire-timeout'"
                )
            clock.sleep(min(sleep_ms, self._settings.longest_sleep_ms) / 1000)
            sleep_ms *= _GROWTH

    def _tried(self, lock_id: str) -> str | None:
        """When the lock was taken; None when another process has it."""
        settings = self._settings
        is_old = sa.text(f"{_AGE[settings.database.dialect]} > expire_time_seconds")
        row = {"lock_id": lock_id, "expire_time_seconds": settings.timeout_ms // 1000}
        with settings.database.transaction("take the lock") as connection:
            connection.execute(sa.delete(LOCKS).where(LOCKS.c.lock_id == lock_id, is_old))
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(LOCKS), row)
            except IntegrityError:
                return None
            return str(connection.execute(sa.select(_time_text()).where(LOCKS.c.lock_id == lock_id)).scalar_one())


def _time_text() -> sa.ColumnElement[str]:
    """When the lock was taken, as the database writes it: nothing is rounded."""
    return sa.cast(LOCKS.c.acquired_at, sa.String)
