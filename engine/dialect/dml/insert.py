"""INSERT INTO and INSERT OVERWRITE."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from engine.dialect.dml.assignment import default_sql, default_value, widened_schema
from engine.dialect.dml.row_changes import bind_changed, changed_plan, read_snapshot_id, whole_partition
from engine.dialect.dml.target import WriteTarget, check_bounded, find_target
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import evolves_schema, parse_expression
from engine.dialect.grammar.splice import Edit
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText, QueryTarget
from engine.dialect.query.reads import StatementReads
from engine.dialect.query.references import StatementText, reads_nothing
from engine.dialect.scope.context import SqlContext
from engine.request.branch_choice import BRANCH_KEY
from engine.runtime.spark_messages import cause_in_spark
from engine.spark.catalog.planned.replaced_rows import changed_rows
from engine.spark.write_options import partition_value
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_type
from engine.write.repeating import StaleReadError
from engine.write.row_places import FILE_NAME, ROW_NUMBER
from filestore.layout.paths import MAIN_BRANCH
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError, MissingColumnError

_WHAT: Final = "INSERT with REPLACE WHERE"
_IS_MET: Final = "_fluvial_met"
_OTHER: Final = "_fluvial_other"
_ROW: Final = "_fluvial_row"
_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
_TOO_MANY: Final = "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"
_NOT_ENOUGH: Final = "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS"
_TWICE: Final = "COLUMN_ALREADY_EXISTS"
_AMBIGUOUS: Final = "INCOMPATIBLE_DATA_FOR_TABLE.AMBIGUOUS_COLUMN_NAME"
_EXTRA: Final = "INCOMPATIBLE_DATA_FOR_TABLE.EXTRA_COLUMNS"
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "(", "MAP", "REDUCE"})


def run_insert(context: SqlContext, statement: Statement) -> pa.Table | None:
    """Add or replace rows; None: not a Fluvial table.

    Raises:
        InvalidInputError: points at the error; nothing is visible.
    """
    tree = statement.tree
    assert isinstance(tree, exp.Insert)
    target = find_target(context, statement, tree.this)
    if target is None:
        return None
    if evolves_schema(tree):
        target = target.evolving()
    with nullcontext() if tree.args.get("overwrite") else target.turn():  # the query may read the table
        return _Insert(context, statement, tree, target).run()


def run_ctas(
    context: SqlContext,
    statement: Statement,
    name: str,
    reads: StatementReads | None = None,
    replaced: str | None = None,
) -> pa.Table:
    """Fill a table that was created for a query.

    Args:
        context: the session.
        statement: the query.
        name: ``database.table``; its columns are the query's, in order.
        reads: gets what the query reads; None: of no interest.
        replaced: the table whose place the new one will take; None: there is none.

    Returns:
        One row: see ``RESULT_SCHEMA``.
    """
    reads = reads or StatementReads(context)
    target = WriteTarget.of(context, name, {BRANCH_KEY: MAIN_BRANCH})  # it has no other branch yet
    with BoundText.bind(context, statement, reads, replaced=replaced) as bound:
        frame = bound.frame()
        if replaced is not None:
            reads.see(replaced, frame)
        rows = _shaped(target, frame, list(target.schema.column_names), {})
        return target.append(rows)


class _Insert:
    """One INSERT."""

    def __init__(self, context: SqlContext, statement: Statement, tree: exp.Insert, target: WriteTarget) -> None:
        self._context = context
        self._statement = statement
        self._text = StatementText(statement)
        self._tree = tree
        self._target = target
        self._node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this

    def run(self) -> pa.Table:
        static = self._partition()
        listed = self._listed()
        is_by_name = bool(self._tree.args.get("by_name"))
        reads = StatementReads(self._context)
        with self._bound(self._names(static, listed), reads) as bound:
            frame = bound.frame(self._query_text(bound))
            names = list(frame.columns) if is_by_name else self._names(static, listed)
            if evolves_schema(self._tree) and not is_by_name and listed is None:
                names += frame.columns[len(names) :]
            try:
                check_bounded(frame)
                self._target = self._target.for_rows(names, frame.schema)
                rows = _shaped(self._target, frame, names, static, by_name=is_by_name)
            except InvalidInputError as error:
                raise self._problem(str(error)) from error
            read_id = reads.own_snapshot_id(self._target.table.name)
            if not self._tree.args.get("overwrite") and not self._tree.args.get("where"):
                return self._target.append(rows, read_snapshot_id=read_id, are_constants=reads_nothing(self._tree))
            if ROW_KIND_COLUMN in rows.columns:
                raise self._problem(f"an overwrite has no kinds of rows: column={ROW_KIND_COLUMN}")
            if self._tree.args.get("where"):
                return self._replaced(rows, reads)
            partition = None if self._is_dynamic(static) else static
            return self._target.overwrite(rows, partition, read_snapshot_id=read_id)

    def _is_dynamic(self, static: Mapping[str, object]) -> bool:
        """Whether only partitions that occur in the rows are replaced.

        The statement says it, or a session its setting. Where neither does, Spark's own SQL does as for its tables, and
        other doors as the table says.
        """
        if len(static) == len(self._target.schema.partition_keys):
            return False
        if self._target.is_dynamic is not None:
            return self._target.is_dynamic
        mode = self._context.spark.conf.get(_OVERWRITE_MODE, None)
        if mode is None and not self._context.is_sparks_own:
            return not static and bool(self._target.table.store.options.dynamic_partition_overwrite)
        return str(mode).upper() == "DYNAMIC"

    def _replaced(self, rows: DataFrame, reads: StatementReads) -> pa.Table:
        """Write rows in the place of those that meet the condition."""
        start = self._condition_index() + 2
        span = self._text.start_of(start), self._text.tokens[self._after_expression(start) - 1].end + 1
        replaced = ReplacedRows(
            statement=self._statement, node=self._node, condition=self._tree.args["where"], span=span
        )
        return replaced.write(self._context, self._target, rows, reads)

    def _condition_index(self) -> int:
        """Index of REPLACE, before WHERE."""
        return self._text.find("REPLACE", self._text.index_at(self._node.meta["span"][1]))

    def _after_expression(self, index: int) -> int:
        """Index of the token behind the expression that begins at one."""
        cursor = Cursor(self._statement.source, self._text.tokens)
        cursor.index = index
        parse_expression(cursor)
        return cursor.index

    def _problem(self, problem: str) -> InvalidInputError:
        start, stop = self._node.parts[0].meta["start"], self._node.this.meta["end"] + 1
        return self._statement.source.problem(problem, start, stop)

    def _partition(self) -> dict[str, object]:
        """The values in PARTITION."""
        clause = self._node.args.get("partition") or self._tree.args.get("partition")
        found: dict[str, object] = {}
        keys = self._target.schema.partition_keys
        for each in clause.expressions if isinstance(clause, exp.Partition) else ():
            is_static = isinstance(each, exp.EQ)
            name = (each.this if is_static else each).name
            key = self._target.names.found(name, keys)
            if key is None:
                raise self._problem(f"not a partition column: column={name} partition_columns={list(keys)}")
            if is_static:
                found[key] = self._static_value(key, each.expression)
        return found

    def _static_value(self, key: str, node: exp.Expr) -> object:
        sign = "-" if isinstance(node, exp.Neg) else ""
        inner = node.this if isinstance(node, exp.Neg | exp.Cast) else node
        if isinstance(inner, exp.Null):
            return None
        if not isinstance(inner, exp.Literal | exp.Boolean):
            raise self._problem(f"a partition's value is a literal: column={key} value={node.sql(dialect='spark')}")
        text = str(inner.this).lower() if isinstance(inner, exp.Boolean) else str(inner.this)
        try:
            return partition_value(self._target.table.files, key, sign + text)
        except InvalidInputError as error:
            raise self._problem(str(error)) from error

    def _listed(self) -> list[str] | None:
        """The column list; None without one."""
        if not isinstance(self._tree.this, exp.Schema):
            return None
        return [each.name for each in self._tree.this.expressions]

    def _names(self, static: Mapping[str, object], listed: Sequence[str] | None) -> list[str]:
        """The target columns of the query's columns, in order."""
        if listed is not None:
            return list(listed)
        return [name for name in self._target.schema.column_names if name not in static]

    def _bound(self, names: Sequence[str], reads: StatementReads) -> BoundText:
        start = self._node.meta["span"][0]
        edits = list(self._default_edits(names))
        return BoundText.bind(self._context, self._statement, reads, target=QueryTarget(start), extra=edits)

    def _query_text(self, bound: BoundText) -> str:
        """The query, with its WITH clause."""
        head = bound.spliced.part(0, self._text.start_of(self._text.head("INSERT", self._node)))
        return head + bound.spliced.part(self._text.start_of(self._query_index()), len(self._statement.text))

    def _query_index(self) -> int:
        """Index of the query's first token."""
        text = self._text
        index = text.index_at(self._node.meta["span"][1])
        while index < len(text.tokens):
            word = text.word(index)
            if word == "PARTITION":
                index = text.after_parens(index + 1)
            elif word == "BY" and text.word(index + 1) == "NAME":
                index += 2
            elif word == "REPLACE" and text.word(index + 1) == "WHERE":
                index = self._after_expression(index + 2)
            elif word == "(" and text.word(index + 1) not in _QUERY_WORDS:
                index = text.after_parens(index)
            else:
                break
        return index

    def _default_edits(self, names: Sequence[str]) -> Iterator[Edit]:
        """DEFAULT in VALUES, which Spark supports for its own tables only."""
        if not isinstance(self._tree.expression, exp.Values):
            return
        text, depth, column = self._text, 0, 0
        for index in range(self._query_index(), len(text.tokens)):
            word = text.word(index)
            depth += (word == "(") - (word == ")")
            column = 0 if word == "(" and depth == 1 else column + (word == "," and depth == 1)
            stands_alone = text.word(index - 1) in ("(", ",") and text.word(index + 1) in (")", ",")
            if word == "DEFAULT" and depth == 1 and stands_alone and column < len(names):
                token = text.tokens[index]
                yield Edit(token.start, token.end + 1, default_sql(self._target.field(names[column])))


