"""Lineage in a SQL database: the tables of the Metadata Database, under their names.

Every call is a separate transaction. SQLite uses a write-ahead log, so that readers and a writer do not block each
other, and writers wait for ten seconds at most. In PostgreSQL and MySQL the tables have their own schema. Source: PIP
"Table and data lineage", JdbcLineageMeta.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from math import ceil
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError

from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from engine.lineage.store.sql_predicates import where
from engine.lineage.store.store import DIRECTORY, JDBC, SQLITE_FILE, LineageMetaContext
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase, make_tables
from filestore.options.catalog_options import CatalogOptions
from filestore.predicate.predicate import Predicate
from lsm.errors import InvalidInputError

METADATA: Final = sa.MetaData()
_ROWS_AT_ONCE: Final = 1000
_WAIT_MS: Final = 10_000  # for another writer
_READS: Final = "fluvial_reads"
_WAL_ATTEMPTS: Final = 200
_WAL_PAUSE_S: Final = 0.05
# Compared by bytes, as everywhere else; three of them and a number are the maximum of a MySQL key.
_NAME: Final = (
    sa.String(255)
    .with_variant(postgresql.VARCHAR(255, collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
)
_TIME: Final = sa.DateTime().with_variant(
    sqlite.DATETIME(  # type: ignore[no-untyped-call]
        storage_format="%(year)04d-%(month)02d-%(day)02d %(hour)02d:%(minute)02d:%(second)02d",
        regexp=r"(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+)",
    ),
    "sqlite",
)


def _key(name: str, kind: Any = _NAME) -> "sa.Column[Any]":
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _table_lineage(name: str) -> sa.Table:
    created = sa.Column("create_time", _TIME, nullable=False)
    table = sa.Table(name, METADATA, _key("job"), _key("database"), _key("table"), created)
    sa.Index(f"{name}_by_table", table.c.database, table.c.table)
    return table


def _data_lineage(name: str) -> sa.Table:
    snapshot = sa.Column("snapshot_id", sa.BigInteger, nullable=False)
    created = sa.Column("create_time", _TIME, nullable=False)
    keys = (_key("job"), _key("barrier_id", sa.BigInteger), _key("database"), _key("table"))
    table = sa.Table(name, METADATA, *keys, snapshot, created)
    sa.Index(f"{name}_by_snapshot", table.c.database, table.c.table, table.c.snapshot_id)
    sa.Index(f"{name}_by_time", table.c.create_time)
    return table


def _jobs_of(name: str) -> sa.Table:
    """Which jobs have rows of a table, so that the nearest row of each is found without scanning all of them."""
    return sa.Table(name, METADATA, _key("database"), _key("table"), _key("job"))


SOURCE_JOBS: Final = _table_lineage("source_job_lineage")
SINK_JOBS: Final = _table_lineage("sink_job_lineage")
SOURCE_SNAPSHOTS: Final = _data_lineage("source_snapshot_lineage")
SINK_SNAPSHOTS: Final = _data_lineage("sink_snapshot_lineage")
SOURCE_SNAPSHOT_JOBS: Final = _jobs_of("fluvial_source_snapshot_jobs")
SINK_SNAPSHOT_JOBS: Final = _jobs_of("fluvial_sink_snapshot_jobs")
JOB_STARTUP: Final = sa.Table(
    "job_startup",
    METADATA,
    _key("job"),
    _key("database"),
    _key("table"),
    sa.Column("snapshot_id", sa.BigInteger, nullable=False),
)
OWNER: Final = sa.Table(
    "fluvial_catalog", METADATA, _key("id", sa.Integer), sa.Column("catalog_id", sa.String(64), nullable=False)
)
"""One row: the catalog that owns the tables."""


@dataclass(frozen=True)
class _Prepare:
    """Creates the tables, once per process; equal ones share an engine."""

    schema: str | None
    catalog_id: str | None
    reads: bool = False

    def __call__(self, engine: sa.Engine) -> sa.Engine:
        if engine.dialect.name == "sqlite":
            _tune_sqlite(engine)
        else:
            sa.event.listen(
                engine, "connect", _wait_less if engine.dialect.name == "postgresql" else _wait_less_in_mysql
            )
        if self.schema is not None:
            engine = engine.execution_options(schema_translate_map={None: self.schema})
        reader = engine.execution_options(**{_READS: True})
        if {table.name for table in METADATA.sorted_tables} - _existing_tables(reader, self.schema):
            if self.schema is not None:
                _create_schema(engine, self.schema)
            make_tables(engine, METADATA, self.schema)
        if self.catalog_id is not None:
            _check_owner(engine, self.catalog_id, self.schema)
        return reader if self.reads else engine


class JdbcLineageMeta:
    """See ``LineageMeta``. Picklable."""

    def __init__(self, database: SqlDatabase, schema: str | None = None, catalog_id: str | None = None) -> None:
        """Create it without connecting.

        Args:
            database: SQLite, PostgreSQL or MySQL.
            schema: schema of the tables, created if missing; None in SQLite.
            catalog_id: the catalog of the lineage; None: not checked.
        """
        self.database = database
        self._prepare = _Prepare(schema, catalog_id)

    def transaction(self, action: str, *, reads: bool = False) -> AbstractContextManager[sa.Connection]:
        """A transaction on the tables; a read-only one never waits.

        Raises:
            UnavailableError: the database does not answer, or refuses.
            InvalidInputError: the tables belong to another catalog.
        """
        return self.database.transaction(action, replace(self._prepare, reads=reads))

    def store(self, records: LineageRecords) -> None:
        """Store all records or none."""
        with self.transaction("store lineage") as connection:
            # Always in this order, and by key: two writers cannot deadlock.
            self._add(connection, SOURCE_JOBS, records.source_tables)
            self._add(connection, SINK_JOBS, records.sink_tables)
            self._add(connection, SOURCE_SNAPSHOTS, records.source_snapshots)
            self._add(connection, SOURCE_SNAPSHOT_JOBS, records.source_snapshots)
            self._add(connection, SINK_SNAPSHOTS, records.sink_snapshots)
            self._add(connection, SINK_SNAPSHOT_JOBS, records.sink_snapshots)
            self._add(connection, JOB_STARTUP, records.startups)

    def store_source_table_lineage(self, entity: TableLineage) -> None:
        """Store that a job reads a table."""
        self.store(LineageRecords(source_tables=(entity,)))

    def store_sink_table_lineage(self, entity: TableLineage) -> None:
        """Store that a job writes a table."""
        self.store(LineageRecords(sink_tables=(entity,)))

    def store_source_data_lineage(self, entity: DataLineage) -> None:
        """Store what a barrier has read."""
        self.store(LineageRecords(source_snapshots=(entity,)))

    def store_sink_data_lineage(self, entity: DataLineage) -> None:
        """Store what a barrier has written."""
        self.store(LineageRecords(sink_snapshots=(entity,)))

    def store_job_startup(self, entity: JobStartup) -> None:
        """Store where a job starts."""
        self.store(LineageRecords(startups=(entity,)))

    def source_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Which jobs read which tables."""
        return self._entities(TableLineage, SOURCE_JOBS, predicate, limit)

    def sink_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Which jobs write which tables."""
        return self._entities(TableLineage, SINK_JOBS, predicate, limit)

    def source_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have read."""
        return self._entities(DataLineage, SOURCE_SNAPSHOTS, predicate, limit)

    def sink_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have written."""
        return self._entities(DataLineage, SINK_SNAPSHOTS, predicate, limit)

    def job_startups(self, predicate: Predicate | None = None, *, limit: int | None = None) -> Iterator[JobStartup]:
        """Where jobs started."""
        return self._entities(JobStartup, JOB_STARTUP, predicate, limit)

    def delete_source_table_lineage(self, job: str) -> None:
        """Delete which tables a job reads."""
        self._delete(job, SOURCE_JOBS)

    def delete_sink_table_lineage(self, job: str) -> None:
        """Delete which tables a job writes."""
        self._delete(job, SINK_JOBS)

    def delete_data_lineage(self, job: str) -> None:
        """Delete all barriers of a job, and its start."""
        self._delete(job, SOURCE_SNAPSHOTS, SOURCE_SNAPSHOT_JOBS, SINK_SNAPSHOTS, SINK_SNAPSHOT_JOBS, JOB_STARTUP)

    def delete_data_lineage_before(self, time: datetime) -> None:
        """Delete the barriers recorded before a time."""
        with self.transaction("delete old lineage") as connection:
            for table in (SOURCE_SNAPSHOTS, SINK_SNAPSHOTS):
                connection.execute(sa.delete(table).where(table.c.create_time < time))

    def close(self) -> None:
        """Nothing to close: nothing is held between calls."""

    def rows(self, query: "sa.Select[Any]", limit: int | None) -> Iterator[dict[str, Any]]:
        """Rows of a query on the tables, fetched lazily."""
        with (
            self.transaction("read lineage", reads=True) as connection,
            connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(query.limit(limit)) as found,
        ):
            for row in found.mappings():
                yield dict(row)

    def _entities(
        self, kind: type[Any], table: sa.Table, predicate: Predicate | None, limit: int | None
    ) -> Iterator[Any]:
        query = (
            sa.select(table).where(where(predicate, dict(table.c.items()), self._dialect)).order_by(*table.primary_key)
        )
        for row in self.rows(query, limit):
            yield kind(**row)

    def _add(self, connection: sa.Connection, table: sa.Table, entities: Iterable[Any]) -> None:
        keys = [column.name for column in table.primary_key]
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for entity in entities:
            row = {column.name: getattr(entity, column.name) for column in table.columns}
            key = tuple(row[name] for name in keys)
            if table is JOB_STARTUP or key not in rows:
                rows[key] = row
        if rows:
            connection.execute(self._insert(table), [rows[key] for key in sorted(rows)])

    def _insert(self, table: sa.Table) -> sa.Insert:
        """An insert that keeps an existing row; except for startups, which are replaced."""
        replaces = table is JOB_STARTUP
        if self._dialect in ("mysql", "mariadb"):
            added = mysql.insert(table)
            if replaces:
                return added.on_duplicate_key_update(snapshot_id=added.inserted.snapshot_id)
            return added.on_duplicate_key_update(job=table.c.job)
        insert = sqlite.insert(table) if self._dialect == "sqlite" else postgresql.insert(table)
        if replaces:
            changed = {"snapshot_id": insert.excluded.snapshot_id}
            return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)
        return insert.on_conflict_do_nothing()

    def _delete(self, job: str, *tables: sa.Table) -> None:
        with self.transaction("delete lineage") as connection:
            for table in tables:
                connection.execute(sa.delete(table).where(table.c.job == job))

    @cached_property
    def _dialect(self) -> str:
        return self.database.dialect


class JdbcLineageMetaFactory:
    """``lineage-meta=jdbc``: the database that ``jdbc.url`` names, or a SQLite file inside the warehouse."""

    identifier: Final = JDBC

    def create(self, context: LineageMetaContext) -> JdbcLineageMeta:
        """The store. Raises: InvalidInputError for an address that cannot be read."""
        options = CatalogOptions.parse(context.options)
        url, schema = options.jdbc_url, options.jdbc_database
        if url is None:
            file = f"{context.warehouse}/{DIRECTORY}/{SQLITE_FILE}"
            address = sa.URL.create("sqlite", database=file).render_as_string()
            return JdbcLineageMeta(SqlDatabase(url=address), catalog_id=context.catalog_id)
        user, password = options.jdbc_user, options.jdbc_password
        database = SqlDatabase.of(url, dialects=ALL_DIALECTS)
        # With names in a database, these options belong to that database.
        if options.metastore != "jdbc" or sa.make_url(database.url).username is None:
            database = SqlDatabase.of(url, user=user, password=password, dialects=ALL_DIALECTS)
        if database.dialect != "sqlite":
            return JdbcLineageMeta(database, schema, context.catalog_id)
        if "jdbc.database" in options.given:
            raise InvalidInputError(
                f"a SQLite file is one database: jdbc.url={database.shown} jdbc.database={schema} "
                "fix='name another file in jdbc.url'"
            )
        return JdbcLineageMeta(database, catalog_id=context.catalog_id)


def _tune_sqlite(engine: sa.Engine) -> None:
    """Writers lock from their first statement on, and readers continue meanwhile."""

    def connected(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin explicitly
        connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}")

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
            if "locked" not in str(error) or attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(_WAL_PAUSE_S)
    sa.event.listen(engine, "begin", begun)
    _stay_open(engine)


_open_files: Final[dict[str, Any]] = {}
"""A connection to each file, which is never used. Closing the last connection moves the write-ahead log into the file
and deletes it, which would happen after every transaction. A forked child leaves the connection alone, too."""


def _stay_open(engine: sa.Engine) -> None:
    connection = engine.raw_connection()
    connection.detach()  # not closed with its pool
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # opens the log; nothing stays locked
    _open_files[str(engine.url.database)] = connection


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
        with engine.begin() as connection:
            owner = connection.execute(sa.select(OWNER.c.catalog_id)).scalar()
            if owner is None:
                connection.execute(sa.insert(OWNER), {"id": 1, "catalog_id": catalog_id})
                owner = catalog_id
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
