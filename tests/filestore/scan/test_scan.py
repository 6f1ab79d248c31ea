from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.manifest.entries import DataFileMeta
from filestore.scan.data_split import DataSplit
from filestore.scan.split_packing import KeyRange, PackLimits, pack_plain, pack_sorted
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from filestore.types.binary_row import decode_row, encode_row
from lsm.levels import SortedFile
from tests.support.entries import INT, file
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import KEY_SCHEMA, key_table, memory_catalog, rows

LIMITS = PackLimits(target_bytes=1000, open_cost_bytes=1)


def sorted_file(data: DataFileMeta) -> SortedFile:
    return SortedFile(
        file_name=data.file_name,
        level=data.level,
        size_bytes=data.size_bytes,
        row_count=data.row_count,
        delete_count=data.delete_row_count or 0,
        min_key=decode_row(data.min_key, (INT,)),
        max_key=decode_row(data.max_key, (INT,)),
        min_sequence_number=data.min_sequence_number,
        max_sequence_number=data.max_sequence_number,
        creation_time_ms=0,
    )


def key_range(data: DataFileMeta) -> KeyRange:
    return decode_row(data.min_key, (INT,)), decode_row(data.max_key, (INT,))


def packed(
    files: list[DataFileMeta], limits: PackLimits = LIMITS, keep: Callable[[DataFileMeta], bool] = lambda _: True
) -> list[tuple[list[str], bool]]:
    packs = pack_sorted(files, key_range=key_range, sorted_file=sorted_file, keep=keep, limits=limits)
    return [([each.file_name for each in pack.files], pack.is_raw) for pack in packs]


# ---- packing


def test_files_that_overlap_are_read_together_and_the_rest_is_read_raw() -> None:
    """FL-80: a bucket is cut into key ranges."""
    files = [
        file("a", level=5, keys=(0, 9)),
        file("b", level=5, keys=(10, 19)),
        file("c", keys=(12, 15)),
        file("d", level=5, keys=(20, 29)),
    ]
    assert packed(files) == [(["a", "d"], True), (["b", "c"], False)]


def test_a_file_with_deletes_is_never_raw() -> None:
    assert packed([file("a", level=5, deletes=1)]) == [(["a"], False)]
    unknown = replace(file("a", level=5), delete_row_count=None)
    assert packed([unknown]) == [(["a"], False)]


def test_a_lone_file_of_level_0_is_raw() -> None:
    assert packed([file("a")]) == [(["a"], True)]


def test_splits_are_about_as_large_as_asked_and_sections_stay_whole() -> None:
    apart = [file(str(n), level=5, keys=(10 * n, 10 * n + 9), size_bytes=400) for n in range(5)]
    assert packed(apart) == [(["0", "1"], True), (["2", "3"], True), (["4"], True)]
    together = [replace(each, max_key=apart[-1].max_key) for each in apart]
    assert [len(names) for names, _ in packed(together)] == [5]


def test_small_files_count_as_what_opening_them_costs() -> None:
    files = [file(str(n), level=5, keys=(n, n), size_bytes=1) for n in range(4)]
    assert len(packed(files, PackLimits(target_bytes=20, open_cost_bytes=10))) == 2


def test_little_that_is_raw_is_merged_along() -> None:
    files = [file("a", keys=(0, 1)), file("b", keys=(5, 6)), file("c", keys=(6, 7))]
    assert packed(files, PackLimits(target_bytes=10_000, open_cost_bytes=200)) == [(["b", "c", "a"], False)]


def test_values_prune_only_where_no_newer_version_can_be_elsewhere() -> None:
    """Source: paimon-format.md 13.9."""
    files = [file("a", level=5, keys=(0, 9)), file("b", level=5, keys=(10, 19)), file("c", keys=(12, 15))]
    assert packed(files, keep=lambda _: False) == [(["b", "c"], False)]


