"""What one statement reads: each table at one state, however often it is named, and the options that choose it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from sqlglot import exp

from engine.dialect.query.references import Reference, StatementText
from engine.dialect.query.usage import UsedCondition
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.frame_cache import frame_key
from engine.read.batch_plan import BatchPlan
from engine.read.batch_read import BatchRead, log_served, open_read
from engine.read.frames import divided_plan, table_frame
from engine.replacement import OldState
from engine.request.branch_choice import SCAN_BRANCH_KEY, branch_named, of_session
from engine.request.option_check import check_belongs
from engine.request.read_keys import BATCH_KEYS, OFFSETS, PLACES, rows_to_change
from engine.write.own_rows import read_by_frame
from engine.write.row_places import placed_frame
from filestore.options.table_options import canonical_options
from filestore.predicate.predicate import and_all, columns_of
from filestore.table import FileTable
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What is read for one reference."""

    reference: Reference
    read: BatchRead
    plan: BatchPlan
    frame: DataFrame  # the columns, and constants that were asked for
    columns: tuple[str, ...]  # of the table, in its order
    conditions: tuple[UsedCondition, ...]


class StatementReads:
    """The states that one statement sees."""

    def __init__(self, context: SqlContext) -> None:
        """None are open yet; the context is that of the session."""
        self._context = context
        self._reads: dict[tuple[str, tuple[tuple[str, str], ...], bool], BatchRead] = {}
        self._seen: dict[str, OldState] = {}  # by frames

    def open(self, name: str, options: Mapping[str, str], *, is_target: bool = False) -> BatchRead:
        """The state of a table that some options mean; the same one each time.

        Only rows of a table's own branch can be changed: a table that the statement writes does not fall back.

        Raises:
            InvalidInputError: an unknown option, or no such state.
        """
        key = (name, tuple(sorted(options.items())), is_target)
        if key not in self._reads:
            self._reads[key] = open_read(self._table(name), options, falls_back=not is_target)
            log_served(self._reads[key])
        return self._reads[key]

    def see(self, name: str, frame: DataFrame) -> None:
        """Note what a frame reads of a table by views, which the text does not say.

        Raises: InvalidInputError: see ``own_rows.own_snapshot_id``.
        """
        store = self._table(name).store
        read_id = read_by_frame(store, frame)
        if read_id is not None:
            self._seen[name] = OldState(table_id=store.table_id(), snapshot_id=read_id)

    def own_state(self, name: str) -> OldState | None:
        """The newest state of the written table that the statement reads; None: it reads none, or a fixed one.

        Rows that were computed from it are not written over what others have committed since.
        """
        read = next((read for read in self._reads.values() if read.is_newest and read.table.name == name), None)
        seen = self._seen.get(name)
        if read is None:
            return seen
        own_id = 0 if read.snapshot is None else read.snapshot.id
        own = OldState(table_id=read.table.store.table_id(), snapshot_id=own_id)
        return own if seen is None else min(own, seen, key=lambda state: state.snapshot_id)

    def own_snapshot_id(self, name: str) -> int | None:
        """The snapshot of that state; 0: the table was empty."""
        state = self.own_state(name)
        return None if state is None else state.snapshot_id

    def open_reference(
        self, text: StatementText, reference: Reference, *, ignores: Collection[str] = (), is_changed: bool = False
    ) -> BatchRead:
        """The state that a reference means: its version, else its options, else those of the session.

        Args:
            text: of the statement.
            reference: where the table is read.
            ignores: options that are not about reading: the table is the one that the statement writes.
            is_changed: the statement changes the table: all rows count, also those that wait for a compaction.

        Raises:
            InvalidInputError: points at the reference.
        """
        try:
            options = self._options(text, reference, ignores)
            options = rows_to_change(options) if is_changed else options
            return self.open(reference.name, options, is_target=bool(ignores))
        except InvalidInputError as error:
            raise text.statement.source.problem(str(error), reference.start, reference.stop) from error

    def _table(self, name: str) -> FileTable:
        return self._context.catalog.table(name).files

    def _options(self, text: StatementText, reference: Reference, ignores: Collection[str]) -> dict[str, str]:
        given = {key: value for key, value in canonical_options(reference.options).items() if key not in ignores}
        check_belongs(given, BATCH_KEYS, "read option")
        version = version_options(self._context, text, reference)
        twice = sorted({*PLACES} & {*given}) if version else []
        if twice:
            raise InvalidInputError(f"the version is given twice: {twice[0]}={given[twice[0]]} fix=remove one")
        given |= version
        session = {key: value for key, value in canonical_options(self._context.settings).items() if key in BATCH_KEYS}
        if not {*PLACES, OFFSETS, "scan.mode"}.isdisjoint(given):
            states = [key for key in session if key.startswith(("scan.", "log.scan.")) and key != SCAN_BRANCH_KEY]
            session = {key: value for key, value in session.items() if key not in states}
        _, named = branch_named(reference.name, given)
        return {**of_session(session, named=named, reads=not ignores), **given}


