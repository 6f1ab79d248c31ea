"""The columns of a source table from Kafka Connect's schema parts, with what is lost on the way and what is refused.

The rules of types decide where a source type has no equal: decimals without bounds, times of day, moments with a zone.

Source: Kafka Connect ``JsonConverter``; Debezium "Data type mappings", "Temporal types", "Decimal types".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from logstore.format.source.column_values import (
    CONNECT_DECIMAL,
    PLAIN_TYPES,
    UNIT_OF_DATE,
    UNIT_OF_TIME,
    UNIT_OF_TIMESTAMP,
    VARIABLE_DECIMAL,
    part_fields,
    row_plan,
    scale_of,
)
from logstore.format.source.ranges import OutOfRange
from logstore.format.source.unavailable import has_placeholder
from logstore.json.decoding import decode_objects
from logstore.json.reading import reading_of
from lsm.errors import InvalidInputError

ZONED_TIMESTAMP: Final = "io.debezium.time.ZonedTimestamp"
_SOURCE_TYPE: Final = "__debezium.source.column.type"
_PRECISION: Final = "connect.decimal.precision"
_MAX_PRECISION: Final = 38
_DECIMAL_RULE: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.IGNORECASE)
_ISO: Final = (
    "the connector writes a text, with 24:00 as 00:00, and before 1582 another day in snapshots and arrays: "
    "time.precision.mode=adaptive keeps the value"
)
_CUT: Final = "the connector cuts to milliseconds: time.precision.mode=adaptive keeps all digits"
_NOTES: Final = {
    "io.debezium.time.MicroDuration": "an interval becomes microseconds, with months and years of their mean length: "
    "interval.handling.mode=string of the connector keeps them",
    "io.debezium.time.NanoDuration": "an interval becomes nanoseconds, with months and years of their mean length: "
    "interval.handling.mode=string of the connector keeps them",
    "io.debezium.time.ZonedTime": "the zone of a time is lost in the connector, which publishes it in UTC",
    "org.apache.kafka.connect.data.Time": _CUT,
    "org.apache.kafka.connect.data.Timestamp": _CUT,
    "io.debezium.time.IsoDate": _ISO,
    "io.debezium.time.IsoTime": _ISO,
    "io.debezium.time.IsoTimestamp": _ISO,
    "io.debezium.data.Bits": "bits become bytes, the lowest first, and their number is not kept",
    "io.debezium.time.NanoTimestamp": "records with digits finer than a microsecond are refused",
}
LEFT_OUT: Final = (
    "an update that leaves a large value alone publishes null, which is stored: REPLICA IDENTITY FULL needed"
)
LEFT_OUT_PERHAPS: Final = (
    "unless it is an array of text, varchar or char, an update that leaves a large value alone publishes null, which "
    "is stored: column.propagate.source.type=.* of the connector says which it is"
)
LEFT_OUT_IN_TEXT: Final = (
    "with binary.handling.mode=base64 an update that leaves a large value alone publishes null, which is stored: "
    "with bytes and hex the connector says so"
)
_PLACEHOLDERS: Final = {True: None, False: LEFT_OUT, None: LEFT_OUT_PERHAPS}
_CUT_IN_ARRAYS: Final = "times in arrays are cut to milliseconds in the connector, and 24:00 becomes 00:00"
_OF_ARRAYS: Final = {
    "io.debezium.time.MicroTime": _CUT_IN_ARRAYS,
    "io.debezium.time.NanoTime": _CUT_IN_ARRAYS,
    "io.debezium.data.Enum": "the connector publishes null for an array with a null in it",
}
_ROUNDED: Final = "decimals are rounded in the connector: decimal.handling.mode=precise keeps them"
_OF_SOURCE: Final = {
    ("NAME", "string"): "the connector publishes null in changes after the snapshot",
    ("_TSVECTOR", "array"): "the connector publishes null",
    ("BYTEA", "string"): LEFT_OUT_IN_TEXT,
    ("MONEY", "string"): "rows of a snapshot have the digits of a double: decimal.handling.mode=precise keeps all",
    ("MONEY", "double"): _ROUNDED,
    ("NUMERIC", "double"): _ROUNDED,
    ("DECIMAL", "double"): _ROUNDED,
    ("BIGINT UNSIGNED", "int64"): "values above 2^63 are wrong: bigint.unsigned.handling.mode=precise keeps them",
}
"""By the source's type, where the connector says it, and the type in the record."""
_COMPUTED: Final = "the database computes its default"
_NO_LITERAL: Final = "records have no literal of its default"
_REQUIRED: Final = "it is NOT NULL, and records have no default of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRules:
    """The column types for source types without an equal."""

    numeric: str = "string"  # decimals without bounds or with more than 38 digits: string, decimal(p,s), double
    time: str = "string"  # times of day: string as HH:MM:SS.ffffff, or time(3)
    timestamptz: str = "timestamp_ltz(6)"  # or string, as the connector writes them
    json: str = "string"
    out_of_range: OutOfRange = "fail"  # infinity and too many digits: fail, null, clamp
    lossy: str = "say"  # columns that lose something: say, or refuse

    def __post_init__(self) -> None:
        allowed = {
            "time": ("string", "time(3)"),
            "timestamptz": ("timestamp_ltz(6)", "string"),
            "json": ("string",),
            "out_of_range": ("fail", "null", "clamp"),
            "lossy": ("say", "refuse"),
        }
        for name, words in allowed.items():
            if getattr(self, name) not in words:
                raise InvalidInputError(
                    f"no such rule of types: types.{name.replace('_', '-')}={getattr(self, name)} "
                    f"fix='use one of {', '.join(words)}'"
                )
        self.decimal_type()

    def decimal_type(self) -> pa.DataType:
        """The type of decimals without bounds. Raises: InvalidInputError."""
        plain = {"string": pa.string(), "double": pa.float64()}.get(self.numeric)
        match = _DECIMAL_RULE.fullmatch(self.numeric)
        if plain is None and match is not None:
            precision, scale = int(match[1]), int(match[2])
            if 0 < precision <= _MAX_PRECISION and scale <= precision:
                return pa.decimal128(precision, scale)
        if plain is None:
            raise InvalidInputError(
                f"no such rule of types: types.numeric={self.numeric} "
                f"fix='use string, double, or decimal(p,s) with s <= p <= {_MAX_PRECISION}'"
            )
        return plain


