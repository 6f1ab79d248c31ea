"""A new SQLite file of lineage: its tables, indexes and views in one transaction.

One after the other they are a dozen transactions, each of which waits for the disk, before a catalog's first write.
"""

from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from engine.lineage.store.sql_tables import METADATA, SEED_TABLES
from engine.lineage.store.upgrade import view_statement


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
