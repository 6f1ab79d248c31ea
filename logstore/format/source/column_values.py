"""How the values of a column are written in records of one schema part, and how they become the column's type.

A plan has the reading of the values as they are written, and a step that converts them; plans of arrays, maps and
structs are made of the plans of their parts. A step converts whole columns; rows that it cannot convert are refused
with a reason, and then their record is a bad one. Decimals of any size and times of day are converted to text with all
their digits.

Source: Kafka Connect ``JsonConverter``; Debezium "Temporal types", "Decimal types"; Java ``BigInteger.toByteArray``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logstore.format.source.ranges import Converted, OutOfRange, Refusal, in_range, numbers_of_texts
from logstore.json.arrow_bytes import decimals_of_bytes, flags, value_bytes
from logstore.json.reading import Reading, reading_of
from lsm.errors import InvalidInputError

_SURE_BYTES: Final = 15  # of an unscaled value: fewer than 38 digits
_SECOND: Final = 10**6  # in microseconds
_MOST_SCALE: Final = 1 << 16  # PostgreSQL's numeric has up to 16383 digits after the point


def decimal_texts(values: pa.Array, scales: pa.Array) -> pa.Array:
    """Decimals written out, with as many digits after the point as their scale: ``-0.10``, ``100``.

    Args:
        values: (n,) binary, the unscaled values in big-endian two's complement; nulls stay null.
        scales: (n,) int32; below zero, zeros are appended.

    Raises:
        InvalidInputError: a value is empty, or a scale is larger than that of any database (2**16).
    """
    is_valid = flags(values.is_valid())
    lengths = np.diff(value_bytes(values)[0])
    if np.any(lengths[is_valid] == 0):
        raise InvalidInputError("an unscaled decimal has at least one byte")
    is_long = is_valid & (lengths > _SURE_BYTES)
    short = pc.if_else(pa.array(~is_long), values, pa.scalar(None, values.type))
    digits = decimals_of_bytes(short, scale=0, data_type=pa.decimal128(38, 0)).cast(pa.string())
    if is_long.any():  # more than 36 digits: Python's integers have no limit, and such values are rare
        long = [str(int.from_bytes(each, "big", signed=True)) for each in values.filter(pa.array(is_long)).to_pylist()]
        digits = pc.replace_with_mask(digits, pa.array(is_long), pa.array(long, pa.string()))
    found = np.asarray(scales.fill_null(0))
    if np.any(np.abs(found[is_valid]) > _MOST_SCALE):
        raise InvalidInputError(f"a decimal has more digits than any database: scale={np.abs(found).max()}")
    result = pa.nulls(len(values), pa.string())
    for scale in np.unique(found[is_valid]).tolist():
        here = is_valid & (found == scale)
        texts = _with_point(digits.filter(pa.array(here)), scale)
        result = pc.replace_with_mask(result, pa.array(here), texts)
    return result


def time_texts(numbers: pa.Array, unit: str) -> pa.Array:
    """Times of day as ``HH:MM:SS.ffffff``, with three more digits where nanoseconds have them.

    Args:
        numbers: (n,) int64 since midnight; nulls stay null. A day's end is ``24:00:00.000000``; MySQL's times may be
            negative and longer than a day, as ``-838:59:59.000000``.
        unit: ms, us or ns.
    """
    nanos = pc.multiply(numbers, {"ms": 10**6, "us": 1000, "ns": 1}[unit])
    size = pc.abs(nanos)
    micros, rest = pc.divide(size, 1000), pc.subtract(size, pc.multiply(pc.divide(size, 1000), 1000))
    seconds = pc.divide(micros, _SECOND)
    minutes = pc.divide(seconds, 60)
    parts = [
        (pc.divide(minutes, 60), 2, ":"),
        (_modulo(minutes, 60), 2, ":"),
        (_modulo(seconds, 60), 2, "."),
        (_modulo(micros, _SECOND), 6, ""),
    ]
    padded = [
        pc.binary_join_element_wise(pc.utf8_lpad(part.cast(pa.string()), width, "0"), separator, "")
        for part, width, separator in parts
    ]
    sign = pc.if_else(pc.less(nanos, 0), "-", "")
    finer = pc.if_else(pc.equal(rest, 0), "", pc.utf8_lpad(rest.cast(pa.string()), 3, "0"))
    return pc.binary_join_element_wise(sign, *padded, finer, "")


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def _with_point(digits: pa.Array, scale: int) -> pa.Array:
    if scale == 0:
        return digits
    is_negative = pc.starts_with(digits, "-")
    sign, bare = pc.if_else(is_negative, "-", ""), pc.utf8_ltrim(digits, "-")
    if scale < 0:
        appended = pc.if_else(pc.equal(bare, "0"), bare, pc.binary_join_element_wise(bare, "0" * -scale, ""))
        return pc.binary_join_element_wise(sign, appended, "")
    padded = pc.utf8_lpad(bare, scale + 1, "0")
    whole, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(sign, whole, ".", fraction, "")


CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
UNIT_OF_DATE: Final = {"io.debezium.time.Date": "D", "org.apache.kafka.connect.data.Date": "D"}
UNIT_OF_TIME: Final = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
UNIT_OF_TIMESTAMP: Final = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
UNIT_OF_MEANING: Final = {**UNIT_OF_DATE, **UNIT_OF_TIME, **UNIT_OF_TIMESTAMP}
PLAIN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
"""Types of Connect without a meaning."""

_VARIABLE: Final = Reading(
    type=pa.struct([("scale", pa.int32()), ("value", pa.binary())]),
    children=(Reading(type=pa.int32()), Reading(type=pa.binary())),
)

ConvertValues = Callable[[pa.Array], Converted]
"""Converts (n,) values of the reading's type; a refused row is null."""
JULIAN: Final = "is-julian"
"""A member that callers add to the schema part of timestamps: see ``of_julian_calendar``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """How a column is read and converted."""

    reading: Reading  # of the values as they are written
    step: ConvertValues | None = None  # None: they have the column's type

    def converted(self, values: pa.Array) -> Converted:
        """(n,) values of the reading's type as values of the column's."""
        return Converted(values) if self.step is None else self.step(values)


def part_fields(part: Any) -> list[Mapping[str, Any]]:
    """The fields of a schema part of a struct; [] for anything else."""
    fields = part.get("fields") if isinstance(part, Mapping) else None
    return [each for each in fields if isinstance(each, Mapping)] if isinstance(fields, list) else []


def row_plan(
    part: Mapping[str, Any] | None, columns: Mapping[str, Reading], *, out_of_range: OutOfRange = "fail"
) -> ColumnPlan:
    """The plan of a row.

    Args:
        part: the schema part of the row, which is a struct; None: there is none.
        columns: the columns, each with the reading that it has without a schema part.
        out_of_range: what becomes of a value that its column cannot hold.
    """
    described = {field.get("field"): field for field in part_fields(part)}
    plans = {name: plan_of(described.get(name), each, out_of_range) for name, each in columns.items()}
    target = pa.struct([(name, each.type) for name, each in columns.items()])
    return _struct_plan(plans, target, lenient=True)


def plan_of(part: Any, default: Reading, out_of_range: OutOfRange = "fail") -> ColumnPlan:
    """The plan of one column or part of one.

    Args:
        part: its schema part; None: there is none.
        default: the reading that it has without a schema part; its type is the column's.
        out_of_range: what becomes of a value that the type cannot hold.
    """
    target = default.type
    if not isinstance(part, Mapping):
        is_guess = pa.types.is_timestamp(target) and (default.epoch_unit is None or default.is_unit_guessed)
        return _ranged(replace(default, is_unit_guessed=is_guess), out_of_range)
    kind, meaning = part.get("type"), part.get("name")
    if pa.types.is_list(target):
        child = plan_of(part.get("items"), default.children[0], out_of_range)
        return _list_plan(child, default) if kind == "array" else ColumnPlan(reading=default)
    if pa.types.is_map(target):
        child = plan_of(part.get("values"), default.children[1], out_of_range)
        return _map_plan(child, default) if kind == "map" else ColumnPlan(reading=default)
    if pa.types.is_struct(target):
        inner = {field.get("field"): field for field in part_fields(part)}
        pairs = zip(target, default.children, strict=True)
        plans = {field.name: plan_of(inner.get(field.name), each, out_of_range) for field, each in pairs}
        return _struct_plan(plans, target, lenient=default.lenient)
    if pa.types.is_string(target):
        return _text_plan(kind, meaning, part, default)
    if pa.types.is_decimal(target) or pa.types.is_floating(target):
        return _number_plan(kind, meaning, part, default, out_of_range)
    is_julian = bool(part.get(JULIAN))
    if pa.types.is_temporal(target) and meaning in UNIT_OF_MEANING:
        reading = replace(reading_of(target, lenient=True), epoch_unit=UNIT_OF_MEANING[meaning])
        return _ranged(reading, out_of_range, is_julian=is_julian)
    return _ranged(default, out_of_range, is_julian=is_julian)


def scale_of(part: Mapping[str, Any], default: int = 0) -> int:
    """The scale of Connect's Decimal."""
    parameters = part.get("parameters")
    return int(parameters.get("scale", default)) if isinstance(parameters, Mapping) else default


