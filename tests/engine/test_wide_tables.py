"""What is acknowledged is read back: tables as wide and as deep as writers may make them, and what is refused.

Readers know limits so that a hostile file is refused. A writer that does not know them would commit what nobody reads.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from filestore.evolution.schema_change import AddColumn, DropColumn
from filestore.schema import validation
from filestore.schema.validation import MOST_NESTED
from filestore.types.data_types import data_type_of, parse_data_type
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.cdc_job import memory_job
from tests.support.change_events import SourceTable, int32
from tests.support.logs import log_changes

WIDE = 4_100  # a reader took 4,096 once
INT = parse_data_type("INT")
ID = pa.field("id", pa.int32(), nullable=False)
KEYED: Mapping[str, Any] = {"primary_key": ["id"], "options": {"bucket": "1"}}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path / "warehouse"))


def wide_rows(width: int, *ids: int) -> pa.Table:
    schema = pa.schema([ID, *(pa.field(f"c{index}", pa.int32()) for index in range(width - 1))])
    return pa.table([pa.array(ids, pa.int32())] * width, schema=schema)


def check_whole_life(table: Table, rows: pa.Table) -> None:
    """Read, followed, written again, compacted, verified."""
    want = rows.to_pylist()
    assert table.read().to_arrow().to_pylist() == want
    assert sum(each.rows.num_rows for each in table.stream(None, follow=False)) == len(want)
    table.write(rows)
    table.compact(full=True)
    assert {row["id"] for row in table.read().to_arrow(columns=["id", rows.schema.names[-1]]).to_pylist()} == {
        row["id"] for row in want
    }
    assert table.read().to_arrow(filter="id = 1").num_columns == rows.num_columns


# ---- width


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.parametrize("options", [{}, KEYED, {"options": {"fields.c7.stats-mode": "none"}}], ids=str)
def test_a_table_is_as_wide_as_its_rows(catalog: Catalog, options: Mapping[str, Any]) -> None:
    """With statistics of all columns, and of all but one, whose names are then listed."""
    rows = wide_rows(WIDE, 1, 2)
    table = catalog.create_table("d.t", rows.schema, **options)
    table.write(rows)
    check_whole_life(table, rows)


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.parametrize("way", ["alter", "merge-schema"])
def test_a_table_becomes_as_wide(catalog: Catalog, way: str) -> None:
    table = catalog.create_table("d.t", pa.schema([ID]), **KEYED)
    table.write(pa.table({"id": pa.array([0], pa.int32())}))
    rows = wide_rows(WIDE, 1, 2)
    if way == "alter":
        catalog.alter_table("d.t", [AddColumn(path=(name,), type=INT) for name in rows.schema.names[1:]])
        catalog.table("d.t").write(rows)
    else:
        table.write(rows, options={"write.merge-schema": "true"})
    table = catalog.table("d.t")
    assert [row["id"] for row in table.read().to_arrow(columns=["id", "c4000"]).to_pylist()] == [0, 1, 2]
    table.compact(full=True)
    assert table.read().to_arrow().num_columns == WIDE


@pytest.mark.soak
@pytest.mark.sweep
def test_a_record_of_a_change_source_widens_a_table_as_far(tmp_path: Path) -> None:
    def source(width: int) -> SourceTable:
        return SourceTable("wide", [int32("id", optional=False), *(int32(f"c{index}") for index in range(width - 1))])

    def row(number: int, width: int) -> dict[str, int]:
        return {"id": number, **{f"c{index}": number for index in range(width - 1)}}

    with memory_job(tmp_path) as job:
        job.batch(source(10).insert(row(1, 10)))
        job.batch(source(WIDE).insert(row(2, WIDE)))
        job.batch(source(WIDE).update(row(1, WIDE)))
        assert [(each["id"], each["c4000"]) for each in job.rows("wide")] == [(1, 1), (2, 2)]


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.parametrize("format", ["debezium-json", "json"])
def test_a_log_is_as_wide_as_its_table(catalog: Catalog, format: str) -> None:
    with in_memory() as log:
        rows = wide_rows(WIDE, 1)
        table = catalog.create_table(
            "d.t", rows.schema, primary_key=["id"], options={"bucket": "1", "log.format": format, **log}
        )
        table.write(rows)
        assert [row for _, row in log_changes(table)] == rows.to_pylist()
        assert table.read().to_arrow().num_columns == WIDE


def test_more_parts_than_a_footer_may_have_are_refused_before_anything_is_stored(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts count too, by each way to a schema; a table that has more already can still be altered."""
    monkeypatch.setattr(validation, "MOST_PARTS", 8)
    inner = pa.struct([(name, pa.int32()) for name in "abcde"])
    table = catalog.create_table("d.most", pa.schema([ID, ("s", inner), ("c", pa.int32())]))
    refused = r"too many columns: with_parts=9 most=8 fix="
    with pytest.raises(InvalidInputError, match=refused):
        catalog.create_table("d.more", pa.schema([ID, ("s", inner), ("c", pa.int32()), ("d", pa.int32())]))
    with pytest.raises(InvalidInputError, match=refused):
        catalog.alter_table("d.most", [AddColumn(path=("s", "f"), type=INT)])
    with pytest.raises(InvalidInputError, match=refused):
        table.write(wide_rows(3, 1).rename_columns(["id", "c", "d"]), options={"write.merge-schema": "true"})
    assert catalog.list_tables("d") == ["most"]
    assert table.latest_snapshot() is None
    monkeypatch.setattr(validation, "MOST_PARTS", 7)
    catalog.alter_table("d.most", [DropColumn(path=("c",))])
    assert table.read().to_arrow().num_rows == 0


