"""Data files as the table sees them: rows in key order in, described files out, rows of today's schema back."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.datafile.data_file import DataFileWriter, read_data_file
from filestore.datafile.rolling_writer import APPEND_SOURCE, COMPACT_SOURCE, RollingWriter
from filestore.format.interface import BatchLimit
from filestore.format.simple_stats import EMPTY_STATS
from filestore.format.statistics import ColumnRange
from filestore.io.file_io import FileIO, LocalFileIO
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.file_ranges import key_ranges_of, ranges_of
from filestore.manifest.new_file_paths import NewFilePaths
from filestore.options.table_options import TableOptions
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import Predicate
from filestore.schema.table_schema import TableSchema
from filestore.types.binary_row import EMPTY_ROW, decode_row
from filestore.types.data_types import parse_field
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.option_keys import dashed
from tests.support.samples import ATOMIC, outcome, random_predicate, random_rows, schema_of, table_of

BUCKET = "/t/bucket-0"
FORMATS = ["parquet", "orc", "avro"]
SMALL = schema_of({"k": pa.int64(), "name": pa.string(), "price": pa.float64()}, primary_key=["k"])


def options_of(schema: TableSchema, row_group_rows: int = 100, **more: str) -> TableOptions:
    texts = dashed(more)
    return TableOptions({**schema.options, **texts}, has_key=bool(schema.primary_keys), row_group_rows=row_group_rows)


def rolling(
    io: FileIO, schema: TableSchema, options: TableOptions | None = None, level: int = 0, **more: Any
) -> RollingWriter:
    return RollingWriter(
        io=io,
        names=CountedNames(),
        clock=ManualClock(),
        place=NewFilePaths(BUCKET),
        schema=schema,
        options=options or options_of(schema),
        level=level,
        **{"file_source": APPEND_SOURCE, "key_values": bool(schema.primary_keys), **more},
    )


def write_pieces(io: FileIO, schema: TableSchema, *pieces: pa.Table, **how: Any) -> list[DataFileMeta]:
    writer = rolling(io, schema, **how)
    for piece in pieces:
        writer.write(piece)
    return writer.close()


def read_file(
    io: FileIO,
    meta: DataFileMeta,
    schema: TableSchema,
    *,
    read_schema: TableSchema | None = None,
    columns: Sequence[str] | None = None,
    with_system: bool | None = None,
    filter: Predicate | None = None,
    batch_rows: int = 64,
) -> pa.Table:
    wanted = read_schema or schema
    batches = list(
        read_data_file(
            io,
            f"{BUCKET}/{meta.file_name}",
            meta,
            file_schema=schema,
            read_schema=wanted,
            columns=wanted.column_names if columns is None else columns,
            with_system=bool(schema.primary_keys) if with_system is None else with_system,
            filter=filter,
            limit=BatchLimit(rows=batch_rows),
        )
    )
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    return pa.Table.from_batches(batches) if batches else pa.table({})


def small_rows(count: int, *, start: int = 0, kinds: Sequence[int] | None = None) -> pa.Table:
    rows = [{"k": n, "name": f"n{n}", "price": n / 2} for n in range(start, start + count)]
    return table_of(SMALL, rows, kinds=kinds)


def texts(table: pa.Table) -> str:
    """Rows as text: NaN is equal to NaN there."""
    return repr(table.to_pylist())


# ---- writing


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_every_type_come_back_from_every_format(file_format: str) -> None:
    """FL-145, FL-146, FL-147, FL-148, FL-149: sequence number, value kind, key and value."""
    columns = {
        name: kind for name, kind in ATOMIC.items() if not name.startswith(("ts", "ltz")) or file_format != "orc"
    }
    schema = schema_of({"k": pa.int64(), **columns}, primary_key=["k"], file__format=file_format)
    rows = random_rows(random.Random(1), schema, 250)
    for number, row in enumerate(rows):
        row["k"] = number
    table = table_of(schema, rows, kinds=[number % 4 for number in range(250)])
    io = MemoryFileIO()
    [meta] = write_pieces(io, schema, table)
    assert meta.file_name.endswith(f".{file_format}")
    found = read_file(io, meta, schema)
    assert found.schema.equals(table.schema)
    assert texts(found) == texts(table)


def test_a_file_is_described_by_its_rows() -> None:
    """FL-150, FL-154, FL-155, FL-156: what the manifest says of a file is true of it."""
    io = MemoryFileIO()
    [meta] = write_pieces(
        io, SMALL, small_rows(30, kinds=[0, 1, 2] * 10), small_rows(3, start=30, kinds=[3, 3, 0]), level=2
    )
    types = [field.type for field in SMALL.key_fields]
    assert meta == DataFileMeta(
        file_name=meta.file_name,
        size_bytes=len(io.files[f"{BUCKET}/{meta.file_name}"]),
        row_count=33,
        min_key=meta.min_key,
        max_key=meta.max_key,
        key_stats=meta.key_stats,
        value_stats=meta.value_stats,
        min_sequence_number=100,
        max_sequence_number=129,
        schema_id=SMALL.id,
        level=2,
        creation_time_ms=ManualClock().local_ms(),
        delete_row_count=12,
        file_source=APPEND_SOURCE,
        value_stats_cols=None,
    )
    assert (decode_row(meta.min_key, types), decode_row(meta.max_key, types)) == ((0,), (32,))
    assert key_ranges_of(meta, SMALL) == {"k": ColumnRange(min=0, max=32, null_count=0)}
    assert ranges_of(meta, SMALL) == {
        "k": ColumnRange(min=0, max=32, null_count=0),
        "name": ColumnRange(min="n0", max="n9", null_count=0),
        "price": ColumnRange(min=0.0, max=16.0, null_count=0, may_hold_nan=True),
    }


def test_key_value_files_have_javas_columns_in_javas_order() -> None:
    """FL-146, FL-147, FL-148, FL-149. Source: paimon-format.md 6.1."""
    io = MemoryFileIO()
    [meta] = write_pieces(io, SMALL, small_rows(3))
    file = pq.ParquetFile(pa.BufferReader(io.files[f"{BUCKET}/{meta.file_name}"]))
    assert file.schema_arrow.names == ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "name", "price"]
    assert file.read(["_KEY_k"]).column(0).to_pylist() == [0, 1, 2]
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in file.schema_arrow]
    assert ids == [1073741823, 2147483646, 2147483645, 0, 1, 2]
    assert [field.nullable for field in file.schema_arrow] == [False, False, False, False, True, True]


@pytest.mark.parametrize("file_format", FORMATS)
def test_append_files_have_the_tables_columns_only(file_format: str) -> None:
    schema = schema_of({"n": pa.int64()}, file__format=file_format)
    io = MemoryFileIO()
    [meta] = write_pieces(io, schema, table_of(schema, [{"n": n} for n in (3, 1, 2)]))
    assert (meta.min_key, meta.max_key, meta.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert (meta.min_sequence_number, meta.max_sequence_number, meta.delete_row_count) == (0, 2, 0)
    assert read_file(io, meta, schema).to_pylist() == [{"n": 3}, {"n": 1}, {"n": 2}]


def test_files_roll_at_the_target_size_and_do_not_overlap() -> None:
    io = MemoryFileIO()
    options = options_of(SMALL, target_file_size="4 kb")
    table = small_rows(2_000)
    files = write_pieces(io, SMALL, table.slice(0, 1), table.slice(1, 1_500), table.slice(1_501), options=options)
    assert len(files) > 2
    assert len({file.file_name for file in files}) == len(files)
    types = [field.type for field in SMALL.key_fields]
    bounds = [decode_row(key, types)[0] for file in files for key in (file.min_key, file.max_key)]
    assert bounds == sorted(bounds)
    assert sum(file.row_count for file in files) == 2_000
    assert all(file.size_bytes > 4_096 for file in files[:-1])
    found = pa.concat_tables(read_file(io, file, SMALL) for file in files)
    assert found.equals(table)


def test_files_roll_at_a_number_of_rows() -> None:
    options = options_of(SMALL, target_file_row_num="250")
    files = write_pieces(MemoryFileIO(), SMALL, small_rows(1_000), options=options)
    assert [file.row_count for file in files] == [300, 300, 300, 100]


def test_no_rows_make_no_file() -> None:
    io = MemoryFileIO()
    assert write_pieces(io, SMALL) == []
    assert write_pieces(io, SMALL, small_rows(0)) == []
    assert io.files == {}


def test_levels_and_changelogs_have_formats_and_names_of_their_own() -> None:
    io = MemoryFileIO()
    options = options_of(
        SMALL,
        file__format__per__level="0:avro",
        changelog_file__format="orc",
        file__suffix__include__compression="true",
    )
    names = [
        write_pieces(io, SMALL, small_rows(1), options=options, **how)[0].file_name
        for how in ({"level": 0}, {"level": 1}, {"changelog": True}, {"level": 1, "file_source": COMPACT_SOURCE})
    ]
    assert [name.rpartition("-0")[2] for name in names] == [".zst.avro", ".zst.parquet", ".zst.orc", ".zst.parquet"]
    assert [name.partition("-")[0] for name in names] == ["data", "data", "changelog", "data"]


def test_statistics_follow_their_modes() -> None:
    schema = schema_of({"k": pa.string(), "v": pa.string(), "w": pa.int32()}, primary_key=["k"])
    rows = table_of(schema, [{"k": "a" * 200, "v": "b" * 30, "w": 1}])
    for more, expected in (
        ({}, {"k": "a" * 16, "v": "b" * 16, "w": 1}),
        ({"metadata__stats_mode": "full"}, {"k": "a" * 200, "v": "b" * 30, "w": 1}),
        ({"metadata__stats_mode": "counts"}, {"k": None, "v": None, "w": None}),
        ({"metadata__stats_mode": "none"}, {}),
        ({"fields__v__stats_mode": "none"}, {"k": "a" * 16, "w": 1}),
    ):
        [meta] = write_pieces(MemoryFileIO(), schema, rows, options=options_of(schema, **more))
        assert {name: part.min for name, part in ranges_of(meta, schema).items()} == expected, more
        assert key_ranges_of(meta, schema)["k"].min == "a" * 128


@pytest.mark.parametrize("file_format", FORMATS)
def test_bounds_over_four_kilobytes_and_nan_are_exact_all_the_same(file_format: str) -> None:
    schema = schema_of({"s": pa.string(), "f": pa.float64()}, file__format=file_format)
    rows = [{"s": "y" * 5_000, "f": math.nan}, {"s": "x" * 5_000, "f": 1.0}]
    io = MemoryFileIO()
    writer = DataFileWriter(io=io, path=f"{BUCKET}/a.{file_format}", schema=schema, options=options_of(schema), level=0)
    writer.write(table_of(schema, rows))
    ranges = writer.close().value_ranges
    assert (ranges["s"].min, ranges["s"].max) == ("x" * 5_000, "y" * 5_000)
    assert (ranges["f"].min, ranges["f"].max, ranges["f"].null_count) == (None, None, 0)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (small_rows(2).drop(["name"]), "lack a column: column=name"),
        (small_rows(2).drop(["_SEQUENCE_NUMBER"]), "lack a column: column=_SEQUENCE_NUMBER"),
        (table_of(SMALL, [{"k": None}]), "must not be null: column=_KEY_k"),
        (small_rows(2).set_column(2, "price", pa.array(["a", "b"])), "wrong type: column=price type=string"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: pa.Table, said: str) -> None:
    io = MemoryFileIO()
    writer = rolling(io, SMALL)
    with pytest.raises(InvalidInputError, match=said):
        writer.write(rows)
    writer.abort()
    assert io.files == {}


def test_columns_are_taken_by_name_and_safely_cast() -> None:
    rows = small_rows(2)
    mixed = rows.select(["price", "_VALUE_KIND", "name", "k", "_SEQUENCE_NUMBER"])
    mixed = mixed.set_column(2, "name", mixed.column("name").cast(pa.large_string()))
    io = MemoryFileIO()
    [meta] = write_pieces(io, SMALL, mixed)
    assert read_file(io, meta, SMALL).equals(rows)


def test_abort_leaves_nothing_behind() -> None:
    io = MemoryFileIO()
    writer = rolling(io, SMALL, options_of(SMALL, target_file_row_num="1"))
    writer.write(small_rows(350))
    writer.write(small_rows(1, start=350))
    assert len(io.files) > 1
    writer.abort()
    assert io.files == {}
    writer.abort()


OPERATIONS = 5  # open, sync and size of one file; measured by the first assertion of the sweep


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fail_at", range(1, OPERATIONS + 1))
def test_after_any_fault_abort_leaves_nothing_behind(fail_at: int, when: When) -> None:
    disk = MemoryFileIO()
    clean = FaultyFileIO(MemoryFileIO())
    write_pieces(clean, SMALL, small_rows(250))
    assert clean.calls <= OPERATIONS
    io = FaultyFileIO(disk, fail_at=fail_at, when=when)
    writer = None
    try:
        writer = rolling(io, SMALL)
        writer.write(small_rows(250))
        writer.close()
    except UnavailableError:
        assert writer is not None
        writer.abort()
        assert disk.files == {} or when is When.AFTER
    else:
        assert fail_at > clean.calls


def test_a_file_is_synced_and_its_size_is_known_without_asking(tmp_path: Path) -> None:
    io = FaultyFileIO(LocalFileIO())
    writer = DataFileWriter(io=io, path=f"{tmp_path}/b/x.parquet", schema=SMALL, options=options_of(SMALL), level=0)
    writer.write(small_rows(5))
    written = writer.close()
    assert [line.split()[0] for line in io.log] == ["open_output", "sync"]
    assert written.size_bytes == (tmp_path / "b" / "x.parquet").stat().st_size
    assert written.row_count == 5


# ---- reading


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_come_in_the_order_asked_for(file_format: str) -> None:
    schema = replace(SMALL, options={**SMALL.options, "file.format": file_format})
    io = MemoryFileIO()
    [meta] = write_pieces(io, schema, small_rows(3), options=options_of(schema))
    found = read_file(io, meta, schema, columns=["price", "k"])
    assert found.column_names == ["price", "k", "_SEQUENCE_NUMBER", "_VALUE_KIND"]
    assert read_file(io, meta, schema, columns=["name"], with_system=False).column_names == ["name"]
    batches = read_data_file(
        io, f"{BUCKET}/{meta.file_name}", meta, file_schema=schema, read_schema=schema, columns=[], with_system=False
    )
    assert sum(batch.num_rows for batch in batches) == 3


def test_thin_files_are_read() -> None:
    """Golden: `_KEY_` columns are never needed."""
    schema = schema_of({"id": pa.int64(), "v": pa.int32()}, primary_key=["id"])
    bucket = Path(__file__).parents[2] / "golden" / "mini" / "db.db" / "pk_thin" / "bucket-0"
    found = []
    for path in sorted(bucket.glob("data-*.parquet")):
        assert "_KEY_id" not in pq.read_schema(path).names
        io = MemoryFileIO()
        io.files[f"{BUCKET}/{path.name}"] = path.read_bytes()
        [meta] = write_pieces(MemoryFileIO(), schema, table_of(schema, [{"id": 1}]))
        found += read_file(io, replace(meta, file_name=path.name), schema).to_pylist()
    assert found
    assert set(found[0]) == {"id", "v", "_SEQUENCE_NUMBER", "_VALUE_KIND"}


@pytest.mark.parametrize("file_format", FORMATS)
def test_old_files_are_read_in_todays_schema(file_format: str) -> None:
    """Renamed, widened, added and dropped columns, and a filter on them."""
    old = replace(SMALL, options={**SMALL.options, "file.format": file_format})
    new_fields = (
        {"id": 0, "name": "k", "type": "BIGINT NOT NULL"},
        {"id": 3, "name": "name", "type": "INT"},
        {"id": 1, "name": "title", "type": "STRING"},
    )
    new = replace(old, id=1, fields=tuple(parse_field(field) for field in new_fields))
    io = MemoryFileIO()
    [meta] = write_pieces(io, old, small_rows(300), options=options_of(old))
    found = read_file(io, meta, old, read_schema=new, with_system=False, filter=parse_filter("title = 'n7'", new))
    assert found.to_pylist() == [{"k": 7, "name": None, "title": "n7"}]
    none = read_file(io, meta, old, read_schema=new, with_system=False, filter=parse_filter("name = 1", new))
    assert none.num_rows == 0
    everything = read_file(io, meta, old, read_schema=new, columns=["k"], filter=parse_filter("name is null", new))
    assert everything.num_rows == 300


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_a_filter_gives_exactly_the_rows_for_which_it_is_true(seed: int) -> None:
    """FL-181: whatever row groups it may skip on the way."""
    rng = random.Random(seed)
    schema = schema_of(ATOMIC)
    rows = random_rows(rng, schema, rng.choice([1, 10, 40]))
    io = MemoryFileIO()
    [meta] = write_pieces(
        io, schema, table_of(schema, rows), options=options_of(schema, row_group_rows=rng.choice([1, 4, 100]))
    )
    stored = [{**row, "f32": pa.scalar(row["f32"], pa.float32()).as_py()} for row in rows]
    for _ in range(5):
        predicate = random_predicate(rng, schema)
        expected = [number for number, row in enumerate(stored) if outcome(predicate, row) is True]
        found = read_file(io, meta, schema, columns=["i64", "text"], filter=predicate)
        wanted = [{"i64": rows[number]["i64"], "text": rows[number]["text"]} for number in expected]
        assert found.to_pylist() == wanted


def test_a_missing_file_is_missing_and_a_broken_one_corrupt() -> None:
    io = MemoryFileIO()
    [meta] = write_pieces(io, SMALL, small_rows(500))
    path = f"{BUCKET}/{meta.file_name}"
    body = io.files.pop(path)
    with pytest.raises(FileNotFoundError):
        read_file(io, meta, SMALL)
    page = body[:600] + bytes([body[600] ^ 0xFF]) + body[601:]  # of a column; the footer has no checksum
    for broken in (b"", body[:100], body[:-30], body[:-1], page):
        io.files[path] = broken
        with pytest.raises(CorruptDataError, match=path):
            read_file(io, meta, SMALL)
