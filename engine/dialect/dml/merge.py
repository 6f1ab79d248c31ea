"""MERGE INTO: one Spark query joins source and table at one snapshot, and one commit writes the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from engine.dialect.dml.assignment import default_value
from engine.dialect.dml.row_changes import (
    AssignedValue,
    Assignment,
    assigned_columns,
    expression_sql,
    read_assignments,
    read_snapshot_id,
)
from engine.dialect.dml.target import WriteTarget, find_target
from engine.dialect.grammar.dialect import evolves_schema
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget, TargetUse
from engine.dialect.query.reads import StatementReads
from engine.dialect.query.references import StatementText
from engine.dialect.scope.context import SqlContext
from engine.runtime.spark_messages import cause_in_spark
from engine.types.column_names import CaseRule
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_type, sql_type
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

# ---- The clauses of a MERGE, found among the tokens of its text


class Match(Enum):
    """The rows that a clause applies to."""

    MATCHED = "MATCHED"
    BY_TARGET = "NOT MATCHED"
    BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(Enum):
    """The action on them."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


_ACTIONS: Final = {
    Match.MATCHED: (MergeAction.UPDATE, MergeAction.DELETE),
    Match.BY_TARGET: (MergeAction.INSERT,),
    Match.BY_SOURCE: (MergeAction.UPDATE, MergeAction.DELETE),
}
_UNREACHED: Final = {
    Match.MATCHED: "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    Match.BY_TARGET: "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
    Match.BY_SOURCE: "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}
_NO_COLUMN: Final = "UNRESOLVED_COLUMN.WITH_SUGGESTION"


@dataclass(frozen=True)
class Clause:
    """One WHEN. Offsets are in the statement's text."""

    match: Match
    action: MergeAction
    condition: tuple[int, int] | None  # after AND
    assignments: tuple[Assignment, ...] | None  # None: ``*``; () for DELETE
    start: int
    stop: int


@dataclass(frozen=True)
class MergeText:
    """Offsets of the parts of a MERGE."""

    head: tuple[int, int]  # the WITH queries
    target: tuple[int, int]
    source: tuple[int, int]
    condition: tuple[int, int]
    clauses: tuple[Clause, ...]


def read_merge(text: StatementText, target: exp.Table, names: CaseRule) -> MergeText:
    """The parts of a MERGE.

    Args:
        text: the statement.
        target: the table that is changed.
        names: when two names of columns are one.

    Raises:
        InvalidInputError: points at the syntax error.
    """
    return _Reader(text, target, names).read()


class _Reader:
    def __init__(self, text: StatementText, target: exp.Table, names: CaseRule) -> None:
        self._text = text
        self._start = text.head("MERGE", target)
        self._alias = (target.alias or target.name).lower()
        self._names = names
        self._end = len(text.tokens)

    def read(self) -> MergeText:
        into = self._text.find("INTO", self._start)
        using = self._text.find("USING", into)
        on = self._text.find("ON", using)
        if on == self._end:
            raise self._problem("syntax error, expected ON and a condition", using, self._end)
        whens = [self._text.find("WHEN", on)]
        while whens[-1] < self._end:
            whens.append(self._text.find("WHEN", whens[-1] + 1))
        clauses = tuple(self._clause(start, stop) for start, stop in pairwise(whens))
        self._check_order(clauses)
        return MergeText(
            head=(0, self._text.start_of(self._start)),
            target=self._span(into + 1, using),
            source=self._span(using + 1, on),
            condition=self._span(on + 1, whens[0]),
            clauses=clauses,
        )

    def _check_order(self, clauses: Sequence[Clause]) -> None:
        for match, condition in _UNREACHED.items():
            of_match = [each for each in clauses if each.match is match]
            first = next((each for each in of_match[:-1] if each.condition is None), None)
            if first is not None:
                words = f"only the last WHEN {match.value} has no condition: fix='AND and a condition, or leave it out'"
                problem = self._text.statement.source.problem(words, first.start, first.stop)
                raise problem from cause_in_spark(condition)

    def _clause(self, start: int, stop: int) -> Clause:
        index = start + 1
        match = Match.MATCHED
        if self._text.word(index) == "NOT":
            match, index = Match.BY_TARGET, index + 1
        index += 1  # MATCHED
        if self._text.word(index) == "BY":
            match = Match.BY_SOURCE if self._text.word(index + 1) == "SOURCE" else match
            index += 2
        then = self._text.find("THEN", index)
        condition = self._span(index + 1, then) if self._text.word(index) == "AND" else None
        word = self._text.word(then + 1)
        if word not in [each.value for each in _ACTIONS[match]]:
            known = " or ".join(each.value for each in _ACTIONS[match])
            raise self._problem(f"WHEN {match.value} takes {known}", then + 1, stop)
        action = MergeAction(word)
        return Clause(match, action, condition, self._assignments(action, then + 2, stop), *self._span(start, stop))

    def _assignments(self, action: MergeAction, start: int, stop: int) -> tuple[Assignment, ...] | None:
        if action is MergeAction.DELETE:
            return ()
        if action is MergeAction.UPDATE and self._text.word(start) == "SET":
            start += 1
        if self._text.word(start) == "*":
            return None
        if action is MergeAction.UPDATE:
            return tuple(read_assignments(self._text, start, stop, self._alias, self._names))
        return self._inserted(start, stop)

    def _inserted(self, start: int, stop: int) -> tuple[Assignment, ...]:
        """``(columns) VALUES (expressions)`` as assignments."""
        behind = self._text.after_parens(start)
        if self._text.word(start) != "(" or self._text.word(behind) != "VALUES":
            raise self._problem("syntax error, expected INSERT * or INSERT (columns) VALUES (values)", start, stop)
        names = self._listed(start)
        values = self._listed(behind + 1)
        if len(names) != len(values):
            raise self._problem(
                f"as many values as columns are needed: columns={len(names)} values={len(values)}", start, stop
            )
        found = []
        for (first, last), (begin, end) in zip(names, values, strict=True):
            path = [self._text.tokens[index].text for index in range(first, last) if self._text.word(index) != "."]
            path = path[1:] if len(path) > 1 and path[0].lower() == self._alias else path
            found.append(Assignment(tuple(path), *self._span(begin, end), self._text.start_of(first)))
        return tuple(found)

    def _listed(self, start: int) -> list[tuple[int, int]]:
        """The items in brackets, as token ranges [first, end)."""
        stop = self._text.after_parens(start) - 1
        depth, items, first = 0, [], start + 1
        for index in range(start + 1, stop):
            word = self._text.tokens[index].text
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if word == "," and depth == 0:
                items.append((first, index))
                first = index + 1
        return [*items, (first, stop)]

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        return self._text.start_of(start), self._text.tokens[stop - 1].end + 1

    def _problem(self, problem: str, start: int, stop: int) -> InvalidInputError:
        return self._text.statement.source.problem(problem, *self._span(start, stop))


# ---- MERGE INTO: one Spark query joins source and table at one snapshot, and one commit writes the result


_CLAUSE: Final = "_fluvial_clause"  # number of the clause that applies to a row
_SOURCE: Final = "_fluvial_source"  # null: no row of the source
_THERE: Final = "_fluvial_there"  # whether there is a row of the table
_GIVEN: Final = "_fluvial_given"  # whether there is a row of the source
_ROW: Final = "_fluvial_row"  # of the table
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
        joined = self._joined()
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

    def _joined(self) -> DataFrame:
        """The clause of each row, and what each clause makes of it."""
        try:
            return self._bound.frame(self._query())
        except InvalidInputError:
            self._check_clauses()
            raise

    def _check_clauses(self) -> None:
        """Let Spark say what is wrong with a clause, of the columns that the user knows. Raises: InvalidInputError."""
        head, source, table = map(self._part, (self._parts.head, self._parts.source, self._parts.target))
        rows = {
            Match.MATCHED: f"{source} JOIN {table} ON ({self._part(self._parts.condition)})",
            Match.BY_TARGET: source,
            Match.BY_SOURCE: table,
        }
        asked = [(Match.MATCHED, ["*"])]
        for each in self._parts.clauses:
            values = [text for _, text in self._values(each)] if each.assignments else []
            asked.append((each.match, ["*", *values, *([f"({self._part(each.condition)})"] if each.condition else [])]))
        for match, columns in asked:
            self._bound.frame(f"{head}SELECT {', '.join(columns)} FROM {rows[match]}")

    def _query(self) -> str:
        """A clause sees what its rows have, as in Spark: both sides where they match, else the one that is there.

        So the rows that match are a join, and those of one side a query of the side's name around it.
        """
        source, table = quoted(self._source_alias), quoted(self._alias)
        is_there, is_given = f"{self._is_there} IS NOT NULL", f"{source}.{_SOURCE} IS NOT NULL"
        both, by_target, by_source = (
            self._chosen(Match.MATCHED, f"{is_there} AND {is_given}"),
            self._chosen(Match.BY_TARGET, f"NOT {_THERE}"),
            self._chosen(Match.BY_SOURCE, f"NOT {_GIVEN}"),
        )
        sides = {_THERE: is_there, _GIVEN: is_given, _ROW: f"struct({table}.*)", **both}
        query = f"SELECT {source}.*{_more(sides)} FROM {self._join()}"
        query = f"SELECT *{_more(by_target)} FROM ({query}) AS {source}"
        query = f"SELECT {_ROW}.*, {', '.join([_THERE, _GIVEN, *both, *by_target])} FROM ({query})"
        query = f"SELECT *{_more(by_source)} FROM ({query}) AS {table}"
        found = {**both, **by_target, **by_source}
        numbers = [name for name in found if name.startswith(_CLAUSE)]
        old = [self._old_sql(field) for field in self._fields]
        results = [_result_name(number) for number in range(len(self._parts.clauses))]
        columns = [f"coalesce({', '.join(numbers)})", _THERE, *old, *results]
        return f"{self._part(self._parts.head)}SELECT {', '.join(columns)} FROM ({query}) AS {table}"

    def _chosen(self, match: Match, test: str) -> dict[str, str]:
        """For the clauses of some rows: the number of the first that applies to a row, then the new values of each.

        Args:
            match: which rows.
            test: whether a row is one of them.
        """
        own = {number: clause for number, clause in enumerate(self._parts.clauses) if clause.match is match}
        if not own:
            return {}
        cases = []
        for number, clause in own.items():
            extra = f" AND ({self._part(clause.condition)})" if clause.condition else ""
            cases.append(f"WHEN {test}{extra} THEN {number}")
        chosen = f"{_CLAUSE}_{match.name.lower()}"
        results = {_result_name(number): self._result(chosen, number, clause) for number, clause in own.items()}
        return {chosen: f"CASE {' '.join(cases)} END", **results}

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

    def _result(self, chosen: str, number: int, clause: Clause) -> str:
        """The new values of a clause, computed for its rows only."""
        values = [f"'c{index}', {text}" for index, (_, text) in enumerate(self._values(clause))]
        made = f"named_struct({', '.join(values)})" if values else "CAST(NULL AS INT)"
        return f"CASE WHEN {chosen} = {number} THEN {made} END"

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
                ) from cause_in_spark(_NO_COLUMN)
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


def _more(columns: Mapping[str, str]) -> str:
    """Columns behind others in a SELECT, from expressions by name."""
    return "".join(f", {expression} AS {name}" for name, expression in columns.items())


def _result_name(number: int) -> str:
    """The column of the new values of a clause."""
    return f"_fluvial_r{number}"
