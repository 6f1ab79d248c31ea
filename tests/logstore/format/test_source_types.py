"""The type rules of change sources: a row of the table for each source type, from its schema part to its value."""

import base64
import datetime
import hashlib
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logstore.format.connect_types import TypeRules, columns_of_part
from logstore.format.debezium import DecodedChanges, decode_envelopes
from logstore.format.source.old_keys import with_old_keys
from logstore.format.source.unavailable import UNAVAILABLE_VALUE, bytes_of, columns_of_masks, mask_column
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
POINT = {
    "type": "struct",
    "name": "io.debezium.data.geometry.Point",
    "fields": [{"type": "double", "field": "x"}, {"type": "double", "field": "y"}],
}
HUGE = "123456789012345678901234567890123456789012.123456789"


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1, "optional": True, **more}


def time_of(name: str, kind: str = "int64") -> dict[str, Any]:
    return named(kind, f"io.debezium.time.{name}")


def unscaled(text: str) -> str:
    value = int(text.replace(".", ""))
    return base64.b64encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)).decode()


def variable(text: str) -> dict[str, Any]:
    return {"scale": -Decimal(text).as_tuple().exponent, "value": unscaled(text)}


def decimal_part(digits: int, scale: int) -> dict[str, Any]:
    return named("bytes", DECIMAL, parameters={"scale": str(scale), "connect.decimal.precision": str(digits)})


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "optional": True}


def record(column: dict[str, Any], value: Any, op: str = "c") -> bytes:
    row = {"type": "struct", "optional": True, "fields": [{**column, "field": "x"}]}
    part = {"type": "struct", "fields": [{**row, "field": side} for side in ("before", "after")]}
    payload = {"before": {"x": value} if op == "d" else None, "after": None if op == "d" else {"x": value}, "op": op}
    return json.dumps({"schema": part, "payload": payload}, separators=(",", ":")).encode()


def decoded(records: list[bytes], data_type: pa.DataType, **more: Any) -> DecodedChanges:
    found = decode_envelopes(pa.array(records), schema=pa.schema([("x", data_type)]), on_error="collect", **more)
    found.rows.validate(full=True)
    return found


