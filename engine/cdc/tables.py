"""The tables of a job: made from a source table's first schema part, then passed through each further one."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.catalog import Catalog
from engine.cdc.records.computed import computed_names, computed_type, inputs
from engine.cdc.records.metadata import DELETED_COLUMN, DELETED_WHEN, SEQUENCE, SEQUENCE_COLUMN, metadata_type
from engine.cdc.records.part_columns import key_names, lossy_columns, refused_columns, row_columns, run_digest
from engine.cdc.records.routing import RecordPlace, RefusedRecordError, RowPart
from engine.cdc.rules.names import SourceTable, TableTarget, check_nameable, check_one_source, name_in_table
from engine.cdc.rules.part_sequence import (
    KeyTypeError,
    PartColumn,
    PartSequence,
    PassedPart,
    SeenPart,
    SourceMoment,
    leave_out,
    made_again,
    pass_through,
)
from engine.cdc.rules.table_options import check_equal_options
from engine.cdc.rules.widening import has_place_for
from engine.cdc.settings import COUNT_ROWS, REFUSE, SKIP, SOFT, CdcSettings
from engine.cdc.state import CdcTableState
from engine.kafka.offsets import OffsetRange, Offsets
from engine.log.table_log import default_topic
from engine.table import Table
from filestore.evolution.schema_change import ChangeType, DropColumn, apply_changes
from filestore.options.table_options import TableOptions
from filestore.schema.row_counts import ROW_COUNTS_KEY
from filestore.types.casts import literal_value
from filestore.types.data_types import STRING, DataField, DataType, parse_data_type
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.cdc")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetPart:
    """A schema part of a table's batch, where it was met."""

    source: SourceTable
    target: TableTarget
    position: str
    offset: int
    part: RowPart
    has_changes: bool  # not only rows of a snapshot
    last_offset: int = -1  # of its last record
    is_end: bool = False  # that record, and not the first one
    moments: tuple[SourceMoment, SourceMoment] | None = None  # the least and the greatest of its records
    is_appended: bool = False  # the source puts each new column behind all others


class SkippedTableError(InvalidInputError):
    """A table without a key, which ``without-key=skip`` leaves out."""


PastValues = Callable[[SourceTable], Mapping[str, str]]
"""What the rows of a source table have in columns that were added after them, as its database says it: literals."""


