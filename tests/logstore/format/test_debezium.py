"""Laws of reading Debezium's change events."""

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.format.debezium import UNAVAILABLE_VALUE, DecodedChanges, decode_envelopes
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind

ADD, BEFORE, AFTER, GONE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
moment = datetime.datetime.fromisoformat

CUSTOMERS = pa.schema([("id", pa.int32()), ("first_name", pa.string()), ("email", pa.string())])

# As the MySQL connector writes them with schemas.enable=false.
SOURCE = (
    '"source":{"version":"2.7.0.Final","connector":"mysql","name":"shop","ts_ms":1589362330904,"snapshot":"false",'
    '"db":"inventory","sequence":null,'
    '"table":"customers","server_id":223344,"gtid":null,"file":"mysql-bin.000003","pos":364,"row":0,"thread":7,"query":null}'
)
TAIL = ',"transaction":null,"ts_ms":1589362330999}'
CREATE = (
    '{"before":null,"after":{"id":1004,"first_name":"Anne","email":"annek@noanswer.org"},' + SOURCE + ',"op":"c"' + TAIL
)
UPDATE = (
    '{"before":{"id":1004,"first_name":"Anne","email":"annek@noanswer.org"},'
    '"after":{"id":1004,"first_name":"Anne Marie","email":"annek@noanswer.org"},' + SOURCE + ',"op":"u"' + TAIL
)
DELETE = (
    '{"before":{"id":1004,"first_name":"Anne Marie","email":"annek@noanswer.org"},"after":null,'
    + SOURCE
    + ',"op":"d"'
    + TAIL
)
READ = '{"before":null,"after":{"id":1001,"first_name":"Sally","email":null},' + SOURCE + ',"op":"r"' + TAIL
TRUNCATE = '{"before":null,"after":null,' + SOURCE + ',"op":"t"' + TAIL

SCHEMA_PART = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "fields": [
                {"type": "int32", "optional": False, "field": "id"},
                {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "day"},
                {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "version": 1, "field": "at"},
                {
                    "type": "int64",
                    "optional": True,
                    "name": "io.debezium.time.Timestamp",
                    "version": 1,
                    "field": "created",
                },
                {
                    "type": "int64",
                    "optional": True,
                    "name": "io.debezium.time.MicroTimestamp",
                    "version": 1,
                    "field": "changed",
                },
                {
                    "type": "string",
                    "optional": True,
                    "name": "io.debezium.time.ZonedTimestamp",
                    "version": 1,
                    "field": "seen",
                },
                {
                    "type": "bytes",
                    "optional": True,
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "version": 1,
                    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    "field": "price",
                },
                {"type": "bytes", "optional": True, "field": "raw"},
                {"type": "int16", "optional": True, "field": "active"},
            ],
            "optional": True,
            "name": "shop.inventory.orders.Value",
            "field": side,
        }
        for side in ("before", "after")
    ]
    + [{"type": "string", "optional": False, "field": "op"}, {"type": "int64", "optional": True, "field": "ts_ms"}],
    "optional": False,
    "name": "shop.inventory.orders.Envelope",
    "version": 1,
}
ORDERS = pa.schema(
    [
        ("id", pa.int32()),
        ("day", pa.date32()),
        ("at", pa.time32("ms")),
        ("created", pa.timestamp("us")),
        ("changed", pa.timestamp("us")),
        ("seen", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("active", pa.bool_()),
    ]
)
ENCODED = {
    "id": 1,
    "day": 18263,
    "at": 11045678000,
    "created": 1577934245123,
    "changed": 1577934245123456,
    "seen": "2020-01-02T03:04:05.123456Z",
    "price": "/zY=",  # 0xff36 = -202
    "raw": "aGVsbG8=",
    "active": 1,
}
MEANT = {
    "id": 1,
    "day": datetime.date(2020, 1, 2),
    "at": datetime.time(3, 4, 5, 678000),
    "created": moment("2020-01-02 03:04:05.123000"),
    "changed": moment("2020-01-02 03:04:05.123456"),
    "seen": datetime.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.UTC),
    "price": Decimal("-2.02"),
    "raw": b"hello",
    "active": True,
}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def with_schema(payload: Any, schema_part: Any = SCHEMA_PART) -> str:
    return compact({"schema": schema_part, "payload": payload})


