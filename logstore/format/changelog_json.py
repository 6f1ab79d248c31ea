"""The records of a table's log: row changes as JSON that Flink and other engines read without Fluvial.

``debezium-json``: an insert is ``{"before":null,"after":{row},"op":"c"}``, a retract is
``{"before":{row},"after":null,"op":"d"}``; ``u`` is never written. ``json``: exactly Flink's upsert-kafka; an insert is
the row, a delete has a null value and only a key. With a primary key, the record's key is the JSON object of the key
columns; without one, records have no key.

Source: Flink ``DebeziumJsonSerializationSchema``, upsert-kafka connector; FLIP-188 "LogStore".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.envelopes import KindArray, pick_sides, read_envelopes
from logstore.json.arrow_bytes import as_binary, flags, gathered, rows_where, texts_between, value_bytes
from logstore.json.decoding import DecodedObjects, decode_objects
from logstore.json.reading import BadRecord, row_reading
from logstore.json.text import object_texts
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

JsonFormat = Literal["debezium-json", "json"]
ChangelogMode = Literal["upsert", "all", "auto"]

_INSERT_PREFIX: Final = '{"before":null,"after":'
_INSERT_SUFFIX: Final = ',"op":"c"}'
_RETRACT_PREFIX: Final = '{"before":'
_RETRACT_SUFFIX: Final = ',"after":null,"op":"d"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedChanges:
    """Records for the log, in order."""

    keys: pa.BinaryArray | None  # None: the table has no key
    values: pa.BinaryArray  # null: a delete in format ``json``


def encode_changes(
    rows: pa.RecordBatch,
    kinds: pa.Array,
    *,
    key_names: Sequence[str],
    log_format: JsonFormat,
    changelog_mode: ChangelogMode = "auto",
) -> EncodedChanges:
    """Encode row changes as log records.

    Args:
        rows: (n,) the table's own columns.
        kinds: (n,) int8 RowKind, no nulls.
        key_names: the primary key; empty for a table without one.
        log_format: see the module docstring.
        changelog_mode: ``upsert`` drops ``-U``, because the next ``+U`` of the key replaces the row anyway; ``all``
            keeps every change; ``auto`` is ``upsert`` with a key and ``all`` without.

    Returns:
        one record per change, except dropped ``-U``.

    Raises:
        InvalidInputError: ``json`` or ``upsert`` without a key, or ``json`` with ``all``; a type has no JSON form.
    """
    mode = _checked_mode(key_names, log_format, changelog_mode)
    kind_numbers = np.asarray(kinds)
    if mode == "upsert" and np.any(kind_numbers == RowKind.UPDATE_BEFORE):
        kept = kind_numbers != RowKind.UPDATE_BEFORE
        rows, kind_numbers = rows.filter(pa.array(kept)), kind_numbers[kept]
    is_retract = (kind_numbers == RowKind.DELETE) | (kind_numbers == RowKind.UPDATE_BEFORE)
    keys = object_texts(key_names, [rows.column(name) for name in key_names]).cast(pa.binary()) if key_names else None
    values = _row_values(rows, is_retract) if log_format == "json" else _envelope_values(rows, is_retract)
    return EncodedChanges(keys=keys, values=values.cast(pa.binary()))


def decode_changes(
    keys: pa.Array | None, values: pa.Array, *, schema: pa.Schema, key_names: Sequence[str], log_format: JsonFormat
) -> tuple[pa.RecordBatch, pa.Array]:
    """Decode log records to inserts and deletes (``+U`` and ``-U`` cannot be distinguished from ``+I`` and ``-D``).

    Args:
        keys: (n,) binary; required only for records without a value.
        values: (n,) binary.
        schema: the table's own columns; columns missing in a record are null, unknown members are ignored.
        key_names: the primary key.
        log_format: see the module docstring.

    Returns:
        (n,) rows in record order, and int8 kinds. A record without a value is a delete with only the key columns set.

    Raises:
        CorruptDataError: a record is not in this format; the message has its index in the batch.
    """
    values = as_binary(values)
    has_value = flags(values.is_valid())
    record_indices = np.flatnonzero(has_value)
    texts = values if has_value.all() else values.drop_null()
    if log_format == "json":
        decoded = decode_objects(texts, row_reading(schema))
        _refuse_bad(_bad_rows(decoded), record_indices, len(values))
        columns, kinds = list(decoded.rows.flatten()), np.full(len(texts), RowKind.INSERT, np.int8)
    else:
        columns, kinds = _read_canonical(texts, schema) or _read_any_envelopes(
            texts, schema, record_indices, len(values)
        )
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if has_value.all():
        return rows, pa.array(kinds)
    deletes = _rows_of_keys(keys, ~has_value, schema, key_names)
    place = np.empty(len(values), np.int64)
    place[has_value] = np.arange(len(rows))
    place[~has_value] = len(rows) + np.arange(len(deletes))
    all_kinds = np.full(len(values), RowKind.DELETE, np.int8)
    all_kinds[has_value] = kinds
    return gathered([rows, deletes], place), pa.array(all_kinds)


def _checked_mode(key_names: Sequence[str], log_format: JsonFormat, changelog_mode: ChangelogMode) -> ChangelogMode:
    if not key_names and log_format == "json":
        raise InvalidInputError(
            "log.format=json needs a primary key, as its deletes are known by their keys: use log.format=debezium-json"
        )
    if not key_names and changelog_mode == "upsert":
        raise InvalidInputError("log.changelog-mode=upsert needs a primary key: use log.changelog-mode=all")
    if changelog_mode == "all" and log_format == "json":
        raise InvalidInputError(
            "log.format=json cannot hold log.changelog-mode=all, it has no -U: use log.format=debezium-json"
        )
    if changelog_mode != "auto":
        return changelog_mode
    return "upsert" if key_names else "all"


def _row_values(rows: pa.RecordBatch, is_retract: BoolArray) -> pa.Array:
    values = object_texts(rows.schema.names, rows.columns)
    return pc.if_else(pa.array(is_retract), pa.scalar(None, pa.string()), values) if is_retract.any() else values


def _envelope_values(rows: pa.RecordBatch, is_retract: BoolArray) -> pa.Array:
    names, columns = rows.schema.names, rows.columns
    if not is_retract.any():
        return object_texts(names, columns, prefix=_INSERT_PREFIX, suffix=_INSERT_SUFFIX)
    if is_retract.all():
        return object_texts(names, columns, prefix=_RETRACT_PREFIX, suffix=_RETRACT_SUFFIX)
    mask = pa.array(is_retract)
    prefix = pc.if_else(mask, _RETRACT_PREFIX, _INSERT_PREFIX)
    suffix = pc.if_else(mask, _RETRACT_SUFFIX, _INSERT_SUFFIX)
    return object_texts(names, columns, prefix=prefix, suffix=suffix)


def _read_canonical(texts: pa.Array, schema: pa.Schema) -> tuple[list[pa.Array], KindArray] | None:
    """Columns and kinds, if every envelope is formatted as here and in Flink, so that only the rows need parsing."""
    is_insert = _is_wrapped(texts, _INSERT_PREFIX, _INSERT_SUFFIX)
    is_retract = _is_wrapped(texts, _RETRACT_PREFIX, _RETRACT_SUFFIX)
    if not np.all(is_insert | is_retract):
        return None
    offsets, data = value_bytes(texts)
    starts = offsets[:-1] + np.where(is_retract, len(_RETRACT_PREFIX), len(_INSERT_PREFIX))
    ends = offsets[1:] - np.where(is_retract, len(_RETRACT_SUFFIX), len(_INSERT_SUFFIX))
    decoded = decode_objects(texts_between(data, starts, ends), row_reading(schema))
    if decoded.bad:
        return None
    return list(decoded.rows.flatten()), np.where(is_retract, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))


def _read_any_envelopes(
    texts: pa.Array, schema: pa.Schema, record_indices: IndexArray, record_count: int
) -> tuple[list[pa.Array], KindArray]:
    envelopes = read_envelopes(texts, row_reading(schema))
    _refuse_bad(envelopes.bad, record_indices, record_count)
    return pick_sides(envelopes, envelopes.kinds == RowKind.DELETE), envelopes.kinds


def _is_wrapped(texts: pa.Array, prefix: str, suffix: str) -> BoolArray:
    return flags(pc.and_(pc.starts_with(texts, prefix + "{"), pc.ends_with(texts, "}" + suffix)))


def _rows_of_keys(
    keys: pa.Array | None, is_wanted: BoolArray, schema: pa.Schema, key_names: Sequence[str]
) -> pa.RecordBatch:
    """Rows with only the key columns set, for the wanted records."""
    record_indices = np.flatnonzero(is_wanted)
    if keys is None or not key_names:
        raise CorruptDataError(
            f"a log record has neither value nor key: index={record_indices[0]} records={len(is_wanted)}"
        )
    texts = rows_where(as_binary(keys), is_wanted)
    if texts.null_count:
        index = record_indices[np.flatnonzero(flags(texts.is_null()))[0]]
        raise CorruptDataError(f"a log record has neither value nor key: index={index} records={len(is_wanted)}")
    key_schema = pa.schema([schema.field(name) for name in key_names])
    decoded = decode_objects(texts, row_reading(key_schema))
    _refuse_bad(_bad_rows(decoded), record_indices, len(is_wanted))
    key_columns = dict(zip(key_names, decoded.rows.flatten(), strict=True))
    columns = [key_columns.get(field.name, pa.nulls(0)) for field in schema]
    filled = [
        column if len(column) else pa.nulls(len(texts), field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(filled, schema=schema)


def _bad_rows(decoded: DecodedObjects) -> tuple[BadRecord, ...]:
    """The bad records, including those with the JSON value ``null``."""
    if decoded.rows.null_count == 0:
        return decoded.bad
    nulls = np.flatnonzero(flags(decoded.rows.is_null()))
    return (*decoded.bad, *(BadRecord(index=int(decoded.indices[row]), reason="null, not a row") for row in nulls))


def _refuse_bad(bad: Sequence[BadRecord], record_indices: IndexArray, record_count: int) -> None:
    if bad:
        first = min(bad, key=lambda record: record.index)
        index = record_indices[first.index]
        raise CorruptDataError(
            f"a log record cannot be read: index={index} records={record_count} bad={len(bad)} reason={first.reason}"
        )
