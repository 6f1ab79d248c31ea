"""The log's records in Avro: other programs read what is written here, and the other way round."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore.format import avro_decoding
from logstore.format.avro_payloads import without_logical_types
from logstore.format.avro_schema import avro_row_schema
from logstore.format.changelog_avro import LogChanges
from logstore.format.record_codec import LogFormat, RecordCodec
from logstore.format.schema_registry import SchemaRegistry
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.row_kind import RowKind
from lsm.varints import read_varints, varint_bytes, word_view
from tests.logstore.columns import SCALAR_TYPES, batches, internal
from tests.stores.schema_registry import SchemaRegistryServer

AVRO_TYPES = [each for each in SCALAR_TYPES if not (pa.types.is_timestamp(each) and each.unit == "s")]
NAMES = st.sampled_from(["a", "b", "a_b", "op", "before", "after", "_x9"])
FORMATS: list[LogFormat] = ["avro", "debezium-avro"]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int32())])
ADD, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    structs = st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items())))
    return st.one_of(inner.map(pa.list_), structs, inner.map(lambda item: pa.map_(pa.string(), item)))


def tables(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.RecordBatch]:
    fields = st.dictionaries(NAMES, types, min_size=1, max_size=4)
    return fields.map(lambda named: pa.schema(list(named.items()))).flatmap(batches)


class Texts:
    """A registry without a server, which counts how often it is asked."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.asked = 0

    def register(self, subject: str, text: str) -> int:
        self.texts[len(self.texts) + 1] = text
        return len(self.texts)

    def schema_text(self, schema_id: int) -> str | None:
        self.asked += 1
        return self.texts.get(schema_id)


def codec_of(
    registry: Any, log_format: LogFormat, schema: pa.Schema, key_names: Sequence[str], *, keeps: bool = False
) -> RecordCodec:
    codec = RecordCodec(
        log_format=log_format, key_names=tuple(key_names), keeps_update_before=keeps, topic="t", registry=registry
    )
    return codec.registered(0, schema)


def three_columns(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, each, strict=True)) for each in values], schema=schema)


def kinds_of(*kinds: RowKind) -> pa.Array:
    return pa.array(list(kinds), pa.int8())


def kinds_and_rows(found: LogChanges) -> list[tuple[str, list[Any]]]:
    rows = [list(row.values()) for row in found.rows.to_pylist()]
    return [(RowKind(kind).symbol, row) for kind, row in zip(found.kinds.to_pylist(), rows, strict=True)]


# ---- numbers


@settings(max_examples=50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 63).map(lambda bits: (1 << bits) - 1) | st.just(0)))
def test_numbers_are_those_of_fastavro(numbers: list[int]) -> None:
    data, lengths = varint_bytes(np.array(numbers, np.int64))
    found = b"".join(bytes(row[:length]) for row, length in zip(data, lengths, strict=True))
    sink = BytesIO()
    for number in numbers:
        fastavro.schemaless_writer(sink, "long", number)
    assert found == sink.getvalue()
    padded = np.frombuffer(found + bytes(24), np.uint8)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    read, read_lengths, too_long = read_varints(word_view(padded), starts)
    assert (read.tolist(), read_lengths.tolist()) == (numbers, lengths.tolist())
    assert too_long is None or not too_long.any()


# ---- rows