def binaries(texts: list[str | bytes | None]) -> pa.Array:
    return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())


def decode(
    texts: list[str | bytes | None],
    schema: pa.Schema = CUSTOMERS,
    *,
    keys: list[str | None] | None = None,
    **arguments: Any,
) -> DecodedChanges:
    changes = decode_envelopes(
        binaries(texts), schema=schema, keys=None if keys is None else binaries(list(keys)), **arguments
    )
    changes.rows.validate(full=True)
    assert changes.rows.schema == schema
    assert changes.kinds.type == pa.int8()
    assert len(changes.rows) == len(changes.kinds) == len(changes.record_indices)
    return changes


def listed(changes: DecodedChanges) -> list[tuple[int, RowKind, dict[str, Any]]]:
    kinds = [RowKind(kind) for kind in changes.kinds.to_pylist()]
    return list(zip(changes.record_indices.tolist(), kinds, changes.rows.to_pylist(), strict=True))


ANNE = {"id": 1004, "first_name": "Anne", "email": "annek@noanswer.org"}
ANNE_MARIE = {**ANNE, "first_name": "Anne Marie"}
SALLY = {"id": 1001, "first_name": "Sally", "email": None}
ONLY_ID = {"id": 1004, "first_name": None, "email": None}


def test_each_operation_becomes_its_change() -> None:
    assert listed(decode([READ, CREATE, UPDATE, DELETE])) == [
        (0, ADD, SALLY),
        (1, ADD, ANNE),
        (2, AFTER, ANNE_MARIE),
        (3, GONE, ANNE_MARIE),
    ]


def test_an_update_gives_both_rows_where_asked() -> None:
    changes = decode([CREATE, UPDATE, DELETE], with_update_before=True)
    assert listed(changes) == [(0, ADD, ANNE), (1, BEFORE, ANNE), (1, AFTER, ANNE_MARIE), (2, GONE, ANNE_MARIE)]


def test_columns_are_those_of_the_schema_whatever_the_event_has() -> None:
    schema = pa.schema([("email", pa.string()), ("age", pa.int64()), ("id", pa.int64())])
    assert decode([CREATE, DELETE], schema).rows.to_pylist() == [{"email": ANNE["email"], "age": None, "id": 1004}] * 2


def test_how_arrow_stores_the_records_does_not_show() -> None:
    for values in (
        binaries([CREATE, None]).cast(pa.large_binary()),
        pa.array([CREATE, None]),
        pa.chunked_array([[CREATE], [None]]),
    ):
        assert listed(decode_envelopes(values, schema=CUSTOMERS)) == [(0, ADD, ANNE)]
    sliced = binaries([None, UPDATE, CREATE, DELETE]).slice(2, 1)
    assert listed(decode_envelopes(sliced, schema=CUSTOMERS)) == [(0, ADD, ANNE)]


def test_no_records_no_rows() -> None:
    assert listed(decode([])) == []
    assert listed(decode([None, None])) == []
    assert listed(decode([None], keys=[None], key_names=[])) == []


def test_a_tombstone_after_its_delete_says_nothing() -> None:
    key, other = '{"id":1004}', '{"id":1001}'
    assert listed(decode([DELETE, None])) == [(0, GONE, ANNE_MARIE)]
    changes = decode([DELETE, READ, None, None], keys=[key, other, key, key], key_names=["id"])
    assert listed(changes) == [(0, GONE, ANNE_MARIE), (1, ADD, SALLY)]


def test_a_lone_tombstone_is_a_delete_by_key() -> None:
    key, other = (
        '{"id":1004}',
        '{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":1001}}',
    )
    assert listed(decode([None, READ, None], keys=[key, other, other], key_names=["id"])) == [
        (0, GONE, ONLY_ID),
        (1, ADD, SALLY),
        (2, GONE, {"id": 1001, "first_name": None, "email": None}),
    ]
    again = decode([DELETE, CREATE, None], keys=[key, key, key], key_names=["id"])  # the row came back in between
    assert listed(again)[2] == (2, GONE, ONLY_ID)