# ---- depth


def struct_of(inner: pa.DataType) -> pa.DataType:
    return pa.struct([("a", inner)])


def list_of(inner: pa.DataType) -> pa.DataType:
    return pa.list_(inner)


def map_of(inner: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), inner)


Nesting = Callable[[pa.DataType], pa.DataType]
VALUES: Mapping[Nesting, Callable[[Any], Any]] = {
    struct_of: lambda value: {"a": value},
    list_of: lambda value: [value],
    map_of: lambda value: [("k", value)],
}
MIXED = (struct_of, list_of, map_of)


def deep(levels: int, *nesting: Nesting) -> tuple[pa.DataType, Any]:
    """A type and a value of it."""
    data_type, value = pa.int32(), 7
    for level in range(levels):
        way = nesting[level % len(nesting)]
        data_type, value = way(data_type), VALUES[way](value)
    return data_type, value


DEEPEST = {"rows": (struct_of,), "lists": (list_of,), "maps": (map_of,), "all": MIXED}


@pytest.mark.sweep
@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("nesting", DEEPEST)
def test_the_deepest_column_is_read_back(catalog: Catalog, nesting: str, format: str) -> None:
    kind, value = deep(MOST_NESTED, *DEEPEST[nesting])
    rows = pa.table({"id": pa.array([1], pa.int32()), "c": pa.array([value], kind)})
    table = catalog.create_table(
        "d.t", pa.schema([ID, ("c", kind)]), primary_key=["id"], options={"bucket": "1", "file.format": format}
    )
    table.write(rows)
    check_whole_life(table, rows)


@pytest.mark.sweep
@pytest.mark.parametrize("format", ["debezium-json", "json"])
@pytest.mark.parametrize("nesting", DEEPEST)
def test_the_deepest_column_is_read_back_from_the_log(catalog: Catalog, nesting: str, format: str) -> None:
    kind, value = deep(MOST_NESTED, *DEEPEST[nesting])
    rows = pa.table({"id": pa.array([1], pa.int32()), "c": pa.array([value], kind)})
    with in_memory() as log:
        options = {"bucket": "1", "log.format": format, **log}
        table = catalog.create_table("d.t", pa.schema([ID, ("c", kind)]), primary_key=["id"], options=options)
        table.write(rows)
        assert [row for _, row in log_changes(table)] == rows.to_pylist()


@pytest.mark.parametrize("levels", [MOST_NESTED + 1, 60, 300, 900, 3000])
@pytest.mark.parametrize("nesting", DEEPEST)
def test_a_deeper_column_is_refused_by_each_way_to_a_schema(catalog: Catalog, nesting: str, levels: int) -> None:
    kind, _ = deep(levels, *DEEPEST[nesting])
    table = catalog.create_table("d.t", pa.schema([ID]), **KEYED)
    with pytest.raises(InvalidInputError, match=r"nested too deeply: .*fix="):
        catalog.create_table("d.deeper", pa.schema([ID, ("c", kind)]))
    with pytest.raises(InvalidInputError, match=r"nested too deeply: .*fix="):
        table.write(
            pa.table({"id": pa.array([1], pa.int32()), "c": pa.nulls(1, kind)}), options={"write.merge-schema": "true"}
        )
    with pytest.raises(InvalidInputError, match=r"nested too deeply: .*fix="):
        catalog.alter_table("d.t", [AddColumn(path=("c",), type=data_type_of(kind))])
    assert catalog.list_tables("d") == ["t"]
    assert (catalog.table("d.t").schema.id, table.latest_snapshot()) == (0, None)


