"""The second pass: the rows of one table in a batch, decoded by each record's own part and cast to the table's types.

Iterated by the writer, again for another attempt. Picklable, without the records that the first pass kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.cdc.records.computed import computed_column, computed_names, inputs
from engine.cdc.records.declared import without_guesses
from engine.cdc.records.metadata import (
    DELETED_WHEN,
    POSTGRES_CONNECTOR,
    SEQUENCE,
    SEQUENCE_COLUMN,
    is_of_table,
    may_lack_values,
    metadata_column,
)
from engine.cdc.records.part_columns import (
    as_in_the_source,
    has_moments,
    key_names,
    row_columns,
    run_digest,
    with_julian_moments,
)
from engine.cdc.records.routing import READ, RecordPiece, RecordPlace, RefusedRecordError, RowPart
from engine.cdc.records.scan import Chunk, ordered_meta, position_of, raw_record, read_chunks, split_of
from engine.cdc.rules.names import SourceTable
from engine.cdc.rules.part_sequence import PartSequence
from engine.cdc.rules.repeats import Repeated, RepeatedChanges, stamps_of
from engine.cdc.rules.widening import has_place_for
from engine.cdc.settings import COUNT_ROWS, SOFT, CdcSettings
from engine.kafka.dead_letters import DeadLetters
from engine.kafka.offsets import OffsetRange
from engine.runtime.expected_rows import DEAD_LETTER, BrokenRowsError, Expectation, check_broken
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from filestore.datafile.schema_mapping import conform
from filestore.predicate.row_rules import EXAMPLES, RowRule, examples_of
from filestore.types.casts import cast_array, literal_value
from filestore.types.data_types import NESTED_ROOTS, DataField, DataType, arrow_type
from logstore.format.debezium import DecodedChanges, decode_envelopes
from logstore.format.schema_parts import Payloads, Split
from logstore.format.source.old_keys import with_old_keys
from logstore.format.source.unavailable import columns_of_masks, mask_column
from logstore.json.arrow_bytes import flags, gathered
from logstore.json.reading import BadRecord
from logstore.log.log_reader import OLD_KEY
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind, retracts


class TooManyBadError(RefusedRecordError):
    """A table has more unreadable records than the job allows: it is parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """One source table of a table, in one range."""

    source: SourceTable
    range: OffsetRange
    after: int  # rows at or before this offset are not wanted: a truncate follows them, or they are in the table
    sequence: PartSequence
    constants: Mapping[str, str]
    others: tuple[PartSequence, ...] = ()  # of other source tables of the table
    repeated: tuple[Repeated, ...] = ()  # changes in there are in the table
    left_out: tuple[OffsetRange, ...] = ()  # see ``RangeScan``


@dataclass(slots=True)
class BadCount:
    """Counts the records of a table that could not be read, and keeps the first reason. The caller shares it."""

    allowed: int
    count: int = 0
    first: str | None = None

    def add(self, table: str, most: int, count: int, reason: str, at: RecordPlace | None = None) -> None:
        """Count bad records. Raises: TooManyBadError: more than the job allows."""
        self.first = self.first or reason
        self.count += count
        if self.count > self.allowed:
            skip = "" if at is None else f"; or: fluvial cdc skip {table} --until {at[2] + 1}"
            raise TooManyBadError(
                f"too many records cannot be decoded: table={table} bad={self.count} max-bad={most} of an hour, "
                f"left={self.allowed} first='{self.first}' fix='correct the source, or raise max-bad, start the job "
                f"again, and: fluvial cdc resume {table}{skip}'",
                at,
            )


@dataclass(slots=True)
class BrokenCount:
    """Counts the rows of a table in a batch that break each rule of its job. The caller shares it."""

    rows: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Any]] = field(default_factory=dict)
    first: dict[str, RecordPlace] = field(default_factory=dict)

    def begin(self, rules: Sequence[tuple[Expectation, RowRule]]) -> None:
        """Count from nothing."""
        self.rows = 0
        self.broken = {rule.name: 0 for rule, _ in rules}
        self.examples = {rule.name: [] for rule, _ in rules}
        self.first = {}

    def check(self, table: str, rules: Sequence[tuple[Expectation, RowRule]]) -> None:
        """Raises: TooManyBadError: more rows break a rule than it allows."""
        for rule, _ in rules:
            name = rule.name
            try:
                check_broken(table, [rule], [self.broken[name]], self.rows, [self.examples[name]])
            except BrokenRowsError as error:
                raise TooManyBadError(str(error), self.first.get(name)) from error


