"""Lineage in a SQL database: the tables of the Metadata Database, under their names.

Every call is a separate transaction. Source: PIP "Table and data lineage", JdbcLineageMeta.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from engine.lineage.store.connections import LineageTables
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from engine.lineage.store.sql_predicates import where
from engine.lineage.store.sql_tables import (
    CHECKED,
    JOB_STARTUP,
    SINK_JOBS,
    SINK_SNAPSHOT_JOBS,
    SINK_SNAPSHOTS,
    SOURCE_JOBS,
    SOURCE_SNAPSHOT_JOBS,
    SOURCE_SNAPSHOTS,
    row_key,
)
from engine.lineage.store.store import DIRECTORY, JDBC, SQLITE_FILE, LineageMetaContext
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
from filestore.options.catalog_options import CatalogOptions
from filestore.predicate.predicate import Predicate
from lsm.errors import InvalidInputError

_ROWS_AT_ONCE: Final = 1000
ROW_KEY: Final = "row_key"
_UNKNOWN: Final[sa.ColumnElement[str]] = sa.literal_column("''")  # MySQL's client takes no parameters there
_ORDER: Final = ("job", "barrier_id", "database", "table", "run", "table_id")

_TO_BE_CHECKED_AGAIN: Final = (
    sa.update(CHECKED)
    .where(
        CHECKED.c.database == sa.bindparam("of_database"),
        CHECKED.c.table == sa.bindparam("of_table"),
        CHECKED.c.snapshot_id >= sa.bindparam("of_snapshot"),
        ~sa.select(SINK_SNAPSHOTS.c.row_key)
        .where(
            SINK_SNAPSHOTS.c.row_key == sa.bindparam("of_key"),
            SINK_SNAPSHOTS.c.snapshot_id == sa.bindparam("of_snapshot"),
            SINK_SNAPSHOTS.c.identity == sa.bindparam("of_identity"),
        )
        .exists(),
    )
    .values(snapshot_id=0, identity="")
)


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
        self._prepare = LineageTables(schema, catalog_id)

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
            self._check_again(connection, records.sink_snapshots)
            self.add(connection, records)

    def add(self, connection: sa.Connection, records: LineageRecords) -> None:
        """Store records in a transaction. Always in this order, and by key: two writers cannot deadlock."""
        self._add(connection, CHECKED, (each for each in (*records.source_snapshots, *records.sink_snapshots)))
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

    def never_committed(self) -> list[TableLineage]:
        """The jobs that are said to write a table of which they have no snapshot, and never had: each try failed."""
        is_known = [
            sa.exists().where(*(rows.c[name] == SINK_JOBS.c[name] for name in ("job", "database", "table")))
            for rows in (SINK_SNAPSHOT_JOBS, SINK_SNAPSHOTS)
        ]
        query = sa.select(SINK_JOBS).where(SINK_JOBS.c.stated == _UNKNOWN, ~sa.or_(*is_known))
        return [TableLineage(**row) for row in self.rows(query, None)]

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
        columns = [each for each in table.c if each.name != ROW_KEY]
        order = [table.c[name] for name in _ORDER if name in table.c]
        query = sa.select(*columns).where(where(predicate, dict(table.c.items()), self._dialect)).order_by(*order)
        for row in self.rows(query, limit):
            yield kind(**row)

    def _check_again(self, connection: sa.Connection, written: Iterable[DataLineage]) -> None:
        """Let a late row be compared with the snapshot files: records may have waited while the table went back."""
        rows = [
            {
                "of_key": row_key(each),
                "of_database": each.database,
                "of_table": each.table,
                "of_snapshot": each.snapshot_id,
                "of_identity": each.identity,
            }
            for each in written
        ]
        if rows:
            connection.execute(_TO_BE_CHECKED_AGAIN, rows)

    def _add(self, connection: sa.Connection, table: sa.Table, entities: Iterable[Any]) -> None:
        keys = [column.name for column in table.primary_key]
        kept: dict[tuple[Any, ...], dict[str, Any]] = {}
        replaced: dict[tuple[Any, ...], dict[str, Any]] = {}
        for entity in entities:
            row = _row(table, entity)
            if row is None:
                continue
            key = tuple(row[name] for name in keys)
            if table is JOB_STARTUP:
                if not _is_same_start(replaced.get(key), row):
                    replaced[key] = row
            elif row.get("run") or row.get("stated"):
                replaced[key] = row
            else:
                kept.setdefault(key, row)
        for rows, replaces in ((kept, False), (replaced, True)):
            if rows:
                connection.execute(self._insert(table, replaces=replaces), [rows[key] for key in sorted(rows)])

    def _insert(self, table: sa.Table, *, replaces: bool) -> sa.Insert:
        """An insert that keeps an existing row, or replaces it: another start, a known run, what is stated by hand."""
        others = [each.name for each in table.columns if not each.primary_key]
        if self._dialect in ("mysql", "mariadb"):
            added = mysql.insert(table)
            if replaces and table is JOB_STARTUP:  # from left to right
                stays = sa.and_(table.c.start != _UNKNOWN, table.c.start == added.inserted.start)
                kept = sa.func.if_(stays, table.c.snapshot_id, added.inserted.snapshot_id)
                return added.on_duplicate_key_update([("snapshot_id", kept), ("start", added.inserted.start)])
            if replaces:
                return added.on_duplicate_key_update({name: added.inserted[name] for name in others})
            first = next(iter(table.primary_key)).name
            return added.on_duplicate_key_update({first: table.c[first]})
        insert = sqlite.insert(table) if self._dialect == "sqlite" else postgresql.insert(table)
        if replaces:
            changed = {name: insert.excluded[name] for name in others}
            replaced = None
            if table is JOB_STARTUP:
                replaced = sa.or_(table.c.start == _UNKNOWN, table.c.start != insert.excluded.start)
            return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed, where=replaced)
        return insert.on_conflict_do_nothing()

    def _delete(self, job: str, *tables: sa.Table) -> None:
        with self.transaction("delete lineage") as connection:
            for table in tables:
                connection.execute(sa.delete(table).where(table.c.job == job))

    @cached_property
    def _dialect(self) -> str:
        return self.database.dialect


def _row(table: sa.Table, entity: Any) -> dict[str, Any] | None:
    """The row of an entity; None when the table has none of it."""
    if table is CHECKED:
        if not entity.table_id:
            return None
        return {
            "database": entity.database, "table": entity.table, "table_id": entity.table_id,
            "snapshot_id": 0, "identity": "",
        }  # fmt: skip
    row = {column.name: getattr(entity, column.name) for column in table.columns if column.name != ROW_KEY}
    return row | {ROW_KEY: row_key(entity)} if ROW_KEY in table.c else row


def _is_same_start(known: Mapping[str, Any] | None, row: Mapping[str, Any]) -> bool:
    return known is not None and known["start"] == row["start"] != ""


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