def test_tombstones_without_a_key_are_bad_if_keys_are_expected() -> None:
    changes = decode([None, CREATE, None], keys=[None, '{"id":1004}', None], key_names=["id"], on_error="collect")
    assert [(record.index, record.reason) for record in changes.bad] == [
        (0, "a delete has neither row nor key"),
        (2, "a delete has neither row nor key"),
    ]


def test_a_tombstone_may_be_wrapped_too() -> None:
    assert listed(decode([with_schema(None, None), CREATE, '{"schema":null,"payload":null}'])) == [(1, ADD, ANNE)]


def test_a_delete_without_its_row_is_known_by_its_key() -> None:
    lost = '{"before":null,"after":null,"op":"d"}'
    assert listed(decode([CREATE, lost, None], keys=['{"id":1004}'] * 3, key_names=["id"])) == [
        (0, ADD, ANNE),
        (1, GONE, ONLY_ID),
    ]
    with pytest.raises(InvalidInputError, match=r"index=1 .*'before' is missing: op=d.*REPLICA IDENTITY FULL"):
        decode([CREATE, lost])
    with pytest.raises(InvalidInputError, match=r"index=1 .*neither row nor key"):
        decode([CREATE, lost], keys=[None, None], key_names=["id"])
    with pytest.raises(InvalidInputError, match=r"index=1 .*key: id: expected=int32 found='x'"):
        decode([CREATE, lost], keys=[None, '{"id":"x"}'], key_names=["id"])


def test_an_update_pair_needs_the_row_before() -> None:
    update = '{"before":null,"after":{"id":1},"op":"u"}'
    assert [kind for _, kind, _ in listed(decode([update]))] == [AFTER]
    with pytest.raises(InvalidInputError, match=r"'before' is missing: op=u.*REPLICA IDENTITY FULL"):
        decode([update], with_update_before=True)


def test_the_schema_part_tells_how_values_are_encoded() -> None:
    events = [
        {"before": None, "after": ENCODED, "op": "c"},
        {"before": ENCODED, "after": dict.fromkeys(ENCODED), "op": "u"},
        {"before": ENCODED, "op": "d"},
    ]
    changes = decode([with_schema(event) for event in events], ORDERS)
    assert changes.rows.to_pylist() == [MEANT, dict.fromkeys(MEANT), MEANT]
    assert changes.kinds.to_pylist() == [ADD, AFTER, GONE]


SEMANTIC_TYPES = [
    (pa.date32(), "io.debezium.time.Date", 18263, datetime.date(2020, 1, 2)),
    (pa.date32(), "org.apache.kafka.connect.data.Date", -1, datetime.date(1969, 12, 31)),
    (pa.date32(), "io.debezium.time.Timestamp", 18263 * 86_400_000, datetime.date(2020, 1, 2)),  # Oracle's DATE
    (pa.timestamp("us"), "io.debezium.time.Date", 18263, moment("2020-01-02 00:00:00")),
    (pa.time32("ms"), "io.debezium.time.Time", 11045678, datetime.time(3, 4, 5, 678000)),
    (pa.time32("ms"), "io.debezium.time.MicroTime", 11045678000, datetime.time(3, 4, 5, 678000)),
    (pa.time32("ms"), "io.debezium.time.NanoTime", 11045678000000, datetime.time(3, 4, 5, 678000)),
    (pa.time32("ms"), "org.apache.kafka.connect.data.Time", 0, datetime.time(0)),
    (pa.time32("ms"), "io.debezium.time.ZonedTime", "03:04:05.678Z", datetime.time(3, 4, 5, 678000)),
    (pa.timestamp("ms"), "io.debezium.time.Timestamp", -1, moment("1969-12-31 23:59:59.999000")),
    (pa.timestamp("us"), "io.debezium.time.MicroTimestamp", -1, moment("1969-12-31 23:59:59.999999")),
    (
        pa.timestamp("us"),
        "io.debezium.time.NanoTimestamp",
        1577934245123456000,
        moment("2020-01-02 03:04:05.123456"),
    ),
    (pa.timestamp("us"), "org.apache.kafka.connect.data.Timestamp", 1, moment("1970-01-01 00:00:00.001000")),
    (
        pa.timestamp("us"),
        "io.debezium.time.ZonedTimestamp",
        "2020-01-02T05:04:05+02:00",
        moment("2020-01-02 03:04:05"),
    ),
    (
        pa.timestamp("us", "UTC"),
        "io.debezium.time.MicroTimestamp",
        0,
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    ),
    (pa.int64(), "io.debezium.time.MicroTimestamp", 123, 123),
    (pa.int32(), "io.debezium.time.Year", 2020, 2020),
    (pa.decimal128(10, 2), "org.apache.kafka.connect.data.Decimal", "ew==", Decimal("1.23")),
    (pa.decimal128(38, 4), "org.apache.kafka.connect.data.Decimal", "ew==", Decimal("1.2300")),
    (pa.decimal128(38, 38), "org.apache.kafka.connect.data.Decimal", "AA==", Decimal(0)),
    (
        pa.decimal128(10, 2),
        "org.apache.kafka.connect.data.Decimal",
        base64.b64encode((-(10**10) + 1).to_bytes(5, "big", signed=True)).decode(),
        Decimal("-99999999.99"),
    ),
    (pa.string(), "io.debezium.data.Json", '{"a":1}', '{"a":1}'),
    (pa.string(), "io.debezium.data.Uuid", "09b4b1f5-4e-41", "09b4b1f5-4e-41"),
]


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(
    ("data_type", "name", "encoded", "meant"),
    SEMANTIC_TYPES,
    ids=lambda value: str(value)[:40],
)
def test_semantic_types_are_followed(data_type: pa.DataType, name: str, encoded: Any, meant: Any, count: int) -> None:
    field = {"type": "any", "optional": True, "name": name, "version": 1, "field": "x", "parameters": {"scale": "2"}}
    schema_part = {
        "type": "struct",
        "fields": [
            {"type": "struct", "fields": [field], "optional": True, "field": side} for side in ("before", "after")
        ],
    }
    record = with_schema({"before": None, "after": {"x": encoded}, "op": "c"}, schema_part)
    assert decode([record] * count, pa.schema([("x", data_type)])).rows.to_pylist() == [{"x": meant}] * count


