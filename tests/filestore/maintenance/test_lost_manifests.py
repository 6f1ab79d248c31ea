"""A table that lost manifests can be read again, without what they added."""

import pytest

from filestore.maintenance.lost_manifests import lost_manifests, remove_lost_manifests
from filestore.maintenance.verification import verify_files
from filestore.scan.snapshot_files import delta_manifests, manifests_of
from filestore.table import FileTable
from tests.support.tables import content, key_table, rows

PURPOSE = {"fluvial.purpose": "test"}


def a_table() -> FileTable:
    """Three commits of a row each."""
    table = key_table(bucket="1")
    for number in range(3):
        table.write(rows((number, number)))
    return table


def lose(table: FileTable, snapshot_id: int) -> str:
    """The manifest of what a commit added."""
    (manifest,) = delta_manifests(table.store, table.store.snapshots.read(snapshot_id))
    path = table.store.paths.manifest(manifest.file_name)
    table.store.io.delete(path)
    return path


@pytest.mark.parametrize(("lost", "left"), [(1, {1: 1, 2: 2}), (2, {0: 0, 2: 2}), (3, {0: 0, 1: 1})])
def test_what_the_others_added_is_there(lost: int, left: dict[int, int | None]) -> None:
    table = a_table()
    path = lose(table, lost)
    snapshot = table.store.snapshots.read(3)
    (found,) = lost_manifests(table.store, snapshot)
    assert (found.path, found.added_count, found.deleted_count) == (path, 1, 0)
    made = remove_lost_manifests(table.store, PURPOSE).snapshot
    assert made is not None
    assert (made.id, made.total_record_count, made.properties["fluvial.purpose"]) == (4, 2, "test")
    assert content(table) == left
    assert lost_manifests(table.store, made) == []
    assert not [
        each for each in verify_files(table.store, progress=lambda done, of: None) if "snapshot 4" in each.subject
    ]
    table.write(rows((7, 7)))
    table.compact(full=True)
    assert content(table) == {**left, 7: 7}


def test_a_lost_list_is_as_good_as_empty() -> None:
    table = a_table()
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.read(3).base_manifest_list))
    (found,) = lost_manifests(table.store, table.store.snapshots.read(3))
    assert found.added_count is None
    remove_lost_manifests(table.store, PURPOSE)
    assert content(table) == {2: 2}


def test_a_table_that_is_well_has_lost_nothing() -> None:
    table = a_table()
    snapshot = table.store.snapshots.read(3)
    assert lost_manifests(table.store, snapshot) == []
    assert len(manifests_of(table.store, snapshot)) == 3
