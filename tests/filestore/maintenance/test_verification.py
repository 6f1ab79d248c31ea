"""What is wrong with a table is found, and nothing is said of one that is well."""

from collections.abc import Callable

import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.maintenance.verification import verify_files
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from tests.support.tables import content, key_table, rows


def tagged_table() -> FileTable:
    table = key_table(bucket="1", changelog_producer="input")
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((1, 9)))
    create_tag(table.store, "eod")
    table.compact(full=True)
    return table


def findings(table: FileTable) -> list[tuple[str, str]]:
    found = verify_files(table.store, progress=lambda done, of: None)
    return sorted({(each.check, each.subject) for each in found})


def data_file(table: FileTable) -> str:
    live = LiveFiles.latest(table.store)
    (key,) = live.buckets()
    return table.store.file_path(key.partition, key.bucket, live.files(key)[0])


def test_a_table_that_is_well_has_no_findings() -> None:
    assert findings(tagged_table()) == []
    assert findings(key_table(bucket="1")) == []


def changed_json(table: FileTable, path: str, old: bytes, new: bytes) -> None:
    body = table.store.io.read_bytes(path)
    assert old in body
    table.store.io.replace(path, body.replace(old, new))


DAMAGE: dict[str, tuple[Callable[[FileTable], None], list[tuple[str, str]]]] = {
    "a data file is gone": (lambda t: t.store.io.delete(data_file(t)), [("data files", "snapshot 3")]),
    "a data file is short": (
        lambda t: t.store.io.replace(data_file(t), t.store.io.read_bytes(data_file(t))[:-1]),
        [("data files", "snapshot 3")],
    ),
    "a list of a tag is gone": (
        lambda t: t.store.io.delete(t.store.paths.manifest(t.store.snapshots.tag("eod").delta_manifest_list)),
        [("manifests", "snapshot 2"), ("manifests", "tag eod")],
    ),
    "a list is cut": (
        lambda t: t.store.io.replace(t.store.paths.manifest(t.store.snapshots.read(3).base_manifest_list), b"short"),
        [("manifests", "snapshot 3")],
    ),
    "a snapshot in the middle is gone": (
        lambda t: t.store.io.delete(t.store.paths.snapshot(2)),
        [("snapshots", "main")],
    ),
    "a hint lies": (
        lambda t: t.store.io.replace(t.store.paths.latest_hint, b"1"),
        [("hint", "main LATEST")],
    ),
    "a count lies": (
        lambda t: changed_json(t, t.store.paths.snapshot(3), b'"totalRecordCount": 2', b'"totalRecordCount": 7'),
        [("total_record_count", "snapshot 3")],
    ),
    "a delta lies": (
        lambda t: changed_json(t, t.store.paths.snapshot(2), b'"deltaRecordCount": 1', b'"deltaRecordCount": 7'),
        [("delta_record_count", "snapshot 2")],
    ),
    "a consumer wants what is gone": (
        lambda t: (t.store.consumers.write("etl", 0), None)[1],
        [("consumer", "etl")],
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_every_kind_of_damage_is_found(kind: str) -> None:
    damage, expected = DAMAGE[kind]
    table = tagged_table()
    damage(table)
    assert findings(table) == expected


def test_verification_does_not_stop_at_what_cannot_be_read() -> None:
    """One row for each broken thing: two snapshots, a tag, a schema, and two manifests of a third snapshot. (FL-14)"""
    table = tagged_table()
    table.write(rows((3, 3)))
    table.write(rows((4, 4)))
    table.write(rows((5, 5)))
    create_tag(table.store, "bad")
    io, paths = table.store.io, table.store.paths
    newest = table.store.snapshots.read(6)
    manifests = table.store.manifests.read_list(newest.base_manifest_list, newest.base_manifest_list_size)
    for name in [each.file_name for each in manifests][:2]:
        io.delete(paths.manifest(name))
    for path in (paths.snapshot(1), paths.snapshot(4)):
        io.replace(path, io.read_bytes(path)[:50])
    io.replace(paths.tag("bad"), b"{")
    io.replace(paths.schema(7), b"{}")
    found = list(verify_files(table.store, progress=lambda done, of: None))
    assert {("snapshots", "snapshot 1"), ("snapshots", "snapshot 4"), ("unreadable", "tag bad")} <= set(findings(table))
    assert ("schemas", "main schema 7") in findings(table)
    lost = [each.problem for each in found if (each.check, each.subject) == ("manifests", "snapshot 6")]
    assert len(lost) == 2
    assert all(each.startswith("missing=") and "remove-unexisting-manifests" in each for each in lost)


def test_of_a_branch_whose_deletion_was_interrupted_only_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files go one by one: those that are gone are not lost."""
    table = tagged_table()
    create_branch(table.store, "dev", tag="eod")
    open_since = table.on_branch("dev")
    open_since.write(rows((7, 7)))

    def killed(*parts: object) -> None:
        raise RuntimeError("the process is killed here")

    with monkeypatch.context() as patched:
        patched.setattr("filestore.branch.branches.clear_branch", killed)
        with pytest.raises(RuntimeError):
            delete_branch(table.store, "dev")
    assert findings(table) == [("branch", "dev")]
    with pytest.raises(SnapshotExpiredError, match="the branch is being deleted or renamed"):
        content(open_since)
    delete_branch(table.store, "dev")
    assert findings(table) == []
