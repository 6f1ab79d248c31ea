"""Kafka records as rows for Spark: unchanged, or decoded into columns and a row kind."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.kafka.options import KafkaSourceOptions, OnNewFields, PartialDeletesRule, ValueFormat
from engine.kafka.source_columns import column_name, in_source, with_known_columns
from engine.types.rows import ROW_KIND_COLUMN, TRUNCATE_KIND, UNAVAILABLE_COLUMN
from logstore.format.avro_payloads import AvroPayloads
from logstore.format.debezium import KEY_ONLY, DecodedChanges, decode_envelopes
from logstore.format.schema_parts import Split, split_payloads
from logstore.format.schema_registry import SchemaRegistry
from logstore.format.source.old_keys import with_old_keys
from logstore.json.arrow_bytes import flags
from logstore.json.decoding import decode_objects
from logstore.json.reading import BadRecord, row_reading
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind

_NO_KEY: Final = "the record has no value, and key.columns is not set, so the deleted row is unknown"
_DECODED_AS: Final = {pa.time64("ns"): pa.time32("ms"), pa.time64("us"): pa.time32("ms")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """The changes in some records, in order, and the records that could not be decoded."""

    rows: pa.RecordBatch
    kinds: pa.Array  # (rows,) int8 RowKind
    bad: Sequence[BadRecord]
    unavailable: pa.Array | None = None  # (rows,) list<string>: columns whose value was left out; None: nowhere
    first_truncate: int | None = None  # index of its record: the rows of the source before these are gone


Decode = Callable[..., DecodedRecords]
"""Decodes keys, values and, if there are, old keys, (n,) binary each. A record may be zero, one or two changes."""


def raw_rows(
    records: pa.RecordBatch, *, schema: pa.Schema, topic: str, partition: int, timestamp_type: int | None
) -> pa.RecordBatch:
    """Records with the columns of Spark's own connector.

    Args:
        records: batch of ``LOG_SCHEMA``.
        schema: of the result: some of the columns of Spark's connector.
        topic: topic of all records.
        partition: partition of all records.
        timestamp_type: 0: set by the producer, 1: by the broker, None: unknown.
    """
    count = records.num_rows
    constants = {
        "topic": pa.scalar(topic),
        "partition": pa.scalar(partition, pa.int32()),
        "timestampType": pa.scalar(timestamp_type, pa.int32()),
    }
    columns = [
        pa.repeat(constants[field.name], count) if field.name in constants else records[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without_repeated_deletes(
    chunks: Iterable[pa.RecordBatch],
    record_before: Callable[[int], pa.RecordBatch | None],
    is_delete: Callable[[pa.RecordBatch], bool],
) -> Iterator[pa.RecordBatch]:
    """The records of a range; a tombstone that begins some is left out if the record before it deletes the same key.

    The decoder sees to all others. Without this the range's border would make a second delete of Debezium's two
    records, of which the latter has the key only.

    Args:
        chunks: consecutive records, batches of ``LOG_SCHEMA``.
        record_before: the record before an offset; None: it has expired.
        is_delete: whether one record deletes a row.
    """
    before: pa.RecordBatch | None = None
    for records in chunks:
        count = _leading_tombstones(records)
        if count:
            before = before or record_before(records["offset"][0].as_py())
            is_repeated = before is not None and before["key"][0] == records["key"][0] and is_delete(before)
            count = count if is_repeated else 0
        before = records.slice(records.num_rows - 1)
        if count < records.num_rows:
            yield records.slice(count)


def _leading_tombstones(records: pa.RecordBatch) -> int:
    """How many records at the beginning are tombstones of one key."""
    first = records["key"][0]
    if records["value"][0].is_valid or not first.is_valid:
        return 0
    is_one = pc.and_(pc.is_null(records["value"]), pc.fill_null(pc.equal(records["key"], first), False))
    end = pc.index(is_one, pa.scalar(False)).as_py()
    return records.num_rows if end < 0 else int(end)


def decoder(options: KafkaSourceOptions, schema: pa.Schema, *, emits_truncates: bool = False) -> Decode:
    """The decoder for a source.

    Args:
        options: with a format other than raw.
        schema: the columns to decode.
        emits_truncates: changes before a truncate event are left out; else it is a bad record.
    """
    keeps, is_avro = UNAVAILABLE_COLUMN in schema.names, options.registry is not None
    fails = options.partial_deletes is PartialDeletesRule.FAIL
    columns = [field for field in schema if field.name != UNAVAILABLE_COLUMN]
    split: Split = split_payloads if options.registry is None else _avro_payloads(options.registry)
    if options.on_new_fields is OnNewFields.FAIL:
        split = with_known_columns(split, pa.schema(columns), options.new_types)
    plain = pa.schema([pa.field(field.name, _DECODED_AS.get(field.type, field.type)) for field in columns])
    renamed = pa.schema([field.with_name(in_source(field.name)) for field in plain])

    def envelopes(keys: pa.Array, values: pa.Array, old_keys: pa.Array | None = None) -> DecodedRecords:
        found = decode_envelopes(
            values if is_avro else without_control_records(keys, values),
            schema=renamed,
            keys=keys,
            key_names=[in_source(name) for name in options.key_columns],
            old_keys=old_keys,
            on_error="collect",
            with_update_before=options.has_update_before,
            epoch_units={in_source(name): unit for name, unit in options.epoch_units.items()},
            base64_decimals=options.has_base64_decimals,
            split=split,
            out_of_range=options.out_of_range,
            unavailable_values="keep" if keeps else "fail",
            placeholder=options.placeholder,
            with_truncates=emits_truncates,
            partial_deletes="fail" if fails else "keep",
        )
        first_truncate = found.truncates[0] if found.truncates else None
        if found.truncates:
            found = _behind(found, found.truncates[-1])
        rows = pa.RecordBatch.from_arrays(found.rows.columns, schema=plain)
        marks = _named(found.unavailable)
        if marks is not None and found.old_keys is not None:
            is_moved = flags(found.old_keys.is_valid())
            columns = zip(options.key_columns, found.old_keys.flatten(), strict=True)
            marks = with_old_keys(marks, {name: each.cast(schema.field(name).type) for name, each in columns}, is_moved)
        return DecodedRecords(
            rows=rows, kinds=found.kinds, bad=found.bad, unavailable=marks, first_truncate=first_truncate
        )

    def plain_rows(keys: pa.Array, values: pa.Array, _: pa.Array | None = None) -> DecodedRecords:
        return _decode_plain(keys, values, plain, options.key_columns, takes_deletes=not fails)

    return plain_rows if options.value_format is ValueFormat.JSON else envelopes


def _behind(found: DecodedChanges, index: int) -> DecodedChanges:
    """The changes of the records behind one of them; bad records stay."""
    begin = int(np.searchsorted(found.record_indices, index, side="right"))
    return replace(
        found,
        rows=found.rows.slice(begin),
        kinds=found.kinds.slice(begin),
        record_indices=found.record_indices[begin:],
        unavailable=None if found.unavailable is None else found.unavailable.slice(begin),
        old_keys=None if found.old_keys is None else found.old_keys.slice(begin),
    )


def without_control_records(keys: pa.Array, values: pa.Array) -> pa.Array:
    """The values with null for the control records of a table's log in JSON, which have no key and an empty value.

    An empty value behind a key is left as it is: it is no change, and no delete either.
    """
    is_control = pc.and_(keys.is_null(), pc.fill_null(pc.equal(pc.binary_length(values), 0), False))
    return pc.if_else(is_control, pa.scalar(None, values.type), values) if pc.any(is_control).as_py() else values


def _named(marks: pa.Array | None) -> pa.Array | None:
    """The names of source columns as those of the table's."""
    if marks is None:
        return None
    names = marks.values.dictionary_encode()
    renamed = pa.array([column_name(each) for each in names.dictionary.to_pylist()], pa.string())
    values = renamed.take(names.indices)
    return pa.ListArray.from_arrays(marks.offsets, values, mask=marks.is_null() if marks.null_count else None)


