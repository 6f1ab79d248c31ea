"""ORC files through Arrow's library, with its traps stepped around."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import orc

from filestore.schema.file_fields import file_schema
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import InvalidInputError
from tests.support.format_files import FormatFiles, same_rows
from tests.support.samples import NESTED, schema_of, table_of

ORC = FormatFiles("orc")


@pytest.mark.parametrize("text", ["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"])
def test_timestamps_come_back_on_both_sides_of_1970(text: str) -> None:
    fields = [DataField(id=0, name="t", type=parse_data_type(text))]
    kind = file_schema(fields).field("t").type
    second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    values = pa.array([0, 1, -second, 1_700_000_000_123, -86_399 * second, None], kind)
    table = pa.table({"t": values})
    assert same_rows(ORC.read_back(ORC.written(table, fields)[0], fields), table.cast(file_schema(fields)))


@pytest.mark.parametrize("value", [253_402_300_799_000, -62_135_596_800_000])
def test_timestamps_that_could_not_be_read_again_are_not_written(value: int) -> None:
    fields = [DataField(id=0, name="t", type=parse_data_type("TIMESTAMP(3)"))]
    with pytest.raises(InvalidInputError, match=r"1677.*column=t.*parquet"):
        ORC.written(pa.table({"t": pa.array([value], pa.timestamp("ms"))}), fields)


def test_timestamps_that_java_could_not_read_are_not_written() -> None:
    """The library would store negative nanoseconds; nested ones are found as well."""
    schema = schema_of({"l": pa.list_(pa.timestamp("us"))})
    with pytest.raises(InvalidInputError, match=r"before 1970.*column=l\.list\.element.*parquet"):
        ORC.written(table_of(schema, [{"l": [0, -1_500_000]}]), schema.fields)


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
        assert same_rows(ORC.read_back(ORC.written(table, schema.fields, step=step)[0], schema.fields), table)


def test_a_time_is_stored_as_the_integer_that_java_expects() -> None:
    """Source: Paimon OrcTypeUtil."""
    schema = schema_of({"t": pa.time32("ms")})
    body, _ = ORC.written(table_of(schema, [{"t": 3_723_004}]), schema.fields)
    assert orc.ORCFile(pa.BufferReader(body)).schema.field("t").type == pa.int32()


def test_stripes_are_read_one_by_one_in_batches() -> None:
    schema = schema_of({"n": pa.int64()})
    body, _ = ORC.written(table_of(schema, [{"n": n} for n in range(700)]), schema.fields)
    assert [batch.num_rows for batch in ORC.batches(body, schema.fields)] == [300, 300, 100]
    assert [batch.num_rows for batch in ORC.batches(body, [])] == [300, 300, 100]


def test_columns_are_found_by_name_and_may_be_missing() -> None:
    sink = pa.BufferOutputStream()
    orc.write_table(pa.table({"b": ["x"], "other": [1]}), sink)
    fields = [
        DataField(id=1, name="gone", type=parse_data_type("INT")),
        DataField(id=2, name="b", type=parse_data_type("STRING")),
    ]
    assert ORC.read_back(sink.getvalue().to_pybytes(), fields).to_pylist() == [{"gone": None, "b": "x"}]