def test_a_table_that_is_deeper_already_can_be_altered(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version made it; what it has is left, and it gets no other such column."""
    kind, _ = deep(MOST_NESTED + 5, struct_of)
    monkeypatch.setattr(validation, "MOST_NESTED", 100)
    catalog.create_table("d.t", pa.schema([ID, ("c", kind)]))
    monkeypatch.undo()
    catalog.alter_table("d.t", [AddColumn(path=("n",), type=INT)])
    with pytest.raises(InvalidInputError, match=r"column=c2 levels=45 most=40"):
        catalog.alter_table("d.t", [AddColumn(path=("c2",), type=data_type_of(kind))])
    assert catalog.table("d.t").read().to_arrow().num_rows == 0


def test_a_schema_file_of_any_depth_is_read_or_refused(catalog: Catalog) -> None:
    table = catalog.create_table("d.t", pa.schema([ID]))
    path = table.store.paths.schema(0)
    body = table.store.io.read_bytes(path).decode()
    for levels in (300, 900, 5000):
        nested = '{"type": "ARRAY", "element": ' * levels + '"INT"' + "}" * levels
        table.store.io.replace(path, body.replace('"INT NOT NULL"', nested).encode())
        with pytest.raises((CorruptDataError, InvalidInputError)):
            catalog.table("d.t").write({"id": [1]})


# ---- other limits of files


def test_names_of_an_index_are_refused_where_a_reader_would_not_find_their_end(catalog: Catalog) -> None:
    def schema(name: str) -> pa.Schema:
        return pa.schema([ID, (name, pa.string())])

    def options(name: str) -> Mapping[str, str]:
        return {"bucket": "1", "file-index.bloom-filter.columns": name}

    longest, longer = "c" * 65_535, "\N{SNOWMAN}" * 21_846  # three bytes each
    table = catalog.create_table("d.t", schema(longest), primary_key=["id"], options=options(longest))
    table.write(pa.table([pa.array([1], pa.int32()), ["a"]], schema=schema(longest)))
    assert table.read().to_arrow(filter=f"{longest} = 'a'").num_rows == 1
    with pytest.raises(InvalidInputError, match=r"name is too long for a bloom filter: .*bytes=65538 most=65535 fix="):
        catalog.create_table("d.longer", schema(longer), primary_key=["id"], options=options(longer))
    assert catalog.list_tables("d") == ["t"]


@pytest.mark.parametrize("option", ["num-levels", "num-sorted-run.compaction-trigger"])
@pytest.mark.parametrize("text", ["2147483647", "3000000000", "9223372036854775807"])
def test_a_table_has_no_more_levels_than_a_manifest_counts(catalog: Catalog, option: str, text: str) -> None:
    table = catalog.create_table("d.t", pa.schema([ID]), primary_key=["id"], options={"bucket": "1", option: text})
    for number in (1, 2):
        table.write({"id": [number]})
    table.compact(full=True)
    table.write({"id": [3]})
    assert table.read().to_arrow().num_rows == 3


# ---- cost


def seconds(work: Callable[[], object]) -> float:
    """Of this process's processor."""
    began = time.process_time()
    work()
    return time.process_time() - began


def times_of(root: Path, width: int) -> dict[str, float]:
    catalog, rows = Catalog(str(root / str(width))), wide_rows(width, 1, 2)
    more = pa.table([pa.array([7], pa.int32())] * width, names=["id", *(f"m{index}" for index in range(width - 1))])
    added = [AddColumn(path=(f"n{index}",), type=INT) for index in range(width)]
    steps: dict[str, Callable[[], object]] = {
        "create": lambda: catalog.create_table("d.t", rows.schema, **KEYED),
        "write": lambda: catalog.table("d.t").write(rows),
        "read": lambda: catalog.table("d.t").read().to_arrow(),
        "write again": lambda: catalog.table("d.t").write(rows),
        "compact": lambda: catalog.table("d.t").compact(full=True),
        "stream": lambda: list(catalog.table("d.t").stream(None, follow=False)),
        "alter": lambda: catalog.alter_table("d.t", added),
        "merge the schema": lambda: catalog.table("d.t").write(more, options={"write.merge-schema": "true"}),
    }
    return {name: seconds(work) for name, work in steps.items()}


@pytest.mark.long
@pytest.mark.sweep
def test_time_grows_as_the_number_of_columns(tmp_path: Path) -> None:
    """Eight times as many take eight times as long, and not 64 times."""
    times_of(tmp_path, 30)  # imports
    narrow, wide = times_of(tmp_path, 500), times_of(tmp_path, 4_000)
    growth = {name: round(wide[name] / max(narrow[name], 0.02), 1) for name in wide}
    assert {name: factor for name, factor in growth.items() if factor > 20} == {}


@pytest.mark.long
@pytest.mark.sweep
def test_a_schema_of_100_000_columns_is_opened_in_little_more_than_its_json(catalog: Catalog) -> None:
    schema = wide_rows(100_000, 1).schema
    made = seconds(lambda: catalog.create_table("d.t", schema))
    opened = seconds(lambda: Catalog(catalog.warehouse).table("d.t").read().to_arrow(columns=["id", "c99998"]))
    assert opened < 3 * made


@contextmanager
def in_memory() -> Iterator[Mapping[str, str]]:
    """Options of a log in a broker of this process."""
    with serving("wide.memory:9092", MemoryEnvironment(MemoryCluster())):
        yield {"log.system": "kafka", "log.kafka.bootstrap.servers": "wide.memory:9092"}
