"""Records of Kafka as rows for Spark: handed on as they are, or decoded into columns and a row kind.

A batch is decoded as a whole. Only when that fails it is halved until the records at fault stand alone, so that good
input pays nothing for the search.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from logstore.debezium import decode_envelopes

from engine.kafka_options import ValueFormat
from engine.rows import ROW_KIND_COLUMN
from logstore.changelog_json import decode_changes
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.row_kind import RowKind

_SYMBOLS: Final = pa.array([kind.symbol for kind in RowKind])
_DECODED_AS: Final = {pa.time64("ns"): pa.time32("ms"), pa.time64("us"): pa.time32("ms")}

Decode = Callable[[pa.Array, pa.Array], tuple[pa.RecordBatch, pa.Array]]
"""Keys and values to rows and their kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that could not be decoded."""

    row_index: int  # in the batch that was to be decoded
    reason: str


def raw_rows(
    records: pa.RecordBatch, *, schema: pa.Schema, topic: str, partition: int, timestamp_type: int | None
) -> pa.RecordBatch:
    """Records with the columns of Spark's own connector.

    Args:
        records: of ``LOG_SCHEMA``.
        schema: of the result: columns among those that Spark's connector has.
        topic: of all of them.
        partition: likewise.
        timestamp_type: 0 = made by the producer, 1 = by the broker, None = not known.
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


def decoder(value_format: ValueFormat, schema: pa.Schema, key_names: Sequence[str]) -> Decode:
    """What takes records of a format apart.

    Args:
        value_format: not raw.
        schema: of the rows, without the row kind.
        key_names: columns that a delete can be told by when it comes with its key only; may be empty.
    """
    inner = pa.schema([field.with_type(_DECODED_AS.get(field.type, field.type)) for field in schema])

    def envelopes(keys: pa.Array, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        changes = decode_envelopes(values, schema=inner, keys=keys, key_names=key_names)
        return changes.rows, changes.kinds

    def rows(keys: pa.Array, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        return decode_changes(keys, values, schema=inner, key_names=key_names, log_format=ValueFormat.JSON.value)

    return envelopes if value_format is ValueFormat.DEBEZIUM_JSON else rows


def decoded_rows(
    records: pa.RecordBatch, decode: Decode, *, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], list[BadRecord]]:
    """The changes in records, in their order, and the records that are none.

    Args:
        records: of ``LOG_SCHEMA``.
        decode: of ``decoder``.
        schema: of the result; a column named ``_row_kind`` gets the kinds as ``+I -U +U -D``.

    Returns:
        Batches that together hold all changes (a record may be one, two, or none), and what could not be decoded, in
        order.
    """
    good: list[pa.RecordBatch] = []
    bad: list[BadRecord] = []
    # a stack, the first records on top, so that what comes out keeps its order
    parts = [(0, records.num_rows)]
    while parts:
        start, count = parts.pop()
        part = records.slice(start, count)
        try:
            rows, kinds = decode(part["key"], part["value"])
        except (CorruptDataError, InvalidInputError) as error:
            if count == 1:
                bad.append(BadRecord(row_index=start, reason=str(error)))
            else:
                half = count // 2
                parts += [(start + half, count - half), (start, half)]
            continue
        if rows.num_rows:
            good.append(_with_kinds(rows, kinds, schema))
    return good, bad


def _with_kinds(rows: pa.RecordBatch, kinds: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        _SYMBOLS.take(kinds) if field.name == ROW_KIND_COLUMN else _as_type(rows[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else pc.cast(column, wanted)