def test_plain_files_keep_their_order() -> None:
    packs = pack_plain([file(str(n), size_bytes=400) for n in range(3)], LIMITS)
    assert [[each.file_name for each in pack.files] for pack in packs] == [["0", "1"], ["2"]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8), st.integers(0, 1)), max_size=15),
    target=st.integers(1, 1000),
)
def test_no_key_is_in_two_splits_and_no_file_is_lost(ranges: list[tuple[int, int, int]], target: int) -> None:
    files = [file(str(n), keys=(low, low + length), deletes=d) for n, (low, length, d) in enumerate(ranges)]
    packs = pack_sorted(
        files,
        key_range=key_range,
        sorted_file=sorted_file,
        keep=lambda _: True,
        limits=PackLimits(target_bytes=target, open_cost_bytes=1),
    )
    assert sorted(each.file_name for pack in packs for each in pack.files) == sorted(f.file_name for f in files)
    keys = []
    for pack in packs:
        covered = {
            n for f in pack.files for n in range(ranges[int(f.file_name)][0], sum(ranges[int(f.file_name)][:2]) + 1)
        }
        if pack.is_raw:
            assert sum(ranges[int(f.file_name)][1] + 1 for f in pack.files) == len(covered)
        keys.append(covered)
    assert sum(map(len, keys)) == len(set().union(*keys))


# ---- planning

PARTITIONED = pa.schema([("p", pa.string()), ("id", pa.int32()), ("v", pa.int64())])


def partitioned(disk: MemoryFileIO | None = None, **options: str) -> FileTable:
    return memory_catalog(disk).create_table(
        "db.t", PARTITIONED, primary_key=["p", "id"], partition_by=["p"], options={"bucket": "4", **options}
    )


def part(name: str | None, low: int, high: int) -> pa.Table:
    ids = list(range(low, high))
    return pa.table({"p": [name] * len(ids), "id": ids, "v": [n * 10 for n in ids]}, schema=PARTITIONED)


def places(splits: tuple[DataSplit, ...]) -> set[tuple[object, int]]:
    text = PARTITIONED.field("p").type
    assert text == pa.string()
    return {(decode_row(split.partition, TEXT_TYPES)[0], split.bucket) for split in splits}


TEXT_TYPES = partitioned().store.partition_types


def test_a_table_without_snapshots_has_no_splits() -> None:
    plan = TableScan(key_table().store).plan()
    assert (plan.snapshot, plan.splits) == (None, ())


def test_a_filter_on_the_partition_leaves_out_manifests_that_are_not_even_read() -> None:
    """FL-158, FL-178."""
    disk = MemoryFileIO()
    table = partitioned(disk)
    for name in "abcd":
        table.write(part(name, 0, 20))
    io = FaultyFileIO(disk)
    plan = TableScan(replace(table.store, io=io)).plan(filter="p = 'b'")
    assert {name for name, _ in places(plan.splits)} == {"b"}
    read = [line for line in io.log if line.startswith("read_bytes") and "/manifest-0" in line]
    assert len(read) == 1


def test_a_filter_on_the_whole_bucket_key_selects_one_bucket() -> None:
    """Source: paimon-format.md 13.6."""
    table = partitioned()
    table.write(part("a", 0, 40))
    everything = TableScan(table.store).plan()
    assert len(places(everything.splits)) == 4
    assert len(places(TableScan(table.store).plan(filter="id = 7").splits)) == 1
    assert len(places(TableScan(table.store).plan(filter="id IN (7, 8, 9, 10) AND v > 0").splits)) <= 4
    assert len(places(TableScan(table.store).plan(filter="id = 7 OR v = 3").splits)) == 4
    assert TableScan(table.store).plan(filter="id = 7 AND id = 8").splits == ()


def test_a_bucket_of_usual_size_is_one_split_whatever_levels_its_files_are_on() -> None:
    """FL-180, FL-181: the split carries the files of every level, and the merge reads them together."""
    table = partitioned()
    table.write(part("a", 0, 40))
    table.compact(full=True)
    table.write(part("a", 0, 40))
    table.write(part("a", 0, 40))
    splits = TableScan(table.store).plan().splits
    assert sorted(split.bucket for split in splits) == [0, 1, 2, 3]
    top = table.store.level_count - 1
    assert {tuple(sorted(file.level for file in split.files)) for split in splits} == {(0, 0, top)}


def test_asked_for_buckets_and_partitions_only() -> None:
    """FL-79."""
    table = partitioned()
    table.write(part("a", 0, 40))
    table.write(part("b", 0, 40))
    partition = encode_row(("b",), table.store.partition_types)
    plan = TableScan(table.store).plan(partitions=[partition], buckets=[1, 3])
    assert places(plan.splits) == {("b", 1), ("b", 3)}