@pytest.mark.sweep
@settings(max_examples=40, deadline=None)
@given(data=st.data(), chunk=st.sampled_from([2, 8192]))
def test_rows_of_any_types_are_read_as_they_were_written(data: st.DataObject, chunk: int) -> None:
    """FL-125, FL-126: and fastavro reads and writes the same bytes."""
    batch = data.draw(tables(st.recursive(st.sampled_from(AVRO_TYPES), nested, max_leaves=4)))
    kinds = data.draw(st.lists(st.sampled_from([0, 3]), min_size=len(batch), max_size=len(batch)))
    registry = Texts()
    codec = codec_of(registry, "debezium-avro", batch.schema, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logstore.format.avro_encoding._CHUNK_ROWS", chunk)
        patch.setattr("logstore.format.changelog_avro.COLUMN_ROWS", chunk)
        values = codec.encode(batch, pa.array(kinds, pa.int8()), version=0).values
        found = codec.decode(None, values, batch.schema)
        with_fastavro = avro_decoding.read_with_blocks(
            pa.array([each[5:] for each in values.to_pylist()], pa.binary()), registry.texts[1], ("before", "after")
        )
    assert [internal(column) for column in found.rows.columns] == [internal(column) for column in batch.columns]
    assert found.kinds.to_pylist() == kinds
    assert [side.is_valid().to_pylist() for side in with_fastavro.values()] == [
        [kind == 3 for kind in kinds],
        [kind == 0 for kind in kinds],
    ]
    plain = fastavro.parse_schema(without_logical_types(json.loads(registry.texts[1])))
    for value in values.to_pylist():
        source, sink = BytesIO(value[5:]), BytesIO()
        record = fastavro.schemaless_reader(source, plain)
        assert source.tell() == len(value) - 5
        fastavro.schemaless_writer(sink, plain, record)
        assert sink.getvalue() == value[5:]


def test_the_schema_is_the_one_of_flink() -> None:
    """As ``AvroSchemaConverter.convertToSchema`` derives it, without legacy timestamps."""
    rows = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int8()),
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms")),
            ("seen", pa.timestamp("us", "UTC")),
            ("p", pa.struct([("x", pa.int32())])),
            ("p_x", pa.struct([("x", pa.int32())])),
            ("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
            ("counts", pa.map_(pa.string(), pa.float64())),
        ]
    )
    found = json.loads(avro_row_schema(rows, other_names={"day": ("date",)}))
    point = {"type": "record", "namespace": "org.apache.flink.avro.generated", "fields": [
        {"name": "x", "type": ["null", "int"], "default": None}]}  # fmt: skip
    types: dict[str, Any] = {
        "small": "int",
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "local-timestamp-millis"},
        "seen": {"type": "long", "logicalType": "timestamp-micros"},
        "p": {**point, "name": "record_p"},
        "p_x": {**point, "name": "record_p_x"},
        "tags": {"type": "array", "items": "string"},
        "counts": {"type": "map", "values": ["null", "double"]},
    }
    nullable = [{"name": name, "type": ["null", kind], "default": None} for name, kind in types.items()]
    nullable[2]["aliases"] = ["date"]
    assert found == {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.flink.avro.generated",
        "fields": [{"name": "id", "type": "long"}, *nullable],
    }
    fastavro.parse_schema(found)
    clash = pa.schema(
        [("a_b", pa.struct([("x", pa.int8())])), ("a", pa.struct([("b", pa.struct([("y", pa.int8())]))]))]
    )
    fastavro.parse_schema(json.loads(avro_row_schema(clash)))


def test_null_in_a_column_that_is_never_null_is_refused() -> None:
    codec = codec_of(Texts(), "avro", SCHEMA, ["id"])
    loose = three_columns((None, "a", 1), schema=pa.schema([field.with_nullable(True) for field in SCHEMA]))
    with pytest.raises(InvalidInputError, match="null in a column that is never null: column=id"):
        codec.encode(loose, kinds_of(ADD), version=0)
    with pytest.raises(InvalidInputError, match="Avro has no such type: column=m"):
        avro_row_schema(pa.schema([("m", pa.map_(pa.int32(), pa.int32()))]))


# ---- kinds


@pytest.mark.parametrize("log_format", FORMATS)
def test_inserts_and_deletes_are_read_as_such(log_format: LogFormat) -> None:
    """FL-125: a delete of upsert-kafka is a tombstone; FL-126: one of Debezium has its row."""
    codec = codec_of(Texts(), log_format, SCHEMA, ["id"])
    rows = three_columns((1, "a", 1), (1, "a", 1), (1, "b", None), (2, "ü", -5))
    encoded = codec.encode(rows, kinds_of(ADD, UB, UA, DEL), version=0)
    assert encoded.keys is not None
    assert (len(encoded.keys), encoded.values.null_count) == (3, 1 if log_format == "avro" else 0)
    found = codec.decode(encoded.keys, encoded.values, SCHEMA)
    deleted = [2, None, None] if log_format == "avro" else [2, "ü", -5]
    assert kinds_and_rows(found) == [("+I", [1, "a", 1]), ("+I", [1, "b", None]), ("-D", deleted)]
    assert found.indices is None