def _shaped(
    target: WriteTarget, frame: DataFrame, names: Sequence[str], static: Mapping[str, object], *, by_name: bool = False
) -> DataFrame:
    """The table's columns from a query's; ``names`` are their target columns, in order.

    ``by_name``: fields inside of columns are found by their names too.
    """
    if len(names) != len(frame.columns):
        raise InvalidInputError(
            f"the query has not as many columns as are filled: columns={list(names)} given={frame.columns}"
        ) from cause_in_spark(_TOO_MANY if len(frame.columns) > len(names) else _NOT_ENOUGH)
    try:
        target.names.check_distinct(names, "the columns to fill")
    except InvalidInputError as error:
        raise error from cause_in_spark(_AMBIGUOUS if by_name else _TWICE)
    schema = target.schema
    kind = [name for name in names if name.lower() == ROW_KIND_COLUMN and ROW_KIND_COLUMN not in schema.column_names]
    fields = _filled(target, names, kind, by_name=by_name)
    both = [name for name in fields if name in static]
    if both:
        raise InvalidInputError(f"a column has its value from PARTITION already: column={both[0]} fix=leave it out")
    given = [field.dataType for field in frame.schema.fields]
    if (
        list(fields) == list(schema.column_names)
        and not kind
        and all(map(target.assignment.is_widened, given, schema.fields))
    ):
        return frame.toDF(*fields).to(widened_schema(schema.fields))  # each column of PySpark's is ten calls of the JVM
    plain = frame.toDF(*[f"_{index}" for index in range(len(given))])

    def column(field: DataField) -> Column:
        if field.name in static:
            return _literal(static[field.name], field)
        if field.name not in fields:
            return default_value(field)
        index = fields[field.name]
        return target.assignment.stored(F.col(f"_{index}"), given[index], field, by_name=by_name)

    kinds = [F.col(f"_{names.index(name)}").alias(ROW_KIND_COLUMN) for name in kind]
    return plain.select(*[column(field) for field in schema.fields], *kinds)


