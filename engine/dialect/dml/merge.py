"""MERGE INTO: one Spark query joins source and table at one snapshot, and one commit writes the result."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from engine.dialect.dml.assignment import default_value, stored
from engine.dialect.dml.merge_clauses import Clause, Match, MergeAction, MergeText, read_merge
from engine.dialect.dml.row_changes import Assignment, expression_sql, read_snapshot_id
from engine.dialect.dml.target import WriteTarget, find_target
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget, TargetUse
from engine.dialect.query.reads import StatementReads
from engine.dialect.query.references import StatementText
from engine.dialect.scope.context import SqlContext
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

_CLAUSE: Final = "_fluvial_clause"  # number of the clause that applies to a row
_SOURCE: Final = "_fluvial_source"  # null: no row of the source


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
    parts = read_merge(StatementText(statement), _alias_of(tree).lower(), target.names)
    try:
        target.check_changes_rows("MERGE", deletes=any(each.action is MergeAction.DELETE for each in parts.clauses))
    except InvalidInputError as error:
        raise statement.source.problem(str(error), 0, len(statement.text)) from error
    start: int = tree.this.meta["span"][0]
    rows = QueryTarget(start, TargetUse.ROWS)
    with target.turn(), BoundText.bind(context, statement, StatementReads(context), target=rows) as bound:
        changes = _Merge(statement, tree, target, bound, parts).changes()
        return target.append(changes, read_snapshot_id=read_snapshot_id(bound, start))


def _alias_of(tree: exp.Merge) -> str:
    alias: str = tree.this.alias or tree.this.name
    return alias


class _Merge:
    """One MERGE over bound tables."""

    def __init__(
        self, statement: Statement, tree: exp.Merge, target: WriteTarget, bound: BoundText, parts: MergeText
    ) -> None:
        self._statement = statement
        self._target = target
        self._bound = bound
        self._schema = target.schema
        self._alias = _alias_of(tree)
        self._source_alias = tree.args["using"].alias_or_name or "_fluvial_rows"
        self._is_named = bool(tree.args["using"].alias_or_name)
        self._parts = parts
        self._fields = self._schema.fields
        self._keys = self._schema.primary_keys
        self._fold = target.names.folded

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
        images = [self._images(number, clause, types[f"_r{number}"]) for number, clause in enumerate(clauses)]
        row = _first_of(images)
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
        old = [f"{quoted(self._alias)}.{quoted(field.name)}" for field in self._fields]
        results = [self._result(number, clause) for number, clause in enumerate(self._parts.clauses)]
        present = f"{quoted(self._alias)}.{quoted(self._keys[0])} IS NOT NULL"
        return f"SELECT {self._choice()}, {present}, {', '.join([*old, *results])} FROM {self._join()}"

    def _choice(self) -> str:
        """The clause that applies to a row: the first that matches."""
        has_source = f"{quoted(self._source_alias)}.{_SOURCE}"
        is_there = f"{quoted(self._alias)}.{quoted(self._keys[0])}"
        tests = {
            Match.MATCHED: f"{is_there} IS NOT NULL AND {has_source} IS NOT NULL",
            Match.BY_TARGET: f"{is_there} IS NULL",
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

    def _values(self, clause: Clause) -> list[tuple[DataField, str]]:
        """The columns that a clause assigns, with the text of each value."""
        if clause.assignments is None:
            missing = [field.name for field in self._fields if self._fold(field.name) not in self._source_columns]
            if missing:
                raise self._problem(
                    f"the source has no column for {clause.action.value} *: column={missing[0]}",
                    clause.start,
                    clause.stop,
                )
            return [(field, f"{quoted(self._source_alias)}.{quoted(field.name)}") for field in self._fields]
        found = []
        try:
            self._target.names.check_distinct([each.path[0] for each in clause.assignments], "the clause")
            for each in clause.assignments:
                found.append((self._field(each), expression_sql(self._bound, self._target, each)))
        except InvalidInputError as error:
            raise self._problem(str(error), clause.start, clause.stop) from error
        return found

    def _field(self, assignment: Assignment) -> DataField:
        if len(assignment.path) > 1:
            raise InvalidInputError(
                f"a field inside a column is not assigned: column={'.'.join(assignment.path)} fix=assign the column"
            )
        return self._target.field(assignment.path[0])

    def _join(self) -> str:
        matches = {clause.match for clause in self._parts.clauses}
        kind = {
            (False, False): "JOIN",
            (True, False): "LEFT JOIN",
            (False, True): "RIGHT JOIN",
            (True, True): "FULL JOIN",
        }[Match.BY_TARGET in matches, Match.BY_SOURCE in matches]
        source = f"(SELECT *, true AS {_SOURCE} FROM {self._part(self._parts.source)}) AS {quoted(self._source_alias)}"
        return f"{source} {kind} {self._part(self._parts.target)} ON ({self._part(self._parts.condition)})"

    @cached_property
    def _source_columns(self) -> frozenset[str]:
        found = self._bound.frame(f"SELECT * FROM {self._part(self._parts.source)}")
        return frozenset(self._fold(name) for name in found.columns)

    def _part(self, span: tuple[int, int]) -> str:
        return self._bound.spliced.part(*span)

    # ---- its rows

    def _images(self, number: int, clause: Clause, given: T.DataType) -> list[dict[str, Column]]:
        """The rows that a clause writes, with their kinds."""
        old = {field.name: self._old(field.name) for field in self._fields}
        if clause.action is MergeAction.DELETE:
            return [{**old, ROW_KIND_COLUMN: F.lit("-D")}]
        new: dict[str, Column] = {}
        for index, (field, _) in enumerate(self._values(clause)):
            data_type = given.fields[index].dataType
            try:
                new[field.name] = stored(F.col(f"_r{number}.c{index}"), data_type, field)
            except InvalidInputError as error:
                raise self._problem(str(error), clause.start, clause.stop) from error
        if clause.action is MergeAction.INSERT:
            return [{**self._completed(clause, new), ROW_KIND_COLUMN: F.lit("+I")}]
        for name in (*self._keys, *self._schema.partition_keys):
            if name in new:
                new[name] = _unchanged(old[name], new[name], name)
        updated = {**old, **new, ROW_KIND_COLUMN: F.lit("+U")}
        if self._target.table.options.log_takes_old_rows:
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
            F.lit(f"several rows of the source are for one row of the table: table={self._target.table.name} key="),
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