@dataclass(slots=True)
class ChangeRows:
    """The rows of a table in a batch, as batches with ``_row_kind``."""

    settings: CdcSettings
    table: str
    fields: tuple[DataField, ...]
    keys: tuple[str, ...]  # () for a table without a key
    sequence: tuple[str, ...]  # the columns that order rows of a key; (): rows are in the order of their records
    sources: tuple[TableSource, ...]
    bad: BadCount
    has_updates: bool = True  # some may lack values, which rows before them have
    rules: tuple[tuple[Expectation, RowRule], ...] = ()  # of the job, on the rows that are written
    held: BrokenCount = field(default_factory=BrokenCount)
    kept: Mapping[str, Sequence[Chunk]] = field(default_factory=dict)  # by position; what follows is read again

    def __getstate__(self) -> tuple[Any, ...]:
        state = replace(self, kept={})
        return tuple(getattr(state, name) for name in self.__slots__)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            setattr(self, name, value)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Rows in order of offsets; ranges one after the other.

        Raises:
            TooManyBadError: more records are unreadable than the job allows.
            UnavailableError: brokers or registry do not answer.
        """
        self.bad.count = 0
        self.held.begin(self.rules)
        letters = DeadLetters(self.settings.properties, self.settings.dead_letters, is_held=bool(self.rules))
        by_range: dict[OffsetRange, list[TableSource]] = {}
        for each in self.sources:
            by_range.setdefault(each.range, []).append(each)
        for source, wanted in by_range.items():
            repeats = {each.source: RepeatedChanges(each.repeated) for each in wanted if each.repeated}
            for chunk in self._chunks(source, wanted[0].left_out):
                rows, bad, broken = self._of_chunk(chunk, wanted, _repeated(chunk, repeats))
                self._report(chunk, bad, source, letters)
                self._send(chunk, broken, source, letters)
                if rows is not None and rows.num_rows:
                    yield rows
        self.held.check(self.table, self.rules)  # before the letters are on their way, and the rows in the table
        letters.flush()

    def _chunks(self, source: OffsetRange, left_out: Sequence[OffsetRange]) -> Iterator[Chunk]:
        kept = self.kept.get(position_of(source), ())
        yield from kept
        start = kept[-1].end_offset if kept else source.start_offset
        if start < source.end_offset:
            yield from read_chunks(self.settings, replace(source, start_offset=start), left_out=left_out)

    def _of_chunk(
        self, chunk: Chunk, wanted: Sequence[TableSource], repeated: Mapping[SourceTable, IndexArray]
    ) -> tuple[pa.RecordBatch | None, list[BadRecord], list[BadRecord]]:
        """The rows of a chunk, the records that cannot be decoded, and those whose row a rule sends away.

        Args:
            chunk: some records.
            wanted: the source tables of the table.
            repeated: offsets of records that the table has already.
        """
        by_source = {each.source: each for each in wanted}
        found: list[pa.RecordBatch] = []
        places: list[Any] = []
        bad: list[BadRecord] = []
        broken: list[BadRecord] = []
        offsets = chunk.records["offset"].to_numpy()
        for piece in chunk.routed.pieces:
            own = by_source.get(piece.source)
            if own is None or piece.part is None:
                continue
            at = offsets[piece.indices]
            is_wanted = at > own.after
            if own.source in repeated:
                is_wanted &= ~np.isin(at, repeated[own.source])
            names, codes = self._runs(piece.part, own, at[is_wanted])
            for code in np.unique(codes[codes >= 0]).tolist():
                mask = is_wanted.copy()
                mask[is_wanted] = codes == code
                for row, chosen in _by_calendar(piece, piece.part, mask):
                    part = replace(piece.part, row=row)
                    rows, where, refused = self._decoded(chunk, piece, part, own, chosen, names[code])
                    if self.rules:
                        rows, where, sent = self._held_to_rules(rows, where, offsets, own)
                        broken += sent
                    found.append(rows)
                    places.append(where)
                    bad += refused
        if not found:
            return None, bad, broken
        if len(found) == 1:
            return found[0], bad, broken
        found = _alike(found)
        order = np.argsort(np.concatenate(places), kind="stable")
        return gathered(found, order), bad, broken

    def _held_to_rules(
        self, rows: pa.RecordBatch, where: IndexArray, offsets: IndexArray, own: TableSource
    ) -> tuple[pa.RecordBatch, IndexArray, list[BadRecord]]:
        """The rows that rules let through, their records, and the records that they send to the dead letters."""
        kinds = pc.index_in(rows.column(ROW_KIND_COLUMN), value_set=ROW_KIND_SYMBOLS).cast(pa.int8())
        self.held.rows += rows.num_rows - retracts(kinds).true_count
        has_marks = UNAVAILABLE_COLUMN in rows.schema.names
        lacking = columns_of_masks(rows.column(UNAVAILABLE_COLUMN)) if has_marks else {}
        is_kept = np.ones(rows.num_rows, np.bool_)
        reasons: dict[int, str] = {}
        for rule, condition in self.rules:
            broken = condition.broken(rows, kinds)
            for name in lacking.keys() & {*condition.columns}:  # the value is no null: it is that of the row before
                broken = pc.and_not(broken, pa.array(lacking[name]))
            if not broken.true_count:
                continue
            places = np.flatnonzero(flags(broken))
            self.held.broken[rule.name] += len(places)
            at = (own.range.topic, own.range.partition, int(offsets[where[places[0]]]))
            self.held.first.setdefault(rule.name, at)
            shown = self.held.examples[rule.name]
            shown += examples_of(condition, rows, broken, self.keys)[: EXAMPLES - len(shown)]
            if rule.leaves_out:  # with the old row of an update: what stays must not lose its row
                is_kept &= ~np.isin(where, where[places])
            if rule.on_fail == DEAD_LETTER:
                for index in where[places].tolist():
                    reasons[index] = "; ".join(filter(None, (reasons.get(index), rule.reason)))
        sent = [BadRecord(index=index, reason=reason) for index, reason in sorted(reasons.items())]
        return (rows, where, sent) if is_kept.all() else (rows.filter(pa.array(is_kept)), where[is_kept], sent)

    def _runs(self, part: RowPart, own: TableSource, offsets: IndexArray) -> tuple[list[str], IndexArray]:
        """The runs of rows at these offsets; a tombstone has that of the rows before it, -1 without any."""
        if part.is_key:
            return own.sequence.run_at(position_of(own.range), offsets)
        digest = run_digest(part, own.source, self.settings)
        return own.sequence.run_of_rows(position_of(own.range), digest, offsets, table=self.table)

    def _decoded(
        self, chunk: Chunk, piece: RecordPiece, part: RowPart, own: TableSource, mask: Any, run: str
    ) -> tuple[pa.RecordBatch, Any, list[BadRecord]]:
        indices = piece.indices[mask]
        columns = row_columns(part, piece.source, self.settings)
        schema = pa.schema([(each.name, arrow_type(each.type)) for each in columns])
        chosen = pa.array(indices)
        row, key_split, plan = part.row, split_of(self.settings), own.sequence.plans[run]
        if part.is_declared:
            row, key_split = without_guesses(row), _already_split(part.key and without_guesses(part.key))
        may_move = bool(self.keys) and self._is_key_of_rule(part, own, plan)
        found = decode_envelopes(
            piece.texts.filter(pa.array(mask)),
            schema=schema,
            keys=chunk.records["key"].take(chosen),
            key_names=[name for name in key_names(part) if name in schema.names],
            old_keys=chunk.records[OLD_KEY.name].take(chosen),
            on_error="collect",
            with_update_before=not self.keys or may_move,
            split=_already_split({"fields": [row]}),
            key_split=key_split,
            out_of_range=self.settings.types.out_of_range,
            unavailable_values=self.settings.unavailable_values,
            placeholder=self.settings.placeholder,
            partial_deletes="fail" if may_move else "null",
        )
        if may_move:
            found = _with_moved(found, [name for name, column in plan.items() if column in self.keys])
        meta = piece.meta.filter(pa.array(mask)).take(pa.array(found.record_indices))
        types = {each.name: each.type for each in columns}
        found = replace(found, rows=as_in_the_source(found.rows, part, meta))
        unfit = self._unfit(found, types, plan)
        bad = [*found.bad, *unfit]
        if unfit:
            fits = pa.array(~np.isin(found.record_indices, [each.index for each in unfit]))
            found, meta = _filtered(found, fits), meta.filter(fits)
        if self.settings.deletes == SOFT and not self.keys:
            found, meta = _with_marked(found, meta)
        rows = self._in_table(found, meta, types, own, run)
        keeps = self.settings.unavailable_values == "keep" and self.has_updates and self.keys
        if keeps and may_lack_values(piece.meta, self.fields):
            rows = _with_lists(rows)  # rows before one that lacks values are those that have them
        bad = [replace(each, index=int(indices[each.index])) for each in bad]
        return rows, indices[found.record_indices], bad

    def _is_key_of_rule(self, part: RowPart, own: TableSource, plan: Mapping[str, str]) -> bool:
        """Whether a column of the table's key is not in the record's: an update may change it, and says only before."""
        given = {plan[name] for name in key_names(part) if name in plan}
        return not {*self.keys} & {*plan.values()} <= given | own.constants.keys()

    def _unfit(self, found: DecodedChanges, types: Mapping[str, DataType], plan: Mapping[str, str]) -> list[BadRecord]:
        """The records with a value that its column cannot hold, where a rule keeps the column from getting wider.

        A delete needs its key only, and a key is never kept.
        """
        fields = {each.name: each.type for each in self.fields}
        needed = np.ones(found.rows.num_rows, np.bool_)
        if self.keys and self.settings.deletes != SOFT:
            needed = found.kinds.to_numpy(zero_copy_only=False) != RowKind.DELETE
        reasons: dict[int, str] = {}
        for name, column in plan.items():
            if name not in types or column not in fields or has_place_for(fields[column], types[name]):
                continue
            values = found.rows.column(name)
            back = _cast(_cast(values, types[name], fields[column], column), fields[column], types[name], column)
            is_same = flags(pc.fill_null(pc.equal(back, values), False))
            if pa.types.is_floating(values.type):
                is_same |= flags(pc.fill_null(pc.and_(pc.is_nan(back), pc.is_nan(values)), False))
            is_other = ~is_same & flags(values.is_valid()) & needed
            for index in found.record_indices[is_other].tolist():
                reasons.setdefault(
                    index,
                    f"{column}: the column cannot hold the value: type={fields[column]} given={types[name]} "
                    f"schema-changes.widen=ignore fix='set it to evolve, start the job again, and: fluvial cdc resume "
                    f"{self.table}'",
                )
        return [BadRecord(index=index, reason=reason) for index, reason in sorted(reasons.items())]

    def _in_table(
        self, found: DecodedChanges, meta: pa.StructArray, types: Mapping[str, DataType], own: TableSource, run: str
    ) -> pa.RecordBatch:
        plan, later = own.sequence.plans[run], own.sequence.added_after(run, own.others)
        by_column = {column: name for name, column in plan.items() if name in types}
        count = found.rows.num_rows
        made: dict[str, pa.Array] = {}
        computed = self._computed()
        for each in self.fields:
            arrow = arrow_type(each.type)
            if each.name in own.constants:
                values = pa.repeat(pa.scalar(own.constants[each.name]), count)
                values = cast_array(values, _TEXT, each.type)
            elif each.name in self.settings.added:
                values = metadata_column(self.settings.added[each.name], meta).cast(arrow)
                if self.settings.added[each.name] == DELETED_WHEN:
                    is_delete = pc.equal(found.kinds, pa.scalar(int(RowKind.DELETE), pa.int8()))
                    values = is_delete if self.keys else pc.and_not(values, retracts(found.kinds))
            elif each.name == SEQUENCE_COLUMN and each.name not in by_column:
                values = metadata_column(SEQUENCE, meta).cast(arrow)
            elif each.name in by_column:
                name = by_column[each.name]
                values = _cast(found.rows.column(name), types[name], each.type, each.name)
            elif each.name in later and each.initial_default is not None:
                values = pa.repeat(literal_value(each.initial_default, each.type), count)
            else:
                values = pa.nulls(count, arrow)
            made[each.name] = values
        for name, kind in computed.items():
            made[name] = computed_column(self.settings.computed[name], made, kind)
        arrays, fields = list(made.values()), [pa.field(name, values.type) for name, values in made.items()]
        self._check_counted(found.kinds)
        self._check_deletes(found.kinds, made, plan)
        kinds, lacking = found.kinds, _renamed_lists(found.unavailable, plan)
        if self.settings.deletes == SOFT and self.keys:
            codes = kinds.to_numpy(zero_copy_only=False)
            is_delete = codes == RowKind.DELETE
            kinds = pa.array(np.where(is_delete, np.int8(RowKind.UPDATE_AFTER), codes), pa.int8())
            rest = {name: column for name, column in plan.items() if column not in self.keys}
            lacking = _with_nulls(lacking, found.rows, rest, is_delete)
        lacking = self._with_computed(lacking, computed)
        if lacking is not None and found.old_keys is not None:
            lacking = with_old_keys(
                lacking,
                self._old_keys(found.old_keys, types, own, plan),
                flags(found.old_keys.is_valid()),
                deleted=self._deleted(),
            )
        arrays.append(ROW_KIND_SYMBOLS.take(kinds))
        fields.append(pa.field(ROW_KIND_COLUMN, pa.string()))
        if lacking is not None:
            arrays.append(lacking)
            fields.append(pa.field(UNAVAILABLE_COLUMN, lacking.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _check_counted(self, kinds: pa.Array) -> None:
        """Refuse to take back rows of a table without a key that have values of the change which added them.

        Raises: InvalidInputError.
        """
        if self.keys or self.settings.without_key != COUNT_ROWS or not retracts(kinds).true_count:
            return
        names = [name for name, expression in self.settings.added.items() if not is_of_table(expression)]
        if names:
            raise InvalidInputError(
                f"a row of a table without a key is found by all its values, and these differ from change to change: "
                f"table={self.table} columns.add={','.join(names)} fix='take them out of columns.add, or set "
                "without-key: append (each change is a row); stop the writers of the source table, then: "
                f"fluvial cdc resnapshot {self.table} --drop --writers-stopped'"
            )

    def _check_deletes(self, kinds: pa.Array, values: Mapping[str, pa.Array], plan: Mapping[str, str]) -> None:
        """Refuse deletes that have their key only, where the table orders rows by other columns of the source.

        Null is the oldest of a sequence: such a delete would remove nothing.

        Raises: InvalidInputError.
        """
        of_source = [name for name in self.sequence if name in plan.values()]
        if not of_source or not self.keys or self.settings.deletes == SOFT:
            return
        is_bare = pc.equal(kinds, pa.scalar(int(RowKind.DELETE), pa.int8()))
        for name in {*plan.values()} - {*self.keys}:
            if name in values:
                is_bare = pc.and_(is_bare, values[name].is_null())
        if is_bare.true_count:
            key = {name: values[name].filter(is_bare)[0].as_py() for name in self.keys}
            raise InvalidInputError(
                f"a delete has its key only, and would remove nothing where another column orders rows: "
                f"table={self.table} sequence.field={','.join(self.sequence)} key={key} deletes={is_bare.true_count} "
                "fix='take sequence.field out of the options, changes are applied in their order, or set REPLICA "
                f"IDENTITY FULL at the source; then: fluvial cdc resnapshot {self.table} --drop'"
            )

    def _computed(self) -> dict[str, DataType]:
        """The computed columns that the table has, with their types."""
        used = {column for own in self.sources for each in (own.sequence, *own.others) for column in each.used}
        names = computed_names(self.settings.computed, [each.name for each in self.fields], used)
        return {each.name: each.type for each in self.fields if each.name in names}

    def _with_computed(self, lists: pa.Array | None, computed: Iterable[str]) -> pa.Array | None:
        """The lists, with computed columns where a column is missing from which they are computed."""
        if lists is None:
            return None
        masks = columns_of_masks(lists)
        for name in computed:
            lacking = [masks[each] for each in inputs(self.settings.computed[name]) if each in masks]
            if lacking:
                masks[name] = np.logical_or.reduce(lacking)
        return mask_column(masks, len(lists))

    def _deleted(self) -> str | None:
        """The column that marks deleted rows; None: deleted rows are removed."""
        if self.settings.deletes != SOFT:
            return None
        return next(name for name, expression in self.settings.added.items() if expression == DELETED_WHEN)

    def _old_keys(
        self, keys: pa.StructArray, types: Mapping[str, DataType], own: TableSource, plan: Mapping[str, str]
    ) -> dict[str, pa.Array]:
        """The key columns of the table; a key of which a column is not in the record's stays incomplete."""
        given = {field.name: column for field, column in zip(keys.type, keys.flatten(), strict=True)}
        fields = {each.name: each.type for each in self.fields}
        found = {
            plan[name]: _cast(column, types[name], fields[plan[name]], name)
            for name, column in given.items()
            if name in plan
        }
        for name, value in own.constants.items():
            found[name] = cast_array(pa.repeat(pa.scalar(value), len(keys)), _TEXT, fields[name])
        return {name: column for name, column in found.items() if name in self.keys}

    def _report(self, chunk: Chunk, bad: Sequence[BadRecord], source: OffsetRange, letters: DeadLetters) -> None:
        if not bad:
            return
        first = min(bad, key=lambda each: each.index)
        offset = chunk.records["offset"][first.index].as_py()
        at = (source.topic, source.partition, offset)
        text = (
            f"record cannot be decoded: table={self.table} topic={source.topic} partition={source.partition} "
            f"offset={offset} reason={first.reason}"
        )
        if self.settings.dead_letters is None:
            raise TooManyBadError(f"{text} fix='{way_on(self.table, offset)}'", at)
        self.bad.add(self.table, self.settings.max_bad, len(bad), text, at)
        self._send(chunk, bad, source, letters)

    def _send(self, chunk: Chunk, records: Sequence[BadRecord], source: OffsetRange, letters: DeadLetters) -> None:
        for each in records:
            record = raw_record(self.settings, source, chunk.records["offset"][each.index].as_py())
            letters.send(record, [BadRecord(index=0, reason=f"table={self.table} {each.reason}")], source)


