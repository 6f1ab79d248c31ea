"""MERGE INTO: one Spark query joins source and table at one snapshot, and one commit writes the result."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from engine.dialect.dml.assignment import default_value
from engine.dialect.dml.merge_clauses import Clause, Match, MergeAction, MergeText, read_merge
from engine.dialect.dml.row_changes import (
    AssignedValue,
    Assignment,
    assigned_columns,
    expression_sql,
    read_snapshot_id,
)
from engine.dialect.dml.target import WriteTarget, find_target
from engine.dialect.grammar.dialect import evolves_schema
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget, TargetUse
from engine.dialect.query.reads import StatementReads
from engine.dialect.query.references import StatementText
from engine.dialect.scope.context import SqlContext
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_type, sql_type
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

_CLAUSE: Final = "_fluvial_clause"  # number of the clause that applies to a row
_SOURCE: Final = "_fluvial_source"  # null: no row of the source
_TARGET: Final = "_fluvial_target"  # null: no row of the table, which has no key


def run_merge(context: SqlContext, statement: Statement) -> pa.Table | None:
    """Change a table by the rows of a source; None: not a Fluvial table.

    Raises:
        InvalidInputError: points at the error, or several source rows match one row of the table; nothing is visible.
        ConflictError: other writers committed meanwhile; nothing is visible: see ``Table.append``.
    """
    tree = statement.tree
    assert isinstance(tree, exp.Merge)
    target = find_target(context, statement, tree.this)
    if target is None:
        return None
    parts = read_merge(StatementText(statement), tree.this, target.names)
    if target.schema.primary_keys or any(each.action is not MergeAction.INSERT for each in parts.clauses):
        try:
            target.check_changes_rows("MERGE", deletes=any(each.action is MergeAction.DELETE for each in parts.clauses))
        except InvalidInputError as error:
            raise statement.source.problem(str(error), 0, len(statement.text)) from error
    if evolves_schema(tree):
        target = target.evolving()
    start: int = tree.this.meta["span"][0]
    rows = QueryTarget(start, TargetUse.ROWS)
    with target.turn(), BoundText.bind(context, statement, StatementReads(context), target=rows) as bound:
        merge = _Merge(statement, tree, target, bound, parts)
        return merge.target.append(merge.changes(), read_snapshot_id=read_snapshot_id(bound, start))


class _Merge:
    """One MERGE over bound tables."""

    def __init__(
        self, statement: Statement, tree: exp.Merge, target: WriteTarget, bound: BoundText, parts: MergeText
    ) -> None:
        self._statement = statement
        self._bound = bound
        self._alias = tree.this.alias or tree.this.name
        self._source_alias = tree.args["using"].alias_or_name or "_fluvial_rows"
        self._parts = parts
        self._fold = target.names.folded
        self._evolves = evolves_schema(tree)
        self._stored = {field.name: field for field in target.schema.fields}
        self.target = self._grown(target) if self._evolves else target
        self._schema = self.target.schema
        self._fields = self._schema.fields
        self._keys = self._schema.primary_keys

    def _grown(self, target: WriteTarget) -> WriteTarget:
        """The target with the source's columns that the clauses assign."""
        wanted = {
            self._fold(each.path[0])
            for clause in self._parts.clauses
            for each in clause.assignments or ()
            if len(each.path) == 1
        }
        takes_all = any(clause.assignments is None for clause in self._parts.clauses)
        columns = [field for field in self._source.fields if takes_all or self._fold(field.name) in wanted]
        try:
            return target.for_rows([field.name for field in columns], T.StructType(columns))
        except InvalidInputError as error:
            raise self._problem(str(error), *self._parts.source) from error

    def changes(self) -> DataFrame:
        """The table's columns and the kind of each change."""
        clauses = self._parts.clauses
        joined = self._bound.frame(self._query())
        count = len(self._fields)
        names = [
            _CLAUSE,
            "_matched",
            *(f"_o{index}" for index in range(count)),
            *(f"_r{i}" for i in range(len(clauses))),
        ]
        types = {name: field.dataType for name, field in zip(names, joined.schema.fields, strict=True)}
        found = joined.toDF(*names)
        images = [self._images(found, number, clause, types[f"_r{number}"]) for number, clause in enumerate(clauses)]
        row = _first_of(images)
        if not self._keys:  # a row of the source is in the join once, as it matches none
            rows = found.filter(F.col(_CLAUSE).isNotNull()).select(row.alias("rows"))
            return rows.select(F.explode("rows").alias("row")).select("row.*")
        key = F.when(F.col("_matched"), F.struct(*[self._old(name).alias(name) for name in self._keys]))
        for number, clause in enumerate(clauses):
            if clause.action is MergeAction.INSERT:
                inserted = F.struct(*[images[number][0][name].alias(name) for name in self._keys])
                key = key.when(F.col(_CLAUSE) == number, inserted)
        rows = found.select(F.col(_CLAUSE), row.alias("rows"), key.alias("key")).filter(F.col("key").isNotNull())
        rows = self._each_once(rows)
        return rows.select(F.explode("rows").alias("row")).select("row.*")

    # ---- the query

    def _query(self) -> str:
        old = [self._old_sql(field) for field in self._fields]
        results = [self._result(number, clause) for number, clause in enumerate(self._parts.clauses)]
        columns = [self._choice(), f"{self._is_there} IS NOT NULL", *old, *results]
        return f"{self._part(self._parts.head)}SELECT {', '.join(columns)} FROM {self._join()}"

    def _old_sql(self, field: DataField) -> str:
        """A column of the table as it becomes; one that the statement adds is null."""
        known, kind = self._stored.get(field.name), sql_type(spark_type(field.type))
        if known is None:
            return f"CAST(NULL AS {kind})"
        column = f"{quoted(self._alias)}.{quoted(field.name)}"
        return column if known.type == field.type else f"CAST({column} AS {kind})"

    @property
    def _is_there(self) -> str:
        """Not null in a row of the table."""
        return f"{quoted(self._alias)}.{quoted(self._keys[0]) if self._keys else _TARGET}"

    def _choice(self) -> str:
        """The clause that applies to a row: the first that matches."""
        has_source = f"{quoted(self._source_alias)}.{_SOURCE}"
        tests = {
            Match.MATCHED: f"{self._is_there} IS NOT NULL AND {has_source} IS NOT NULL",
            Match.BY_TARGET: f"{self._is_there} IS NULL",
            Match.BY_SOURCE: f"{has_source} IS NULL",
        }
        cases = []
        for number, clause in enumerate(self._parts.clauses):
            extra = f" AND ({self._part(clause.condition)})" if clause.condition else ""
            cases.append(f"WHEN {tests[clause.match]}{extra} THEN {number}")
        return f"CASE {' '.join(cases)} END AS {_CLAUSE}"

    def _result(self, number: int, clause: Clause) -> str:
        """The new values of a clause, computed for its rows only."""
        values = [f"'c{index}', {text}" for index, (_, text) in enumerate(self._values(clause))]
        made = f"named_struct({', '.join(values)})" if values else "CAST(NULL AS INT)"
        return f"CASE WHEN {_CLAUSE} = {number} THEN {made} END"

    def _values(self, clause: Clause) -> list[tuple[tuple[str, ...], str]]:
        """The columns, or fields inside columns, that a clause assigns, with the text of each value."""
        if clause.assignments is None:
            given = {self._fold(name) for name in self._source.names}
            missing = [field.name for field in self._fields if self._fold(field.name) not in given]
            if missing and not self._evolves:
                raise self._problem(
                    f"the source has no column for {clause.action.value} *: column={missing[0]}",
                    clause.start,
                    clause.stop,
                )
            names = [field.name for field in self._fields if field.name not in missing]
            return [((name,), f"{quoted(self._source_alias)}.{quoted(name)}") for name in names]
        found = []
        try:
            self.target.names.check_distinct([".".join(each.path) for each in clause.assignments], "the clause")
            for each in clause.assignments:
                self._check(clause, each)
                found.append((each.path, expression_sql(self._bound, self.target, each)))
        except InvalidInputError as error:
            raise self._problem(str(error), clause.start, clause.stop) from error
        return found

    def _check(self, clause: Clause, assignment: Assignment) -> None:
        if clause.action is MergeAction.INSERT and len(assignment.path) > 1:
            raise InvalidInputError(
                f"a new row has whole columns: column={'.'.join(assignment.path)} fix=give the column a value"
            )
        self.target.field(assignment.path[0])

    def _join(self) -> str:
        matches = {clause.match for clause in self._parts.clauses}
        kind = {
            (False, False): "JOIN",
            (True, False): "LEFT JOIN",
            (False, True): "RIGHT JOIN",
            (True, True): "FULL JOIN",
        }[Match.BY_TARGET in matches, Match.BY_SOURCE in matches]
        source = f"(SELECT *, true AS {_SOURCE} FROM {self._part(self._parts.source)}) AS {quoted(self._source_alias)}"
        table = self._part(self._parts.target)
        if not self._keys:
            table = f"(SELECT *, true AS {_TARGET} FROM {table}) AS {quoted(self._alias)}"
        return f"{source} {kind} {table} ON ({self._part(self._parts.condition)})"

    @cached_property
    def _source(self) -> T.StructType:
        """The columns of the source."""
        head = self._part(self._parts.head)
        return self._bound.frame(f"{head}SELECT * FROM {self._part(self._parts.source)}").schema

    def _part(self, span: tuple[int, int]) -> str:
        return self._bound.spliced.part(*span)

    # ---- its rows

    def _images(self, found: DataFrame, number: int, clause: Clause, given: T.DataType) -> list[dict[str, Column]]:
        """The rows that a clause writes, with their kinds."""
        old = {field.name: self._old(field.name) for field in self._fields}
        if clause.action is MergeAction.DELETE:
            return [{**old, ROW_KIND_COLUMN: F.lit("-D")}]
        values = [
            AssignedValue(path, F.col(f"_r{number}.c{index}"), given.fields[index].dataType)
            for index, (path, _) in enumerate(self._values(clause))
        ]
        try:
            new = assigned_columns(self.target, found, old, values)
        except InvalidInputError as error:
            raise self._problem(str(error), clause.start, clause.stop) from error
        if clause.action is MergeAction.INSERT:
            return [{**self._completed(clause, new), ROW_KIND_COLUMN: F.lit("+I")}]
        for name in (*self._keys, *self._schema.partition_keys):
            if name in new:
                new[name] = _unchanged(old[name], new[name], name)
        updated = {**old, **new, ROW_KIND_COLUMN: F.lit("+U")}
        if self.target.table.options.log_takes_old_rows:
            return [{**old, ROW_KIND_COLUMN: F.lit("-U")}, updated]
        return [updated]

    def _completed(self, clause: Clause, new: dict[str, Column]) -> dict[str, Column]:
        try:
            return {each.name: new[each.name] if each.name in new else default_value(each) for each in self._fields}
        except InvalidInputError as error:
            raise self._problem(str(error), clause.start, clause.stop) from error

    def _old(self, name: str) -> Column:
        return F.col(f"_o{self._schema.column_names.places[name]}")

    def _each_once(self, rows: DataFrame) -> DataFrame:
        """Refuse two source rows for one row of the table, as Spark does; two deletes are allowed."""
        matched = [each for each in self._parts.clauses if each.match is Match.MATCHED]
        if all(each.action is MergeAction.DELETE and each.condition is None for each in matched) and len(
            matched
        ) == len(self._parts.clauses):
            return rows.dropDuplicates(["key"])
        problem = F.concat(
            F.lit(f"several rows of the source are for one row of the table: table={self.target.table.name} key="),
            F.to_json(F.col("key")),
            F.lit(" fix=make the source's rows unique"),
        )
        counted = rows.withColumn("_count", F.count(F.lit(1)).over(Window.partitionBy("key")))
        checked = F.when(F.col("_count") > 1, F.raise_error(problem).cast("int")).otherwise(F.col(_CLAUSE))
        return counted.withColumn(_CLAUSE, checked).filter(F.col(_CLAUSE).isNotNull())

    def _problem(self, problem: str, start: int, stop: int) -> InvalidInputError:
        return self._statement.source.problem(problem, start, stop)


def _first_of(images: Sequence[Sequence[dict[str, Column]]]) -> Column:
    """The rows of the clause that applies to a row, as an array; null when none applies."""
    names = list(images[0][0])
    whole: Column | None = None
    for number, rows in enumerate(images):
        array = F.array(*[F.struct(*[row[name].alias(name) for name in names]) for row in rows])
        test = F.col(_CLAUSE) == number
        whole = F.when(test, array) if whole is None else whole.when(test, array)
    assert whole is not None
    return whole


def _unchanged(old: Column, new: Column, name: str) -> Column:
    """The old value, which the new one must equal: the column is part of the key or the partition."""
    problem = F.concat(
        F.lit(f"a row keeps its key and partition: column={name} old="),
        old.cast("string"),
        F.lit(" new="),
        F.coalesce(new.cast("string"), F.lit("NULL")),
    )
    return F.when(old.eqNullSafe(new), old).otherwise(F.raise_error(problem))
