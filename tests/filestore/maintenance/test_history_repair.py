"""Forks, gaps and wrong hints: found by verify, repaired by one command, and only where something is wrong."""

from collections.abc import Callable

import pytest

from filestore.maintenance.history_repair import HistoryState, read_history, repair_history
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.savepoint_files import savepoint_ids
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import ConflictError, FluvialError
from tests.support.faults import Nth, When
from tests.support.tables import check_metadata, content, expire_all_but, failing_at, key_table, reopened, rows


def with_a_fork_of_files_that_are_merged_by_now() -> FileTable:
    """Snapshots 1 to 5, of which the fourth is a compaction, and the tag of a fork with the files from before it."""
    table = with_commits(3)
    put_copy(table, of=3, at=9)
    table.compact(full=True)
    assert actions(table)[:2] == [("tag fork", "snapshot 9"), ("remove fork", "snapshot 9")]
    table.write(rows((5, 5)))
    return table


def test_an_expiry_keeps_the_files_of_a_fork_that_became_a_tag() -> None:
    """Seed 30020184: they had left the history before the number of the fork, so nothing behind was asked for them."""
    table = with_a_fork_of_files_that_are_merged_by_now()
    keep_last(table, 1)
    (fork,) = table.store.snapshots.tag_names()
    assert content(table, tag=fork) == {1: 1, 2: 2, 3: 3}


def test_the_tag_of_a_fork_takes_no_files_of_older_snapshots_with_it() -> None:
    table = with_a_fork_of_files_that_are_merged_by_now()
    (fork,) = table.store.snapshots.tag_names()
    delete_tag(table.store, fork)
    check_metadata(table)
    assert content(table) == {1: 1, 2: 2, 3: 3, 5: 5}


def silent(done: int, total: int) -> None:
    """No progress is shown."""


def with_commits(count: int) -> FileTable:
    table = key_table(bucket="1", **{"write-only": "true"})
    for key in range(1, count + 1):
        table.write(rows((key, key)))
    return table


def keep_last(table: FileTable, count: int) -> None:
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=count, age_ms=10**15, limit=99)))


def put_copy(table: FileTable, of: int, at: int) -> None:
    """A snapshot file that does not belong there, with files that exist."""
    body = table.store.io.read_bytes(table.store.paths.snapshot(of))
    body = body.replace(f'"id": {of}'.encode(), f'"id": {at}'.encode()).replace(b'"uuid": "', b'"uuid": "f')
    table.store.io.write_new(table.store.paths.snapshot(at), body)


def problems(table: FileTable) -> list[tuple[str, str]]:
    return [(each.check, each.subject) for each in verify_files(table.store, progress=silent)]


def actions(table: FileTable, *, dry_run: bool = False) -> list[tuple[str, str]]:
    return [(each.action, each.subject) for each in repair_history(table.store, dry_run=dry_run)]


def shape(state: HistoryState) -> tuple[list[int], list[int], list[int]]:
    return [each.id for each in state.chain], [each.id for each in state.forks], [*state.missing_ids]


def test_a_whole_history_needs_no_repair() -> None:
    table = with_commits(5)
    keep_last(table, 2)
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    assert shape(read_history(table.store)) == ([4, 5], [], [])
    assert (actions(table), problems(table)) == ([], [])
    assert table.store.io.files == before  # type: ignore[attr-defined]


def fork_in_an_expired_number(table: FileTable) -> None:
    """As an older version left it: the hint LATEST went back to the fork."""
    keep_last(table, 1)
    put_copy(table, of=5, at=2)
    table.store.snapshots.write_latest_hint(2)


def fork_behind_the_newest(table: FileTable) -> None:
    put_copy(table, of=5, at=8)


