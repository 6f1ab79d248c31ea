"""Change events of Debezium connectors, decoded to row changes.

Create ``c`` and snapshot read ``r`` become ``+I``, update ``u`` becomes ``+U`` (or ``-U`` and ``+U``), delete ``d``
becomes ``-D``. The tombstone that follows a delete is redundant. A truncate is no change of rows: it is listed apart.

Source: Debezium documentation "Data change events", "Tombstone events", "Temporal types", "Decimal types".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.connect_types import row_part
from logstore.format.envelopes import Envelopes, KindArray, pick_sides, read_envelopes
from logstore.format.schema_parts import Payloads, Split, split_payloads
from logstore.format.source.column_values import ColumnPlan, part_fields, row_plan
from logstore.format.source.old_keys import header_part
from logstore.format.source.ranges import OutOfRange, Refusal
from logstore.format.source.unavailable import UNAVAILABLE_VALUE, is_blank, mask_column, placeholders, without
from logstore.json.arrow_bytes import as_binary, flags, gathered, rows_where
from logstore.json.decoding import decode_objects
from logstore.json.reading import UNITS_PER_DAY, BadRecord, UnreadableError, parsed, reading_of
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

PartialDeletes = Literal["keep", "null", "fail"]
"""Treatment of a delete whose row has only its key: it stays as written, gets null for the rest, or is bad."""
KEY_ONLY: Final = (
    "a delete has only its key, and the values of its row are needed "
    "fix='set REPLICA IDENTITY FULL (PostgreSQL) or binlog_row_image=FULL (MySQL)'"
)
"""The reason why such a delete is a bad record."""
_NO_OLD_KEY: Final = "an update changed the key and left values out, and the old key, whose row has them, is not known"
GUESS: Final = "?"
"""Behind a unit that was derived from a column's type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedChanges:
    """Row changes in record order; a record may give none, and an update may give two."""

    rows: pa.RecordBatch
    kinds: pa.Array  # (rows,) int8 RowKind
    record_indices: IndexArray  # (rows,) index of the record of each change
    bad: tuple[BadRecord, ...]  # unreadable records
    truncates: tuple[int, ...] = ()  # ascending indices of truncate events: all rows before each are gone
    unavailable: pa.Array | None = None  # (rows,) list<string>: columns whose value was left out; None: nowhere
    old_keys: pa.StructArray | None = None
    """(rows,) the key columns of the row whose values were left out, where that is another row; None: nowhere."""