MICROS = pa.timestamp("us")
RULES = TypeRules()
TABLE = [
    ("bool", {"type": "boolean"}, RULES, pa.bool_(), True, True),
    ("int2", {"type": "int16"}, RULES, pa.int16(), -32768, -32768),
    ("int4", {"type": "int32"}, RULES, pa.int32(), 2**31 - 1, 2**31 - 1),
    ("int8", {"type": "int64"}, RULES, pa.int64(), -(2**63), -(2**63)),
    ("float4", {"type": "float"}, RULES, pa.float32(), 0.5, 0.5),
    ("float8", {"type": "double"}, RULES, pa.float64(), "-Infinity", -math.inf),
    ("numeric(10,2)", decimal_part(10, 2), RULES, pa.decimal128(10, 2), "ew==", Decimal("1.23")),
    ("numeric(50,2)", decimal_part(50, 2), RULES, pa.string(), unscaled("123.45"), "123.45"),
    ("numeric", VARIABLE, RULES, pa.string(), variable(HUGE), HUGE),
    ("numeric", VARIABLE, RULES, pa.string(), variable("-0.10"), "-0.10"),
    ("numeric as decimal", VARIABLE, TypeRules(numeric="decimal(38,18)"), pa.decimal128(38, 18), variable("1.5"),
     Decimal("1.500000000000000000")),
    ("numeric as double", VARIABLE, TypeRules(numeric="double"), pa.float64(), variable("-1.5"), -1.5),
    ("money", named("bytes", DECIMAL, parameters={"scale": "2"}), RULES, pa.decimal128(38, 2), "ew==", Decimal("1.23")),
    ("text", {"type": "string"}, RULES, pa.string(), "ü '\"\n", "ü '\"\n"),
    ("xml", named("string", "io.debezium.data.Xml"), RULES, pa.string(), "<a/>", "<a/>"),
    ("json", named("string", "io.debezium.data.Json"), RULES, pa.string(), '{"a": 1}', '{"a": 1}'),
    ("uuid", named("string", "io.debezium.data.Uuid"), RULES, pa.string(), "09b4b1f5-4e41", "09b4b1f5-4e41"),
    ("enum", named("string", "io.debezium.data.Enum"), RULES, pa.string(), "red", "red"),
    ("bytea", {"type": "bytes"}, RULES, pa.binary(), "AAA=", b"\0\0"),
    ("bit(9)", named("bytes", "io.debezium.data.Bits"), RULES, pa.binary(), "AQE=", b"\1\1"),
    ("date", time_of("Date", "int32"), RULES, pa.date32(), 18263, datetime.date(2020, 1, 2)),
    ("time", time_of("MicroTime"), RULES, pa.string(), 45_296_123_456, "12:34:56.123456"),
    ("time", time_of("MicroTime"), RULES, pa.string(), 86_399_999_999, "23:59:59.999999"),
    ("time", time_of("MicroTime"), RULES, pa.string(), 86_400_000_000, "24:00:00.000000"),
    ("time(3)", time_of("Time", "int32"), RULES, pa.string(), 45_296_123, "12:34:56.123000"),
    ("time of MySQL", time_of("MicroTime"), RULES, pa.string(), -3_020_399_000_000, "-838:59:59.000000"),
    ("time as TIME", time_of("MicroTime"), TypeRules(time="time(3)"), pa.time32("ms"), 45_296_123_000,
     datetime.time(12, 34, 56, 123000)),
    ("timetz", time_of("ZonedTime", "string"), RULES, pa.string(), "12:34:56.123456Z", "12:34:56.123456Z"),
    ("timestamp(3)", time_of("Timestamp"), RULES, pa.timestamp("ms"), -1,
     datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ("timestamp", time_of("MicroTimestamp"), RULES, MICROS, 1, datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
    ("timestamptz", time_of("ZonedTimestamp", "string"), RULES, pa.timestamp("us", "UTC"), "2020-01-02T03:04:05Z",
     datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
    ("timestamptz as text", time_of("ZonedTimestamp", "string"), TypeRules(timestamptz="string"), pa.string(),
     "2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
    ("interval", time_of("MicroDuration"), RULES, pa.int64(), 1, 1),
    ("interval as text", time_of("Interval", "string"), RULES, pa.string(), "P1Y2M", "P1Y2M"),
    ("int[]", array_of({"type": "int32"}), RULES, pa.list_(pa.int32()), [1, None], [1, None]),
    ("numeric(10,2)[]", array_of(decimal_part(10, 2)), RULES, pa.list_(pa.decimal128(10, 2)), ["bg==", None],
     [Decimal("1.10"), None]),
    ("numeric[]", array_of(VARIABLE), RULES, pa.list_(pa.string()), [variable("1.10"), None], ["1.10", None]),
    ("time[]", array_of(time_of("MicroTime")), RULES, pa.list_(pa.string()), [1, None], ["00:00:00.000001", None]),
    ("date[]", array_of(time_of("Date", "int32")), RULES, pa.list_(pa.date32()), [18263],
     [datetime.date(2020, 1, 2)]),
    ("timestamp(3)[]", array_of(time_of("Timestamp")), RULES, pa.list_(pa.timestamp("ms")), [1],
     [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)]),
    ("hstore", {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, RULES,
     pa.map_(pa.string(), pa.string()), {"a": "1"}, [("a", "1")]),
    ("map of numeric", {"type": "map", "keys": {"type": "string"}, "values": VARIABLE}, RULES,
     pa.map_(pa.string(), pa.string()), {"a": variable("1.10")}, [("a", "1.10")]),
    ("point", POINT, RULES, pa.struct([("x", pa.float64()), ("y", pa.float64())]), {"x": 1.5, "y": 2.0},
     {"x": 1.5, "y": 2.0}),
    ("row of time", {"type": "struct", "fields": [{**time_of("MicroTime"), "field": "t"}]}, RULES,
     pa.struct([("t", pa.string())]), {"t": 1}, {"t": "00:00:00.000001"}),
    ("year", time_of("Year", "int32"), RULES, pa.int32(), 2020, 2020),
]  # fmt: skip


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("name", "part", "rules", "kind", "given", "meant"), TABLE, ids=lambda each: str(each)[:24])
def test_a_source_type_has_its_column_and_its_value(
    name: str, part: dict[str, Any], rules: TypeRules, kind: pa.DataType, given: Any, meant: Any, count: int
) -> None:
    """One row of the type rules; null beside it, an update, and a delete read the same (findings 5 and 10)."""
    (column,) = columns_of_part({"fields": [{**part, "field": "x"}]}, rules)
    assert (column.name, column.type, column.refused) == ("x", kind, False)
    records = [record(part, given), record(part, None), record(part, given, "u"), record(part, given, "d")] * count
    found = decoded(records, kind)
    assert found.bad == ()
    assert found.rows["x"].to_pylist() == [meant, None, meant, meant] * count


LOSSY = [
    (time_of("MicroDuration"), RULES, "interval.handling.mode=string"),
    (named("bytes", "io.debezium.data.Bits"), RULES, "bits become bytes"),
    (time_of("ZonedTime", "string"), RULES, "the zone of a time is lost"),
    ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, RULES, "cuts to milliseconds"),
    (VARIABLE, TypeRules(numeric="double"), "rounded"),
    (VARIABLE, TypeRules(numeric="decimal(38,18)", out_of_range="null"), "decimal(38,18) become null"),
    (time_of("Date", "int32"), TypeRules(out_of_range="clamp"), "becomes the first or last moment"),
    (array_of(time_of("MicroDuration")), RULES, "interval.handling.mode=string"),
    (time_of("MicroTime"), TypeRules(time="time(3)"), "finer than a millisecond"),
]


@pytest.mark.parametrize(("part", "rules", "fact"), LOSSY)
def test_what_is_lost_is_said(part: dict[str, Any], rules: TypeRules, fact: str) -> None:
    (column,) = columns_of_part({"fields": [{**part, "field": "x"}]}, rules)
    assert fact in column.note


def test_what_is_exact_has_no_note_and_what_has_no_type_is_refused_with_the_reason() -> None:
    lossy = ("interval", "bit(9)", "timetz")
    exact = [part for name, part, rules, *_ in TABLE if rules is RULES and name not in lossy]
    notes = {each.note for part in exact for each in columns_of_part({"fields": [{**part, "field": "x"}]})}
    assert {note for note in notes if "large value" not in note} == {""}  # which has a placeholder, or none
    for part in ({"type": "union"}, {}, array_of({"type": "union"}), {"type": "struct", "fields": []}):
        (column,) = columns_of_part({"fields": [{**part, "field": "x"}]})
        assert column.refused
        assert column.note
        assert column.type == pa.null()


INFINITE_DAY, INFINITE_MICROS = -622_191_234, 9_223_372_036_825_200_000
FAR = [
    (time_of("Date", "int32"), pa.date32(), INFINITE_DAY, datetime.date(1, 1, 1)),
    (time_of("MicroTimestamp"), MICROS, INFINITE_MICROS, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    (time_of("ZonedTimestamp", "string"), pa.timestamp("us", "UTC"), "-infinity",
     datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    (array_of(time_of("Date", "int32")), pa.list_(pa.date32()), [INFINITE_DAY], [datetime.date(1, 1, 1)]),
    (VARIABLE, pa.decimal128(5, 2), variable(HUGE), Decimal("999.99")),
    (decimal_part(10, 2), pa.decimal128(5, 2), unscaled("-1234.56"), Decimal("-999.99")),
    (decimal_part(10, 4), pa.decimal128(5, 2), unscaled("1.2350"), Decimal("1.24")),
    ({"type": "string"}, pa.decimal128(5, 2), "Infinity", Decimal("999.99")),
]  # fmt: skip


@pytest.mark.parametrize(("part", "kind", "given", "nearest"), FAR, ids=lambda each: str(each)[:24])
def test_what_no_column_holds_goes_by_the_rule(
    part: dict[str, Any], kind: pa.DataType, given: Any, nearest: Any
) -> None:
    """Infinity passed as year -1,701,545 and 294,247, at which pyarrow itself fails (finding 10)."""
    records = [record(part, None), record(part, given), record(part, None)]
    failed = decoded(records, kind)
    assert [(each.index, "expected=" in each.reason) for each in failed.bad] == [(1, True)]
    assert failed.rows.num_rows == 2
    nulls = decoded(records, kind, out_of_range="null")
    assert (nulls.bad, nulls.rows["x"].to_pylist()) == ((), [None, [None] if isinstance(given, list) else None, None])
    clamped = decoded(records, kind, out_of_range="clamp")
    assert (clamped.bad, clamped.rows["x"].to_pylist()) == ((), [None, nearest, None])


RETYPED = [
    ({"type": "int32"}, 12, "12"),
    ({"type": "boolean"}, True, "true"),
    (decimal_part(10, 2), "ew==", "1.23"),
    (time_of("Date", "int32"), 18263, "2020-01-02"),
    (time_of("MicroTimestamp"), 1, "1970-01-01 00:00:00.000001"),
    ({"type": "double"}, 1.5, "1.5"),
]


@pytest.mark.parametrize(("part", "given", "meant"), RETYPED, ids=lambda each: str(each)[:24])
def test_records_from_before_a_column_became_text_are_read_as_text(
    part: dict[str, Any], given: Any, meant: str
) -> None:
    """int -> text at the source: the topic still holds records with numbers (finding 9)."""
    found = decoded([record(part, given), record({"type": "string"}, "abc"), record(part, None)], pa.string())
    assert (found.bad, found.rows["x"].to_pylist()) == ((), [meant, "abc", None])


LEFT_OUT = [
    ("text", {"type": "string"}, pa.string(), UNAVAILABLE_VALUE),
    ("jsonb", named("string", "io.debezium.data.Json"), pa.string(), UNAVAILABLE_VALUE),
    ("bytea", {"type": "bytes"}, pa.binary(), base64.b64encode(UNAVAILABLE_VALUE.encode()).decode()),
    ("text[]", array_of({"type": "string"}), pa.list_(pa.string()), [UNAVAILABLE_VALUE]),
    ("int[]", array_of({"type": "int32"}), pa.list_(pa.int32()), list(UNAVAILABLE_VALUE.encode())),
    ("bigint[]", array_of({"type": "int64"}), pa.list_(pa.int64()), list(UNAVAILABLE_VALUE.encode())),
    ("hstore", {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
     pa.map_(pa.string(), pa.string()), {UNAVAILABLE_VALUE: UNAVAILABLE_VALUE}),
    ("hstore as json", {"type": "string"}, pa.string(), f'{{"{UNAVAILABLE_VALUE}":"{UNAVAILABLE_VALUE}"}}'),
    ("row", {"type": "struct", "fields": [{"type": "string", "field": "a"}]}, pa.struct([("a", pa.string())]),
     {"a": UNAVAILABLE_VALUE}),
]  # fmt: skip


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(("name", "part", "kind", "given"), LEFT_OUT, ids=lambda each: str(each)[:24])
def test_a_value_that_an_update_left_out_never_becomes_data(
    name: str, part: dict[str, Any], kind: pa.DataType, given: Any, count: int
) -> None:
    """`UPDATE toast_a SET v=1` made ta = ['__debezium_unavailable_value'] (findings 1 and 2)."""
    records = [record(part, None), record(part, given, "u"), record(part, None, "u")] * count
    refused = decoded(records, kind)
    assert [each.index for each in refused.bad] == list(range(1, 3 * count, 3))
    assert all("x: an unchanged large value is missing" in each.reason for each in refused.bad)
    kept = decoded(records, kind, unavailable_values="keep")
    assert kept.bad == ()
    assert kept.rows["x"].null_count == 3 * count
    assert kept.unavailable.to_pylist() == [None, ["x"], None] * count


@pytest.mark.parametrize(("name", "part", "kind", "given"), LEFT_OUT, ids=lambda each: str(each)[:24])
def test_only_updates_leave_values_out(name: str, part: dict[str, Any], kind: pa.DataType, given: Any) -> None:
    """An INSERT whose text is the placeholder was refused (finding 2)."""
    found = decoded([record(part, given, op) for op in "crd"], kind, unavailable_values="keep")
    assert (found.bad, found.unavailable, found.rows["x"].null_count) == ((), None, 0)


def test_the_connector_may_have_another_placeholder() -> None:
    part = array_of({"type": "string"})
    records = [record(part, ["gone"], "u"), record(part, [UNAVAILABLE_VALUE], "u")]
    found = decoded(records, pa.list_(pa.string()), unavailable_values="keep", placeholder="gone")
    assert found.unavailable.to_pylist() == [["x"], None]
    assert found.rows["x"].to_pylist() == [None, [UNAVAILABLE_VALUE]]


@pytest.mark.parametrize("setting", ["hex:00ff10", "hex:7F1b", "left~out?>>", "é"])
@pytest.mark.parametrize(
    ("part", "kind", "write"),
    [
        ({"type": "string"}, pa.string(), lambda content, text: text),
        ({"type": "bytes"}, pa.binary(), lambda content, text: base64.b64encode(content).decode()),
        (array_of({"type": "bytes"}), pa.list_(pa.binary()),
         lambda content, text: [base64.b64encode(content).decode()]),
        (array_of({"type": "string"}), pa.list_(pa.string()), lambda content, text: [text]),
        (array_of({"type": "string"}), pa.list_(pa.string()),
         lambda content, text: [str(uuid.UUID(bytes=hashlib.md5(content).digest(), version=3))]),
        (array_of({"type": "int32"}), pa.list_(pa.int32()),
         lambda content, text: [each - 256 if each > 127 else each for each in content]),
        (array_of(named("int32", "io.debezium.time.Date")), pa.list_(pa.date32()),
         lambda content, text: [each - 256 if each > 127 else each for each in content]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, pa.map_(pa.string(), pa.string()),
         lambda content, text: {text: text}),
        ({"type": "string"}, pa.string(), lambda content, text: JACKSON[text]),
    ],
)  # fmt: skip
def test_the_placeholder_may_be_bytes_that_are_no_text(
    part: dict[str, Any], kind: pa.DataType, write: Any, setting: str
) -> None:
    """As Debezium 3.4 writes ``hex:00ff10`` in each form; it was taken for data, or refused."""
    content = bytes.fromhex(setting[4:]) if setting.startswith("hex:") else setting.encode()
    given = write(content, content.decode(errors="replace"))
    found = decoded([record(part, given, "u")], kind, unavailable_values="keep", placeholder=setting)
    assert (found.unavailable.to_pylist(), found.rows["x"].to_pylist()) == ([["x"]], [None])


JACKSON = {
    "\0\ufffd\x10": '{"\\u0000\ufffd\\u0010":"\\u0000\ufffd\\u0010"}',
    "\x7f\x1b": '{"\x7f\\u001B":"\x7f\\u001B"}',
    "left~out?>>": '{"left~out?>>":"left~out?>>"}',
    "é": '{"é":"é"}',
}
"""Maps as texts, by the text."""


def test_nulls_in_an_array_of_numbers_are_no_bytes_of_a_placeholder() -> None:
    part = array_of({"type": "int32"})
    found = decoded(
        [record(part, [None, 1], "u")], pa.list_(pa.int32()), unavailable_values="keep", placeholder="hex:ff01"
    )
    assert (found.unavailable, found.rows["x"].to_pylist()) == (None, [[None, 1]])


def of_source(part: dict[str, Any], source: str) -> dict[str, Any]:
    more = {"__debezium.source.column.type": source} if source else {}
    return {**part, "field": "x", "optional": True, "parameters": {**part.get("parameters", {}), **more}}


BITS = named("bytes", "io.debezium.data.Bits", parameters={"length": "160"})


@pytest.mark.parametrize(
    ("part", "source", "words"),
    [
        (array_of({"type": "string"}), "_TEXT", ""),
        (array_of({"type": "string"}), "_INET", "publishes null"),
        (array_of({"type": "string"}), "_CITEXT", "publishes null"),
        (array_of({"type": "string"}), "_NUMERIC", "publishes null"),
        (array_of({"type": "string"}), "_BYTEA", "publishes null"),
        (array_of({"type": "string"}), "", "unless it is an array of text"),
        (array_of(named("string", "io.debezium.data.Json")), "_HSTORE", "publishes null"),
        (array_of(named("string", "io.debezium.data.Json")), "_JSONB", ""),
        (array_of({"type": "int64"}), "_OID", "publishes null"),
        (array_of({"type": "int64"}), "_INT8", ""),
        (array_of({"type": "int64"}), "", ""),
        (array_of({"type": "bytes"}), "_BYTEA", ""),
        ({"type": "string"}, "BYTEA", "with binary.handling.mode=base64"),
        ({"type": "bytes"}, "BYTEA", ""),
        ({"type": "boolean"}, "_BIT", "publishes null"),
        (BITS, "BIT", "publishes null"),
        ({**BITS, "parameters": {"length": "152"}}, "BIT", None),
    ],
)
def test_values_that_an_update_leaves_out_and_that_have_no_placeholder_are_said(
    part: dict[str, Any], source: str, words: str | None
) -> None:
    """Arrays of ranges, addresses, citext and hstore, and bytes in base64, became null without a word."""
    (column,) = columns_of_part({"fields": [of_source(part, source)]})
    if words:
        assert words in column.note
    else:
        assert "publishes null" not in column.note


@pytest.mark.parametrize("setting", ["", "hex:", "hex:0", "hex:zz", "hex:00 ff"])
def test_a_placeholder_without_bytes_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInputError, match=r"unavailable\.value\.placeholder=.* fix='write the text"):
        bytes_of(setting)


def test_a_mask_stays_with_its_row_beside_update_pairs_and_bad_records() -> None:
    part = {"type": "string"}
    good, gone = record(part, "a", "u"), record(part, UNAVAILABLE_VALUE, "u")
    pairs = [each.replace(b'"before":null', b'"before":{"x":"b"}') for each in (good, gone)]
    found = decoded([pairs[0], b"{", pairs[1]], pa.string(), unavailable_values="keep", with_update_before=True)
    assert found.kinds.to_pylist() == [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER] * 2
    assert found.unavailable.to_pylist() == [None, None, None, ["x"]]
    assert found.rows["x"].to_pylist() == ["b", "a", "b", None]


def test_truncates_are_listed_in_order_apart_from_rows() -> None:
    """INSERT 1,2; TRUNCATE; INSERT 3 kept 1 and 2 (finding 11)."""
    part = {"type": "int32"}
    gone = b'{"before":null,"after":null,"op":"t"}'
    found = decoded([record(part, 1), record(part, 2), gone, record(part, 3), gone], pa.int32(), with_truncates=True)
    assert (found.rows["x"].to_pylist(), found.record_indices.tolist()) == ([1, 2, 3], [0, 1, 3])
    assert (found.truncates, found.bad) == ((2, 4), ())
    assert [each.index for each in decoded([gone], pa.int32()).bad] == [0]


def test_lists_of_columns_and_their_masks_are_the_same() -> None:
    """A law over all sets of three columns: entries of old keys are left out, rows without entries are null."""
    names = ["a", "b", "c"]
    lists = [[name for at, name in enumerate(names) if number >> at & 1] for number in range(8)]
    marks = pa.array([each or None for each in lists], pa.list_(pa.string()))
    masks = columns_of_masks(marks)
    assert {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()} == {
        "a": [1, 3, 5, 7],
        "b": [2, 3, 6, 7],
        "c": [4, 5, 6, 7],
    }
    assert mask_column(masks, 8).to_pylist() == marks.to_pylist()  # type: ignore[union-attr]
    moved = with_old_keys(marks, {"id": pa.array(range(8))}, np.arange(8) % 2 == 0)
    assert mask_column(columns_of_masks(moved), 8).to_pylist() == marks.to_pylist()  # type: ignore[union-attr]
    assert columns_of_masks(pa.chunked_array([marks.slice(1, 2), marks.slice(6)]))["b"].tolist() == [False, *[True] * 3]
