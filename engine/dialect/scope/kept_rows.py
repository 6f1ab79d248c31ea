"""Tables whose rows Spark keeps: ``CACHE TABLE``, ``spark.catalog.cacheTable``, ``spark.table(t).cache()``.

Spark finds kept rows of tables that frames read by name. Queries of ``spark.sql`` find them here, and rows that its
statements change are read again, as Spark does for what frames write.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame
from sqlglot import exp

from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.parser import Call
from engine.dialect.grammar.statements import Statement
from engine.dialect.scope.context import SqlContext
from engine.spark_internals.session import keeps_rows
from engine.types.quoting import quoted
from lsm.errors import InvalidInputError

_CHANGES: Final = (exp.Insert, exp.Delete, exp.Update, exp.Merge)
_GONE: Final = (tree.DropTable, tree.RenameTable, tree.DropDatabase)
_ON_TABLES: Final = (
    tree.CreateTable,
    tree.DropTable,
    tree.TruncateTable,
    tree.AlterTable,
    tree.ReplaceColumns,
    tree.SetPartitionOptions,
    tree.RenameTable,
    tree.DropPartitions,
)


def kept_frame(context: SqlContext, name: str) -> DataFrame | None:
    """The newest state of a table as a frame that Spark computes from kept rows; None: it keeps none.

    Args:
        context: of the session.
        name: ``db.table``, as the catalog has it.
    """
    if not context.is_sparks_own or not keeps_rows(context.spark):
        return None
    whole = _whole_name(context, name)
    return context.spark.table(whole) if context.spark.catalog.isCached(whole) else None


@contextmanager
def rows_read_again(context: SqlContext, statement: Statement) -> Iterator[None]:
    """Around a statement: what Spark keeps of a table that it changes is computed again, when it is asked for."""
    names = sorted({*_changed(context, statement.tree)}) if keeps_rows(context.spark) else []
    if isinstance(statement.tree, _GONE):  # Spark forgets only what is there
        for name in names:
            context.spark.catalog.uncacheTable(_whole_name(context, name))
    try:
        yield
    finally:
        for name in names:
            if context.catalog.table_exists(name):
                context.spark.catalog.refreshTable(_whole_name(context, name))


def _whole_name(context: SqlContext, name: str) -> str:
    return ".".join(map(quoted, (context.catalog_name, *name.split(".", 1))))


def _changed(context: SqlContext, what: Any) -> Iterator[str]:
    if isinstance(what, _CHANGES):
        node = what.this.this if isinstance(what.this, exp.Schema) else what.this
        yield from _names(context, [part.name for part in node.parts])
    elif isinstance(what, _ON_TABLES):
        yield from _names(context, what.name)
    elif isinstance(what, tree.DropDatabase):
        database = context.database_name(what.name)
        yield from (f"{database}.{table}" for table in context.catalog.list_tables(database))
    elif isinstance(what, Call):
        for each in what.arguments:
            yield from _names(context, each.value.name.split("."))


def _names(context: SqlContext, parts: Any) -> Iterator[str]:
    """A table and its branch, and the table itself; none where the parts name no table."""
    try:
        name = context.full_name(*parts)
        if context.catalog.table_exists(name):
            yield from {name, name.partition("$")[0]}
    except InvalidInputError:
        return