@lru_cache(maxsize=16)
def _avro_payloads(registry: SchemaRegistry) -> AvroPayloads:
    """One per registry and process: its schema cache outlives a batch."""
    return AvroPayloads(registry)


def spark_rows(found: DecodedRecords, schema: pa.Schema) -> pa.RecordBatch:
    """The changes in Spark's columns and types; ``_row_kind`` has the kinds as ``+I -U +U -D``.

    Behind a truncate the first row is of kind ``-T``, with null for all else.
    """
    count = found.rows.num_rows

    def column(field: pa.Field) -> pa.Array:
        if field.name == ROW_KIND_COLUMN:
            return ROW_KIND_SYMBOLS.take(found.kinds)
        if field.name == UNAVAILABLE_COLUMN:
            return pa.nulls(count, field.type) if found.unavailable is None else found.unavailable.cast(field.type)
        return pc.cast(found.rows[field.name], field.type)

    rows = pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
    if found.first_truncate is None:
        return rows
    marker = [pa.array([TRUNCATE_KIND if each.name == ROW_KIND_COLUMN else None], each.type) for each in schema]
    return pa.concat_batches([pa.RecordBatch.from_arrays(marker, schema=schema), rows])


def _decode_plain(
    keys: pa.Array, values: pa.Array, schema: pa.Schema, key_names: Sequence[str], *, takes_deletes: bool
) -> DecodedRecords:
    """A value is the row; a record without a value deletes the row of its key, as in Flink's upsert-kafka."""
    has_value = values.is_valid().to_numpy(zero_copy_only=False)
    rows, indices, bad = _decode_some(values, np.flatnonzero(has_value), schema)
    if has_value.all():
        return DecodedRecords(rows=rows, kinds=_kinds(RowKind.INSERT, len(rows)), bad=bad)

    without = np.flatnonzero(~has_value)
    if not key_names or not takes_deletes:
        reason = _NO_KEY if takes_deletes else KEY_ONLY
        bad += [BadRecord(index=int(index), reason=reason) for index in without]
        return DecodedRecords(rows=rows, kinds=_kinds(RowKind.INSERT, len(rows)), bad=_sorted(bad))
    key_schema = pa.schema([schema.field(name) for name in key_names])
    keyed, key_indices, bad_keys = _decode_some(keys, without, key_schema)
    deletes = pa.RecordBatch.from_arrays(
        [keyed[field.name] if field.name in key_names else pa.nulls(len(keyed), field.type) for field in schema],
        schema=schema,
    )
    order = pa.array(np.argsort(np.concatenate([indices, key_indices]), kind="stable"))
    kinds = pa.concat_arrays([_kinds(RowKind.INSERT, len(rows)), _kinds(RowKind.DELETE, len(deletes))])
    return DecodedRecords(
        rows=pa.concat_batches([rows, deletes]).take(order), kinds=kinds.take(order), bad=_sorted(bad + bad_keys)
    )


