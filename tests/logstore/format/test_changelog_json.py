"""Laws of the log's own records."""

import datetime
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.format.changelog_json import EncodedChanges, decode_changes, encode_changes
from logstore.json.decoding import decode_objects
from logstore.json.reading import BadRecord, row_reading
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.row_kind import RowKind
from tests.logstore.columns import SCALAR_TYPES, batch_of, batches, internal, schemas

moment = datetime.datetime.fromisoformat
few = settings(max_examples=100, deadline=None, derandomize=True)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(10, 2))])
ROWS = batch_of(
    [
        {"id": 1, "name": "a", "price": Decimal("1.50")},
        {"id": 1, "name": "a", "price": Decimal("1.50")},
        {"id": 1, "name": 'b"', "price": None},
        {"id": 2**53 + 1, "name": None, "price": Decimal("-3.00")},
    ],
    SCHEMA,
)
KINDS = pa.array([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE], pa.int8())


def records(changes: EncodedChanges) -> list[tuple[str | None, str | None]]:
    keys = [None] * len(changes.values) if changes.keys is None else changes.keys.to_pylist()
    return [
        tuple(None if text is None else text.decode() for text in pair)
        for pair in zip(keys, changes.values.to_pylist(), strict=True)
    ]


def test_without_a_key_every_change_is_an_envelope_and_no_record_has_a_key() -> None:
    """FL-122, FL-124, FL-126, FL-132: mode all; the old text wanted Avro here."""
    assert records(encode_changes(ROWS, KINDS, key_names=[], log_format="debezium-json")) == [
        (None, '{"before":null,"after":{"id":1,"name":"a","price":1.50},"op":"c"}'),
        (None, '{"before":{"id":1,"name":"a","price":1.50},"after":null,"op":"d"}'),
        (None, '{"before":null,"after":{"id":1,"name":"b\\"","price":null},"op":"c"}'),
        (None, '{"before":{"id":9007199254740993,"name":null,"price":-3.00},"after":null,"op":"d"}'),
    ]


def test_with_a_key_update_before_is_left_out_and_a_delete_keeps_its_row() -> None:
    """FL-123, FL-130, FL-136, FL-137: a keyed table's log holds +I, +U and -D with all columns."""
    assert records(encode_changes(ROWS, KINDS, key_names=["id"], log_format="debezium-json")) == [
        ('{"id":1}', '{"before":null,"after":{"id":1,"name":"a","price":1.50},"op":"c"}'),
        ('{"id":1}', '{"before":null,"after":{"id":1,"name":"b\\"","price":null},"op":"c"}'),
        (
            '{"id":9007199254740993}',
            '{"before":{"id":9007199254740993,"name":null,"price":-3.00},"after":null,"op":"d"}',
        ),
    ]


def test_mode_all_with_a_key_keeps_update_before() -> None:
    """FL-132."""
    changes = encode_changes(ROWS, KINDS, key_names=["id", "name"], log_format="debezium-json", changelog_mode="all")
    assert records(changes)[1] == (
        '{"id":1,"name":"a"}',
        '{"before":{"id":1,"name":"a","price":1.50},"after":null,"op":"d"}',
    )
    assert len(changes.values) == 4


def test_the_format_json_is_that_of_upsert_kafka() -> None:
    """FL-121, FL-125: key JSON, value the full row, a delete has no value."""
    assert records(encode_changes(ROWS, KINDS, key_names=["id"], log_format="json")) == [
        ('{"id":1}', '{"id":1,"name":"a","price":1.50}'),
        ('{"id":1}', '{"id":1,"name":"b\\"","price":null}'),
        ('{"id":9007199254740993}', None),
    ]


