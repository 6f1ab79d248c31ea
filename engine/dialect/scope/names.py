"""Whether a named table is Fluvial's or Spark's."""

from sqlglot.errors import ParseError

from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.places import SqlSyntaxError
from engine.dialect.scope.context import SqlContext
from engine.spark_internals.session import can_parse
from engine.system_tables.names import is_system_table
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


def opened(context: SqlContext, name: tree.Name) -> Table:
    """The table of a name. Raises: InvalidInputError with similar names when it is missing."""
    return context.catalog.table(context.full_name(*name))


def described(context: SqlContext, name: tree.Name) -> Table:
    """As ``opened``, for statements that say what a table is: also of one that cannot be read."""
    return context.catalog.described(context.full_name(*name))


def is_ours(context: SqlContext, name: tuple[str, ...]) -> bool:
    """Whether the catalog has a table of this name, or one of the system's."""
    try:
        full_name = context.full_name(*name)
        return is_system_table(context.catalog, full_name) or context.catalog.table_exists(full_name)
    except InvalidInputError:
        return False