def _text_plan(kind: Any, meaning: Any, part: Mapping[str, Any], default: Reading) -> ColumnPlan:
    if meaning in UNIT_OF_TIME and kind in ("int32", "int64"):
        return ColumnPlan(reading=Reading(type=pa.int64()), step=partial(_times, unit=UNIT_OF_TIME[meaning]))
    if meaning == CONNECT_DECIMAL and kind == "bytes":
        return ColumnPlan(reading=Reading(type=pa.binary()), step=partial(_texts_of_bytes, scale=scale_of(part)))
    if meaning == VARIABLE_DECIMAL:
        return ColumnPlan(reading=_VARIABLE, step=lambda values: Converted(_texts_of_variable(values)))
    if meaning in UNIT_OF_DATE or meaning in UNIT_OF_TIMESTAMP:
        unit = UNIT_OF_MEANING[meaning]
        wire = pa.date32() if unit == "D" else pa.timestamp(unit)
        return ColumnPlan(reading=reading_of(wire, lenient=True), step=_cast_to_text)
    plain = PLAIN_TYPES.get(kind) if isinstance(kind, str) else None
    if plain is not None and (pa.types.is_boolean(plain) or pa.types.is_integer(plain) or pa.types.is_floating(plain)):
        return ColumnPlan(reading=Reading(type=plain), step=_cast_to_text)
    return ColumnPlan(reading=default)


