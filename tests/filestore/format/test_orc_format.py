"""ORC files through Arrow's library, with its traps stepped around."""

import random
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import orc

from filestore.datafile.schema_mapping import map_schema
from filestore.format.file_format import file_format
from filestore.format.interface import WriteSettings
from filestore.format.orc import read_orc
from filestore.format.statistics import ColumnRange
from filestore.schema.file_fields import file_schema
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import InvalidInputError
from tests.support.samples import ATOMIC, NESTED, random_rows, schema_of, table_of

SETTINGS = WriteSettings(compression="zstd", zstd_level=1, row_group_rows=1000)
# the library holds timestamps in nanoseconds: samples stay inside its range
COLUMNS = {name: kind for name, kind in ATOMIC.items() if not name.startswith(("ts", "ltz"))}


def written(
    table: pa.Table, fields: Sequence[DataField], *, compression: str = "zstd", step: int = 700
) -> tuple[bytes, dict[str, ColumnRange]]:
    """The file of some rows, given piece by piece, and the ranges that its writer found."""
    sink = pa.BufferOutputStream()
    settings = WriteSettings(compression=compression, zstd_level=1, row_group_rows=1000)
    writer = file_format("orc").writer(sink, fields, settings, shared={})
    arranged = table.cast(file_schema(fields))
    for start in range(0, table.num_rows, step):
        writer.write(arranged.slice(start, step))
    ranges = writer.close()
    return sink.getvalue().to_pybytes(), ranges


def read_back(body: bytes, fields: Sequence[DataField]) -> pa.Table:
    """Rows as read, in the types that the fields declare."""
    mapping = map_schema(fields, fields)
    batches = read_orc(pa.BufferReader(body), fields, batch_rows=300)
    return pa.Table.from_batches([mapping.apply(batch) for batch in batches], mapping.arrow_schema)


def same(one: pa.Table, two: pa.Table) -> bool:
    """Equal, NaN being equal to NaN."""
    return one.schema.equals(two.schema) and repr(one.to_pylist()) == repr(two.to_pylist())


@pytest.mark.parametrize("row_count", [0, 1, 2500])
def test_every_type_comes_back(row_count: int) -> None:
    """FL-145."""
    schema = schema_of(COLUMNS)
    table = table_of(schema, random_rows(random.Random(row_count), schema, row_count))
    body, ranges = written(table, schema.fields)
    assert same(read_back(body, schema.fields), table)
    if row_count:
        assert ranges["i64"].null_count == table.column("i64").null_count


@pytest.mark.parametrize("text", ["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"])
def test_timestamps_come_back_on_both_sides_of_1970(text: str) -> None:
    fields = [DataField(id=0, name="t", type=parse_data_type(text))]
    kind = file_schema(fields).field("t").type
    second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    values = pa.array([0, 1, -second, 1_700_000_000_123, -86_399 * second, None], kind)
    table = pa.table({"t": values})
    assert same(read_back(written(table, fields)[0], fields), table.cast(file_schema(fields)))


@pytest.mark.parametrize("value", [253_402_300_799_000, -62_135_596_800_000])
def test_timestamps_that_could_not_be_read_again_are_not_written(value: int) -> None:
    fields = [DataField(id=0, name="t", type=parse_data_type("TIMESTAMP(3)"))]
    with pytest.raises(InvalidInputError, match=r"1677.*column=t.*parquet"):
        written(pa.table({"t": pa.array([value], pa.timestamp("ms"))}), fields)


def test_timestamps_that_java_could_not_read_are_not_written() -> None:
    """The library would store negative nanoseconds; nested ones are found as well."""
    schema = schema_of({"l": pa.list_(pa.timestamp("us"))})
    with pytest.raises(InvalidInputError, match=r"before 1970.*column=l\.list\.element.*parquet"):
        written(table_of(schema, [{"l": [0, -1_500_000]}]), schema.fields)


def test_nested_values_come_back_from_slices() -> None:
    """The library forgets the offset of a sliced struct's nulls: rows 2 to 4 would get those of 0 to 2."""
    schema = schema_of({name: kind for name, kind in NESTED.items() if name != "deep"})
    rows = [
        {"list": ["a"], "map": [("k", 1)], "row": {"x": 1, "y": [Decimal("1.25")]}},
        {"list": [], "map": [], "row": {"x": None, "y": None}},
        {},
        {"list": [None], "row": {"x": 2, "y": []}},
        {},
    ]
    table = table_of(schema, rows)
    for step in (1, 2, 3, 5):
        assert same(read_back(written(table, schema.fields, step=step)[0], schema.fields), table)


def test_a_time_is_stored_as_the_integer_that_java_expects() -> None:
    """Source: Paimon OrcTypeUtil."""
    schema = schema_of({"t": pa.time32("ms")})
    body, _ = written(table_of(schema, [{"t": 3_723_004}]), schema.fields)
    assert orc.ORCFile(pa.BufferReader(body)).schema.field("t").type == pa.int32()


@pytest.mark.parametrize("compression", ["zstd", "zlib", "snappy", "lz4", "none"])
def test_codecs_come_back(compression: str) -> None:
    schema = schema_of({"n": pa.int64()})
    table = table_of(schema, [{"n": n} for n in range(5)])
    body, _ = written(table, schema.fields, compression=compression)
    assert same(read_back(body, schema.fields), table)


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"file\.compression=rar"):
        written(pa.table({}), [], compression="rar")


def test_stripes_are_read_one_by_one_in_batches() -> None:
    schema = schema_of({"n": pa.int64()})
    body, _ = written(table_of(schema, [{"n": n} for n in range(700)]), schema.fields)
    batches = list(read_orc(pa.BufferReader(body), schema.fields, batch_rows=300))
    assert [batch.num_rows for batch in batches] == [300, 300, 100]
    assert [batch.num_rows for batch in read_orc(pa.BufferReader(body), [], batch_rows=300)] == [300, 300, 100]


def test_columns_are_found_by_name_and_may_be_missing() -> None:
    sink = pa.BufferOutputStream()
    orc.write_table(pa.table({"b": ["x"], "other": [1]}), sink)
    fields = [
        DataField(id=1, name="gone", type=parse_data_type("INT")),
        DataField(id=2, name="b", type=parse_data_type("STRING")),
    ]
    assert read_back(sink.getvalue().to_pybytes(), fields).to_pylist() == [{"gone": None, "b": "x"}]
