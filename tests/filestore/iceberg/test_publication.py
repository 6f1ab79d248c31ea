"""Iceberg readers see the rows of the table: after writes, merges, changes of columns, expiry, faults and rollbacks."""

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn, DropColumn, RenameColumn
from filestore.iceberg import history, manifests
from filestore.iceberg.places import iceberg_state, metadata_directory
from filestore.io.file_io import LocalFileIO
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.support.faults import FaultyFileIO, When
from tests.support.iceberg import iceberg_rows, live_entries, metadata_json, metadata_path, opened, own_rows, referenced
from tests.support.tables import expire_all_but, reopened

HERE = {"metadata.iceberg.storage": "table-location"}
SCHEMA = pa.schema([("pt", pa.string()), ("id", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("ms"))])


def table_in(directory: Path, *, schema: pa.Schema = SCHEMA, **more: Any) -> FileTable:
    options = {**HERE, "bucket": "2", **more.pop("options", {})}
    key = more.get("primary_key")
    if not key:
        options = {"bucket-key": "id", **options}
    return FileCatalog(str(directory)).create_table("db.t", schema, options=options, **more)


def several(ids: Sequence[int], v: float | None = 1.0, pt: str | None = "a") -> pa.Table:
    stamps = [each * 1_000 for each in ids]
    columns = [[pt] * len(ids), list(ids), [v] * len(ids), stamps]
    return pa.Table.from_arrays(
        [pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def kinds(count: int, kind: int) -> pa.Array:
    return pa.array([kind] * count, pa.int8())


def is_equal_at_all_snapshots(table: FileTable) -> bool:
    shown = [each["snapshot-id"] for each in metadata_json(table)["snapshots"]]
    tags = {table.store.snapshots.tag(name).id: name for name in table.store.snapshots.tag_names()}
    return all(iceberg_rows(table, each) == own_rows(table, each, tag=tags.get(each)) for each in shown)


@pytest.mark.sweep
def test_an_append_table_is_the_same_at_every_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 20 point 1: a random history; each snapshot is Iceberg's with its id, tags are refs, as pyiceberg reads."""
    choice = random.Random(20)
    table = table_in(tmp_path, partition_by=["pt"], options={"metadata.iceberg.compaction.min.file-num": "3"})
    for turn in range(14):
        ids = range(turn * 10, turn * 10 + choice.randint(1, 10))
        table.write(several(ids, choice.choice([None, 1.5, float("nan")]), choice.choice(["a", "b", "c d/é", None])))
        if turn % 4 == 3:
            table.compact(full=True)
        if turn == 6:
            create_tag(table.store, "eod")
        if turn == 9:
            table.overwrite(several([1, 2], pt="b"), {"pt": "b"})
    shown = [each["snapshot-id"] for each in metadata_json(table)["snapshots"]]
    assert shown == table.store.snapshots.ids()
    assert is_equal_at_all_snapshots(table)
    tagged = opened(table).snapshot_by_name("eod")
    assert tagged is not None
    assert tagged.snapshot_id == table.store.snapshots.tag("eod").id
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is another package
    found = pl.scan_iceberg(str(metadata_path(table))).select("id").collect()["id"].sort().to_list()
    assert found == sorted(row[1] for row in own_rows(table))


def test_a_key_table_is_seen_as_of_its_last_full_state(tmp_path: Path) -> None:
    """Issue 20 point 1: level by level states are not seen, and never a deleted row or an old version beside a new."""
    table = table_in(tmp_path, primary_key=["id"])
    table.write(several(range(20)))
    assert iceberg_rows(table) == []
    table.compact(full=True)
    full = own_rows(table)
    assert len(full) == 20
    assert iceberg_rows(table) == full
    table.write(several(range(5), v=2.0))
    table.write(several(range(10, 12)), kinds(2, 3))
    assert iceberg_rows(table) == full
    table.compact(full=True)
    assert len(own_rows(table)) == 18
    assert iceberg_rows(table) == own_rows(table)


def test_columns_keep_their_ids_when_they_change(tmp_path: Path) -> None:
    """Issue 20 point 1: added, renamed, widened and dropped columns, of old files too."""
    catalog = FileCatalog(str(tmp_path))
    table = table_in(tmp_path)
    table.write(several([1]))
    catalog.alter_table(
        "db.t",
        [
            RenameColumn(path=("v",), name="w"),
            AddColumn(path=("n",), type=DataType(root="INT")),
            DropColumn(path=("ts",)),
        ],
    )
    table = catalog.table("db.t")
    table.write(pa.table({"pt": ["a"], "id": [2], "w": [7.5], "n": pa.array([3], pa.int32())}))
    assert iceberg_rows(table) == own_rows(table) == [("a", 1, 1.0, None), ("a", 2, 7.5, 3)]
    assert [each["schema-id"] for each in metadata_json(table)["schemas"]] == [0, 1]


def test_statistics_and_partitions_choose_files(tmp_path: Path) -> None:
    """Issue 20 point 1: bounds in Iceberg's form; a filter of a partition or a value plans the files that can match."""
    schema = pa.schema(
        [("pt", pa.string()), ("id", pa.int64()), ("d", pa.decimal128(10, 2)), ("ts", pa.timestamp("ms"))]
    )
    table = table_in(tmp_path, schema=schema, partition_by=["pt"], options={"bucket": "-1"} | {"bucket-key": "id"} | {})
    for index, pt in enumerate("abc"):
        body = [[pt], [index], [Decimal(index)], [index]]
        table.write(pa.table({f.name: pa.array(c, f.type) for f, c in zip(schema, body, strict=True)}))
    scan = opened(table).scan
    assert len(list(scan().plan_files())) == 3
    assert len(list(scan(row_filter="pt = 'b'").plan_files())) == 1
    assert len(list(scan(row_filter="id >= 1").plan_files())) == 2
    file = next(each for each in live_entries(metadata_json(table)).values() if each["partition"]["pt"] == "b")
    lows = {each["key"]: each["value"] for each in file["lower_bounds"]}
    # 1 as a long; 1.00 as the fewest bytes of 100; one millisecond as 1000 microseconds
    assert lows == {0: b"b", 1: b"\x01" + b"\0" * 7, 2: b"d", 3: b"\xe8\x03" + b"\0" * 6}


@pytest.mark.sweep
def test_expired_snapshots_leave_nothing_behind(tmp_path: Path) -> None:
    """Issue 20 point 1: the directory holds what the shown snapshots need, a tagged one among them, and no more."""
    table = table_in(tmp_path, options={"metadata.iceberg.compaction.min.file-num": "3"})
    for turn in range(12):
        table.write(several([turn]))
        if turn == 4:
            create_tag(table.store, "keep")
    expire_all_but(table, 2)
    table.write(several([99]))
    metadata = metadata_json(table)
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [5, 11, 12, 13]
    assert is_equal_at_all_snapshots(table)
    files = {path.name for path in Path(metadata_directory(table.store)).iterdir()}
    assert files == {"v13.metadata.json", "version-hint.text", *referenced(metadata)}
    delete_tag(table.store, "keep")
    table.write(several([100]))
    metadata = metadata_json(table)
    assert [each["snapshot-id"] for each in metadata["snapshots"]] == [11, 12, 13, 14]
    files = {path.name for path in Path(metadata_directory(table.store)).iterdir()}
    assert files == {"v14.metadata.json", "version-hint.text", *referenced(metadata)}


def test_what_dead_writers_of_metadata_left_is_found_and_nothing_else(tmp_path: Path) -> None:
    """Issue 20 point 1: manifests that no version refers to are orphans; those of any version that is there are not."""
    table = table_in(tmp_path, options={"metadata.iceberg.delete-after-commit.enabled": "false", "write-only": "true"})
    for turn in range(3):
        table.write(several([turn]))
    directory = Path(metadata_directory(table.store))
    used = {path.name for path in directory.iterdir()}
    dead = {"snap-9-0-dead.avro", "dead-m0-b0-1.avro"}
    for name in {*dead, "notes.txt"}:
        (directory / name).write_bytes(b"x")
    found = find_orphans(table.store, before_ms=10**15)
    assert {Path(each.path).name for each in found} == dead
    assert find_orphans(table.store, before_ms=0) == []
    delete_orphans(table.store, found, progress=lambda done, of: None)
    assert {path.name for path in directory.iterdir()} == {*used, "notes.txt"}
    assert is_equal_at_all_snapshots(table)
    next(directory.glob("snap-3-*")).unlink()
    (directory / "dead-m0-b0-1.avro").write_bytes(b"x")
    with pytest.raises(CorruptDataError, match=r"v3\.metadata\.json .* fix='delete the directory"):
        find_orphans(table.store, before_ms=10**15)


def test_spark_reads_without_its_vectorized_reader(tmp_path: Path) -> None:
    """Issue 20 point 1: Iceberg's (1.9) fails at an encoding of keys and timestamps, so the metadata turns it off."""
    table = table_in(tmp_path, primary_key=["id"])
    table.write(several([1, 2]))
    table.compact(full=True)
    file = next(iter(live_entries(metadata_json(table)).values()))
    group = pq.ParquetFile(file["file_path"]).metadata.row_group(0)
    assert any("DELTA_BINARY_PACKED" in group.column(each).encodings for each in range(group.num_columns))
    assert opened(table).properties["read.parquet.vectorization.enabled"] == "false"


def test_a_rollback_is_followed(tmp_path: Path) -> None:
    """Issue 20 point 1: ids are used again, and readers see the new history, not the one that was undone."""
    table = table_in(tmp_path)
    for turn in range(4):
        table.write(several([turn]))
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(2)))
    table.write(several([50]))
    assert iceberg_rows(table) == own_rows(table)
    assert sorted(row[1] for row in own_rows(table)) == [0, 1, 50]
    names = [path.name for path in Path(metadata_directory(table.store)).iterdir()]
    assert [name for name in names if name.endswith(".json")] == ["v3.metadata.json"]


