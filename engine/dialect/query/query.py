"""SELECT: the tables of Fluvial in a text become temporary views, and Spark runs the text.

Only the names of tables are replaced, at their places, so that whatever Spark can do works. The views live while Spark
resolves the text; the frame that it gives keeps what it read of each table for ever.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from engine.dialect.grammar.splice import Edit, Spliced, with_names
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.computed import computed_columns, needed_names, with_computed
from engine.dialect.query.reads import ReadPlan, StatementReads, plan_read, version_options
from engine.dialect.query.references import Reference, StatementText, find_references
from engine.dialect.query.usage import row_conditions, used_columns
from engine.dialect.scope.context import SqlContext
from engine.spark.write_options import WRITE_ONLY_KEYS
from engine.system_tables.frames import system_frame
from engine.system_tables.names import CATALOG_DATABASES
from engine.types.sql_types import quoted
from filestore.predicate.predicate import and_all
from filestore.schema.table_schema import TableSchema
from lsm.errors import FluvialError, InvalidInputError

_PREFIX: Final = f"fluvial_{uuid4().hex[:8]}_"
_numbers = count(1)


def run_query(context: SqlContext, statement: Statement) -> DataFrame:
    """The frame of a query; it is analysed and planned, and computed when it is asked for rows.

    Args:
        context: the session.
        statement: a query.

    Raises:
        InvalidInputError: points at the part of the text that cannot be.
    """
    reads = StatementReads(context)
    with BoundText(context, statement, reads) as bound:
        try:
            return bound.frame()
        except UnknownColumnError:
            with BoundText(context, statement, reads, prunes=False) as whole:  # Spark then names all columns there are
                return whole.frame()


class UnknownColumnError(InvalidInputError):
    """Spark does not know a column; it may have been shown too few to name similar ones."""


class BoundText:
    """A text whose tables of Fluvial are temporary views of Spark, as long as the block lasts."""

    def __init__(
        self,
        context: SqlContext,
        statement: Statement,
        reads: StatementReads,
        *,
        tree: exp.Expr | None = None,
        except_for: Collection[int] = (),
        prunes: bool = True,
        target: int = -1,
        with_places: bool = False,
        extra: Sequence[Edit] = (),
    ) -> None:
        """Read what the text names.

        Args:
            context: the session.
            statement: the text and its tree.
            reads: the states that the statement sees.
            tree: a part of the statement's tree; None is all of it.
            except_for: starts of tables that are not read.
            prunes: whether only columns that the text uses are read.
            target: start of the table that is written, whose options are those of the write.
            with_places: the rows of that table also tell where they are.
            extra: other changes of the text.

        Raises:
            InvalidInputError: points at the table that is not there, or at its options.
        """
        self._context = context
        self._statement = statement
        self._text = StatementText(statement)
        part = statement.tree if tree is None else tree
        assert isinstance(part, exp.Expr)
        spark = context.spark
        references = find_references(context, statement, part, is_view=lambda name: is_temporary_view(spark, name))
        references = [each for each in references if each.start not in except_for]
        self.names: dict[str, str] = {}  # of the views: what the user wrote
        self.plans: list[ReadPlan] = []
        placed = target if with_places else -1
        frames = _Frames(context, self._text, part, references, reads, prunes=prunes, target=target, placed=placed)
        try:
            edits = [edit for each in references for edit in self._bind(each, frames)]
        except BaseException:
            self.drop()
            raise
        self.plans = frames.plans
        self.spliced = Spliced.of(statement.text, [*edits, *_qualifier_edits(part, references), *extra])

    def __enter__(self) -> "BoundText":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def frame(self, text: str | None = None) -> DataFrame:
        """What Spark makes of a text over the views; None is the statement itself.

        Raises:
            InvalidInputError: Spark does not understand it; points at the place.
        """
        try:
            return self._context.spark.sql(self.spliced.text if text is None else text)
        except (AnalysisException, ParseException) as error:
            raise self.problem(error, is_whole=text is None) from error

    def restored(self, text: str) -> str:
        """A text of Spark's with the user's names of tables."""
        return with_names(text, self.names)

    def drop(self) -> None:
        """Let go of the views."""
        for name in self.names:
            with suppress(PySparkException):
                self._context.spark.catalog.dropTempView(name)

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
        return UnknownColumnError(str(problem)) if is_unknown else problem

    def _place(self, error: PySparkException, *, is_whole: bool) -> tuple[int, int]:
        whole = (0, len(self._statement.text))
        contexts: list[Any] = []
        with suppress(Exception):  # contexts are a help, and not every kind of error has them
            contexts = list(error.getQueryContext())
        for each in contexts:
            fragment = self.restored(each.fragment())
            if is_whole:
                start = self.spliced.place(each.startIndex())
                return start, max(self.spliced.place(each.stopIndex()) + 1, start + 1)
            start = self._statement.text.find(fragment)
            if fragment and start >= 0:
                return start, start + len(fragment)
        return whole

    def _bind(self, reference: Reference, frames: "_Frames") -> list[Edit]:
        view = f"{_PREFIX}{next(_numbers)}"
        frame = frames.of(reference)
        written = self._statement.text[reference.node.parts[0].meta["start"] : reference.node.this.meta["end"] + 1]
        self.names[view] = written
        frame.createOrReplaceTempView(view)
        edits = [Edit(reference.start, reference.stop, view)]
        if reference.alias is None and self._text.word(self._text.index_at(reference.start) - 1) != "TABLE":
            place = self._behind_sample(reference)
            edits.append(Edit(place, place, f" AS {quoted(_alias(reference))}"))
        return edits

    def _behind_sample(self, reference: Reference) -> int:
        """Where an alias goes: Spark wants it behind TABLESAMPLE."""
        text = self._text
        index = text.index_at(reference.stop)
        if text.word(index) != "TABLESAMPLE":
            return reference.stop
        index = text.after_parens(index + 1)
        if text.word(index) == "REPEATABLE":
            index = text.after_parens(index + 1)
        return text.tokens[index - 1].end + 1


class _Frames:
    """Makes the frame of each reference, with what the statement needs of it."""

    def __init__(
        self,
        context: SqlContext,
        text: StatementText,
        tree: exp.Expr,
        references: Sequence[Reference],
        reads: StatementReads,
        *,
        prunes: bool,
        target: int,
        placed: int,
    ) -> None:
        self._context = context
        self._text = text
        prunes = prunes and not _names_are_patterns(context.spark)
        self._used = used_columns(text, tree, references) if prunes else {}
        self._reads = {
            each.start: reads.open_reference(text, each, ignores=WRITE_ONLY_KEYS if each.start == target else ())
            for each in references
            if each.system is None
        }
        self._time_zone = str(context.spark.conf.get("spark.sql.session.timeZone"))
        self._has_pipe = any(token.text == "|>" for token in text.tokens)
        self._placed = placed
        self.plans: list[ReadPlan] = []

    def of(self, reference: Reference) -> DataFrame:
        """The frame of a reference."""
        if reference.system is not None:
            options = {**reference.options, **version_options(self._context, self._text, reference)}
            return self._system_frame(reference, reference.system, options)
        read = self._reads[reference.start]
        schemas: dict[int, TableSchema] = {start: each.table.schema for start, each in self._reads.items()}
        conditions = [] if self._has_pipe else list(row_conditions(reference, schemas, time_zone=self._time_zone))
        computed = computed_columns(read.table.options.raw)
        names = self._used.get(reference.start)
        if names is not None:
            names = needed_names(names, computed)
        is_placed = reference.start == self._placed
        plan = plan_read(self._context, read, reference, names, conditions, with_places=is_placed)
        self.plans.append(plan)
        return with_computed(plan.frame, [each for each in computed if names is None or each.name.lower() in names])

    def _system_frame(self, reference: Reference, system: str, options: Mapping[str, str]) -> DataFrame:
        """The frame of a system table; tables of lineage may be long, and are asked for the wanted rows only."""
        predicate = None
        if reference.name in CATALOG_DATABASES and not self._has_pipe:
            opened = self._context.catalog.system_table(f"{reference.name}.{system}", options)
            schemas = {start: each.table.schema for start, each in self._reads.items()}
            schemas[reference.start] = opened.table_schema
            found = row_conditions(reference, schemas, time_zone=self._time_zone)
            predicate = and_all([each.predicate for each in found if each.predicate is not None])
        frame: DataFrame = system_frame(self._context.spark, self._context, reference.name, system, options, predicate)
        return frame


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether the session has a temporary view of this name; names are told apart without case."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is not None:
        return bool(session.sessionState().catalog().getTempView(name).isDefined())
    return any(each.isTemporary and each.name.lower() == name.lower() for each in spark.catalog.listTables())


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
