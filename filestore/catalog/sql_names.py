"""Names of databases and tables as rows of a SQL database, in the tables of Paimon's JDBC catalog."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from filestore.catalog.sql_database import DATABASE_PROPERTIES, TABLE_PROPERTIES, TABLES, SqlDatabase
from filestore.catalog.table_names import TablesInDatabases, database_below
from filestore.catalog.warehouse import warehouse_path
from filestore.schema.table_schema import TableSchema
from lsm.errors import ConflictError

EXISTS: Final = "exists"
LOCATION: Final = "location"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlNames(TablesInDatabases):
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
        """Its location, if one is noted; else below the warehouse."""
        below = database_below(self.root, database)
        return warehouse_path(self.database_properties(database).get(LOCATION, below))

    def database_properties(self, database: str) -> Mapping[str, str]:
        """What is noted of a database."""
        columns = (DATABASE_PROPERTIES.c.property_key, DATABASE_PROPERTIES.c.property_value)
        wanted = sa.select(*columns).where(*self._of(DATABASE_PROPERTIES, database))
        with self.database.transaction("read a database") as connection:
            return {str(key): str(value) for key, value in connection.execute(wanted)}

    def add_database(self, database: str) -> None:
        """Note it and where it is. Raises: ConflictError when it is there."""
        noted = {EXISTS: "true", LOCATION: database_below(self.root, database)}
        rows = [
            {
                "catalog_key": self.catalog_key,
                "database_name": database,
                "property_key": key,
                "property_value": value,
            }
            for key, value in noted.items()
        ]
        with self.database.transaction("add a database") as connection:
            connection.execute(sa.insert(DATABASE_PROPERTIES), rows)

    def remove_database(self, database: str) -> None:
        """Forget a database and the tables in it."""
        with self.database.transaction("remove a database") as connection:
            for table in (TABLES, TABLE_PROPERTIES, DATABASE_PROPERTIES):
                connection.execute(sa.delete(table).where(*self._of(table, database)))

    def tables(self, database: str) -> list[str]:
        """Its tables, sorted."""
        with self.database.transaction("list tables") as connection:
            wanted = sa.select(TABLES.c.table_name).where(*self._of(TABLES, database))
            return sorted(str(name) for name in connection.execute(wanted).scalars())

    def has_table(self, database: str, table: str) -> bool:
        """Whether the name is noted."""
        return table in self.tables(database)

    def add_table(self, database: str, table: str, schema: TableSchema) -> None:
        """Note the name, and the database's."""
        if not self.has_database(database):
            with suppress(ConflictError):
                self.add_database(database)
        row = {"catalog_key": self.catalog_key, "database_name": database, "table_name": table}
        with suppress(ConflictError), self.database.transaction("add a table") as connection:
            connection.execute(sa.insert(TABLES), row)

    def remove_table(self, database: str, table: str) -> None:
        """Forget the name."""
        with self.database.transaction("remove a table") as connection:
            for each in (TABLES, TABLE_PROPERTIES):
                connection.execute(sa.delete(each).where(*self._of(each, database, table)))

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Note another name, and move its directory, in one transaction. Raises: ConflictError when it is taken."""
        assert move is not None
        with self.database.transaction("rename a table") as connection:
            for each in (TABLES, TABLE_PROPERTIES):
                renamed = sa.update(each).where(*self._of(each, *source))
                connection.execute(renamed.values(database_name=target[0], table_name=target[1]))
            move()

    def _of(self, table: sa.Table, database: str, name: str | None = None) -> list[sa.ColumnElement[bool]]:
        found = [table.c.catalog_key == self.catalog_key, table.c.database_name == database]
        return found if name is None else [*found, table.c.table_name == name]
