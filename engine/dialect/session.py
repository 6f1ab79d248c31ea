"""Runs statements in order, and keeps the state that USE and SET leave behind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from engine.dialect.call import run_call, show_procedures
from engine.dialect.ddl import create, describe, settings, show, tables
from engine.dialect.dml.dml import run_dml
from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.parser import Call, Explain, SparkStatement, parse_statements
from engine.dialect.grammar.places import SqlSyntaxError
from engine.dialect.grammar.spark_text import in_sparks_words
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.explain import run_explain
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import is_sparks, is_sparks_text
from lsm.errors import InvalidInputError, ManyProblemsError

_CHANGES: Final = (exp.Insert, exp.Delete, exp.Update, exp.Merge)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlResult:
    """A small table of a command, or the frame of a query. A table without columns is an empty result."""

    table: pa.Table | None = None
    frame: DataFrame | None = None


class SqlSession:
    """SQL access to a catalog; not thread-safe."""

    def __init__(self, context: SqlContext) -> None:
        """Start with the state of a context, which statements change."""
        self.context = context

    def execute(self, text: str) -> list[SqlResult]:
        """Run all statements of a text, in order.

        Queries that only Spark can parse, and its scripts from BEGIN to END, are passed to Spark, if Spark is already
        running; options and versions of tables in Spark's words.

        Raises:
            InvalidInputError: a statement cannot be parsed, and none was run; or one failed, and the earlier ones are
                done. Points at the position.
        """
        text = in_sparks_words(text)
        try:
            statements = parse_statements(text)
        except SqlSyntaxError as error:
            if not is_sparks_text(self.context, text, error):
                raise
            return [SqlResult(frame=self.context.spark.sql(text))]
        results = []
        for statement in statements:
            try:
                results.append(self.run(statement))
            except InvalidInputError as error:
                if len(statements) == 1 or isinstance(error, SqlSyntaxError | ManyProblemsError):
                    raise
                line = text.count("\n", 0, statement.start) + 1
                raise InvalidInputError(f"{error} line={line}") from error
        return results

    def run(self, statement: Statement) -> SqlResult:
        """Run one statement. Raises: InvalidInputError when it cannot be run; nothing is changed."""
        what = statement.tree
        self.context.begin(statement.text)
        if isinstance(what, exp.Expr):
            return self._run_rows(statement)
        if isinstance(what, Explain):
            return SqlResult(table=run_explain(self.context, statement))
        if isinstance(what, Call):
            return SqlResult(table=run_call(self.context, statement))
        if isinstance(what, SparkStatement) or is_sparks(self.context, what):
            return self._run_in_spark(statement)
        if isinstance(what, tree.CreateTable):
            return SqlResult(table=create.create_table(self.context, what))
        return SqlResult(table=_COMMANDS[type(what)](self.context, what))

    def _run_rows(self, statement: Statement) -> SqlResult:
        if isinstance(statement.tree, _CHANGES):
            return SqlResult(table=run_dml(self.context, statement))
        return SqlResult(frame=run_query(self.context, statement))

    def _run_in_spark(self, statement: Statement) -> SqlResult:
        return SqlResult(frame=self.context.spark.sql(statement.text))


_COMMANDS: Final[Mapping[type, Callable[[SqlContext, Any], pa.Table]]] = {
    tree.CreateDatabase: tables.create_database,
    tree.DropDatabase: tables.drop_database,
    tree.Use: settings.use,
    tree.DropTable: tables.drop_table,
    tree.TruncateTable: tables.truncate_table,
    tree.AnalyzeTable: tables.analyze_table,
    tree.AlterTable: tables.alter_table,
    tree.ReplaceColumns: tables.replace_columns,
    tree.SetPartitionOptions: tables.set_partition_options,
    tree.RenameTable: tables.rename_table,
    tree.CompactTable: tables.run_compact,
    tree.DropPartitions: tables.run_drop_partitions,
    tree.DescribeTable: describe.describe_table,
    tree.DescribeDatabase: describe.describe_database,
    tree.DescribeHistory: describe.describe_history,
    tree.ShowDatabases: show.show_databases,
    tree.ShowTables: show.show_tables,
    tree.ShowCreateTable: show.show_create_table,
    tree.ShowPartitions: show.show_partitions,
    tree.ShowProperties: show.show_properties,
    tree.ShowColumns: show.show_columns,
    tree.ShowProcedures: show_procedures,
    tree.SetSetting: settings.set_setting,
    tree.ResetSetting: settings.reset_setting,
}