def _repeated(chunk: Chunk, repeats: Mapping[SourceTable, RepeatedChanges]) -> dict[SourceTable, IndexArray]:
    """The offsets of changes that a table has already, by source table."""
    found, offsets = {}, chunk.records["offset"].to_numpy()
    for source, each in repeats.items():
        pieces = [piece for piece in chunk.routed.pieces if piece.source == source]
        stamps = stamps_of(*ordered_meta(pieces, offsets)) if pieces else None
        if stamps is not None:
            found[source] = each.offsets(stamps)
    return found


def way_on(table: str, offset: int) -> str:
    """The fix that a message names for a record that cannot be read."""
    return f"correct the source, set dead-letters to a topic, or: fluvial cdc skip {table} --until {offset + 1}"


def leave_out_all(table: str) -> str:
    """What a message adds where no record of a table can be read."""
    return f"leave out what is there: fluvial cdc skip {table} --until end"


def _by_calendar(piece: RecordPiece, part: RowPart, chosen: BoolArray) -> Iterator[tuple[Mapping[str, Any], BoolArray]]:
    """The chosen records, (n,), by the calendar of their timestamps, each with the part that says so."""
    if not has_moments(part.row):
        yield part.row, chosen
        return
    is_postgres = flags(pc.equal(pc.struct_field(piece.meta, ["source", "connector"]), POSTGRES_CONNECTOR))
    is_read = is_postgres & flags(pc.equal(pc.struct_field(piece.meta, "op"), READ))
    for mask, row in (
        (chosen & ~is_postgres, part.row),
        (chosen & is_read, with_julian_moments(part.row, is_snapshot=True)),
        (chosen & is_postgres & ~is_read, with_julian_moments(part.row, is_snapshot=False)),
    ):
        if mask.any():
            yield row, mask


