"""The records of a table's log in Avro, with schemas in a registry: what ``changelog_json`` is for JSON.

Every key and value is in Confluent's wire format: a zero byte, the id of its schema (4 bytes, big-endian), Avro.
``debezium-avro``: an insert has ``before`` null, the row in ``after`` and ``op`` ``c``; a retract has it in ``before``
and ``op`` ``d``; ``u`` is never written. ``avro``: exactly Flink's upsert-kafka; an insert is the row, a delete has a
null value and only a key. With a primary key, keys are records of the key columns; without one, records have no key.

Records are read with the schema that they were written with, by the names of its fields. A record without key and value
is not a change, and is left out.

Source: Confluent "Wire format"; Flink ``DebeziumAvroSerializationSchema``, upsert-kafka connector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from logstore.format.avro_decoding import (
    COLUMN_ROWS,
    Cursors,
    MismatchError,
    fitted,
    read_envelope,
    read_record,
    read_with_blocks,
)
from logstore.format.avro_encoding import Narrow, encode_records, repeated_bytes
from logstore.format.avro_schema import AFTER, BEFORE, AvroType, avro_row_schema, envelope_schema, parse_schema
from logstore.format.changelog_json import ChangelogMode, EncodedChanges
from logstore.format.envelopes import KindArray
from logstore.json.arrow_bytes import ByteArray, as_binary, flags, gathered, texts_between, value_bytes
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

DEBEZIUM_AVRO: Final = "debezium-avro"
HEAD_BYTES: Final = 5

_INSERT: Final = (b"\x00\x02", b"\x02\x02c")  # before: null, after: the row; op
_RETRACT: Final = (b"\x02", b"\x00\x02\x02d")  # before: the row; after: null, op


class SchemaTexts(Protocol):
    """A source of schemas by id."""

    def schema_text(self, schema_id: int) -> str | None:
        """The schema as JSON, or None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema and its id in the registry."""

    schema_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSchemas:
    """The schemas of a log's records, for one version of the table's schema."""

    key: RegisteredSchema | None  # None: the table has no key
    value: RegisteredSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChanges:
    """The changes in log records, in order."""

    rows: pa.RecordBatch
    kinds: pa.Array  # int8 RowKind
    indices: IndexArray | None  # of the records that are changes; None: all are


def wanted_schemas(
    rows: pa.Schema, *, key_names: Sequence[str], log_format: str, other_names: Mapping[str, Sequence[str]]
) -> tuple[str | None, str]:
    """The schemas of keys (None: no keys) and values for a table's rows.

    Args:
        rows: the columns.
        key_names: the primary key.
        log_format: see the module docstring.
        other_names: what columns were called before.

    Raises:
        InvalidInputError: a type that Avro does not have.
    """
    value = envelope_schema if log_format == DEBEZIUM_AVRO else avro_row_schema
    key = avro_row_schema(pa.schema([rows.field(name) for name in key_names])) if key_names else None
    return key, value(rows, other_names=other_names)


def encode_avro_changes(
    rows: pa.RecordBatch,
    kinds: pa.Array,
    *,
    schemas: RecordSchemas,
    key_names: Sequence[str],
    log_format: str,
    changelog_mode: ChangelogMode = "auto",
) -> EncodedChanges:
    """Encode row changes as log records; see ``changelog_json.encode_changes``.

    Raises:
        InvalidInputError: ``avro`` without a key or with ``all``; null in a column that is never null.
    """
    mode = changelog_mode if changelog_mode != "auto" else "upsert" if key_names else "all"
    if log_format != DEBEZIUM_AVRO and (mode == "all" or not key_names):
        raise InvalidInputError(
            "log.format=avro needs a primary key, and has no -U: fix='use log.format=debezium-avro, or "
            "log.changelog-mode=upsert'"
        )
    numbers = np.asarray(kinds)
    if mode == "upsert" and np.any(numbers == RowKind.UPDATE_BEFORE):
        kept = numbers != RowKind.UPDATE_BEFORE
        rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
    is_retract = (numbers == RowKind.DELETE) | (numbers == RowKind.UPDATE_BEFORE)
    keys = None
    if schemas.key is not None and key_names:
        head = repeated_bytes(_head(schemas.key), rows.num_rows)
        keys = encode_records(rows.select(list(key_names)), parse_schema(schemas.key.text), heads=[head])
    values = (_envelopes if log_format == DEBEZIUM_AVRO else _rows_or_null)(rows, is_retract, schemas.value)
    return EncodedChanges(keys=keys, values=values)


def decode_avro_changes(
    keys: pa.Array | None,
    values: pa.Array,
    *,
    schema: pa.Schema,
    key_names: Sequence[str],
    log_format: str,
    registry: SchemaTexts,
) -> LogChanges:
    """Decode log records; see ``changelog_json.decode_changes``.

    Args:
        keys: (n,) binary; required only for ``avro``.
        values: (n,) binary.
        schema: the table's own columns; columns missing in a record are null, unknown fields are ignored.
        key_names: the primary key.
        log_format: see the module docstring.
        registry: asked once for each schema.

    Raises:
        CorruptDataError: a record is not in this format, or has an unknown schema; the message has its index.
        UnavailableError: the registry does not answer.
    """
    values = as_binary(values)
    count = len(values)
    has_value = flags(values.is_valid())
    reader = _Reader(registry, schema)
    places, batches, kinds = [], [], []
    if has_value.any():
        found = reader.read(values, has_value, is_enveloped=log_format == DEBEZIUM_AVRO)
        places, batches, kinds = [found[0]], [found[1]], [found[2]]
    if log_format != DEBEZIUM_AVRO and keys is not None and not has_value.all():
        keys = as_binary(keys)
        is_delete = ~has_value & flags(keys.is_valid())
        if is_delete.any():
            key_schema = pa.schema([schema.field(name) for name in key_names if name in schema.names])
            indices, rows, _ = _Reader(registry, key_schema).read(keys, is_delete, is_enveloped=False)
            columns = {name: rows.column(name) for name in key_schema.names}
            places.append(indices)
            batches.append(
                pa.RecordBatch.from_arrays(
                    [columns.get(each.name, pa.nulls(len(indices), each.type)) for each in schema], schema=schema
                )
            )
            kinds.append(np.full(len(indices), RowKind.DELETE, np.int8))
    if not batches:
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
        return LogChanges(rows=empty, kinds=pa.array([], pa.int8()), indices=None if count == 0 else _NONE)
    all_places = np.concatenate(places)
    order = np.argsort(all_places, kind="stable")
    rows = batches[0] if len(batches) == 1 else gathered(batches, order)
    return LogChanges(
        rows=rows,
        kinds=pa.array(np.concatenate(kinds)[order]),
        indices=None if len(order) == count else all_places[order],
    )


_NONE: Final = np.zeros(0, np.int64)


def _head(schema: RegisteredSchema) -> bytes:
    return b"\x00" + schema.schema_id.to_bytes(HEAD_BYTES - 1, "big")


def _rows_or_null(rows: pa.RecordBatch, is_retract: BoolArray, schema: RegisteredSchema) -> pa.BinaryArray:
    """The rows; null for a retract."""
    adds = rows.filter(pa.array(~is_retract)) if is_retract.any() else rows
    values = encode_records(adds, parse_schema(schema.text), heads=[repeated_bytes(_head(schema), adds.num_rows)])
    if len(values) == len(is_retract):
        return values
    indices = np.cumsum(~is_retract) - 1
    return values.take(pa.array(indices, mask=is_retract))


def _envelopes(rows: pa.RecordBatch, is_retract: BoolArray, schema: RegisteredSchema) -> pa.BinaryArray:
    row = dict(parse_schema(schema.text).fields)[AFTER]
    before, behind = (_either(is_retract, *sides) for sides in zip(_INSERT, _RETRACT, strict=True))
    head = repeated_bytes(_head(schema), rows.num_rows)
    return encode_records(rows, row, heads=[head, before], tails=[behind])


def _either(is_retract: BoolArray, insert: bytes, retract: bytes) -> Narrow:
    width = max(len(insert), len(retract))
    table = np.array([list(each.ljust(width, b"\x00")) for each in (insert, retract)], np.uint8)
    lengths = np.array([len(insert), len(retract)])
    index = is_retract.astype(np.int64)
    return Narrow(table[index], (np.arange(width) < lengths[:, None])[index], lengths[index])


class _Reader:
    """Reads records of any schemas into rows of one."""

    def __init__(self, registry: SchemaTexts, wanted: pa.Schema) -> None:
        self._registry = registry
        self._wanted = wanted
        self._types = {field.name: field.type for field in wanted}

    def read(
        self, records: pa.BinaryArray, is_wanted: BoolArray, *, is_enveloped: bool
    ) -> tuple[IndexArray, pa.RecordBatch, KindArray]:
        """Indices of the wanted records, their rows and kinds, in order."""
        offsets, data = value_bytes(records)
        indices = np.flatnonzero(is_wanted)
        starts, ends = offsets[:-1][indices], offsets[1:][indices]
        ids = self._schema_ids(data, starts, ends, indices)
        kinds = np.full(len(indices), RowKind.INSERT, np.int8)
        batches, order = [], []
        for schema_id in np.unique(ids).tolist():
            group = np.flatnonzero(ids == schema_id)
            text = self._text(schema_id, int(indices[group[0]]), len(records))
            for first in range(0, len(group), COLUMN_ROWS):
                chunk = group[first : first + COLUMN_ROWS]
                try:
                    columns, chunk_kinds = self._chunk(
                        data, starts[chunk] + HEAD_BYTES, ends[chunk], text, is_enveloped
                    )
                    batches.append(self._fitted(columns, len(chunk)))
                except MismatchError as error:
                    raise _unreadable(int(indices[chunk[error.index]]), len(records), error.reason) from error
                except InvalidInputError as error:
                    raise _unreadable(int(indices[chunk[0]]), len(records), str(error)) from error
                kinds[chunk] = chunk_kinds
                order.append(chunk)
        rows = pa.Table.from_batches(batches, self._wanted).combine_chunks().to_batches()[0]
        if len(order) > 1:
            place = np.concatenate(order)
            if np.any(place[1:] < place[:-1]):
                rows = rows.take(pa.array(np.argsort(place, kind="stable")))
        return indices, rows, kinds

    def _schema_ids(self, data: ByteArray, starts: IndexArray, ends: IndexArray, indices: IndexArray) -> IndexArray:
        is_framed = ends - starts >= HEAD_BYTES
        is_framed[is_framed] = data[starts[is_framed]] == 0
        if not is_framed.all():
            index = int(indices[np.argmin(is_framed)])
            raise _unreadable(index, len(indices), "not Avro with a schema id: the first byte is not zero")
        heads = data[starts[:, None] + np.arange(1, HEAD_BYTES)]
        return np.ascontiguousarray(heads).view(">u4").reshape(-1).astype(np.int64)

    def _text(self, schema_id: int, index: int, count: int) -> str:
        text = self._registry.schema_text(schema_id)
        if text is None:
            raise _unreadable(index, count, f"no such schema in the registry: schema_id={schema_id}")
        return text

    def _chunk(
        self, data: ByteArray, starts: IndexArray, ends: IndexArray, text: str, is_enveloped: bool
    ) -> tuple[Mapping[str, pa.Array], KindArray]:
        schema = parse_schema(text)
        kinds = np.full(len(starts), RowKind.INSERT, np.int8)
        if is_enveloped:
            return self._sides(data, starts, ends, text, schema)
        if schema.has_blocks:
            return read_with_blocks(texts_between(data, starts, ends), text, self._types), kinds
        cursors = Cursors(data, starts, ends)
        columns = read_record(cursors, schema, self._types)
        cursors.check_end()
        return columns, kinds

    def _sides(
        self, data: ByteArray, starts: IndexArray, ends: IndexArray, text: str, schema: AvroType
    ) -> tuple[Mapping[str, pa.Array], KindArray]:
        fields = dict(schema.fields)
        before, after = fields.get(BEFORE), fields.get(AFTER)
        if schema.names[:2] != (BEFORE, AFTER) or before != after or before is None or before.null_branch is None:
            raise InvalidInputError(f"not the Avro schema of an envelope: fields={list(schema.names)}")
        if not schema.has_blocks:
            cursors = Cursors(data, starts, ends)
            columns, is_retract = read_envelope(cursors, schema, self._types)
            cursors.check_end()
        else:
            found = read_with_blocks(texts_between(data, starts, ends), text, (BEFORE, AFTER))
            is_retract = flags(found[BEFORE].is_valid())
            is_bad = is_retract == flags(found[AFTER].is_valid())
            if is_bad.any():
                raise MismatchError(int(np.argmax(is_bad)), "neither an insert nor a delete")
            index = np.arange(len(starts)) + len(starts) * ~is_retract
            rows = pa.concat_arrays([found[BEFORE], found[AFTER]]).take(pa.array(index))
            columns = dict(zip(before.names, rows.flatten(), strict=True))
        return columns, np.where(is_retract, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))

    def _fitted(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        fields = [
            fitted(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in self._wanted
        ]
        return pa.RecordBatch.from_arrays(fields, schema=self._wanted)


def _unreadable(index: int, count: int, reason: str) -> CorruptDataError:
    return CorruptDataError(f"a log record cannot be read: index={index} records={count} reason={reason}")
