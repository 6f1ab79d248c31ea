"""Runs statements in order, and keeps the state that USE and SET leave behind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from engine.dialect.call import run_call, show_procedures
from engine.dialect.ddl import create, describe, show, tables
from engine.dialect.dml.dml import run_dml
from engine.dialect.grammar import statements as tree
from engine.dialect.grammar.parser import Call, Explain, SparkStatement, parse_statements
from engine.dialect.grammar.places import SqlSyntaxError
from engine.dialect.grammar.spark_text import in_sparks_words
from engine.dialect.grammar.statements import ResetSetting, SetSetting, Statement, Use
from engine.dialect.query.explain import run_explain
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import is_sparks, is_sparks_text, run_in_spark
from engine.dialect.scope.results import DONE, texts_table
from engine.lineage.origins import JOB_KEY
from engine.system_tables.names import has_database
from filestore.catalog.catalog import DEFAULT_DATABASE
from filestore.options.secrets import without_secrets
from filestore.options.table_options import SESSION_PREFIX, TableOptions, canonical_options, check_option
from filestore.options.tag_schedule import check_periods
from lsm.errors import InvalidInputError, ManyProblemsError, MissingDatabaseError
from lsm.nearest_names import names_text

# ---- ``USE``, ``SET table-storage.*`` and ``RESET``


_UNSET = "<undefined>"
_SPARKS = "spark."
_RUNTIME_MODE, _BATCH = "execution.runtime-mode", "batch"  # Flink's


def use(context: SqlContext, statement: Use) -> pa.Table:
    """Change the current database."""
    if statement.is_catalog or statement.name == (context.catalog_name,):
        name = ".".join(statement.name)
        if name != context.catalog_name:
            raise InvalidInputError(
                f"there is one catalog here: catalog={name} fix=use {context.catalog_name}, "
                "or name tables of other catalogs in full"
            )
        if context.is_sparks_own:
            context.spark.catalog.setCurrentCatalog(name)
        return DONE
    database = context.database_name(statement.name)
    if database != DEFAULT_DATABASE and not has_database(context.catalog, database):
        known = names_text("databases", database, context.catalog.list_databases())
        raise MissingDatabaseError(f"no such database: database={database} {known} fix=create it first")
    context.database = database
    return DONE


def set_setting(context: SqlContext, statement: SetSetting) -> pa.Table:
    """Set a default for tables created later, or one of Spark's, or show settings."""
    if statement.key is None:
        return _shown(context, context.settings)
    if statement.is_sparks:
        return _set_sparks(context, statement.key, statement.value)
    ((key, value),) = canonical_options({statement.key: statement.value or ""}).items()
    if statement.value is not None:
        check_option(key, value)
        check_periods(TableOptions({key: value}), [key])
        context.settings[key] = value
    return _shown(context, [key])


def reset_setting(context: SqlContext, statement: ResetSetting) -> pa.Table:
    """Remove a setting, or all; Spark's own are left to Spark."""
    if statement.is_sparks and statement.key is not None:
        context.spark.conf.unset(_sparks(statement.key))
        return DONE
    if statement.key is not None:
        context.settings.pop(_canonical(statement.key), None)
        return DONE
    context.settings.clear()
    if context.running_spark is not None:
        context.running_spark.sql("RESET")
    return DONE


def _set_sparks(context: SqlContext, key: str, value: str | None) -> pa.Table:
    """Set or show a setting of Spark, whose key was written in quotes."""
    if key == _RUNTIME_MODE and value is not None:
        if value.lower() == _BATCH:
            return texts_table(("key", "value"), [(key, value)])
        raise InvalidInputError(
            f"a statement reads and writes a state, it does not follow a table: option={key} value={value} "
            "fix='leave it out, and start a stream by readStream, Table.stream or a job file'"
        )
    conf = context.spark.conf
    if value is not None:
        conf.set(_sparks(key), value)
    return texts_table(("key", "value"), [(key, str(conf.get(_sparks(key), _UNSET)))])


def _sparks(key: str) -> str:
    if key.startswith(_SPARKS) or key == JOB_KEY:
        return key
    raise InvalidInputError(
        f"no setting of a session: option={key} known='{SESSION_PREFIX}* (of new tables), {_SPARKS}*, {JOB_KEY}' "
        "fix='options of one table are set with WITH (...), ALTER TABLE ... SET (...) or a hint'"
    )


def _canonical(key: str) -> str:
    return next(iter(canonical_options({key: ""})))


def _shown(context: SqlContext, keys: Iterable[str]) -> pa.Table:
    shown = without_secrets({key: context.settings.get(key, _UNSET) for key in keys})
    return texts_table(("key", "value"), [(SESSION_PREFIX + key, text) for key, text in shown.items()])


# ---- Runs statements in order, and keeps the state that USE and SET leave behind


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
            return [SqlResult(frame=run_in_spark(self.context, text))]
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
            return SqlResult(frame=run_in_spark(self.context, statement.text))
        if isinstance(what, tree.CreateTable):
            return SqlResult(table=create.create_table(self.context, what))
        return SqlResult(table=_COMMANDS[type(what)](self.context, what))

    def _run_rows(self, statement: Statement) -> SqlResult:
        if isinstance(statement.tree, _CHANGES):
            return SqlResult(table=run_dml(self.context, statement))
        return SqlResult(frame=run_query(self.context, statement))


_COMMANDS: Final[Mapping[type, Callable[[SqlContext, Any], pa.Table]]] = {
    tree.CreateDatabase: tables.create_database,
    tree.DropDatabase: tables.drop_database,
    tree.Use: use,
    tree.DropTable: tables.drop_table,
    tree.TruncateTable: tables.truncate_table,
    tree.AnalyzeTable: tables.analyze_table,
    tree.AnalyzeTables: tables.analyze_tables,
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
    tree.SetSetting: set_setting,
    tree.ResetSetting: reset_setting,
}