def _number_plan(
    kind: Any, meaning: Any, part: Mapping[str, Any], default: Reading, out_of_range: OutOfRange
) -> ColumnPlan:
    target = default.type
    texts: ConvertValues | None = None
    reading = default
    if meaning == VARIABLE_DECIMAL:
        reading, texts = _VARIABLE, lambda values: Converted(_texts_of_variable(values))
    elif meaning == CONNECT_DECIMAL and kind in ("bytes", None, "any"):
        if pa.types.is_decimal(target) and out_of_range == "fail":
            scale = scale_of(part, target.scale)
            return ColumnPlan(reading=replace(reading_of(target, lenient=True), unscaled_scale=scale))
        reading, texts = Reading(type=pa.binary()), partial(_texts_of_bytes, scale=scale_of(part))
    elif kind == "string" and pa.types.is_decimal(target) and out_of_range != "fail":
        reading, texts = Reading(type=pa.string()), Converted
    if texts is None:
        return ColumnPlan(reading=default)
    return ColumnPlan(reading=reading, step=partial(_numbers, texts=texts, target=target, rule=out_of_range))


def _ranged(reading: Reading, out_of_range: OutOfRange, *, is_julian: bool = False) -> ColumnPlan:
    """Dates and timestamps are those of the calendar: connectors write infinity as a date far outside of it."""
    if pa.types.is_date(reading.type) or (pa.types.is_timestamp(reading.type) and reading.type.unit != "ns"):
        takes_infinity = pa.types.is_timestamp(reading.type)
        return ColumnPlan(
            reading=replace(reading, takes_infinity=takes_infinity),
            step=partial(in_range, rule=out_of_range, is_julian=is_julian and takes_infinity),
        )
    return ColumnPlan(reading=reading)