def test_statistics_leave_files_out() -> None:
    """FL-139, FL-154, FL-156, FL-181."""
    table = key_table(**{"source.split.open-file-cost": "1 b", "target-file-size": "1 b", "target-file-row-num": "1"})
    for start in (0, 100, 200):
        table.write(rows(*((start + n, 7 * start + n) for n in range(10))))
    scan = TableScan(table.store)

    def names(text: str) -> int:
        return sum(len(split.files) for split in scan.plan(filter=text).splits)

    assert names("id >= 0") == 3
    assert names("id > 150") == 1
    assert names("id BETWEEN 100 AND 205") == 2
    assert names("v = 703") == 1
    assert names("v IS NULL") == 0
    table.write(rows((100, 0), (209, 1)))
    assert names("v = 703") == 3, "versions that overlap must be merged first"
    assert table.read().to_arrow(filter="v = 700").num_rows == 0


def test_columns_that_a_file_is_too_old_for_count_as_null() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    fields = table.schema.fields
    wider = replace(table.schema, id=1, highest_field_id=2, fields=(*fields, replace(fields[1], id=2, name="late")))
    table.store.schemas.create(wider)
    table = FileTable.open(
        "db.t", table.store.paths.root, io=table.store.io, clock=table.store.clock, names=table.store.names
    )
    table.write(pa.table({"id": [2], "v": [2], "late": [5]}))
    assert table.read().to_arrow(filter="late = 5").to_pylist() == [{"id": 2, "v": 2, "late": 5}]
    assert table.read().to_arrow(filter="late IS NULL").to_pylist() == [{"id": 1, "v": 1, "late": None}]
    assert sum(len(split.files) for split in TableScan(table.store).plan(filter="late = 5").splits) == 1


def test_statistics_follow_a_column_to_its_new_name() -> None:
    """Two columns swap their names: the old files' statistics swap with them."""
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    table = key_table(schema=schema)
    table.write(pa.table({"id": [1], "a": [10], "b": [20]}))
    key, first, second = table.schema.fields
    swapped = replace(table.schema, id=1, fields=(key, replace(first, name="b"), replace(second, name="a")))
    table.store.schemas.create(swapped)
    table = FileTable.open(
        "db.t", table.store.paths.root, io=table.store.io, clock=table.store.clock, names=table.store.names
    )
    assert table.read().to_arrow(filter="b = 10").to_pylist() == [{"id": 1, "b": 10, "a": 20}]
    assert TableScan(table.store).plan(filter="a = 10").splits == ()


def test_null_partitions_are_found() -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    table = memory_catalog().create_table("db.t", schema, partition_by=["p"])
    for name in ("a", None, "b"):
        table.write(pa.table({"p": [name], "id": [1]}, schema=schema))
    assert table.read().to_arrow(filter="p IS NULL").to_pylist() == [{"p": None, "id": 1}]
    assert table.read().to_arrow(filter="p IS NOT NULL").num_rows == 2
    assert table.read().to_arrow(filter="p <> 'a'").to_pylist() == [{"p": "b", "id": 1}]


def test_a_split_needs_nothing_but_the_table() -> None:
    table = partitioned()
    table.write(part("a", 0, 40))
    for split in TableScan(table.store).plan().splits:
        assert DataSplit.from_json(split.to_json()) == split
        assert split.row_count == sum(each.row_count for each in split.files)
        assert split.size_bytes > 0


@pytest.mark.sweep
@pytest.mark.parametrize("schema", [KEY_SCHEMA])
def test_planning_costs_one_read_per_manifest(schema: pa.Schema) -> None:
    disk = MemoryFileIO()
    table = key_table(disk, schema=schema)
    for number in range(40):
        table.write(rows((number, number)))
    io = FaultyFileIO(disk)
    TableScan(replace(table.store, io=io)).plan()
    assert io.calls <= 6 + 31, "manifests are merged from thirty on"


@pytest.mark.parametrize("function", ["default", "mod"])
@pytest.mark.parametrize("has_key", [True, False])
def test_a_filter_for_null_in_the_bucket_key_is_no_error(function: str, has_key: bool) -> None:
    """There is no bucket of it where the function has none: no row is found, or those that are null."""
    options = {"bucket": "4", "bucket-key": "id", "bucket-function.type": function}
    table = memory_catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"] if has_key else [], options=options)
    table.write(rows((1, 1), (2, 2)))
    for condition, count in (
        ("id IS NULL", 0),
        ("id IS NULL OR id = 2", 1),
        ("id IN (NULL, 1)", 1),
        ("id <=> NULL", 0),
    ):
        found = TableScan(table.store).plan(filter=condition)
        assert sum(len(split.files) for split in found.splits) <= 2
        assert table.read().to_arrow(filter=condition).num_rows == count