@pytest.mark.parametrize(
    ("data_type", "unit", "number", "fact"),
    [
        (pa.date32(), "ms", 86_400_001, "not a whole day"),
        (pa.date32(), "D", 2**31, "out of range"),
        (pa.time32("ms"), "us", 86_400_000_000, "outside of the day"),
        (pa.time32("ms"), "ms", -1, "outside of the day"),
        (pa.timestamp("ms"), "us", 1001, "finer than the column's unit"),
        (pa.timestamp("ns"), "s", 2**40, "out of range"),
        (pa.bool_(), None, 2, "expected=bool found=2"),
    ],
)
def test_a_number_that_the_column_cannot_hold_is_refused(
    data_type: pa.DataType, unit: str | None, number: int, fact: str
) -> None:
    units = {} if unit is None else {"epoch_units": {"x": unit}}
    with pytest.raises(InvalidInputError, match=fact):
        decode([compact({"after": {"x": number}, "op": "c"})], pa.schema([("x", data_type)]), **units)


def test_decimals_of_variable_scale_are_read() -> None:
    """io.debezium.data.VariableScaleDecimal: Oracle's NUMBER, PostgreSQL's NUMERIC."""
    values = [{"scale": 3, "value": "BNI="}, {"scale": 0, "value": "/w=="}, None]
    records = [compact({"after": {"x": value}, "op": "c"}) for value in values]
    assert decode(records, pa.schema([("x", pa.decimal128(10, 4))])).rows.to_pylist() == [
        {"x": Decimal("1.2340")},
        {"x": Decimal(-1)},
        {"x": None},
    ]
    with pytest.raises(InvalidInputError, match="more digits than the column has"):
        decode(records, pa.schema([("x", pa.decimal128(10, 2))]))


