"""Connections to the SQL database of lineage, and the tables that they create there.

SQLite uses a write-ahead log, so that readers and a writer do not block each other, and writers wait for ten seconds at
most. A new SQLite file gets its tables, indexes and views in one transaction: a dozen transactions would each wait for
the disk before a catalog's first write. In PostgreSQL and MySQL the tables have their own schema.
"""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from engine.lineage.store.entities import DataLineage
from engine.lineage.store.sql_tables import (
    JOB_STARTUP,
    METADATA,
    OWNER,
    SEED_TABLES,
    SINK_JOBS,
    SOURCE_JOBS,
    of_newest_run,
    row_key,
)
from filestore.catalog.sql_database import make_tables
from lsm.errors import InvalidInputError

# ---- Lineage as an older Fluvial stored it: its rows are taken over, and its tables become views
# Until runs and ids of tables were part of a row, ``source_snapshot_lineage`` and ``sink_snapshot_lineage`` were
# tables. They are renamed, their rows are copied, which may be repeated, and then they are dropped: a process that dies
# leaves work for the next one. An older process that writes meanwhile is refused by the views, so it queues its
# records.


_ADDED: Final = (JOB_STARTUP.c.start, SOURCE_JOBS.c.stated, SINK_JOBS.c.stated)
"""Columns that older versions do not have; their defaults are what those mean."""
_PREFIX: Final = "fluvial_former_"
_ROWS_AT_ONCE: Final = 1000


def upgrade(engine: sa.Engine, schema: str | None) -> None:
    """Take over what an older Fluvial stored, and make the views. Others may do so at the same time.

    Args:
        engine: translates the schema.
        schema: of the tables; None in SQLite.
    """
    for name in SEED_TABLES:
        _once(engine, schema, name)
    for column in _ADDED:
        _add_column(engine, schema, column)


def is_upgraded(engine: sa.Engine, schema: str | None) -> bool:
    """Whether nothing is left to do."""
    inspector = sa.inspect(engine)
    tables, views = set(inspector.get_table_names(schema)), set(inspector.get_view_names(schema))
    return (
        all(_has_column(engine, schema, column) for column in _ADDED)
        and {*SEED_TABLES} <= views
        and not any({name, f"{_PREFIX}{name}"} & (tables - views) for name in SEED_TABLES)
    )


def view_statement(dialect: sa.Dialect, schema: str | None, name: str) -> str:
    """The statement that makes a table of the PIP as a view.

    Args:
        dialect: of the database.
        schema: of the tables; None in SQLite.
        name: of ``SEED_TABLES``.
    """
    compiled = of_newest_run(name).compile(
        dialect=dialect,
        schema_translate_map=None if schema is None else {None: schema},
        compile_kwargs={"literal_binds": True, "render_schema_translate": schema is not None},
    )
    return f"CREATE VIEW {_quoted(dialect, schema, name)} AS {compiled}"


def _once(engine: sa.Engine, schema: str | None, name: str) -> None:
    former, here = f"{_PREFIX}{name}", _quoted(engine.dialect, schema, name)
    try:
        with engine.begin() as connection:
            inspector = sa.inspect(connection)
            views = inspector.get_view_names(schema)
            tables = {*inspector.get_table_names(schema)} - {*views}
            if name in tables and former not in tables:
                connection.execute(sa.text(f"ALTER TABLE {here} RENAME TO {_new_name(engine, schema, former)}"))
                tables = (tables - {name}) | {former}
            if former in tables:
                _copy(connection, name, former, schema)
                connection.execute(sa.text(f"DROP TABLE {_quoted(engine.dialect, schema, former)}"))
            if name not in views:
                connection.execute(sa.text(view_statement(engine.dialect, schema, name)))
    except DBAPIError:
        if name not in sa.inspect(engine).get_view_names(schema):  # else another process has just done it
            raise


def _has_column(engine: sa.Engine, schema: str | None, column: "sa.Column[Any]") -> bool:
    return any(each["name"] == column.name for each in sa.inspect(engine).get_columns(column.table.name, schema))


