"""SELECT: the tables of Fluvial in a text become temporary views, and Spark runs the text.

Only the names of tables are replaced, at their places, so that whatever Spark can do works. The views live while Spark
resolves the text; the frame that it gives keeps the state that it read of each table.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import TokenType, exp

from engine.dialect.grammar.dialect import tokens_of
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.splice import Edit, Spliced, with_names
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.reads import ReadPlan, StatementReads, plan_read, version_options
from engine.dialect.query.references import Reference, StatementText, find_references
from engine.dialect.query.usage import UsedCondition, row_conditions, used_columns
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.kept_rows import kept_frame
from engine.read.batch_read import BatchRead
from engine.read.frames import table_frame
from engine.spark.write_options import WRITE_ONLY_KEYS
from engine.spark_internals.session import JvmError, arrow_frame, drop_view, has_view, put_view, sql_frame
from engine.system_tables.catalog_tables import Tables
from engine.system_tables.names import CATALOG_DATABASES, CHANGE_TABLES, ROW_TABLES
from engine.system_tables.read import SystemRead, open_system
from engine.system_tables.row_tables import ROW_KIND, open_row_table
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_arrow import to_spark_batch
from engine.types.spark_types import spark_schema
from filestore.options.parsing import not_valid
from filestore.options.rules import COMPUTED_PREFIX
from filestore.options.stored_expressions import check_expression
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import Predicate, and_all
from filestore.schema.table_schema import TableSchema
from lsm.errors import FluvialError, InvalidInputError, MissingColumnError

# ---- Computed columns: a table option ``computed-column.<n>`` = ``name AS expression`` adds a column to what SQL reads


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedField:
    """A column that no file holds."""

    key: str  # the option
    name: str
    expression: str  # of Spark, over the table's columns
    words: frozenset[str]  # of the expression, in lower case: the names of its columns are among them


def computed_columns(options: TableOptions) -> list[ComputedField]:
    """The computed columns that a table's options describe, by their numbers.

    Raises:
        InvalidInputError: a text that is not ``name AS expression``.
    """
    texts = {f"{COMPUTED_PREFIX}{rest}": text for rest, text in options.behind(COMPUTED_PREFIX).items()}
    return [_parsed(key, texts[key]) for key in sorted(texts, key=_number)]


def needed_names(names: Collection[str], columns: Sequence[ComputedField]) -> frozenset[str]:
    """Names in lower case, and those that the computed columns among them are made of."""
    needed = frozenset(names)
    for each in reversed(columns):  # each may use the ones before it
        if each.name.lower() in needed:
            needed |= each.words
    return needed


def with_computed(frame: DataFrame, columns: Sequence[ComputedField]) -> DataFrame:
    """The frame with these columns behind its own; each may use the ones before it.

    Raises: InvalidInputError: an expression calls what a table's files may not call, see ``check_expression``.
    """
    for each in columns:
        try:
            check_expression(each.expression)
        except ValueError as error:
            raise not_valid(each.key, each.expression, error) from error
        frame = frame.withColumn(each.name, F.expr(each.expression))
    return frame


def _number(key: str) -> tuple[int, str]:
    number = key.removeprefix(COMPUTED_PREFIX)
    return (int(number) if number.isdecimal() else -1, number)


def _parsed(key: str, text: str) -> ComputedField:
    tokens = tokens_of(SourceText.of(text))
    if len(tokens) < 3 or tokens[1].token_type is not TokenType.ALIAS:
        raise InvalidInputError(f"not a computed column: {key}={text} fix=write: name AS expression")
    rest = tokens[2:]
    return ComputedField(
        key=key,
        name=tokens[0].text,
        expression=text[rest[0].start : rest[-1].end + 1],
        words=frozenset(token.text.lower() for token in rest),
    )


# ---- SELECT: the tables of Fluvial in a text become temporary views, and Spark runs the text


_PREFIX: Final = f"fluvial_{uuid4().hex[:8]}_"
_numbers = count(1)


def run_query(context: SqlContext, statement: Statement) -> DataFrame:
    """The frame of a query; it is analysed and planned, and computed when it is asked for rows.

    Raises:
        InvalidInputError: points at the part of the text that cannot be.
    """
    reads = StatementReads(context)
    with BoundText.bind(context, statement, reads) as bound:
        try:
            return bound.frame()
        except MissingColumnError:
            with BoundText.bind(context, statement, reads, prunes=False) as whole:  # of which Spark names similar ones
                return whole.frame()


class TargetUse(Enum):
    """What is read of the table that a statement writes."""

    NOTHING = "nothing"
    ROWS = "rows"
    PLACED_ROWS = "rows and the places where they are"


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """The table that a statement writes; options behind its name are those of the write."""

    start: int  # of its name in the text
    use: TargetUse = TargetUse.NOTHING


class BoundText:
    """A text in which tables of Fluvial are temporary views of Spark, as long as the block lasts."""

    def __init__(
        self,
        spark: SparkSession,
        statement: Statement,
        spliced: Spliced,
        bindings: Sequence["_Binding"],
        views: ExitStack,
    ) -> None:
        """Made by ``bind``.

        Args:
            spark: the session that has the views.
            statement: what the user wrote.
            spliced: the text with names of views.
            bindings: of all tables.
            views: drops them when it is closed.
        """
        self._spark = spark
        self._statement = statement
        self._names = {each.view: each.written for each in bindings}
        self._views = views
        self.spliced = spliced
        self.plans: list[ReadPlan] = [each.plan for each in bindings if each.plan is not None]

    @classmethod
    def bind(
        cls,
        context: SqlContext,
        statement: Statement,
        reads: StatementReads,
        *,
        target: QueryTarget | None = None,
        replaced: str | None = None,
        prunes: bool = True,
        extra: Sequence[Edit] = (),
    ) -> "BoundText":
        """Read the tables that the text names, and make their views.

        Args:
            context: the session.
            statement: the text and its tree.
            reads: the states that the statement sees.
            target: the table that is written; None: the statement is a query.
            replaced: the table whose place the rows of a query take; None: there is none.
            prunes: whether only columns that the text uses are read.
            extra: other changes of the text.

        Raises:
            InvalidInputError: points at the table that does not exist, or at its options.
        """
        tree, text = statement.tree, StatementText(statement)
        assert isinstance(tree, exp.Expr)
        references = find_references(context, statement, tree, is_view=lambda name: has_view(context.spark, name))
        if target is not None:
            replaced = next((each.name for each in references if each.start == target.start), None)
            if target.use is TargetUse.NOTHING:
                references = [each for each in references if each.start != target.start]
        frames = _Frames.of(context, text, tree, references, reads, target=target, changed=replaced, prunes=prunes)
        with ExitStack() as views:
            bindings = [_bind(context, text, each, frames, views) for each in references]
            edits = [edit for each in bindings for edit in each.edits]
            spliced = Spliced.of(statement.text, [*edits, *_qualifier_edits(tree, references), *extra])
            return cls(context.spark, statement, spliced, bindings, views.pop_all())

    def __enter__(self) -> "BoundText":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._views.close()

    def frame(self, text: str | None = None) -> DataFrame:
        """What Spark makes of a text over the views; None is the statement itself.

        Raises:
            InvalidInputError: Spark does not understand it; points at the place.
        """
        try:
            return sql_frame(self._spark, self.spliced.text if text is None else text)
        except (AnalysisException, ParseException) as error:
            raise self.problem(error, is_whole=text is None) from error

    def restored(self, text: str) -> str:
        """A text of Spark's with the user's names of tables."""
        return with_names(text, self._names)

    def problem(self, error: PySparkException, *, is_whole: bool) -> FluvialError:
        """What Spark says, at its place in the user's text.

        Args:
            error: of Spark.
            is_whole: whether Spark was given the statement itself, so that offsets can be followed.
        """
        words = self.restored(str(error)).strip().partition("; line ")[0].partition("\n")[0].rstrip(";. ")
        start, stop = self._place(error, is_whole=is_whole)
        problem = self._statement.source.problem(words, start, stop)
        is_unknown = str(getattr(error, "getCondition", str)() or "").startswith("UNRESOLVED_COLUMN")
        return MissingColumnError(str(problem)) if is_unknown else problem

    def _place(self, error: PySparkException, *, is_whole: bool) -> tuple[int, int]:
        for each in error.getQueryContext() or ():
            if each.contextType().name != "SQL":
                continue  # it knows lines of Python, not of the text
            fragment = self.restored(each.fragment())
            if is_whole:
                start = self.spliced.place(each.startIndex())
                return start, max(self.spliced.place(each.stopIndex()) + 1, start + 1)
            start = self._statement.text.find(fragment)
            if fragment and start >= 0:
                return start, start + len(fragment)
        return 0, len(self._statement.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binding:
    """The view of one reference."""

    view: str
    written: str  # what the user wrote in its place
    edits: Sequence[Edit]
    plan: ReadPlan | None  # None: a system table, or kept rows


def _bind(
    context: SqlContext, text: StatementText, reference: Reference, frames: "_Frames", views: ExitStack
) -> _Binding:
    view = f"{_PREFIX}{next(_numbers)}"
    frame, plan = frames.frame(reference)
    put_view(context.spark, view, frame)
    views.callback(_drop_view, context.spark, view)
    edits = [Edit(reference.start, reference.stop, view)]
    if reference.alias is None and text.word(text.index_at(reference.start) - 1) != "TABLE":
        place = _behind_sample(text, reference)
        edits.append(Edit(place, place, f" AS {quoted(_alias(reference))}"))
    written = text.text[reference.node.parts[0].meta["start"] : reference.node.this.meta["end"] + 1]
    return _Binding(view=view, written=written, edits=edits, plan=plan)


def _drop_view(spark: SparkSession, view: str) -> None:
    with suppress(PySparkException, JvmError):  # a session that has ended has no views
        drop_view(spark, view)


def _behind_sample(text: StatementText, reference: Reference) -> int:
    """Where an alias goes: Spark wants it behind TABLESAMPLE."""
    index = text.index_at(reference.stop)
    if text.word(index) != "TABLESAMPLE":
        return reference.stop
    index = text.after_parens(index + 1)
    if text.word(index) == "REPEATABLE":
        index = text.after_parens(index + 1)
    return text.tokens[index - 1].end + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frames:
    """Makes the frame of each reference, with what the statement needs of it."""

    context: SqlContext
    text: StatementText
    used: Mapping[int, Collection[str]]  # columns by start of the reference; all of one that is missing
    reads: Mapping[int, BatchRead]  # by start of the reference; none of system tables
    kept: Mapping[int, DataFrame]  # by start of the reference; those whose rows Spark keeps
    placed: int | None  # start of the reference that gets the places of its rows

    @classmethod
    def of(
        cls,
        context: SqlContext,
        text: StatementText,
        tree: exp.Expr,
        references: Sequence[Reference],
        reads: StatementReads,
        *,
        target: QueryTarget | None,
        changed: str | None,
        prunes: bool,
    ) -> "_Frames":
        """Open the tables of a statement; of the one that it changes all rows are read, wherever it is named."""
        written = None if target is None else target.start
        prunes = prunes and not ("`" in text.text and _names_are_patterns(context.spark))
        return cls(
            context=context,
            text=text,
            used=used_columns(text, tree, references) if prunes else {},
            reads={
                each.start: reads.open_reference(
                    text,
                    each,
                    ignores=WRITE_ONLY_KEYS if each.start == written else (),
                    is_changed=each.name == changed,
                )
                for each in references
                if each.system is None
            },
            kept=_kept(context, references) if target is None and changed is None else {},
            placed=target.start if target is not None and target.use is TargetUse.PLACED_ROWS else None,
        )

    def frame(self, reference: Reference) -> tuple[DataFrame, ReadPlan | None]:
        """The frame of a reference, and the plan behind it; None of a system table and of kept rows."""
        if reference.system is not None:
            options = {**reference.options, **version_options(self.context, self.text, reference)}
            return self._system_frame(reference, reference.system, options), None
        if (kept := self.kept.get(reference.start)) is not None:
            return kept, None
        read = self.reads[reference.start]
        computed = computed_columns(read.table.options)
        names = self.used.get(reference.start)
        if names is not None:
            names = needed_names(names, computed)
        is_placed = reference.start == self.placed
        plan = plan_read(
            self.context, read, reference, names, self._conditions(reference, self._schemas()), with_places=is_placed
        )
        wanted = [each for each in computed if names is None or each.name.lower() in names]
        return with_computed(plan.frame, wanted), plan

    def _system_frame(self, reference: Reference, system: str, options: Mapping[str, str]) -> DataFrame:
        """The frame of a system table; tables of lineage may be long, so that only the wanted rows are asked for."""
        predicate = None
        if reference.name in CATALOG_DATABASES and not self._has_pipe:
            opened = self.context.catalog.system_table(f"{reference.name}.{system}", options)
            found = self._conditions(reference, {**self._schemas(), reference.start: opened.table_schema})
            predicate = and_all([each.predicate for each in found if each.predicate is not None])
        frame: DataFrame = system_frame(self.context.spark, self.context, reference.name, system, options, predicate)
        return frame

    def _conditions(self, reference: Reference, schemas: Mapping[int, TableSchema]) -> list[UsedCondition]:
        if self._has_pipe:
            return []
        return list(row_conditions(reference, schemas, setting=self._setting))

    def _setting(self, key: str) -> str:
        return str(self.context.spark.conf.get(key))

    def _schemas(self) -> dict[int, TableSchema]:
        return {start: each.table.schema for start, each in self.reads.items()}

    @property
    def _has_pipe(self) -> bool:
        return any(token.text == "|>" for token in self.text.tokens)


def _kept(context: SqlContext, references: Sequence[Reference]) -> Mapping[int, DataFrame]:
    """The frames of references to the newest state whose rows Spark keeps."""
    newest = [each for each in references if not (context.settings or each.system or each.options or each.version)]
    found = {each.start: kept_frame(context, each.name) for each in newest}
    return {start: frame for start, frame in found.items() if frame is not None}


def _names_are_patterns(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.parser.quotedRegexColumnNames", "false")) == "true"


def _alias(reference: Reference) -> str:
    return reference.node.name


def _qualifier_edits(tree: exp.Expr, references: Sequence[Reference]) -> list[Edit]:
    """``db.t.column`` becomes ``t.column``: a view has no database."""
    known = {
        tuple(part.name.lower() for part in each.node.parts[-count:]): each
        for each in references
        if each.alias is None
        for count in range(2, len(each.node.parts) + 1)
    }
    edits = {}
    for column in tree.find_all(exp.Column) if known else ():
        parts = column.parts
        for length in (3, 2):
            names = tuple(part.name.lower() for part in parts[:length])
            if len(parts) > length and names in known and "start" in parts[0].meta:
                edit = Edit(parts[0].meta["start"], parts[length - 1].meta["end"] + 1, quoted(_alias(known[names])))
                edits[edit.start] = edit
                break
    return list(edits.values())


# ---- System tables as Spark frames


def system_frame(
    spark: SparkSession,
    catalog: Any,
    table_name: str,
    system_name: str,
    options: Mapping[str, str] | None = None,
    filter: Predicate | None = None,
) -> DataFrame:
    """A system table as a frame.

    Args:
        spark: the session.
        catalog: an ``engine.Catalog``, or an object with one as ``catalog`` (the context of SQL statements).
        table_name: ``db.t`` or ``db.t$branch_b``; ``sys`` or ``paimon`` for the tables of the catalog.
        system_name: ``files``.
        options: see ``open_system``.
        filter: the statement's own filter; tables of lineage apply it.

    Raises:
        InvalidInputError: no such table, branch, system table or option; no such snapshot.
    """
    tables: Tables = getattr(catalog, "catalog", catalog)
    mark = "." if table_name in CATALOG_DATABASES else "$"
    return system_table_frame(spark, open_system(tables, f"{table_name}{mark}{system_name}", options), filter)


def system_table_frame(spark: SparkSession, read: SystemRead, filter: Predicate | None = None) -> DataFrame:
    """The frame of an opened system table: the table's own rows are read by tasks, all others immediately."""
    if read.name.table is None or read.name.system not in ROW_TABLES:
        rows = read.to_arrow(filter=filter if read.name.is_lineage else None)
        batches = [to_spark_batch(batch) for batch in rows.to_batches()]
        schema = spark_schema(read.table_schema.fields)
        if not batches:
            return spark.createDataFrame([], schema)
        return arrow_frame(spark, pa.Table.from_batches(batches), schema)
    opened = open_row_table(read.files, read.name.system, read.given, None)
    has_kinds = read.name.system in CHANGE_TABLES
    constants = {ROW_KIND_COLUMN: pa.scalar("+I")} if has_kinds else {}
    frame = table_frame(spark, opened.plan, constants=constants)
    if not has_kinds:
        return frame
    columns = [F.col(quoted(each)) for each in frame.columns if each != ROW_KIND_COLUMN]
    names = [each for each in frame.columns if each != ROW_KIND_COLUMN]
    if opened.is_packed:
        columns = [F.array(column).alias(name) for column, name in zip(columns, names, strict=True)]
    return frame.select(F.col(ROW_KIND_COLUMN).alias(ROW_KIND), *columns)