@dataclass(frozen=True, slots=True)
class CdcTables:
    """Makes and changes tables of one catalog."""

    catalog: Catalog
    settings: CdcSettings
    past: PastValues | None = None
    _logs: dict[str, bool] = field(default_factory=dict, compare=False)  # by topic: whether it is a table's log

    def without_logs(self, ranges: Iterable[OffsetRange], names: Callable[[], list[str]]) -> list[OffsetRange]:
        """The ranges without the dead letters and the logs of the catalog's own tables, which a pattern may match.

        Args:
            ranges: of a batch.
            names: lists the job's tables.
        """
        found = [each for each in ranges if each.topic != self.settings.dead_letters]
        for topic in sorted({each.topic for each in found} - self._logs.keys()):
            self._logs[topic] = self._is_log(topic, names())
            if self._logs[topic]:
                logger.warning(
                    "a topic is the log of a table, and left out: topic=%s job=%s fix='let the pattern not match it'",
                    topic, self.settings.name,
                )  # fmt: skip
        return [each for each in found if not self._logs[each.topic]]

    def _is_log(self, topic: str, names: Iterable[str]) -> bool:
        options = {name: {**self.settings.options, **self.settings.table(name).options} for name in names}
        own = [self.full_name(name) for name, each in options.items() if each.get(TableOptions.log_topic.key) == topic]
        named = [self.full_name(name) for name in options if default_topic(self.full_name(name)) == topic]
        for name in dict.fromkeys((*own, *named, topic)):
            if name.count(".") == 1 and self.catalog.table_exists(name):
                store = self.catalog.table(name).store
                if store.has_log and (store.options.log_topic or default_topic(name)) == topic:
                    return True
        return False

    def full_name(self, name: str) -> str:
        """``database.table``."""
        return f"{self.settings.database}.{name}"

    def exists(self, name: str) -> bool:
        """Whether the table is there. Raises: InvalidInputError: no table can have the name."""
        check_nameable(name)
        return self.catalog.table_exists(self.full_name(name))

    def open(self, name: str) -> Table:
        """The table as it is now. Raises: InvalidInputError."""
        return self.catalog.table(self.full_name(name))

    def drop(self, name: str) -> None:
        """Drop a target table with its files and log; a missing table is fine. Raises: UnavailableError."""
        self.catalog.drop_table(self.full_name(name), if_exists=True)

    def prepare(
        self,
        name: str,
        state: CdcTableState,
        met: Sequence[MetPart],
        stood: Offsets,
        remember: Callable[[CdcTableState], None],
    ) -> Table:
        """The table at a schema that holds all rows of a batch.

        Args:
            name: of the table, without the database.
            state: what is known of it.
            met: the parts of the batch; within a position in order of offsets.
            stood: how far the job is in the table, before the batch.
            remember: called with what is known then, also where a part is refused.

        Raises:
            InvalidInputError: two source tables have one name, the key has changed, a change is refused, or the table
                cannot be made.
        """
        table = self.catalog.table(self.full_name(name)) if self.exists(name) else None
        places: dict[str, int] = {}
        if met:
            places = {f"{topic}/{partition}": offset for (topic, partition), offset in stood.items()}
            state = state.each_sequence(lambda own: own.behind(places))
        try:
            if table is not None:
                table, state = self._left_out(table, state)
            ordered = _topics_of_several({*places, *_positions(state), *(each.position for each in met)})
            if ordered:  # elsewhere the order of the offsets is that of the source
                met = sorted(_both_ends(met, ordered), key=lambda each: each.moments[0] if each.moments else (0, 0))
            for each in met:
                check_one_source(each.target, each.source, state.sources)
                key = each.target.key or key_names(each.part)
                if table is None:
                    state = replace(state, sources=(), key=(), sequences={})  # also of one that was dropped
                    table = self._made(name, each, key, state.key_types)
                if not state.sources and not state.key:
                    state = replace(state, key=key)
                _check_key(name, state.key, key, each)
                check_equal_options(table.options, table=name)
                if each.source not in state.sources:
                    state = replace(state, sources=(*state.sources, each.source))
                is_ordered = each.position.rpartition("/")[0] in ordered
                try:
                    table, state = self._passed(table, state, each, key, is_ordered=is_ordered)
                except RefusedRecordError as error:
                    if isinstance(error.__cause__, KeyTypeError):
                        cause = error.__cause__
                        state = replace(state, key_types={**state.key_types, cause.column: cause.wanted})
                    raise
        finally:
            remember(state)
        assert table is not None
        return table

    def _left_out(self, table: Table, state: CdcTableState) -> tuple[Table, CdcTableState]:
        """The table without columns that the rules leave out now, of all source tables: no change has values of them.

        Without a key rows are known by all their values, so a column stays until the table is created again.
        """
        if table.files.row_counts is not None:
            return table, state
        why = self.settings.why_left_out
        gone = {
            name
            for sequence in state.sequences.values()
            for name in sequence.live
            if state.sources and all(why(each, name) for each in state.sources)
        }
        steps = {source: leave_out(each, gone) for source, each in state.sequences.items()}
        changes = dict.fromkeys(each for step in steps.values() for each in step.changes)
        if changes:
            logger.warning("columns are left out by the rules, and dropped: table=%s columns=%s", table.name, gone)
            table = self.catalog.alter_table(table.name, list(changes))
        return table, replace(state, sequences={source: step.sequence for source, step in steps.items()})

    def _columns(self, met: MetPart, sequence: PartSequence) -> tuple[PartColumn, ...]:
        """The columns of a part; new ones with the value that rows from before them have, where the source says it."""
        found = row_columns(met.part, met.source, self.settings)
        names = {each.name for each in found}
        if self.past is None or not sequence.live or names <= sequence.live.keys():
            return found
        if not sequence.live.keys() <= names:  # it may be one of those that are gone, by another name
            return found
        past = self.past(met.source)
        return tuple(
            replace(each, default=past[each.name], unknown="", is_certain=True)
            if each.name in past and each.name not in sequence.live and _is_literal(past[each.name], each.type)
            else each
            for each in found
        )

    def _passed(
        self, table: Table, state: CdcTableState, met: MetPart, key: Sequence[str], *, is_ordered: bool
    ) -> tuple[Table, CdcTableState]:
        sequence, others = state.sequence_of(met.source), state.others(met.source)
        seen = SeenPart(
            position=met.position,
            offset=met.offset,
            digest=run_digest(met.part, met.source, self.settings),
            columns=self._columns(met, sequence),
            has_changes=met.has_changes,
            table=met.target.table,
            source=str(met.source),
            moment=None if met.moments is None else met.moments[0],
            is_end=met.is_end,
            is_ordered=is_ordered,
            is_appended=met.is_appended,
        )
        schema = table.store.schema

        def can_widen(name: str, wider: DataType) -> bool:
            try:
                apply_changes(schema, [ChangeType((name,), replace(wider, nullable=True))], has_rows=True)
            except InvalidInputError:
                return False
            return True

        try:
            step = pass_through(
                sequence,
                seen,
                table.schema.fields,
                keys=[*(name_in_table(each, self.settings.renamed) for each in key), *schema.partition_keys],
                renamed=self.settings.renamed,
                rules=self.settings.schema_changes,
                counts_rows=table.files.row_counts is not None,
                can_widen=can_widen,
                others=others,
                reserved=self._reserved(met.target, table, (sequence, *others)),
            )
        except InvalidInputError as error:
            raise RefusedRecordError(str(error), _beginning(met)) from error
        gone = sequence.live.keys() - step.sequence.live.keys()
        if gone:
            logger.warning(
                "columns are not in the changes any more, new rows have null in them: table=%s columns=%s source=%s "
                "at=%s offset=%d",
                met.target.table, ",".join(sorted(gone)), met.source, met.position, met.offset,
            )  # fmt: skip
        _tell_rows_before(met, self.settings, step)
        if step.changes or self.settings.types.lossy == REFUSE:
            _tell_losses(met, self.settings, known=table.schema.column_names)
        if step.changes:
            table = self.catalog.alter_table(table.name, step.changes)
        dropped = {each.path[0] for each in step.changes if isinstance(each, DropColumn)}
        state = state.each_sequence(lambda own: own.without_columns(dropped))
        return table, replace(state, sequences={**state.sequences, met.source: step.sequence})

    def _reserved(self, target: TableTarget, table: Table, sequences: Iterable[PartSequence]) -> frozenset[str]:
        """The columns of a table with values of the job: a column of the source of this name is another one."""
        own = {*target.constants, *with_deleted(self.settings), *([SEQUENCE_COLUMN] if _is_sequenced(target) else ())}
        used = {column for each in sequences for column in each.used}
        return frozenset({*own, *computed_names(self.settings.computed, table.schema.column_names, used)})

    def _made(self, name: str, met: MetPart, key: Sequence[str], key_types: Mapping[str, str]) -> Table:
        settings, said = self.settings, self.settings.table(name)
        renamed = {each: name_in_table(each, settings.renamed) for each in key}
        fields: list[DataField] = [_field(each, STRING) for each in met.target.constants]
        for column in row_columns(met.part, met.source, settings):
            own = name_in_table(column.name, settings.renamed)
            wanted = parse_data_type(key_types[own]) if own in key_types else column.type
            fields.append(_field(own, wanted if has_place_for(wanted, column.type) else column.type))
        added = with_deleted(settings)
        options = {**settings.options, **said.options}
        if _is_sequenced(met.target) and key:
            added.setdefault(SEQUENCE_COLUMN, SEQUENCE)
            options.setdefault(TableOptions.sequence_fields.key, SEQUENCE_COLUMN)
        for each, expression in added.items():
            fields.append(_field(each, metadata_type(expression)))
        _check_own_names(name, met, {*met.target.constants, *added}, [each.name for each in fields])
        fields += self._computed(name, fields, list(renamed.values()))
        for each, why in refused_columns(met.part, settings).items():
            logger.warning("a column is left out: table=%s column=%s source=%s reason=%s", name, each, met.source, why)
        _tell_losses(met, settings)
        names = [each.name for each in fields]
        missing = [each for each in renamed.values() if each not in names]
        if missing:
            raise InvalidInputError(
                f"a key column is not in the rows: table={name} column={missing[0]} source={met.source} "
                f"columns={','.join(names)} fix='do not exclude it, or name another key in names'"
            )
        if not key:
            if settings.without_key == SKIP:
                raise SkippedTableError(f"the source table has no key: source={met.source} without-key=skip")
            if settings.without_key == COUNT_ROWS:
                options.setdefault(ROW_COUNTS_KEY, "true")
        numbered = [replace(each, id=index) for index, each in enumerate(fields)]
        return self.catalog.create_table(
            self.full_name(name),
            numbered,
            primary_key=list(renamed.values()),
            partition_by=list(said.partition_by),
            options=options,
            comment=f"of {met.source}, by the job {settings.name}",
            if_not_exists=True,
            case_sensitive=True,  # as in the source
        )

    def _computed(self, table: str, fields: Sequence[DataField], key: Sequence[str]) -> list[DataField]:
        """The columns that are computed from those that the table has."""
        known = {each.name: each.type for each in fields}
        found = []
        for name, expression in self.settings.computed.items():
            needed = inputs(expression)
            if not needed <= known.keys():
                continue
            if name in known or (name in key and not needed <= set(key)):
                raise InvalidInputError(
                    f"a computed column cannot have this name: table={table} column={name} key={','.join(key)} "
                    "fix='choose one that no column has; in a key, compute it from columns of the key'"
                )
            found.append(_field(name, computed_type(expression, known)))
        return found


