"""Whether a named table is Fluvial's or Spark's."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from sqlglot.errors import ParseError

from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.places import SqlSyntaxError
from engine.dialect.scope.context import SqlContext
from engine.spark_internals.session import can_parse, has_view, knows_catalog, names_of_text
from engine.system_tables.names import has_database, is_system_table
from engine.table import Table
from engine.types.quoting import quoted
from lsm.errors import InvalidInputError

SPARK_CATALOG = "spark_catalog"
# Statements on existing tables; creating and listing are Fluvial's, whatever Spark has.
_OF_A_TABLE = (
    tree.DropTable,
    tree.TruncateTable,
    tree.AnalyzeTable,
    tree.AlterTable,
    tree.ReplaceColumns,
    tree.RenameTable,
    tree.DescribeTable,
    tree.DescribeHistory,
    tree.ShowCreateTable,
    tree.ShowPartitions,
    tree.ShowProperties,
    tree.ShowColumns,
)


_SHOWN_TABLES: Final = "ShowTablesExtended"
_OTHER_DOOR: Final = "fluvial.install(spark, catalog) and spark.sql, or a view of the frame of a SELECT"
_INSTEAD: Final = {
    _SHOWN_TABLES: "SHOW TABLES, and DESCRIBE EXTENDED of a table; name spark_catalog.database for tables of Spark",
    "ShowTablePartition": "SHOW PARTITIONS, and DESCRIBE of a table with PARTITION",
    "ShowViews": "SHOW VIEWS without a database: a catalog of Fluvial has tables only",
    "AnalyzeTable": "ANALYZE TABLE without PARTITION and NOSCAN",
    "RefreshTable": "leave it out: each statement reads the newest snapshot",
    "RepairTable": "leave it out: a snapshot has all partitions",
    "LoadData": "INSERT INTO from a view of the files, or CALL sys.migrate_table",
    "InsertIntoStatement": "INSERT INTO, INSERT OVERWRITE without IF NOT EXISTS, or MERGE",
    "CommentOnNamespace": "leave it out: a database has a name and nothing else",
    "SetNamespaceProperties": "leave it out: a database has a name and nothing else",
}
"""The statements to use for a table of Fluvial instead, by the class of Spark's plan."""


def is_sparks(context: SqlContext, statement: object) -> bool:
    """Whether a statement is on a table or view of Spark: its catalog is given, or only Spark has the name."""
    name: tuple[str, ...] = getattr(statement, "name", ()) or getattr(statement, "database", ())
    if len(name) > 1 and name[0] == SPARK_CATALOG:
        return True
    if len(name) == 3 and name[0] != context.catalog_name:
        return True
    spark = context.running_spark
    if spark is None or not isinstance(statement, _OF_A_TABLE) or len(name) > 2 or is_ours(context, name):
        return False
    return bool(spark.catalog.tableExists(".".join(map(quoted, name))))


def is_sparks_text(context: SqlContext, text: str, error: SqlSyntaxError) -> bool:
    """Whether Spark, if it runs, can parse a text with a syntax error that is not in Fluvial's own grammar."""
    is_script = text.lstrip()[:5].upper() == "BEGIN"
    return (is_script or isinstance(error.__cause__, ParseError)) and can_parse(context.running_spark, text)


def run_in_spark(context: SqlContext, text: str) -> DataFrame:
    """Run a text that is Spark's.

    Raises:
        InvalidInputError: it names a table or database of this catalog, of which Spark knows nothing, or has another.
    """
    found = None if context.is_sparks_own else names_of_text(context.spark, text)
    if found is not None:
        named = [name for name in found.tables if _is_of_catalog(context, name, 3) or _is_hidden(context, name)]
        named += [name for name in found.databases if _is_of_catalog(context, name, 2) or _is_listed(context, name)]
        if found.command == _SHOWN_TABLES and () in found.databases:
            named.append((context.database,))
        if named:
            raise InvalidInputError(
                "Spark runs this statement, and does not know the tables of this catalog here: "
                f"name={'.'.join(named[0])} fix='{_INSTEAD.get(found.command, _OTHER_DOOR)}'"
            )
    return context.spark.sql(text)


def _is_of_catalog(context: SqlContext, name: tree.Name, parts: int) -> bool:
    """Whether a name says this catalog, and the session does not have it."""
    return len(name) == parts and name[0] == context.catalog_name and not knows_catalog(context.spark, name[0])


def _is_hidden(context: SqlContext, name: tree.Name) -> bool:
    """Whether a table without a catalog is this one's in all other statements."""
    is_view = len(name) == 1 and has_view(context.spark, name[0])
    return len(name) < 3 and not is_view and is_ours(context, name)


def _is_listed(context: SqlContext, name: tree.Name) -> bool:
    return len(name) == 1 and context.names.database(name[0], context.catalog) in context.catalog.list_databases()


def opened(context: SqlContext, name: tree.Name) -> Table:
    """The table of a name. Raises: InvalidInputError with similar names when it is missing."""
    return context.catalog.table(context.full_name(*name))


def described(context: SqlContext, name: tree.Name) -> Table:
    """As ``opened``, for statements that say what a table is: also of one that cannot be read."""
    return context.catalog.described(context.full_name(*name))


def tables_of(context: SqlContext, name: tree.Name) -> tuple[str, Sequence[str]]:
    """A database, by default the current one, and its tables. Raises: MissingDatabaseError: there is none."""
    database = context.database_name(name) if name else context.database
    is_there = bool(name) or has_database(context.catalog, database)  # a session begins in one not made
    return database, context.catalog.list_tables(database) if is_there else ()


def is_ours(context: SqlContext, name: tuple[str, ...]) -> bool:
    """Whether the catalog has a table of this name, or one of the system's."""
    try:
        full_name = context.full_name(*name)
        return is_system_table(context.catalog, full_name) or context.catalog.table_exists(full_name)
    except InvalidInputError:
        return False