class OnlyMetadata:
    """Files whose Iceberg metadata alone meets faults."""

    def __init__(self, faulty: FaultyFileIO) -> None:
        self._faulty = faulty

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not hasattr(self._faulty.inner, name):
            raise AttributeError(name)

        def call(path: str, *more: Any) -> Any:
            return getattr(self._faulty if "/metadata" in path else self._faulty.inner, name)(path, *more)

        return call


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_fault_at_any_place_is_made_up_for_by_the_next_commit(tmp_path: Path, when: When) -> None:
    """Issue 20 point 1: the commit stands, readers have a whole old or new state, and the next commit shows it all."""
    table = table_in(tmp_path, options={"bucket": "1", "metadata.iceberg.compaction.min.file-num": "2"})
    table.write(several([0]))
    for number in count(1):
        faulty = FaultyFileIO(LocalFileIO(), fail_at=number, when=when)
        assert reopened(table, OnlyMetadata(faulty)).write(several([number])).snapshot is not None  # type: ignore[arg-type]
        shown = metadata_json(table)["current-snapshot-id"]
        assert iceberg_rows(table) == own_rows(table, shown), faulty.log
        if faulty.calls < number:
            break
        table.write(several([-number]))
        assert iceberg_rows(table) == own_rows(table), faulty.log
    assert number > 10  # looks, reads, writes
    assert is_equal_at_all_snapshots(table)