def test_all_changes_are_kept_where_the_mode_says_so() -> None:
    codec = codec_of(Texts(), "debezium-avro", SCHEMA, ["id"], keeps=True)
    values = codec.encode(three_columns((1, "a", 1), (1, "b", 1)), kinds_of(UB, UA), version=0).values
    assert kinds_and_rows(codec.decode(None, values, SCHEMA)) == [("-D", [1, "a", 1]), ("+I", [1, "b", 1])]
    for names, keeps in (((), False), (("id",), True)):
        with pytest.raises(InvalidInputError, match=r"log\.format=avro needs a primary key"):
            codec_of(Texts(), "avro", SCHEMA, names, keeps=keeps).encode(
                three_columns((1, "a", 1)), kinds_of(ADD), version=0
            )


@pytest.mark.parametrize("log_format", FORMATS)
def test_records_that_are_no_change_are_left_out(log_format: LogFormat) -> None:
    """Those that control the log have neither key nor value."""
    codec = codec_of(Texts(), log_format, SCHEMA, ["id"])
    encoded = codec.encode(three_columns((1, "a", 1), (2, "b", 2)), kinds_of(ADD, DEL), version=0)
    assert encoded.keys is not None
    nothing = pa.nulls(1, pa.binary())
    keys = pa.concat_arrays([nothing, encoded.keys, nothing])
    values = pa.concat_arrays([nothing, encoded.values, nothing])
    found = codec.decode(keys, values, SCHEMA)
    assert found.indices is not None
    assert (found.indices.tolist(), found.kinds.to_pylist()) == ([1, 2], [ADD, DEL])
    none = codec.decode(keys[:1], values[:1], SCHEMA)
    assert none.indices is not None
    assert (len(none.rows), len(none.kinds), len(none.indices)) == (0, 0, 0)
    empty = codec.decode(keys[:0], values[:0], SCHEMA)
    assert (len(empty.rows), empty.rows.schema, empty.indices) == (0, SCHEMA, None)


def test_a_schema_is_asked_for_once_for_all_records_with_it() -> None:
    registry = Texts()
    codec = codec_of(registry, "debezium-avro", SCHEMA, ["id"])
    values = codec.encode(
        three_columns(*((number, "x", 1) for number in range(1000))), kinds_of(*1000 * [ADD]), version=0
    ).values
    codec.decode(None, values, SCHEMA)
    assert registry.asked == 1


# ---- schemas of other times


def test_records_of_older_schemas_have_the_columns_of_today() -> None:
    """FL-24: by name, wider, and null where a record has no such field."""
    registry = Texts()
    newer = pa.schema([*SCHEMA, ("more", pa.float64())]).set(2, pa.field("n", pa.int64()))
    codec = codec_of(registry, "debezium-avro", SCHEMA, ["id"]).registered(1, newer)
    old = codec.encode(three_columns((1, "a", 1), (3, "c", 3)), kinds_of(ADD, DEL), version=0).values
    new = codec.encode(three_columns((2, "b", 2**40, 0.5), schema=newer), kinds_of(ADD), version=1).values
    mixed = pa.concat_arrays([old[:1], new, old[1:]])
    found = codec.decode(None, mixed, newer)
    assert kinds_and_rows(found) == [("+I", [1, "a", 1, None]), ("+I", [2, "b", 2**40, 0.5]), ("-D", [3, "c", 3, None])]
    some = codec.decode(None, mixed, pa.schema([("more", pa.string()), ("id", pa.int64())]))
    assert some.rows.to_pydict() == {"more": [None, "0.5", None], "id": [1, 2, 3]}
    with pytest.raises(CorruptDataError, match=r"index=1 .*does not fit"):
        codec.decode(None, mixed, SCHEMA)


def test_unions_may_have_null_last() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["string", "null"]}]})  # fmt: skip
    registry = Texts()
    registry.register("", text)
    values = []
    for name in ("a", None):
        sink = BytesIO(b"\x00\x00\x00\x00\x01")
        sink.seek(5)
        fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(text)), {"id": 7, "name": name})
        values.append(sink.getvalue())
    found = codec_of(registry, "avro", SCHEMA, ["id"]).decode(None, pa.array(values), SCHEMA)
    assert [row["name"] for row in found.rows.to_pylist()] == ["a", None]


# ---- damage

