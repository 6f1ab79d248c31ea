"""Decides whether Spark or Fluvial runs a statement of ``spark.sql``, by the tables and views that it names."""

from typing import Any, Final

from sqlglot import exp

from engine.dialect.call import is_of_procedures
from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.parser import Call, Explain, SparkStatement
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.references import find_references, missing_table, our_name
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import is_ours
from engine.spark_internals.session import has_view
from engine.system_tables.names import has_database, is_system_name
from filestore.catalog.catalog import DEFAULT_DATABASE

_CHANGES: Final = (exp.Insert, exp.Delete, exp.Update, exp.Merge)
_OF_DATABASES: Final = (tree.CreateDatabase, tree.DropDatabase, tree.DescribeDatabase, tree.ShowTables)
_MAKES: Final = (tree.CreateTable,)
_SETTINGS: Final = (tree.SetSetting, tree.ResetSetting)


def is_command(context: SqlContext, statement: Statement) -> bool:
    """Whether a statement is a command of Fluvial's in this catalog; a query is none.

    Raises:
        InvalidInputError: it writes to a table that does not exist.
    """
    what: Any = statement.tree
    if isinstance(what, _CHANGES):
        return _writes_ours(context, what)
    if isinstance(what, exp.Expr | SparkStatement):
        return False
    if isinstance(what, tree.Use):
        return what.is_catalog and what.name == (context.catalog_name,)  # USE without this word is Spark's
    if isinstance(what, Explain):
        return reads_ours(context, what.inner)
    if isinstance(what, Call):
        return is_of_procedures(context, what.procedure[:-1], is_current=context.is_current)
    if isinstance(what, _SETTINGS):
        return True
    if isinstance(what, tree.ShowDatabases):
        return context.is_current
    if isinstance(what, tree.ShowProcedures):
        return is_of_procedures(context, what.space, is_current=context.is_current)
    if isinstance(what, _OF_DATABASES):
        name = what.database if isinstance(what, tree.ShowTables) else what.name
        is_here = name[0] == context.catalog_name if len(name) == 2 else context.is_current
        return is_here and (not name or isinstance(what, tree.CreateDatabase) or _is_database(context, name[-1]))
    return _is_on_ours(context, what)


def reads_ours(context: SqlContext, statement: Statement) -> bool:
    """Whether a statement is a query of tables of this catalog. Raises: InvalidInputError: one does not exist."""
    what = statement.tree
    if not isinstance(what, exp.Expr) or isinstance(what, _CHANGES):
        return False
    found = find_references(context, statement, what, is_view=lambda name: has_view(context.spark, name))
    return bool(found)


def _writes_ours(context: SqlContext, what: Any) -> bool:
    node = what.this.this if isinstance(what.this, exp.Schema) else what.this
    is_table = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
    return is_table and our_name(context, node) is not None


def _is_database(context: SqlContext, name: str) -> bool:
    """Whether there is one; of another, Spark says that it is not there."""
    return name == DEFAULT_DATABASE or has_database(context.catalog, context.names.database(name, context.catalog))


def _is_on_ours(context: SqlContext, what: Any) -> bool:
    """A statement about one table."""
    has_catalog = len(what.name) == 3
    is_here = bool(what.name[0] == context.catalog_name) if has_catalog else context.is_current
    if not is_here or isinstance(what, _MAKES):
        return is_here
    if is_ours(context, what.name):
        return True
    if is_system_name(name := context.full_name(*what.name)):
        return False
    raise missing_table(context, *name.split(".", 1))