def _add_column(engine: sa.Engine, schema: str | None, column: "sa.Column[Any]") -> None:
    definition = sa.schema.CreateColumn(column).compile(dialect=engine.dialect)
    try:
        if not _has_column(engine, schema, column):
            with engine.begin() as connection:
                table = _quoted(engine.dialect, schema, column.table.name)
                connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {definition}"))
    except DBAPIError:
        if not _has_column(engine, schema, column):  # else another process has just done it
            raise


def _copy(connection: sa.Connection, name: str, former: str, schema: str | None) -> None:
    """Rows without run and id; what the snapshot files say is added when lineage is next read."""
    target = SEED_TABLES[name]
    columns = ("job", "barrier_id", "database", "table", "snapshot_id", "create_time")
    source = sa.table(former, *(sa.column(each, target.c[each].type) for each in columns), schema=schema)
    found = connection.execute(sa.select(source)).mappings()
    while rows := found.fetchmany(_ROWS_AT_ONCE):
        made = {each["row_key"]: each for each in map(_row, rows)}
        known = connection.execute(sa.select(target.c.row_key).where(target.c.row_key.in_(made))).scalars()
        for key in [*known]:
            del made[key]
        if made:
            connection.execute(sa.insert(target), [made[key] for key in sorted(made)])


def _row(given: sa.RowMapping) -> dict[str, Any]:
    entity = DataLineage(**{str(name): value for name, value in given.items()})
    return {
        **given, "row_key": row_key(entity), "run": "", "table_id": "", "identity": "", "moment_ms": entity.moment_ms,
    }  # fmt: skip


def _quoted(dialect: sa.Dialect, schema: str | None, name: str) -> str:
    quote = dialect.identifier_preparer.quote
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def _new_name(engine: sa.Engine, schema: str | None, name: str) -> str:
    """PostgreSQL renames inside a schema, MySQL would move the table to the connection's database."""
    if engine.dialect.name in ("mysql", "mariadb"):
        return _quoted(engine.dialect, schema, name)
    return engine.dialect.identifier_preparer.quote(name)


# ---- Connections to the SQL database of lineage, and the tables that they create there


def fill_new_file(engine: sa.Engine, reader: sa.Engine) -> bool:
    """Make everything in a file that has nothing; whether that was done. Others may do so at the same time.

    Args:
        engine: of SQLite; its transactions lock the file from their first statement on.
        reader: the same, without that lock.
    """
    with reader.connect() as connection:
        if _has_something(connection):
            return False
    with engine.begin() as connection:
        if _has_something(connection):  # another process was first
            return False
        for statement in _statements():
            connection.exec_driver_sql(statement)
    return True


def _has_something(connection: sa.Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar())


@cache
def _statements() -> tuple[str, ...]:
    dialect = sqlite.dialect()
    tables = METADATA.sorted_tables
    indexes = sorted((each for table in tables for each in table.indexes), key=lambda index: str(index.name))
    return (
        *(str(sa.schema.CreateTable(each).compile(dialect=dialect)) for each in tables),
        *(str(sa.schema.CreateIndex(each).compile(dialect=dialect)) for each in indexes),
        *(view_statement(dialect, None, name) for name in SEED_TABLES),
    )


_WAIT_MS: Final = 10_000  # for another writer
_MOST_BYTES: Final = 1 << 20  # of a row
_READS: Final = "fluvial_reads"
_WAL_ATTEMPTS: Final = 200
_WAL_PAUSE_S: Final = 0.05
_PRIMARY_CODE: Final = 0xFF  # the bits of an error code of SQLite that say its kind