@pytest.mark.parametrize(
    ("key_names", "log_format", "mode", "fact"),
    [
        ([], "json", "auto", "log.format=json needs a primary key"),
        ([], "debezium-json", "upsert", "log.changelog-mode=upsert needs a primary key"),
        (["id"], "json", "all", "log.format=json cannot hold log.changelog-mode=all"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(key_names: list[str], log_format: Any, mode: Any, fact: str) -> None:
    """FL-134: a changelog that cannot be written is an error, not a loss."""
    with pytest.raises(InvalidInputError, match=fact):
        encode_changes(ROWS, KINDS, key_names=key_names, log_format=log_format, changelog_mode=mode)


@pytest.mark.sweep
@few
@given(st.data())
def test_what_is_written_is_read_back_exactly(data: st.DataObject) -> None:
    """FL-121, FL-124: all types, both directions; the log only does not tell +U from +I, nor -U from -D."""
    schema = data.draw(schemas())
    rows = data.draw(batches(schema))
    kinds = data.draw(st.lists(st.sampled_from(RowKind), min_size=len(rows), max_size=len(rows)))
    changes = encode_changes(rows, pa.array(kinds, pa.int8()), key_names=[], log_format="debezium-json")
    read, read_kinds = decode_changes(None, changes.values, schema=schema, key_names=[], log_format="debezium-json")
    read.validate(full=True)
    assert read.schema == schema
    assert [internal(column) for column in read.columns] == [internal(column) for column in rows.columns]
    assert read_kinds.to_pylist() == [RowKind.DELETE if kind.is_retract else RowKind.INSERT for kind in kinds]


@pytest.mark.sweep
@few
@given(st.data())
def test_upserts_are_read_back_with_deletes_by_key(data: st.DataObject) -> None:
    """FL-123, FL-125."""
    schema = data.draw(schemas())
    key_names = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    rows = data.draw(batches(schema))
    kinds = data.draw(
        st.lists(st.sampled_from([RowKind.INSERT, RowKind.DELETE]), min_size=len(rows), max_size=len(rows))
    )
    changes = encode_changes(rows, pa.array(kinds, pa.int8()), key_names=key_names, log_format="json")
    read, read_kinds = decode_changes(
        changes.keys, changes.values, schema=schema, key_names=key_names, log_format="json"
    )
    read.validate(full=True)
    assert read_kinds.to_pylist() == kinds
    for name in schema.names:
        expected = internal(rows.column(name))
        known = [
            value if kind is RowKind.INSERT or name in key_names else None
            for value, kind in zip(expected, kinds, strict=True)
        ]
        assert internal(read.column(name)) == known


def test_many_records_are_read_as_few_are() -> None:
    """Odd records among a thousand (the reader of whole batches refuses them) change nothing for the others."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("f", pa.float64()),
            ("fs", pa.list_(pa.float32())),
            ("d", pa.date32()),
            ("m", pa.map_(pa.string(), pa.int8())),
        ]
    )
    rows = [{"id": i, "f": float(i), "fs": [i / 2], "d": i, "m": [(str(i), i % 100)]} for i in range(1000)]
    rows[7]["f"] = float("nan")
    rows[300]["fs"] = [float("-inf"), None]
    rows[301]["d"] = 2**31 - 1
    rows[302]["m"] = [('"\\', None)]
    batch = batch_of(rows, schema)
    changes = encode_changes(batch, pa.array([0] * 1000, pa.int8()), key_names=[], log_format="debezium-json")
    read, _ = decode_changes(None, changes.values, schema=schema, key_names=[], log_format="debezium-json")
    assert [internal(column) for column in read.columns] == [internal(column) for column in batch.columns]


def test_envelopes_of_other_writers_are_read_too() -> None:
    """Member order, white space, more members, unknown columns, missing columns, and Debezium's u and r."""
    values = [
        b' { "op" : "c" ,\n "after" : { "name" : "x" , "id" : 1 } }\n',
        b'{"before":null,"after":{"id":2,"other":[{}],"price":"2.5"},"source":{"op":"z"},"op":"r"}',
        b'{"before":{"id":2},"after":{"id":2,"price":25E-1},"op":"u"}',
        b'{"before":{"id":2},"op":"d"}',
        b'{"before":null,"after":{"id":3},"source":{"a":1},"op":"c"}',
    ]
    rows, kinds = decode_changes(None, pa.array(values), schema=SCHEMA, key_names=[], log_format="debezium-json")
    assert rows.to_pylist() == [
        {"id": 1, "name": "x", "price": None},
        {"id": 2, "name": None, "price": Decimal("2.50")},
        {"id": 2, "name": None, "price": Decimal("2.50")},
        {"id": 2, "name": None, "price": None},
        {"id": 3, "name": None, "price": None},
    ]
    assert kinds.to_pylist() == [RowKind.INSERT, RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE, RowKind.INSERT]


def test_a_tombstone_in_a_keyed_log_is_a_delete_by_key() -> None:
    keys = [b'{"id":1}', b'{"id":2}']
    values = [b'{"before":null,"after":{"id":1,"name":"x","price":1},"op":"c"}', None]
    rows, kinds = decode_changes(
        pa.array(keys), pa.array(values), schema=SCHEMA, key_names=["id"], log_format="debezium-json"
    )
    assert rows.to_pylist()[1] == {"id": 2, "name": None, "price": None}
    assert kinds.to_pylist() == [RowKind.INSERT, RowKind.DELETE]


def test_no_records_are_no_rows() -> None:
    for log_format in ("debezium-json", "json"):
        rows, kinds = decode_changes(
            None, pa.array([], pa.binary()), schema=SCHEMA, key_names=["id"], log_format=log_format
        )
        assert (rows.num_rows, rows.schema, len(kinds), kinds.type) == (0, SCHEMA, 0, pa.int8())
    empty = encode_changes(ROWS.slice(0, 0), pa.array([], pa.int8()), key_names=["id"], log_format="json")
    assert (len(empty.keys), len(empty.values)) == (0, 0)


GOOD = b'{"before":null,"after":{"id":1,"name":"x","price":1.5},"op":"c"}'
BAD_ENVELOPES = [
    (b"", "not one JSON document"),
    (b"{oops", "not one JSON document"),
    (GOOD + GOOD, "Extra data"),
    (GOOD[:-1], "not one JSON document"),
    (b'{"before":null,"after":{"id":1}', "not one JSON document"),
    (b"null", "'op' is missing"),
    (b"[]", "not an object"),
    (b'{"id":1}', "'op' is missing"),
    (b'{"before":null,"after":null,"op":"c"}', "'after' is missing: op=c"),
    (b'{"before":null,"after":null,"op":"d"}', "'before' is missing: op=d"),
    (b'{"before":null,"after":{"id":1},"op":"x"}', "unknown operation: op=x"),
    (b'{"before":null,"after":{"id":"1"},"op":"c"}', "after: id: expected=int64 found='1'"),
    (b'{"before":null,"after":{"id":1.0},"op":"c"}', "after: id: expected=int64 found=1.0"),
    (b'{"before":null,"after":{"id":9223372036854775808},"op":"c"}', "out of range"),
    (b'{"before":null,"after":{"id":1,"price":1.234},"op":"c"}', "more digits than the column has"),
    (b'{"before":null,"after":{"id":1,"price":123456789},"op":"c"}', "more digits than the column has"),
    (b'{"before":null,"after":{"id":1,"price":"x"},"op":"c"}', "not a number"),
    (b'{"before":null,"after":{"id":1,"name":"\xff"},"op":"c"}', "not UTF-8"),
    (b'{"before":null,"after":{"id":1,"name":"\\ud800"},"op":"c"}', "surrogate"),
    (b'{"before":null,"after":{"id":1,"name":"a\tb"},"op":"c"}', "control character"),
    (b'{"before":null,"after":' + b"[" * 100_000 + b',"op":"c"}', "not one JSON document"),
]


@pytest.mark.parametrize("neighbours", [0, 5, 500])
@pytest.mark.parametrize(
    ("value", "reason"), BAD_ENVELOPES, ids=[reason + str(i) for i, (_, reason) in enumerate(BAD_ENVELOPES)]
)
def test_a_bad_record_is_named_wherever_it_stands(value: bytes, reason: str, neighbours: int) -> None:
    values = pa.array([GOOD] * neighbours + [value] + [GOOD] * neighbours)
    with pytest.raises(CorruptDataError) as caught:
        decode_changes(None, values, schema=SCHEMA, key_names=[], log_format="debezium-json")
    assert f"index={neighbours} " in str(caught.value)
    assert reason in str(caught.value)


def test_two_documents_in_one_record_do_not_make_up_for_an_empty_one() -> None:
    """The counts agree; the rows would not belong to their records."""
    for values in (
        [b"", GOOD + GOOD],
        [GOOD + b"\n" + GOOD, b" "],
        [b'{"before":null,"after":', b'{"id":1},"op":"c"}' + GOOD],
    ):
        with pytest.raises(CorruptDataError, match="index=0 "):
            decode_changes(None, pa.array(values), schema=SCHEMA, key_names=[], log_format="debezium-json")


@pytest.mark.parametrize(
    ("keys", "values", "fact"),
    [
        (None, [b'{"id":1}', None], "neither value nor key: index=1"),
        ([None, None], [b'{"id":1}', None], "neither value nor key: index=1"),
        ([None, b'{"id":"x"}'], [b'{"id":1}', None], "index=1 .*expected=int64"),
        ([None, b"null"], [b'{"id":1}', None], "index=1 .*null, not a row"),
        ([None, None], [b'{"id":1}', b"null"], "index=1 .*null, not a row"),
        ([None, None], [b'{"id":1}', b"[1]"], "index=1 .*not an object"),
    ],
)
def test_bad_upserts_are_named(keys: list[bytes | None] | None, values: list[bytes | None], fact: str) -> None:
    key_array = None if keys is None else pa.array(keys, pa.binary())
    with pytest.raises(CorruptDataError, match=fact):
        decode_changes(key_array, pa.array(values), schema=SCHEMA, key_names=["id"], log_format="json")


ODD_VALUES = [
    *(
        "null",
        "true",
        "1",
        "-0",
        "0",
        "-0.0",
        "1.5",
        "1e2",
        "1E-12",
        "1e400",
        "127",
        "128",
        "4294967296",
        "2e-324",
        "[]",
        "{}",
        "[null]",
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "123456789012345678901234567890",
        "NaN",
        "Infinity",
        "-Infinity",
    ),
    *(
        f'"{text}"'
        for text in (
            "",
            "NaN",
            "Infinity",
            "-Infinity",
            "Inf",
            "1",
            "1.5",
            "+1.5",
            ".5",
            "5.",
            " 1",
            "1e2",
            "abc",
            "YQ==",
            "YQ=",
            "====",
            "true",
        )
    ),
    *(
        f'"{text}"'
        for text in ("2020-01-02", "2020-1-2", "2020-02-30", "0000-01-01", "20200102", "2020-01-02 ", "T03:04")
    ),
    *(
        f'"{text}"'
        for text in (
            "03:04:05",
            "03:04:05.678",
            "03:04:05.1234567891",
            "03:04:05.678901",
            "03:04",
            "03",
            "24:00:00",
            "03:04:05Z",
            "03:04:05ZZ",
        )
    ),
    *(
        f'"2020-01-02{text}"'
        for text in (
            "T03:04:05",
            " 03:04:05",
            " 03:04",
            " 03",
            " 03:04:05.1",
            " 03:04:05.123456",
            " 03:04:05.123456789",
            " 03:04:60",
        )
    ),
    *(
        f'"2020-01-02{text}"'
        for text in (
            " 03:04:05Z",
            " 03:04:05+02:00",
            " 03:04:05-0230",
            " 03:04:05+02",
            " 03:04:05 Z",
            " 03:04:05.",
            "Z",
            "T",
        )
    ),
    *(
        '"+10000-01-01"',
        '"-0001-12-31 00:00:00"',
        '"9999-12-31 23:59:59.999999"',
        '{"a":1}',
        '{"a":1,"a":2}',
        '{"a":null,"b":2}',
        "[1,2]",
        '["a"]',
        '"\\u0000\\n"',
    ),
]


@pytest.mark.sweep
@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize(
    "data_type",
    [*SCALAR_TYPES, pa.list_(pa.int8()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())],
    ids=str,
)
def test_a_value_is_read_the_same_in_a_good_and_in_a_bad_batch(data_type: pa.DataType, lenient: bool) -> None:
    """Arrow reads whole batches, but not beside a bad record: a neighbour must not change what a record means."""
    reading = row_reading(pa.schema([("x", data_type)]), lenient=lenient)
    for value in ODD_VALUES:
        record = f'{{"x":{value}}}'.encode()
        alone = decode_objects(pa.array([record]), reading)
        beside_a_bad_one = decode_objects(pa.array([record, b"{oops"]), reading)
        assert internal(alone.rows) == internal(beside_a_bad_one.rows), record
        assert alone.bad == beside_a_bad_one.bad[:-1], record
        alone.rows.validate(full=True)


ACCEPTED = [
    (pa.date32(), '"2020-01-02"', datetime.date(2020, 1, 2)),
    (pa.time32("ms"), '"03:04:05.678901"', datetime.time(3, 4, 5, 678000)),
    (pa.timestamp("us"), '"2020-01-02T03:04:05.1"', moment("2020-01-02 03:04:05.100000")),
    (pa.timestamp("us"), '"2020-01-02 03:04:05+02:00"', moment("2020-01-02 01:04:05")),
    (pa.timestamp("us", "UTC"), '"2020-01-02 03:04:05Z"', datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
    (pa.timestamp("ms"), '"2020-01-02 03:04:05.123000"', moment("2020-01-02 03:04:05.123000")),
    (
        pa.decimal128(38, 10),
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    (pa.decimal128(10, 2), "1.5000", Decimal("1.50")),
    (pa.decimal128(10, 2), '"-1E+3"', Decimal(-1000)),
    (pa.float64(), '"-Infinity"', float("-inf")),
    (pa.float64(), "-Infinity", float("-inf")),
    (pa.binary(), '"aGVsbG8="', b"hello"),
]


@pytest.mark.parametrize(("data_type", "text", "value"), ACCEPTED)
def test_spellings_that_flink_accepts(data_type: pa.DataType, text: str, value: Any) -> None:
    decoded = decode_objects(pa.array([f'{{"x":{text}}}']), row_reading(pa.schema([("x", data_type)])))
    assert decoded.rows.to_pylist() == [{"x": value}]


def test_maps_are_found_in_any_spelling() -> None:
    """Names that look like structure, escapes, white space, repetition, absence: one meaning, for one and for many."""
    schema = pa.schema(
        [
            ("s", pa.struct([("m", pa.map_(pa.int32(), pa.struct([("v", pa.map_(pa.string(), pa.string()))])))])),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    records = [
        '{"s":{"m":{"1":{"v":{"a":"}","b\\"":"{\\\\","c,:":null}},"2":null}},"m":{"s":1}}',
        '{"m":null,"s":{"m":{}},"y":{"m":{"3":null}}}',
        '{"s":{"x":1},"y":{"m":{"3":null}}}',
        '{"x":{"m":{"no":1}},"m":{"m":2,"":3},"y":{"m":{"no":1}}}',
        '{"s":{"x":"\\\\\\"m\\":{","m":null},"m":{}}',
        '{ "m" : { "a" : 1 } }',
        '{"\\u006d":{"a":1}}',
        '{"m":{"a":1},"m":{"b":2}}',
    ]
    expected: list[dict[str, Any]] = [
        {"s": {"m": [(1, {"v": [("a", "}"), ('b"', "{\\"), ("c,:", None)]}), (2, None)]}, "m": [("s", 1)]},
        {"s": {"m": []}, "m": None},
        {"s": {"m": None}, "m": None},
        {"s": None, "m": [("m", 2), ("", 3)]},
        {"s": {"m": None}, "m": []},
        {"s": None, "m": [("a", 1)]},
        {"s": None, "m": [("a", 1)]},
        {"s": None, "m": [("b", 2)]},
    ]
    for record, row in zip(records, expected, strict=True):
        assert decode_objects(pa.array([record]), row_reading(schema)).rows.to_pylist() == [row], record
    for count in (5, 8):
        many = decode_objects(pa.array(records[:count] * 100), row_reading(schema))
        assert many.rows.to_pylist() == expected[:count] * 100


def test_neighbours_do_not_make_up_for_each_others_base64() -> None:
    """Joined, the texts would be base64."""
    reading = row_reading(pa.schema([("x", pa.binary())]))
    for texts in (("YQ", "YQ"), ("YQ=", "="), ("Y", "WFh"), ("YQ==YWFh", "YWFh")):
        decoded = decode_objects(pa.array([f'{{"x":"{text}"}}' for text in texts]), reading)
        assert [record.index for record in decoded.bad] == ([0] if len(texts[1]) == 4 else [0, 1])


def test_all_bad_records_are_collected_in_order() -> None:
    texts = [b'{"x":1}'] * 300
    for index in (0, 77, 78, 299):
        texts[index] = b'{"x":"a"}'
    decoded = decode_objects(pa.array(texts), row_reading(pa.schema([("x", pa.int8())])))
    assert decoded.bad == tuple(
        BadRecord(index=index, reason="x: expected=int8 found='a'") for index in (0, 77, 78, 299)
    )
    assert decoded.indices.tolist() == [index for index in range(300) if index not in (0, 77, 78, 299)]
    assert decoded.rows.to_pylist() == [{"x": 1}] * 296


@pytest.mark.parametrize(
    "data_type",
    [
        pa.large_string(),
        pa.duration("s"),
        pa.time32("s"),
        pa.map_(pa.list_(pa.int8()), pa.int8()),
        pa.list_(pa.uint8()),
    ],
    ids=str,
)
def test_types_that_no_table_has_are_refused(data_type: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="type="):
        decode_changes(
            None, pa.array([GOOD]), schema=pa.schema([("x", data_type)]), key_names=[], log_format="debezium-json"
        )


@pytest.mark.sweep
@few
@given(st.data())
def test_any_json_parser_reads_the_rows(data: st.DataObject) -> None:
    """FL-121: json.loads, per record, sees the envelope that Flink's source describes."""
    schema = data.draw(schemas(st.sampled_from([pa.int64(), pa.string(), pa.bool_()])))
    rows = data.draw(batches(schema, min_size=1))
    is_retract = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kinds = pa.array(np.where(is_retract, RowKind.DELETE, RowKind.INSERT), pa.int8())
    changes = encode_changes(rows, kinds, key_names=schema.names[:1], log_format="debezium-json")
    for value, key, row, retract in zip(
        changes.values.to_pylist(), changes.keys.to_pylist(), rows.to_pylist(), is_retract, strict=True
    ):
        sides = {"before": row, "after": None, "op": "d"} if retract else {"before": None, "after": row, "op": "c"}
        assert json.loads(value) == sides
        assert json.loads(key) == {schema.names[0]: row[schema.names[0]]}


@pytest.mark.sweep
def test_a_batch_of_several_blocks_is_read_as_its_records_are_one_by_one() -> None:
    """FL-26: large batches are parsed by several threads; a line feed between members is no end of a record."""
    rows = [{"id": index, "name": f"{index:0200d}", "price": Decimal(index % 100)} for index in range(20_000)]
    batch = batch_of(rows, SCHEMA)
    kinds = pa.array(np.zeros(len(rows), np.int8))
    plain = encode_changes(batch, kinds, key_names=["id"], log_format="debezium-json").values
    odd = plain.to_pylist()
    odd[7_000] = odd[7_000].replace(b',"name"', b'\n,\n"name"')
    assert plain.nbytes > 4 << 20
    for values in (plain, pa.array(odd, pa.binary())):
        found, _ = decode_changes(None, values, schema=SCHEMA, key_names=["id"], log_format="debezium-json")
        assert found == batch
