"""Ids of rows: given once, kept by compactions, and never of two rows."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from filestore.branch.branches import create_branch
from filestore.branch.merge import merge_branch
from filestore.manifest.entries import DataFileMeta
from filestore.scan.row_ranges import files_by_rows
from filestore.scan.snapshot_files import live_files
from filestore.table import FileTable
from filestore.write.row_deletion import delete_rows
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.entries import file
from tests.support.tables import check_metadata, expire_all_but, key_table, newest_snapshot, rows

ON: Final = {"row-tracking.enabled": "true", "bucket": "-1"}


def tracked(table: FileTable, **travel: Any) -> dict[int, tuple[int, int]]:
    """Row id and number by ``id``."""
    found = table.read(row_ids=True, **travel).to_arrow().to_pylist()
    assert len({row["_ROW_ID"] for row in found}) == len(found)
    return {row["id"]: (row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in found}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_ids_stay_through_deletes_and_compactions(file_format: str) -> None:
    options = {**ON, "file.format": file_format, "deletion-vectors.enabled": "true"}
    table = key_table(primary_key=(), **options)
    for start in (0, 10, 20):
        table.write(rows(*((n, n % 7) for n in range(start, start + 10))))
    expected = {n: (n, n // 10 + 1) for n in range(30)}
    assert tracked(table) == expected
    delete_rows(table.store, "id < 3 or id = 15")
    for gone in (0, 1, 2, 15):
        del expected[gone]
    assert tracked(table) == expected
    table.compact(full=True)
    table.write(rows((99, None)))
    expected[99] = (30, 6)
    assert tracked(table) == expected
    table.compact(full=True)
    assert tracked(table) == expected
    read = table.read(row_ids=True)
    assert read.to_arrow(columns=["id"], filter="_ROW_ID in (4, 30) and _SEQUENCE_NUMBER > 1").to_pylist() == [
        {"id": 99}
    ]
    assert read.to_arrow(columns=["_ROW_ID"], filter="_ROW_ID = 4").to_pylist() == [{"_ROW_ID": 4}]
    assert read.schema.names == ["id", "v", "_ROW_ID", "_SEQUENCE_NUMBER"]
    assert tracked(table, snapshot_id=1) == {n: (n, 1) for n in range(10)}
    assert table.read().to_arrow().column_names == ["id", "v"]
    check_metadata(table)


@pytest.mark.parametrize("seed", range(8))
def test_any_history_gives_each_row_one_id(seed: int) -> None:
    """Appends, overwrites, deletes, compactions and expiry, beside a list of what was written."""
    chance = random.Random(seed)
    table = key_table(primary_key=(), **ON, **{"deletion-vectors.enabled": "true"})
    known: dict[int, tuple[int, int]] = {}
    following = snapshot = 0
    for first in range(0, 400, 20):
        act = chance.choice(["write", "write", "overwrite", "delete", "compact", "expire"])
        if act in ("write", "overwrite"):
            numbers = range(first, first + chance.randrange(1, 9))
            put = table.write if act == "write" else table.overwrite
            put(rows(*((n, n) for n in numbers)))
            found = table.store.snapshots.latest()
            assert found is not None
            snapshot = found.id
            known = ({} if act == "overwrite" else known) | {
                n: (following + at, snapshot) for at, n in enumerate(numbers)
            }
            following += len(numbers)
        elif act == "delete" and known:
            gone = chance.choice([*known])
            delete_rows(table.store, f"id = {gone}")
            del known[gone]
        elif act == "compact":
            table.compact(full=chance.random() < 0.5)
        elif act == "expire" and table.store.snapshots.latest() is not None:
            expire_all_but(table, 1)
        assert tracked(table) == known
        newest = table.store.snapshots.latest()
        assert newest is None or newest.next_row_id == following


def test_rows_of_a_branch_get_ids_of_main_when_they_are_merged() -> None:
    table = key_table(primary_key=(), **ON)
    table.write(rows((0, 0), (1, 1)))
    create_branch(table.store, "b", snapshot_id=1)
    branch = table.on_branch("b")
    branch.write(rows((10, 10)))
    table.write(rows((20, 20)))
    assert tracked(branch)[10][0] == tracked(table)[20][0] == 2
    merge_branch(table.store, "b")
    assert {key: number for key, (number, _) in tracked(table).items()} == {0: 0, 1: 1, 20: 2, 10: 3}


def test_only_rows_without_a_key_and_buckets_have_ids() -> None:
    for key, options in ((("id",), {"bucket": "-1"}), ((), {"bucket": "2", "bucket-key": "id"})):
        with pytest.raises(InvalidInputError, match=r"row-tracking\.enabled=true"):
            key_table(primary_key=key, **{**ON, **options})
    with pytest.raises(InvalidInputError, match=r"row-tracking\.enabled=false"):
        key_table().read(row_ids=True)


def test_files_of_the_same_rows_come_together_and_the_newest_first() -> None:
    def part(name: str, first: int | None, count: int, number: int) -> DataFileMeta:
        return replace(file(name), first_row_id=first, row_count=count, max_sequence_number=number)

    files = [part("c", 5, 2, 9), part("a", 0, 5, 1), part("b", 0, 5, 3), part("d", 7, 1, 1)]
    assert [[each.file_name for each in group] for group in files_by_rows(files)] == [["b", "a"], ["c"], ["d"]]
    for each in (part("e", 4, 2, 1), part("f", None, 2, 1), part("g", 0, 4, 2)):
        with pytest.raises(CorruptDataError):
            files_by_rows([*files, each])


@pytest.mark.parametrize("number", [2**63 - 2, -5, None])
def test_ids_of_strangers_are_named_when_they_cannot_be(number: int | None) -> None:
    """In a manifest: other reads go on."""
    table = key_table(primary_key=(), **ON)
    table.write(rows((1, 1), (2, 2)))
    store = table.store
    snapshot = newest_snapshot(table)
    (entry,) = live_files(store, snapshot)
    forged = replace(entry, file=replace(entry.file, first_row_id=number))
    name, size = store.manifests.write_list([store.manifests.write_manifest([forged])])
    changed = replace(snapshot, delta_manifest_list=name, delta_manifest_list_size=size)
    store.io.replace(store.paths.snapshot(snapshot.id), changed.to_json().encode())
    table = FileTable.open("db.t", store.paths.root, io=store.io)
    assert table.read().to_arrow().num_rows == 2
    with pytest.raises(CorruptDataError, match="_FIRST_ROW_ID="):
        table.read(row_ids=True).to_arrow()


def test_a_commit_gives_no_ids_beyond_the_last_one() -> None:
    table = key_table(primary_key=(), **ON)
    table.write(rows((1, 1)))
    snapshot = newest_snapshot(table)
    changed = replace(snapshot, next_row_id=2**63 - 1)
    table.store.io.replace(table.store.paths.snapshot(snapshot.id), changed.to_json().encode())
    with pytest.raises(CorruptDataError, match="next_row_id="):
        table.write(rows((2, 2)))
    assert table.read().to_arrow().num_rows == 1