def test_commits_without_metadata_are_caught_up_with_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 20 point 1: a writer whose metadata fails says so and goes on; staleness shows, then nothing is missing."""
    table = table_in(tmp_path)
    table.write(several([0]))

    class Refusing(LocalFileIO):
        def write_new(self, path: str, body: bytes) -> None:
            if "/metadata/" in path:
                raise UnavailableError("the disk of the metadata is full")
            super().write_new(path, body)

    other = reopened(table, Refusing())
    for turn in range(1, 4):
        assert other.write(several([turn])).snapshot is not None
    assert "Iceberg metadata is behind: table=db.t snapshot=4 error=the disk" in caplog.text
    state = iceberg_state(table.store)
    assert state is not None
    assert (state.shown, state.newest, state.behind) == (1, 4, 3)
    assert iceberg_rows(table) == own_rows(table, 1)
    table.write(several([4]))
    assert [each["snapshot-id"] for each in metadata_json(table)["snapshots"]] == [1, 2, 3, 4, 5]
    assert is_equal_at_all_snapshots(table)


@pytest.mark.sweep
def test_a_commit_costs_the_same_in_a_small_and_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 20 point 1: a commit that replaces files of one bucket reads and writes metadata of a few manifests."""
    for module in (manifests, history):
        monkeypatch.setattr(module, "MOST_ENTRIES", 20)
    costs = []
    for buckets in (40, 200):
        table = table_in(tmp_path / str(buckets), primary_key=["id"], options={"bucket": str(buckets)})
        table.write(several(range(buckets * 8)))
        table.compact(full=True)
        table.write(several([1], v=3.0))
        io = FaultyFileIO(LocalFileIO())
        sizes: dict[str, int] = {}
        changing = reopened(table, io)  # type: ignore[arg-type]
        changing.compact(full=True)
        touched = [line.split(" ")[1] for line in io.log if "/metadata/" in line and ".avro" in line]
        for path in touched:
            if Path(path).exists() and "-m" in Path(path).name:
                sizes[path] = Path(path).stat().st_size
        costs.append((len(touched), sum(sizes.values())))
        assert iceberg_rows(table) == own_rows(table)
    assert costs[0][0] == costs[1][0]
    assert costs[1][1] < 1.1 * costs[0][1]