def _filled(target: WriteTarget, names: Sequence[str], kind: Sequence[str], *, by_name: bool) -> dict[str, int]:
    """By column of the table, the place of its values among the query's columns."""
    try:
        return {target.field(name).name: index for index, name in enumerate(names) if name not in kind}
    except MissingColumnError as error:
        if not by_name:
            raise
        is_wider = len(names) - len(kind) > len(target.schema.column_names)
        raise InvalidInputError(str(error)) from cause_in_spark(_TOO_MANY if is_wider else _EXTRA)


def _literal(value: object, field: DataField) -> Column:
    """A constant column with the type and name of a table's column."""
    return F.lit(value).cast(spark_type(field.type)).alias(field.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRows:
    """The rows of a table that REPLACE WHERE replaces: in one commit those that meet it go, and others that do come."""

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
        read_id = reads.own_snapshot_id(target.table.name)  # of the query; the condition has a read of its own
        with bind_changed(context, replace(self.statement, tree=tree), tree, reads, target) as bound:
            partition = None if where is None else whole_partition(bound, tree, target.schema.partition_keys)
            if partition is not None:
                return target.overwrite(rows, partition, read_snapshot_id=read_id)
            if read_id not in (None, read_snapshot_id(bound, self.node.meta["span"][0])):
                raise StaleReadError(f"the table changed between two reads of a statement: table={target.table.name}")
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
        """The rows; one that does not meet the test is an error when it is computed.

        The test depends on a random number, or Spark would derive conditions of other tables from it by the keys of a
        join: of rows that are constants also those that the query leaves out.
        """
        names = target.schema.column_names
        condition = self.statement.text[slice(*self.span)]
        problem = F.concat(
            F.lit(f"{words}: table={target.table.name} condition='{condition}' row="),
            F.to_json(F.struct(*[F.col(quoted(name)) for name in names])),
            F.lit(" fix='write it by another statement'"),
        )
        row = F.struct(*[F.col(quoted(name)).alias(name) for name in names])
        kept = F.when(test & (F.rand() < 2), row).otherwise(F.raise_error(problem))
        return rows.select(kept.alias(_ROW)).select(f"{_ROW}.*")
