"""Avro data files: Paimon's mapping of types, every codec, and blocks that are arrays."""

import io
import random
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from filestore.format.avro import avro_schema
from filestore.format.avro_blocks import encode_long
from filestore.format.file_format import file_format
from filestore.format.interface import BatchLimit, WriteSettings
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.format_files import FormatFiles
from tests.support.samples import ATOMIC, random_rows, schema_of, table_of

AVRO = FormatFiles("avro")


@pytest.mark.parametrize("row_count", [0, 1, 1500])
def test_other_readers_read_every_type(row_count: int) -> None:
    """FL-145."""
    schema = schema_of(ATOMIC)
    table = table_of(schema, random_rows(random.Random(row_count), schema, row_count))
    body, _ = AVRO.written(table, schema.fields, compression="none")
    assert [row["i64"] for row in fastavro.reader(io.BytesIO(body))] == table.column("i64").to_pylist()


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
    found = AVRO.read_back(body, fields)
    assert found.column("t").cast(pa.int64()).to_pylist() == [5000, -1000]
    assert found.drop(["t"]).to_pylist() == [{"n": None, "gone": None}, {"n": 7, "gone": None}]
    assert [batch.num_rows for batch in AVRO.batches(body, [], limit=BatchLimit(rows=1))] == [1, 1]


@pytest.mark.parametrize("damage", ["cut", "marker", "magic", "codec", "body"])
def test_broken_files_are_corrupt(damage: str) -> None:
    schema = schema_of({"n": pa.int64()})
    body, _ = AVRO.written(table_of(schema, [{"n": n} for n in range(500)]), schema.fields)
    broken = {
        "cut": body[:-20],
        "marker": body[:-1] + bytes([body[-1] ^ 1]),
        "magic": b"Obx" + body[3:],
        "codec": body.replace(b"zstandard", b"zstandarx"),
        "body": body[:-60] + bytes([body[-60] ^ 0xFF]) + body[-59:],
    }[damage]
    with pytest.raises(CorruptDataError, match="avro file"):
        AVRO.read_back(broken, schema.fields)


@pytest.mark.parametrize(("value", "expected"), [(0, "00"), (1, "02"), (63, "7e"), (64, "8001"), (300, "d804")])
def test_numbers_are_zigzag(value: int, expected: str) -> None:
    assert encode_long(value).hex() == expected