WIDE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("m", pa.decimal128(20, 3)),
        ("p", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
WITH_LIST = pa.schema([*WIDE, ("l", pa.list_(pa.int32()))])
_ROW = {"id": 1, "s": "abc", "d": 1.0, "f": 2.0, "b": True, "m": 5, "p": {"x": 1, "y": "z"}, "l": [1, 2]}


@pytest.mark.parametrize("schema", [WIDE, WITH_LIST], ids=["columns", "with a list"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 200), byte=st.integers(0, 255), cut=st.booleans(), log_format=st.sampled_from(FORMATS))
def test_damaged_records_are_refused_or_read_and_nothing_else(
    schema: pa.Schema, place: int, byte: int, cut: bool, log_format: LogFormat
) -> None:
    rows = pa.RecordBatch.from_pylist([{name: _ROW[name] for name in schema.names}] * 3, schema=schema)
    codec = codec_of(Texts(), log_format, schema, ["id"])
    good = codec.encode(rows, kinds_of(ADD, ADD, ADD), version=0).values.to_pylist()
    place %= len(good[1])
    bad = good[1][:place] if cut else good[1][:place] + bytes([byte]) + good[1][place + 1 :]
    values = pa.array([good[0], bad, good[2]], pa.binary())
    if cut:
        with pytest.raises(CorruptDataError, match="index=1 records=3"):
            codec.decode(None, values, schema)
        return
    with contextlib.suppress(CorruptDataError):
        found = codec.decode(None, values, schema)
        assert found.rows.num_rows == 3
        assert found.rows.slice(0, 1).equals(rows.slice(0, 1))


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (b"", "the first byte is not zero"),
        (b'{"a":1}', "the first byte is not zero"),
        (b"\x00\x00\x00\x00\x63", "no such schema in the registry: schema_id=99"),
        (b"\x00\x00\x00\x00\x02\x00\x00", "neither an insert nor a delete"),
        (b"\x00\x00\x00\x00\x01\x02", "not the Avro schema of an envelope"),
    ],
)
def test_what_is_no_record_of_the_log_is_named(value: bytes, fact: str) -> None:
    codec = codec_of(Texts(), "debezium-avro", SCHEMA, ["id"])
    good = codec.encode(three_columns((1, "a", 1)), kinds_of(ADD), version=0).values.to_pylist()
    with pytest.raises(CorruptDataError, match=fact):
        codec.decode(None, pa.array([*good, value], pa.binary()), SCHEMA)


# ---- Confluent's own client


@pytest.fixture
def client(schema_registry: SchemaRegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield client


@pytest.mark.sweep
@pytest.mark.parametrize("log_format", FORMATS)
def test_confluents_deserializer_reads_what_is_written_here(
    schema_registry: SchemaRegistryServer, client: SchemaRegistryClient, log_format: LogFormat
) -> None:
    """FL-125, FL-126."""
    codec = codec_of(SchemaRegistry(url=schema_registry.url), log_format, SCHEMA, ["id"])
    assert set(schema_registry.subjects) == {"t-key", "t-value"}
    encoded = codec.encode(three_columns((1, "a", None), (2, "ü", 5)), kinds_of(ADD, DEL), version=0)
    read = AvroDeserializer(client)
    keys, values = (
        [read(each, SerializationContext("t", part)) for each in column.to_pylist()]
        for part, column in ((MessageField.KEY, encoded.keys), (MessageField.VALUE, encoded.values))
    )
    assert keys == [{"id": 1}, {"id": 2}]
    rows = [{"id": 1, "name": "a", "n": None}, {"id": 2, "name": "ü", "n": 5}]
    envelopes = [{"before": None, "after": rows[0], "op": "c"}, {"before": rows[1], "after": None, "op": "d"}]
    assert values == (envelopes if log_format == "debezium-avro" else [rows[0], None])


def test_what_confluents_serializer_writes_is_read_here(
    schema_registry: SchemaRegistryServer, client: SchemaRegistryClient
) -> None:
    registry = SchemaRegistry(url=schema_registry.url)
    codec = codec_of(registry, "debezium-avro", WITH_LIST, ["id"])
    write = AvroSerializer(client, schema_registry.text_of("t-value"))
    row = {**_ROW, "m": None}
    values = [
        write(each, SerializationContext("t", MessageField.VALUE))
        for each in (
            {"before": None, "after": row, "op": "c"},
            {"before": {**row, "d": float("nan"), "s": None}, "after": None, "op": "d"},
        )
    ]
    found = codec.decode(None, pa.array(values, pa.binary()), WITH_LIST)
    assert found.kinds.to_pylist() == [ADD, DEL]
    first, second = found.rows.to_pylist()
    assert first == row
    assert (second["s"], second["d"] != second["d"], second["p"]) == (None, True, row["p"])
    assert schema_registry.subjects["t-value"] == [codec.schemas[0].value.schema_id], "no other version"
