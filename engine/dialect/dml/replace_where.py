"""INSERT INTO ... REPLACE WHERE: in one commit the rows that meet a condition go, and rows that meet it come."""

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from engine.dialect.dml.row_changes import bind_changed, changed_plan, whole_partition
from engine.dialect.dml.target import WriteTarget
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText
from engine.dialect.query.reads import StatementReads
from engine.dialect.scope.context import SqlContext
from engine.spark.catalog.planned.replaced_rows import changed_rows
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.write.row_places import FILE_NAME, ROW_NUMBER
from lsm.errors import InvalidInputError

_WHAT = "INSERT with REPLACE WHERE"
_IS_MET = "_fluvial_met"
_OTHER = "_fluvial_other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRows:
    """The rows of a table that a statement replaces."""

    statement: Statement
    node: exp.Table  # the table
    condition: exp.Expr
    span: tuple[int, int]  # of the condition, offsets in the statement's text

    @property
    def alias(self) -> str:
        """The qualifier of the table's columns."""
        return self.node.name

    def write(self, context: SqlContext, target: WriteTarget, rows: DataFrame, reads: StatementReads) -> pa.Table:
        """Put rows in their place.

        Args:
            context: the session.
            target: the table.
            rows: its columns.
            reads: the states that the statement sees.

        Raises:
            InvalidInputError: a row does not meet the condition, or has the key of one that does not; or the table
                cannot change rows, and the condition is more than a partition. Nothing is visible.
            ConflictError: other writers committed meanwhile; nothing is visible.
        """
        if self.condition.find(exp.Query) is not None:
            raise self.problem("a condition of REPLACE WHERE has no query: fix='DELETE and INSERT, or MERGE'")
        if target.grown is not None:
            raise self.problem("rows are replaced in a table that has their columns: fix='ALTER TABLE ... ADD COLUMN'")
        is_of_keys = self._columns(target) <= {*target.schema.primary_keys}
        where = exp.Where(this=self.condition.copy()) if is_of_keys or not target.schema.primary_keys else None
        tree = exp.Delete(this=self.node.copy(), where=where)
        with bind_changed(context, replace(self.statement, tree=tree), tree, reads, target) as bound:
            partition = None if where is None else whole_partition(bound, tree, target.schema.partition_keys)
            if partition is not None:
                return target.overwrite(rows, partition)
            try:
                target.check_changes_rows(_WHAT, deletes=True)
            except InvalidInputError as error:
                raise self.problem(str(error)) from error
            return self._replace(bound, target, rows, is_of_keys=is_of_keys)

    def problem(self, words: str) -> InvalidInputError:
        """An error that points at the condition."""
        return self.statement.source.problem(words, *self.span)

    def _replace(self, bound: BoundText, target: WriteTarget, rows: DataFrame, *, is_of_keys: bool) -> pa.Table:
        start = self.node.meta["span"][0]
        plan = changed_plan(bound, start).plan
        test = f"coalesce({bound.spliced.part(*self.span)}, false)"
        table = bound.spliced.part(*self.node.meta["span"])  # with its name as the alias
        columns = ", ".join(f"{quoted(self.alias)}.{quoted(name)}" for name in target.schema.column_names)
        new = self._meeting(rows, test, target)
        if target.deletes_positions:
            places = ", ".join(f"{quoted(self.alias)}.{quoted(name)}" for name in (FILE_NAME, ROW_NUMBER))
            old = bound.frame(f"SELECT {places} FROM {table} WHERE {test}")
            return target.replace_rows(plan, old, new, "rows_deleted", adds=True)
        seen = bound.frame(f"SELECT {columns}, {test} AS {_IS_MET} FROM {table}")
        old = seen.filter(F.col(_IS_MET)).drop(_IS_MET)
        snapshot_id = 0 if plan.snapshot is None else plan.snapshot.id
        if not target.schema.primary_keys:
            gone = old.withColumn(ROW_KIND_COLUMN, F.lit("-D"))
            return target.append(
                gone.unionByName(new.withColumn(ROW_KIND_COLUMN, F.lit("+I"))), read_snapshot_id=snapshot_id
            )
        if not is_of_keys:
            new = self._beside(seen.filter(~F.col(_IS_MET)), new, target)
        return target.append(changed_rows(old, new, target.table), read_snapshot_id=snapshot_id)

    def _columns(self, target: WriteTarget) -> set[str]:
        """Columns of the table in the condition."""
        names = {column.parts[-1].name for column in self.condition.find_all(exp.Column)}
        names |= {part.name for column in self.condition.find_all(exp.Column) for part in column.parts}
        return {found for name in names if (found := target.names.found(name, target.schema.column_names))}

    def _meeting(self, rows: DataFrame, test: str, target: WriteTarget) -> DataFrame:
        """The rows, if each of them meets the condition."""
        try:
            return self._checked(rows.alias(self.alias), F.expr(test), "a row does not meet the condition", target)
        except AnalysisException as error:
            raise self.problem(str(error).partition("\n")[0]) from error

    def _beside(self, others: DataFrame, rows: DataFrame, target: WriteTarget) -> DataFrame:
        """The rows, if none of them has the key of a row that stays."""
        keys = list(target.schema.primary_keys)
        stays = others.select(*[F.col(quoted(key)) for key in keys], F.lit(True).alias(_OTHER))
        joined = rows.join(stays, keys, "left").select(*rows.columns, _OTHER)
        return self._checked(
            joined, F.col(_OTHER).isNull(), "a row that does not meet the condition has the key", target
        )

    def _checked(self, rows: DataFrame, test: Column, words: str, target: WriteTarget) -> DataFrame:
        names = target.schema.column_names
        first, *others = [F.col(quoted(name)) for name in names]
        condition = self.statement.text[slice(*self.span)]
        problem = F.concat(
            F.lit(f"{words}: table={target.table.name} condition='{condition}' row="),
            F.to_json(F.struct(*[F.col(quoted(name)) for name in names])),
            F.lit(" fix='write it by another statement'"),
        )
        kept = F.when(test, first).otherwise(F.raise_error(problem))
        return rows.select(kept.alias(names[0]), *others)