@dataclass(frozen=True)
class LineageTables:
    """Creates the tables, once per process; equal ones share an engine."""

    schema: str | None
    catalog_id: str | None
    reads: bool = False

    def __call__(self, engine: sa.Engine) -> sa.Engine:
        """Tune and fill a database. Raises: InvalidInputError when it belongs to another catalog."""
        if engine.dialect.name == "sqlite":
            _tune_sqlite(engine)
        else:
            sa.event.listen(
                engine, "connect", _wait_less if engine.dialect.name == "postgresql" else _wait_less_in_mysql
            )
        if self.schema is not None:
            engine = engine.execution_options(schema_translate_map={None: self.schema})
        reader = engine.execution_options(**{_READS: True})
        if engine.dialect.name != "sqlite" or not fill_new_file(engine, reader):
            self._make_missing(engine, reader)
        if self.catalog_id is not None:
            _check_owner(engine, self.catalog_id, self.schema)
        return reader if self.reads else engine

    def _make_missing(self, engine: sa.Engine, reader: sa.Engine) -> None:
        if {table.name for table in METADATA.sorted_tables} - _existing_tables(reader, self.schema):
            if self.schema is not None:
                _create_schema(engine, self.schema)
            make_tables(engine, METADATA, self.schema)
        if not is_upgraded(reader, self.schema):
            upgrade(engine, self.schema)


def _tune_sqlite(engine: sa.Engine) -> None:
    """Writers lock from their first statement on, and readers continue meanwhile."""

    def connected(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin explicitly
        connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)  # others may write the file

    def begun(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get(_READS)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    sa.event.listen(engine, "connect", connected)
    for attempt in range(_WAL_ATTEMPTS):
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            break
        except OperationalError as error:  # other processes may do the same, and SQLite does not wait
            code = getattr(error.orig, "sqlite_errorcode", 0) & _PRIMARY_CODE
            if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(_WAL_PAUSE_S)
    sa.event.listen(engine, "begin", begun)
    _stay_open(engine)


_MOST_OPEN: Final = 32
_open_files: Final[dict[str, tuple[int, Any]]] = {}
"""A process and a connection to each file, which is never used, the newest last. Closing the last connection moves the
write-ahead log into the file and deletes it, which would happen after every transaction."""
_opening: Final = threading.Lock()


def _stay_open(engine: sa.Engine) -> None:
    connection = engine.raw_connection()
    connection.detach()  # not closed with its pool
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the log; nothing stays locked
    with _opening:
        _open_files.pop(str(engine.url.database), None)
        _open_files[str(engine.url.database)] = os.getpid(), connection
        here = [path for path, (process, _) in _open_files.items() if process == os.getpid()]
        for path in here[:-_MOST_OPEN]:  # a forked child leaves its parent's alone
            _open_files.pop(path)[1].close()


def _wait_less(connection: Any, _: object) -> None:
    """PostgreSQL would wait for a lock indefinitely."""
    connection.autocommit = True
    connection.execute(f"SET lock_timeout = {_WAIT_MS}")
    connection.autocommit = False


def _wait_less_in_mysql(connection: Any, _: object) -> None:
    """MySQL would wait for most of a minute, and lock the gaps between keys."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {ceil(_WAIT_MS / 1000)}")
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def _check_owner(engine: sa.Engine, catalog_id: str, schema: str | None) -> None:
    """The first catalog takes the tables; names of tables are only unique within one catalog."""
    with engine.execution_options(**{_READS: True}).connect() as connection:
        owner = connection.execute(sa.select(OWNER.c.catalog_id)).scalar()
    if owner is None:
        with suppress(IntegrityError), engine.begin() as connection:  # else another process has just taken them
            connection.execute(sa.insert(OWNER), {"id": 1, "catalog_id": catalog_id})
        with engine.execution_options(**{_READS: True}).connect() as connection:
            owner = connection.execute(sa.select(OWNER.c.catalog_id)).scalar()
    if owner != catalog_id:
        raise InvalidInputError(
            f"lineage tables belong to another catalog: jdbc.database={schema} catalog={catalog_id} owner={owner} "
            "fix='set jdbc.database to another name, or drop the tables if that catalog is gone'"
        )


def _existing_tables(engine: sa.Engine, schema: str | None) -> set[str]:
    """Names of the existing tables. MySQL refuses to inspect a missing schema."""
    inspector = sa.inspect(engine)
    missing = schema is not None and schema not in inspector.get_schema_names()
    return set() if missing else set(inspector.get_table_names(schema))


def _create_schema(engine: sa.Engine, schema: str) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
    except DBAPIError:
        if schema not in sa.inspect(engine).get_schema_names():  # another process has just created it
            raise
