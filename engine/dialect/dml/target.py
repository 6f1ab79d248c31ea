"""The table that a statement writes, with the options of this write, and the clauses that it may have."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import exp

from engine.dialect.dml.assignment import StoreAssignment
from engine.dialect.grammar.dialect import table_options
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.references import our_name
from engine.dialect.scope.context import SqlContext
from engine.read.batch_plan import BatchPlan
from engine.request.branch_choice import BRANCH_KEY, branch_named, of_session
from engine.request.changed_rows import check_changes_rows, deletes_positions
from engine.request.option_check import unknown_option
from engine.request.writer_options import BATCH_WRITE_KEYS, WriterOptions
from engine.runtime.spark_messages import fluvial_error, raised_by_expression
from engine.spark.write_options import DYNAMIC_KEY, PARTITION_KEY
from engine.system_tables.names import is_system_table
from engine.table import Table
from engine.types.column_names import CaseRule
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import fields_of_frame
from engine.types.text_length import TextLengthError
from engine.write.row_places import commit_deletes, places_of
from engine.write.schema_evolution import merge_rules
from engine.write.ticket_queue import turn_of_job
from filestore.commit.table_commit import CommitResult
from filestore.evolution.schema_change import apply_changes
from filestore.evolution.schema_merge import MERGE_KEY, merge_changes
from filestore.options.table_options import canonical_options
from filestore.schema.row_counts import seen_schema
from filestore.schema.table_schema import TableSchema
from filestore.schema.validation import check_writable
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError, MissingColumnError

_Done = TypeVar("_Done")

# ---- What a statement says: a clause of another dialect that sqlglot reads is refused, or it would be passed over


_PARTS: Final[Mapping[type[exp.Expr], tuple[str, ...]]] = {
    exp.Insert: ("this", "hint", "by_name", "partition", "overwrite", "expression", "source", "where", "with_"),
    exp.Delete: ("this", "where", "with_"),
    exp.Update: ("this", "expressions", "where", "with_"),
    exp.Merge: ("this", "using", "on", "whens", "with_"),
}
_OF_TABLE: Final = ("this", "db", "catalog", "alias", "version")
_OF_WHEN: Final = ("this", "expressions", "expression")  # what follows THEN
_WORDS: Final[Mapping[tuple[type[exp.Expr], str], str]] = {
    (exp.Insert, "exists"): "IF NOT EXISTS",
    (exp.Insert, "using"): "REPLACE USING",
    (exp.Insert, "stored"): "STORED BY",
    (exp.Insert, "conflict"): "ON CONFLICT",
    (exp.Insert, "alternative"): "OR",
    (exp.Delete, "tables"): "a table before FROM",
    (exp.Merge, "using_cond"): "USING",
    (exp.Table, "joins"): "JOIN",
    (exp.Table, "sample"): "TABLESAMPLE",
    (exp.Table, "pivots"): "PIVOT",
    (exp.TableAlias, "columns"): "columns behind AS",
}
_FIXES: Final[Mapping[type[exp.Expr], str]] = {
    exp.Insert: "INSERT OVERWRITE, INSERT INTO ... REPLACE WHERE, or MERGE",
    exp.Delete: "name the rows in WHERE, by IN or EXISTS where other tables have them, or write MERGE",
    exp.Update: "name the rows in WHERE, by IN or EXISTS where other tables have them, or write MERGE",
    exp.Merge: "ON and a condition, conditions behind WHEN ... AND, or a query as the source",
}


def _unknown_clause(change: exp.Expr) -> str | None:
    """The problem of an INSERT, DELETE, UPDATE or MERGE that has an unknown clause; None: all its clauses are known."""
    clause = next(_unknown_parts(change), None)
    if clause is None:
        return None
    name, fix = type(change).__name__.upper(), _FIXES[type(change)]
    return f"{name} with this clause is not known: clause='{clause}' fix='{fix}'"


def _unknown_parts(change: exp.Expr) -> Iterator[str]:
    yield from _others(change, _PARTS[type(change)])
    table = change.this.this if isinstance(change.this, exp.Schema) else change.this
    yield from _others(table, (*_OF_TABLE, "partition") if isinstance(change, exp.Insert) else _OF_TABLE)
    if isinstance(alias := table.args.get("alias"), exp.TableAlias):
        yield from _others(alias, ("this",))
    whens = change.args.get("whens")
    for when in whens.expressions if whens else ():
        if when.args.get("matched") and when.args.get("source"):
            yield "WHEN MATCHED BY SOURCE"
        action = when.args["then"]
        yield from _others(action, _OF_WHEN)
        for each in action.iter_expressions():
            if isinstance(each, exp.Star):
                yield from _others(each, ())


def _others(node: exp.Expr, known: tuple[str, ...]) -> Iterator[str]:
    for name, given in node.args.items():
        if given and name not in known:
            yield _WORDS.get((type(node), name), name.strip("_").upper())


# ---- The table that a statement writes, with the options of this write


RESULT_SCHEMA: Final = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
    ]
)
"""One row; null: not known, or nothing was ever committed."""

_OPTION_KEYS: Final = tuple(key for key in BATCH_WRITE_KEYS if key != PARTITION_KEY)
_INSERTED: Final = "rows_inserted"
_COUNTS: Final = {_INSERTED: "+I", "rows_updated": "+U", "rows_deleted": "-D"}


@dataclass(frozen=True)
class WriteTarget:
    """A table, and the options of one write to it."""

    table: Table
    options: WriterOptions  # see ``Table.append`` and ``Table.overwrite``
    assignment: StoreAssignment
    is_dynamic: bool | None = None  # whether the statement says which overwrite it is; None: the session does
    grown: TableSchema | None = None  # that the write publishes before its first row; None: the table's own

    @classmethod
    def of(cls, context: SqlContext, name: str, given: Mapping[str, str]) -> "WriteTarget":
        """Open a table for writing.

        Args:
            context: the session; its settings apply unless the statement overrides them.
            name: ``database.table`` or ``database.table$branch_b``.
            given: options of the statement.

        Raises:
            InvalidInputError: an unknown option, or a table that cannot be written.
        """
        WriterOptions.parse(given, _OPTION_KEYS)  # refuses what is wrong in the statement
        named = canonical_options(given)
        session = {key: value for key, value in canonical_options(context.settings).items() if key in _OPTION_KEYS}
        _, branch = branch_named(name, named)
        options = {**of_session(session, named=branch, reads=False), **named}
        table = context.catalog.table(name, branch=options.pop(BRANCH_KEY, None))
        check_writable(table.store.schema)
        is_dynamic = WriterOptions.parse(options, _OPTION_KEYS).dynamic_partition_overwrite
        options.pop(DYNAMIC_KEY, None)
        return cls(table, WriterOptions.parse(options, _OPTION_KEYS), StoreAssignment.of(context), is_dynamic)

    @property
    def names(self) -> CaseRule:
        """When two names of columns are one."""
        return self.assignment.names

    @property
    def schema(self) -> TableSchema:
        """The schema that the rows get."""
        return self.grown or self.table.schema

    def evolving(self) -> "WriteTarget":
        """The target of a statement WITH SCHEMA EVOLUTION, which is ``write.merge-schema`` for it alone."""
        return replace(self, options=WriterOptions({**self.options.texts_by_key(), MERGE_KEY: "true"}))

    def for_rows(self, names: Sequence[str], frame: T.StructType) -> "WriteTarget":
        """The target with the columns that a query fills, where ``write.merge-schema`` allows adding them.

        Nothing is published yet: the write does that, once the rows are computed.

        Args:
            names: columns to fill; missing ones are added.
            frame: the query's columns, in the same order.

        Raises:
            InvalidInputError: a column cannot be added.
        """
        rules = merge_rules(self.table.store, self.options)
        if rules is None or len(names) != len(frame.fields):
            return self
        own = {self.names.folded(field.name): field for field in self.schema.fields}
        given = []
        for name, column in zip(names, frame.fields, strict=True):
            known = own.get(self.names.folded(name))
            if known is None or isinstance(column.dataType, T.AtomicType):  # nested values follow the rules of INSERT
                given.append(T.StructField(name if known is None else known.name, column.dataType))
        fields = fields_of_frame(T.StructType(given), self.schema)
        own_schema = self.table.schema
        changes = merge_changes(own_schema, fields, replace(rules, fitting=lambda known, given: True))
        return replace(self, grown=seen_schema(apply_changes(self.table.store.schema, changes))) if changes else self

    def field(self, name: str) -> DataField:
        """A column by name, as the session compares names. Raises: InvalidInputError with a similar name."""
        found = self.names.found(name, self.schema.column_names)
        if found is None:
            raise MissingColumnError(str(unknown_option(name, self.schema.column_names, "column of the table")))
        return self.schema.field(found)

    def turn(self) -> AbstractContextManager[object]:
        """Around reading and writing: no other writer of the log commits between the two.

        Raises: ConflictError when entered: the others took longer than ``log.turn-timeout``.
        """
        return turn_of_job(self.table.store, self.options)

    @property
    def deletes_positions(self) -> bool:
        """Whether rows, which have no key, are deleted by their places."""
        return deletes_positions(self.table.files)

    def check_changes_rows(self, statement: str, *, deletes: bool) -> None:
        """Refuse row changes that the table does not support. Raises: InvalidInputError, with the reason."""
        check_changes_rows(self.table.files, statement, deletes=deletes)

    def append(self, frame: DataFrame, *, read_snapshot_id: int | None = None, are_constants: bool = False) -> pa.Table:
        """Write rows with their kinds, and return their counts; ``are_constants``: see ``Table.append``."""
        frame = self._computed(frame)
        has_kinds = ROW_KIND_COLUMN in frame.columns
        if not has_kinds and self.schema.primary_keys and self.table.options.log_takes_old_rows:
            frame = frame.withColumn(ROW_KIND_COLUMN, F.lit("+I"))  # what a statement inserts is new
        seen = Observation()
        # as texts: each part of an expression is a call of the JVM
        by_kind = {name: f"count_if({ROW_KIND_COLUMN} = '{kind}')" for name, kind in _COUNTS.items()}
        asked = by_kind if has_kinds else {_INSERTED: "count(1)"}
        counted = frame.observe(seen, *[F.expr(f"{count} AS {name}") for name, count in asked.items()])
        done = _through_spark(
            lambda: self.table.append(
                counted, self.options, read_snapshot_id=read_snapshot_id, are_constants=are_constants
            ),
            self.table.name,
        )
        return result_row(done, **(dict.fromkeys(_COUNTS, 0) | seen.get))

    def replace_rows(
        self, plan: BatchPlan, rows: DataFrame, new_rows: DataFrame | None, counted: str, *, adds: bool = False
    ) -> pa.Table:
        """Delete rows, add others, and return how many were deleted.

        Args:
            plan: the plan in which the rows were found.
            rows: the rows with their positions.
            new_rows: None: none.
            counted: name of the count.
            adds: whether the new rows are written also where none is deleted.
        """

        def write() -> CommitResult:
            deletes = places_of(rows)
            found.append(sum(len(each) for each in deletes.values()))
            spark = rows.sparkSession
            if adds and new_rows is not None and not deletes:
                snapshot_id = 0 if plan.snapshot is None else plan.snapshot.id
                return self.table.append(new_rows, self.options, read_snapshot_id=snapshot_id)
            return commit_deletes(self.table.files, plan, deletes, spark=spark, new_rows=new_rows, options=self.options)

        found: list[int] = []
        done = _through_spark(write, self.table.name)
        return result_row(done, **{counted: found[0]})

    def overwrite(
        self, frame: DataFrame, partition: Mapping[str, object] | None, *, read_snapshot_id: int | None = None
    ) -> pa.Table:
        """Replace rows by those of a frame; the number of replaced rows is unknown.

        Args:
            frame: the new rows.
            partition: see ``Table.overwrite``; None: the partitions that occur in the rows.
            read_snapshot_id: see ``Table.overwrite``.
        """
        frame = self._computed(frame)
        seen = Observation()
        counted = frame.observe(seen, F.count(F.lit(1)).alias("rows_inserted"))
        table = Table(self.table.files.with_options({DYNAMIC_KEY: "true"})) if partition is None else self.table
        done = _through_spark(
            lambda: table.overwrite(counted, partition, self.options, read_snapshot_id=read_snapshot_id),
            self.table.name,
        )
        return result_row(done, **seen.get)

    def _computed(self, frame: DataFrame) -> DataFrame:
        """A frame to write; before the table grows its rows are there, so that it does not for rows that fail."""
        check_bounded(frame)
        if self.grown is None:
            return frame
        return _through_spark(frame.localCheckpoint, self.table.name)

    def clear(self, partition: Mapping[str, object]) -> pa.Table:
        """Delete all rows of a partition; {} is the whole table."""
        nothing = self.schema.arrow_schema.empty_table()
        return result_row(self.table.overwrite(nothing, partition, self.options), rows_inserted=0)


def check_bounded(frame: DataFrame) -> None:
    """Refuse a streaming frame. Raises: InvalidInputError."""
    if frame.isStreaming:
        raise InvalidInputError("a stream is not written by a statement: fix=write it by foreachBatch(sink(table))")


def find_target(context: SqlContext, statement: Statement, node: exp.Expr) -> WriteTarget | None:
    """The table that a statement writes; None: not a Fluvial table.

    Raises:
        InvalidInputError: points at the name: an unknown table, a system table, or invalid write options.
    """
    table = node.this if isinstance(node, exp.Schema) else node
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    place = (table.parts[0].meta["start"], table.this.meta["end"] + 1)
    try:
        name = our_name(context, table)
        if name is None:
            return None
        problem = (
            f"system tables are read only: name={_written(table)}" if is_system_table(context.catalog, name) else ""
        )
        problem = "only the present can be written: fix=remove the version" if table.args.get("version") else problem
        problem = problem or _unknown_clause(statement.tree) or ""
        target = None if problem else WriteTarget.of(context, name, table_options(table))
    except InvalidInputError as error:
        raise statement.source.problem(str(error), *place) from error
    if problem:
        raise statement.source.problem(problem, *place)
    return target


def _written(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)


def result_row(done: CommitResult, **counts: int) -> pa.Table:
    """The result of a statement, as RESULT_SCHEMA."""
    row: dict[str, Any] = {"snapshot_id": None if done.snapshot is None else done.snapshot.id, **counts}
    return pa.Table.from_pylist([row], schema=RESULT_SCHEMA)


def _through_spark(write: Callable[[], _Done], name: str) -> _Done:
    try:
        return write()
    except PySparkException as error:
        if words := raised_by_expression(error):  # of Fluvial's or the user's
            raise TextLengthError.found(words) from error
        raise fluvial_error(error, f"write failed: table={name}") from error