def _times(numbers: pa.Array, *, unit: str) -> Converted:
    return Converted(time_texts(numbers, unit))


def _texts_of_bytes(values: pa.Array, *, scale: int) -> Converted:
    return Converted(decimal_texts(values, pa.repeat(pa.scalar(scale, pa.int32()), len(values))))


def _texts_of_variable(values: pa.Array) -> pa.Array:
    scales, unscaled = values.flatten()
    return decimal_texts(unscaled, scales)


def _cast_to_text(values: pa.Array) -> Converted:
    return Converted(values.cast(pa.string()))


def _numbers(values: pa.Array, *, texts: ConvertValues, target: pa.DataType, rule: OutOfRange) -> Converted:
    return numbers_of_texts(texts(values).values, target, rule=rule)


# ---- nested columns: only their parts are converted


def _struct_plan(plans: Mapping[str, ColumnPlan], target: pa.StructType, *, lenient: bool) -> ColumnPlan:
    wire = pa.struct([(name, plan.reading.type) for name, plan in plans.items()])
    reading = Reading(type=wire, lenient=lenient, children=tuple(plan.reading for plan in plans.values()))
    if all(plan.step is None for plan in plans.values()):
        return ColumnPlan(reading=reading)
    return ColumnPlan(reading=reading, step=partial(_convert_struct, plans=plans, target=target))


def _convert_struct(values: pa.StructArray, *, plans: Mapping[str, ColumnPlan], target: pa.StructType) -> Converted:
    arrays, refused = [], []
    for (name, plan), column in zip(plans.items(), values.flatten(), strict=True):
        done = plan.converted(column)
        arrays.append(done.values)
        refused += [replace(each, reason=f"{name}: {each.reason}") for each in done.refused]
    mask = values.is_null() if values.null_count else None
    return Converted(pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask), tuple(refused))


def _list_plan(child: ColumnPlan, default: Reading) -> ColumnPlan:
    reading = replace(default, type=pa.list_(child.reading.type), children=(child.reading,))
    return ColumnPlan(reading=reading, step=child.step and partial(_convert_list, child=child, target=default.type))


def _convert_list(values: pa.ListArray, *, child: ColumnPlan, target: pa.ListType) -> Converted:
    done = child.converted(values.flatten())
    lengths = np.asarray(pc.list_value_length(values).fill_null(0), np.int64)
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    mask = values.is_null() if values.null_count else None
    made = pa.ListArray.from_arrays(offsets, done.values, type=target, mask=mask)
    return Converted(made, _of_parents(done.refused, np.repeat(np.arange(len(values)), lengths), len(values)))


def _map_plan(child: ColumnPlan, default: Reading) -> ColumnPlan:
    wire = pa.map_(default.type.key_type, child.reading.type)
    reading = replace(default, type=wire, children=(default.children[0], child.reading))
    return ColumnPlan(reading=reading, step=child.step and partial(_convert_map, child=child, target=default.type))


def _convert_map(values: pa.MapArray, *, child: ColumnPlan, target: pa.MapType) -> Converted:
    whole = values.take(pa.array(np.arange(len(values)))) if values.offset else values
    offsets = np.asarray(whole.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    done = child.converted(whole.items.slice(first, last - first))
    keys = whole.keys.slice(first, last - first)
    mask = whole.is_null() if whole.null_count else None
    made = pa.MapArray.from_arrays(pa.array(offsets - first, pa.int32()), keys, done.values, type=target, mask=mask)
    return Converted(made, _of_parents(done.refused, np.repeat(np.arange(len(values)), np.diff(offsets)), len(values)))


def _of_parents(refused: Sequence[Refusal], parents: np.ndarray, count: int) -> tuple[Refusal, ...]:
    found = []
    for each in refused:
        mask = np.zeros(count, bool)
        mask[parents[each.mask]] = True
        found.append(replace(each, mask=mask))
    return tuple(found)