WITHOUT_SCHEMA_PART = [
    (pa.date32(), 18263, {}, datetime.date(2020, 1, 2)),
    (pa.date32(), "2020-01-02", {}, datetime.date(2020, 1, 2)),
    (pa.time32("ms"), 11045678, {}, datetime.time(3, 4, 5, 678000)),
    (pa.time32("ms"), 11045678000, {"epoch_units": {"x": "us"}}, datetime.time(3, 4, 5, 678000)),
    (pa.time32("ms"), "03:04:05", {}, datetime.time(3, 4, 5)),
    (pa.timestamp("ms"), 1577934245123, {}, moment("2020-01-02 03:04:05.123000")),
    (pa.timestamp("us"), 1577934245123456, {}, moment("2020-01-02 03:04:05.123456")),
    (pa.timestamp("us"), 1577934245123, {"epoch_units": {"x": "ms"}}, moment("2020-01-02 03:04:05.123000")),
    (pa.timestamp("us"), "2020-01-02T03:04:05.123Z", {}, moment("2020-01-02 03:04:05.123000")),
    (
        pa.timestamp("us", "UTC"),
        "2020-01-02T03:04:05Z",
        {},
        datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    ),
    (pa.decimal128(10, 2), 1.5, {}, Decimal("1.50")),
    (pa.decimal128(10, 2), "1.50", {}, Decimal("1.50")),
    (pa.decimal128(10, 2), "ew==", {"base64_decimals": True}, Decimal("1.23")),
    (pa.bool_(), True, {}, True),
    (pa.bool_(), 0, {}, False),
    (pa.float64(), "NaN", {}, float("nan")),
    (pa.binary(), "aGVsbG8=", {}, b"hello"),
    (pa.list_(pa.date32()), [18263, None], {}, [datetime.date(2020, 1, 2), None]),
    (pa.list_(pa.string()), ["a", None], {}, ["a", None]),
    (
        pa.struct([("when", pa.timestamp("ms"))]),
        {"when": 1577934245123},
        {},
        {"when": moment("2020-01-02 03:04:05.123000")},
    ),
    (pa.map_(pa.string(), pa.string()), {"k": "v"}, {}, [("k", "v")]),
]


@pytest.mark.parametrize("neighbour", [None, {"x": None}, {}], ids=["alone", "beside null", "beside missing"])
@pytest.mark.parametrize(
    ("data_type", "encoded", "arguments", "meant"), WITHOUT_SCHEMA_PART, ids=lambda value: str(value)[:40]
)
def test_without_a_schema_part_the_column_and_the_caller_decide(
    data_type: pa.DataType, encoded: Any, arguments: dict[str, Any], meant: Any, neighbour: dict[str, Any] | None
) -> None:
    rows = [neighbour] * (neighbour is not None) + [{"x": encoded}]
    records = [compact({"before": None, "after": row, "source": {"x": None}, "op": "c"}) for row in rows]
    found = decode(records, pa.schema([("x", data_type)]), **arguments).rows.to_pylist()[-1]["x"]
    assert found == meant or (found != found and meant != meant)  # NaN is no value's equal


@pytest.mark.sweep
@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(("unit", "number"), [("us", 1577934245123), ("us", 19782), ("ms", 19782), ("ms", 1577934245)])
def test_a_number_of_an_unknown_unit_is_not_taken_for_a_moment_of_1970(unit: str, number: int, count: int) -> None:
    """timestamp(3) into TIMESTAMP(6) gave 1970-01-20, DATE into TIMESTAMP 1970-01-01 00:00:19.782 (finding 6)."""
    schema = pa.schema([("x", pa.timestamp(unit))])
    records = [compact({"after": {"x": each}, "op": "c"}) for each in [number, 0, "1970-01-20 00:00:00", None] * count]
    found = decode(records, schema, on_error="collect")
    assert [each.index for each in found.bad] == list(range(0, 4 * count, 4))
    assert all("set epoch-units" in each.reason for each in found.bad)
    assert decode(records, schema, epoch_units={"x": unit}).rows.num_rows == 4 * count
    guessed = decode(records, schema, epoch_units={"x": f"{unit}?"}, on_error="collect")
    assert guessed.bad == found.bad


def test_numbers_and_texts_may_be_mixed_in_one_column() -> None:
    texts = [compact({"after": {"x": 18263 if i % 7 else "2020-01-02"}, "op": "c"}) for i in range(500)]
    assert decode(texts, pa.schema([("x", pa.date32())])).rows.to_pylist() == [{"x": datetime.date(2020, 1, 2)}] * 500