DEFAULT_METADATA: Final = b"initial-default"
DEFAULT_RULES: Final = TypeRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceColumn:
    """A column of a source table."""

    name: str
    type: pa.DataType  # null: it is refused
    nullable: bool
    default: str | None  # what rows from before the column have: a literal of the type as text; None: null
    source_type: str  # as the database calls it, if the connector says so; else the connector's type
    note: str  # what is lost, "" = nothing
    refused: bool  # there is no type for it; the note has the reason
    has_default: bool = False  # the record says one, or a stand-in of one
    unknown: str = ""  # why records do not say what rows from before the column have; "": they do


def columns_of_part(part: Mapping[str, Any] | None, rules: TypeRules = DEFAULT_RULES) -> tuple[SourceColumn, ...]:
    """The columns of a row.

    Args:
        part: the schema part of a row (``row_part`` of a value's), or of a record key; None has no columns.
        rules: for types without an equal.
    """
    return tuple(_column(each, rules) for each in part_fields(part) if isinstance(each.get("field"), str))


def row_part(schema_part: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The schema part of the row within that of an envelope; None: it has none."""
    return next((field for field in part_fields(schema_part) if field.get("field") == "after"), None)


def value_schema(schema_part: Mapping[str, Any] | None, rules: TypeRules = DEFAULT_RULES) -> pa.Schema:
    """The columns of the row in an envelope, all nullable; refused ones are left out.

    Defaults are metadata of the fields, as ``DEFAULT_METADATA``.
    """
    columns = columns_of_part(row_part(schema_part), rules)
    return pa.schema([_field(each) for each in columns if not each.refused])


def _field(column: SourceColumn) -> pa.Field:
    metadata = None if column.default is None else {DEFAULT_METADATA: column.default.encode()}
    return pa.field(column.name, column.type, metadata=metadata)


def _column(part: Mapping[str, Any], rules: TypeRules) -> SourceColumn:
    kind, note = _type_of(part, rules)
    if kind is not None:
        items = part.get("items") if part.get("type") == "array" else None
        of_array = _OF_ARRAYS.get(str(items.get("name"))) if isinstance(items, Mapping) else None
        source = source_type_of(part)
        of_source = _OF_SOURCE.get((source, str(part.get("type"))))
        if isinstance(items, Mapping) and source != "_BYTEA":
            of_source = of_source or _OF_SOURCE.get((source.removeprefix("_"), str(items.get("type"))))
        lost = (note, of_array, of_source, _PLACEHOLDERS[has_placeholder(part, _named_source(part))])
        note = "; ".join(filter(None, lost))
    default = part.get("default")
    is_computed = default is not None and is_stand_in(part)
    text = None if kind is None or default is None or is_computed else default_literal(part, kind)
    unknown = _COMPUTED if is_computed else _NO_LITERAL if text is None and default is not None else ""
    if default is None and part.get("optional") is not True:
        unknown = _REQUIRED
    return SourceColumn(
        name=part["field"],
        type=pa.null() if kind is None else kind,
        nullable=part.get("optional") is True,
        default=text,
        source_type=source_type_of(part),
        note=note,
        refused=kind is None,
        has_default=default is not None,
        unknown=unknown,
    )


def source_type_of(part: Mapping[str, Any]) -> str:
    """The type of a column as the database calls it, if the connector says so; else the connector's type."""
    if named := _named_source(part):
        return named
    kind, meaning = part.get("type"), part.get("name")
    if kind == "array":
        return f"array<{source_type_of(part.get('items') or {})}>"
    if kind == "map":
        return f"map<{source_type_of(part.get('keys') or {})},{source_type_of(part.get('values') or {})}>"
    return " ".join(str(word) for word in (kind, meaning) if word is not None) or "unknown"


def _named_source(part: Mapping[str, Any]) -> str:
    parameters = part.get("parameters")
    named = parameters.get(_SOURCE_TYPE) if isinstance(parameters, Mapping) else None
    return named if isinstance(named, str) else ""


def _type_of(part: Any, rules: TypeRules) -> tuple[pa.DataType | None, str]:
    """The type, and what is lost; None: there is none, and the reason."""
    if not isinstance(part, Mapping):
        return None, "the schema part has no type"
    meaning, kind = part.get("name"), part.get("type")
    if meaning in (CONNECT_DECIMAL, VARIABLE_DECIMAL):
        return _decimal(part, rules)
    if meaning in UNIT_OF_TIME:
        if rules.time == "string":
            return pa.string(), _NOTES.get(meaning, "")
        return pa.time32("ms"), "records with times finer than a millisecond, and 24:00:00, are refused"
    if meaning in UNIT_OF_DATE:
        return pa.date32(), _range_note(rules)
    if meaning in UNIT_OF_TIMESTAMP:
        unit = "ms" if UNIT_OF_TIMESTAMP[meaning] == "ms" else "us"
        return pa.timestamp(unit), "; ".join(filter(None, (_NOTES.get(meaning, ""), _range_note(rules))))
    if meaning == ZONED_TIMESTAMP:
        return (pa.string(), "") if rules.timestamptz == "string" else (pa.timestamp("us", "UTC"), _range_note(rules))
    if kind in ("struct", "array", "map"):
        return _nested(kind, part, rules)
    plain = PLAIN_TYPES.get(kind) if isinstance(kind, str) else None
    return (plain, _NOTES.get(str(meaning), "")) if plain is not None else (None, f"no type for it: type={kind}")


def _range_note(rules: TypeRules) -> str:
    """Under ``fail`` nothing is lost unseen."""
    became = {"null": "null", "clamp": "the first or last moment of these years"}.get(rules.out_of_range)
    return "" if became is None else f"infinity, and what lies outside of the years 1 to 9999, becomes {became}"


def _decimal(part: Mapping[str, Any], rules: TypeRules) -> tuple[pa.DataType, str]:
    if part.get("name") == CONNECT_DECIMAL:
        parameters = part.get("parameters") or {}
        digits, scale = int(parameters.get(_PRECISION, _MAX_PRECISION)), scale_of(part)
        if 0 <= scale <= digits <= _MAX_PRECISION:
            return pa.decimal128(digits, scale), ""
    target = rules.decimal_type()
    if pa.types.is_string(target):
        return target, ""
    if pa.types.is_floating(target):
        return target, "decimals are rounded to the 15 to 17 digits of a double"
    became = {"fail": "are refused", "null": "become null", "clamp": "become the nearest value"}[rules.out_of_range]
    return target, f"numbers with more digits than {rules.numeric} {became}"


def _nested(kind: str, part: Mapping[str, Any], rules: TypeRules) -> tuple[pa.DataType | None, str]:
    if kind == "array":
        element, note = _type_of(part.get("items"), rules)
        return (None if element is None else pa.list_(element)), note
    if kind == "map":
        key, key_note = _type_of(part.get("keys"), rules)
        value, note = _type_of(part.get("values"), rules)
        if key is None or value is None or pa.types.is_nested(key):
            return None, key_note or note or "the key of a map must be a scalar"
        return pa.map_(key, value), note
    inner = {each["field"]: _type_of(each, rules) for each in part_fields(part) if isinstance(each.get("field"), str)}
    refused = [f"{name}: {note}" for name, (found, note) in inner.items() if found is None]
    if refused or not inner:
        return None, refused[0] if refused else "a struct without fields"
    notes = [f"{name}: {note}" for name, (_, note) in inner.items() if note]
    return pa.struct([(name, found) for name, (found, _) in inner.items()]), "; ".join(notes)


# ---- The default of a column in a schema part, as a literal of the column's type
#
# Connectors publish no expression: where the database computes a default, as ``now()``, records have a stand-in,
# which no row has.


_COLUMN = "x"
_EPOCH: Final = re.compile(r"0|1970-01-01(T00:00(:00(\.0+)?)?)?Z?")
_MOMENTS: Final = frozenset(
    {*UNIT_OF_DATE, *UNIT_OF_TIMESTAMP, "io.debezium.time.ZonedTimestamp"}
    | {f"io.debezium.time.Iso{each}" for each in ("Date", "Timestamp")}
)
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_OF_SESSION: Final = frozenset(
    {"CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "USER", "CURRENT_CATALOG", "CURRENT_SCHEMA"}
)


def is_stand_in(part: Mapping[str, Any]) -> bool:
    """Whether the default in a schema part stands for an expression, such as ``now()``.

    Measured with Debezium 3.4: 1970 for moments, zeros for a UUID, the name of a function of the session. A literal
    1970 is taken for one of these. A sequence has 0, as many a plain column.
    """
    default, kind = str(part.get("default")), part.get("name")
    if kind in _MOMENTS:
        return _EPOCH.fullmatch(default) is not None
    if kind == "io.debezium.data.Uuid":
        return default == _NO_UUID
    return default in _OF_SESSION


def default_literal(part: Mapping[str, Any], data_type: pa.DataType) -> str | None:
    """The default written as text; None: it has none, or the type has no literals.

    Args:
        part: the schema part of a column.
        data_type: of the column.
    """
    default = part.get("default")
    if default is None or pa.types.is_nested(data_type) or pa.types.is_binary(data_type):
        return None
    row = {"fields": [{**part, "field": _COLUMN}]}
    plan = row_plan(row, {_COLUMN: reading_of(data_type, lenient=True)}, out_of_range="null")
    decoded = decode_objects(pa.array([json.dumps({_COLUMN: default})]), plan.reading)
    if not len(decoded.rows):
        return None
    value = plan.converted(decoded.rows).values.field(_COLUMN)
    text = value.cast(pa.string())[0].as_py()
    return None if text is None else str(text)