@pytest.mark.parametrize(("damage", "fork"), [(fork_in_an_expired_number, 2), (fork_behind_the_newest, 8)])
def test_a_fork_becomes_a_tag(damage: Callable[[FileTable], None], fork: int) -> None:
    table = with_commits(5)
    damage(table)
    assert ("fork", f"main snapshot {fork}") in problems(table)
    planned = actions(table, dry_run=True)
    assert planned[:2] == [("tag fork", f"snapshot {fork}"), ("remove fork", f"snapshot {fork}")]
    assert (actions(table), actions(table)) == (planned, [])
    assert problems(table) == []
    (tag,) = table.store.snapshots.tag_names()
    assert tag.startswith(f"fork-of-snapshot-{fork}-")
    assert table.store.snapshots.latest_id() == 5
    table.write(rows((6, 6)))
    assert content(table) == {key: key for key in range(1, 7)}


@pytest.mark.parametrize("left", ["nothing", "manifest"])
def test_a_fork_without_files_is_removed(left: str) -> None:
    """As beside a rollback: what the fork continued is deleted, perhaps only the data."""
    table = with_commits(3)
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    body = table.store.io.read_bytes(table.store.paths.snapshot(3)).replace(b'"id": 3', b'"id": 4')
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(1)))
    for path, found in before.items():
        if f"/{left}/" in path:
            table.store.io.replace(path, found)
    table.store.io.write_new(table.store.paths.snapshot(4), body)
    assert actions(table) == [("remove fork", "snapshot 4")]
    assert (table.store.snapshots.ids(), table.store.snapshots.tag_names(), problems(table)) == ([1], [], [])
    assert table.store.snapshots.removed.has(table.store.snapshots.read(1).identity) is False


@pytest.mark.parametrize("hint", ["LATEST", "EARLIEST"])
def test_a_wrong_hint_is_set_right(hint: str) -> None:
    table = with_commits(3)
    table.store.io.replace(f"{table.store.paths.snapshot_dir}/{hint}", b"2")
    assert problems(table) == [("hint", f"main {hint}")]
    assert actions(table) == [("set hint", hint)]
    assert (problems(table), table.store.snapshots.hints()) == ([], (1, 3))


def test_a_tag_of_a_process_that_died_behind_a_rollback_is_removed() -> None:
    """It was paused before it created its tag; the rollback took the snapshot away; it died before it looked again."""
    table = with_commits(3)
    store = table.store
    create_tag(store, "kept", snapshot_id=1)
    bodies = {each: store.snapshots.read(each).to_json().encode() for each in (2, 3)}
    roll_back(store, plan_rollback(store, store.snapshots.read(1)))
    for each, body in bodies.items():
        store.io.write_new(store.paths.tag(f"late{each}"), body)
    assert [each.name for each in read_history(store).late] == ["late2", "late3"]
    assert ("tag", "main late3") in problems(table)
    assert actions(table) == [("remove tag", "tag late2"), ("remove tag", "tag late3")]
    assert (store.snapshots.tag_names(), problems(table)) == (["kept"], [])
    table.write(rows((9, 9)))
    assert expire_all_but(table, 1) == [1]


def test_a_savepoint_of_a_process_that_died_behind_a_rollback_is_removed() -> None:
    table = with_commits(2)
    store = table.store
    saved = create_savepoint(store)
    body, path = store.io.read_bytes(store.paths.savepoint(saved.id)), store.paths.savepoint(saved.id)
    delete_savepoint(store, saved.id)
    roll_back(store, plan_rollback(store, store.snapshots.read(1)))
    store.io.write_new(path, body)
    assert ("savepoint", "main 1") in problems(table)
    assert ("remove savepoint", "savepoint 1") in actions(table)
    assert (savepoint_ids(store), problems(table)) == ([], [])


def test_what_came_into_a_branch_behind_its_end_is_removed() -> None:
    """A tag of what was merged, without its files; and a commit to a branch that was main."""
    table = with_commits(2)
    store, there = table.store, table.store.paths.with_branch("gone")
    body = store.io.read_bytes(store.paths.snapshot(2))
    lost = body.replace(b"manifest-list-", b"manifest-list-f")
    store.io.write_new(there.tag("merged-2"), lost)
    store.io.write_new(there.snapshot(2), lost)
    store.io.write_new(store.paths.with_branch("made").tag("by-another-engine"), body)
    assert ("snapshot", "gone 2") in problems(table)
    assert actions(table) == [("remove snapshot", "snapshot 2 of gone"), ("remove tag", "tag merged-2 of gone")]
    assert store.io.list_names(store.paths.branch_dir) == ["branch-made"]
    assert content(table) == {1: 1, 2: 2}