def test_records_with_and_without_schema_part_and_of_several_schemas_keep_their_order() -> None:
    millis = {
        "type": "struct",
        "fields": [
            {
                "field": "after",
                "type": "struct",
                "fields": [{"field": "t", "name": "io.debezium.time.Timestamp", "type": "int64"}],
            }
        ],
    }
    micros = json.loads(compact(millis).replace("Timestamp", "MicroTimestamp"))
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))])
    records: list[str | bytes | None] = []
    for index in range(400):
        part, factor = ((millis, 1), (micros, 1000), (None, 1000))[index * 7 % 3]
        event = {"before": None, "after": {"id": index, "t": index * factor}, "op": "c"}
        records.append(compact(event) if part is None else with_schema(event, part))
    changes = decode([*records, None], schema, epoch_units={"t": "us"})  # of those without a part
    assert changes.rows.column("id").to_pylist() == changes.record_indices.tolist() == list(range(400))
    assert changes.rows.column("t").cast(pa.int64()).to_pylist() == [index * 1000 for index in range(400)]


def test_any_spelling_of_a_schema_part_is_understood() -> None:
    event = {"before": None, "after": ENCODED, "op": "c"}
    records = [
        json.dumps({"schema": SCHEMA_PART, "payload": event}, indent=1),
        " " + compact({"payload": event, "schema": SCHEMA_PART}) + "\n",
        compact({"schema": SCHEMA_PART, "other": 1, "payload": event}),
        with_schema(event),
    ]
    assert decode(records, ORDERS).rows.to_pylist() == [MEANT] * 4
    exact = '{"payload":{"after":{"x":12345678901234567890.123456789},"op":"c"},"schema":null}'
    assert decode([exact], pa.schema([("x", pa.decimal128(38, 9))])).rows.to_pylist() == [
        {"x": Decimal("12345678901234567890.123456789")}
    ]


def test_records_of_many_tables_are_read_one_by_one() -> None:
    parts = [
        {"type": "struct", "name": str(i), "fields": [{"field": "after", "type": "struct", "fields": []}]}
        for i in range(40)
    ]
    records = [with_schema({"after": {"id": i}, "op": "c"}, part) for i, part in enumerate(parts)]
    assert decode(records).rows.column("id").to_pylist() == list(range(40))


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(
    ("meaning", "value"),
    [
        ("io.debezium.time.MicroTime", 11045678001),
        ("io.debezium.time.NanoTime", 11045678000001),
        ("io.debezium.time.ZonedTime", "03:04:05.678001Z"),
    ],
)
def test_a_time_finer_than_its_column_is_a_bad_record(meaning: str, value: object, count: int) -> None:
    """Like a decimal with more digits than its column; it was cut to milliseconds without a word."""
    kind = "string" if isinstance(value, str) else "int64"
    part = {"type": "struct", "fields": [{"field": "x", "type": kind, "name": meaning}]}
    part = {"type": "struct", "fields": [{**part, "field": "after"}]}
    good = "03:04:05Z" if isinstance(value, str) else 0
    values = [good] * count + [value]
    records = [with_schema({"before": None, "after": {"x": each}, "op": "c"}, part) for each in values]
    found = decode(records, pa.schema([("x", pa.time32("ms"))]), on_error="collect")
    assert [(each.index, "finer than a millisecond" in each.reason) for each in found.bad] == [(count, True)]
    assert found.rows.num_rows == count


BAD = [
    (TRUNCATE, "a truncate event cannot become row changes: op=t"),
    ('{"op":"m","message":{"prefix":"x"}}', "unknown operation: op=m"),
    ('{"ts_ms":1}', "not a change event: 'op' is missing"),
    ('{"id":1,"first_name":"flattened"}', "not a change event: 'op' is missing"),
    ("{oops", "not one JSON document"),
    ("", "not one JSON document"),
    (b"\x00\x00\x00\x00\x01avro", "not one JSON document"),
    (b'{"op":"c","after":{"first_name":"\xe9"}}', "not UTF-8"),
    (CREATE + CREATE, "Extra data"),
    ('{"after":{"id":"7"},"op":"c"}', "after: id: expected=int32 found='7'"),
    ('{"after":{"id":2147483648},"op":"c"}', "after: id: expected=int32 found=2147483648 (out of range)"),
    ('{"after":{"id":1,"first_name":7},"op":"c"}', "after: first_name: expected=string found=7"),
    ('{"after":[],"op":"c"}', "after: expected=struct"),
    ('{"after":null,"op":"c"}', "'after' is missing: op=c"),
    ('{"schema":{},"payload":', "not one JSON document"),
    ('{"schema":{},"value":{}}', "it has a schema but no payload"),
    ('{"schema":{},"payload":{"after":{"id":true},"op":"c"}}', "after: id: expected=int32 found=True"),
    (
        compact({"after": {"id": 1, "email": UNAVAILABLE_VALUE}, "op": "u"}),
        "email: an unchanged large value is missing",
    ),
]