def _topics_of_several(positions: Iterable[str]) -> frozenset[str]:
    """The topics of which several partitions are given, as ``topic/partition`` each."""
    topics = [each.rpartition("/")[0] for each in positions]
    return frozenset(each for each in topics if topics.count(each) > 1)


def _check_own_names(table: str, met: MetPart, own: Collection[str], names: Sequence[str]) -> None:
    """Raises: InvalidInputError: a column of the source has the name of one that the job adds."""
    twice = sorted(each for each in own if names.count(each) > 1)
    if twice:
        raise InvalidInputError(
            f"a column of the source has the name of one that the job adds: table={table} column={twice[0]} "
            f"source={met.source} fix='write columns: {{rename: {{{twice[0]}: src_{twice[0]}}}}}, start the job again, "
            f"and: fluvial cdc resume {table}'"
        )


def _is_sequenced(target: TableTarget) -> bool:
    """Whether the rows of several source tables with one key are put in the order of the source's log."""
    return target.joins and not target.constants


def _positions(state: CdcTableState) -> set[str]:
    """The topic partitions, as ``topic/partition``, in which parts of a table were met."""
    return {position for each in state.sequences.values() for position in each.runs}


def _both_ends(met: Iterable[MetPart], topics: Collection[str]) -> Iterator[MetPart]:
    """The parts, and in these topics each one once more where it ends: another partition's may lie between."""
    for each in met:
        yield each
        if each.moments is not None and each.last_offset > each.offset and each.position.rpartition("/")[0] in topics:
            yield replace(each, offset=each.last_offset, moments=(each.moments[1], each.moments[1]), is_end=True)