def test_a_table_made_again_forgets_the_one_before(tmp_path: Path) -> None:
    """Issue 20 point 1: in a Hadoop catalog the metadata of a dropped table stays until a table of its name commits."""
    catalog = FileCatalog(str(tmp_path))
    for value in (1.0, 2.0):
        table = catalog.create_table("db.t", SCHEMA, options={"metadata.iceberg.storage": "hadoop-catalog"})
        table.write(several([1], v=value))
        assert metadata_directory(table.store) == f"{tmp_path}/iceberg/db/t/metadata"
        assert iceberg_rows(table) == own_rows(table)
        catalog.drop_table("db.t")


def test_what_iceberg_cannot_show_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 20 point 1: catalogs that are not built, and rows deleted by vectors that readers would not see."""
    catalog = FileCatalog(str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"metadata\.iceberg\.storage"):
        catalog.create_table("db.r", SCHEMA, options={"metadata.iceberg.storage": "hive-catalog"})
    with pytest.raises(InvalidInputError, match=r"fix='set metadata\.iceberg\.rest\.uri"):
        catalog.create_table("db.r", SCHEMA, options={"metadata.iceberg.storage": "rest-catalog"})
    with pytest.raises(InvalidInputError, match=r"fix='set metadata\.iceberg\.format-version=3"):
        catalog.create_table("db.v", SCHEMA, options={**HERE, "deletion-vectors.enabled": "true"})
    with pytest.raises(InvalidInputError, match=r"file\.format=orc"):
        catalog.create_table("db.o", SCHEMA, options={**HERE, "file.format": "orc"})
    table = catalog.create_table("db.t", pa.schema([("t", pa.time32("ms"))]), options=HERE)
    table.write(pa.table({"t": pa.array([1], pa.time32("ms"))}))
    assert "a column has no Iceberg type: column=t type=TIME(3)" in caplog.text
    state = iceberg_state(table.store)
    assert state is not None
    assert state.behind == 1


@pytest.mark.sweep
def test_a_table_that_counts_its_rows_shows_each_distinct_one_with_its_count(tmp_path: Path) -> None:
    """Issue 20 point 1: readers see the stored columns, as of the last full compaction."""
    table = FileCatalog(str(tmp_path)).create_table(
        "db.t", SCHEMA, options={**HERE, "row-counts": "true", "bucket": "1"}
    )
    assert table.store.counts_rows
    table.write(several([1, 1, 2]))
    table.compact(full=True)
    columns = [field.name for field in table.store.schema.fields]
    assert set(SCHEMA.names) < set(columns)
    found = opened(table).scan().to_arrow()
    assert found.column_names == columns
    assert found.num_rows == 2
    assert sorted(row["id"] for row in found.to_pylist()) == [1, 2]
