"""A main branch that is being replaced is sealed: whatever happens then, what was acknowledged is there."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from filestore.branch.branches import create_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import interrupted_replacements, replace_main
from filestore.branch.merge import merge_branch
from filestore.layout.branch_state import MAIN_BRANCH_FILE, Operation, Work, main_branch, seal, set_main_branch
from filestore.maintenance.rewriting import restore
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.savepoint_files import SavedCheckpoint, list_savepoints, read_savepoint
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, hold_snapshot, rename_tag, replace_tag
from lsm.errors import ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError
from tests.support.faults import Disks, FaultyFileIO, MemoryFileIO, When, fail_points, paused_before
from tests.support.roots import files_there, used_files
from tests.support.tables import copied, failing_at, key_table, key_values, newest_snapshot, reopened, rows

BASE, ON_DEV = [(1, 10), (2, 20)], [(1, 10), (2, 20), (3, 30)]


def begun(main: str = "main") -> FileTable:
    """Two snapshots and the tag ``old`` of the first; the branches ``dev`` and ``other`` with one more each."""
    table = key_table(MemoryFileIO())
    for pair in BASE:
        table.write(rows(pair))
    create_tag(table.store, "old", snapshot_id=1)
    if main != "main":
        create_branch(table.store, main, snapshot_id=2)
        replace_main(table.store, main)
        table = reopened(table, table.store.io)
    for name in ("dev", "other"):
        create_branch(table.store, name, snapshot_id=2)
        table.on_branch(name).write(rows((3, 30)))
    return table


def dead_at_the_switch(main: str = "main") -> FileTable:
    """The replacement of main by ``dev`` died right before its switch."""
    table = begun(main)
    counted = FaultyFileIO(copied(table).store.io)
    replace_main(reopened(table, counted).store, "dev")
    switch = max(
        at for at, line in enumerate(counted.log, 1) if line.startswith("replace") and MAIN_BRANCH_FILE in line
    )
    with pytest.raises(FluvialError):
        replace_main(reopened(table, FaultyFileIO(table.store.io, fail_at=switch)).store, "dev")
    assert main_branch(table.store.io, table.store.paths.root) == main
    return table


CHANGES: dict[str, Callable[[FileTable], object]] = {
    "tag": lambda table: create_tag(table.store, "new"),
    "replace tag": lambda table: replace_tag(table.store, "old", snapshot_id=2),
    "rename tag": lambda table: rename_tag(table.store, "old", "new"),
    "delete tag": lambda table: delete_tag(table.store, "old"),
    "savepoint": lambda table: create_savepoint(table.store, compact=False),
    "branch": lambda table: create_branch(table.store, "late", snapshot_id=1),
    "write": lambda table: table.write(rows((7, 70))),
    "fast-forward": lambda table: fast_forward(table.store, "other", force=True),
    "replace by another": lambda table: replace_main(table.store, "other"),
}


@pytest.mark.parametrize("main", ["main", "first"])
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_acknowledged_behind_a_seal_and_the_next_call_completes(change: str, main: str) -> None:
    """BR-16: it would be lost with the former main."""
    table = dead_at_the_switch(main)
    refusals = (ConflictError, OutcomeUnknownError)
    if change in ("replace tag", "rename tag"):  # the tag is a copied one by now, as of a branch
        refusals = (*refusals, InvalidInputError)  # type: ignore[assignment]
    with pytest.raises(refusals):
        CHANGES[change](table)
    assert replace_main(reopened(table, table.store.io).store, "dev").dropped == main
    now = reopened(table, table.store.io)
    assert key_values(now) == ON_DEV
    assert "old" in now.store.snapshots.tag_names()
    assert "new" not in now.store.snapshots.tag_names()
    now.write(rows((8, 80)))
    create_tag(now.store, "new")
    create_savepoint(now.store)
    assert used_files(now) <= files_there(now)


def test_a_dead_replacement_is_named_and_listed() -> None:
    table = dead_at_the_switch()
    found = {each.subject: each.problem for each in verify_files(table.store, progress=lambda done, of: None)}
    assert found["main"].startswith("operation=replace-main to=dev ")
    assert found["dev"].startswith("operation=replace-main was=main ")
    assert [target for _, target in interrupted_replacements(table.store)] == ["dev"]
    replace_main(table.store, "dev")
    assert interrupted_replacements(table.store) == []


@pytest.mark.sweep
def test_each_dead_replacement_is_completed_by_the_call_that_is_listed() -> None:
    """BR-16, BR-50: at every step, also those that move main back."""
    table = begun()
    for target, dropped in (("dev", "main"), ("main", "dev")):
        counted = FaultyFileIO(copied(table).store.io)
        replace_main(reopened(table, counted).store, target)
        for fail_at in range(1, counted.calls, 13):
            disk = copied(table)
            with suppress(FluvialError):
                replace_main(reopened(disk, FaultyFileIO(disk.store.io, fail_at=fail_at)).store, target)
            for _, branch in interrupted_replacements(disk.store):
                assert replace_main(disk.store, branch).dropped == dropped, fail_at
            now = reopened(disk, disk.store.io)
            now.write(rows((8, 80)))
            assert interrupted_replacements(now.store) == []
        replace_main(table.store, target)
        table = reopened(table, table.store.io)


@pytest.mark.parametrize("main", ["main", "first"])
def test_a_dead_replacement_that_is_refused_by_now_leaves_main_open(main: str) -> None:
    """A savepoint that came before the seal is seen behind it, and it stays."""
    table = begun(main)
    create_savepoint(table.store)
    work = Work(operation=Operation.REPLACE_MAIN if main == "main" else Operation.REWRITE, arguments={"to": "dev"})
    seal(table.store.io, table.store.paths, work)
    opened = Work(operation=Operation.REPLACE_MAIN, arguments={"was": main})
    seal(table.store.io, table.store.paths.with_branch("dev"), opened)
    with pytest.raises(InvalidInputError, match=r"main has savepoints of commits .*savepoints=\[1\]"):
        replace_main(table.store, "dev")
    table.write(rows((8, 80)))
    assert key_values(table) == [*BASE, (8, 80)]
    assert interrupted_replacements(table.store) == []


def test_a_seal_that_another_run_has_taken_back_is_noticed_before_the_switch() -> None:
    table = begun()
    io = table.store.io

    class Unsealing:
        def __getattr__(self, name: str) -> object:
            return getattr(io, name)

        def list_names(self, directory: str) -> list[str]:
            if directory.endswith("/tag"):  # the last look before the switch
                set_main_branch(io, table.store.paths.root, "main")
            return io.list_names(directory)

    with pytest.raises(ConflictError, match="another run of the same replacement"):
        replace_main(reopened(table, Unsealing()).store, "dev")  # type: ignore[arg-type]
    assert key_values(reopened(table, io)) == BASE
    assert interrupted_replacements(table.store) == []


def test_savepoints_of_the_common_history_survive_and_go_back_is_possible() -> None:
    """versions.md L2: with their checkpoints; a number that the branch has used too becomes its next one."""
    table = key_table(MemoryFileIO(), bucket="1")
    table.write(rows(BASE[0]))

    def keep(snapshot: Snapshot) -> list[SavedCheckpoint]:
        table.store.io.replace(f"{table.store.paths.savepoint_dir}/checkpoint-a/offsets/0", b"v1")
        return [
            SavedCheckpoint(
                query_id="q", commit_user="q", batch_id=0, location="/c", directory="checkpoint-a",
                files=("offsets/0",), sources=(1,),
            )
        ]  # fmt: skip

    create_savepoint(table.store, keep_checkpoints=keep)
    table.write(rows(BASE[1]))
    create_savepoint(table.store)
    create_branch(table.store, "dev", snapshot_id=newest_snapshot(table).id)
    branch = table.on_branch("dev")
    branch.write(rows((3, 30)))
    assert create_savepoint(branch.store).id == 1
    table.write(rows((1, 99)))
    replace_main(table.store, "dev")
    table = reopened(table, table.store.io)
    saved = {each.id: key_values(table, version=f"savepoint.{each.id}") for each in list_savepoints(table.store)}
    assert saved == {1: ON_DEV, 2: BASE, 3: BASE[:1]}
    [kept] = read_savepoint(table.store, 3).checkpoints
    assert table.store.io.read_bytes(f"{table.store.paths.savepoint_dir}/{kept.directory}/{kept.files[0]}") == b"v1"
    assert list(verify_files(table.store, progress=lambda done, of: None)) == []
    assert used_files(table) == files_there(table)
    restore(table.store, read_savepoint(table.store, 2).snapshot)
    assert key_values(table) == BASE
    assert create_savepoint(table.store).id == 4
    replace_main(table.store, "main")
    table = reopened(table, table.store.io)
    assert {each.id for each in list_savepoints(table.store)} == {1, 2, 3, 4}
    for each in (1, 2, 3, 4):
        delete_savepoint(table.store, each)
    assert key_values(table) == BASE


def test_an_expiry_that_was_decided_before_the_branch_became_main_leaves_no_gap() -> None:
    """Seed 30006544: it deleted a snapshot between those that the branch got, and those that it kept."""
    table = key_table(bucket="1")
    for key in (1, 2):
        table.write(rows((key, key)))
    create_branch(table.store, "dev", snapshot_id=2)
    branch = table.on_branch("dev")
    branch.write(rows((3, 3)))
    keep_one = Retention(min_count=1, max_count=1, age_ms=0, limit=9)
    with paused_before(table.store.io, "replace", lambda: replace_main(table.store, "dev") and None) as io:  # the claim
        expired = [*expire_snapshots(reopened(table, io).on_branch("dev").store, keep_one)]
    assert ([step.snapshot.id for step in expired], branch.store.snapshots.ids()) == ([1, 2], [3])
    table = reopened(table, table.store.io)
    assert files_there(table) == used_files(table)


def merged_table(io: MemoryFileIO) -> FileTable:
    """The branch ``dev`` was merged at its fourth snapshot, compacted and expired since; ``other`` began at its end."""
    table = key_table(io, bucket="1")
    for pair in BASE:
        table.write(rows(pair))
    hold_snapshot(table.store, "merged-1", 1)  # a user's, from before the name was reserved
    create_branch(table.store, "dev", snapshot_id=2)
    branch = table.on_branch("dev")
    branch.write(rows((3, 30)))
    merge_branch(table.store, "dev")
    assert set(branch.store.snapshots.tag_names()) == {"branch-dev", "merged-3"}
    branch.compact(full=True)
    for _ in expire_snapshots(branch.store, Retention(min_count=1, max_count=1, age_ms=0, limit=9)):
        pass
    return table


def test_what_a_branch_merged_is_no_tag_of_main() -> None:
    """It kept files for a next merge, which cannot come any more."""
    table = merged_table(MemoryFileIO())
    replace_main(table.store, "dev")
    table = reopened(table, table.store.io)
    assert sorted(table.store.snapshots.tag_names()) == ["merged-1"]
    assert key_values(table) == ON_DEV
    assert used_files(table) == files_there(table)


def test_a_merged_state_that_a_branch_began_at_stays() -> None:
    table = merged_table(MemoryFileIO())
    create_branch(table.on_branch("dev").store, "late", tag="merged-3")
    replace_main(table.store, "dev")
    table = reopened(table, table.store.io)
    assert sorted(table.store.snapshots.tag_names()) == ["merged-1", "merged-3"]
    assert key_values(table.on_branch("late")) == ON_DEV


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_whatever_dies_the_next_call_leaves_no_merged_state(when: When) -> None:
    table, disks = merged_table(MemoryFileIO()), Disks()
    counted = FaultyFileIO(copied(table).store.io)
    replace_main(reopened(table, counted).store, "dev")
    for step in fail_points(counted, when):
        again = copied(table)
        with suppress(FluvialError):
            replace_main(reopened(again, FaultyFileIO(again.store.io, fail_at=step, when=when)).store, "dev")
        if not disks.is_new(again.store.io):
            continue
        with suppress(InvalidInputError):  # it had ended
            replace_main(again.store, "dev")
        again = reopened(again, again.store.io)
        assert "merged-3" not in again.store.snapshots.tag_names()
        assert key_values(again) == ON_DEV


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_whatever_dies_the_next_call_takes_each_savepoint_over_once(when: When) -> None:
    before = key_table(MemoryFileIO(), bucket="1")
    before.write(rows(BASE[0]))
    saved_id = create_savepoint(before.store).saved_snapshot_id
    create_branch(before.store, "dev", snapshot_id=saved_id)
    create_savepoint(before.on_branch("dev").store)
    disks = Disks()
    for fail_at in range(1, 400):
        table, failing, faulty = failing_at(before, fail_at, when)
        with suppress(FluvialError, OSError):
            replace_main(failing.store, "dev")
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        if main_branch(table.store.io, table.store.paths.root) != "dev":
            replace_main(reopened(table, table.store.io).store, "dev")
        table = reopened(table, table.store.io)
        saved = [(each.id, each.saved_snapshot_id) for each in list_savepoints(table.store)]
        assert saved == [(1, saved_id), (2, saved_id)]
        assert [key_values(table, version=f"savepoint.{each}") for each, _ in saved] == [BASE[:1]] * 2
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("the sweep did not end")