@pytest.mark.parametrize("neighbours", [0, 3, 400])
@pytest.mark.parametrize(("record", "reason"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_one_bad_record_is_named_with_its_reason(record: str | bytes, reason: str, neighbours: int) -> None:
    records = [CREATE] * neighbours + [record] + [UPDATE] * neighbours
    with pytest.raises(InvalidInputError) as caught:
        decode(records)
    assert f"index={neighbours} records={len(records)} bad=1 " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("position", [0, 250, 499])
def test_bad_records_can_be_collected(position: int) -> None:
    """A job can put them aside: the indices and the reasons of the bad ones, the rows of the others."""
    records: list[str | bytes | None] = [CREATE] * 500
    for offset, (record, _) in enumerate(BAD):
        records[(position + offset * 3) % 500] = record
    changes = decode(records, on_error="collect")
    expected = sorted(((position + offset * 3) % 500, reason) for offset, (_, reason) in enumerate(BAD))
    assert [record.index for record in changes.bad] == [index for index, _ in expected]
    assert all(reason in record.reason for record, (_, reason) in zip(changes.bad, expected, strict=True))
    assert changes.record_indices.tolist() == [index for index in range(500) if index not in dict(expected)]
    assert changes.rows.to_pylist() == [ANNE] * (500 - len(BAD))


def test_a_batch_of_bad_records_only() -> None:
    changes = decode(["{", "x", None], on_error="collect")
    assert (listed(changes), [record.index for record in changes.bad]) == ([], [0, 1])


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"key_names": ["no"]}, r"missing=\['no'\]"),
        ({"epoch_units": {"no": "ms"}}, r"missing=\['no'\]"),
        ({"epoch_units": {"id": "minutes"}}, "unknown units"),
    ],
)
def test_arguments_that_contradict_the_schema_are_refused(arguments: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        decode([CREATE], **arguments)


rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**31), 2**31 - 1),
        "name": st.none() | st.text(max_size=8).filter(lambda text: text != UNAVAILABLE_VALUE),
        "price": st.none() | st.integers(-(10**10) + 1, 10**10 - 1),
        "day": st.none() | st.integers(-719162, 2932896),
    }
)
events = st.one_of(
    st.tuples(st.sampled_from("cr"), st.none(), rows),
    st.tuples(st.just("u"), rows, rows),
    st.tuples(st.just("d"), rows, st.none()),
    st.none(),
)


@pytest.mark.sweep
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(events, st.booleans()), max_size=12), st.booleans())
def test_a_stream_is_read_as_a_loop_over_its_records_would(
    stream: list[tuple[tuple[str, Any, Any] | None, bool]], with_update_before: bool
) -> None:
    columns = [
        {
            "field": "price",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
            "type": "bytes",
        }
    ]
    schema_part = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": columns}]}
    schema = pa.schema(
        [("id", pa.int32()), ("name", pa.string()), ("price", pa.decimal128(10, 2)), ("day", pa.date32())]
    )

    def encoded(row: dict[str, Any] | None, *, as_bytes: bool) -> dict[str, Any] | None:
        if row is None or row["price"] is None:
            return row
        price = row["price"]
        return {
            **row,
            "price": base64.b64encode(price.to_bytes(8, "big", signed=True)).decode()
            if as_bytes
            else f"{Decimal(price).scaleb(-2)}",
        }

    records: list[str | bytes | None] = []
    expected = []
    for index, (event, has_schema) in enumerate(stream):
        if event is None:
            records.append(None)
            continue
        operation, before, after = event
        payload = {
            "before": encoded(before, as_bytes=has_schema),
            "after": encoded(after, as_bytes=has_schema),
            "op": operation,
        }
        records.append(with_schema(payload, schema_part) if has_schema else compact(payload))
        if operation == "u" and with_update_before:
            expected.append((index, BEFORE, before))
        expected.append(
            (index, {"c": ADD, "r": ADD, "u": AFTER, "d": GONE}[operation], before if operation == "d" else after)
        )

    changes = decode(records, schema, with_update_before=with_update_before)
    plain = changes.rows.set_column(3, "day", changes.rows.column("day").cast(pa.int32()))
    found = [
        (index, kind, {**row, "price": None if row["price"] is None else int(row["price"].scaleb(2))})
        for index, kind, row in zip(
            changes.record_indices.tolist(), changes.kinds.to_pylist(), plain.to_pylist(), strict=True
        )
    ]
    assert found == expected


