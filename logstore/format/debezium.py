"""Change events of Debezium connectors, decoded to row changes.

Create ``c`` and snapshot read ``r`` become ``+I``, update ``u`` becomes ``+U`` (or ``-U`` and ``+U``), delete ``d``
becomes ``-D``. The tombstone that follows a delete is redundant. A truncate is refused: it is not a change of rows.

Source: Debezium documentation "Data change events", "Tombstone events", "Temporal types", "Decimal types".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.envelopes import Envelopes, KindArray, pick_sides, read_envelopes
from logstore.format.schema_parts import Split, special_readings, split_payloads
from logstore.json.arrow_bytes import as_binary, flags, gathered, rows_where
from logstore.json.decoding import decode_objects
from logstore.json.reading import UNITS_PER_DAY, BadRecord, Reading, reading_of, row_reading
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""The placeholder of PostgreSQL's connector for a large (TOAST) value that an update did not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedChanges:
    """Row changes in record order; a record may give none, and an update may give two."""

    rows: pa.RecordBatch
    kinds: pa.Array  # (rows,) int8 RowKind
    record_indices: IndexArray  # (rows,) index of the record of each change
    bad: tuple[BadRecord, ...]  # unreadable records


def decode_envelopes(
    values: pa.Array,
    *,
    schema: pa.Schema,
    keys: pa.Array | None = None,
    key_names: Sequence[str] = (),
    on_error: Literal["fail", "collect"] = "fail",
    with_update_before: bool = False,
    epoch_units: Mapping[str, str] | None = None,
    base64_decimals: bool = False,
    split: Split = split_payloads,
) -> DecodedChanges:
    """Decode change events with and without Connect's schema part (they may be mixed).

    Dates, times and timestamps may be ISO texts or numbers. The schema part gives the unit of numbers; without one,
    ``epoch_units`` does, or else days for DATE, milliseconds for TIME and the column's own unit for TIMESTAMP.
    Zoned texts are converted to UTC. Unknown members are ignored; columns missing in an event are null.

    Args:
        values: (n,) binary; null is a tombstone.
        schema: the columns to read.
        keys: (n,) binary or null, the records' keys: objects, with or without a schema part. With them, a delete
            without its row and a tombstone without a preceding delete become ``-D`` rows with the key columns
            only; without them, the former is a bad record and the latter is ignored.
        key_names: the columns of the keys.
        on_error: ``fail`` raises for the first bad record; ``collect`` returns bad records beside the rows of others.
        with_update_before: updates give ``-U`` and ``+U``.
        epoch_units: by column, the unit of numbers: D s ms us ns.
        base64_decimals: without a schema part, decimals are base64 of their unscaled bytes with their column's
            scale (``decimal.handling.mode=precise``). Never inferred: such a text may look like a number.
        split: splits records into payloads and schema parts; the default is for JSON.

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
    )
    events, tombstones = _read_events(values, table, with_update_before=with_update_before)
    bad = list(events.bad)
    parts, unavailable = _event_rows(events, schema, with_update_before=with_update_before)
    bad += unavailable
    without_row = events.indices[(events.kinds == RowKind.DELETE) & flags(events.before.is_null())]
    if keys is not None and key_names:
        deleted = events.indices[events.kinds == RowKind.DELETE]
        keyed, bad_keys = _key_rows(keys, np.union1d(without_row, _lone(tombstones, deleted, keys)), table)
        parts.append(keyed)
        bad += bad_keys
    bad.sort(key=lambda record: record.index)
    if bad and on_error == "fail":
        where = f"index={bad[0].index} records={len(values)} bad={len(bad)}"
        raise InvalidInputError(f"a change record cannot be read: {where} reason={bad[0].reason}")
    return _merged(parts, tuple(bad))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    schema: pa.Schema
    key_names: tuple[str, ...]
    epoch_units: Mapping[str, str]
    base64_decimals: bool
    split: Split

    def reading(self, columns: pa.Schema, declared: Mapping[str, Reading]) -> Reading:
        """The reading of a row of these columns; readings from the schema part override the caller's."""
        special = {}
        for column in columns:
            default = reading_of(column.type, lenient=True)
            if column.name in self.epoch_units:
                default = replace(default, epoch_unit=self.epoch_units[column.name])
            if self.base64_decimals and pa.types.is_decimal(column.type):
                default = replace(default, unscaled_scale=column.type.scale)
            special[column.name] = declared.get(column.name, default)
        return row_reading(columns, lenient=True, special=special)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some of the changes, not yet merged into record order."""

    rows: pa.RecordBatch
    kinds: KindArray
    indices: IndexArray


def _check_arguments(schema: pa.Schema, key_names: Sequence[str], epoch_units: Mapping[str, str]) -> None:
    missing = [name for name in (*key_names, *epoch_units) if name not in schema.names]
    if missing:
        raise InvalidInputError(f"unknown columns: missing={missing} columns={schema.names}")
    wrong = {name: unit for name, unit in epoch_units.items() if unit not in UNITS_PER_DAY}
    if wrong:
        raise InvalidInputError(f"unknown units: epoch_units={wrong} expected={list(UNITS_PER_DAY)}")


def _read_events(values: pa.Array, table: _Target, *, with_update_before: bool) -> tuple[Envelopes, IndexArray]:
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
        row = table.reading(table.schema, special_readings(group.schema_part, table.schema, row_field="after"))
        texts = rows_where(group.texts, ~is_empty)
        events = read_envelopes(texts, row, needs_before=with_update_before, allows_keyed_delete=bool(table.key_names))
        bad_events = tuple(replace(record, index=int(indices[record.index])) for record in events.bad)
        found.append(replace(events, indices=indices[events.indices], bad=bad_events))
    merged = _in_record_order(found)
    bad = tuple(replace(record, index=int(record_indices[record.index])) for record in merged.bad)
    return replace(merged, indices=record_indices[merged.indices], bad=bad), np.flatnonzero(is_tombstone)


def _in_record_order(found: Sequence[Envelopes]) -> Envelopes:
    bad = tuple(record for envelopes in found for record in envelopes.bad)
    found = [envelopes for envelopes in found if len(envelopes.indices)] or found[:1]
    if len(found) == 1:
        return replace(found[0], bad=bad)
    indices = np.concatenate([envelopes.indices for envelopes in found])
    order = np.argsort(indices)
    before, after = (
        pa.concat_arrays(sides).take(pa.array(order)) for sides in ([e.before for e in found], [e.after for e in found])
    )
    kinds = np.concatenate([envelopes.kinds for envelopes in found])[order]
    return Envelopes(before=before, after=after, kinds=kinds, indices=indices[order], bad=bad)


def _no_rows(schema: pa.Schema) -> pa.StructArray:
    return pa.array([], pa.struct(list(schema)))


def _event_rows(
    events: Envelopes, schema: pa.Schema, *, with_update_before: bool
) -> tuple[list[_Part], list[BadRecord]]:
    """Rows contained in the events; an event with an unavailable value is a bad record."""
    is_delete = events.kinds == RowKind.DELETE
    columns = pick_sides(events, is_delete)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    lacks_row = is_delete & flags(events.before.is_null())
    lacks_value, bad = _unavailable(rows, events.indices, is_delete)
    kept = ~(lacks_row | lacks_value)
    main = _Part(rows=rows, kinds=events.kinds, indices=events.indices) if kept.all() else _filtered(rows, events, kept)
    if not with_update_before:
        return [main], bad
    is_update = (events.kinds == RowKind.UPDATE_AFTER) & kept
    before = pa.RecordBatch.from_arrays(events.before.filter(pa.array(is_update)).flatten(), schema=schema)
    kinds = np.full(len(before), RowKind.UPDATE_BEFORE, np.int8)
    return [_Part(rows=before, kinds=kinds, indices=events.indices[is_update]), main], bad


def _filtered(rows: pa.RecordBatch, events: Envelopes, kept: BoolArray) -> _Part:
    return _Part(rows=rows.filter(pa.array(kept)), kinds=events.kinds[kept], indices=events.indices[kept])


def _unavailable(rows: pa.RecordBatch, indices: IndexArray, is_delete: BoolArray) -> tuple[BoolArray, list[BadRecord]]:
    """Rows with the connector's placeholder for an unavailable value, except deletes, which need only their key."""
    lacks_value = np.zeros(len(rows), bool)
    bad = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            continue
        is_placeholder = flags(pc.equal(column, pa.scalar(UNAVAILABLE_VALUE).cast(field.type)))
        new = is_placeholder & ~lacks_value & ~is_delete
        reason = f"{field.name}: an unchanged large value is missing ({UNAVAILABLE_VALUE}): set REPLICA IDENTITY FULL"
        bad += [BadRecord(index=index, reason=reason) for index in indices[new].tolist()]
        lacks_value |= new
    return lacks_value, bad


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