def _already_split(part: Mapping[str, Any] | None) -> Split:
    """Rows of payloads without their schema part, which is given."""

    def split(texts: pa.Array) -> tuple[list[Payloads], tuple[BadRecord, ...]]:
        return [Payloads(schema_part=part, indices=np.arange(len(texts)), texts=texts)], ()

    return split


_TEXT: Final = DataType(root="VARCHAR", length=2**31 - 1)


def _cast(values: pa.Array, source: DataType, target: DataType, column: str) -> pa.Array:
    bare, wanted = replace(source, nullable=True), replace(target, nullable=True)
    if bare == wanted:
        return values
    if target.root in NESTED_ROOTS:
        return conform(values, target, column)  # fields by name: a record knows no ids
    return cast_array(values, bare, wanted)


def _filtered(found: DecodedChanges, kept: pa.BooleanArray) -> DecodedChanges:
    return replace(
        found,
        rows=found.rows.filter(kept),
        kinds=found.kinds.filter(kept),
        record_indices=found.record_indices[flags(kept)],
        unavailable=None if found.unavailable is None else found.unavailable.filter(kept),
        old_keys=None if found.old_keys is None else found.old_keys.filter(kept),
    )


def _with_moved(found: DecodedChanges, keys: Sequence[str]) -> DecodedChanges:
    """The changes, where each row before an update is a delete if the update changes its key, and else left out."""
    kinds = found.kinds.to_numpy(zero_copy_only=False)
    is_before = kinds == RowKind.UPDATE_BEFORE
    if not is_before.any():
        return found
    before = np.flatnonzero(is_before)  # its update follows it
    is_moved = np.zeros(len(before), np.bool_)
    for name in keys:
        column = found.rows.column(found.rows.schema.get_field_index(name))
        old, new = column.take(pa.array(before)), column.take(pa.array(before + 1))
        is_moved |= ~flags(pc.fill_null(pc.equal(old, new), False))
    kept = ~is_before
    kept[before[is_moved]] = True
    return _filtered(
        replace(found, kinds=pa.array(np.where(is_before, np.int8(RowKind.DELETE), kinds), pa.int8())), pa.array(kept)
    )