def plan_read(
    context: SqlContext,
    read: BatchRead,
    reference: Reference,
    names: Collection[str] | None,
    conditions: Collection[UsedCondition],
    *,
    with_places: bool = False,
) -> ReadPlan:
    """Plan the files of a reference, and make the frame of their rows.

    Args:
        context: the session.
        read: the state.
        reference: where it is read.
        names: in lower case, all that the statement may use; None is everything.
        conditions: on its rows.
        with_places: add columns that say where a row is, see ``row_places``.
    """
    schema = read.table.schema
    columns = tuple(name for name in schema.column_names if names is None or name.lower() in names)
    if not columns:  # rows are counted: by a key column, which is read anyway, or by any other
        columns = (schema.trimmed_primary_keys or schema.column_names)[:1]
    predicate = and_all([each.predicate for each in conditions if each.predicate is not None])
    if with_places:
        plan = read.plan(predicate)
        frame = placed_frame(context.spark, read.table.store, plan, columns)
        return ReadPlan(
            reference=reference, read=read, plan=plan, frame=frame, columns=columns, conditions=tuple(conditions)
        )
    key = frame_key(read, columns, predicate)
    kept = context.frames.find(key)
    if kept is None:
        plan = read.plan(predicate)
        kept = plan, _frame_of(context, read, plan, columns)
        context.frames.keep(key, *kept)
    return ReadPlan(
        reference=reference, read=read, plan=kept[0], frame=kept[1], columns=columns, conditions=tuple(conditions)
    )


def _frame_of(context: SqlContext, read: BatchRead, plan: BatchPlan, columns: tuple[str, ...]) -> DataFrame:
    """The frame of a plan; of whole files it is the same for all conditions that leave the same files."""
    wanted = {*columns, *(columns_of(plan.filter) if plan.filter is not None else ())}
    if len(wanted) > len(columns):
        return table_frame(context.spark, plan, columns=columns, constants=read.constants)
    divided = divided_plan(context.spark, plan, columns)
    state = frame_key(read, columns, None) if divided.is_scan else None
    key = None if state is None else (state, *divided.plain)
    kept = context.frames.find(key)
    if kept is None:
        frame = table_frame(context.spark, plan, columns=columns, constants=read.constants, divided=divided)
        kept = plan, frame
        context.frames.keep(key, *kept)
    return kept[1]


def version_options(context: SqlContext, text: StatementText, reference: Reference) -> dict[str, str]:
    """VERSION or TIMESTAMP AS OF as read options. Raises: InvalidInputError for what is no version."""
    version = reference.version
    if version is None:
        return {}
    wanted = version.expression
    if version.name.upper() == "TIMESTAMP":
        return {"scan.timestamp": str(_time_ms(context, text, reference))}
    if isinstance(wanted, exp.Column | exp.Dot):  # in backticks
        return {"scan.version": ".".join(part.name for part in wanted.parts)}
    if not isinstance(wanted, exp.Literal):
        raise InvalidInputError(
            f"a version is a number of a snapshot, or a word for one: version={wanted.sql(dialect='spark')} "
            "fix='put it in quotes'"
        )
    return {"scan.version": str(wanted.this)}


def _time_ms(context: SqlContext, text: StatementText, reference: Reference) -> int:
    """The time of TIMESTAMP AS OF in epoch milliseconds, computed by Spark as it computes its own tables'."""
    words = _version_words(text, reference)
    row = context.spark.sql(f"SELECT unix_millis(CAST(({words}) AS TIMESTAMP)) AS at").collect()[0]
    if row["at"] is None:
        raise InvalidInputError(f"not a time: TIMESTAMP AS OF {words}")
    return int(row["at"])


def _version_words(text: StatementText, reference: Reference) -> str:
    """The text behind AS OF."""
    index = text.index_at(reference.start)
    while not (text.word(index) == "AS" and text.word(index + 1) == "OF") and text.word(index) != "AS OF":
        index += 1
    index += 1 if text.word(index) == "AS OF" else 2
    start = text.start_of(index)
    while index < len(text.tokens) and text.start_of(index) < reference.stop:
        if text.word(index) == "WITH" or text.text.startswith("/*+", text.start_of(index)):
            return text.text[start : text.start_of(index)]
        index += 1
    return text.text[start : reference.stop]
