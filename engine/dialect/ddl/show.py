"""``SHOW``."""

import pyarrow as pa

from engine.dialect.ddl.ddl_text import create_statement
from engine.dialect.ddl.partition_spec import named_partitions
from engine.dialect.ddl.table_parts import TableParts, quoted_where_needed
from engine.dialect.grammar.statements import (
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowPartitions,
    ShowProperties,
    ShowTables,
)
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import described, opened, tables_of
from engine.dialect.scope.results import like, texts_table
from engine.system_tables.catalog_tables import shown_databases
from engine.system_tables.names import is_system_table
from filestore.layout.branch_names import split_branch
from filestore.maintenance.partitions import list_partitions, path_of
from filestore.options.secrets import without_secrets
from lsm.errors import InvalidInputError


def show_databases(context: SqlContext, statement: ShowDatabases) -> pa.Table:
    """The databases of the catalog, with ``sys``, and the one of lineage where lineage is recorded."""
    names = like(shown_databases(context.catalog), statement.pattern)
    return texts_table(("namespace",), [(name,) for name in names])


def show_tables(context: SqlContext, statement: ShowTables) -> pa.Table:
    """The tables of a database, default the current one."""
    database, found = tables_of(context, statement.database)
    names = like(found, statement.pattern)
    table = texts_table(("namespace", "tableName"), [(database, name) for name in names])
    return table.append_column("isTemporary", pa.array([False] * len(names), pa.bool_()))


def show_create_table(context: SqlContext, statement: ShowCreateTable) -> pa.Table:
    """The statement that creates a table again."""
    table = described(context, statement.name)
    name = ".".join(quoted_where_needed(each) for each in (context.catalog_name, *table.name.split(".")))
    place = context.catalog.own_place(split_branch(table.name)[0])
    return texts_table(("createtab_stmt",), [(create_statement(table, name, place),)])


def show_partitions(context: SqlContext, statement: ShowPartitions) -> pa.Table:
    """The partitions that have rows."""
    table = opened(context, statement.name)
    if not table.schema.partition_keys:
        raise InvalidInputError(f"the table is not partitioned: table={table.name}")
    live = [state.partition for state in list_partitions(table.store, table.latest_snapshot())]
    found = named_partitions(table.store, statement.partition, live)
    return texts_table(("partition",), [(path_of(table.store, each),) for each in found])


def show_properties(context: SqlContext, statement: ShowProperties) -> pa.Table:
    """The options that are set; secrets are masked."""
    options = without_secrets(described(context, statement.name).schema.options)
    if statement.key is not None:
        options = {statement.key: options.get(statement.key, f"Table has no such property: {statement.key}")}
    return texts_table(("key", "value"), options.items())


def show_columns(context: SqlContext, statement: ShowColumns) -> pa.Table:
    """The columns, computed ones last."""
    name = context.full_name(*statement.name)
    if is_system_table(context.catalog, name):
        return texts_table(("col_name",), [(each,) for each in context.catalog.system_table(name).schema.names])
    schema = described(context, statement.name).schema
    computed = [each.name for each in TableParts.of(schema.options).computed]
    return texts_table(("col_name",), [(name,) for name in (*schema.column_names, *computed)])
