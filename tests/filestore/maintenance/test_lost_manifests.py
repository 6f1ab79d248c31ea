"""A table that lost manifests can be read again, without what they added."""

import pytest

from filestore.maintenance.lost_manifests import forget_manifests, lost_manifests
from filestore.maintenance.verification import verify_files
from filestore.scan.snapshot_files import delta_manifests, manifests_of
from filestore.table import Table
from tests.support.tables import content, key_table, rows

PURPOSE = {"fluvial.purpose": "test"}


def a_table() -> Table:
    """Three commits of a row each."""
    table = key_table(bucket="1")
    for number in range(3):
        table.write(rows((number, number)))
    return table


def lose(table: Table, snapshot_id: int) -> str:
    """The manifest of what a commit added."""
    (manifest,) = delta_manifests(table, table.snapshots.read(snapshot_id))
    path = table.paths.manifest(manifest.file_name)
    table.io.delete(path)
    return path


@pytest.mark.parametrize(("lost", "left"), [(1, {1: 1, 2: 2}), (2, {0: 0, 2: 2}), (3, {0: 0, 1: 1})])
def test_what_the_others_added_is_there(lost: int, left: dict[int, int | None]) -> None:
    table = a_table()
    path = lose(table, lost)
    snapshot = table.snapshots.read(3)
    (found,) = lost_manifests(table, snapshot)
    assert (found.path, found.added_count, found.deleted_count) == (path, 1, 0)
    made = forget_manifests(table, PURPOSE).snapshot
    assert made is not None
    assert (made.id, made.total_record_count, made.properties["fluvial.purpose"]) == (4, 2, "test")
    assert content(table) == left
    assert lost_manifests(table, made) == []
    assert not [each for each in verify_files(table, progress=lambda done, of: None) if "snapshot 4" in each.subject]
    table.write(rows((7, 7)))
    table.compact(full=True)
    assert content(table) == {**left, 7: 7}


def test_a_lost_list_is_as_good_as_empty() -> None:
    table = a_table()
    table.io.delete(table.paths.manifest(table.snapshots.read(3).base_manifest_list))
    (found,) = lost_manifests(table, table.snapshots.read(3))
    assert found.added_count is None
    forget_manifests(table, PURPOSE)
    assert content(table) == {2: 2}


def test_a_table_that_is_well_has_lost_nothing() -> None:
    table = a_table()
    snapshot = table.snapshots.read(3)
    assert lost_manifests(table, snapshot) == []
    assert len(manifests_of(table, snapshot)) == 3
