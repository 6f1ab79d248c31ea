"""Columns of a schema part in the types of tables: where the job meets the rules of ``logstore.format``."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.cdc.records.declared import BINARIES
from engine.cdc.records.routing import READ, RowPart
from engine.cdc.rules.names import SourceTable
from engine.cdc.rules.part_sequence import PartColumn
from engine.cdc.settings import GENERATED, CdcSettings
from filestore.types.data_types import data_type_of
from logstore.format.connect_types import (
    LEFT_OUT_IN_TEXT,
    ZONED_TIMESTAMP,
    SourceColumn,
    columns_of_part,
    source_type_of,
)
from logstore.format.source.column_values import JULIAN, UNIT_OF_TIMESTAMP, part_fields

NULLS: Final = ("value.converter.replace.null.with.default", "false")
NULLS_OF_AVRO: Final = ("value.converter.ignore.default.for.nullables", "true")
"""The setting of a converter, and its value, with which nulls stay nulls in columns with a default."""
_MARKED_BINARIES: Final = ("bytes", "hex")
_ENUM: Final = "io.debezium.data.Enum"
_BINLOG: Final = pa.array(["mysql", "mariadb"])
_NUMBERS: Final = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}


def row_columns(part: RowPart, source: SourceTable, settings: CdcSettings) -> tuple[PartColumn, ...]:
    """The columns of a table's rows, without those that are left out or that no table can hold."""
    return tuple(
        PartColumn(name=each.name, type=data_type_of(each.type), default=each.default, unknown=each.unknown)
        for each in columns_of_part(part.row, settings.types)
        if not each.refused and settings.why_left_out(source, each.name) is None
    )


def run_digest(part: RowPart, source: SourceTable, settings: CdcSettings) -> str:
    """The digest of a part, and of its columns that are left out: of another source table they may be others."""
    names = [each.name for each in columns_of_part(part.row, settings.types)]
    gone = [each for each in names if settings.why_left_out(source, each) is not None]
    if not gone:
        return part.digest
    return hashlib.blake2b(json.dumps([part.digest, gone]).encode(), digest_size=8).hexdigest()


def refused_columns(part: RowPart, settings: CdcSettings) -> dict[str, str]:
    """The columns that no table can hold, and why."""
    return {each.name: each.note for each in columns_of_part(part.row, settings.types) if each.refused}


def lossy_columns(part: RowPart, source: SourceTable, settings: CdcSettings) -> dict[str, str]:
    """The columns that do not hold all of the source's values, and what is lost; of generated ones, all is."""
    found = {
        each.name: lost
        for each in columns_of_part(part.row, settings.types)
        if not each.refused and settings.why_left_out(source, each.name) is None and (lost := loss_of(each, settings))
    }
    return found | dict.fromkeys(settings.lost_generated(source), GENERATED)


def loss_of(column: SourceColumn, settings: CdcSettings) -> str:
    """The values of the source that a column does not hold, in words; "": it holds all."""
    setting, wanted = NULLS_OF_AVRO if settings.registry is not None else NULLS
    is_replaced = column.nullable and column.has_default and settings.connector.get(setting, "").lower() != wanted
    replaced = (
        f"a null comes as the default, unless the connector has {setting}={wanted}: set it, and write it into "
        "source.connector"
    )
    note = column.note
    if settings.connector.get(BINARIES) in _MARKED_BINARIES:
        note = "; ".join(each for each in note.split("; ") if each != LEFT_OUT_IN_TEXT)
    return "; ".join(filter(None, (note, replaced if is_replaced else "")))


def key_names(part: RowPart) -> tuple[str, ...]:
    """The columns of the key, in the source's order; () without one."""
    return field_names(part.key)


def field_names(part: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the fields of a struct's schema part."""
    fields: Sequence[Mapping[str, Any]] = [] if part is None else part.get("fields") or []
    return tuple(str(each["field"]) for each in fields)


def has_moments(row: Mapping[str, Any]) -> bool:
    """Whether rows have timestamps, or arrays of timestamps."""
    return any(_is_moment(each) or _is_moment(each.get("items")) for each in part_fields(row))


def with_julian_moments(row: Mapping[str, Any], *, is_snapshot: bool) -> Mapping[str, Any]:
    """The part of rows of PostgreSQL, where those timestamps are marked that the driver of its connector moves.

    It takes days before 1582-10-15 for those of the Julian calendar: in rows that it selects, as of a snapshot, and in
    arrays of timestamps without a zone. Measured with Debezium 3.4.
    """
    return {**row, "fields": [_marked(each, is_snapshot) for each in part_fields(row)]}


def _marked(part: Mapping[str, Any], is_snapshot: bool) -> Mapping[str, Any]:
    items: Any = part.get("items")
    if _is_moment(items) and items["name"] != ZONED_TIMESTAMP:
        return {**part, "items": {**items, JULIAN: True}}
    return {**part, JULIAN: True} if is_snapshot and _is_moment(part) else part


def _is_moment(part: Any) -> bool:
    return isinstance(part, Mapping) and (part.get("name") in UNIT_OF_TIMESTAMP or part.get("name") == ZONED_TIMESTAMP)


def as_in_the_source(rows: pa.RecordBatch, part: RowPart, meta: pa.StructArray) -> pa.RecordBatch:
    """Rows with what connectors write otherwise than the source, where it cannot mean something else.

    Changes of MySQL and MariaDB have a zero TIMESTAMP as 1970, which no other TIMESTAMP is, and a backslash before a
    comma in an enum; rows of their snapshots have null and the comma. ``decimal.handling.mode=string`` has words of its
    own for NaN and infinity, which are known where the connector says the source's type.

    Args:
        rows: (n,) decoded.
        part: their schema part.
        meta: (n,) of ``META``.
    """
    is_binlog = pc.is_in(pc.struct_field(meta, ["source", "connector"]), _BINLOG)
    has_binlog = pc.any(is_binlog).as_py()
    for each in part_fields(part.row):
        name, kind = str(each.get("field")), each.get("name")
        at = rows.schema.get_field_index(name)
        if at < 0:
            continue
        values = rows.column(at)
        if has_binlog and kind == ZONED_TIMESTAMP:
            zero = (
                pc.match_substring_regex(values, r"^1970-01-01T00:00:00(\.0*)?Z$")
                if _is_text(values)
                else pc.equal(values, pa.scalar(0, pa.int64()).cast(values.type))
            )
            values = pc.if_else(pc.and_(is_binlog, zero), pa.scalar(None, values.type), values)
        elif has_binlog and kind == _ENUM and _is_text(values):
            is_change = pc.and_(is_binlog, pc.not_equal(pc.struct_field(meta, "op"), READ))
            values = pc.if_else(is_change, pc.replace_substring(values, "\\,", ","), values)
        elif _is_text(values) and each.get("type") == "string" and source_type_of(each) in ("NUMERIC", "DECIMAL"):
            for word, number in _NUMBERS.items():
                values = pc.if_else(pc.equal(values, word), number, values)
        if values is not rows.column(at):
            rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type))