# ---------------------------------------------------------------------------------------------------- keys that change

KEY_PART = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "int32", "optional": False, "name": "io.debezium.time.Date", "version": 1, "field": "d"},
        {
            "type": "bytes",
            "optional": False,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "field": "n",
        },
        {"type": "string", "optional": False, "field": "s"},
    ],
}
MOVED = pa.schema(
    [("id", pa.int32()), ("d", pa.date32()), ("n", pa.decimal128(10, 2)), ("s", pa.string()), ("t", pa.string())]
)
OLD = {"id": 1, "d": datetime.date(2026, 1, 1), "n": Decimal("1.50"), "s": 'a"\\b'}


def moved(header: bytes | None, *, part: Any = None, **arguments: Any) -> DecodedChanges:
    """A create with a placeholder, the key's schema part and the header as Debezium 3.4 published it."""
    row = {"id": 2, "d": 20454, "n": "AJY=", "s": 'a"\\b', "t": "__debezium_unavailable_value"}
    value = with_schema({"before": None, "after": row, "op": "c"}, part or {"fields": [{**KEY_PART, "field": "after"}]})
    key = with_schema({name: row[name] for name in ("id", "d", "n", "s")}, KEY_PART)
    return decode(
        [value], MOVED, keys=[key], key_names=["id", "d", "n", "s"], unavailable_values="keep",
        old_keys=pa.array([header], pa.binary()), on_error="collect", **arguments,
    )  # fmt: skip


SIMPLE = b'{"id":1,"d":20454,"n":1.50,"s":"a\\"\\\\b"}'


@pytest.mark.parametrize(
    "header",
    [SIMPLE, with_schema({"id": 1, "d": 20454, "n": "AJY=", "s": 'a"\\b'}, KEY_PART).encode()],
    ids=["SimpleHeaderConverter", "JsonConverter"],
)
def test_the_create_of_an_update_that_changes_the_key_lacks_values(header: bytes) -> None:
    found = moved(header)
    assert (found.kinds.to_pylist(), found.bad) == ([RowKind.INSERT], ())
    assert found.rows.to_pylist()[0]["t"] is None
    assert found.unavailable is not None
    assert found.unavailable.to_pylist() == [["t"]]
    assert found.old_keys is not None
    assert found.old_keys.to_pylist() == [OLD]


def test_a_create_without_an_old_key_has_the_placeholder_as_its_value() -> None:
    found = moved(None)
    assert (found.unavailable, found.old_keys) == (None, None)
    assert found.rows.to_pylist()[0]["t"] == "__debezium_unavailable_value"


@pytest.mark.parametrize("header", [b"Struct{id=1}", b"\xff", b'{"id":"x"}', b'{"id":1}', b"null"])
def test_an_old_key_that_cannot_be_read_makes_a_bad_record_and_no_row(header: bytes) -> None:
    found = moved(header)
    assert found.rows.num_rows == 0
    assert [each.index for each in found.bad] == [0]
    assert "the old key, whose row has them, is not known" in found.bad[0].reason


def test_with_fail_the_create_is_a_bad_record() -> None:
    row = {"id": 2, "t": "__debezium_unavailable_value"}
    found = decode(
        [compact({"before": None, "after": row, "op": "c"})], MOVED, keys=['{"id":2}'], key_names=["id"],
        old_keys=pa.array([b'{"id":1}']), on_error="collect",
    )  # fmt: skip
    assert found.rows.num_rows == 0
    assert "an unchanged large value is missing" in found.bad[0].reason