def _decode_some(
    texts: pa.Array, records: np.ndarray, schema: pa.Schema
) -> tuple[pa.RecordBatch, np.ndarray, list[BadRecord]]:
    """The rows in some of the texts, the record index of each, and the records that are not rows."""
    chosen = texts.take(pa.array(records))
    is_text = chosen.is_valid().to_numpy(zero_copy_only=False)
    bad = [BadRecord(index=int(index), reason="the record has neither value nor key") for index in records[~is_text]]
    records = records[is_text]
    decoded = decode_objects(chosen.drop_null(), row_reading(schema, lenient=True))
    bad += [BadRecord(index=int(records[each.index]), reason=each.reason) for each in decoded.bad]
    is_row = decoded.rows.is_valid()
    indices = records[decoded.indices]
    bad += [
        BadRecord(index=int(index), reason="the record is the JSON value null")
        for index in indices[pc.invert(is_row).to_numpy(zero_copy_only=False)]
    ]
    rows = pa.RecordBatch.from_arrays(decoded.rows.filter(is_row).flatten(), schema=schema)
    return rows, indices[is_row.to_numpy(zero_copy_only=False)], _sorted(bad)


def _kinds(kind: RowKind, count: int) -> pa.Array:
    return pa.array(np.full(count, int(kind), np.int8))


def _sorted(bad: Sequence[BadRecord]) -> list[BadRecord]:
    return sorted(bad, key=lambda each: each.index)
