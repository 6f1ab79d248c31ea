"""Savepoints as files: what they hold, what keeps them, and what is left when making or deleting one dies."""

from contextlib import suppress
from functools import partial

import orjson
import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.branch.fast_forward import fast_forward
from filestore.compact.compactor import compact_buckets
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.savepoint_files import (
    SavedCheckpoint,
    Savepoint,
    earliest_savepoint_id,
    latest_savepoint_id,
    list_savepoints,
    read_savepoint,
    savepoint_directory,
    savepoint_exists,
    savepoint_path,
)
from filestore.refs.versions import snapshot_of
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, expired_tags, rename_tag, replace_tag
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import Disks, When, paused_before
from tests.support.roots import check_orphans_go, files_there, used_files
from tests.support.tables import content, failing_at, key_table, reopened, rows

ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def written_table() -> FileTable:
    """Three runs in one bucket."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "9"})
    for value in range(3):
        table.write(rows((1, value), (2 + value, value)))
    return table


ROWS = {1: 2, 2: 0, 3: 1, 4: 2}


def run_count(table: FileTable, savepoint: Savepoint) -> int:
    live = LiveFiles(table.store, savepoint.snapshot)
    return max(len(live.levels(key).runs) for key in live.buckets())


# ---- the object and its manager


def test_a_savepoint_holds_what_the_proposal_says() -> None:
    """SP-03 to SP-11, SP-17, TAG-37, TAG-38: the golden form of the file, and back.

    SP-04, SP-05, SP-06, SP-07 are its fields, SP-08, SP-09, SP-10 what reads and writes them.
    """
    table = written_table()
    savepoint = create_savepoint(table.store, compact=False)
    body = orjson.loads(table.store.io.read_bytes("/warehouse/db.db/t/savepoint/savepoint-1"))
    assert list(body)[:6] == [
        "id", "savedSnapshotId", "schemaId", "fullManifestList", "fullManifestListSize", "recordCount",
    ]  # fmt: skip
    assert (body["id"], body["savedSnapshotId"], body["schemaId"], body["recordCount"]) == (1, 4, 0, 6)
    assert body["snapshot"] == orjson.loads(table.store.io.read_bytes(table.store.paths.snapshot(4)))
    assert Savepoint.from_json(orjson.dumps(body)) == savepoint
    assert Savepoint.from_path(table.store.io, savepoint_path(table.store, 1)) == savepoint
    entries = [
        e for m in savepoint.data_manifests(table.store.manifests) for e in table.store.manifests.read_manifest(m)
    ]
    live = LiveFiles(table.store, savepoint.snapshot)
    assert {entry.file.file_name for entry in entries} == {f.file_name for k in live.buckets() for f in live.files(k)}


def test_savepoints_are_found_by_their_numbers() -> None:
    """SP-12 to SP-16 (SP-13, SP-14, SP-15), TAG-39: numbers rise, also behind one that was deleted."""
    table = written_table()
    assert (earliest_savepoint_id(table.store), latest_savepoint_id(table.store)) == (None, None)
    first = create_savepoint(table.store)
    table.write(rows((9, 9)))
    second = create_savepoint(table.store)
    assert (first.id, second.id) == (1, 2)
    assert savepoint_directory(table.store) == "/warehouse/db.db/t/savepoint"
    assert savepoint_path(table.store, 2) == "/warehouse/db.db/t/savepoint/savepoint-2"
    assert (earliest_savepoint_id(table.store), latest_savepoint_id(table.store)) == (1, 2)
    assert list_savepoints(table.store) == [first, second]
    assert (savepoint_exists(table.store, 2), savepoint_exists(table.store, 3)) == (True, False)
    delete_savepoint(table.store, 2)
    assert create_savepoint(table.store).id == 3
    with pytest.raises(InvalidInputError, match=r"no such savepoint: .*savepoint=2 savepoints=\[1, 3\]"):
        read_savepoint(table.store, 2)


def test_a_savepoint_that_is_not_whole_is_named() -> None:
    table = written_table()
    create_savepoint(table.store)
    path = table.store.paths.savepoint(1)
    table.store.io.replace(path, table.store.io.read_bytes(path)[:-20])
    with pytest.raises(CorruptDataError, match=r"savepoint cannot be decoded: file=.*savepoint-1"):
        list_savepoints(table.store)
    table.store.io.replace(path, b"{}")
    with pytest.raises(CorruptDataError, match="KeyError"):
        read_savepoint(table.store, 1)


# ---- creating


def test_the_compacted_state_is_saved() -> None:
    """SP-19: one run for each bucket, the same rows, and no change that a stream would see."""
    table = written_table()
    savepoint = create_savepoint(table.store)
    assert run_count(table, savepoint) == 1
    assert content(table) == content(table, tag="savepoint-1") == ROWS
    kinds = {each: table.store.snapshots.read(each) for each in table.store.snapshots.ids()[3:]}
    assert {each.properties["fluvial.changes"] for each in kinds.values()} == {"none"}
    assert savepoint.saved_snapshot_id == table.store.snapshots.latest_id() == 5
    assert create_savepoint(table.store).saved_snapshot_id == 5  # nothing to compact, and the base list is everything


def test_a_savepoint_needs_a_snapshot() -> None:
    with pytest.raises(InvalidInputError, match="no snapshot to save"):
        create_savepoint(key_table(bucket="1").store)


def test_a_writer_that_compacts_at_the_same_moment_is_planned_around() -> None:
    """SP-19, Trap 12: the compaction is planned again; what others append meanwhile is saved as it is."""
    table = written_table()
    with paused_before(table.store.io, "open_output", lambda: compact_buckets(table.store, full=True)) as io:
        assert run_count(table, create_savepoint(reopened(table, io).store)) == 1
    other = written_table()
    with paused_before(other.store.io, "open_output", lambda: other.write(rows((8, 8)))) as io:
        savepoint = create_savepoint(reopened(other, io).store)
    assert run_count(other, savepoint) == 2
    assert content(other, tag="savepoint-1") == {**ROWS, 8: 8}


def test_a_writer_that_never_stops_compacting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """SP-19, Trap 12: bounded attempts, then what to do."""
    table = written_table()

    def lose(*_: object, **__: object) -> None:
        raise ConflictError("file was removed")

    monkeypatch.setattr("filestore.commit.table_commit.TableCommit.commit_compaction", lose)
    with pytest.raises(ConflictError, match=r"kept compacting.*file was removed.*compact=false"):
        create_savepoint(table.store)
    assert list_savepoints(table.store) == []
    assert content(table) == ROWS


def test_two_that_save_at_once_get_two_numbers() -> None:
    """SP-03: exclusive creation decides."""
    table = written_table()
    create_savepoint(table.store)
    with paused_before(table.store.io, "create_exclusive", lambda: create_savepoint(table.store)) as io:
        assert create_savepoint(reopened(table, io).store).id == 3
    assert [each.id for each in list_savepoints(table.store)] == [1, 2, 3]


def test_a_savepoint_that_comes_too_late_is_undone() -> None:
    """SP-20: an expiry claims snapshots before it looks for savepoints."""
    table = written_table()
    create_savepoint(table.store)

    def expire() -> None:
        table.write(rows((5, 5)))
        list(expire_snapshots(table.store, ALL_BUT_ONE))

    with (
        paused_before(table.store.io, "write_new", expire) as io,
        pytest.raises(ConflictError, match=r"the snapshot expired while it was saved: .*snapshot=5 earliest=6"),
    ):
        create_savepoint(reopened(table, io).store)
    assert [each.id for each in list_savepoints(table.store)] == [1]
    assert content(table, tag="savepoint-1") == ROWS


def test_a_savepoint_that_an_expiry_meets_half_made_keeps_its_files() -> None:
    table = written_table()
    create_savepoint(table.store)

    def expire() -> None:
        table.write(rows((5, 5)))
        compact_buckets(table.store, full=True)
        list(expire_snapshots(table.store, ALL_BUT_ONE))

    with paused_before(table.store.io, "create_exclusive", expire) as io:
        saved = create_savepoint(reopened(table, io).store)
    assert content(table, tag=saved.tag_name) == ROWS
    check_orphans_go(table)


# ---- keeping and deleting


def test_a_savepoint_outlives_the_snapshots_and_its_end_frees_its_files() -> None:
    """SP-01, SP-20, TAG-31: expiry spares what it uses; deleting it deletes what nothing else uses."""
    table = written_table()
    create_savepoint(table.store)
    table.write(rows((1, 7)))
    compact_buckets(table.store, full=True)
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert table.store.snapshots.ids() == [7]
    assert content(table, tag="savepoint-1") == ROWS
    assert [f for f in find_orphans(table.store, before_ms=10**15) if "/checkpoint-" not in f.path] == []
    shown = delete_savepoint(table.store, 1, dry_run=True)
    assert list_savepoints(table.store) != []
    assert delete_savepoint(table.store, 1) == shown
    assert len(shown.data) == 1
    assert shown.metadata
    assert files_there(table) == used_files(table)
    assert table.store.snapshots.tag_names() == []


def test_a_savepoint_is_travelled_to() -> None:
    """TAG-17, TAG-20: by its version; by time, when the snapshots of then have expired, with or without its tag."""
    table = written_table()
    create_tag(table.store, "older", snapshot_id=1)
    saved = create_savepoint(table.store)
    table.write(rows((1, 7)))
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    for _ in range(2):
        found = snapshot_of(table.store, "savepoint.1")
        assert (found.snapshot, found.how) == (saved.snapshot, "a savepoint was asked for")
        found = snapshot_of(table.store, f"timestamp.{saved.snapshot.time_ms}")
        expected = "the snapshots of that time have expired, this is the closest savepoint before it: 1"
        assert (found.snapshot, found.how) == (saved.snapshot, expected)
        assert snapshot_of(table.store, f"timestamp.{saved.snapshot.time_ms - 1}").how.endswith("tag before it: older")
        table.store.io.delete(table.store.paths.tag("savepoint-1"))


def test_the_tag_of_a_savepoint_belongs_to_it() -> None:
    """SP-20: other engines know the savepoint by the tag only, so nobody takes it away by name or by age."""
    table = written_table()
    create_tag(table.store, "eod")
    create_savepoint(table.store)
    assert table.store.io.read_bytes(table.store.paths.tag("savepoint-1")) == table.store.io.read_bytes(
        table.store.paths.snapshot(5)
    )
    for touch in (
        lambda: delete_tag(table.store, "savepoint-1"),
        lambda: replace_tag(table.store, "savepoint-1"),
        lambda: rename_tag(table.store, "savepoint-1", "mine"),
    ):
        with pytest.raises(InvalidInputError, match=r"the tag belongs to a savepoint.*fix=delete the savepoint"):
            touch()
    for take in (lambda: create_tag(table.store, "savepoint-7"), lambda: rename_tag(table.store, "eod", "savepoint-7")):
        with pytest.raises(InvalidInputError, match="the name is reserved for a savepoint's tag"):
            take()
    assert expired_tags(table.store, older_than_ms=10**15)[0].name == "eod"
    assert len(expired_tags(table.store, older_than_ms=10**15)) == 1


def test_a_tag_that_somebody_else_deleted_is_found_and_made_again() -> None:
    """SP-20: expiry of ours spares the files without the tag too."""
    table = written_table()
    create_savepoint(table.store)
    table.store.io.delete(table.store.paths.tag("savepoint-1"))
    [finding] = verify_files(table.store, progress=lambda done, of: None)
    assert (finding.check, finding.subject) == ("savepoint", "tag savepoint-1")
    table.write(rows((1, 7)))
    compact_buckets(table.store, full=True)
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    create_savepoint(table.store)
    assert content(table, tag="savepoint-1") == ROWS
    assert list(verify_files(table.store, progress=lambda done, of: None)) == []


def test_savepoints_belong_to_their_branch() -> None:
    """BR-50, Trap 14: a savepoint of a branch keeps files of main, and the tag of main's a branch."""
    table = written_table()
    savepoint = create_savepoint(table.store)
    there = table.store.paths.with_branch("dev")
    body = savepoint.snapshot.to_json().encode()
    table.store.io.replace(there.schema(0), table.store.io.read_bytes(table.store.paths.schema(0)))
    table.store.io.replace(there.tag("savepoint-1"), body)
    table.store.io.replace(there.snapshot(5), body)
    with pytest.raises(InvalidInputError, match=r"a branch was created from this tag.*branch=dev"):
        delete_savepoint(table.store, 1)
    assert create_savepoint(table.on_branch("dev").store).id == 2  # the tag of the first number is taken
    assert table.store.io.exists("/warehouse/db.db/t/branch/branch-dev/savepoint/savepoint-2")
    for path in (there.tag("savepoint-1"), there.snapshot(5), f"{there.branch_root}/ORIGIN"):
        table.store.io.delete(path)
    assert delete_savepoint(table.store, 1).data == ()
    assert {entry.path for entry in find_orphans(table.store, before_ms=10**15)} == set()