def decode_envelopes(
    values: pa.Array,
    *,
    schema: pa.Schema,
    keys: pa.Array | None = None,
    key_names: Sequence[str] = (),
    old_keys: pa.Array | None = None,
    on_error: Literal["fail", "collect"] = "fail",
    with_update_before: bool = False,
    epoch_units: Mapping[str, str] | None = None,
    base64_decimals: bool = False,
    split: Split = split_payloads,
    key_split: Split | None = None,
    out_of_range: OutOfRange = "fail",
    unavailable_values: Literal["fail", "keep"] = "fail",
    placeholder: str = UNAVAILABLE_VALUE,
    with_truncates: bool = False,
    partial_deletes: PartialDeletes = "keep",
) -> DecodedChanges:
    """Decode change events with and without Connect's schema part (they may be mixed).

    Dates, times and timestamps may be ISO texts or numbers. The schema part gives the unit of numbers; without one,
    ``epoch_units`` does, or else days for DATE, milliseconds for TIME and the column's own unit for TIMESTAMP.
    Zoned texts are converted to UTC. Unknown members are ignored; columns missing in an event are null. With a schema
    part, a STRING column takes any scalar of the source: times, decimals of any size, numbers.

    Args:
        values: (n,) binary; null is a tombstone.
        schema: the columns to read.
        keys: (n,) binary or null, the records' keys: objects, with or without a schema part. With them, a delete
            without its row and a tombstone without a preceding delete become ``-D`` rows with the key columns
            only; without them, the former is a bad record and the latter is ignored.
        key_names: the columns of the keys.
        old_keys: (n,) binary, the header ``__debezium.oldkey``: an update that changes a key comes as a delete and a
            create, which has placeholders as an update has; null: no such record. None: there are no headers.
        on_error: ``fail`` raises for the first bad record; ``collect`` returns bad records beside the rows of others.
        with_update_before: updates give ``-U`` and ``+U``.
        epoch_units: by column, the unit of numbers: D s ms us ns; with a question mark behind it, it is a guess: then
            numbers that give a moment near 1970 are refused, as where nothing is said.
        base64_decimals: without a schema part, decimals are base64 of their unscaled bytes with their column's
            scale (``decimal.handling.mode=precise``). Never inferred: such a text may look like a number.
        split: splits records into payloads and schema parts; the default is for JSON.
        key_split: the same of keys; None: as ``split``.
        out_of_range: what becomes of dates outside of the years 1 to 9999, which stand for infinity, and of decimals
            with more digits than their column: the record is bad, or the value becomes null or the nearest one.
        unavailable_values: what becomes of an update with placeholders for values that the connector does not have:
            the record is bad, or the row is kept with null for them and their names in ``unavailable``. Creates
            without an old key and deletes have none: there the placeholder is a text like any other.
        placeholder: the connector's ``unavailable.value.placeholder``.
        with_truncates: truncate events are listed in ``truncates``; else they are bad records.
        partial_deletes: what becomes of a delete whose row has only its key, see ``is_blank``. It is known by the
            record's key, or by ``key_names``; without either, only a delete that has no row is known for one.

    Raises:
        InvalidInputError: a bad record, with its index and the reason; or the arguments contradict each other.
    """
    _check_arguments(schema, key_names, epoch_units or {})
    values, keys = as_binary(values), None if keys is None else as_binary(keys)
    table = _Target(
        schema=schema,
        key_names=tuple(key_names) if keys is not None else (),
        epoch_units=epoch_units or {},
        base64_decimals=base64_decimals,
        split=split,
        key_split=key_split or split,
        out_of_range=out_of_range,
        placeholder=placeholder,
        partial_deletes=partial_deletes,
    )
    has_old_key = None if old_keys is None or old_keys.null_count == len(old_keys) else flags(old_keys.is_valid())
    events, tombstones = _read_events(
        values, keys, table, has_old_key, with_update_before=with_update_before, takes_truncates=with_truncates
    )
    moved, unknown = None, list[BadRecord]()
    if has_old_key is not None and unavailable_values == "keep":
        events, moved, unknown = _with_old_keys(events, keys, old_keys, table)
    bad = [*events.bad, *unknown]
    parts, lacking = _event_rows(
        events, schema, with_update_before=with_update_before, keeps_unavailable=unavailable_values == "keep"
    )
    bad += lacking
    without_row = events.indices[(events.kinds == RowKind.DELETE) & flags(events.before.is_null())]
    if keys is not None and key_names:
        lone = _lone(tombstones, events.indices[events.kinds == RowKind.DELETE], keys)
        if partial_deletes == "fail":
            bad += [BadRecord(index=int(each), reason=KEY_ONLY) for each in lone]
            lone = lone[:0]
        keyed, bad_keys = _key_rows(keys, np.union1d(without_row, lone), table)
        parts.append(keyed)
        bad += bad_keys
    bad.sort(key=lambda record: record.index)
    if bad and on_error == "fail":
        where = f"index={bad[0].index} records={len(values)} bad={len(bad)}"
        raise InvalidInputError(f"a change record cannot be read: {where} reason={bad[0].reason}")
    found = replace(_merged(parts, tuple(bad)), truncates=events.truncates)
    return found if moved is None else replace(found, old_keys=_of_rows(moved, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    schema: pa.Schema
    key_names: tuple[str, ...]
    epoch_units: Mapping[str, str]
    base64_decimals: bool
    split: Split
    key_split: Split
    out_of_range: OutOfRange
    placeholder: str
    partial_deletes: PartialDeletes

    def plan(self, columns: pa.Schema, part: Mapping[str, Any] | None) -> ColumnPlan:
        """How rows of these columns are read; what the schema part says comes before what the caller says.

        Args:
            columns: of the row.
            part: the row's own schema part.
        """
        readings = {}
        for column in columns:
            default = reading_of(column.type, lenient=True)
            if column.name in self.epoch_units:
                unit = self.epoch_units[column.name]
                bare = unit.removesuffix(GUESS)
                default = replace(default, epoch_unit=bare, is_unit_guessed=bare != unit)
            if self.base64_decimals and pa.types.is_decimal(column.type):
                default = replace(default, unscaled_scale=column.type.scale)
            readings[column.name] = default
        return row_plan(part, readings, out_of_range=self.out_of_range)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some of the changes, not yet merged into record order."""

    rows: pa.RecordBatch
    kinds: KindArray
    indices: IndexArray
    unavailable: pa.Array | None = None


def _check_arguments(schema: pa.Schema, key_names: Sequence[str], epoch_units: Mapping[str, str]) -> None:
    missing = [name for name in (*key_names, *epoch_units) if name not in schema.names]
    if missing:
        raise InvalidInputError(f"unknown columns: missing={missing} columns={schema.names}")
    wrong = {name: unit for name, unit in epoch_units.items() if unit.removesuffix(GUESS) not in UNITS_PER_DAY}
    if wrong:
        raise InvalidInputError(f"unknown units: epoch_units={wrong} expected={list(UNITS_PER_DAY)}")


def _read_events(
    values: pa.Array,
    keys: pa.Array | None,
    table: _Target,
    has_old_key: BoolArray | None,
    *,
    with_update_before: bool,
    takes_truncates: bool,
) -> tuple[Envelopes, IndexArray]:
    """The events in record order, and the indices of the tombstones."""
    is_tombstone = flags(values.is_null())
    record_indices = np.flatnonzero(~is_tombstone)
    groups, bad = table.split(values.drop_null() if is_tombstone.any() else values)
    found = [
        Envelopes(
            before=_no_rows(table.schema),
            after=_no_rows(table.schema),
            kinds=np.zeros(0, np.int8),
            indices=np.zeros(0, np.int64),
            bad=bad,
        )
    ]
    for group in groups:
        is_empty = flags(pc.equal(group.texts, b"null"))
        is_tombstone[record_indices[group.indices[is_empty]]] = True
        indices = group.indices[~is_empty]
        plan = table.plan(table.schema, row_part(group.schema_part))
        events = read_envelopes(
            rows_where(group.texts, ~is_empty),
            plan.reading,
            needs_before=with_update_before,
            allows_keyed_delete=bool(table.key_names) and table.partial_deletes != "fail",
            takes_truncates=takes_truncates,
        )
        have = None if has_old_key is None else has_old_key[record_indices][indices]
        events = converted(without_placeholders(events, table.placeholder, have), plan)
        if table.partial_deletes != "keep":
            own = None if keys is None else keys.take(pa.array(record_indices[indices]))
            events = _without_partial(events, own, table, _defaults(row_part(group.schema_part), plan))
        found.append(at(events, indices))
    merged = in_record_order(found)
    return at(merged, record_indices), np.flatnonzero(is_tombstone)


def _defaults(part: Mapping[str, Any] | None, plan: ColumnPlan) -> pa.StructArray | None:
    """(1,) the defaults that the schema part has, as a row; None: it has none, or there is none."""
    named = {each.get("field"): each["default"] for each in part_fields(part) if each.get("default") is not None}
    rows = decode_objects(pa.array([json.dumps(named).encode()]), plan.reading).rows if named else ()
    return plan.converted(rows).values if len(rows) else None


def _without_partial(
    events: Envelopes, keys: pa.Array | None, table: _Target, defaults: pa.StructArray | None
) -> Envelopes:
    """The events without what stands in deletes for values that were not logged, or without these deletes.

    Args:
        events: with rows in the types of the columns.
        keys: (records,) of the records.
        table: says which of both.
        defaults: of the columns.
    """
    places = np.flatnonzero((events.kinds == RowKind.DELETE) & flags(events.before.is_valid()))
    if not places.size:
        return events
    names = table.schema.names
    rows = events.before.take(pa.array(places)).flatten()
    known = [None] * len(names) if defaults is None else defaults.flatten()
    blank = dict(zip(names, map(is_blank, rows, known), strict=True))
    is_partial = np.zeros(len(events.kinds), bool)
    lacks = {name: np.zeros(len(events.kinds), bool) for name in names}
    for part, key_names in _names_of_keys(keys, events.indices[places], table):
        rest = [name for name in names if name not in key_names]
        here = np.logical_and.reduce([blank[name][part] for name in rest]) if rest and key_names else False
        is_partial[places[part]] = here
        for name in rest:
            lacks[name][places[part]] = here
    if not is_partial.any():
        return events
    if table.partial_deletes == "fail":
        bad = [BadRecord(index=int(each), reason=KEY_ONLY) for each in events.indices[is_partial]]
        return _with_bad(events, ~is_partial, bad)
    return replace(events, before=_with_nulls(events.before, lacks))


def _names_of_keys(keys: pa.Array | None, indices: IndexArray, table: _Target) -> list[tuple[IndexArray, list[str]]]:
    """Places in ``indices``, which are of records, and the columns of the keys of these records."""
    if table.key_names:
        return [(np.arange(len(indices)), list(table.key_names))]
    if keys is None:
        return []
    own = keys.take(pa.array(indices))
    is_there = np.flatnonzero(flags(own.is_valid()))
    found = []
    for group in table.key_split(own.drop_null())[0] if is_there.size else ():
        try:
            key = parsed(group.texts[0].as_py().decode())
        except (UnreadableError, UnicodeDecodeError):
            continue
        if isinstance(key, dict):
            found.append((is_there[group.indices], [name for name in key if name in table.schema.names]))
    return found


def _no_rows(schema: pa.Schema) -> pa.StructArray:
    return pa.array([], pa.struct(list(schema)))


def _event_rows(
    events: Envelopes, schema: pa.Schema, *, with_update_before: bool, keeps_unavailable: bool
) -> tuple[list[_Part], list[BadRecord]]:
    """Rows contained in the events, and those whose missing values make a bad record."""
    is_delete = events.kinds == RowKind.DELETE
    rows = pa.RecordBatch.from_arrays(pick_sides(events, is_delete), schema=schema)
    kept = ~(is_delete & flags(events.before.is_null()))
    bad = []
    marked = events.unavailable
    if marked is not None and not keeps_unavailable:
        lacking = flags(marked.is_valid())
        bad = [
            BadRecord(
                index=int(index),
                reason=f"{names[0]}: an unchanged large value is missing: columns={','.join(names)} "
                "fix='set REPLICA IDENTITY FULL, or unavailable-values=keep'",
            )
            for index, names in zip(events.indices[lacking], marked.filter(pa.array(lacking)).to_pylist(), strict=True)
        ]
        kept, marked = kept & ~lacking, None
    main = _Part(rows=rows, kinds=events.kinds, indices=events.indices, unavailable=marked)
    if not kept.all():
        main = _filtered(main, kept)
    if not with_update_before:
        return [main], bad
    is_update = (events.kinds == RowKind.UPDATE_AFTER) & kept
    before = pa.RecordBatch.from_arrays(events.before.filter(pa.array(is_update)).flatten(), schema=schema)
    kinds = np.full(len(before), RowKind.UPDATE_BEFORE, np.int8)
    return [_Part(rows=before, kinds=kinds, indices=events.indices[is_update]), main], bad


def _filtered(part: _Part, kept: BoolArray) -> _Part:
    mask = pa.array(kept)
    return _Part(
        rows=part.rows.filter(mask),
        kinds=part.kinds[kept],
        indices=part.indices[kept],
        unavailable=None if part.unavailable is None else part.unavailable.filter(mask),
    )


def _lone(tombstones: IndexArray, deleted: IndexArray, keys: pa.Array) -> IndexArray:
    """Tombstones not directly preceded by a delete or tombstone of the same key."""
    if tombstones.size == 0:
        return tombstones
    codes = np.asarray(keys.dictionary_encode().indices.fill_null(-1))
    order = np.argsort(codes, kind="stable")
    is_deleted = np.zeros(len(keys), bool)
    is_deleted[tombstones] = True
    is_deleted[deleted] = True
    is_repeated = np.zeros(len(keys), bool)
    is_repeated[order[1:]] = (codes[order[1:]] == codes[order[:-1]]) & is_deleted[order[:-1]] & (codes[order[1:]] >= 0)
    lone: IndexArray = tombstones[~is_repeated[tombstones]]
    return lone


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldKeys:
    """Keys that rows had before, by the index of their record."""

    rows: pa.StructArray
    indices: IndexArray  # (n,) ascending


def _with_old_keys(
    events: Envelopes, keys: pa.Array | None, old_keys: pa.Array, table: _Target
) -> tuple[Envelopes, _OldKeys | None, list[BadRecord]]:
    """The old keys of creates that lack values; a create with an unreadable old key is a bad record."""
    if events.unavailable is None:
        return events, None, []
    moved = events.indices[(events.kinds == RowKind.INSERT) & flags(events.unavailable.is_valid())]
    if not moved.size:
        return events, None, []
    if keys is None or not table.key_names:
        unknown = [BadRecord(index=int(each), reason=_NO_OLD_KEY) for each in moved]
        return events_without(events, moved), None, unknown
    own = keys.take(pa.array(moved))
    parts = [(group.schema_part, group.indices) for group in table.key_split(own.fill_null(b"null"))[0]]
    texts = old_keys.take(pa.array(moved)).cast(pa.binary())
    groups: list[Payloads] = []
    bad: list[BadRecord] = []
    for part, places in parts:
        found, unreadable = split_payloads(texts.take(pa.array(places)))
        groups += [
            Payloads(schema_part=each.schema_part or header_part(part), indices=places[each.indices], texts=each.texts)
            for each in found
        ]
        bad += [BadRecord(index=int(moved[places[each.index]]), reason=each.reason) for each in unreadable]
    rows, indices, refused = _typed_keys(groups, moved, table)
    order = np.argsort(indices)
    rows, indices = rows.take(pa.array(order)), indices[order]
    lacks = np.logical_or.reduce([flags(column.is_null()) for column in rows.flatten()])
    rows, indices = rows_where(rows, ~lacks), indices[~lacks]
    reasons = {each.index: each.reason for each in (*bad, *refused)}
    lost = np.setdiff1d(moved, indices)
    unknown = [BadRecord(index=int(each), reason=f"{_NO_OLD_KEY}: {reasons.get(int(each), '')}") for each in lost]
    return events_without(events, lost), _OldKeys(rows=rows, indices=indices), unknown


def _of_rows(moved: _OldKeys, found: DecodedChanges) -> pa.StructArray:
    """(rows,) the old key of each row, null for most."""
    at = np.searchsorted(moved.indices, found.record_indices)
    is_there = np.append(moved.indices, -1)[np.minimum(at, len(moved.indices))] == found.record_indices
    return moved.rows.take(pa.array(at, mask=~is_there))


def _key_rows(keys: pa.Array, indices: IndexArray, table: _Target) -> tuple[_Part, list[BadRecord]]:
    """``-D`` rows with only the key columns set, from the keys of the given records."""
    chosen = keys.take(pa.array(indices, pa.int64()))
    has_key = flags(chosen.is_valid())
    bad = [BadRecord(index=int(index), reason="a delete has neither row nor key") for index in indices[~has_key]]
    indices, chosen = indices[has_key], chosen.drop_null()
    groups, unreadable = table.key_split(chosen)
    bad += [BadRecord(index=int(indices[record.index]), reason=f"key: {record.reason}") for record in unreadable]
    typed, row_indices, refused = _typed_keys(groups, indices, table)
    key_columns = dict(zip(table.key_names, typed.flatten(), strict=True))
    columns = [key_columns.get(field.name) for field in table.schema]
    filled = [
        pa.nulls(len(row_indices), f.type) if column is None else column
        for column, f in zip(columns, table.schema, strict=True)
    ]
    kinds = np.full(len(row_indices), RowKind.DELETE, np.int8)
    rows = pa.RecordBatch.from_arrays(filled, schema=table.schema)
    return _Part(rows=rows, kinds=kinds, indices=row_indices), bad + refused


def _typed_keys(
    groups: Sequence[Payloads], indices: IndexArray, table: _Target
) -> tuple[pa.StructArray, IndexArray, list[BadRecord]]:
    """Keys as rows of the key columns, the index of the record of each, and keys that cannot be read."""
    key_schema = pa.schema([table.schema.field(name) for name in table.key_names])
    rows, places, bad = [_no_rows(key_schema)], [np.zeros(0, np.int64)], list[BadRecord]()
    for group in groups:
        plan = table.plan(key_schema, group.schema_part)
        decoded = decode_objects(group.texts, plan.reading)
        typed = plan.converted(decoded.rows)
        place = indices[group.indices]
        bad += [BadRecord(index=int(place[record.index]), reason=f"key: {record.reason}") for record in decoded.bad]
        place, kept = place[decoded.indices], np.ones(len(decoded.rows), bool)
        for each in typed.refused:
            new = each.mask & kept
            bad += [BadRecord(index=int(index), reason=f"key: {each.reason}") for index in place[new]]
            kept &= ~each.mask
        rows.append(rows_where(typed.values, kept))
        places.append(place[kept])
    return pa.concat_arrays(rows), np.concatenate(places), bad


def _merged(parts: Sequence[_Part], bad: tuple[BadRecord, ...]) -> DecodedChanges:
    """All parts in record order; within a record, in the order of the parts."""
    parts = [part for part in parts if len(part.indices)] or parts[:1]
    rows, kinds, indices = parts[0].rows, parts[0].kinds, parts[0].indices
    unavailable = masks([(part.unavailable, len(part.indices)) for part in parts])
    if len(parts) > 1:
        indices = np.concatenate([part.indices for part in parts])
        order = np.argsort(indices, kind="stable")
        rows = gathered([part.rows for part in parts], order)
        kinds, indices = np.concatenate([part.kinds for part in parts])[order], indices[order]
        unavailable = None if unavailable is None else unavailable.take(pa.array(order))
    return DecodedChanges(
        rows=rows, kinds=pa.array(kinds, pa.int8()), record_indices=indices, bad=bad, unavailable=unavailable
    )


# ---- Events as they were read, made ready: without placeholders, in the types of the columns, in the order of
# records


def at(events: Envelopes, indices: IndexArray) -> Envelopes:
    """The same events of records at these places."""
    return replace(
        events,
        indices=indices[events.indices],
        bad=tuple(replace(record, index=int(indices[record.index])) for record in events.bad),
        truncates=tuple(int(indices[index]) for index in events.truncates),
    )


def without_placeholders(events: Envelopes, placeholder: str, has_old_key: BoolArray | None) -> Envelopes:
    """Null for values that updates left out, before anything is converted, and where they were.

    Args:
        events: as they were read.
        placeholder: stands for a value.
        has_old_key: (records,) whether each is the second half of an update that changes the key; None: none is.
    """
    is_update = events.kinds == RowKind.UPDATE_AFTER
    if has_old_key is not None:
        is_update |= (events.kinds == RowKind.INSERT) & has_old_key[events.indices]
    if not is_update.any():
        return events
    names = [field.name for field in events.after.type]
    columns = events.after.flatten()
    masks = {name: placeholders(column, placeholder) & is_update for name, column in zip(names, columns, strict=True)}
    marked = mask_column(masks, len(is_update))
    if marked is None:
        return events
    return replace(events, after=_with_nulls(events.after, masks), unavailable=marked)


def _with_nulls(rows: pa.StructArray, masks: Mapping[str, BoolArray]) -> pa.StructArray:
    """The rows, with null in each column where its mask is true."""
    columns = [without(each, masks[field.name]) for field, each in zip(rows.type, rows.flatten(), strict=True)]
    missing = rows.is_null() if rows.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(rows.type), mask=missing)


def converted(events: Envelopes, plan: ColumnPlan) -> Envelopes:
    """Rows in the types of the columns; events with a value that cannot be converted are bad."""
    if plan.step is None:
        return events
    before, after = plan.converted(events.before), plan.converted(events.after)
    refused = [
        Refusal(each.mask, f"{side}: {each.reason}")
        for side, rows in (("before", before), ("after", after))
        for each in rows.refused
    ]
    if not refused:
        return replace(events, before=before.values, after=after.values)
    reasons: dict[int, str] = {}
    for each in refused:
        for row in np.flatnonzero(each.mask).tolist():
            reasons.setdefault(row, each.reason)
    bad = [BadRecord(index=int(events.indices[row]), reason=reason) for row, reason in reasons.items()]
    kept = np.ones(len(events.kinds), bool)
    kept[list(reasons)] = False
    readable = replace(events, before=before.values, after=after.values)
    return _with_bad(readable, kept, bad)


def events_without(events: Envelopes, indices: IndexArray) -> Envelopes:
    """The events but those of some records."""
    kept = ~np.isin(events.indices, indices)
    return events if kept.all() else _kept(events, kept)


def _with_bad(events: Envelopes, kept: BoolArray, bad: Sequence[BadRecord]) -> Envelopes:
    """The events that the mask has; the records of the others are bad ones."""
    return replace(_kept(events, kept), bad=tuple(sorted([*events.bad, *bad], key=lambda record: record.index)))


def _kept(events: Envelopes, kept: BoolArray) -> Envelopes:
    """The events that the mask has; bad records and truncates stay."""
    return replace(
        events,
        before=rows_where(events.before, kept),
        after=rows_where(events.after, kept),
        kinds=events.kinds[kept],
        indices=events.indices[kept],
        unavailable=None if events.unavailable is None else rows_where(events.unavailable, kept),
    )


def in_record_order(found: Sequence[Envelopes]) -> Envelopes:
    """The events of several groups of records, ordered by record; at least one group."""
    bad = tuple(record for envelopes in found for record in envelopes.bad)
    truncates = tuple(sorted(index for envelopes in found for index in envelopes.truncates))
    found = [envelopes for envelopes in found if len(envelopes.indices)] or found[:1]
    if len(found) == 1:
        return replace(found[0], bad=bad, truncates=truncates)
    indices = np.concatenate([envelopes.indices for envelopes in found])
    order = np.argsort(indices)
    before, after = (
        pa.concat_arrays(sides).take(pa.array(order)) for sides in ([e.before for e in found], [e.after for e in found])
    )
    kinds = np.concatenate([envelopes.kinds for envelopes in found])[order]
    unavailable = masks([(each.unavailable, len(each.indices)) for each in found])
    return Envelopes(
        before=before,
        after=after,
        kinds=kinds,
        indices=indices[order],
        bad=bad,
        truncates=truncates,
        unavailable=None if unavailable is None else unavailable.take(pa.array(order)),
    )


def masks(parts: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    """The masks of adjacent parts of given lengths; None: no part has one."""
    if all(mask is None for mask, _ in parts):
        return None
    kind = pa.list_(pa.string())
    return pa.concat_arrays([pa.nulls(count, kind) if mask is None else mask.cast(kind) for mask, count in parts])