def _with_marked(found: DecodedChanges, meta: pa.StructArray) -> tuple[DecodedChanges, pa.StructArray]:
    """The changes with each deleted row once more behind it, as an insert.

    A table without a key finds a row by all its values, so a row that becomes a marked one is taken back first.
    """
    kinds = found.kinds.to_numpy(zero_copy_only=False)
    places = np.repeat(np.arange(len(kinds)), np.where(kinds == RowKind.DELETE, 2, 1))
    is_second = np.append(False, places[1:] == places[:-1])
    indices = pa.array(places)
    return replace(
        found,
        rows=found.rows.take(indices),
        kinds=pa.array(np.where(is_second, np.int8(RowKind.INSERT), kinds[places]), pa.int8()),
        record_indices=found.record_indices[places],
        unavailable=None if found.unavailable is None else found.unavailable.take(indices),
        old_keys=None if found.old_keys is None else found.old_keys.take(indices),
    ), meta.take(indices)


def _renamed_lists(lists: pa.Array | None, names: Mapping[str, str]) -> pa.Array | None:
    """Lists of source columns as lists of the table's; columns that the table leaves out are dropped."""
    if lists is None:
        return None
    masks = {names[name]: mask for name, mask in columns_of_masks(lists).items() if name in names}
    return mask_column(masks, len(lists))


def _with_nulls(
    lists: pa.Array | None, rows: pa.RecordBatch, names: Mapping[str, str], chosen: BoolArray
) -> pa.Array | None:
    """The lists, with the columns that are null in the chosen rows: a deleted row has its key only, and keeps all."""
    if not chosen.any():
        return lists
    masks = {} if lists is None else {name: mask & ~chosen for name, mask in columns_of_masks(lists).items()}
    for name, column in names.items():
        is_null = flags(rows.column(name).is_null()) if name in rows.schema.names else True
        masks[column] = masks.get(column, False) | (chosen & is_null)
    return mask_column(masks, rows.num_rows)


def _alike(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with the same columns: some have lists of unavailable columns, others need none."""
    if not any(UNAVAILABLE_COLUMN in each.schema.names for each in batches):
        return list(batches)
    return [_with_lists(each) for each in batches]


def _with_lists(rows: pa.RecordBatch) -> pa.RecordBatch:
    if UNAVAILABLE_COLUMN in rows.schema.names:
        return rows
    return rows.append_column(UNAVAILABLE_COLUMN, pa.nulls(rows.num_rows, pa.list_(pa.string())))