def test_a_fork_that_became_a_tag_is_not_removed_as_one_that_came_late() -> None:
    """Its snapshot is noted as removed, too."""
    table = with_commits(3)
    put_copy(table, of=3, at=4)
    assert [action for action, _ in actions(table)] == ["tag fork", "remove fork"]
    (name,) = table.store.snapshots.tag_names()
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.tag(name).delta_manifest_list))
    assert read_history(table.store).late == ()


def test_a_gap_of_another_engine_is_reported_and_nothing_is_removed() -> None:
    """Without the names of parents later snapshots belong to the history."""
    table = with_commits(4)
    for each in (3, 4):
        path = table.store.paths.snapshot(each)
        table.store.io.replace(path, table.store.io.read_bytes(path).replace(b"fluvial.parent", b"other.property"))
    table.store.io.delete(table.store.paths.snapshot(2))
    assert shape(read_history(table.store)) == ([1, 3, 4], [], [2])
    assert actions(table) == []


def test_what_an_interrupted_rollback_of_an_older_version_took_from_under_a_commit_is_put_back() -> None:
    """It died between the deletion of snapshot 3 and its look for a follower, snapshot 4."""
    table = with_commits(4)
    store = table.store
    removed = store.snapshots.read(3)
    store.io.write_new(f"{store.paths.branch_root}/rollback/gone-snapshot-3", removed.to_json().encode())
    store.snapshots.removed.add(removed.identity)
    store.io.delete(store.paths.snapshot(3))
    assert actions(table) == [("restore snapshot", "snapshot 3")]
    assert content(table) == {1: 1, 2: 2, 3: 3, 4: 4}
    table.write(rows((5, 5)))
    roll_back(store, plan_rollback(store, store.snapshots.read(3)))
    table.write(rows((6, 6)))
    assert content(table) == {1: 1, 2: 2, 3: 3, 6: 6}


def test_a_rollback_that_another_engine_overtakes_puts_back_what_it_removed() -> None:
    """It looks for no notes, and its snapshots name no parent."""
    table = with_commits(4)
    store = table.store
    path, before = store.paths.snapshot(4), dict(store.io.files)  # type: ignore[attr-defined]
    theirs = store.io.read_bytes(path).replace(b"fluvial.parent", b"other.property")
    store.io.delete(path)
    store.snapshots.write_latest_hint(3)
    plan = plan_rollback(store, store.snapshots.read(1))
    io = Nth(store.io, 1, lambda: store.io.write_new(path, theirs), of=("delete",))
    with pytest.raises(ConflictError, match=r"another writer committed during the rollback.*snapshot=4"):
        roll_back(reopened(table, io).store, plan)  # type: ignore[arg-type]
    assert store.io.files == {**before, path: theirs}  # type: ignore[attr-defined]
    assert content(table) == {1: 1, 2: 2, 3: 3, 4: 4}


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_an_expiry_that_was_interrupted_has_lost_nothing_and_is_completed_by_repair(when: When) -> None:
    """What it has claimed is read by no one, so its files are not missed; EARLIEST stays where it was put."""
    before, interrupted = with_commits(6), 0
    for fail_at in range(1, 400):
        table, again, faulty = failing_at(before, fail_at, when)
        try:
            expire_all_but(again, 2)
        except FluvialError:
            pass
        else:
            if faulty.calls < fail_at:
                break
        found = {each.check for each in verify_files(table.store, progress=silent)}
        assert found <= {"expiry", "hint"}, fail_at
        interrupted += "expiry" in found
        list(repair_history(table.store))
        assert list(verify_files(table.store, progress=silent)) == []
        assert content(table) == {key: key for key in range(1, 7)}
        assert table.store.snapshots.ids()[0] in (1, 5), fail_at
        assert table.store.snapshots.hints()[0] in (None, *table.store.snapshots.ids()[:1]), fail_at
    assert interrupted > 5
