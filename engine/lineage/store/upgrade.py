"""Lineage as an older Fluvial stored it: its rows are taken over, and its tables become views.

Until runs and ids of tables were part of a row, ``source_snapshot_lineage`` and ``sink_snapshot_lineage`` were tables.
They are renamed, their rows are copied, which may be repeated, and then they are dropped: a process that dies leaves
work for the next one. An older process that writes meanwhile is refused by the views, so it queues its records.
"""

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from engine.lineage.store.entities import DataLineage
from engine.lineage.store.sql_tables import JOB_STARTUP, SEED_TABLES, SINK_JOBS, SOURCE_JOBS, of_newest_run, row_key

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