def _key_rows(keys: pa.Array, indices: IndexArray, table: _Target) -> tuple[_Part, list[BadRecord]]:
    """``-D`` rows with only the key columns set, from the keys of the given records."""
    chosen = keys.take(pa.array(indices, pa.int64()))
    has_key = flags(chosen.is_valid())
    bad = [BadRecord(index=int(index), reason="a delete has neither row nor key") for index in indices[~has_key]]
    indices, chosen = indices[has_key], chosen.drop_null()
    key_schema = pa.schema([table.schema.field(name) for name in table.key_names])
    groups, unreadable = table.split(chosen)
    bad += [BadRecord(index=int(indices[record.index]), reason=f"key: {record.reason}") for record in unreadable]
    rows, places = [_no_rows(key_schema)], [np.zeros(0, np.int64)]
    for group in groups:
        declared = special_readings(group.schema_part, key_schema, row_field=None)
        decoded = decode_objects(group.texts, table.reading(key_schema, declared))
        place = indices[group.indices]
        bad += [BadRecord(index=int(place[record.index]), reason=f"key: {record.reason}") for record in decoded.bad]
        rows.append(decoded.rows)
        places.append(place[decoded.indices])
    key_columns = dict(zip(table.key_names, pa.concat_arrays(rows).flatten(), strict=True))
    row_indices = np.concatenate(places)
    columns = [key_columns.get(field.name) for field in table.schema]
    filled = [
        pa.nulls(len(row_indices), f.type) if column is None else column
        for column, f in zip(columns, table.schema, strict=True)
    ]
    kinds = np.full(len(row_indices), RowKind.DELETE, np.int8)
    return _Part(rows=pa.RecordBatch.from_arrays(filled, schema=table.schema), kinds=kinds, indices=row_indices), bad


def _merged(parts: Sequence[_Part], bad: tuple[BadRecord, ...]) -> DecodedChanges:
    """All parts in record order; within a record, in the order of the parts."""
    parts = [part for part in parts if len(part.indices)] or parts[:1]
    rows, kinds, indices = parts[0].rows, parts[0].kinds, parts[0].indices
    if len(parts) > 1:
        indices = np.concatenate([part.indices for part in parts])
        order = np.argsort(indices, kind="stable")
        rows = gathered([part.rows for part in parts], order)
        kinds, indices = np.concatenate([part.kinds for part in parts])[order], indices[order]
    return DecodedChanges(rows=rows, kinds=pa.array(kinds, pa.int8()), record_indices=indices, bad=bad)