def _beginning(met: MetPart) -> RecordPlace:
    """The first record that a skip of a part leaves out: rows before it are none of the table that is created again."""
    topic, _, partition = met.position.rpartition("/")
    return topic, int(partition), 0


def with_deleted(settings: CdcSettings) -> dict[str, str]:
    """The columns that the job adds; soft deletes need one."""
    added = dict(settings.added)
    if settings.deletes == SOFT and DELETED_WHEN not in added.values():
        added[DELETED_COLUMN] = DELETED_WHEN
    return added


def _tell_losses(met: MetPart, settings: CdcSettings, known: Sequence[str] = ()) -> None:
    """Say what the columns of a part lose, as ``fluvial plan`` does, without those that the table has already.

    Raises: InvalidInputError: one loses something, and ``types.lossy=refuse``.
    """
    for name, lost in lossy_columns(met.part, met.source, settings).items():
        if name_in_table(name, settings.renamed) in known:
            continue
        where = f"table={met.target.table} column={name} source={met.source} loses='{lost}'"
        if settings.types.lossy == REFUSE:
            pattern = re.escape(f"{met.source}.{name}")
            raise InvalidInputError(
                f"a column loses something of the source: {where} types.lossy=refuse "
                f"fix=\"set the connector as it says, write columns: {{exclude: ['{pattern}']}}, or set types: "
                f'{{lossy: say}}; then: fluvial cdc resume {met.target.table}"'
            )
        logger.warning("a column loses something of the source: %s", where)


def _tell_rows_before(met: MetPart, settings: CdcSettings, step: PassedPart) -> None:
    """Say what rows from before a new column have in it, because no record says what they have in the source.

    Raises: InvalidInputError: they have another value there, and ``types.lossy=refuse``.
    """
    table = met.target.table
    for column, value in step.before.items():
        where = f"table={table} column={column} value='{value}' source={met.source} at={met.position}"
        if column in step.unknown and settings.types.lossy == REFUSE:
            raise InvalidInputError(
                f"rows from before a new column or type have values that no record says: {where} types.lossy=refuse "
                f"fix='fluvial cdc resnapshot {table} --drop; or set types: {{lossy: say}}, start the job again, "
                f"and: fluvial cdc resume {table}'"
            )
        logger.warning(
            "rows from before a new column or type may have another value in the source: %s "
            "fix='fluvial cdc resnapshot %s; or in PostgreSQL UPDATE of all rows, as SET id = id, to publish all but "
            "large values'",
            where, table,
        )  # fmt: skip

    for column in step.nulls:
        logger.info(
            "rows from before a new column are null in it; in the source, too, unless the database computes its "
            "default: table=%s column=%s source=%s at=%s fix='fluvial cdc resnapshot %s, if it does'",
            table, column, met.source, met.position, table,
        )  # fmt: skip


def _is_literal(text: str, data_type: DataType) -> bool:
    try:
        literal_value(text, data_type)
    except InvalidInputError:
        return False
    return True


def _field(name: str, data_type: DataType) -> DataField:
    return DataField(id=0, name=name, type=replace(data_type, nullable=True))


def _check_key(name: str, known: Sequence[str], given: Sequence[str], met: MetPart) -> None:
    if tuple(known) != tuple(given):
        raise RefusedRecordError(
            f"the key of the source table has changed: table={name} source={met.source} known={','.join(known)} "
            f"given={','.join(given) or 'none'} at={met.position} offset={met.offset} "
            f"fix='{made_again(name, met.offset)}'",
            _beginning(met),
        )
