import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import DeletionVectorRange, IndexManifestEntry
from filestore.read.split_read import read_split
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import KEY_SCHEMA, content, key_table, rows

MERGES = {"source.split.open-file-cost": "1 b"}


def overlapping() -> FileTable:
    table = key_table(**MERGES)
    table.write(rows(*((n, n) for n in range(10))))
    table.write(rows((2, 20), (3, 30)), pa.array(["+U", "-D"]))
    return table


def test_a_merged_split_is_in_key_order_without_deletes() -> None:
    """FL-182."""
    table = overlapping()
    [split] = TableScan(table.store).plan().splits
    assert split.needs_merge
    assert not split.raw_convertible
    batches = list(read_split(table, split))
    found = pa.Table.from_batches(batches).to_pylist()
    assert found == [{"id": n, "v": 20 if n == 2 else n} for n in range(10) if n != 3]
    assert all(batch.num_rows for batch in batches)


def test_columns_come_in_the_order_asked_for_and_only_those() -> None:
    table = overlapping()
    [split] = TableScan(table.store).plan().splits
    [batch] = read_split(table, split, columns=["v"], filter="id = 2")
    assert batch.to_pydict() == {"v": [20]}
    [batch] = read_split(table, split, columns=["v", "id"], filter="v >= 9", with_system=True)
    assert batch.to_pydict() == {"v": [20, 9], "id": [2, 9], SEQUENCE_NUMBER: [10, 9], VALUE_KIND: [2, 0]}


def test_no_columns_still_count_the_rows() -> None:
    table = overlapping()
    assert sum(batch.num_rows for batch in table.read().to_batches(columns=[])) == 9
    assert table.read().to_arrow(columns=[]).num_columns == 0


def test_a_filter_on_values_is_applied_after_the_merge() -> None:
    table = overlapping()
    assert table.read().to_arrow(filter="v = 2").num_rows == 0
    assert table.read().to_arrow(filter="v = 20").num_rows == 1


def test_a_column_that_does_not_exist_is_named() -> None:
    table = overlapping()
    with pytest.raises(InvalidInputError, match="column=nope"):
        table.read().to_arrow(columns=["nope"])
    with pytest.raises(InvalidInputError, match="nope"):
        table.read().to_arrow(filter="nope = 1")


def test_deletion_vectors_hide_rows_by_their_place_in_the_file() -> None:
    """Rows are hidden before a filter can move their places."""
    table = key_table(primary_key=())
    table.write(rows(*((n, n) for n in range(10))))
    [split] = TableScan(table.store).plan().splits
    blob = bytes.fromhex("5e43f2d0 3a300000 01000000 0000 0100 10000000 0100 0200")
    body = b"\x01" + len(blob).to_bytes(4, "big") + blob + zlib.crc32(blob).to_bytes(4, "big")
    table.store.io.write_new(table.store.paths.index("index-1"), body)
    entry = IndexManifestEntry(
        kind=EntryKind.ADD,
        partition=split.partition,
        bucket=0,
        index_type="DELETION_VECTORS",
        file_name="index-1",
        size_bytes=len(body),
        row_count=1,
        deletion_vectors=(
            DeletionVectorRange(data_file_name=split.files[0].file_name, offset=1, length=len(blob), cardinality=2),
        ),
    )
    latest = table.store.snapshots.latest()
    assert latest is not None
    name = table.store.manifests.write_index_manifest([entry])
    assert table.store.snapshots.publish(replace(latest, id=2, index_manifest=name))
    [split] = TableScan(table.store).plan().splits
    assert not split.raw_convertible
    assert content(table) == {n: n for n in range(10) if n not in (1, 2)}
    assert table.read().to_arrow(columns=["v"], filter="id >= 2 and id < 5").column("v").to_pylist() == [3, 4]
    table.compact(full=True)
    [split] = TableScan(table.store).plan().splits
    assert (split.raw_convertible, split.row_count) == (True, 8)
    assert table.store.snapshots.latest().index_manifest is None  # type: ignore[union-attr]


def test_only_the_files_of_the_split_are_opened_and_late_ones_late() -> None:
    disk = MemoryFileIO()
    table = key_table(disk, **MERGES, **{"target-file-size": "1 b"})
    for start in (0, 100, 200):
        table.write(rows(*((start + n, 0) for n in range(5))))
    io = FaultyFileIO(disk)
    batches = FileTable(replace(table.store, io=io)).read().to_batches()
    next(batches)
    assert sum("open_input" in line for line in io.log) == 1


@pytest.mark.sweep
def test_memory_is_bounded_however_large_the_split() -> None:
    """A merge holds a section and a batch of each run, not the files."""
    table = key_table(**MERGES)
    runs, count, row_bytes = 4, 400_000, 25
    rng = np.random.default_rng(1)
    for run in range(runs):
        ids = np.sort(rng.choice(4 * count, count, replace=False))
        table.write(pa.table({"id": ids, "v": np.full(count, run)}, schema=KEY_SCHEMA))
    before = pa.total_allocated_bytes()
    seen = peak = 0
    for batch in table.read().to_batches():
        seen += batch.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert seen > count
    assert peak < runs * count * row_bytes / 2
