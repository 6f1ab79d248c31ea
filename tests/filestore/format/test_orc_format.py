"""ORC files through Arrow's library, with its traps stepped around."""

import os
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from engine import Catalog
from filestore.format.file_format import file_format
from filestore.format.interface import FormatWriter, WriteSettings
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


class _Failing:
    """A sink with room for some bytes."""

    closed = False

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "no space left")
        return len(data)

    def tell(self) -> int:
        return 0

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


def fields_and_rows() -> tuple[list[DataField], pa.Table]:
    return [DataField(id=0, name="n", type=parse_data_type("BIGINT"))], pa.table({"n": pa.array(range(5000))})


@pytest.mark.parametrize("room", [0, 3, 50])
def test_a_sink_without_room_is_an_error_and_no_end_of_the_process(room: int) -> None:
    """An error that passes through the library's code ends the process."""
    fields, rows = fields_and_rows()
    settings = WriteSettings(compression="none", zstd_level=1, row_group_rows=1000, block_bytes=1000)
    writer = file_format("orc").writer(pa.PythonFile(_Failing(room), "w"), fields, settings, shared={})
    with pytest.raises(OSError, match="no space left"):
        write_all(writer, rows)


def write_all(writer: FormatWriter, rows: pa.Table) -> None:
    writer.write(rows)
    writer.close()


def test_a_writer_whose_sink_was_closed_is_dropped_in_peace() -> None:
    """As of a batch of which a later row is refused: its file is closed, deleted, and the writer forgotten."""
    fields, rows = fields_and_rows()
    sink = pa.BufferOutputStream()
    settings = WriteSettings(compression="zstd", zstd_level=1, row_group_rows=1000, block_bytes=None)
    writer = file_format("orc").writer(sink, fields, settings, shared={})
    writer.write(rows)
    sink.close()
    del writer


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_a_row_that_is_refused_behind_others_ends_the_write_alone(tmp_path: Path, name: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("b", pa.timestamp("us"))])
    options = {"file.format": name, "write-buffer-size": "1 b"}
    table = Catalog(tmp_path).create_table("d.t", schema, options=options)
    good = pa.record_batch([pa.array([1]), pa.array([0], pa.timestamp("us"))], schema=schema)
    bad = pa.record_batch([pa.array([None], pa.int64()), pa.array([0], pa.timestamp("us"))], names=schema.names)
    with pytest.raises(InvalidInputError, match="column=k"):
        table.write(iter([good, good, bad]))
    assert table.latest_snapshot() is None
    table.write(good)
    assert table.read().to_arrow().num_rows == 1


def test_a_writer_of_many_columns_leaves_its_memory_to_others() -> None:
    """The library takes 400 kB a column while it writes; each thread that wrote kept that."""
    count = 600
    fields = [DataField(id=each, name=f"c{each}", type=parse_data_type("BIGINT")) for each in range(count)]
    table = pa.table({field.name: pa.array([1, 2]) for field in fields})

    def write() -> None:
        ORC.written(table, fields)

    write()
    before = _resident_bytes()
    for _ in range(4):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert _resident_bytes() - before < count * 200_000


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