def test_savepoints_of_a_branch_stay_with_it() -> None:
    """Main has a savepoint of the same number, of another snapshot."""
    table = written_table()
    create_branch(table.store, "dev", snapshot_id=3)
    branch = table.on_branch("dev")
    branch.write(rows((7, 7)))
    saved = create_savepoint(branch.store)
    create_tag(branch.store, "eod")
    fast_forward(table.store, "dev")
    assert "eod" in table.store.snapshots.tag_names()
    assert not any(name.startswith("savepoint-") for name in table.store.snapshots.tag_names())
    assert create_savepoint(table.store).id == 1
    table.write(rows((8, 8)))
    delete_branch(table.store, "dev")
    assert content(table, tag="savepoint-1") == {**ROWS, 7: 7}
    assert saved.saved_snapshot_id == read_savepoint(table.store, 1).saved_snapshot_id
    assert {each.path for each in find_orphans(table.store, before_ms=10**15)} == set()


# ---- faults

FAULTS = (UnavailableError, OutcomeUnknownError, ConflictError, CorruptDataError)


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("action", ["create", "delete"])
def test_whatever_dies_a_savepoint_that_is_there_can_be_read(action: str, when: When) -> None:
    """SP-19, SP-20: every operation fails once, and running it again completes it; the rest is found as orphans."""
    before = written_table()
    create_savepoint(before.store)
    before.write(rows((1, 9)))
    expected = {1: ROWS, 2: {**ROWS, 1: 9}, 3: {**ROWS, 1: 9}}
    disks = Disks()
    for fail_at in range(1, 200):
        table, again, faulty = failing_at(before, fail_at, when)
        with suppress(*FAULTS):
            if action == "create":
                create_savepoint(again.store, keep_checkpoints=partial(kept_checkpoints, again))
            else:
                delete_savepoint(again.store, 1)
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        for each in list_savepoints(table.store):
            assert LiveFiles(table.store, each.snapshot).snapshot_id == each.saved_snapshot_id
            assert (
                table.store.io.read_bytes(table.store.paths.snapshot(each.saved_snapshot_id))
                == each.snapshot.to_json().encode()
            )
            assert content(table, snapshot_id=each.saved_snapshot_id) == expected[each.id]
            assert all(table.store.io.exists(path) for path in each.own_paths(table.store.paths))
        assert content(table) == expected[2]
        if action == "create":
            create_savepoint(table.store)
            names = [f"savepoint-{each.id}" for each in list_savepoints(table.store)]
            assert table.store.snapshots.tag_names() == names
        elif savepoint_exists(table.store, 1):
            delete_savepoint(table.store, 1)
        check_orphans_go(table)
        own = {path for each in list_savepoints(table.store) for path in each.own_paths(table.store.paths)}
        assert {path for path in table.store.io.files if "/savepoint/checkpoint-" in path} == own
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("the sweep did not end")


def kept_checkpoints(table: FileTable, _: Snapshot) -> list[SavedCheckpoint]:
    directory = f"checkpoint-{table.store.names.uuid()}"
    table.store.io.write_new(f"{table.store.paths.savepoint_dir}/{directory}/offsets/7", b"v1")
    kept = SavedCheckpoint(
        query_id="q",
        commit_user="q",
        batch_id=7,
        location="/checkpoints/q",
        directory=directory,
        files=("offsets/7",),
        sources=(),
    )
    return [kept]
