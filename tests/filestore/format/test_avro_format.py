"""Avro data files: Paimon's mapping of types, every codec, and blocks that are arrays."""

import io
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from filestore.datafile.schema_mapping import map_schema
from filestore.format.avro import avro_schema, read_avro
from filestore.format.avro_blocks import encode_long
from filestore.format.file_format import file_format
from filestore.format.interface import WriteSettings
from filestore.format.statistics import ColumnRange
from filestore.schema.file_fields import file_schema
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.samples import ATOMIC, NESTED, random_rows, schema_of, table_of


def written(
    table: pa.Table, fields: Sequence[DataField], *, compression: str = "zstd", step: int = 700
) -> tuple[bytes, dict[str, ColumnRange]]:
    """The file of some rows, given piece by piece, and the ranges that its writer found."""
    sink = pa.BufferOutputStream()
    settings = WriteSettings(compression=compression, zstd_level=1, row_group_rows=1000)
    writer = file_format("avro").writer(sink, fields, settings, shared={})
    arranged = table.cast(file_schema(fields))
    for start in range(0, table.num_rows, step):
        writer.write(arranged.slice(start, step))
    ranges = writer.close()
    return sink.getvalue().to_pybytes(), ranges


def read_back(body: bytes, fields: Sequence[DataField]) -> pa.Table:
    """Rows as read, in the types that the fields declare."""
    mapping = map_schema(fields, fields)
    batches = read_avro(pa.BufferReader(body), fields, batch_rows=300)
    return pa.Table.from_batches([mapping.apply(batch) for batch in batches], mapping.arrow_schema)


def same(one: pa.Table, two: pa.Table) -> bool:
    """Equal, NaN being equal to NaN."""
    return one.schema.equals(two.schema) and repr(one.to_pylist()) == repr(two.to_pylist())


@pytest.mark.parametrize("row_count", [0, 1, 1500])
def test_every_type_comes_back(row_count: int) -> None:
    """FL-145."""
    schema = schema_of(ATOMIC)
    table = table_of(schema, random_rows(random.Random(row_count), schema, row_count))
    body, ranges = written(table, schema.fields)
    assert same(read_back(body, schema.fields), table)
    assert [
        row["i64"] for row in fastavro.reader(io.BytesIO(written(table, schema.fields, compression="none")[0]))
    ] == (table.column("i64").to_pylist())
    if row_count:
        assert ranges["i64"].null_count == table.column("i64").null_count


def test_nested_values_come_back() -> None:
    """FL-145: maps with keys that are no texts are arrays of pairs."""
    schema = schema_of(NESTED)
    rows = [
        {"list": ["a", None, "é"], "map": [("k", 1), ("", None)], "row": {"x": 1, "y": [Decimal("1.25"), None]}},
        {"list": [], "map": [], "row": {"x": None, "y": None}, "deep": [(1, [{"moment": 5, "z": [("q", 3)]}, None])]},
        {},
        {"deep": [(2, None), (3, [])]},
    ]
    table = table_of(schema, rows)
    for step in (1, 3, 4):
        assert same(read_back(written(table, schema.fields, step=step)[0], schema.fields), table)


@pytest.mark.parametrize("compression", ["zstd", "gzip", "snappy", "none"])
def test_codecs_come_back(compression: str) -> None:
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": n} for n in range(5)])
    assert same(read_back(written(table, schema.fields, compression=compression)[0], schema.fields), table)


def test_the_schema_is_paimons() -> None:
    """Source: Paimon AvroSchemaConverter; null comes first in unions, TIMESTAMP and LTZ are the other way round."""
    texts = {"a": "INT NOT NULL", "t": "TIMESTAMP(6)", "l": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "d": "DECIMAL(9, 2)"}
    fields = [DataField(id=i, name=name, type=parse_data_type(text)) for i, (name, text) in enumerate(texts.items())]
    assert avro_schema(fields) == {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
            {"name": "l", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}], "default": None},
            {
                "name": "d",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
                "default": None,
            },
        ],
    }


def test_what_avro_cannot_hold_is_refused() -> None:
    for kind, name, compression, said in (
        ("TIMESTAMP(9)", "t", "zstd", "precision 6"),
        ("INT", "a b", "zstd", "not a valid avro name.*'a b'"),
        ("INT", "a", "rar", r"file\.compression=rar"),
    ):
        settings = WriteSettings(compression=compression, zstd_level=1, row_group_rows=1000)
        fields = [DataField(id=0, name=name, type=parse_data_type(kind))]
        with pytest.raises(InvalidInputError, match=said):
            file_format("avro").writer(pa.BufferOutputStream(), fields, settings, shared={})


def foreign(schema: Any, records: Sequence[Any], codec: str = "deflate") -> bytes:
    """A file as another writer makes it."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec=codec)
    return sink.getvalue()


def test_other_writers_files_are_read() -> None:
    """A union around the record, units by the file's own schema, columns in another order, missing or unknown."""
    record = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "extra", "type": "string"},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "n", "type": ["null", "long"]},
        ],
    }
    body = foreign(["null", record], [{"extra": "x", "t": 5, "n": None}, {"extra": "y", "t": -1, "n": 7}])
    texts = {"n": "BIGINT", "t": "TIMESTAMP(6)", "gone": "STRING"}
    fields = [DataField(id=i, name=name, type=parse_data_type(text)) for i, (name, text) in enumerate(texts.items())]
    found = read_back(body, fields)
    assert found.column("t").cast(pa.int64()).to_pylist() == [5000, -1000]
    assert found.drop(["t"]).to_pylist() == [{"n": None, "gone": None}, {"n": 7, "gone": None}]
    assert [batch.num_rows for batch in read_avro(pa.BufferReader(body), [], batch_rows=1)] == [1, 1]


@pytest.mark.parametrize("damage", ["cut", "marker", "magic", "codec", "body"])
def test_broken_files_are_corrupt(damage: str) -> None:
    schema = schema_of({"n": pa.int64()})
    body, _ = written(table_of(schema, [{"n": n} for n in range(500)]), schema.fields)
    broken = {
        "cut": body[:-20],
        "marker": body[:-1] + bytes([body[-1] ^ 1]),
        "magic": b"Obx" + body[3:],
        "codec": body.replace(b"zstandard", b"zstandarx"),
        "body": body[:-60] + bytes([body[-60] ^ 0xFF]) + body[-59:],
    }[damage]
    with pytest.raises(CorruptDataError, match="avro file"):
        read_back(broken, schema.fields)


def test_equal_rows_make_equal_files() -> None:
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": 1}])
    assert written(table, schema.fields) == written(table, schema.fields)


@pytest.mark.parametrize(("value", "expected"), [(0, "00"), (1, "02"), (63, "7e"), (64, "8001"), (300, "d804")])
def test_numbers_are_zigzag(value: int, expected: str) -> None:
    assert encode_long(value).hex() == expected
